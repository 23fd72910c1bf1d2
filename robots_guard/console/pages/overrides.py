"""The operator's overrides and their state now."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.core.overrides import Override, Overrides, State

INVALID = "invalid"
STATES = (*State, INVALID)


class Row(NamedTuple):
    """One override. If it is invalid, it has no effect, and `reason` says what is wrong with it."""

    state: str
    id: str
    place: str
    changes: list[tuple[str, str]]
    owner: str
    reason: str
    expires: float | None


def rows(found: Overrides, now: float) -> list[Row]:
    """Return the overrides of a file; those that need attention come first."""
    every = [_row(each, now) for each in found.entries]
    every += [Row(INVALID, fault.which, "", [], "", fault.why, None) for fault in found.faults]
    return sorted(every, key=lambda row: (-STATES.index(row.state), row.expires or 0.0, row.id))


def _row(each: Override, now: float) -> Row:
    exemption = each.exemption
    changes = [(name, str(value)) for name, value in each.changes.items()]
    reason, expires = exemption.reason, exemption.expires
    return Row(each.state(now), exemption.id, each.where, changes, exemption.owner, reason, expires)
