"""Places for a Parquet export: a directory, or a URL such as s3://bucket/prefix.

Invariant: a file appears whole, under its name, or not at all. In a directory it is written under
another name, flushed and renamed; an object store shows an object when all of it has been sent.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from robots_guard.audit.files import lock, make_directory, remove
from robots_guard.audit.segments import PART, put_in_place
from robots_guard.errors import MissingExtra, SettingsError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_LOCK = ".lock"
_CHUNK = 4 * 1024 * 1024  # bytes


class LakePlace(Protocol):
    """Where an export is written. Names are relative and have slashes. All but `locked` raise
    OSError."""

    def locked(self, folder: str) -> AbstractContextManager[None]:
        """A context in which no other export writes here, as far as the place can tell. Raises
        SettingsError if one does."""

    def copy_of(self, name: str, scratch: Path) -> Path | None:
        """A local file with the content of a file here; None if there is none. `scratch` is a
        directory for it."""

    def put(self, part: Path, name: str) -> None:
        """Replace a file here by a local one, which is gone afterwards."""

    def scratch_for(self, name: str, scratch: Path) -> Path:
        """The name under which a file is to be written, until it is put here."""


def place_at(where: str) -> LakePlace:
    """The place that a path or a URL names. Raises SettingsError and MissingExtra."""
    if "://" in where:
        return ObjectStore(where)
    return Folder(Path(where).expanduser())


class Folder:
    """A directory, which is created with its first file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self, folder: str) -> Iterator[None]:
        """Hold a lock on a file in `folder`, and remove the unfinished files of a killed export."""
        path = self._directory / folder / _LOCK
        try:
            make_directory(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        except OSError as error:
            raise _unwritable(str(self._directory), error) from error
        try:
            if not lock(descriptor):
                raise SettingsError(
                    f"another export is writing to {str(self._directory)!r}: try again later"
                )
            for left in self._directory.glob(f"*/*/.*{PART}"):
                remove(left)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def copy_of(self, name: str, scratch: Path) -> Path | None:  # noqa: ARG002  of LakePlace
        """The file itself."""
        path = self._directory / name
        return path if path.exists() else None

    def scratch_for(self, name: str, scratch: Path) -> Path:  # noqa: ARG002  of LakePlace
        """A name beside the file's own, so that it can be renamed."""
        path = self._directory / name
        make_directory(path.parent)
        return path.with_name(f".{path.name}{PART}")

    def put(self, part: Path, name: str) -> None:
        """Flush the file, rename it, and flush the name."""
        part.chmod(0o640)
        put_in_place(part, self._directory / name)


class ObjectStore:
    """A URL that pyarrow knows: s3://, gs:// and others, with its options behind a question mark,
    such as `endpoint_override`. Credentials come from the environment.

    There are no locks: only one export of a source may write at a time.
    """

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0]
        self._files, self._root = _file_system(url)

    @contextmanager
    def locked(self, folder: str) -> Iterator[None]:  # noqa: ARG002  of LakePlace
        """No lock."""
        yield

    def copy_of(self, name: str, scratch: Path) -> Path | None:
        """A copy in `scratch`."""
        from pyarrow.fs import FileType

        path = self._path(name)
        if self._files.get_file_info(path).type == FileType.NotFound:
            return None
        copy = self.scratch_for(f"{name}.old", scratch)
        with self._files.open_input_stream(path) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
        return copy

    def scratch_for(self, name: str, scratch: Path) -> Path:
        """A name in `scratch`."""
        return scratch / name.replace("/", "-")

    def put(self, part: Path, name: str) -> None:
        """Send the file. The object appears, or is replaced, when all of it has been sent."""
        with part.open("rb") as source, self._files.open_output_stream(self._path(name)) as target:
            shutil.copyfileobj(source, target, _CHUNK)
        remove(part)

    def _path(self, name: str) -> str:
        return str(PurePosixPath(self._root, name))


def _file_system(url: str) -> tuple[FileSystem, str]:
    try:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise MissingExtra("lake", "exporting to a URL") from error
    try:
        found: tuple[FileSystem, str] = FileSystem.from_uri(url)
    except (ArrowException, OSError, ValueError) as error:
        raise SettingsError(
            f"--parquet {url.partition('?')[0]!r} cannot be used ({error})"
        ) from error
    return found


def _unwritable(where: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"{where!r} cannot be written ({error.strerror or error}): name another place with --parquet"
    )
