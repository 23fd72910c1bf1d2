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

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol

FEW = 24
MANY = 64

NO_RULE = -1


class Matcher(Protocol):
    """What all tiers are."""

    def decide(self, path: str) -> int:
        """The rank of the deciding rule, or NO_RULE."""


class Wildcard(NamedTuple):
    """A pattern with a star: it begins with `head`, holds `middle` in that order, ends in `tail` if that is a str."""

    rank: int
    gate: str  # the longest text the path must hold anywhere after the head
    head: str
    middle: tuple[str, ...]
    tail: str | None

    def matches(self, path: str) -> bool:
        """Does a path that begins with the head match? The leftmost find is enough: no backtracking."""
        at = len(self.head)
        for text in self.middle:
            found = path.find(text, at)
            if found < 0:
                return False
            at = found + len(text)
        return self.tail is None or (len(path) - len(self.tail) >= at and path.endswith(self.tail))


class Patterns:
    """The patterns of one ruleset, sorted by kind. Of two equal ones the higher rank stays."""

    __slots__ = ("exact", "prefixes", "wildcards")

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.exact: dict[str, int] = {}
        self.wildcards: list[Wildcard] = []

    def add_prefix(self, text: str, rank: int) -> None:
        if rank > self.prefixes.get(text, NO_RULE):
            self.prefixes[text] = rank

    def add(self, pattern: str, rank: int) -> None:
        """Add a pattern in which "*" and a final "$" are operators."""
        anchored = pattern[-1:] == "$"
        head, *rest = (pattern[:-1] if anchored else pattern).split("*")
        if anchored and rest and not rest[-1]:
            anchored = False  # "*$" at the end asks for nothing
        tail = rest.pop() if anchored and rest else None
        middle = tuple(text for text in rest if text)
        if middle or tail is not None:
            gate = max((*middle, tail or ""), key=len)
            self.wildcards.append(Wildcard(rank, gate, head, middle, tail))
        elif anchored:
            self.exact[head] = max(rank, self.exact.get(head, NO_RULE))
        else:
            self.add_prefix(head, rank)

    def compiled(self) -> Matcher:
        if not self.wildcards and not self.exact and self.prefixes.keys() <= {"/"}:
            return Constant(self.prefixes.get("/", NO_RULE))
        if len(self.prefixes) + len(self.wildcards) > FEW:
            return Index(self)
        return Few(self) if self.wildcards or self.exact else Prefixes(self)


def pattern_matches(pattern: str, path: str, *, wildcards: bool) -> bool:
    """Does one pattern match a path? For explaining and for tests of a single pattern."""
    patterns = Patterns()
    if wildcards:
        patterns.add(pattern, 0)
    else:
        patterns.add_prefix(pattern, 0)
    return patterns.compiled().decide(path) == 0


class Constant:
    """The same answer for every path."""

    __slots__ = ("rank",)

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def decide(self, path: str) -> int:  # noqa: ARG002
        return self.rank


def _descending(prefixes: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(prefixes.items(), key=lambda item: -item[1]))


class Prefixes:
    """Up to 24 prefixes: one C call says no, which is the usual answer."""

    __slots__ = ("ranked", "texts")

    def __init__(self, patterns: Patterns) -> None:
        self.texts = tuple(patterns.prefixes)
        self.ranked = _descending(patterns.prefixes)

    def decide(self, path: str) -> int:
        if path.startswith(self.texts):
            for text, rank in self.ranked:
                if path.startswith(text):
                    return rank
        return NO_RULE


class Few:
    """Up to 24 patterns of any kind."""

    __slots__ = ("exact", "ranked", "texts", "wildcards")

    def __init__(self, patterns: Patterns) -> None:
        self.exact = patterns.exact
        self.texts = tuple(patterns.prefixes)
        self.ranked = _descending(patterns.prefixes)
        self.wildcards = tuple(sorted(patterns.wildcards, reverse=True))

    def decide(self, path: str) -> int:
        best = self.exact.get(path, NO_RULE) if self.exact else NO_RULE
        if path.startswith(self.texts):
            for text, rank in self.ranked:
                if path.startswith(text):
                    if rank > best:
                        best = rank
                    break
        for wildcard in self.wildcards:
            if wildcard[0] <= best:
                break
            if wildcard[1] in path and path.startswith(wildcard[2]) and wildcard.matches(path):
                return wildcard[0]
        return best


class Index:
    """Any number of patterns.

    `keys` are all prefixes and all heads of wildcards, sorted, with "" first. The longest key a path begins with is
    found by bisection or is an ancestor of what bisection finds. `bests` holds the best rank of a key and its
    ancestors. Wildcards stay at their own key, and `ups` leads from one key that has some to the next above it:
    copying them down to every key would cost keys times wildcards.
    """

    __slots__ = ("bests", "exact", "grams", "hung", "keys", "loads", "nodes", "parents", "ups", "wildcards")

    def __init__(self, patterns: Patterns) -> None:
        self.exact = patterns.exact
        self.wildcards = tuple(sorted(patterns.wildcards, reverse=True))
        self.grams: Grams | None = None
        self.hung: dict[int, tuple[Wildcard, ...]] = {}
        self._link(patterns.prefixes)

    def _link(self, prefixes: dict[str, int]) -> None:
        by_head: dict[str, list[Wildcard]] = {}
        for wildcard in self.wildcards:
            by_head.setdefault(wildcard.head, []).append(wildcard)
        self.keys = sorted({"", *prefixes, *by_head})
        self.parents: list[int] = []
        self.bests: list[int] = []
        self.nodes: list[int] = []  # the nearest key, this one or above, with wildcards
        self.ups: dict[int, int] = {}
        self.loads: dict[int, int] = {NO_RULE: 0}  # wildcards on the way up from a node
        way: list[int] = []
        for at, key in enumerate(self.keys):
            while way and not key.startswith(self.keys[way[-1]]):
                way.pop()
            parent = way[-1] if way else NO_RULE
            way.append(at)
            self._place(at, parent, prefixes.get(key, NO_RULE), by_head.get(key))

    def _place(self, at: int, parent: int, own: int, wildcards: list[Wildcard] | None) -> None:
        best = own if parent < 0 else max(own, self.bests[parent])
        above = NO_RULE if parent < 0 else self.nodes[parent]
        self.parents.append(parent)
        self.bests.append(best)
        useful = tuple(wildcard for wildcard in wildcards or () if wildcard.rank > best)
        if useful:
            self.hung[at] = useful
            self.ups[at] = above
            self.loads[at] = self.loads[above] + len(useful)
        self.nodes.append(at if useful else above)

    def decide(self, path: str) -> int:
        keys = self.keys
        at = bisect_right(keys, path) - 1
        while not path.startswith(keys[at]):
            at = self.parents[at]
        best = self.bests[at]
        if self.exact:
            best = max(best, self.exact.get(path, NO_RULE))
        node = self.nodes[at]
        if node < 0:
            return best
        if self.loads[node] > MANY:
            return self._by_grams(path, best)
        while node >= 0:
            for wildcard in self.hung[node]:
                if wildcard[0] <= best:
                    break
                if wildcard[1] in path and wildcard.matches(path):
                    best = wildcard[0]
                    break
            node = self.ups[node]
        return best

    def _by_grams(self, path: str, best: int) -> int:
        if self.grams is None:
            self.grams = Grams(self.wildcards)
        for wildcard in self.grams.candidates(path):
            if wildcard[0] <= best:
                break
            if path.startswith(wildcard[2]) and wildcard[1] in path and wildcard.matches(path):
                return wildcard[0]
        return best


class Grams:
    """Wildcards filed under the rarest 3-gram of their gate, or under a shorter gate itself."""

    __slots__ = ("filed", "sizes", "wildcards")

    def __init__(self, wildcards: tuple[Wildcard, ...]) -> None:
        self.wildcards = wildcards
        counts = Counter(gram for wildcard in wildcards for gram in _grams(wildcard.gate, 3))
        self.filed: dict[str, list[int]] = {}
        for place, wildcard in enumerate(wildcards):
            gate = wildcard.gate
            gram = min(_grams(gate, 3), key=counts.__getitem__) if len(gate) > 3 else gate
            self.filed.setdefault(gram, []).append(place)
        self.sizes = sorted({len(gram) for gram in self.filed})

    def candidates(self, path: str) -> Iterable[Wildcard]:
        """The wildcards whose gram the path holds, in descending rank."""
        filed = self.filed
        held = {gram for size in self.sizes for gram in _grams(path, size)} & filed.keys()
        places = sorted(place for gram in held for place in filed[gram])
        return map(self.wildcards.__getitem__, places)


def _grams(text: str, size: int) -> set[str]:
    return {text[at : at + size] for at in range(len(text) - size + 1)}
