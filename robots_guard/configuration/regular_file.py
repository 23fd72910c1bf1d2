"""Reads a small text file that the operator, or a search, has named: never a pipe or a device,
which could keep the process waiting."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from robots_guard.errors import SettingsError
from robots_guard.text import counted

_BOM = b"\xef\xbb\xbf"


class Content(NamedTuple):
    """The bytes of a file, and its state when it was opened."""

    path: Path
    data: bytes
    state: os.stat_result

    def text(self) -> str:
        """The content as text, without a byte order mark. Raises SettingsError if it is not
        UTF-8."""
        try:
            return self.data.removeprefix(_BOM).decode()
        except UnicodeDecodeError as error:
            line = self.data[: error.start].count(b"\n") + 1
            raise SettingsError(
                f"{self.path}:{line}: not UTF-8: save the file in that encoding"
            ) from None


def named_path(name: str) -> Path:
    """Return the path that an operator has named, in which `~` is the home directory. Without one it
    stays as it is."""
    return Path(os.path.expanduser(name))  # noqa: PTH111  Path.expanduser fails without a home


def read_regular(path: Path, most: int) -> Content:
    """Return the content of a file of `most` bytes at most. Raises SettingsError for any other."""
    try:
        # O_NONBLOCK: a pipe without a writer must not block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise SettingsError(f"{path} cannot be read: {_why(error)}") from None
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise SettingsError(f"{path} is {_kind(state.st_mode)}: name a regular file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(most + 1)
        except OSError as error:
            raise SettingsError(f"{path} cannot be read: {_why(error)}") from None
    if len(data) > most:
        raise SettingsError(f"{path} is larger than {counted(most, 'byte')}")
    return Content(path, data, state)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "not a file but a pipe or device"
