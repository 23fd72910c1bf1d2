"""Pinned files: robots.txt files of the operator, which replace those of single sites.

Invariant: a file that cannot be read, or permits everything because it is empty or no robots.txt,
is never used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from robots_guard.decisions.access import MAX_BODY
from robots_guard.decisions.events import PinnedFileRead
from robots_guard.decisions.overrides import Override
from robots_guard.decisions.policy import PINNED, Document
from robots_guard.errors import SettingsError
from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.robots import parse

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
    if not any(parse(body, part).groups for part in dialect.parts or (dialect,)):
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
