"""Policies in an SQLite file, shared by the processes of one machine.

One row an origin. The file is in WAL mode: readers and the one writer do not wait for each other, and a crash
leaves it consistent; losing the last commits in a power failure costs a fetch. One connection reads, another
writes, each behind a lock of its own, so that any thread may call. What the file holds is data of unknown
origin: the codec turns whatever is not a policy of the origin asked for into a miss.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from robots_guard.core import codec
from robots_guard.core.policy import Policy
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError, StoreError
from robots_guard.origin import Origin, origin_of

BUSY = 5.0  # seconds to wait for another process's write
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE policies (origin TEXT PRIMARY KEY, settled_at REAL NOT NULL, value BLOB NOT NULL) WITHOUT ROWID
"""
# In one statement, so that no writer of another process comes between the comparison and the replacement.
_PUT = """
INSERT INTO policies (origin, settled_at, value) VALUES (?, ?, ?)
ON CONFLICT (origin) DO UPDATE SET settled_at = excluded.settled_at, value = excluded.value
WHERE excluded.settled_at >= policies.settled_at
"""
_GET = "SELECT value FROM policies WHERE origin = ? AND typeof(value) = 'blob' AND length(value) <= ?"


class SqliteStore:
    """A PolicyStore in a file, which is created if need be, with its directory.

    Raises SettingsError if the file cannot be used; once open, what fails is a StoreError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.ExitStack() as opened:
                self._writer = opened.enter_context(contextlib.closing(_connect(path)))
                _prepare(self._writer, path)
                self._reader = opened.enter_context(contextlib.closing(_connect(path)))
                self._reader.execute("PRAGMA query_only = ON")
                opened.pop_all()  # all went well: they stay open
        except (sqlite3.Error, OSError, ValueError) as error:
            raise SettingsError(
                f"store: {str(path)!r} cannot be used as a policy store ({_why(error)}):"
                " name a writable file of its own, or memory:"
            ) from error
        self._writing = threading.Lock()
        self._reading = threading.Lock()

    def get(self, origin: Origin) -> Policy | None:
        """The policy held, fresh or not; damaged and foreign values are None."""
        with _translated("read"), self._reading:
            row = self._reader.execute(_GET, (str(origin), codec.MAX_VALUE)).fetchone()
        return codec.decode(row[0], origin) if row else None

    def put(self, policy: Policy) -> None:
        """Keep a policy, unless a later one is held."""
        row = (str(policy.origin), policy.settled_at, codec.encode(policy))
        with _translated("written"), self._writing:
            self._writer.execute(_PUT, row)

    def forget(self, origin: Origin) -> bool:
        """Drop what is held for the origin; whether there was anything."""
        with _translated("written"), self._writing:
            return self._writer.execute("DELETE FROM policies WHERE origin = ?", (str(origin),)).rowcount > 0

    def origins(self) -> list[Origin]:
        """Every origin held; keys that are none are left out."""
        with _translated("read"), self._reading:
            rows = self._reader.execute("SELECT origin FROM policies WHERE typeof(origin) = 'text'").fetchall()
        return list(_readable(row[0] for row in rows))

    def close(self) -> None:
        """Close the file, when what is under way has ended."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
    _switch_to_wal(connection)
    connection.execute("BEGIN IMMEDIATE")  # also shows at once whether the file can be written
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        _create(connection, path)
    elif version != SCHEMA_VERSION:
        raise SettingsError(
            f"store: {str(path)!r} has the layout of another version ({version}): remove it, or name another file"
        )
    connection.execute("SELECT origin, settled_at, value FROM policies LIMIT 0")
    connection.execute("COMMIT")


def _create(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise SettingsError(f"store: {str(path)!r} is a database of another program: name a file of its own")
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait when two processes switch at once, so we do."""
    deadline = time.monotonic() + BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _readable(keys: Iterator[str]) -> Iterator[Origin]:
    for key in keys:
        with contextlib.suppress(MalformedURL, NotGoverned):
            yield origin_of(key)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"could not be {what}: {error}") from error


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
