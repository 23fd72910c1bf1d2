"""Writing a bundle: the selected records of an audit log, those they are based on, and the files that
follow from them.

Invariant: nothing is disclosed but the selected records, those that they depend on, and how their
writers fared. The size of a bundle is bounded; an error says how to select less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard

import msgspec

from robots_guard.audit.anchors import Anchor, InvalidAnchor, read_anchors, verify_anchor
from robots_guard.audit.bundle.archive import (
    LARGEST_CONTENT,
    MANIFEST,
    SIGNATURE,
    manifest_of,
    write_archive,
)
from robots_guard.audit.bundle.basis import SLACK, BasisIndex, is_digest_of, related_ids, seconds_of
from robots_guard.audit.bundle.chain import FURTHEST_ANCHOR, Trace, Wanted, check_chain, trace
from robots_guard.audit.bundle.contents import (
    COMPLETENESS,
    PAGE,
    WRITER_NAME,
    BundleSelection,
    BundleSignature,
    Chain,
    Completeness,
    DisclosedLine,
    Parts,
    encoded,
    files_of,
)
from robots_guard.audit.bundle.derivation import (
    completeness_of,
    derived_files,
    lacking_documents,
)
from robots_guard.audit.bundle.warc_response import BadWarc, extract, read_response, uuid_of
from robots_guard.audit.read.reader import DECISION, Filter, Unreadable, pinned_texts
from robots_guard.audit.read.search import Progress, Search, conditions, record_of_row
from robots_guard.audit.record import AnyRecord, Fetch, Record, moment, shown_url
from robots_guard.audit.schema import COLUMNS
from robots_guard.audit.segments import WARC, day_of, why_not_plain
from robots_guard.audit.signing import Signer, bundle_statement
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.policy import PINNED
from robots_guard.errors import MalformedURL, MissingExtra, NotGoverned, SettingsError
from robots_guard.origin import split_url

MOST_RECORDS = 20_000  # selected
MOST_FETCHES = 200_000  # that are looked through
LONGEST_REVALIDATION = 31 * 86400.0  # seconds that a document may be older than its last fetch
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)

Documents = Callable[[str], bytes | None]


class _Place(NamedTuple):
    """The place of a record in the log."""

    writer: str
    seq: int


def collect(
    search: Search, selection: BundleSelection, documents: Documents, trouble: Unreadable
) -> Parts:
    """The parts of a bundle. Raises SettingsError if nothing is selected, or too much."""
    selected = _selected(search, selection)
    if not selected and not selection.has_period:
        raise SettingsError(
            "there is nothing to bundle: no record is selected. Check the id or the filters, or name"
            " the audit log's directory with --audit-log; give --since to state that there is none"
        )
    index, needed = _with_bases(search, selected)
    traces = _traces(search, selection, needed, index, trouble)
    lines = [line for _, found in sorted(traces.items()) for line in found.lines]
    chains = {name: found.chain for name, found in sorted(traces.items()) if found.chain}
    warc = _responses(search.directory, lines)
    parts = Parts(
        lines=lines,
        selection=selection,
        chains=chains,
        anchors=_anchors(search.directory, chains, trouble),
        documents=_documents(lines, documents, warc),
        warc=warc,
    )
    _check_size(parts)
    return parts


# -- the records -----------------------------------------------------------------------------------


def _selected(search: Search, selection: BundleSelection) -> list[AnyRecord]:
    if selection.ids:
        places = ", ".join("?" for _ in selection.ids)
        condition = f"kind IN ('decision', 'signals') AND id IN ({places})"
        found = list(_records(search, condition, selection.ids))
        known = {getattr(each, "id", "") for each in found}
        for identity in selection.ids:
            if identity not in known:
                raise SettingsError(
                    f"there is no decision {identity!r} in {str(search.directory)!r}:"
                    " check the id, or name the audit log's directory with --audit-log"
                )
        return found
    wanted = selection.wanted
    if wanted.kind != DECISION:
        return list(_records(search, *conditions(wanted)))
    condition, values = conditions(msgspec.structs.replace(wanted, kind=None))
    found = list(_records(search, f"kind IN ('decision', 'signals') AND {condition}", values))
    return [*found, *_passes(search, wanted)]


def _passes(search: Search, wanted: Filter) -> Iterator[AnyRecord]:
    """The records that count the passes of the same crawlers on the same site."""
    if wanted.action not in (None, "pass") or wanted.reason or wanted.rule or wanted.override:
        return
    names = {"since", "until", "agent", "component", "job", "writer", "host"}
    same = {name: getattr(wanted, name) for name in names & set(Filter.__struct_fields__)}
    url, origin = getattr(wanted, "url", None) or getattr(wanted, "url_prefix", None), wanted.origin
    try:
        origin = str(split_url(url)[0]) if url else origin
    except (NotGoverned, MalformedURL):  # a URL without a scheme is of two origins
        return
    condition, values = conditions(Filter(kind=None, origin=origin, **same))
    yield from _records(search, f"kind = 'passes' AND {condition}", values)


def _records(search: Search, condition: str, values: list[Any]) -> Iterator[AnyRecord]:
    sql = (
        f'SELECT {_NAMES} FROM records WHERE {condition} ORDER BY "at", writer, seq'
        f" LIMIT {MOST_FETCHES + 1}"
    )
    count = 0
    for row in search.rows(sql, values):
        entry = record_of_row(dict(zip(COLUMNS, row, strict=True)))
        if entry is None or not WRITER_NAME.fullmatch(entry.writer):
            continue
        count += 1
        yield entry
        limit = MOST_FETCHES if isinstance(entry, Fetch) else MOST_RECORDS
        if count > limit:
            raise SettingsError(
                f"more than {limit:,} records would be in the bundle: narrow the period with --since"
                " and --until, or name an origin or URL"
            )


def _with_bases(search: Search, selected: list[AnyRecord]) -> tuple[BasisIndex, set[_Place]]:
    """The records that belong to the selected ones, and where all of them are."""
    ids = {identity for entry in selected for identity in related_ids(entry)}
    ids -= {getattr(entry, "id", "") for entry in selected}
    related: list[AnyRecord] = []
    if ids:
        marks = ", ".join("?" for _ in ids)
        condition = f"kind IN ('decision', 'signals') AND id IN ({marks})"
        related = list(_records(search, condition, sorted(ids)))
    mine = [*selected, *related]
    records = [*mine, *_fetches(search, mine)]
    records += _circumstances(search, records)
    index = BasisIndex(records)
    needed = {_Place(entry.writer, entry.seq) for entry in mine}
    for record in index.decisions.values():
        for entry in index.basis_of(record).records:
            needed.add(_Place(entry.writer, entry.seq))
    return index, needed


def _fetches(search: Search, records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """The fetches of the origins of decisions, up to the last decision."""
    judged = [each for each in records if isinstance(each, Record) and not _is_by_pin(each)]
    origins = sorted({entry.origin for entry in judged if entry.fetched_at or entry.failure})
    if not origins:
        return []
    times = [entry.fetched_at or entry.trouble_since or entry.at or "" for entry in judged]
    since = moment(seconds_of(min(times)) - SLACK - LONGEST_REVALIDATION) or ""
    until = max(entry.at or "" for entry in judged)
    marks = ", ".join("?" for _ in origins)
    condition = f'kind = \'fetch\' AND origin IN ({marks}) AND "at" >= ? AND "at" <= ?'
    return list(_records(search, condition, [*origins, since, until]))


def _circumstances(search: Search, records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """The start records of writers, and the overrides and pinned files that they read."""
    records = list(records)
    writers = sorted({entry.writer for entry in records})
    if not writers:
        return []
    marks = ", ".join("?" for _ in writers)
    condition = f"kind IN ('start', 'overrides') AND writer IN ({marks})"
    found = list(_records(search, condition, writers))
    digests = sorted({entry.sha256 for entry in records if _is_by_pin(entry) and entry.sha256})
    if digests:
        condition = f"kind = 'pinned' AND writer IN ({marks})"
        condition += f" AND sha256 IN ({', '.join('?' for _ in digests)})"
        found += _records(search, condition, [*writers, *digests])
    return found


def _is_by_pin(entry: AnyRecord) -> TypeGuard[Record]:
    return isinstance(entry, Record) and entry.via == PINNED


# -- the lines -------------------------------------------------------------------------------------


def _traces(
    search: Search,
    selection: BundleSelection,
    needed: set[_Place],
    index: BasisIndex,
    trouble: Unreadable,
) -> dict[str, Trace]:
    firsts = _firsts_in_period(search, selection)
    anchors = read_anchors(search.directory)
    searched = frozenset(segment.stem for segment in search.files)
    found = {}
    for writer in sorted({place.writer for place in needed} | firsts.keys()):
        numbers = {place.seq for place in needed if place.writer == writer}
        earliest = min([*numbers, *([firsts[writer]] if writer in firsts else [])])
        start = index.start_before(writer, earliest) or _start_before(search, writer, earliest)
        if start is not None:
            numbers.add(start)
        where = selection.where if writer in firsts else {}
        wanted = Wanted(
            writer=writer,
            numbers=frozenset(numbers),
            intervals=_intervals(writer, sorted(numbers), anchors),
            since=where.get("since"),
            until=where.get("until"),
            first=min([*numbers, earliest]),
            searched=searched,
        )
        found[writer] = trace(search.directory, wanted, trouble)
    return found


def _firsts_in_period(search: Search, selection: BundleSelection) -> dict[str, int]:
    """The number before each writer's first line in the period.

    A writer that has lines before and after the period, but none in it, is included: its chain
    shows that it wrote nothing then.
    """
    if not selection.has_period:
        return {}
    where = selection.wanted
    same = {name: getattr(where, name) for name in ("component", "job", "writer")}
    condition, values = conditions(Filter(kind=None, **same))
    sql = (
        f'SELECT writer, min(seq) FILTER ("at" >= ?) FROM records WHERE {condition} GROUP BY 1'
        ' HAVING max("at") >= ? AND min("at") < ?'
    )
    since, until = selection.period
    return {
        writer: max(1, number - 1)
        for writer, number in search.rows(sql, [since, *values, since, until])
        if writer and WRITER_NAME.fullmatch(writer)
    }


def _start_before(search: Search, writer: str, seq: int) -> int | None:
    sql = "SELECT max(seq) FROM records WHERE kind = 'start' AND writer = ? AND seq <= ?"
    return next((found for (found,) in search.rows(sql, [writer, seq])), None)


def _intervals(writer: str, numbers: list[int], anchors: list[Anchor]) -> list[tuple[int, int]]:
    """From each number to the first head after it that a timestamp covers."""
    covered = sorted(
        head.last
        for anchor in anchors
        for head in anchor.heads
        if head.writer == writer and anchor.token
    )
    found = []
    for number in numbers:
        last = next((each for each in covered if each >= number), None)
        if last is not None and last - number <= FURTHEST_ANCHOR:
            found.append((number, last))
    return found


# -- what belongs to them --------------------------------------------------------------------------


def _anchors(directory: Path, chains: dict[str, Chain], trouble: Unreadable) -> dict[str, bytes]:
    """The anchors that cover a head of the chains, with what their timestamps confirm and no more:
    the heads, and the time of the authority."""
    anchors, found = read_anchors(directory), {}
    stated = {each.head for anchor in anchors for each in anchor.heads}
    heads = {name: check_chain(chain, [], stated).heads for name, chain in chains.items()}
    for anchor in anchors:
        covers = any(each.head in heads.get(each.writer, {}) for each in anchor.heads)
        if not covers or not anchor.token:
            continue
        try:
            stamp = verify_anchor(anchor)
        except (InvalidAnchor, MissingExtra) as error:
            trouble.files[anchor.filename] = str(error)
            continue
        confirmed = msgspec.structs.replace(anchor, at=stamp.at, tsa=None)
        found[confirmed.filename] = encoded(confirmed)
    return dict(sorted(found.items()))


def _responses(directory: Path, lines: list[DisclosedLine]) -> dict[str, bytes]:
    """The WARC records of the disclosed fetches, as far as they are still there."""
    by_file: dict[str, set[str]] = {}
    for line in lines:
        entry = line.entry
        if isinstance(entry, Fetch) and entry.warc_id and entry.warc_file:
            by_file.setdefault(entry.warc_file, set()).add(entry.warc_id)
    found: dict[str, bytes] = {}
    for name, identities in by_file.items():
        path = directory / name
        if not name.endswith(WARC) or not day_of(name) or why_not_plain(path):
            continue
        try:
            responses = extract(path, identities)
        except (OSError, BadWarc):
            continue
        named = {uuid_of(identity): data for identity, data in responses.items()}
        found |= {uuid: data for uuid, data in named.items() if uuid is not None}
    return dict(sorted(found.items()))


def _documents(
    lines: list[DisclosedLine], documents: Documents, warc: dict[str, bytes]
) -> dict[str, bytes]:
    """The documents that the records name, from the store, from the WARC records or from the records
    of pinned files."""
    received = pinned_texts(line.entry for line in lines)
    for data in warc.values():
        try:
            body = read_response(data).body
        except BadWarc:
            continue
        received[hashlib.sha256(body).hexdigest()] = body
    wanted = {
        entry.sha256
        for entry in (line.entry for line in lines)
        if isinstance(entry, Record | Fetch) and entry.sha256 and entry.sha256 != EMPTY
    }
    found = {}
    for sha256 in sorted(wanted):
        content = received.get(sha256) or documents(sha256)
        if content is not None and is_digest_of(sha256, content):
            found[sha256] = content
    return found


def _check_size(parts: Parts) -> None:
    size = sum(len(line.raw) for line in parts.lines)
    size += sum(70 * len(span.links) for chain in parts.chains.values() for span in chain.spans)
    size += sum(map(len, (*parts.documents.values(), *parts.warc.values())))
    if size > LARGEST_CONTENT * 3 // 4:
        raise SettingsError(
            f"the bundle would be larger than {LARGEST_CONTENT * 3 // 4 // 2**20} MiB: narrow the"
            " period with --since and --until, or select decisions by their ids"
        )


_SECRET = frozenset(("key",))  # that with which values in queries are hashed
_URLS = frozenset(("url", "url_prefix"))


class BundleSummary(NamedTuple):
    """What a bundle has: its records, its documents, and what could not be included. `lacking` has
    the origins of the documents that are missing, by their SHA-256."""

    records: int
    documents: int
    missing: list[str]
    lacking: dict[str, str]
    trouble: Unreadable


def write_bundle(
    target: BinaryIO,
    search: Search,
    wanted: Filter | None = None,
    *,
    documents: Documents,
    now: float,
    ids: Sequence[str] = (),
    signer: Signer | None = None,
) -> BundleSummary:
    """Write a bundle of the decisions with these ids, or of all that the filter selects.

    `documents` gives the content of a document by its SHA-256. A period ends at `now`, in seconds
    since 1970, at the latest. The `signer` states that nothing that is selected is left out.
    Raises SettingsError if nothing is selected, or too much.
    """
    trouble = Unreadable()
    parts = collect(search, selection_of(wanted, ids, now), documents, trouble)
    completeness = completeness_of(parts)
    write_archive(target, all_files(parts, completeness, signer))
    return BundleSummary(
        len(parts.lines),
        len(parts.documents),
        completeness.missing,
        lacking_documents(parts),
        trouble,
    )


def search_for(
    directory: Path,
    wanted: Filter,
    ids: Sequence[str] = (),
    progress: Progress | None = None,
) -> Search:
    """A search for a bundle. With a period, it reads the files of the period, and those of the
    fetches before it. What a filter selects, the bundle states to be all that there is: so it
    comes from the lines themselves. Raises SettingsError if there is no such directory, and
    MissingExtra."""
    files = None
    if not ids and wanted.since is not None:
        since = moment(seconds_of(wanted.since) - LONGEST_REVALIDATION)
        files = Filter(kind=None, since=since, until=wanted.until)
    return Search(directory, files, progress, trusts_index=bool(ids))


def selection_of(wanted: Filter | None, ids: Sequence[str], now: float) -> BundleSelection:
    """The selection of these ids, or by this filter, without its secrets: the bundle shows it."""
    if ids:
        return BundleSelection(ids=sorted(set(ids)))
    values = msgspec.structs.asdict(wanted or Filter())
    where = {name: value for name, value in values.items() if value and name not in _SECRET}
    for name in _URLS & where.keys():
        where[name] = shown_url(where[name])
    if "since" in where:
        present = moment(now) or ""
        where["until"] = min(where.get("until", present), present)
    return BundleSelection(where=where)


def all_files(
    parts: Parts, completeness: Completeness, signer: Signer | None = None
) -> dict[str, bytes]:
    """All files of a bundle, signed if there is a signer. Raises MissingExtra without jinja2."""
    from robots_guard.audit.bundle.page import page_of

    files = files_of(parts) | derived_files(parts)
    files |= {COMPLETENESS: encoded(completeness), PAGE: page_of(parts, completeness)}
    manifest = manifest_of(files)
    if signer is not None:
        signature = signer.sign(bundle_statement(manifest))
        files[SIGNATURE] = encoded(BundleSignature(key=signer.key, signature=signature))
    return files | {MANIFEST: manifest}
