"""The files of a bundle that follow from its other files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from robots_guard.audit.bundle.basis import NOT_MODIFIED, Basis, BasisIndex, Judged
from robots_guard.audit.bundle.chain import runs_of
from robots_guard.audit.bundle.contents import (
    OVERRIDES,
    SETTINGS,
    BundleSelection,
    Completeness,
    DisclosedLine,
    NumberRun,
    Parts,
    encoded,
)
from robots_guard.audit.bundle.warc_response import uuid_of
from robots_guard.audit.record import AnyRecord, Fetch, OverridesRecord, Record, Start
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.policy import PINNED

DOES_NOT_SAY = [
    "what lines contain that are given as digests only: they are accounted for, not disclosed. A reader who"
    " doubts the selection can ask for any of them, and compare its SHA-256 with its digest.",
    "that no writer is missing: a writer whose files were all removed leaves no trace in those of others.",
    "that nothing was fetched which the audit log does not record: requests past the guard, those of a"
    " guard that recorded no passes (audit = refusals), and those that a fail-open record counts.",
    "that a recorded pass was fetched: the record says that the request was permitted.",
]


def derived_files(parts: Parts) -> dict[str, bytes]:
    """The settings and the overrides, as the records have them."""
    settings = {
        line.entry.writer: line.entry.settings
        for line in parts.lines
        if isinstance(line.entry, Start)
    }
    files = {SETTINGS: encoded(settings)}
    for line in parts.lines:
        text = overrides_text(line.entry)
        if text is not None:
            content = text.encode("utf-8", "backslashreplace")
            name = f"{OVERRIDES}{hashlib.sha256(content).hexdigest()}.toml"
            files[name] = content
    return files


def overrides_text(entry: AnyRecord) -> str | None:
    """The overrides that were read, if the record has them: a long file is not recorded."""
    if isinstance(entry, OverridesRecord):
        return entry.text or None
    return None


def lines_by_writer(lines: list[DisclosedLine]) -> dict[str, list[DisclosedLine]]:
    """Lines by their writer."""
    found: dict[str, list[DisclosedLine]] = {}
    for line in lines:
        found.setdefault(line.entry.writer, []).append(line)
    return found


def completeness_of(parts: Parts) -> Completeness:
    """What a bundle accounts for."""
    by_writer = lines_by_writer(parts.lines)
    chains = parts.chains
    runs = [
        run for name in sorted(chains) for run in runs_of(chains[name], by_writer.get(name, []))
    ]
    counts = Counter({name: len(lines) for name, lines in by_writer.items() if name not in chains})
    return Completeness(
        selection=parts.selection,
        period=_period(parts),
        uncovered=_uncovered(parts.selection, runs),
        runs=runs,
        without_chain=dict(sorted(counts.items())),
        missing=sorted(set(_missing(parts))),
        does_not_say=DOES_NOT_SAY,
    )


def _period(parts: Parts) -> str:
    if not parts.selection.has_period:
        return "no period: only the lines around the selected records are accounted for"
    since, until = parts.selection.period
    return f"all lines from {since} to {until}, of each writer with a chain that wrote in that time"


def _uncovered(selection: BundleSelection, runs: list[NumberRun]) -> list[str]:
    if not selection.has_period:
        return []
    gaps = uncovered(selection, stretches(selection, runs))
    return [f"{since} to {until}" for since, until in gaps]


def stretches(
    selection: BundleSelection, runs: list[NumberRun], *, is_signed: bool = False
) -> list[tuple[str, str]]:
    """The times that runs of lines in the period cover: from the first line of a run to its last, or
    to its last signed checkpoint."""
    since, until = selection.period
    found = [(run.since, run.signed_until if is_signed else run.until) for run in runs]
    return sorted((first, last) for first, last in found if last >= since and first < until)


def uncovered(
    selection: BundleSelection, covered: list[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """The parts of the period that these stretches, sorted by time, leave out."""
    at, until = selection.period
    for first, last in covered:
        if first > at:
            yield at, first
        at = max(at, last)
    if at < until:
        yield at, until


def _missing(parts: Parts) -> Iterator[str]:
    index = BasisIndex(line.entry for line in parts.lines)
    for record in index.decisions.values():
        basis = index.basis_of(record)
        yield from _missing_of(record, basis, parts)


def lacking_documents(parts: Parts) -> dict[str, str]:
    """The origin of each document by which was decided and that the bundle does not have, by its
    SHA-256."""
    decisions = BasisIndex(line.entry for line in parts.lines).decisions.values()
    return {
        record.sha256: record.origin
        for record in decisions
        if isinstance(record, Record) and record.sha256 and _lacks_document(record, parts)
    }


def _lacks_document(record: Record, parts: Parts) -> bool:
    return record.sha256 not in (None, EMPTY) and record.sha256 not in parts.documents


def _missing_of(record: Judged, basis: Basis, parts: Parts) -> Iterator[str]:
    if basis.start is None:
        yield f"the start record of {record.writer}, with its settings"
    if record.override is not None and (
        basis.overrides is None or overrides_text(basis.overrides) is None
    ):
        yield f"the overrides that were in force when {record.id} was decided"
    if not isinstance(record, Record) or record.sha256 is None:
        return
    if _lacks_document(record, parts):
        yield f"the document {record.sha256}"
    if record.via == PINNED:
        return
    if basis.fetch is None:
        yield f"the fetch of {record.origin}/robots.txt at {record.fetched_at}"
    if basis.fetch is not None and basis.fetch.status == NOT_MODIFIED and basis.delivered is None:
        yield f"the fetch that brought the document {record.sha256}"
    if basis.delivered is not None and not has_response(basis.delivered, parts):
        yield f"the response to {name_of(basis.delivered)} (kept with audit = evidence)"


def has_response(fetch: Fetch, parts: Parts) -> bool:
    """Whether the bundle has the response to a fetch as a WARC record."""
    return uuid_of(fetch.warc_id or "") in parts.warc


def name_of(entry: AnyRecord) -> str:
    """A record's name for people: its writer and number."""
    return f"{entry.__struct_config__.tag} {entry.seq} of {entry.writer}"
