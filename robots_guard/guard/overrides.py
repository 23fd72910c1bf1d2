"""The overrides file of a running guard: reread when it changes, without a restart.

The file may be incomplete or invalid while someone edits it. Invariant: if it cannot be read, the
previous overrides stay in force and a warning is logged; a valid change takes effect within a
second.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

from robots_guard.core.events import OverridesLoaded
from robots_guard.core.overrides import Overrides, parse
from robots_guard.core.verdict import Exemption, Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.counters import Counters
from robots_guard.origin import Origin
from robots_guard.ports import Clocks

CHECK_EVERY = 1.0  # seconds
MAX_BYTES = 1024 * 1024


class OverridesFile:
    """The terms of each origin: `base`, except where the file at `path` (None: no file) overrides
    them.

    Each reading is recorded. Raises SettingsError if the first one fails.
    """

    def __init__(self, path: Path | None, base: Terms, clocks: Clocks, counters: Counters) -> None:
        self._path = path
        self._base = base
        self._clocks = clocks
        self._counters = counters
        self._checked_at = clocks.monotonic()
        self._identity = _identity(path) if path else None
        self._overrides = read(path, base) if path else Overrides()
        self._report()

    def terms(self, origin: Origin) -> Terms:
        """Return the terms of an origin now."""
        if self._path is None:
            return self._base
        if self._clocks.monotonic() - self._checked_at >= CHECK_EVERY:
            self.reload_if_changed()
        return self._overrides.terms(origin, self._base, self._clocks.now())

    @property
    def exemptions(self) -> tuple[Exemption, ...]:
        """The exemption of each valid override in the file, also of expired ones."""
        return tuple(each.exemption for each in self._overrides.entries)

    def reload_if_changed(self) -> None:
        """Read the file again if it has changed. Does not raise."""
        self._checked_at = self._clocks.monotonic()
        if self._path is None:
            return
        identity = _identity(self._path)
        if identity == self._identity:
            return
        self._identity = identity
        try:
            self._overrides = read(self._path, self._base)
        except SettingsError as error:
            self._identity = None  # retry, and warn again, until the file is readable
            self._counters.warn(
                "overrides/unread", "%s; the previous overrides stay in force", error
            )
        else:
            self._report()

    def _report(self) -> None:
        """Warn of each override that has no effect, and record the reading."""
        if self._path is None:
            return
        now = self._clocks.now()
        expired = self._overrides.expired(now)
        ineffective = (*self._overrides.faults, *expired)
        for which, why in ineffective:
            fault = SettingsError(f"override {which!r} has no effect: {why}")
            self._counters.warn("overrides/invalid", "%s", fault, about=which)
        loaded = OverridesLoaded(
            at=now,
            source=str(self._path),
            count=len(self._overrides.entries) - len(expired),
            sha256=self._overrides.sha256,
            text=self._overrides.text,
            problems=tuple(f"{which}: {why}" for which, why in ineffective),
        )
        self._counters.note(loaded)


def read(path: Path, base: Terms) -> Overrides:
    """Read the overrides in a file. Raises SettingsError unless it is readable TOML with
    `[[override]]` tables."""
    try:
        with os.fdopen(_open_regular(path), "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SettingsError(f"more than {MAX_BYTES} bytes")
        text, digest = content.decode(), hashlib.sha256(content).hexdigest()
        return parse(text, base)._replace(sha256=digest, text=text)
    except (OSError, ValueError, SettingsError, RecursionError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        raise SettingsError(
            f"overrides: {str(path)!r} cannot be used ({why}): correct it, or name another file"
        ) from None


def _open_regular(path: Path) -> int:
    """Open a regular file. Raises OSError for anything else: opening a pipe would block until it is
    written to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (faster, on a path that every question takes)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
