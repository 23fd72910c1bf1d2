"""Buckets: the queues of one scheduler, which of them are open, and which is next.

A bucket is named after its download slot, a space, and the key that closes it: its origin, or its
origin, "#" and its group. A bucket without an origin is named after its slot alone: that of requests
that no robots.txt governs or that are exempt, and every one of a job that began without the guard.
These never close.

The next bucket is the one that Scrapy's DownloaderAwarePriorityQueue would choose among the open
ones: of the slots with the fewest downloads, the first bucket after the last one taken, in the order
of slots and names, and after the end again from the start. Scrapy looks at every bucket to choose.
Here the open buckets are kept in order, and a bucket that opens or closes is added or removed. So a
choice looks at the slots with downloads, which CONCURRENT_REQUESTS limits, and at one more. The time
to find a place in the order grows with the logarithm of the number of buckets.

Invariant: `_open` has the names of the open buckets by slot, in order, and `_slots` has its keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping
from typing import NamedTuple

LONGEST_BLOCK = 1024  # names


class Bucket(NamedTuple):
    """The parts of a bucket's name. `origin` is "" if nothing closes it; `group` is the origin, or
    the group's own key."""

    slot: str
    origin: str
    group: str


def bucket_named(name: str) -> Bucket:
    """The parts of a bucket's name."""
    slot, _, group = name.rpartition(" ")
    if "://" not in group:
        return Bucket(name, "", "")
    return Bucket(slot, group.partition("#")[0], group)


class Buckets:
    """The buckets of one queue or scheduler.

    `is_open` tests whether the requests of an origin and a group may leave now. When that changes
    for a key, `update` must be called. `size` returns the number of requests in a bucket.
    """

    def __init__(self, is_open: Callable[[str, str], bool], size: Callable[[str], int]) -> None:
        self._is_open = is_open
        self.size = size
        self._all: dict[str, Bucket] = {}
        self._closed_by: dict[str, set[str]] = {}  # an origin's or group's key -> names
        self._open: dict[str, list[str]] = {}
        self._slots = OrderedNames()
        self._last: Bucket | None = None
        self._last_name = ""

    def __len__(self) -> int:
        return len(self._all)

    def items(self) -> ItemsView[str, Bucket]:
        """All buckets, whether open or closed, by name."""
        return self._all.items()

    @property
    def open_slots(self) -> Collection[str]:
        """The slots that have an open bucket."""
        return self._open.keys()

    # -- changes -----------------------------------------------------------------------------------

    def add(self, name: str) -> None:
        """Add a bucket, which now has requests."""
        if name in self._all:
            return
        bucket = self._all[name] = bucket_named(name)
        for key in {bucket.origin, bucket.group} - {""}:
            self._closed_by.setdefault(key, set()).add(name)
        if self._may_leave(bucket):
            self._insert(name, bucket.slot)

    def discard(self, name: str) -> None:
        """Remove a bucket, which has no more requests."""
        bucket = self._all.pop(name, None)
        if bucket is None:
            return
        for key in {bucket.origin, bucket.group} - {""}:
            names = self._closed_by[key]
            names.discard(name)
            if not names:
                del self._closed_by[key]
        self._remove(name, bucket.slot)

    def update(self, key: str) -> None:
        """Note that an origin or a group has opened or closed."""
        for name in self._closed_by.get(key, ()):
            bucket = self._all[name]
            if self._may_leave(bucket):
                self._insert(name, bucket.slot)
            else:
                self._remove(name, bucket.slot)

    def mark_taken(self, name: str) -> None:
        """Record that a request of this bucket has left: the next choice begins behind it."""
        self._last, self._last_name = bucket_named(name), name

    def _may_leave(self, bucket: Bucket) -> bool:
        return not bucket.origin or self._is_open(bucket.origin, bucket.group)

    def _insert(self, name: str, slot: str) -> None:
        names = self._open.get(slot)
        if names is None:
            self._open[slot] = [name]
            self._slots.add(slot)
        elif not _has(names, name):
            insort(names, name)

    def _remove(self, name: str, slot: str) -> None:
        names = self._open.get(slot)
        if names is None or not _has(names, name):
            return
        del names[bisect_left(names, name)]
        if not names:
            del self._open[slot]
            self._slots.remove(slot)

    # -- the choice --------------------------------------------------------------------------------

    def next(self, downloads: Mapping[str, int]) -> str | None:
        """The next bucket; None if all are closed.

        `downloads` has the number of downloads of each open slot that has any. It may have other
        slots, too.
        """
        if not self._open:
            return None
        fewest = self._fewest(downloads)
        last = self._last
        if last is None:
            return self._first_after(None, fewest, downloads)
        if last.slot in self._open and downloads.get(last.slot, 0) == fewest:
            names = self._open[last.slot]
            behind = bisect_right(names, self._last_name)
            if behind < len(names):
                return names[behind]
        return self._first_after(last.slot, fewest, downloads)

    def _fewest(self, downloads: Mapping[str, int]) -> int:
        """The fewest downloads that an open slot has."""
        busy = [number for slot, number in downloads.items() if slot in self._open]
        if len(busy) < len(self._open):
            return 0
        return min(busy)

    def _first_after(self, slot: str | None, fewest: int, downloads: Mapping[str, int]) -> str:
        """The first bucket of the next slot with so few downloads. Those before it have some."""
        found = next(
            after for after in self._slots.after(slot) if downloads.get(after, 0) == fewest
        )
        return self._open[found][0]


def _has(names: list[str], name: str) -> bool:
    index = bisect_left(names, name)
    return index < len(names) and names[index] == name


class OrderedNames:
    """A set of strings in order, in which they are added, removed and followed at little cost.

    They are kept in blocks, so that adding or removing one moves at most one block in memory.

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
