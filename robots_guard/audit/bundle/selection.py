"""Whether a bundle has what its selection says, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from robots_guard.audit.bundle.basis import BasisIndex
from robots_guard.audit.bundle.contents import Parts
from robots_guard.audit.read.reader import DECISION, Filter
from robots_guard.audit.record import AnyRecord, Record, SignalsRecord


def selection_problems(parts: Parts, index: BasisIndex) -> Iterator[str]:
    """The decisions that were not selected, and those that were and are missing."""
    selection = parts.selection
    for identity in selection.ids:
        if identity not in index.decisions:
            yield f"the selected decision {identity!r} is missing"
    wanted = selection.wanted
    related = _related(parts)
    for record in index.decisions.values():
        is_selected = record.id in selection.ids or (
            bool(selection.where) and _may_be_selected(wanted, record)
        )
        if not is_selected and record.id not in related:
            yield f"{record.id} was not selected"


def is_selected_by(wanted: Filter, entry: AnyRecord) -> bool:
    """Whether a filter selects a record. Filters for decisions also select what is known of the
    responses."""
    if wanted.kind == DECISION:
        is_kind = isinstance(entry, Record | SignalsRecord)
        return is_kind and msgspec.structs.replace(wanted, kind=None).admits(entry)
    return wanted.admits(entry)


def _may_be_selected(wanted: Filter, record: Record | SignalsRecord) -> bool:
    """Whether a filter selects a record. Values in queries are redacted or hashed, in the selection
    and in the record, so that only the rest of a URL can be compared."""
    if is_selected_by(wanted, record):
        return True
    url = getattr(wanted, "url", None)
    if url is None:
        return False
    changes: dict[str, Any] = {"url": url.partition("?")[0]}
    return is_selected_by(
        msgspec.structs.replace(wanted, **changes),
        msgspec.structs.replace(record, url=record.url.partition("?")[0]),
    )


def related_ids(entry: AnyRecord) -> set[str]:
    """The ids of the decisions to which a record refers."""
    match entry:
        case Record(defers=str(identity)):
            return {identity}
        case SignalsRecord(request=str(identity)):
            return {identity}
        case _:
            return set()


def _related(parts: Parts) -> set[str]:
    return {identity for line in parts.lines for identity in related_ids(line.entry)}
