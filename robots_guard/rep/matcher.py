"""Patterns compiled for speed: a path to the rank of the rule that decides.

The law of this file: patterns and paths are both the stranger's. No regular expression, no backtracking; work is
at most linear in the patterns that could match, and memory linear in the patterns.

A rank is one integer that carries everything: the higher rank wins, and -1 is no rule. Ranks are unique, so the
answer never depends on the order of a search. Five tiers, chosen when compiled:

    constant            no rule, or "/" alone
    up to 24 prefixes   one startswith with a tuple, then the few
    up to 24 patterns   the same, then the wildcards in descending rank
    index               sorted prefixes, bisect, parent links; each wildcard hangs on its literal head
    3-grams             for a path with more than 64 wildcards on its way: only those whose rarest gram it holds
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Protocol

FEW = 24
MANY = 64

# Wildcards times octets of a path that a decision may cost, some milliseconds. It takes thousands of wildcards made
# for one path of kilobytes to get there.
WORK = 1_000_000

NO_RULE = -1
TOO_COMPLEX = -2


class Matcher(Protocol):
    """What all tiers are."""

    def decide(self, path: str) -> int:
        """The rank of the deciding rule, NO_RULE, or TOO_COMPLEX where that would take too long to tell."""


# A pattern with a star: its rank, the longest text a path must hold after the head, the head it begins with, the texts
# it holds after that in this order, and the tail it ends in, or None. Plain tuples, for they are walked in hot loops,
# where the gate is asked first: it turns nearly all of them away.
Wildcard = tuple[int, str, str, tuple[str, ...], str | None]


def _goes_on(path: str, head: str, middle: tuple[str, ...], tail: str | None) -> bool:
    """Does a path that begins with the head match? The leftmost find is enough: no backtracking."""
    at = len(head)
    for text in middle:
        found = path.find(text, at)
        if found < 0:
            return False
        at = found + len(text)
    return tail is None or (len(path) - len(tail) >= at and path.endswith(tail))


class Patterns:
    """The patterns of one ruleset, sorted by kind. Of two equal ones the higher rank stays."""

    __slots__ = ("exact", "prefixes", "wildcards")

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.exact: dict[str, int] = {}
        self.wildcards: list[Wildcard] = []

    def add_prefixes(self, texts: Sequence[str], ranks: Sequence[int]) -> None:
        """Add patterns that hold no operator."""
        fresh = dict(zip(texts, ranks, strict=True))
        if len(fresh) == len(texts) and not self.prefixes:
            self.prefixes = fresh
            return
        prefixes = self.prefixes
        for text, rank in zip(texts, ranks, strict=True):
            if rank > prefixes.get(text, NO_RULE):
                prefixes[text] = rank

    def add_patterns(self, texts: Sequence[str], ranks: Sequence[int]) -> None:
        """Add patterns in which "*" and a final "$" are operators."""
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
        tail = last[:-1] if last[-1:] == "$" and last != "$" else None  # "*$" at the end asks for nothing
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
        """The matcher of the tier that fits."""
        if len(self.prefixes) + len(self.wildcards) > FEW:
            return Index(self)
        if self.wildcards or self.exact:
            return Few(self)
        return compiled(tuple(self.prefixes), tuple(self.prefixes.values()), _as_given, operators=False)


# Ranks from the patterns and what their rules are, whatever that is.
Ranking = Callable[[Sequence[str], Sequence[int]], Sequence[int]]


def compiled(texts: Sequence[str], rules: Sequence[int], ranking: Ranking, *, operators: bool) -> Matcher:
    """Patterns compiled. Without operators, "*" and "$" are characters like others."""
    if not texts:
        return NOTHING
    if operators or len(texts) > FEW:
        patterns = Patterns()
        add = patterns.add_patterns if operators else patterns.add_prefixes
        add(texts, ranking(texts, rules))
        return patterns.compiled()
    # The usual file, so no detour by way of Patterns.
    return Prefixes(texts, rules, ranking) if len(texts) > 1 or texts[0] != "/" else Constant(ranking(texts, rules)[0])


def _as_given(texts: Sequence[str], ranks: Sequence[int]) -> Sequence[int]:  # noqa: ARG001  (a Ranking)
    return ranks


def pattern_matches(pattern: str, path: str, *, wildcards: bool) -> bool:
    """Does one pattern match a path? For explaining and for tests of a single pattern."""
    return compiled((pattern,), (0,), _as_given, operators=wildcards).decide(path) == 0


class Constant:
    """The same answer for every path."""

    __slots__ = ("rank",)

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def decide(self, path: str) -> int:  # noqa: ARG002  (a Matcher)
        return self.rank


NOTHING = Constant(NO_RULE)


class Prefixes:
    """Up to 24 prefixes: one C call says no, which is the usual answer. They are ranked when a path first meets one."""

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
        """Put the highest first."""
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
                if path.startswith(head) and _goes_on(path, head, middle, tail):
                    return rank
        return best


class Index:
    """Any number of patterns.

    `keys` are all prefixes and all heads of wildcards, sorted, with "" first. The longest key a path begins with is
    found by bisection or is an ancestor of what bisection finds. `bests` holds the best rank of a key and its
    ancestors, `hung` the wildcards of both while they are few. Where they are many, the 3-grams take over: to copy
    them down to every key would cost keys times wildcards.
    """

    __slots__ = ("bests", "exact", "grams", "hung", "keys", "parents", "wildcards")

    def __init__(self, patterns: Patterns) -> None:
        self.exact = patterns.exact or None
        self.wildcards = tuple(sorted(patterns.wildcards, reverse=True))
        by_head: dict[str, list[Wildcard]] = {}
        for wildcard in self.wildcards:
            by_head.setdefault(wildcard[2], []).append(wildcard)
        # Written anew in their order, for neighbours in a bisection to be neighbours in memory.
        self.keys = "\n".join(sorted({"", *patterns.prefixes, *by_head})).split("\n")
        parents, bests = _linked(self.keys, patterns.prefixes)
        self.parents = array("i", parents)
        self.bests = array("q", bests)
        self.hung: Sequence[tuple[Wildcard, ...] | None] = ()
        if by_head:
            self.hung = _hung(self.keys, self.parents, self.bests, by_head)
        # Made now, where compiling is known to take its time, and not at the first decision.
        self.grams = Grams(self.wildcards) if None in self.hung else None

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
        if not self.hung:
            return best
        candidates = self.hung[at]
        if candidates is None:
            return best if self.grams is None else self._by_grams(self.grams, path, best)
        for wildcard in candidates:
            if wildcard[1] in path:
                rank, _, head, middle, tail = wildcard
                if rank <= best:
                    break
                if _goes_on(path, head, middle, tail):
                    return rank
        return best

    def _by_grams(self, grams: Grams, path: str, best: int) -> int:
        work = WORK
        for rank, gate, head, middle, tail in grams.candidates(path):
            if rank <= best:
                break
            work -= len(path)
            if work < 0:
                return TOO_COMPLEX
            if path.startswith(head) and gate in path and _goes_on(path, head, middle, tail):
                return rank
        return best


def _linked(keys: list[str], prefixes: dict[str, int]) -> tuple[list[int], list[int]]:
    """For each of the sorted keys the longest other key it begins with, and the best rank of it and all above it."""
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


def _hung(
    keys: list[str], parents: Sequence[int], bests: Sequence[int], by_head: dict[str, list[Wildcard]]
) -> list[tuple[Wildcard, ...] | None]:
    """For each key the wildcards that may match below it and beat it; None where they are too many to walk."""
    hung: list[tuple[Wildcard, ...] | None] = []
    for at, parent in enumerate(parents):
        above = hung[parent] if parent >= 0 else ()
        own = by_head.get(keys[at])
        hung.append(_merged(above, own, bests[at]) if own else above)
    return hung


def _merged(above: tuple[Wildcard, ...] | None, own: list[Wildcard], best: int) -> tuple[Wildcard, ...] | None:
    if above is None or len(above) + len(own) > MANY:
        return None
    return tuple(sorted((each for each in (*above, *own) if each[0] > best), reverse=True))


class Grams:
    """Wildcards filed under the rarest 3-gram of their gate, or under a shorter gate itself."""

    __slots__ = ("filed", "sizes", "wildcards")

    def __init__(self, wildcards: tuple[Wildcard, ...]) -> None:
        self.wildcards = wildcards
        counts = Counter(gram for _, gate, *_ in wildcards for gram in _grams(gate, 3))
        self.filed: dict[str, list[int]] = {}
        for place, (_, gate, *_) in enumerate(wildcards):
            gram = min(_grams(gate, 3), key=counts.__getitem__) if len(gate) > 3 else gate
            self.filed.setdefault(gram, []).append(place)
        self.sizes = sorted({len(gram) for gram in self.filed})

    def candidates(self, path: str) -> Iterable[Wildcard]:
        """The wildcards whose gram the path holds, in descending rank."""
        filed = self.filed
        held = set().union(*(_grams(path, size) for size in self.sizes)) & filed.keys()
        places = sorted(chain.from_iterable(map(filed.__getitem__, held)))
        return map(self.wildcards.__getitem__, places)


def _grams(text: str, size: int) -> set[str]:
    return {text[at : at + size] for at in range(len(text) - size + 1)}
