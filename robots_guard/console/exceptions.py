"""The operator's exceptions, as they stand now."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.core.overrides import Override, Overrides, State

INVALID = "invalid"
STATES = (*State, INVALID)


class Row(NamedTuple):
    """One exception, or one that has no effect because it is invalid (then `reason` is why)."""

    state: str
    id: str
    place: str
    changes: list[tuple[str, str]]
    owner: str
    reason: str
    expires: float | None


def rows(found: Overrides, now: float) -> list[Row]:
    """All of a file: what needs somebody's attention first."""
    every = [_row(each, now) for each in found.entries]
    every += [Row(INVALID, fault.which, "", [], "", fault.why, None) for fault in found.faults]
    return sorted(every, key=lambda row: (-STATES.index(row.state), row.expires or 0.0, row.id))


def _row(each: Override, now: float) -> Row:
    exemption = each.exemption
    changes = [(name, str(value)) for name, value in each.changes.items()]
    reason, expires = exemption.reason, exemption.expires
    return Row(each.state(now), exemption.id, each.where, changes, exemption.owner, reason, expires)
