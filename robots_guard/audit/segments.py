"""Segments: the files a journal is made of, by their names.

    DAY-WRITER-NUMBER.jsonl        written by one writer, which holds a lock (flock) on it while it lives
    DAY-WRITER-NUMBER.jsonl.zst    the same, closed and compressed
    DAY-WRITER-NUMBER.warc.gz      evidence beside it
    DAY.NUMBER.parquet             many, compacted; DAY.NUMBER.sources names those, until they are gone
    .DAY-WRITER-NUMBER.new         a file that is being begun: not locked yet, without a record
    .key, .compacting              the key of hashed values; the lock of the process that compacts
    .retention                     how long each file has been there (retention.py)

The law of this file: a record is read once. What is put in another's place is whole on disk before it gets its
name, and its name hides what it replaces, so that being killed at any moment neither loses nor doubles a record.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from robots_guard.audit.files import FILES, NO_LINKS, Files, remove, sync_directory
from robots_guard.errors import SettingsError

JSONL = ".jsonl"
ZSTD = ".jsonl.zst"
PARQUET = ".parquet"
SOURCES = ".sources"
WARC = ".warc.gz"
PART = ".part"  # not whole yet
NEW = ".new"  # not locked yet
LISTINGS = 10  # of a directory, until nothing is missing that was there before

_OURS = re.compile(
    r"(\d{8})(-[A-Za-z0-9.-]+-\d{4,}(\.jsonl|\.jsonl\.zst|\.warc\.gz)|\.\d+\.(parquet|sources))(\.part)?"
)
_UNFINISHED = re.compile(r"\.\d{8}-[A-Za-z0-9.-]+-\d{4,}\.new")
_STEM = re.compile(r"\d{8}-(.+)-(\d{4,})")


class NoDirectory(SettingsError):
    """There is no such directory, as before the first record."""


class Segment(NamedTuple):
    """One file of records."""

    path: Path
    stem: str  # the name without its form
    form: str  # JSONL, ZSTD or PARQUET

    @property
    def day(self) -> str:
        """The day of its first record, as YYYYMMDD; empty for a file that somebody else named."""
        return day_of(self.path.name)


def stem_of(day: str, writer: str, number: int) -> str:
    """A segment's stem."""
    return f"{day}-{writer}-{number:04}"


def unfinished(path: Path) -> Path:
    """The name of a file before it is locked, which no reader lists."""
    return path.with_name(f".{path.name.removesuffix(JSONL)}{NEW}")


def is_unfinished(filename: str) -> bool:
    """Whether this is such a name."""
    return _UNFINISHED.fullmatch(filename) is not None


def parts_of(stem: str) -> tuple[str, int]:
    """The writer and the number of a segment; its name and 0 for one that somebody else named."""
    found = _STEM.fullmatch(stem)
    return (found[1], int(found[2])) if found else (stem, 0)


def day_of(filename: str) -> str:
    """The day in the name of a file of ours; empty for any other."""
    found = _OURS.fullmatch(filename)
    return found[1] if found else ""


def is_kept(filename: str) -> bool:
    """Whether this is a file of ours that holds records or evidence. What compression and compaction work with does
    not: it repeats what other files hold, until it takes their place."""
    return day_of(filename) != "" and not filename.endswith((PART, SOURCES))


def key_of(filename: str) -> str:
    """What a file of ours is called in all its forms: the stem of lines and evidence, the name of any other."""
    for form in (ZSTD, JSONL, WARC):
        if filename.endswith(form):
            return filename.removesuffix(form)
    return filename


def beside(evidence: str) -> list[str]:
    """The stems of which one is that of the writer's file beside which this evidence lies: a second file of evidence
    has a number behind it."""
    stem = key_of(evidence)
    shorter, _, number = stem.rpartition("-")
    return [stem, shorter] if _STEM.fullmatch(shorter) and number.isdecimal() else [stem]


def segments(directory: Path) -> list[Segment]:
    """What is to be read, in order of names. Raises NoDirectory, and SettingsError for what cannot be read."""
    names = set(names_in(directory))
    found = filter(None, (_segment(directory / name) for name in sorted(names)))
    hidden = {stem for _, stems in exchanges(directory, names) for stem in stems}
    return [
        segment
        for segment in found
        if (segment.form == PARQUET or segment.stem not in hidden)
        and not (segment.form == JSONL and segment.stem + ZSTD in names)
    ]


def is_gone(segment: Segment) -> bool:
    """Whether there is no file of that name any more: it was removed, or another has taken its place."""
    return not os.path.lexists(segment.path)


def names_in(directory: Path) -> list[str]:
    """The names in a directory. Raises NoDirectory, and SettingsError for what cannot be read.

    A file that is given another name while the directory is read may be missed under both. So it is read again, until
    nothing is missing that was there the time before: what was there in some form all the time has been seen.
    """
    before, names = None, _names(directory)
    for _ in range(LISTINGS):
        before, names = names, _names(directory)
        if set(before) <= set(names):
            break
    return names


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as found:
            return [entry.name for entry in found]
    except FileNotFoundError as error:
        raise NoDirectory(
            f"nothing has been recorded yet in {str(directory)!r}: name the directory that the doors write to"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"journal: {str(directory)!r} cannot be read ({why}): name the directory that the doors write to"
        ) from error


def _segment(path: Path) -> Segment | None:
    for form in (JSONL, ZSTD, PARQUET):
        if path.name.endswith(form):
            return Segment(path, path.name.removesuffix(form), form)
    return None


def exchanges(directory: Path, names: set[str]) -> Iterator[tuple[str, list[str]]]:
    """The compacted files beside which there may still be what they have taken in, each with the stems of that."""
    for filename in names:
        compacted = filename.removesuffix(SOURCES) + PARQUET
        if filename.endswith(SOURCES) and compacted in names and day_of(filename):
            yield compacted, taken_in(directory / filename)


def taken_in(sources: Path) -> list[str]:
    """The stems that a listing names; none for one that is not of ours."""
    try:
        return [] if why_not_plain(sources) else sources.read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def why_not_plain(path: Path) -> str | None:
    """Why a file is not to be read, or None: a journal has no symlinks and no pipes."""
    try:
        return None if stat.S_ISREG(path.lstat().st_mode) else "not a regular file"
    except OSError as error:
        return error.strerror or str(error)


def read_plain(path: Path) -> bytes:
    """What a regular file holds, never through a symlink, never waiting for a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read()


def put_in_place(part: Path, whole: Path, files: Files = FILES) -> None:
    """Give a file that has been written its name, for good. Raises OSError."""
    _sync(part, files)
    files.rename(part, whole)
    sync_directory(whole.parent, files)


def put_if_new(part: Path, whole: Path, files: Files = FILES) -> None:
    """The same, unless the name is taken: then only `part` is removed. Raises OSError.

    Where a file system has no hard links, two processes at the same moment can each put theirs: the last one stays.
    """
    try:
        _sync(part, files)
        try:
            files.link(part, whole)  # never in the place of another
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if not os.path.lexists(whole):
                files.rename(part, whole)
    except FileExistsError:
        pass
    finally:
        remove(part, files)
    sync_directory(whole.parent, files)


def _sync(path: Path, files: Files) -> None:
    descriptor = files.open(path, os.O_RDONLY)
    try:
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
