"""The operator's overrides file, and the robots.txt files that it pins, reloaded when one changes.

A file may be incomplete or invalid while someone edits it. Invariant: if the overrides cannot be
read, the previous ones stay in force; if a pinned file cannot be read, its last content does. A
warning is logged, and a valid change takes effect within a second.

Invariant: a pinned file that cannot be read, or permits everything because it is empty or no
robots.txt, is never used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from robots_guard.decisions.access import MAX_BODY
from robots_guard.decisions.events import OverridesLoaded, PinnedFileRead
from robots_guard.decisions.overrides import Override, Overrides, State, parse
from robots_guard.decisions.policy import PINNED, Document
from robots_guard.decisions.verdict import Exemption, Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.counters import Counters
from robots_guard.origin import Origin
from robots_guard.ports import Clocks
from robots_guard.protocol import robots
from robots_guard.protocol.dialect import Dialect

FileIdentity = tuple[int, int, int]

PART = 4096  # bytes of a file in one record


class PinnedFile(NamedTuple):
    """The content of a pinned file, and what identifies the file it was read from."""

    document: Document
    identity: FileIdentity | None


def pinned_path(override: Override, overrides: Path) -> Path:
    """Return the path of the file that an override pins. A relative one begins at the directory of
    the overrides file."""
    assert override.robots_file is not None
    return overrides.parent / Path(override.robots_file).expanduser()


def read_pinned(path: Path, dialect: Dialect, now: float) -> PinnedFile:
    """Read a pinned file. Raises SettingsError unless it is a regular, readable file that contains a
    robots.txt with at least one group."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            identity = identity_of(os.fstat(file.fileno()))
            body = file.read(MAX_BODY + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"robots_file {str(path)!r} cannot be read ({why}): correct it, or name another file"
        ) from None
    if len(body) > MAX_BODY:
        raise SettingsError(f"robots_file {str(path)!r} has more than {MAX_BODY} bytes: shorten it")
    if not any(robots.parse(body, part).groups for part in dialect.parts or (dialect,)):
        raise SettingsError(
            f"robots_file {str(path)!r} has no group, and would permit everything: write"
            " 'User-agent: *' and 'Allow: /' if this is meant"
        )
    document = Document(
        status=200,
        url=str(path),
        sha256=hashlib.sha256(body).hexdigest(),
        body=body,
        fetched_at=now,
        via=PINNED,
    )
    return PinnedFile(document, identity)


def open_regular(path: Path) -> int:
    """Open a regular file. Raises OSError for anything else: opening a pipe would block until it is
    written to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def identity_of(found: os.stat_result) -> FileIdentity:
    """What tells one content of a file from another."""
    return found.st_ino, found.st_size, found.st_mtime_ns


def identity_at(path: Path) -> FileIdentity | None:
    """What tells one content of a file from another; None if there is no file."""
    try:
        return identity_of(os.stat(path))  # noqa: PTH116  (faster, on a path that every question takes)
    except (OSError, ValueError):
        return None


def records_of(override: str, document: Document, now: float) -> Iterator[PinnedFileRead]:
    """The events that record a pinned file, with its whole content."""
    pieces = [document.body[at : at + PART] for at in range(0, len(document.body), PART)]
    for number, piece in enumerate(pieces, 1):
        yield PinnedFileRead(
            at=now,
            override=override,
            source=document.url,
            sha256=document.sha256,
            size=len(document.body),
            part=number,
            parts=len(pieces),
            text=piece.decode("latin-1"),
        )


CHECK_EVERY = 1.0  # seconds
MAX_BYTES = 1024 * 1024
_NEVER = (-1, -1, -1)  # the identity of no file


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
        self._identity: FileIdentity | None = None
        self._pinned: dict[Path, PinnedFile] = {}
        self._unread: dict[str, str] = {}  # by override: why its pinned file cannot be read now
        self._recorded: set[tuple[str, str]] = set()  # the pinned files, by override and digest
        self._overrides = Overrides()
        if path is not None:
            self._identity = identity_at(path)
            self._overrides = self._read(path)
            self._report(path)

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
        """Read the files again if one has changed. Does not raise."""
        self._checked_at = self._clocks.monotonic()
        if self._path is None:
            return
        identity = identity_at(self._path)
        if identity == self._identity and not self._has_changed_pins():
            return
        self._identity = identity
        before = self._state
        try:
            self._overrides = self._read(self._path)
        except SettingsError as error:
            self._identity = None  # retry, and warn again, until the file is readable
            self._counters.warn(
                "overrides/unread", "%s; the previous overrides stay in force", error
            )
            return
        for which, why in self._unread.items():
            fault = SettingsError(f"override {which!r}: {why}; its last content stays in force")
            self._counters.warn("overrides/unread", "%s", fault, about=which)
        if self._state != before or not self._unread:
            self._report(self._path)

    def _has_changed_pins(self) -> bool:
        return any(pinned.identity != identity_at(path) for path, pinned in self._pinned.items())

    @property
    def _state(self) -> tuple[object, ...]:
        """What a record of a reading says."""
        digests = tuple((path, each.document.sha256) for path, each in self._pinned.items())
        return self._overrides.sha256, digests, tuple(self._unread.items())

    def _read(self, path: Path) -> Overrides:
        """Read the overrides, and the pinned files that have changed. Raises SettingsError if a
        pinned file that was never read cannot be read."""
        found = read_without_pinned(path, self._base)
        pinned: dict[Path, PinnedFile] = {}
        unread: dict[str, str] = {}
        documents = {}
        for override in _pins_in_force(found, self._clocks.now()):
            place = pinned_path(override, path)
            known = self._pinned.get(place)
            try:
                current = self._read_pinned(place, override, known)
            except SettingsError as error:
                if known is None:
                    raise _fault_of(override, error) from None
                current = known._replace(identity=_NEVER)  # retry until it is readable
                unread[override.exemption.id] = str(error)
            pinned[place] = current
            documents[override.exemption.id] = current.document
        self._pinned, self._unread = pinned, unread
        return found.with_pinned(documents)

    def _read_pinned(self, place: Path, override: Override, known: PinnedFile | None) -> PinnedFile:
        """Read a pinned file. The document of one whose content is the same stays the same."""
        current = read_pinned(place, override.terms.dialect, self._clocks.now())
        if known is not None and known.document.sha256 == current.document.sha256:
            return current._replace(document=known.document)
        return current

    def _report(self, path: Path) -> None:
        """Warn of each override that has no effect, and record the reading."""
        now = self._clocks.now()
        expired = self._overrides.expired(now)
        ineffective = (*self._overrides.faults, *expired)
        for which, why in ineffective:
            fault = SettingsError(f"override {which!r} has no effect: {why}")
            self._counters.warn("overrides/invalid", "%s", fault, about=which)
        stale = (
            f"{which}: {why}; its last content stays in force"
            for which, why in self._unread.items()
        )
        loaded = OverridesLoaded(
            at=now,
            source=str(path),
            count=len(self._overrides.entries) - len(expired),
            sha256=self._overrides.sha256,
            text=self._overrides.text,
            problems=(*(f"{which}: {why}" for which, why in ineffective), *stale),
        )
        self._counters.note(loaded)
        self._record_pinned(now)

    def _record_pinned(self, now: float) -> None:
        """Record the content of each pinned file that was not recorded before."""
        for override in self._overrides.entries:
            document, which = override.terms.pinned, override.exemption.id
            if document is None or (which, document.sha256) in self._recorded:
                continue
            self._recorded.add((which, document.sha256))
            for event in records_of(which, document, now):
                self._counters.note(event)


def _pins_in_force(found: Overrides, now: float) -> list[Override]:
    """The overrides that pin a file and have not expired."""
    return [
        each
        for each in found.entries
        if each.robots_file is not None and each.state(now) is not State.EXPIRED
    ]


def _fault_of(override: Override, error: SettingsError) -> SettingsError:
    return SettingsError(f"overrides: override {override.exemption.id!r}: {error}")


def read(path: Path, base: Terms, now: float) -> Overrides:
    """Read the overrides in a file, and the robots.txt files that they pin. `now` is in seconds since
    1970. Raises SettingsError unless all are readable."""
    found = read_without_pinned(path, base)
    documents, faults = _pinned_documents(found, path, now)
    for override in found.entries:
        why = faults.get(override.exemption.id)
        if why is not None:
            raise _fault_of(override, SettingsError(why))
    return found.with_pinned(documents)


def look_at_overrides(path: Path, base: Terms, now: float) -> Overrides:
    """Read the overrides in a file as `read` does. One whose pinned file cannot be read is a fault.
    Raises SettingsError unless the file is readable TOML with `[[override]]` tables."""
    found = read_without_pinned(path, base)
    documents, faults = _pinned_documents(found, path, now)
    return found.with_pinned(documents).without(faults)


def _pinned_documents(
    found: Overrides, path: Path, now: float
) -> tuple[Mapping[str, Document], Mapping[str, str]]:
    """The pinned files of overrides, and why one cannot be read; both by the id of the override."""
    documents, faults = {}, {}
    for override in _pins_in_force(found, now):
        which = override.exemption.id
        try:
            place = pinned_path(override, path)
            documents[which] = read_pinned(place, override.terms.dialect, now).document
        except SettingsError as error:
            faults[which] = str(error)
    return documents, faults


def read_without_pinned(path: Path, base: Terms) -> Overrides:
    """Read the overrides in a file, without the files that they pin. Raises SettingsError unless it
    is readable TOML with `[[override]]` tables."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
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
