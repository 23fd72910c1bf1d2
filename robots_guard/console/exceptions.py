"""The operator's exceptions, as they stand now."""

from __future__ import annotations

from typing import NamedTuple

from robots_guard.core.overrides import Override, Overrides

SOON = 14 * 86400.0  # seconds
STATES = ("in force", "expires soon", "expired", "invalid")


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
    every += [Row("invalid", fault.which, "", [], "", fault.why, None) for fault in found.faults]
    order = ("invalid", "expired", "expires soon", "in force")
    return sorted(every, key=lambda row: (order.index(row.state), row.expires or 0.0, row.id))


def _row(each: Override, now: float) -> Row:
    exemption = each.exemption
    place = f"*.{each.place}" if isinstance(each.place, str) else str(each.place)
    changes = [(name, str(value)) for name, value in each.changes.items()]
    left = exemption.expires - now
    state = "expired" if left <= 0 else "expires soon" if left <= SOON else "in force"
    return Row(state, exemption.id, place, changes, exemption.owner, exemption.reason, exemption.expires)
