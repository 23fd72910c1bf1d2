"""The rules of a group as patterns and ranks: what the matcher is built of.

The law of this file: a rank is one integer, unique in its group; the higher wins, and its place can be read from
it. By length and then Allow (RFC 9309 section 2.2.2) or by place (koster1996 section 3.2.2), the matcher never
knows which.
"""

from __future__ import annotations

from collections.abc import Sequence

from robots_guard.rep.dialect import Dialect, Percent
from robots_guard.rep.matcher import Matcher, Patterns
from robots_guard.rep.percent import rule_form


def formed(values: Sequence[bytes], percent: Percent, dialect: Dialect) -> list[str]:
    """The patterns in the writing they are compared in."""
    if not values:
        return []
    # All at once: no value holds a line feed.
    joined = rule_form(percent, wildcards=dialect.wildcards)(b"\n".join(values).decode("latin-1"))
    texts = joined.split("\n")
    if dialect.dollar == "cuts" and "$" in joined:
        texts = [text[: text.index("$") + 1] if "$" in text else text for text in texts]
    return texts


def ranks(texts: Sequence[str], allows: Sequence[int], dialect: Dialect) -> Sequence[int]:
    """A rank for each rule. The place comes last in it, so that the earlier of two equal rules wins."""
    count = len(texts)
    places = range(count - 1, -1, -1)
    if dialect.precedence == "first":
        return places
    return [(len(text) * 2 + allow) * count + place for text, allow, place in zip(texts, allows, places, strict=True)]


def place_of(rank: int, count: int) -> int:
    """The place of the rule that has this rank among so many."""
    return count - 1 - rank % count


def matcher_of(texts: Sequence[str], allows: Sequence[int], dialect: Dialect) -> Matcher:
    """The rules compiled."""
    patterns = Patterns()
    add = patterns.add_patterns if dialect.wildcards else patterns.add_prefixes
    add(texts, ranks(texts, allows, dialect))
    return patterns.compiled()
