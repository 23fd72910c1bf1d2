"""The configuration files: where they are looked for, and which of them may be trusted.

Invariant: a file that the operator did not name is read only if no other user can have written it,
because it could open what a robots.txt closes.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs

from robots_guard.configuration.config_file import PYPROJECT, ConfigFile, parse_config
from robots_guard.configuration.regular_file import Content, named_path, read_regular
from robots_guard.errors import SettingsError

NAME = "robots_guard.toml"
VARIABLE = "ROBOTS_GUARD_CONFIG"
LARGEST = 1_048_576  # bytes of a configuration file
_MENTIONS = (b"robots_guard", b"robots-guard")
#: A table of this program, as it is usually written.
_HEADER = re.compile(
    rb"""^\s*(\[\s*tool\s*\.\s*)?["']?robots[_-]guard["']?\s*[].=]""", re.MULTILINE
)
_ACCESS_LIST = "system.posix_acl_access"
_REMEDY = f"name the file with --config or {VARIABLE} to use it anyway"


def read_files(
    config: str | None, environ: Mapping[str, str], directory: Path | None
) -> list[ConfigFile]:
    """Return the files that apply, from the least to the most specific.

    `config` names the only file; "" means none. Without it, the variable does; without both, they
    are searched for. Raises SettingsError for a file that cannot be used.
    """
    named = environ.get(VARIABLE) if config is None else config
    if named is None:
        return list(_search(directory))
    if not named:
        return []
    return [_named(named, directory, by_variable=config is None)]


def _named(name: str, directory: Path | None, *, by_variable: bool) -> ConfigFile:
    """Read the file that the operator has named. It may belong to any user."""
    path = named_path(name)
    if not path.is_absolute():
        path = _working_directory(directory) / path
    try:
        content = read_regular(path, LARGEST)
    except SettingsError as error:
        where = f"{VARIABLE}: " if by_variable else "--config: "
        raise SettingsError(f"{where}{error}") from None
    file = parse_config(path, content.text())
    if file is None:
        raise SettingsError(f"{path}: there is no [tool.robots_guard] in it: add that table")
    return file


def _working_directory(directory: Path | None) -> Path:
    try:
        return (directory or Path.cwd()).absolute()
    except FileNotFoundError:
        raise SettingsError(
            "the working directory has been removed: change to another, or name files by absolute"
            " paths"
        ) from None


def _search(directory: Path | None) -> Iterator[ConfigFile]:
    for folder in (_system_directory(), _user_directory()):
        if folder is not None and (found := _trusted(folder / NAME)):
            yield found
    if found := _project(directory):
        yield found


def _system_directory() -> Path:
    if sys.platform == "darwin":
        return platformdirs.site_config_path("robots_guard")
    return Path("/etc/robots_guard")


def _user_directory() -> Path | None:
    """The directory of the user's files; None without a home directory, as in some containers."""
    with contextlib.suppress(RuntimeError):  # of platformdirs since 4.3
        folder = platformdirs.user_config_path("robots_guard")
        if folder.is_absolute():
            return folder
    return None


def _project(directory: Path | None) -> ConfigFile | None:
    """The nearest file in the working directory or one above it."""
    try:
        start = (directory or Path.cwd()).absolute()
    except FileNotFoundError:  # it has been removed
        return None
    for folder in (start, *start.parents):
        found = _trusted(folder / NAME) or _trusted(folder / PYPROJECT)
        if found is not None:
            return found
    return None


def _trusted(path: Path) -> ConfigFile | None:
    """Read a file that was found by search; None if there is none, or if it does not configure
    this program.

    Raises SettingsError if another user can have written it. Then it is not parsed, either: that
    can take hours, as long as its author likes.
    """
    try:
        link = path.lstat()
    except OSError:
        return None
    if path.name == PYPROJECT:
        content = _mentioned(path)
        if content is None:
            return None
    else:
        content = read_regular(path, LARGEST)
    objection = _objection(path, link, content.state)
    if objection is None:
        return parse_config(path, content.text())
    if path.name == PYPROJECT and not _HEADER.search(content.data):
        return None
    raise SettingsError(objection)


def _mentioned(path: Path) -> Content | None:
    """Read a pyproject.toml; None if it does not mention this program, or cannot be read: such a
    file is the business of other programs."""
    try:
        content = read_regular(path, LARGEST)
    except SettingsError:
        return None
    if not any(mention in content.data for mention in _MENTIONS):
        return None
    return content


def _objection(path: Path, link: os.stat_result, state: os.stat_result) -> str | None:
    """Say who can have written a file, besides this user and root; None if no other user can."""
    for owner in (link.st_uid, state.st_uid):
        if owner not in (0, os.geteuid()):
            return f"{path} belongs to {_user(owner)}, so it is not trusted: {_REMEDY}"
    others = _other_writers(path, state)
    if others is None:
        return None
    return (
        f"{path} can be written to by {others}, so it is not trusted: run chmod go-w on it,"
        f" or {_REMEDY}"
    )


def _other_writers(path: Path, state: os.stat_result) -> str | None:
    if state.st_mode & stat.S_IWOTH:
        return "all users"
    if not state.st_mode & stat.S_IWGRP:
        return None
    if _has_access_list(path):
        return "those in its access control list"
    if not _is_private(state.st_gid):
        return f"the group {_group(state.st_gid)}"
    return None


def _has_access_list(path: Path) -> bool:
    """Whether a file has a POSIX access control list: the mode's group bits are then its mask."""
    if not hasattr(os, "listxattr"):  # only Linux has it
        return False
    try:
        return _ACCESS_LIST in os.listxattr(path)
    except OSError:  # the file system has none
        return False


def _is_private(group: int) -> bool:
    """Whether a group is that of this user or root alone, as many systems create one for each."""
    try:
        members, user = grp.getgrgid(group).gr_mem, pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group in (0, user.pw_uid) and not set(members) - {user.pw_name, "root"}


def _user(number: int) -> str:
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
