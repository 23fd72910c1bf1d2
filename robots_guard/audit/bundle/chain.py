"""Where the disclosed lines of a bundle stand in the chains of their writers.

Invariant: a line stands in a chain if its digest is one of the links, and a head is what its links
give. What the lines themselves state of the chain (`previous`, `head`) must agree with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from robots_guard.audit.bundle.contents import Chain, DisclosedLine, NumberRun, Span
from robots_guard.audit.record import AnyRecord, Checkpoint, Start
from robots_guard.audit.write.writer import first_hash, next_hash


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
