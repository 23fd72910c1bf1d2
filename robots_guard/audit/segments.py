"""Segments: the files an audit log is made of, by their names.

    DAY-WRITER-NUMBER.jsonl        written by one writer, which keeps it locked (flock) while it is open
    DAY-WRITER-NUMBER.jsonl.zst    the same, closed and compressed
    DAY-WRITER-NUMBER.warc.gz      its evidence
    .DAY-WRITER-NUMBER.new         a file being created: not locked yet, without a record
    .key                           the key for hashing values
    .retention                     the age of each file (retention.py)
    .index/DAY.DIGEST.parquet      copies of the records of a day's files (read/index.py)

Invariant: each record is read exactly once. A replacement is fully written and flushed before it
gets its name; from then on, readers ignore the files it replaces. A crash at any point neither
loses nor duplicates a record.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from robots_guard.audit.files import FILES, NO_LINKS, Files, remove, sync_directory
from robots_guard.errors import SettingsError

JSONL = ".jsonl"
ZSTD = ".jsonl.zst"
WARC = ".warc.gz"
PART = ".part"  # being written
NEW = ".new"  # not locked yet
INDEX = ".index"
MAX_PLAIN = 64 * 1024 * 1024  # bytes of a file that is not of records, such as an anchor
MAX_LISTINGS = 10  # of a directory, until a listing contains all names of the one before

_KNOWN_NAME = re.compile(r"(\d{8})-[A-Za-z0-9.-]+-\d{4,}(\.jsonl|\.jsonl\.zst|\.warc\.gz)(\.part)?")
_COMPACTED = re.compile(r"\d{8}\.\d+\.parquet")  # written by earlier versions
_UNFINISHED = re.compile(r"\.\d{8}-[A-Za-z0-9.-]+-\d{4,}\.new")
_STEM = re.compile(r"\d{8}-(.+)-(\d{4,})")


class NoDirectory(SettingsError):
    """Raised when the directory does not exist, as before the first record."""


class Segment(NamedTuple):
    """One file of records."""

    path: Path
    stem: str  # the name without the suffix
    form: str  # JSONL or ZSTD

    @property
    def day(self) -> str:
        """The day of its first record, as YYYYMMDD; empty if the name is not of the form above."""
        return day_of(self.path.name)


def stem_of(day: str, writer: str, number: int) -> str:
    """The stem of a segment."""
    return f"{day}-{writer}-{number:04}"


def unfinished(path: Path) -> Path:
    """The name of a file until it is locked; readers do not list it."""
    return path.with_name(f".{path.name.removesuffix(JSONL)}{NEW}")


def is_unfinished(filename: str) -> bool:
    """Whether this is the name of a file that is not locked yet."""
    return _UNFINISHED.fullmatch(filename) is not None


def parts_of(stem: str) -> tuple[str, int]:
    """The writer and the number of a segment; the stem itself and 0 if it is not of the form above."""
    found = _STEM.fullmatch(stem)
    if found is None:
        return stem, 0
    return found[1], int(found[2])


def day_of(filename: str) -> str:
    """The day in the name of a file of the audit log; empty for any other file."""
    found = _KNOWN_NAME.fullmatch(filename)
    if found:
        return found[1]
    return ""


def is_kept(filename: str) -> bool:
    """Whether this is a file of the audit log with records or evidence. The temporary files of
    compression are not: they only repeat the contents of other files."""
    return day_of(filename) != "" and not filename.endswith(PART)


def key_of(filename: str) -> str:
    """A key that does not change when a file is compressed: the name without the suffix for lines
    and evidence, the whole name for any other file."""
    for form in (ZSTD, JSONL, WARC):
        if filename.endswith(form):
            return filename.removesuffix(form)
    return filename


def log_stems_of(evidence: str) -> list[str]:
    """The stems, one or two, that the log file of this evidence may have: a further file of
    evidence for the same log file has a number at its end."""
    stem = key_of(evidence)
    shorter, _, number = stem.rpartition("-")
    if _STEM.fullmatch(shorter) and number.isdecimal():
        return [stem, shorter]
    return [stem]


def segments(directory: Path) -> list[Segment]:
    """The files to read, in order of names. Raises NoDirectory, and SettingsError if the directory
    cannot be read, or has a file that must not be left out silently."""
    names = set(names_in(directory))
    compacted = min(filter(_COMPACTED.fullmatch, names), default=None)
    if compacted is not None:
        raise SettingsError(
            f"{str(directory / compacted)!r} was compacted by an earlier version, and its records"
            " are no longer read: move it to another directory, where its column `raw` has the lines"
        )
    return _segments(directory, names)


def all_segments(directory: Path) -> list[Segment]:
    """The segments for a writer, which must not be stopped by a file that cannot be read."""
    return _segments(directory, set(names_in(directory)))


def _segments(directory: Path, names: set[str]) -> list[Segment]:
    found = filter(None, (_segment(directory / name) for name in sorted(names)))
    return [
        segment for segment in found if not (segment.form == JSONL and segment.stem + ZSTD in names)
    ]


def index_of_day(folder: Path, day: str) -> list[Path]:
    """The copies of a day's records in the folder INDEX, including unfinished ones. Raises OSError."""
    return [path for path in folder.iterdir() if path.name.startswith(f"{day}.")]


def is_gone(segment: Segment) -> bool:
    """Whether the file no longer exists: it was removed, or replaced by a compressed one."""
    return not os.path.lexists(segment.path)


def names_in(directory: Path) -> list[str]:
    """The names in a directory. Raises NoDirectory, and SettingsError if it cannot be read.

    A file that is renamed while the directory is listed may be missing under both names. The
    directory is therefore listed until no name of the previous listing is missing: files that
    existed all the time are then included.
    """
    previous, names = None, _list(directory)
    for _ in range(MAX_LISTINGS):
        previous, names = names, _list(directory)
        if set(previous) <= set(names):
            break
    return names


def _list(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as found:
            return [entry.name for entry in found]
    except FileNotFoundError as error:
        raise NoDirectory(
            f"nothing has been recorded yet in {str(directory)!r}: name the directory that the integrations write to"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"audit log: {str(directory)!r} cannot be read ({why}): name the directory that the integrations write to"
        ) from error


def _segment(path: Path) -> Segment | None:
    for form in (JSONL, ZSTD):
        if path.name.endswith(form):
            return Segment(path, path.name.removesuffix(form), form)
    return None


def why_not_plain(path: Path) -> str | None:
    """Why a file must not be read, or None. An audit log has no symlinks and no pipes."""
    try:
        is_regular = stat.S_ISREG(path.lstat().st_mode)
    except OSError as error:
        return error.strerror or str(error)
    if is_regular:
        return None
    return "not a regular file"


def read_plain(path: Path) -> bytes:
    """The content of a regular file. Symlinks are not followed, and pipes not waited for. Raises
    OSError, also for a file of more than MAX_PLAIN bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = file.read(MAX_PLAIN + 1)
    if len(content) > MAX_PLAIN:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


def put_in_place(part: Path, whole: Path, files: Files = FILES) -> None:
    """Flush a file that has been written, rename it to `whole`, and flush the name. Raises OSError."""
    _sync(part, files)
    files.rename(part, whole)
    sync_directory(whole.parent, files)


def put_if_new(part: Path, whole: Path, files: Files = FILES) -> None:
    """Do the same unless the name is taken; in that case only remove `part`. Raises OSError.

    On a file system without hard links, two processes may both rename theirs at the same moment;
    the last one wins.
    """
    try:
        _sync(part, files)
        try:
            files.link(part, whole)  # unlike a rename, this never replaces an existing file
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
