"""The SQLite file under a store: opened, given its layout, and replaced when it is damaged.

The law of this file: one file, many processes, any of which may fork, find the file damaged or find it gone.
Beside the file lies its lock (``.lock``), held while it is opened or set aside, so that nobody opens a file
whose journal is just being moved away; it also tells a damaged file of ours, which is set aside, from a
stranger's, which is refused. A connection is never used, nor closed, by another process than its own; before
each use the file is looked at, and opened anew if it is another one by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from robots_guard.errors import SettingsError, StoreError, StoreReset
from robots_guard.stores.breaker import Breaker

BUSY = 5.0  # seconds to wait for another process's write
LAYOUT = 3  # user_version
APPLICATION = 0x52475244  # application_id, "RGRD"
KEPT_ASIDE = 3  # damaged files kept for somebody to look at

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_FAULTS = (sqlite3.Error, UnicodeDecodeError)  # a message that quotes a damaged name cannot be decoded

# Bodies are appended by rowid: in the order of their digests, which is random, pages would be a third empty.
_TABLES = (
    "CREATE TABLE policies (origin TEXT PRIMARY KEY, settled_at REAL NOT NULL, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (sha256 BLOB PRIMARY KEY, used_at REAL NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE leases (origin TEXT PRIMARY KEY, token TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE turns (origin TEXT PRIMARY KEY, last REAL NOT NULL, not_before REAL NOT NULL, line TEXT NOT NULL)"
    " WITHOUT ROWID",
)
_COLUMNS = (
    "SELECT origin, settled_at, value FROM policies LIMIT 0",
    "SELECT sha256, used_at, body FROM documents LIMIT 0",
    "SELECT origin, token, until FROM leases LIMIT 0",
    "SELECT origin, last, not_before, line FROM turns LIMIT 0",
)


class Database:
    """A file of ours, created if need be, with its directory.

    Raises SettingsError if it cannot be used; once open, what fails is a StoreError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._slow = Breaker()
        self._abandoned: list[_Opened] = []  # a parent's: not even to be closed here
        self._closed = False
        try:
            self._swapping = _ProcessLock()
            self._opened, self._begun_anew = _open(path)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise SettingsError(
                f"store: {str(path)!r} cannot be used as a policy store ({_why(error)}):"
                " name a writable file of its own, or memory:"
            ) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The reader, for one thread at a time."""
        with self._translated("read") as opened, opened.reading:
            yield opened.reader

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The writer, for one thread at a time, in a transaction."""
        self._slow.check()
        # Asked once more when the writer is ours: the thread that had it before may have found that it is no use.
        with self._translated("written") as opened, opened.writing, self._slow.attempt(), _transaction(opened.writer):
            yield opened.writer

    def close(self) -> None:
        """Close the file, when what is under way has ended."""
        with self._swapping.held:
            self._closed = True
            if self._opened.pid == os.getpid():
                self._opened.close()

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[_Opened]:
        opened: _Opened | None = None
        try:
            opened = self._current()
            if (told := self._begun_anew) is not None:
                self._begun_anew = None
                raise told
            yield opened
        except (*_FAULTS, OSError, SettingsError) as error:
            if opened is not None and isinstance(error, _FAULTS) and _is_damage(error):
                raise self._replaced(opened, error) from error
            if _code(error) == sqlite3.SQLITE_BUSY:
                self._slow.trip(f"could not be {what}: {error}")
            raise StoreError(f"could not be {what}: {_why(error)}") from error

    def _current(self) -> _Opened:
        """The file as it is open here; opened anew after a fork, or when another file has taken its place."""
        opened = self._opened
        if self._closed:
            raise StoreError("is closed")
        if opened.is_current(self.path):
            return opened
        with self._swapping.held:
            opened = self._opened
            if not opened.is_current(self.path):
                self._opened, told = _open(self.path)
                self._begun_anew = told or self._begun_anew
                self._leave(opened)
            return self._opened

    def _replaced(self, damaged: _Opened, why: Exception) -> StoreError:
        """Begin a new file in place of a damaged one, unless another thread or process has; what is to be told."""
        aside = None
        try:
            with self._swapping.held:
                if self._opened is damaged:
                    with _locked(self.path):
                        aside = _set_aside(self.path) if damaged.is_current(self.path) else None
                        self._opened = _connected(self.path, ours=True)
                    self._leave(damaged)
        except (*_FAULTS, OSError, SettingsError) as error:
            return StoreError(f"is damaged ({why}) and could not be replaced: {_why(error)}")
        return _told(why, aside)

    def _leave(self, opened: _Opened) -> None:
        if opened.pid == os.getpid():
            with contextlib.suppress(sqlite3.Error):
                opened.close()
        else:
            self._abandoned.append(opened)


class Look:
    """A file of ours that is only looked at: nothing is created, set aside or written, whatever it is like.

    It is opened for each question, so that there is nothing to be kept up when doors create, replace or remove it.
    With `insist`, raises SettingsError if it cannot be read now; else what fails is a StoreError.
    """

    def __init__(self, path: Path, *, insist: bool) -> None:
        self.path = path
        if insist:
            try:
                with self.reading():
                    pass
            except StoreError as error:
                raise SettingsError(f"store: {error}") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A reader. Raises StoreError with a sentence that names the file and the remedy."""
        try:
            with contextlib.closing(_reader(self.path)) as connection:
                objection = _objection(connection, self.path, ours=self._is_ours())
                if objection:
                    raise StoreError(objection)
                _insist_on_columns(connection)
                yield connection
        except (*_FAULTS, OSError) as error:
            raise StoreError(f"{str(self.path)!r} {self._fault(error)}") from error

    def writing(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Nothing is written."""
        raise StoreError(f"{str(self.path)!r} is only looked at")

    def close(self) -> None:
        """Nothing is kept open."""

    def _is_ours(self) -> bool:
        return Path(f"{self.path}.lock").exists()

    def _fault(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return "is not there: a door creates it, or name the doors' own with --store"
        if not _is_damage(error):
            return f"cannot be read ({_why(error)}): name the doors' own with --store"
        if self._is_ours():
            return f"is damaged ({error}) and left as it is: the next door that uses it sets it aside and begins anew"
        return f"is no policy store ({error}): name the doors' own with --store"


def _reader(path: Path) -> sqlite3.Connection:
    """A connection that leaves no file behind. Raises FileNotFoundError where there is none to be read."""
    there = Path(os.path.realpath(path))  # its journal lies beside the file itself, not beside a link to it
    there.stat()
    # Where no writer is at it, SQLite would begin its journal and leave that lying; `immutable` keeps it from that,
    # and overlooks a writer that comes later, so that it does for one short question only.
    alone = "" if Path(f"{there}-wal").exists() else "&immutable=1"
    return sqlite3.connect(f"{there.as_uri()}?mode=ro{alone}", uri=True, timeout=BUSY, isolation_level=None)


class _ProcessLock:
    """A thread lock that a forked child does not find held by a thread that it does not have."""

    def __init__(self) -> None:
        self._pid, self._lock = os.getpid(), threading.RLock()

    @property
    def held(self) -> contextlib.AbstractContextManager[bool]:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
        return self._lock


class _Opened:
    """The connections of one process to one file: one reads, another writes, each behind a lock of its own."""

    def __init__(self, path: Path, reader: sqlite3.Connection, writer: sqlite3.Connection) -> None:
        self.reader, self.writer = reader, writer
        self.reading, self.writing = threading.Lock(), threading.Lock()
        self.pid = os.getpid()
        self._file = _identity(path)

    def is_current(self, path: Path) -> bool:
        """Whether these are this process's connections to the file that now has the path."""
        return self.pid == os.getpid() and self._file == _identity(path)

    def close(self) -> None:
        """Close both, when what is under way has ended."""
        with self.writing, self.reading:
            self.reader.close()
            self.writer.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (on the way of every lookup; Path.stat takes twice as long)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


# -- opening ------------------------------------------------------------------------------------------------


def _open(path: Path) -> tuple[_Opened, StoreReset | None]:
    """Open the file. One of ours that is damaged is set aside first, which whoever uses it first is told."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path) as was_ours:
        try:
            return _connected(path, ours=was_ours), None
        except _FAULTS as error:
            if not (was_ours and _is_damage(error)):
                raise
            aside = _set_aside(path)
            return _connected(path, ours=True), _told(error, aside)


def _told(why: Exception, aside: Path | None) -> StoreReset:
    where = f"; the old file is {str(aside)!r}" if aside else ""
    return StoreReset(f"was damaged ({why}) and has been begun anew{where}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the file's lock; whether there was one. A new one stays only if all went well."""
    beside = Path(f"{path}.lock")
    was_ours = beside.exists()
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(descriptor)
        yield was_ours
    except BaseException:
        if not was_ours:
            beside.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + BUSY
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _connected(path: Path, *, ours: bool) -> _Opened:
    writer = _connect(path)
    try:
        _prepare(writer, path, ours=ours)
        return _Opened(path, _connect(path), writer)
    except BaseException:
        writer.close()
        raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, and the only writer: also shows at once whether the file can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back already
            connection.execute("ROLLBACK")
        raise


# -- the layout ---------------------------------------------------------------------------------------------


def _prepare(connection: sqlite3.Connection, path: Path, *, ours: bool) -> None:
    """Give a new file our layout; one that is not new must have it already."""
    _switch_to_wal(connection)
    with _transaction(connection):
        objection = _objection(connection, path, ours=ours)
        if objection:
            raise SettingsError(f"store: {objection}")
        if _layout(connection) == 0:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        _insist_on_columns(connection)


def _insist_on_columns(connection: sqlite3.Connection) -> None:
    for statement in _COLUMNS:
        connection.execute(statement)


def _layout(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def _objection(connection: sqlite3.Connection, path: Path, *, ours: bool) -> str | None:
    """Why this is no file of ours, or not one of this version's; else None."""
    if not ours and _is_anothers(connection):
        return f"{str(path)!r} is a database of another program: name a file of its own"
    version = _layout(connection)
    if version in (0, LAYOUT):
        return None
    return (
        f"{str(path)!r} was made by another version of robots_guard (layout {version}, ours is {LAYOUT}):"
        " use that one, or name another file"
    )


def _is_anothers(connection: sqlite3.Connection) -> bool:
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION:
        return False
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait when two processes switch at once, so we do."""
    deadline = time.monotonic() + BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


# -- damage -------------------------------------------------------------------------------------------------


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: Exception) -> bool:
    """Our statements are right by test: where one makes no sense to SQLite (SQLITE_ERROR), the tables are wrong."""
    return isinstance(error, UnicodeDecodeError) or _code(error) in _DAMAGE


def _set_aside(path: Path) -> Path | None:
    """Rename a damaged file, and with it its journal, which must not be replayed into the new one."""
    label = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())  # for people; nothing depends on it
    aside = Path(f"{path}.corrupt-{label}")
    serial = 1
    while aside.exists():
        serial += 1
        aside = Path(f"{path}.corrupt-{label}-{serial}")
    with contextlib.suppress(FileNotFoundError):
        Path(f"{path}-wal").rename(f"{aside}-wal")
    Path(f"{path}-shm").unlink(missing_ok=True)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    _tidy(path)
    return aside


def _tidy(path: Path) -> None:
    """Keep the latest few damaged files: a failing disk must not be filled with them."""
    aside = [name for name in path.parent.glob(f"{_glob(path.name)}.corrupt-*") if not name.name.endswith("-wal")]
    for old in sorted(aside, key=lambda name: name.stat().st_mtime)[:-KEPT_ASIDE]:
        old.unlink(missing_ok=True)
        Path(f"{old}-wal").unlink(missing_ok=True)


def _glob(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
