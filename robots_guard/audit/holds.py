"""Legal holds: periods whose files housekeeping must not remove from an audit log.

They are kept in `.holds` in the log's directory. A hold covers whole files, by the day in their names:
the evidence about one origin includes the chain of each writer, and so all its lines.

Invariant: if `.holds` cannot be read, nothing may be removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from robots_guard.audit.segments import PART, day_of, put_in_place, read_plain
from robots_guard.errors import SettingsError

HOLDS = ".holds"
# Days by which a record's time may differ from the day in its file's name: a clock that was set back,
# or no other file could be begun at midnight.
MARGIN = timedelta(days=2)


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hold: why, for whom, and for which period. Times are as in records; a period without a bound
    is open. `origins` says what it is about; it covers the files of the whole period."""

    id: str
    at: str
    owner: str
    reason: str
    origins: list[str] = msgspec.field(default_factory=list)
    since: str | None = None
    until: str | None = None

    def covers(self, filename: str) -> bool:
        """Whether it covers a file of the audit log: one whose day is in the period, or unknown."""
        try:
            day = date.fromisoformat(day_of(filename))
            is_before = self.since is not None and day < _day(self.since) - MARGIN
            is_after = self.until is not None and day > _day(self.until) + MARGIN
        except (ValueError, OverflowError):
            return True
        return not (is_before or is_after)


class HoldFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `.holds`."""

    format: Literal["robots_guard-holds-1"] = "robots_guard-holds-1"
    holds: list[Hold]


def _day(moment: str) -> date:
    return date.fromisoformat(moment[:10])


def read_holds(directory: Path) -> list[Hold]:
    """The holds in force. Raises SettingsError if they cannot be read."""
    try:
        return msgspec.json.decode(read_plain(directory / HOLDS), type=HoldFile).holds
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"{str(directory / HOLDS)!r} cannot be read ({why}), so no file of the audit log is removed:"
            " put it back from a backup, or move it away and add the holds again"
        ) from error


def write_holds(directory: Path, holds: Iterable[Hold]) -> None:
    """Replace the holds. The caller must have the lock of the directory. Raises OSError."""
    whole = directory / HOLDS
    part = whole.with_name(HOLDS + PART)
    part.unlink(missing_ok=True)  # left by a killed process, or a symlink that another user planted
    content = msgspec.json.format(msgspec.json.encode(HoldFile(holds=list(holds))))
    with part.open("xb") as file:
        os.fchmod(file.fileno(), 0o640)
        file.write(content + b"\n")
    put_in_place(part, whole)
