"""Adding and releasing legal holds, each on record in the audit log.

Invariant: a hold is in force before it is recorded, and its release is recorded before it takes
effect. Housekeeping cannot run in between, because the directory is locked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from robots_guard.audit.holds import Hold, read_holds, write_holds
from robots_guard.audit.write.maintenance import lock_directory
from robots_guard.decisions.events import Event, HoldChanged
from robots_guard.errors import SettingsError
from robots_guard.invocation import invocation_for


def add_hold(directory: Path, hold: Hold, now: float, note: Callable[[Event], None]) -> None:
    """Put a hold in force, and record it. Raises OSError, SettingsError if the holds cannot be read,
    and AuditLogError if the hold is in force but was not recorded."""
    with lock_directory(directory, waits=True):
        write_holds(directory, [*read_holds(directory), hold])
        note(_change(hold, "add", hold.owner, hold.reason, now))


def release_hold(
    directory: Path,
    identity: str,
    owner: str,
    reason: str,
    now: float,
    note: Callable[[Event], None],
) -> Hold:
    """Record the release of a hold, and end it. Raises OSError, SettingsError if there is no such
    hold, and AuditLogError; the hold is then still in force."""
    with lock_directory(directory, waits=True):
        holds = read_holds(directory)
        found = [hold for hold in holds if hold.id == identity]
        if not found:
            known = invocation_for(directory).command("audit", "hold")
            raise SettingsError(f"there is no hold {identity!r}: see {known}")
        note(_change(found[0], "release", owner, reason, now))
        write_holds(directory, [hold for hold in holds if hold.id != identity])
        return found[0]


def _change(hold: Hold, change: str, owner: str, reason: str, now: float) -> HoldChanged:
    return HoldChanged(
        at=now,
        hold=hold.id,
        change=change,
        owner=owner,
        reason=reason,
        origins=tuple(hold.origins),
        since=hold.since,
        until=hold.until,
    )
