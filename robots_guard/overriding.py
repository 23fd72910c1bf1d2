"""The overrides file of a running guard: read again when it has changed, without a restart.

The law of this file: whoever edits it saves halfway and misspells. What cannot be read leaves what was read before in
force, and is spoken of; what can be is in force within a second.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from robots_guard.core.overrides import Overrides, parse
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.origin import Origin
from robots_guard.ports import Clocks
from robots_guard.tally import Tally

LOOK_EVERY = 1.0  # seconds
LARGEST = 1024 * 1024  # octets


class Overriding:
    """The terms of each origin: `base`, save where the file at `path` (None: there is none) says otherwise.

    `loaded` is told of each reading. Raises SettingsError if the file cannot be read at first.
    """

    def __init__(
        self,
        path: Path | None,
        base: Terms,
        clocks: Clocks,
        tally: Tally,
        loaded: Callable[[Overrides], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._base = base
        self._clocks = clocks
        self._tally = tally
        self._loaded = loaded
        self._looked = clocks.monotonic()
        self._identity = _identity(path) if path else None
        self._overrides = read(path, base) if path else Overrides()
        self._told()

    def terms(self, origin: Origin) -> Terms:
        """The terms for an origin now."""
        if self._path is None:
            return self._base
        if self._clocks.monotonic() - self._looked >= LOOK_EVERY:
            self.look()
        return self._overrides.terms(origin, self._base, self._clocks.now())

    def look(self) -> None:
        """Read the file again if it has changed. Does not raise."""
        self._looked = self._clocks.monotonic()
        if self._path is None:
            return
        identity = _identity(self._path)
        if identity == self._identity:
            return
        self._identity = identity
        try:
            self._overrides = read(self._path, self._base)
        except SettingsError as error:
            self._identity = None  # look at it again, and say so again, until somebody mends it
            self._tally.warn("overrides/unread", "%s; the overrides read before stay in force", error)
        else:
            self._told()

    def _told(self) -> None:
        for which, why in (*self._overrides.faults, *self._overrides.expired(self._clocks.now())):
            fault = SettingsError(f"override {which!r} has no effect: {why}")
            self._tally.warn("overrides/invalid", "%s", fault, about=which)
        if self._path is not None:
            self._loaded(self._overrides)


def read(path: Path, base: Terms) -> Overrides:
    """The overrides in a file. Raises SettingsError if it cannot be read, or is no TOML with `[[override]]`s."""
    try:
        with os.fdopen(_at_once(path), "rb") as file:
            octets = file.read(LARGEST + 1)
        if len(octets) > LARGEST:
            raise SettingsError(f"more than {LARGEST} octets")
        return parse(octets.decode(), base)._replace(sha256=hashlib.sha256(octets).hexdigest())
    except (OSError, UnicodeDecodeError, SettingsError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SettingsError(f"overrides: {str(path)!r} cannot be used ({why}): mend it, or name another file") from None


def _at_once(path: Path) -> int:
    """Open a regular file: a pipe would hold up every question until somebody writes into it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (on the way of every question)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
