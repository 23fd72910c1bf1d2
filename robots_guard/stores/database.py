"""The SQLite file under a store: opened, given its layout, and replaced when it is damaged.

Many processes share the file, and any of them may fork, find the file damaged or find it gone. It is opened and set
aside under its lock, which also tells a damaged file of ours, which is set aside, from a stranger's, which is
refused. Invariant: a connection is used and closed by the process that opened it only, and only while the files
that it has open are still those at the path; this is looked at before each use.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from robots_guard.errors import SettingsError, StoreError
from robots_guard.stores.breaker import Breaker
from robots_guard.stores.database_files import DatabaseFiles, Found, Inode, Lock, marks_a_store
from robots_guard.stores.patience import SLICE, Connection, Left, is_busy
from robots_guard.stores.resets import Resets, reset
from robots_guard.stores.system import BUSY, System

CLOSING = 2.0  # seconds that closing waits for what is under way: a disk may hang
BETWEEN = 0.2  # seconds that may pass between the removal, or creation, of one journal and of the other
OPENINGS = 5  # times that a file is opened which is replaced meanwhile
LAYOUT = 3  # user_version
APPLICATION = 0x52475244  # application_id, "RGRD"

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

    def __init__(self, path: Path, system: System | None = None) -> None:
        self.path = path
        self._system = system or System()
        self._slow = Breaker(self._system.monotonic)
        self._resets = Resets()
        self._abandoned: list[_Opened] = []  # a parent's, or in use by a call that does not end: not to be closed
        self._opened: _Opened | None = None
        self._closed = self._forking = self._is_open_at_fork = False
        self._swapping = _ProcessLock()
        try:
            self._files = DatabaseFiles(path, self._system)
            with _registering.held:  # before it is opened: a fork must wait for that
                _ALL.add(self)
            self._open_at_first()
        except (sqlite3.Error, OSError, ValueError, Left) as error:
            raise SettingsError(
                f"store: {str(path)!r} cannot be used as a policy store ({_why(error)}{self._resets}):"
                " name a writable file of its own, or memory:"
            ) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The reader, for one thread at a time."""
        with self._held("read", _Opened.held_for_reading) as opened:
            yield opened.reader

    @contextlib.contextmanager
    def writing(self, *, tells: bool = True) -> Iterator[sqlite3.Connection]:
        """The writer, for one thread at a time, in a transaction.

        Without `tells`, a reset is left for a later call to raise: for a caller that does not pass on what fails.
        """
        self._slow.check()
        with self._held("written", self._begun, tells=tells) as opened:
            yield opened.writer

    def close(self) -> None:
        """Close the file when what is under way has ended, or leave it open after two seconds."""
        self._closed = True
        lock = self._swapping.held
        if not lock.acquire(timeout=CLOSING):
            return
        try:
            self._close_all()
        finally:
            lock.release()

    def before_fork(self) -> None:
        """Close the file, to be opened again when it is needed: SQLite's locks do not outlive a fork.

        A call that waits for another process's lock gives way. One that hangs keeps the file open.
        """
        self._files.patience.end()
        self._forking = self._swapping.held.acquire(timeout=CLOSING)
        if self._forking:
            self._files.patience.end()  # once more: another thread's fork, which has just ended, may have undone it
            self._close_all()
        self._is_open_at_fork = not self._forking or any(
            opened is not None and opened.is_open_here for opened in (self._opened, *self._abandoned)
        )

    def after_fork(self) -> None:
        """Let other threads of the parent open the file again."""
        self._files.patience.begin()
        if self._forking:
            self._forking = False
            self._swapping.held.release()

    def after_fork_in_child(self) -> None:
        """Let the child open the file, unless the parent still had it open."""
        if self._is_open_at_fork:
            _INHERITED.add(self._files.resolved)
        self._files.close_inherited_locks()
        self._files.patience.begin()
        self._forking = False

    @contextlib.contextmanager
    def _begun(self, opened: _Opened) -> Iterator[None]:
        """Hold the writer in a transaction."""
        # Asked once more when the writer is ours: the caller that had it before may have found that it is no use.
        with opened.held_for_writing(), self._slow.attempt(), _transaction(opened.writer):
            yield

    @contextlib.contextmanager
    def _held(
        self, what: str, hold: Callable[[_Opened], AbstractContextManager[None]], *, tells: bool = True
    ) -> Iterator[_Opened]:
        """The file as it is open here, while it is held. What fails is a StoreError; if the call `tells`, a StoreReset
        for each reset of which no call has been told."""
        opened: _Opened | None = None
        until = self._system.monotonic() + self._system.busy
        try:
            with ExitStack() as held:
                while True:
                    try:
                        opened = self._current()
                        if tells:
                            self._tell()
                        held.enter_context(hold(opened))
                        break
                    except Left:
                        if self._system.monotonic() > until:
                            raise
                        self._give_way(until)
                yield opened
        except (*_FAULTS, OSError, SettingsError) as error:
            if opened is not None and isinstance(error, _FAULTS) and _is_damage(error):
                raise self._replaced(opened, error, tells=tells) from error
            if is_busy(error) or isinstance(error, BlockingIOError):
                self._slow.trip(f"could not be {what}: {error}")
            raise StoreError(f"could not be {what}: {_why(error)}") from error

    def _open_at_first(self) -> None:
        """Open the file, when no thread forks."""
        until = self._system.monotonic() + self._system.busy
        while True:
            try:
                with self._swapping.held:
                    self._reopen(None)
                return
            except Left:
                if self._system.monotonic() > until:
                    raise
                self._give_way(until)

    def _give_way(self, until: float) -> None:
        """Let a thread that forks do so first."""
        while self._files.patience.is_over and self._system.monotonic() <= until:
            self._system.sleep(0.02)

    def _tell(self) -> None:
        """Raise what became of a damaged file, once."""
        told = self._resets.take()
        if told is not None:
            raise told

    def _current(self) -> _Opened:
        """The file as it is open here; opened anew after a fork, or when another file has taken its place."""
        opened = self._opened
        if self._closed:
            raise StoreError("is closed")
        if opened is not None and opened.is_current():
            return opened
        with self._swapping.held:
            opened = self._opened
            if opened is not None and opened.is_current():
                return opened
            self._slow.check()
            return self._reopen(None)

    def _replaced(self, damaged: _Opened, why: Exception, *, tells: bool) -> StoreError:
        """Begin a new file in place of a damaged one, unless another thread or process has; what is to be raised."""
        try:
            with self._swapping.held:
                if self._opened is damaged and not self._closed:
                    self._reopen(why)
        except (*_FAULTS, OSError, SettingsError) as error:
            return StoreError(f"is damaged ({why}) and could not be replaced: {_why(error)}")
        if not tells:
            return StoreError(f"was damaged ({why})")
        return self._resets.take() or reset(why, None)

    def _reopen(self, why: Exception | None) -> _Opened:
        """Leave the file that is open, if one is, for the one at the path; that is set aside first if it is the damaged
        one."""
        left = self._opened
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.resolve()
        _insist_on_its_being_closed(self._files.resolved)
        with self._files.locked() as lock:
            if left is not None:
                left.set_aside(why, self._resets)
                self._leave(left)
            self._opened = _open(self._files, lock, self._resets)
        return self._opened

    def _close_all(self) -> None:
        """Close what no call keeps open."""
        with contextlib.suppress(*_FAULTS, OSError):
            self._rest()
        self._abandoned = [opened for opened in self._abandoned if not opened.close(0.0)]

    def _rest(self) -> None:
        """Close the file. One whose journals are not its own any more is set aside first, as at the next use."""
        left = self._opened
        if left is None:
            return
        if left.has_lost_its_journals():
            with self._files.locked():
                left.set_aside(None, self._resets)
        self._leave(left)

    def _leave(self, opened: _Opened) -> None:
        if not opened.close() and opened not in self._abandoned:
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

    def writing(self, *, tells: bool = True) -> contextlib.AbstractContextManager[sqlite3.Connection]:  # noqa: ARG002  (a Database)
        """Nothing is written."""
        raise StoreError(f"{str(self.path)!r} is only looked at")

    def close(self) -> None:
        """Nothing is kept open."""

    def _is_ours(self) -> bool:
        return marks_a_store(os.path.realpath(self.path))

    def _fault(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return "is not there: a door creates it, or name the doors' own with --store"
        if isinstance(error, _NoIndex):
            return "has a -wal without its -shm: copy that, too, or let a door open the file once, which creates it"
        if not _is_damage(error):
            return f"cannot be read ({_why(error)}): name the doors' own with --store"
        if self._is_ours():
            return f"is damaged ({error}) and left as it is: the next door that uses it sets it aside and begins anew"
        return f"is no policy store ({error}): name the doors' own with --store"


def _reader(path: Path) -> sqlite3.Connection:
    """A connection that writes to no file and leaves none behind.

    Raises FileNotFoundError where there is none to be read, and _NoIndex where there is no index of its log.
    """
    there = Path(os.path.realpath(path))  # its journal lies beside the file itself, not beside a link to it
    there.stat()
    _insist_on_its_being_closed(str(there))
    # Where no writer is at it, SQLite would begin its journal and leave that lying; `immutable` keeps it from that,
    # and overlooks a writer that comes later, so that it does for one short question only.
    how = "readonly_shm=1" if _has_log(there) else "immutable=1"
    return sqlite3.connect(f"{there.as_uri()}?mode=ro&{how}", uri=True, timeout=BUSY, isolation_level=None)


class _NoIndex(OSError):
    """There is a log without the index that SQLite needs to read it, and would create."""


def _has_log(file: Path) -> bool:
    """Whether the file has a log, with its index. The last door to close the file removes the index first."""
    log, index = Path(f"{file}-wal"), Path(f"{file}-shm")
    deadline = time.monotonic() + BETWEEN
    while log.exists():
        if index.exists():
            return True
        if time.monotonic() > deadline:
            raise _NoIndex
        time.sleep(BETWEEN / 10)
    return False


class _ProcessLock:
    """A thread lock that a forked child does not find held by a thread that it does not have."""

    def __init__(self) -> None:
        self._pid, self._lock = os.getpid(), threading.RLock()

    @property
    def held(self) -> threading.RLock:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
        return self._lock


class _Opened:
    """The connections of one process to one file: one reads, another writes, each behind a lock of its own."""

    def __init__(
        self, files: DatabaseFiles, found: Found, reader: sqlite3.Connection, writer: sqlite3.Connection
    ) -> None:
        self.reader, self.writer = reader, writer
        self.reading, self.writing = threading.Lock(), threading.Lock()
        self._files, self._found = files, found
        self._pid = os.getpid()
        self._is_left = self._is_closed = False

    @property
    def file(self) -> Inode | None:
        return self._found.file

    @property
    def is_open_here(self) -> bool:
        """Whether this process opened the connections and has not closed them."""
        return self._pid == os.getpid() and not self._is_closed

    def is_current(self) -> bool:
        """Whether these are this process's connections to the files that now have the names."""
        if self._is_left or self._pid != os.getpid():
            return False
        found = self._files.found()
        if not found.continues(self._found):
            return False
        self._found = found  # the index may have grown
        return True

    @contextlib.contextmanager
    def held_for_reading(self) -> Iterator[None]:
        """Hold the reader. Raises Left if it is not to be used any more."""
        with self.reading:
            self._insist_on_not_being_left()
            yield

    @contextlib.contextmanager
    def held_for_writing(self) -> Iterator[None]:
        """Hold the writer. Raises Left if it is not to be used any more."""
        with self.writing:
            self._insist_on_not_being_left()
            yield

    def _insist_on_not_being_left(self) -> None:
        """Another thread may have left the connections after the caller looked, and before it held them."""
        if self._is_left:
            raise Left("was closed by another thread meanwhile")

    def has_lost_its_journals(self) -> bool:
        """Whether the file is still there, but a journal was removed, replaced or cut short under this process."""
        if self._is_left or self._pid != os.getpid():
            return False
        found = self._files.found()
        return found.file == self.file and not found.continues(self._found)

    def set_aside(self, why: Exception | None, resets: Resets) -> None:
        """Set the file aside if it is damaged and still there, which is to be told. The lock is held."""
        if self.has_lost_its_journals():
            why = why or OSError("its -wal or -shm was removed, replaced or cut short by another program")
        if why is None:
            return
        if self._files.found().file == self.file:
            self._files.set_aside(partial(resets.keep, why))
        else:
            resets.keep(why, None)  # another process has set it aside

    def close(self, patience: float = CLOSING / 2) -> bool:
        """Close both when what is under way has ended; whether that was soon enough, and they are ours to close."""
        self._is_left = True
        if self._pid != os.getpid() or not self.writing.acquire(timeout=patience):
            return False
        try:
            if not self.reading.acquire(timeout=patience):
                return False
            try:
                self.reader.close()
                self.writer.close()
                self._is_closed = True
            finally:
                self.reading.release()
        except sqlite3.Error:
            return False
        finally:
            self.writing.release()
        return True


# -- forks --------------------------------------------------------------------------------------------------

_ALL: weakref.WeakSet[Database] = weakref.WeakSet()
_registering = _ProcessLock()  # held while a process forks: none is registered then, and so none is opened
# Files that a parent of this process had open when it forked. SQLite knows a file by its inode, and in this process
# takes the parent's locks on such a file for its own, through any connection. So the file is not opened.
_INHERITED: set[str] = set()


def _before_fork() -> None:
    _registering.held.acquire()
    for database in list(_ALL):
        database.before_fork()


def _after_fork() -> None:
    for database in list(_ALL):
        database.after_fork()
    _registering.held.release()


def _after_fork_in_child() -> None:
    for database in list(_ALL):
        database.after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _insist_on_its_being_closed(file: str) -> None:
    """Raise OSError for a file that this process has open from its parent."""
    if file in _INHERITED:
        raise OSError("a call was using it when this process was forked: only a process started anew can open it")


# -- opening ------------------------------------------------------------------------------------------------


def _open(files: DatabaseFiles, lock: Lock, resets: Resets) -> _Opened:
    """Open the file under its lock. One of ours that is damaged is set aside first, which is to be told."""
    for _ in range(OPENINGS):
        files.insist_on_a_regular_file()
        files.part_from_strangers(lock)
        before = files.found().file
        try:
            opened = _connected(files, before, ours=lock.marks_a_store)
        except _FAULTS as error:
            if before != files.found().file:
                continue  # removed or replaced while it was opened
            if not (lock.marks_a_store and _is_damage(error)):
                raise
            files.set_aside(partial(resets.keep, error))
            continue
        if opened.file and opened.is_current():
            lock.name(opened.file)
            files.keep_the_number_of(opened.file)
            return opened
        opened.close()
    raise OSError("it is removed or replaced again and again")


def _connected(files: DatabaseFiles, before: Inode | None, *, ours: bool) -> _Opened:
    """Connections to the file that was there before, or that is created."""
    writer = _connect(files)
    try:
        _prepare(writer, files, ours=ours)
        reader = _connect(files)
        found = files.found()
        return _Opened(files, found._replace(file=before or found.file), reader, writer)
    except BaseException:
        writer.close()
        raise


def _connect(files: DatabaseFiles) -> Connection:
    system = files.system
    connection = system.connect(files.path)
    connection.patience, connection.slices = files.patience, max(round(system.busy / SLICE), 1)
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


def _prepare(connection: sqlite3.Connection, files: DatabaseFiles, *, ours: bool) -> None:
    """Give a new file our layout; one that is not new must have it already, and is else left unchanged."""
    _insist_on_ours(connection, files.path, ours=ours)
    _switch_to_wal(connection, files.system)
    with _transaction(connection):
        _insist_on_ours(connection, files.path, ours=ours)  # it may have been written to meanwhile
        if _layout(connection) == 0:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        _insist_on_columns(connection)


def _insist_on_ours(connection: sqlite3.Connection, path: Path, *, ours: bool) -> None:
    objection = _objection(connection, path, ours=ours)
    if objection:
        raise SettingsError(f"store: {objection}")


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


def _switch_to_wal(connection: sqlite3.Connection, system: System) -> None:
    """SQLite does not wait when two processes switch at once, so we do."""
    deadline = system.monotonic() + system.busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or system.monotonic() > deadline:
                raise
            system.sleep(0.02)


# -- damage -------------------------------------------------------------------------------------------------


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: Exception) -> bool:
    """Our statements are right by test: where one makes no sense to SQLite (SQLITE_ERROR), the tables are wrong.

    A short read means that the log has been cut.
    """
    was_cut = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
    return was_cut or isinstance(error, UnicodeDecodeError) or _code(error) in _DAMAGE


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
