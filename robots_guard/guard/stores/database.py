"""The SQLite file of a store: opening it, creating its tables, and replacing it when it is damaged.

Many processes share the file, and any of them may fork, or find the file damaged or missing.
Opening and quarantining happen under the file's lock. The lock file also distinguishes a damaged
policy store, which is quarantined, from a foreign file, which is refused.

Invariant: a connection is used and closed only by the process that opened it, and only while its
files are still the ones at the path. This is checked before each use.
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
from robots_guard.guard.stores.breaker import Breaker
from robots_guard.guard.stores.database_files import (
    BUSY,
    SLICE,
    Connection,
    DatabaseFiles,
    FoundFiles,
    Inode,
    Interrupted,
    Lock,
    Resets,
    System,
    is_busy,
    marks_a_store,
    store_reset,
)

CLOSING = 2.0  # seconds that closing waits for running calls: a disk may hang
BETWEEN = 0.2  # seconds allowed between the removal, or creation, of one journal and of the other
OPENINGS = 5  # attempts to open a file that keeps being replaced meanwhile
LAYOUT = 3  # user_version
APPLICATION = 0x52475244  # application_id, "RGRD"

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
# UnicodeDecodeError: SQLite's message may quote a damaged name.
_FAULTS = (sqlite3.Error, UnicodeDecodeError)

# Documents have a rowid, so bodies are appended. Stored in the random order of their digests, pages
# would be a third empty.
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
    """The read-write database file of a store. The file and its directory are created if missing.

    Raises SettingsError if the file cannot be used at first; later failures are StoreErrors.
    """

    def __init__(self, path: Path, system: System | None = None) -> None:
        self.path = path
        self._system = system or System()
        self._breaker = Breaker(self._system.monotonic)
        self._resets = Resets()
        # opened by a parent process, or used by a hanging call: not closed
        self._abandoned: list[_Opened] = []
        self._opened: _Opened | None = None
        self._closed = self._forking = self._is_open_at_fork = False
        self._reopening = _ProcessLock()
        try:
            self._files = DatabaseFiles(path, self._system)
            with _registering.lock:  # register before opening: a fork must wait for that
                _ALL.add(self)
            self._open_at_first()
        except (sqlite3.Error, OSError, ValueError, Interrupted) as error:
            raise SettingsError(
                f"store: {str(path)!r} cannot be used as a policy store ({_why(error)}{self._resets}):"
                " name a writable file that no other program uses, or memory:"
            ) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lock and return the reading connection."""
        with self._using("read", _Opened.lock_reader) as opened:
            yield opened.reader

    @contextlib.contextmanager
    def writing(self, *, reports_reset: bool = True) -> Iterator[sqlite3.Connection]:
        """Lock and return the writing connection, in a transaction.

        Without `reports_reset`, a StoreReset is left for a later call to raise. Use this in a
        caller that suppresses errors.
        """
        self._breaker.check()
        with self._using("written", self._begin_write, reports_reset=reports_reset) as opened:
            yield opened.writer

    def close(self) -> None:
        """Close the file once running calls have ended; after two seconds, leave it open."""
        self._closed = True
        lock = self._reopening.lock
        if not lock.acquire(timeout=CLOSING):
            return
        try:
            self._close_all()
        finally:
            lock.release()

    def before_fork(self) -> None:
        """Close the file until the next use, since SQLite's locks do not survive a fork.

        A call waiting for another process's lock is interrupted; a hanging call keeps the file
        open.
        """
        self._files.patience.end()
        self._forking = self._reopening.lock.acquire(timeout=CLOSING)
        if self._forking:
            # again: another thread's fork that just ended may have undone it
            self._files.patience.end()
            self._close_all()
        self._is_open_at_fork = not self._forking or any(
            opened is not None and opened.is_open_here
            for opened in (self._opened, *self._abandoned)
        )

    def after_fork(self) -> None:
        """Allow the parent's threads to open the file again."""
        self._files.patience.begin()
        if self._forking:
            self._forking = False
            self._reopening.lock.release()

    def after_fork_in_child(self) -> None:
        """Allow the child to open the file, unless the parent still had it open when it forked."""
        if self._is_open_at_fork:
            _INHERITED.add(self._files.resolved)
        self._files.close_inherited_locks()
        self._files.patience.begin()
        self._forking = False

    @contextlib.contextmanager
    def _begin_write(self, opened: _Opened) -> Iterator[None]:
        """Lock the writer and begin a transaction."""
        # The breaker is checked again under the lock: the previous holder may have just tripped it.
        with opened.lock_writer(), self._breaker.attempt(), _transaction(opened.writer):
            yield

    @contextlib.contextmanager
    def _using(
        self,
        what: str,
        lock: Callable[[_Opened], AbstractContextManager[None]],
        *,
        reports_reset: bool = True,
    ) -> Iterator[_Opened]:
        """Lock the current connections for a block. Every failure becomes a StoreError.

        With `reports_reset`, raises StoreReset once for each reset that no call has reported yet.
        """
        opened: _Opened | None = None
        until = self._system.monotonic() + self._system.busy
        try:
            with ExitStack() as locks:
                while True:
                    try:
                        opened = self._current()
                        if reports_reset:
                            self._raise_reset()
                        locks.enter_context(lock(opened))
                        break
                    except Interrupted:
                        if self._system.monotonic() > until:
                            raise
                        self._give_way(until)
                yield opened
        except (*_FAULTS, OSError, SettingsError) as error:
            if opened is not None and isinstance(error, _FAULTS) and _is_damage(error):
                raise self._replace_damaged(opened, error, reports_reset=reports_reset) from error
            if is_busy(error) or isinstance(error, BlockingIOError):
                self._breaker.trip(f"could not be {what}: {error}")
            raise StoreError(f"could not be {what}: {_why(error)}") from error

    def _open_at_first(self) -> None:
        """Open the file for the first time, waiting while another thread forks."""
        until = self._system.monotonic() + self._system.busy
        while True:
            try:
                with self._reopening.lock:
                    self._reopen(None)
                return
            except Interrupted:
                if self._system.monotonic() > until:
                    raise
                self._give_way(until)

    def _give_way(self, until: float) -> None:
        """Wait while another thread forks."""
        while self._files.patience.is_over and self._system.monotonic() <= until:
            self._system.sleep(0.02)

    def _raise_reset(self) -> None:
        """Raise the earliest StoreReset that was not reported yet, if any."""
        reset = self._resets.pop()
        if reset is not None:
            raise reset

    def _current(self) -> _Opened:
        """Return the open connections, reopening after a fork or when the file was replaced."""
        opened = self._opened
        if self._closed:
            raise StoreError("is closed")
        if opened is not None and opened.is_current():
            return opened
        with self._reopening.lock:
            opened = self._opened
            if opened is not None and opened.is_current():
                return opened
            self._breaker.check()
            return self._reopen(None)

    def _replace_damaged(
        self, damaged: _Opened, why: Exception, *, reports_reset: bool
    ) -> StoreError:
        """Replace a damaged file, unless another thread or process has.

        Returns the error to raise.
        """
        try:
            with self._reopening.lock:
                if self._opened is damaged and not self._closed:
                    self._reopen(why)
        except (*_FAULTS, OSError, SettingsError) as error:
            return StoreError(f"is damaged ({why}) and could not be replaced: {_why(error)}")
        if not reports_reset:
            return StoreError(f"was damaged ({why})")
        return self._resets.pop() or store_reset(why, None)

    def _reopen(self, why: Exception | None) -> _Opened:
        """Open the file at the path and discard the previous connections, if any.

        The file at the path is quarantined first if it is the damaged one.
        """
        previous = self._opened
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.resolve()
        _refuse_inherited(self._files.resolved)
        with self._files.locked() as lock:
            if previous is not None:
                previous.quarantine(why, self._resets)
                self._discard(previous)
            self._opened = _open(self._files, lock, self._resets)
        return self._opened

    def _close_all(self) -> None:
        """Close all connections that no call is using."""
        with contextlib.suppress(*_FAULTS, OSError):
            self._close_current()
        self._abandoned = [opened for opened in self._abandoned if not opened.close(0.0)]

    def _close_current(self) -> None:
        """Close the file, after quarantining it if its journals were replaced."""
        opened = self._opened
        if opened is None:
            return
        if opened.has_lost_its_journals():
            with self._files.locked():
                opened.quarantine(None, self._resets)
        self._discard(opened)

    def _discard(self, opened: _Opened) -> None:
        if not opened.close() and opened not in self._abandoned:
            self._abandoned.append(opened)


class ReadOnlyDatabase:
    """The database file of a store, opened for reading only.

    Nothing is created, quarantined or written.

    The file is opened for each query, so integrations may create, replace or remove it at any time.
    With `must_exist`, raises SettingsError if it cannot be read now; all other failures are
    StoreErrors.
    """

    def __init__(self, path: Path, *, must_exist: bool) -> None:
        self.path = path
        if must_exist:
            try:
                with self.reading():
                    pass
            except StoreError as error:
                raise SettingsError(f"store: {error}") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a reading connection. Raises StoreError, naming the file and the remedy."""
        try:
            with contextlib.closing(_reader(self.path)) as connection:
                refusal = _refusal(connection, self.path, is_store=self._is_store())
                if refusal:
                    raise StoreError(refusal)
                _check_columns(connection)
                yield connection
        except (*_FAULTS, OSError) as error:
            raise StoreError(f"{str(self.path)!r} {self._fault(error)}") from error

    def writing(self, *, reports_reset: bool = True) -> AbstractContextManager[sqlite3.Connection]:  # noqa: ARG002  (as in Database)
        """Raise StoreError: the file is read-only."""
        raise StoreError(f"{str(self.path)!r} is opened for reading only")

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _is_store(self) -> bool:
        return marks_a_store(os.path.realpath(self.path))

    def _fault(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return "does not exist: an integration creates it; or name the integrations' store with --store"
        if isinstance(error, _NoIndex):
            return "has a -wal without its -shm: copy that too, or let an integration open the file once to create it"
        if not _is_damage(error):
            return f"cannot be read ({_why(error)}): name the integrations' store with --store"
        if self._is_store():
            return f"is damaged ({error}) and was not changed: the next integration to use it recreates it"
        return f"is not a policy store ({error}): name the integrations' store with --store"


def _reader(path: Path) -> sqlite3.Connection:
    """Return a connection that writes to no file and creates none.

    Raises FileNotFoundError if the file is missing, and _NoIndex if its log has no index.
    """
    # the journals are beside the file itself, not beside a link to it
    file = Path(os.path.realpath(path))
    file.stat()
    _refuse_inherited(str(file))
    # If no writer has the file open, SQLite would create a journal and leave it behind. `immutable`
    # prevents that, but ignores writers that open the file later, so it is only good for one short
    # query.
    mode = "readonly_shm=1" if _has_log(file) else "immutable=1"
    return sqlite3.connect(
        f"{file.as_uri()}?mode=ro&{mode}", uri=True, timeout=BUSY, isolation_level=None
    )


class _NoIndex(OSError):
    """The file has a log without its index, which SQLite needs for reading and would create."""


def _has_log(file: Path) -> bool:
    """Whether the file has a log with its index. Raises _NoIndex for a log that stays without one.

    The last integration to close the file removes the index before the log.
    """
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
    """A thread lock that is unlocked in a forked child.

    The child lacks the thread that may have locked it in the parent.
    """

    def __init__(self) -> None:
        self._pid, self._lock = os.getpid(), threading.RLock()

    @property
    def lock(self) -> threading.RLock:
        """The lock of this process."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
        return self._lock


class _Opened:
    """A process's reading and writing connections to a file, each with its own lock."""

    def __init__(
        self,
        files: DatabaseFiles,
        found: FoundFiles,
        reader: sqlite3.Connection,
        writer: sqlite3.Connection,
    ) -> None:
        self.reader, self.writer = reader, writer
        self.reading, self.writing = threading.Lock(), threading.Lock()
        self._files, self._found = files, found
        self._pid = os.getpid()
        self._is_discarded = self._is_closed = False

    @property
    def file(self) -> Inode | None:
        return self._found.file

    @property
    def is_open_here(self) -> bool:
        """Whether this process opened the connections and has not closed them."""
        return self._pid == os.getpid() and not self._is_closed

    def is_current(self) -> bool:
        """Whether this process opened these connections, and to the files that are now at the path."""
        if self._is_discarded or self._pid != os.getpid():
            return False
        found = self._files.inodes_now()
        if not found.continues(self._found):
            return False
        self._found = found  # the index may have grown
        return True

    @contextlib.contextmanager
    def lock_reader(self) -> Iterator[None]:
        """Lock the reader for a block. Raises Interrupted if it was discarded."""
        with self.reading:
            self._check_not_discarded()
            yield

    @contextlib.contextmanager
    def lock_writer(self) -> Iterator[None]:
        """Lock the writer for a block. Raises Interrupted if it was discarded."""
        with self.writing:
            self._check_not_discarded()
            yield

    def _check_not_discarded(self) -> None:
        """Raise Interrupted if another thread discarded the connections before they were locked."""
        if self._is_discarded:
            raise Interrupted("was closed by another thread meanwhile")

    def has_lost_its_journals(self) -> bool:
        """Whether the file is in place, but a journal of it was removed, replaced or truncated."""
        if self._is_discarded or self._pid != os.getpid():
            return False
        found = self._files.inodes_now()
        return found.file == self.file and not found.continues(self._found)

    def quarantine(self, why: Exception | None, resets: Resets) -> None:
        """Record a reset if the file is damaged, and quarantine it if it is still in place.

        Requires the lock. Without `why`, the file counts as damaged only if it has lost its
        journals.
        """
        if self.has_lost_its_journals():
            why = why or OSError(
                "its -wal or -shm was removed, replaced or truncated by another program"
            )
        if why is None:
            return
        if self._files.inodes_now().file == self.file:
            self._files.quarantine(partial(resets.record, why))
        else:
            resets.record(why, None)  # another process has quarantined it

    def close(self, patience: float = CLOSING / 2) -> bool:
        """Close both connections once running calls have ended. Returns whether they are closed.

        Returns False if a call takes longer than `patience` seconds, or another process opened
        them.
        """
        self._is_discarded = True
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


# -- forks -----------------------------------------------------------------------------------------

_ALL: weakref.WeakSet[Database] = weakref.WeakSet()
# locked while a process forks, so that no database is registered or opened then
_registering = _ProcessLock()
# Files that a parent of this process had open when it forked. SQLite identifies a file by its
# inode, and in this process would mistake the parent's locks on it for its own, through any
# connection. So this process never opens such a file.
_INHERITED: set[str] = set()


def _before_fork() -> None:
    _registering.lock.acquire()
    for database in list(_ALL):
        database.before_fork()


def _after_fork() -> None:
    for database in list(_ALL):
        database.after_fork()
    _registering.lock.release()


def _after_fork_in_child() -> None:
    for database in list(_ALL):
        database.after_fork_in_child()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)


def _refuse_inherited(file: str) -> None:
    """Raise OSError for a file that this process inherited open from its parent."""
    if file in _INHERITED:
        raise OSError(
            "a call was using it when this process was forked: only a newly started process can open it"
        )


# -- opening ---------------------------------------------------------------------------------------


def _open(files: DatabaseFiles, lock: Lock, resets: Resets) -> _Opened:
    """Open the file.

    A damaged store is quarantined first, and the reset recorded. Requires the lock.
    """
    failure: Exception = OSError("it keeps being removed or replaced")
    for _ in range(OPENINGS):
        files.require_regular_file()
        files.remove_foreign_journals(lock)
        before = files.inode_now()
        try:
            opened = _connect_both(files, before, is_store=lock.marks_a_store)
        except _FAULTS as error:
            if before != files.inode_now() or (before is None and _was_created(error)):
                failure = error  # perhaps because the file was removed or replaced meanwhile
                continue
            if not (lock.marks_a_store and _is_damage(error)):
                raise
            files.quarantine(partial(resets.record, error))
            continue
        if opened.file and opened.is_current():
            lock.name(opened.file)
            files.pin_inode(opened.file)
            return opened
        opened.close()
    raise failure


def _connect_both(files: DatabaseFiles, before: Inode | None, *, is_store: bool) -> _Opened:
    """Return connections to the existing file `before`, or to a newly created one."""
    writer = _connect(files)
    try:
        _prepare(writer, files, is_store=is_store)
        reader = _connect(files)
        found = files.inodes_now()
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
    """Run a block in a write transaction. Raises at once if the file cannot be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back already
            connection.execute("ROLLBACK")
        raise


# -- the layout ------------------------------------------------------------------------------------


def _prepare(connection: sqlite3.Connection, files: DatabaseFiles, *, is_store: bool) -> None:
    """Create the tables of a new file.

    Raises for an existing file without them, and leaves it unchanged.
    """
    _require_store(connection, files.path, is_store=is_store)
    _switch_to_wal(connection, files.system)
    with _transaction(connection):
        # another process may have written meanwhile
        _require_store(connection, files.path, is_store=is_store)
        if _layout(connection) == 0:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        _check_columns(connection)


def _require_store(connection: sqlite3.Connection, path: Path, *, is_store: bool) -> None:
    refusal = _refusal(connection, path, is_store=is_store)
    if refusal:
        raise SettingsError(f"store: {refusal}")


def _check_columns(connection: sqlite3.Connection) -> None:
    for statement in _COLUMNS:
        connection.execute(statement)


def _layout(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _refusal(connection: sqlite3.Connection, path: Path, *, is_store: bool) -> str | None:
    """Return why the file is not a policy store of this version, or None if it is."""
    if not is_store and _is_foreign(connection):
        return f"{str(path)!r} is a database of another program: name a separate file"
    version = _layout(connection)
    if version in (0, LAYOUT):
        return None
    return (
        f"{str(path)!r} was created by another version of robots_guard (layout {version}, this one uses {LAYOUT}):"
        " use that version, or name another file"
    )


def _is_foreign(connection: sqlite3.Connection) -> bool:
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION:
        return False
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def _switch_to_wal(connection: sqlite3.Connection, system: System) -> None:
    """Switch to WAL mode, retrying while another process does the same.

    SQLite itself does not wait for that.
    """
    deadline = system.monotonic() + system.busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or system.monotonic() > deadline:
                raise
            system.sleep(0.02)


# -- damage ----------------------------------------------------------------------------------------


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: Exception) -> bool:
    """Whether the error means that the file is damaged.

    The statements are tested, so one that SQLite rejects (SQLITE_ERROR) means that the tables are
    wrong. A short read means that the log was truncated.
    """
    is_truncated = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
    return is_truncated or isinstance(error, UnicodeDecodeError) or _code(error) in _DAMAGE


def _was_created(error: Exception) -> bool:
    """Whether a missing file was created before the error.

    SQLite creates it when it connects.
    """
    return _code(error) != sqlite3.SQLITE_CANTOPEN


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
