"""The lines that a bundle discloses, and their places in the chains of their writers: traced in the
log when a bundle is made, and checked in a bundle.

Invariant: a line is disclosed as it stands in the log. Of a line that is not, only the digest is
kept. Lines are read once and in order, and only the parts of a chain that are needed are kept.

Invariant: a line stands in a chain if its digest is one of the links, and a head is what its links
give. What the lines themselves state of the chain (`previous`, `head`) must agree with it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from robots_guard.audit.bundle.contents import Chain, DisclosedLine, NumberRun, Seal, Span
from robots_guard.audit.read.reader import Reader, Unreadable
from robots_guard.audit.record import AnyRecord, Checkpoint, Start
from robots_guard.audit.segments import Segment, parts_of, segments
from robots_guard.audit.write.writer import first_hash, line_digest, next_hash
from robots_guard.errors import SettingsError

MOST_LINKS = 2_000_000  # of all chains in a bundle
FURTHEST_ANCHOR = 100_000  # lines from a record to the head that a timestamp covers
STRUCTURAL = (
    "start",
    "stop",
    "checkpoint",
    "fail-open",
    "store-reset",
    "overrides",
    "removal",
)
_HEAD = re.compile(r"[0-9a-f]{64}")


class Wanted(NamedTuple):
    """What is wanted of a writer: the lines with these numbers, the chain around them and within
    the intervals of numbers, and all lines of a period (`since` to `until`), if there is one."""

    writer: str
    numbers: frozenset[int]
    intervals: list[tuple[int, int]]
    since: str | None = None
    until: str | None = None
    first: int = 0  # lines with lower numbers are not needed
    searched: frozenset[str] = frozenset()  # stems of the files in which records were selected

    @property
    def last(self) -> int:
        """The last number that is needed."""
        if self.since is not None:
            return 2**62
        return max([*self.numbers, *(end for _, end in self.intervals)], default=0)

    def is_within(self, since: str, until: str) -> bool:
        """Whether a stretch of time has a part of the period."""
        if self.since is None or until < self.since:
            return False
        return self.until is None or since < self.until


class Trace(NamedTuple):
    """The disclosed lines of a writer, and its chain if it has one."""

    lines: list[DisclosedLine]
    chain: Chain | None


class _Piece:
    """The lines from one checkpoint to the next."""

    def __init__(self, previous: bytes) -> None:
        self.previous = self.head = previous
        self.links: list[bytes] = []
        self.numbers: list[int] = []
        self.lines: list[DisclosedLine] = []
        self.structural: list[DisclosedLine] = []
        self.since = self.until = ""  # the times of its lines
        self.is_in_period = False
        self.opening: Checkpoint | None = None

    def add(self, line: DisclosedLine, wanted: Wanted) -> None:
        digest = line_digest(line.raw)
        if len(self.links) >= MOST_LINKS:
            raise _too_many()
        self.head = next_hash(self.head, digest)
        if line.entry.seq in wanted.numbers:
            self.lines.append(line)
        elif not self.links or line.entry.__struct_config__.tag in STRUCTURAL:
            self.structural.append(line)
        if not self.links and isinstance(line.entry, Checkpoint):
            self.opening = line.entry
        self.links.append(digest)
        self.numbers.append(line.entry.seq)
        self.reach(line.entry.at or "", wanted)

    def reach(self, at: str, wanted: Wanted) -> None:
        """Note the time of a line of the piece, or of the checkpoint that ends it: between two of
        them, no other line was written."""
        self.since, self.until = min(self.since or at, at), max(self.until, at)
        self.is_in_period = wanted.is_within(self.since, self.until)

    def is_needed(self, wanted: Wanted) -> bool:
        if self.lines or self.is_in_period:
            return True
        first, last = self.numbers[0], self.numbers[-1]
        return any(begin <= last and first <= end for begin, end in wanted.intervals)

    def unsealed_checkpoint(self) -> int | None:
        """The number of a signed checkpoint that is the only line of this piece, or None.

        In the last piece of a writer, no signature covers such a checkpoint: its own one covers the
        lines before it, and is in the bundle as the seal of the piece before.
        """
        if len(self.links) != 1 or self.opening is None or _seal(self.opening) is None:
            return None
        return self.opening.seq

    def disclosed(self) -> list[DisclosedLine]:
        """The wanted lines and the first one, whose number is then known; in a period, also those
        that say how the writer fared."""
        known = []
        if self.is_in_period:
            known = self.structural
        elif self.lines:
            known = self.structural[:1]
        return sorted([*self.lines, *known], key=lambda line: line.entry.seq)

    def span(self, stated: str, seal: Seal | None) -> Span:
        return Span(
            previous=self.previous.hex(),
            links=[link.hex() for link in self.links],
            head=stated,
            seal=seal,
        )


def trace(directory: Path, wanted: Wanted, trouble: Unreadable) -> Trace:
    """Read the lines of a writer. Raises SettingsError if a wanted line is not there any more, or
    the chain is too long."""
    lines: list[DisclosedLine] = []
    spans: list[Span] = []
    piece: _Piece | None = None
    left = MOST_LINKS
    for line in _lines(directory, wanted, trouble):
        entry = line.entry
        if piece is None and entry.seq > wanted.last:
            break
        if isinstance(entry, Checkpoint) and piece is not None and piece.links:
            left -= _keep(piece, wanted, lines, spans, left, entry)
            if entry.seq > wanted.last:
                piece = None
                break
            piece = _Piece(_bytes(entry.head))
        if piece is None and isinstance(entry, Start) and entry.chain:
            piece = _Piece(_bytes(entry.previous or ""))
        if piece is not None:
            piece.add(line, wanted)
        elif entry.seq in wanted.numbers:
            lines.append(line)
    if piece is not None and piece.links:
        wanted = _without_unsealed_checkpoint(wanted, piece)
        _keep(piece, wanted, lines, spans, left)
    _check(wanted, lines)
    return Trace(lines, Chain(writer=wanted.writer, spans=spans) if spans else None)


def _keep(
    piece: _Piece,
    wanted: Wanted,
    lines: list[DisclosedLine],
    spans: list[Span],
    left: int,
    checkpoint: Checkpoint | None = None,
) -> int:
    """Keep what is needed of a piece that ends, with the checkpoint that confirms it. Returns the
    number of links that are kept. Raises SettingsError if there are more than are `left`."""
    if checkpoint is not None:
        piece.reach(checkpoint.at or "", wanted)
    if not piece.is_needed(wanted):
        return 0
    if len(piece.links) > left:
        raise _too_many()
    lines += piece.disclosed()
    stated = piece.head.hex()
    if checkpoint is not None and _HEAD.fullmatch(checkpoint.head):
        stated = checkpoint.head
    spans.append(piece.span(stated, _seal(checkpoint) if checkpoint else None))
    return len(piece.links)


def _without_unsealed_checkpoint(wanted: Wanted, last: _Piece) -> Wanted:
    """Remove the checkpoint that no signature covers from the last piece of a writer, and return
    what else is wanted. With this record, the bundle would not verify."""
    number = last.unsealed_checkpoint()
    if number is None:
        return wanted
    last.lines, last.structural, last.is_in_period = [], [], False
    return wanted._replace(numbers=wanted.numbers - {number})


def _seal(checkpoint: Checkpoint) -> Seal | None:
    if not checkpoint.key or not checkpoint.signature:
        return None
    return Seal(
        last=checkpoint.seq - 1,
        at=checkpoint.at or "",
        head=checkpoint.head,
        key=checkpoint.key,
        signature=checkpoint.signature,
    )


def _bytes(head: str) -> bytes:
    """A stated head; a line with none that can be read gives a chain that does not verify."""
    return bytes.fromhex(head) if _HEAD.fullmatch(head) else bytes(32)


def _check(wanted: Wanted, lines: list[DisclosedLine]) -> None:
    missing = wanted.numbers - {line.entry.seq for line in lines}
    if missing:
        raise SettingsError(
            f"record {min(missing)} of {wanted.writer} cannot be read from its file any more:"
            " try again, or see robots-guard audit verify"
        )


def _too_many() -> SettingsError:
    return SettingsError(
        f"the bundle would have more than {MOST_LINKS:,} links of chains: narrow the period with"
        " --since and --until, or select decisions by their ids"
    )


def _lines(directory: Path, wanted: Wanted, trouble: Unreadable) -> Iterator[DisclosedLine]:
    """The lines of a writer in order of their numbers, from the file on that begins before the first
    one that is needed."""
    present = segments(directory)
    streams = [
        _read(segment, wanted, trouble)
        for segment in present
        if parts_of(segment.stem)[0] == wanted.writer
    ]
    for line in heapq.merge(*streams, key=lambda line: line.entry.seq):
        if line.entry.seq >= wanted.first:
            yield line


def _read(segment: Segment, wanted: Wanted, trouble: Unreadable) -> Iterator[DisclosedLine]:
    is_searched = segment.stem in wanted.searched
    for raw, entry in Reader(segment, trouble).lines(last=True):
        if entry.writer == wanted.writer:
            at = entry.at or ""
            if not is_searched and wanted.is_within(at, at):
                raise SettingsError(
                    f"{segment.path.name} has lines of the period, which its name and its time do not"
                    " say: choose --since and --until so that the day in its name is between them"
                )
            yield DisclosedLine(raw + b"\n", entry)


class ChainPlace(NamedTuple):
    """The place of a disclosed line: its part of the chain, its position there, and the head before
    it."""

    span: int
    position: int
    before: bytes


class ChainCheck(NamedTuple):
    """The places of the lines of a writer, those of the heads that were asked for, and what does not
    agree."""

    places: dict[str, ChainPlace]  # by the digest of the line
    heads: dict[str, tuple[int, int]]  # the part and the position after which each is the head
    problems: list[str]


def check_chain(
    chain: Chain, lines: list[DisclosedLine], heads: Collection[str] = ()
) -> ChainCheck:
    """Check the chain of a writer against the disclosed lines of it, in order of their numbers, and
    find these heads."""
    digests = {line.digest for line in lines}
    wanted = {bytes.fromhex(head) for head in heads}
    found = ChainCheck({}, {}, [])
    for number, span in enumerate(chain.spans):
        _follow(span, number, digests, wanted, found)
    problems = [*_line_problems(lines, found), *_seal_problems(chain, lines, found)]
    found.problems.extend(f"{chain.writer}: {problem}" for problem in problems)
    return found


def _follow(
    span: Span, number: int, digests: set[str], heads: set[bytes], found: ChainCheck
) -> None:
    head = bytes.fromhex(span.previous)
    for position, link in enumerate(span.links):
        if link in digests:
            if link in found.places:
                found.problems.append("a line stands twice in the chain")
            found.places[link] = ChainPlace(number, position, head)
        head = next_hash(head, bytes.fromhex(link))
        if head in heads:
            found.heads[head.hex()] = (number, position)
    if head.hex() != span.head:
        found.problems.append(f"the digests of part {number + 1} do not lead to its head")


def _line_problems(lines: list[DisclosedLine], found: ChainCheck) -> Iterator[str]:
    previous: tuple[int, ChainPlace] | None = None
    for line in lines:
        entry, place = line.entry, found.places.get(line.digest)
        if place is None:
            yield f"record {entry.seq} is not in the chain: it was changed, or is not of this log"
            continue
        if previous is not None:
            yield from _order_problems(previous, entry.seq, place)
        previous = (entry.seq, place)
        if isinstance(entry, Checkpoint) and entry.head != place.before.hex():
            yield f"checkpoint {entry.seq} states another head than its chain has"
        if isinstance(entry, Start) and (entry.previous or "") != place.before.hex():
            yield f"start {entry.seq} states another head than its chain has"


def _order_problems(previous: tuple[int, ChainPlace], seq: int, place: ChainPlace) -> Iterator[str]:
    last, before = previous
    if (place.span, place.position) <= (before.span, before.position):
        yield f"record {seq} stands before {last} in the chain"
    elif place.span == before.span and place.position - before.position > seq - last:
        yield f"more lines stand between {last} and {seq} than there are numbers"


def _seal_problems(chain: Chain, lines: list[DisclosedLine], found: ChainCheck) -> Iterator[str]:
    last = {
        place.span: (line.entry.seq, place.position)
        for line in lines
        if (place := found.places.get(line.digest)) is not None
    }
    for number, span in enumerate(chain.spans):
        if span.seal is None:
            continue
        if span.seal.head != span.head:
            yield f"the signed head of part {number + 1} is not the one that its digests lead to"
        if number in last:
            seq, position = last[number]
            if span.seal.last - seq < len(span.links) - 1 - position:
                yield f"the signed checkpoint of part {number + 1} covers fewer numbers than lines"


def covered_by(chain: Chain, check: ChainCheck, head: tuple[int, int]) -> set[str]:
    """The digests of the lines that a head covers: those before it, with no gap between them."""
    last, position = head
    first = last
    while first > 0 and chain.spans[first - 1].head == chain.spans[first].previous:
        first -= 1
    return {
        digest
        for digest, place in check.places.items()
        if first <= place.span and (place.span, place.position) <= (last, position)
    }


# -- what is accounted for -------------------------------------------------------------------------


def runs_of(chain: Chain, lines: list[DisclosedLine]) -> list[NumberRun]:
    """The runs of consecutive lines that a chain accounts for."""
    places = check_chain(chain, lines).places
    inside: dict[int, list[tuple[AnyRecord, int]]] = {}  # and the position, by the part
    for line in lines:
        if (place := places.get(line.digest)) is not None:
            inside.setdefault(place.span, []).append((line.entry, place.position))
    runs: list[list[int]] = []
    for number, span in enumerate(chain.spans):
        if runs and chain.spans[number - 1].head == span.previous:
            runs[-1].append(number)
        else:
            runs.append([number])
    made = (_run(chain, numbers, inside) for numbers in runs)
    return [run for run in made if run is not None]


def _run(
    chain: Chain, numbers: list[int], lines: dict[int, list[tuple[AnyRecord, int]]]
) -> NumberRun | None:
    offsets, count = {}, 0
    for number in numbers:
        offsets[number] = count
        count += len(chain.spans[number].links)
    inside = [
        (entry, offsets[number] + position)
        for number in numbers
        for entry, position in lines.get(number, ())
    ]
    if not inside:
        return None
    (first, before), (final, at) = inside[0], inside[-1]
    last, until, ends = (
        final.seq + count - 1 - at,
        final.at or "",
        "lines that no checkpoint covers",
    )
    sealed = [number for number in numbers if chain.spans[number].seal is not None]
    seal = chain.spans[sealed[-1]].seal if sealed else None
    if seal is not None:
        after = count - offsets[sealed[-1]] - len(chain.spans[sealed[-1]].links)
        last, until = max(last, seal.last + after), max(until, seal.at)
        ends = f"a signed checkpoint, and {after} more" if after else "a signed checkpoint"
    begins = "a line within the chain"
    if chain.spans[numbers[0]].previous == first_hash(chain.writer).hex():
        begins = "the writer's first line"
    return NumberRun(
        writer=chain.writer,
        first=first.seq - before,
        last=last,
        lines=count,
        disclosed=len(inside),
        missing=last - (first.seq - before) + 1 - count,
        since=first.at or "",
        until=until,
        signed_until=seal.at if seal is not None else "",
        begins=begins,
        ends=ends,
    )
