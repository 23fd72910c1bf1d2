"""A sorted set of names, in which names are added, removed and followed at little cost.

The names are kept in blocks, so that adding or removing one moves at most one block in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

LONGEST_BLOCK = 1024  # names


class OrderedNames:
    """A set of strings in order.

    Invariant: no block is empty, `_lasts` has the last name of each, and all names are in order.
    """

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []

    def add(self, name: str) -> None:
        """Add a name that is not here."""
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        index = min(bisect_left(self._lasts, name), len(self._blocks) - 1)
        block = self._blocks[index]
        block.insert(bisect_left(block, name), name)
        self._lasts[index] = block[-1]
        if len(block) > LONGEST_BLOCK:
            self._split(index)

    def _split(self, index: int) -> None:
        block = self._blocks[index]
        middle = len(block) // 2
        self._blocks[index : index + 1] = [block[:middle], block[middle:]]
        self._lasts.insert(index, block[middle - 1])

    def remove(self, name: str) -> None:
        """Remove a name that is here."""
        index = bisect_left(self._lasts, name)
        block = self._blocks[index]
        del block[bisect_left(block, name)]
        if block:
            self._lasts[index] = block[-1]
        else:
            del self._blocks[index], self._lasts[index]

    def after(self, name: str | None) -> Iterator[str]:
        """All names behind this one, then those from the start up to it. None: all, from the
        start."""
        if name is None:
            yield from self
            return
        first = bisect_right(self._lasts, name)
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            start = bisect_right(block, name) if index == first else 0
            for position in range(start, len(block)):
                yield block[position]
        for earlier in self:
            if earlier > name:
                return
            yield earlier

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block
