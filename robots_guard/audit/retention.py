"""The age of the journal's files, measured so that a clock jump cannot change it.

A file's age is the time observed since housekeeping first saw it. Within one boot of the machine that is the time the
machine has been up, which cannot be set. Across boots only the wall clock is left: it is trusted for a third of the
retention at most, and not at all where it is further than the retention beyond the latest look.
A look counts once a second one, an hour later, agrees with it.

Invariant: nothing here reads a clock or a file. keeping.py makes the looks, and keeps the account in `.retention`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from robots_guard.audit.segments import PARQUET, day_of, key_of

DAY = 86400.0  # seconds
HOUR = 3600.0  # from the look that finds a file due to the one that removes it
ASTRAY = 600.0  # seconds that the wall clock may be set by in an hour, and still be believed


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long files are kept, and how many octets; 0 means for ever, or no limit."""

    days: int = 90
    octets: int = 0

    @property
    def seconds(self) -> float:
        """How long files are kept."""
        return self.days * DAY


class Look(msgspec.Struct, frozen=True):
    """When housekeeping looked: the machine's boot id, its uptime in seconds, and the wall clock."""

    boot: str
    up: float
    wall: float


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What housekeeping knows from one look to the next.

    `age` is how long the directory has been watched, up to the look `settled`, which a second one agreed with;
    `pending` is the next to be settled. `highest` is the latest wall clock of all that were settled. `seen` has
    the directory's age when each file was first seen.
    """

    age: float = 0.0
    highest: float
    settled: Look
    pending: Look
    seen: dict[str, float] = {}


class Ageing(NamedTuple):
    """The result of a look: the account from now on, and the age of the directory that two looks agree on."""

    account: Account
    agreed: float

    def age_of(self, filename: str) -> float:
        """The least age of a file at the earlier of the two looks; negative if it was not there yet."""
        return self.agreed - self.account.seen[key_of(filename)]


def aged(account: Account | None, look: Look, filenames: Iterable[str], retention: Retention) -> Ageing:
    """The ages at a look of these files, which must be all there are."""
    if account is None:
        account = Account(highest=look.wall, settled=look, pending=look)
    account = _looked(account, look, retention)
    seen = _seen(account, account.age + _passed(account, look, retention), filenames)
    return Ageing(msgspec.structs.replace(account, seen=seen), account.age)


def _looked(account: Account, look: Look, retention: Retention) -> Account:
    """With the pending look settled if this one agrees with it, and replaced if this one contradicts it."""
    if _contradicts(account, look):
        return msgspec.structs.replace(account, pending=look)
    if not _is_later(account.pending, look):
        return account
    pending = account.pending
    return Account(
        age=account.age + _passed(account, pending, retention),
        highest=max(account.highest, pending.wall),
        settled=pending,
        pending=look,
        seen=account.seen,
    )


def _contradicts(account: Account, look: Look) -> bool:
    """Whether the pending look was by a wall clock that has been set since; it matters only where that is used."""
    pending = account.pending
    passed = look.wall - pending.wall
    if not _is_one_boot(pending, look):
        return passed < -ASTRAY
    return not _is_one_boot(account.settled, pending) and abs(passed - (look.up - pending.up)) > ASTRAY


def _is_later(pending: Look, look: Look) -> bool:
    if _is_one_boot(pending, look):
        return look.up - pending.up >= HOUR
    return look.wall - pending.wall >= HOUR


def _passed(account: Account, look: Look, retention: Retention) -> float:
    """The seconds from the settled look to this one, as far as they can be believed."""
    if _is_one_boot(account.settled, look):
        return look.up - account.settled.up
    passed = look.wall - account.highest
    return min(passed, retention.seconds / 3) if 0 < passed <= retention.seconds else 0.0


def _is_one_boot(earlier: Look, later: Look) -> bool:
    return earlier.boot == later.boot and earlier.up <= later.up


def _seen(account: Account, age: float, filenames: Iterable[str]) -> dict[str, float]:
    """When each file was first seen. A compacted file is as old as the youngest of its day that it can hold."""
    seen = {}
    for filename in filenames:
        key = key_of(filename)
        first = account.seen.get(key)
        if first is None and filename.endswith(PARQUET):
            day = day_of(filename)
            first = max((at for known, at in account.seen.items() if known.startswith(f"{day}-")), default=None)
        seen[key] = age if first is None else first
    return seen
