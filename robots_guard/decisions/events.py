"""Events: what the audit log records besides decisions. Plain values; the audit log writes them.

`at` is in seconds since 1970, `elapsed` in seconds.
"""

from __future__ import annotations

import msgspec

from robots_guard.decisions.access import FetchOutcome, File, Get
from robots_guard.origin import Origin


class FetchMade(msgspec.Struct, frozen=True, kw_only=True):
    """One hop of fetching an origin's robots.txt or tdmrep.json, and its outcome."""

    at: float
    origin: Origin
    get: Get
    outcome: FetchOutcome
    via: str
    elapsed: float
    file: File = "robots.txt"


class StoreWasReset(msgspec.Struct, frozen=True, kw_only=True):
    """The policy store was damaged and has been replaced by an empty one."""

    at: float
    detail: str


class FailedOpen(msgspec.Struct, frozen=True, kw_only=True):
    """Requests passed without a verdict or record: how many, and which setting permits that."""

    at: float
    setting: str
    count: int
    detail: str = ""


class OverridesLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's overrides were read: how many are in force, and what is wrong with the rest.

    `sha256` is the digest of the file, and `text` its content.
    """

    at: float
    source: str
    count: int
    sha256: str = ""
    text: str = ""
    problems: tuple[str, ...] = ()


class PinnedFileRead(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a robots.txt that an override has pinned was read: `part` of `parts`, from 1.

    `sha256` and `size` are those of the whole file, and `text` has one Latin-1 character per byte.
    """

    at: float
    override: str
    source: str
    sha256: str
    size: int
    part: int
    parts: int
    text: str


class HoldChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A legal hold was added (`change` is `add`) or released (`release`), by its owner or another
    person, for a reason. `since` and `until` are as in records."""

    at: float
    hold: str  # its id
    change: str
    owner: str
    reason: str
    origins: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None


class FilesRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Housekeeping is about to remove files of the audit log."""

    at: float
    files: tuple[str, ...]


Event = (
    FetchMade
    | StoreWasReset
    | FailedOpen
    | OverridesLoaded
    | PinnedFileRead
    | HoldChanged
    | FilesRemoved
)
