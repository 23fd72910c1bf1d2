"""The age of the audit log's files, measured so that clock jumps cannot cause removals.

A file's age is the time observed since housekeeping first saw it. Within one boot of the machine it
is measured by the machine's uptime, which cannot be set. Across boots only the wall clock is left:
it may add at most a third of the retention, and nothing if it is further than the retention ahead
of the latest inspection. An inspection counts once a second one, at least an hour later, agrees
with it.

Invariant: nothing here reads a clock or a file. maintenance.py makes the inspections, and stores
the account in `.retention`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from robots_guard.audit.segments import key_of

DAY = 86400.0  # seconds
HOUR = 3600.0  # least time between the inspection that finds a file due and the one that removes it
# Seconds by which the wall clock may be adjusted within an hour and still be trusted.
TOLERANCE = 600.0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long files are kept, and how many bytes in all; 0 means forever, or no limit."""

    days: int = 90
    size: int = 0

    @property
    def seconds(self) -> float:
        """How long files are kept, in seconds."""
        return self.days * DAY


class Inspection(msgspec.Struct, frozen=True):
    """The time of a housekeeping run: the machine's boot id, its uptime in seconds, and the wall
    clock."""

    boot: str
    up: float
    wall: float


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What housekeeping remembers between inspections.

    `settled` is the latest inspection that a later one confirmed, `pending` the one to be confirmed
    next. `age` is how long the directory had been observed at `settled`, in seconds, and `highest`
    the latest wall clock of all confirmed inspections. `seen` has, by file, the directory's age
    when the file was first seen.
    """

    age: float = 0.0
    highest: float
    settled: Inspection
    pending: Inspection
    seen: dict[str, float] = {}


class Ageing(NamedTuple):
    """The result of an inspection: the new account, and the age of the directory that two
    inspections agree on."""

    account: Account
    agreed: float

    def age_of(self, filename: str) -> float:
        """The minimum age of a file at the earlier of the two inspections; negative if it did not
        exist yet."""
        return self.agreed - self.account.seen[key_of(filename)]


def determine_ages(
    account: Account | None, now: Inspection, filenames: Iterable[str], retention: Retention
) -> Ageing:
    """Determine the ages of the files in a directory. `filenames` must be complete."""
    if account is None:
        account = Account(highest=now.wall, settled=now, pending=now)
    account = _advance(account, now, retention)
    seen = _first_seen(account, account.age + _elapsed(account, now, retention), filenames)
    return Ageing(msgspec.structs.replace(account, seen=seen), account.age)


def _advance(account: Account, now: Inspection, retention: Retention) -> Account:
    """The account with the pending inspection settled if this one confirms it, or replaced if this
    one contradicts it."""
    if _contradicts_pending(account, now):
        return msgspec.structs.replace(account, pending=now)
    if not _confirms(account.pending, now):
        return account
    pending = account.pending
    return Account(
        age=account.age + _elapsed(account, pending, retention),
        highest=max(account.highest, pending.wall),
        settled=pending,
        pending=now,
        seen=account.seen,
    )


def _contradicts_pending(account: Account, now: Inspection) -> bool:
    """Whether the wall clock was set between the pending inspection and this one.

    Within one boot the uptime counts, so that a changed wall clock matters only if the time before
    the pending inspection was taken from the wall clock. After a reboot only the wall clock is
    known, and a step backwards shows that it was set.
    """
    pending = account.pending
    elapsed = now.wall - pending.wall
    if not _is_same_boot(pending, now):
        return elapsed < -TOLERANCE
    return (
        not _is_same_boot(account.settled, pending)
        and abs(elapsed - (now.up - pending.up)) > TOLERANCE
    )


def _confirms(pending: Inspection, now: Inspection) -> bool:
    """Whether this inspection is at least an hour after the pending one."""
    if _is_same_boot(pending, now):
        return now.up - pending.up >= HOUR
    return now.wall - pending.wall >= HOUR


def _elapsed(account: Account, now: Inspection, retention: Retention) -> float:
    """The seconds from the settled inspection to this one, as far as they can be trusted."""
    if _is_same_boot(account.settled, now):
        return now.up - account.settled.up
    elapsed = now.wall - account.highest
    if not 0 < elapsed <= retention.seconds:
        return 0.0
    return min(elapsed, retention.seconds / 3)


def _is_same_boot(earlier: Inspection, later: Inspection) -> bool:
    return earlier.boot == later.boot and earlier.up <= later.up


def _first_seen(account: Account, age: float, filenames: Iterable[str]) -> dict[str, float]:
    """The directory's age when each file was first seen."""
    keys = map(key_of, filenames)
    return {key: account.seen.get(key, age) for key in keys}
