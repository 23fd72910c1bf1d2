"""Writing a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from robots_guard.audit.bundle.archive import MANIFEST, SIGNATURE, manifest_of, write_archive
from robots_guard.audit.bundle.basis import seconds_of
from robots_guard.audit.bundle.collection import LONGEST_REVALIDATION, Documents, collect
from robots_guard.audit.bundle.contents import (
    COMPLETENESS,
    PAGE,
    BundleSelection,
    BundleSignature,
    Completeness,
    Parts,
    encoded,
    files_of,
)
from robots_guard.audit.bundle.derivation import (
    completeness_of,
    derived_files,
    lacking_documents,
)
from robots_guard.audit.read.reader import Filter, Unreadable
from robots_guard.audit.read.search import Progress, Search
from robots_guard.audit.record import moment, shown_url
from robots_guard.audit.signing import Signer, bundle_statement

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
