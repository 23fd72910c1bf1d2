"""The rules of a group as patterns and ranks, from which the matcher is built.

Invariant: a rank is one integer, unique in its group. The higher rank wins, and the place of the
rule can be computed from it. Ranks order rules by length and then Allow (RFC 9309 section 2.2.2) or
by place (koster1996 section 3.2.2); the matcher need not know which.
"""

from __future__ import annotations

from collections.abc import Sequence

from robots_guard.protocol.dialect import Dialect, Percent, Precedence
from robots_guard.protocol.matcher import Matcher, Ranking, compiled
from robots_guard.protocol.percent import UNCHANGED, rule_form


def formed(values: Sequence[bytes], percent: Percent, dialect: Dialect) -> str:
    """The patterns in the form in which they are compared, one per line: no value contains a line
    feed."""
    joined = b"\n".join(values)
    text = joined.decode("latin-1")
    if not joined.translate(None, UNCHANGED):
        return text
    text = rule_form(percent, wildcards=dialect.wildcards)(text)
    if dialect.dollar == "cuts" and "$" in text:
        return "\n".join(map(_cut_after_dollar, text.split("\n")))
    return text


def _cut_after_dollar(pattern: str) -> str:
    if "$" in pattern:
        return pattern[: pattern.index("$") + 1]
    return pattern


def _by_length(texts: Sequence[str], rows: Sequence[int]) -> Sequence[int]:
    """Rank by length, then Allow, then place, so that the earlier of two equal rules wins."""
    count = len(texts)
    places = range(count - 1, -1, -1)
    return [
        (len(text) * 2 + (row & 1)) * count + place
        for text, row, place in zip(texts, rows, places, strict=True)
    ]


def _by_place(texts: Sequence[str], rows: Sequence[int]) -> Sequence[int]:  # noqa: ARG001  (a Ranking)
    return range(len(texts) - 1, -1, -1)


_RANKINGS: dict[Precedence, Ranking] = {"longest": _by_length, "first": _by_place}


def ranks(texts: Sequence[str], rows: Sequence[int], dialect: Dialect) -> Sequence[int]:
    """The rank of each rule. The low bit of a row says whether the rule is an Allow."""
    return _RANKINGS[dialect.precedence](texts, rows)


def place_of(rank: int, count: int) -> int:
    """The place of the rule with this rank among `count` rules."""
    return count - 1 - rank % count


def matcher_of(text: str, rows: Sequence[int], dialect: Dialect) -> Matcher:
    """Compile the rules."""
    texts = text.split("\n") if rows else []
    operators = dialect.wildcards and ("*" in text or "$" in text)
    return compiled(texts, rows, _RANKINGS[dialect.precedence], operators=operators)
