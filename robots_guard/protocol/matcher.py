"""Patterns compiled for speed: a path to the rank of the deciding rule.

Invariant: patterns and paths are untrusted, so there are no regular expressions and no
backtracking. Work is at most linear in the number of patterns that could match, memory linear in
the patterns.

Invariant: a rank is one integer, unique in its group. The higher rank wins, -1 means no rule, and
the place of the rule can be computed from it. Ranks order rules by length and then Allow (RFC 9309
section 2.2.2) or by place (koster1996 section 3.2.2); the search need not know which, and its order
does not change the result. Compiling chooses one of five tiers:

    constant            no rule, or "/" alone
    up to 24 prefixes   one startswith() with a tuple, then each prefix
    up to 24 patterns   the same, then the wildcards in descending rank
    index               sorted prefixes, bisection, parent links; each wildcard is attached to its
                        literal head
    3-grams             if a path meets more than 64 wildcards: only those whose rarest 3-gram it
                        contains
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Protocol

from robots_guard.protocol.dialect import Dialect, Percent, Precedence
from robots_guard.protocol.percent import UNCHANGED, rule_form

FEW = 24
MANY = 64

# The limit of wildcards times bytes of the path per decision, some milliseconds. Reaching it takes
# thousands of wildcards designed for one path of kilobytes.
WORK = 1_000_000

NO_RULE = -1
TOO_COMPLEX = -2


class Matcher(Protocol):
    """The interface of all tiers."""

    def decide(self, path: str) -> int:
        """The rank of the deciding rule, NO_RULE, or TOO_COMPLEX if finding it would take too
        long."""


# A pattern with a star: rank, gate, head, middle, tail. A matching path begins with the head, then
# contains the texts of the middle in this order, and ends with the tail, unless that is None. The
# gate is the longest text after the head. These are plain tuples because hot loops iterate over
# them; the gate is tested first and excludes nearly all of them.
Wildcard = tuple[int, str, str, tuple[str, ...], str | None]


def _rest_matches(path: str, head: str, middle: tuple[str, ...], tail: str | None) -> bool:
    """Whether a path that begins with the head matches. The leftmost find suffices: no
    backtracking."""
    at = len(head)
    for text in middle:
        found = path.find(text, at)
        if found < 0:
            return False
        at = found + len(text)
    return tail is None or (len(path) - len(tail) >= at and path.endswith(tail))


class Patterns:
    """The patterns of one ruleset by kind. Of two equal patterns, the higher rank is kept."""

    __slots__ = ("exact", "prefixes", "wildcards")

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.exact: dict[str, int] = {}
        self.wildcards: list[Wildcard] = []

    def add_prefixes(self, texts: Sequence[str], ranks: Sequence[int]) -> None:
        """Add patterns without operators."""
        fresh = dict(zip(texts, ranks, strict=True))
        if len(fresh) == len(texts) and not self.prefixes:
            self.prefixes = fresh
            return
        prefixes = self.prefixes
        for text, rank in zip(texts, ranks, strict=True):
            if rank > prefixes.get(text, NO_RULE):
                prefixes[text] = rank

    def add_patterns(self, texts: Sequence[str], ranks: Sequence[int]) -> None:
        """Add patterns in which "*" and a trailing "$" are operators."""
        prefixes, exact = self.prefixes, self.exact
        for text, rank in zip(texts, ranks, strict=True):
            if "*" in text:
                self._add_starred(text, rank)
            elif text[-1:] == "$":
                exact[text[:-1]] = max(rank, exact.get(text[:-1], NO_RULE))
            elif rank > prefixes.get(text, NO_RULE):
                prefixes[text] = rank

    def _add_starred(self, pattern: str, rank: int) -> None:
        head, *rest = pattern.split("*")
        last = rest.pop()
        # A trailing "*$" has no effect.
        tail = last[:-1] if last[-1:] == "$" and last != "$" else None
        if tail is None and last != "$":
            rest.append(last)
        middle = tuple(filter(None, rest))
        if not middle and tail is None:
            self.prefixes[head] = max(rank, self.prefixes.get(head, NO_RULE))
            return
        gate = max(middle, key=len, default="")
        if tail is not None and len(tail) > len(gate):
            gate = tail
        self.wildcards.append((rank, gate, head, middle, tail))

    def compiled(self) -> Matcher:
        """Build the matcher of the appropriate tier."""
        if len(self.prefixes) + len(self.wildcards) > FEW:
            return Index(self)
        if self.wildcards or self.exact:
            return Few(self)
        return compiled(
            tuple(self.prefixes), tuple(self.prefixes.values()), _as_given, operators=False
        )


# A function from patterns and values of their rules (opaque to this module) to ranks.
Ranking = Callable[[Sequence[str], Sequence[int]], Sequence[int]]


def compiled(
    texts: Sequence[str], rules: Sequence[int], ranking: Ranking, *, operators: bool
) -> Matcher:
    """Compile patterns. Without operators, "*" and "$" are ordinary characters."""
    if not texts:
        return NOTHING
    if operators or len(texts) > FEW:
        patterns = Patterns()
        add = patterns.add_prefixes
        if operators:
            add = patterns.add_patterns
        add(texts, ranking(texts, rules))
        return patterns.compiled()
    # The usual file: build the matcher directly, without Patterns.
    if len(texts) == 1 and texts[0] == "/":
        return Constant(ranking(texts, rules)[0])
    return Prefixes(texts, rules, ranking)


def _as_given(texts: Sequence[str], ranks: Sequence[int]) -> Sequence[int]:  # noqa: ARG001  (a Ranking)
    return ranks


def pattern_matches(pattern: str, path: str, *, wildcards: bool) -> bool:
    """Whether one pattern matches a path. For explanations, and for tests of a single pattern."""
    return compiled((pattern,), (0,), _as_given, operators=wildcards).decide(path) == 0


class Constant:
    """A matcher with the same result for every path."""

    __slots__ = ("rank",)

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def decide(self, path: str) -> int:  # noqa: ARG002  (a Matcher)
        return self.rank


NOTHING = Constant(NO_RULE)


class Prefixes:
    """Up to 24 prefixes. One C call gives the usual result, no match; the first match ranks the
    prefixes."""

    __slots__ = ("_ranking", "ranks", "texts")

    def __init__(self, texts: Sequence[str], rules: Sequence[int], ranking: Ranking) -> None:
        self.texts = tuple(texts)
        self.ranks = rules
        self._ranking: Ranking | None = ranking

    def decide(self, path: str) -> int:
        if path.startswith(self.texts):
            if self._ranking is not None:
                self._rank(self._ranking)
            for place, text in enumerate(self.texts):
                if path.startswith(text):
                    return self.ranks[place]
        return NO_RULE

    def _rank(self, ranking: Ranking) -> None:
        """Sort by rank, the highest first."""
        pairs = sorted(zip(ranking(self.texts, self.ranks), self.texts, strict=True), reverse=True)
        self.texts = tuple([text for _, text in pairs])
        self.ranks = tuple([rank for rank, _ in pairs])
        self._ranking = None


class Few(Prefixes):
    """Up to 24 patterns of any kind."""

    __slots__ = ("exact", "wildcards")

    def __init__(self, patterns: Patterns) -> None:
        super().__init__(tuple(patterns.prefixes), tuple(patterns.prefixes.values()), _as_given)
        self.exact = patterns.exact or None
        self.wildcards = tuple(sorted(patterns.wildcards, reverse=True))

    def decide(self, path: str) -> int:
        best = super().decide(path) if path.startswith(self.texts) else NO_RULE
        if self.exact is not None:
            exact = self.exact.get(path, NO_RULE)
            if exact > best:
                best = exact
        for wildcard in self.wildcards:
            if wildcard[1] in path:
                rank, _, head, middle, tail = wildcard
                if rank <= best:
                    break
                if path.startswith(head) and _rest_matches(path, head, middle, tail):
                    return rank
        return best


class Index:
    """Any number of patterns.

    `keys` are all prefixes and all heads of wildcards, sorted, with "" first. Bisection finds the
    longest key a path begins with, or a descendant of it. `bests` contains the best rank of a key
    and its ancestors, `attached` the wildcards of both if they are few. If they are many, 3-grams
    are used instead: copying them to every key would cost keys times wildcards.
    """

    __slots__ = ("attached", "bests", "exact", "grams", "keys", "parents", "wildcards")

    def __init__(self, patterns: Patterns) -> None:
        self.exact = patterns.exact or None
        self.wildcards = tuple(sorted(patterns.wildcards, reverse=True))
        by_head: dict[str, list[Wildcard]] = {}
        for wildcard in self.wildcards:
            by_head.setdefault(wildcard[2], []).append(wildcard)
        # Copied in sorted order, so that neighbours in a bisection are neighbours in memory.
        self.keys = "\n".join(sorted({"", *patterns.prefixes, *by_head})).split("\n")
        parents, bests = _link(self.keys, patterns.prefixes)
        self.parents = array("i", parents)
        self.bests = array("q", bests)
        self.attached: Sequence[tuple[Wildcard, ...] | None] = ()
        if by_head:
            self.attached = _attach(self.keys, self.parents, self.bests, by_head)
        # Built now, because compiling may take its time, and the first decision may not.
        self.grams = Grams(self.wildcards) if None in self.attached else None

    def decide(self, path: str) -> int:
        keys = self.keys
        at = bisect_right(keys, path) - 1
        while not path.startswith(keys[at]):
            at = self.parents[at]
        best = self.bests[at]
        if self.exact is not None:
            exact = self.exact.get(path, NO_RULE)
            if exact > best:
                best = exact
        if not self.attached:
            return best
        candidates = self.attached[at]
        if candidates is None:
            if self.grams is None:
                return best
            return self._decide_by_grams(self.grams, path, best)
        for wildcard in candidates:
            if wildcard[1] in path:
                rank, _, head, middle, tail = wildcard
                if rank <= best:
                    break
                if _rest_matches(path, head, middle, tail):
                    return rank
        return best

    def _decide_by_grams(self, grams: Grams, path: str, best: int) -> int:
        work = WORK
        for rank, gate, head, middle, tail in grams.candidates(path):
            if rank <= best:
                break
            work -= len(path)
            if work < 0:
                return TOO_COMPLEX
            if path.startswith(head) and gate in path and _rest_matches(path, head, middle, tail):
                return rank
        return best


def _link(keys: list[str], prefixes: dict[str, int]) -> tuple[list[int], list[int]]:
    """Find for each sorted key the longest other key it begins with, and the best rank of it and
    its ancestors."""
    own = prefixes.get
    parents, bests = [NO_RULE], [own("", NO_RULE)]  # of "", the first of them
    for at in range(1, len(keys)):
        key, parent = keys[at], at - 1
        while not key.startswith(keys[parent]):
            parent = parents[parent]
        rank, best = own(key, NO_RULE), bests[parent]
        if rank > best:
            best = rank
        parents.append(parent)
        bests.append(best)
    return parents, bests


def _attach(
    keys: list[str],
    parents: Sequence[int],
    bests: Sequence[int],
    by_head: dict[str, list[Wildcard]],
) -> list[tuple[Wildcard, ...] | None]:
    """Find for each key the wildcards that can match and win below it, or None if they are too
    many."""
    attached: list[tuple[Wildcard, ...] | None] = []
    for at, parent in enumerate(parents):
        candidates: tuple[Wildcard, ...] | None = ()
        if parent >= 0:
            candidates = attached[parent]
        own = by_head.get(keys[at])
        if own:
            candidates = _merge(candidates, own, bests[at])
        attached.append(candidates)
    return attached


def _merge(
    above: tuple[Wildcard, ...] | None,
    own: list[Wildcard],
    best: int,
) -> tuple[Wildcard, ...] | None:
    if above is None or len(above) + len(own) > MANY:
        return None
    return tuple(sorted((each for each in (*above, *own) if each[0] > best), reverse=True))


class Grams:
    """An index of wildcards by the rarest 3-gram of their gate, or by a gate of up to 3
    characters."""

    __slots__ = ("places_by_gram", "sizes", "wildcards")

    def __init__(self, wildcards: tuple[Wildcard, ...]) -> None:
        self.wildcards = wildcards
        counts = Counter(gram for _, gate, *_ in wildcards for gram in _grams(gate, 3))
        self.places_by_gram: dict[str, list[int]] = {}
        for place, (_, gate, *_) in enumerate(wildcards):
            if len(gate) > 3:
                gate = min(_grams(gate, 3), key=counts.__getitem__)
            self.places_by_gram.setdefault(gate, []).append(place)
        self.sizes = sorted({len(gram) for gram in self.places_by_gram})

    def candidates(self, path: str) -> Iterable[Wildcard]:
        """The wildcards whose gram the path contains, in descending rank."""
        places_by_gram = self.places_by_gram
        grams = set().union(*(_grams(path, size) for size in self.sizes)) & places_by_gram.keys()
        places = sorted(chain.from_iterable(map(places_by_gram.__getitem__, grams)))
        return map(self.wildcards.__getitem__, places)


def _grams(text: str, size: int) -> set[str]:
    return {text[at : at + size] for at in range(len(text) - size + 1)}


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
