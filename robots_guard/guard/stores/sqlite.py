"""Policies in an SQLite file, shared by the processes of one machine.

There is one row per origin, and one per document, however many origins serve it. What has not been
used for 120 days is removed by and by: a put looks at some rows of each table, once a second at
most. The file is in WAL mode: readers and the single writer do not wait for each other, and a crash
leaves the file consistent; losing the last commits in a power failure only costs a fetch. The
content of the file is untrusted: any value that the codec cannot decode as a policy of the requested
origin counts as a miss.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from robots_guard.decisions import codec
from robots_guard.decisions.freshness import CLOCK_SKEW
from robots_guard.decisions.lease import Taken
from robots_guard.decisions.pacing import (
    LONGEST_DELAY,
    LONGEST_PAUSE,
    MAX_FUTURE,
    MAX_QUEUE,
    Places,
    Turn,
    Wait,
    moved_stamp,
    next_turn,
    queue_turn,
)
from robots_guard.decisions.policy import Document, Policy
from robots_guard.errors import DamagedValue, MalformedURL, NotGoverned, StoreError
from robots_guard.guard.stores.database import Database, ReadOnlyDatabase
from robots_guard.origin import Origin, origin_of


class _Separate(Protocol):
    def get(self, origin: Origin) -> Policy | None: ...

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool: ...


class LeaseThenPolicy:
    """Takes a lease and then reads the policy: for a store on this machine, where a call costs
    little."""

    def take_and_get(
        self: _Separate, origin: Origin, token: str, now: float, seconds: float
    ) -> Taken:
        """Take the origin's lease, and return also the policy that is stored then."""
        is_ours = self.take(origin, token, now, seconds)
        try:
            return Taken(is_ours, self.get(origin))
        except DamagedValue as error:
            return Taken(is_ours, damage=str(error))


# seconds: the retention of an audit log (90 d), plus the age of the oldest copy it refers to (30 d)
RETENTION = 120 * 86400.0
_AS = {"origin": "CAST(:{} AS TEXT)", "sha256": ":{}"}  # bytes as a key of the column's type
DAY = 86400.0  # seconds; a document's last use is recorded to the day: most puts do not write it
#: By table: its key, when a row was last used, and for how many seconds it is kept after that.
_KEPT = (
    ("policies", "origin", "settled_at", RETENTION),
    ("documents", "sha256", "used_at", RETENTION + DAY),  # never before the policy that names it
    ("leases", "origin", "until", 0.0),
    ("turns", "origin", "max(last, not_before)", LONGEST_DELAY),
)
SWEPT = 100  # rows of each table that a put looks at
PAGE = 500  # rows of a listing that are read at once
#: The last two looks at the clock, at least a day apart, lie in the row of a lease on no origin.
_LOOKS = "SELECT CAST(token AS REAL), iif(typeof(until) = 'real', until, 0.0) FROM leases WHERE origin = ''"
_NO_LOOKS = (0.0, 0.0)
_LOOK = "INSERT OR REPLACE INTO leases (origin, token, until) VALUES ('', :before, :last)"

# A single statement, so that no other process can write between the comparison and the replacement,
# and so that a row with a damaged time (NULL, text) is replaced. The rule is `Policy.may_be_replaced_by`.
_PUT = """
INSERT INTO policies (origin, settled_at, value) VALUES (:origin, :at, :value)
ON CONFLICT (origin) DO UPDATE SET settled_at = excluded.settled_at, value = excluded.value
WHERE NOT coalesce(policies.settled_at > :at AND policies.settled_at <= :horizon, FALSE)
"""
_KEEP = """
INSERT INTO documents (sha256, used_at, body) VALUES (:sha256, :now, :body)
ON CONFLICT (sha256) DO UPDATE SET used_at = excluded.used_at, body = excluded.body
"""
_IS_KEPT = (
    "SELECT 1 FROM documents WHERE sha256 = :sha256 AND used_at > :since AND used_at <= :horizon"
)
# A value that is not a blob, or larger than any policy, is not even read.
_GET = "SELECT iif(typeof(value) = 'blob' AND length(value) <= ?, value, x'') FROM policies WHERE origin = ?"
_BODY = (
    "SELECT body FROM documents WHERE sha256 = ? AND typeof(body) = 'blob' AND length(body) <= ?"
)
# A lease that ends far later than a new one would was taken before the clock was set back, and is
# ignored. The limit is generous, because another process may have read its clock later and still
# taken the lease first.
_LEASED = "SELECT 1 FROM leases WHERE origin = :origin AND until > :now AND until <= :horizon"
_TAKE = """
INSERT INTO leases (origin, token, until) VALUES (:origin, :token, :until)
ON CONFLICT (origin) DO UPDATE SET token = excluded.token, until = excluded.until
WHERE NOT coalesce(leases.until > :now AND leases.until <= :horizon, FALSE)
"""

# A value that is not a number counts as 0, and a line longer than possible is not even read. The
# line is read as bytes: sqlite3 cannot return text that is not UTF-8, so every call for its origin
# would fail.
_TURNS = """
SELECT iif(typeof(last) = 'real', last, 0.0), iif(typeof(not_before) = 'real', not_before, 0.0),
    iif(typeof(line) = 'text' AND length(CAST(line AS BLOB)) <= :longest, CAST(line AS BLOB), x'')
FROM turns WHERE origin = :origin
"""
_PUT_TURN = """
INSERT INTO turns (origin, last, not_before, line) VALUES (:origin, :last, :not_before, :line)
ON CONFLICT (origin) DO UPDATE SET last = :last, line = :line
"""
_MOVE_TURN = "UPDATE turns SET last = :at WHERE origin = :origin AND last = :stamp"
_NOTE_PAUSE = """
INSERT INTO turns (origin, last, not_before, line) VALUES (:origin, 0, :until, '')
ON CONFLICT (origin) DO UPDATE SET not_before = max(:until, iif(not_before <= :latest, not_before, 0))
"""
_NEVER = (0.0, 0.0, b"")


class SqliteStore(LeaseThenPolicy):
    """A SharedStore in a file. The file and its directory are created if missing.

    Raises SettingsError if the file cannot be used at first; later failures are StoreErrors. With a
    ReadOnlyDatabase, no file is created and every write raises StoreError.
    """

    is_local = True

    def __init__(self, path: Path, database: Database | ReadOnlyDatabase | None = None) -> None:
        self.path = path
        self._database = database or Database(path)
        self._swept: dict[str, bytes] = {}  # by table, the last key looked at
        self._swept_at = 0.0

    def close(self) -> None:
        """Close the file once running calls have ended."""
        self._database.close()

    # -- policies ----------------------------------------------------------------------------------

    def get(self, origin: Origin) -> Policy | None:
        """Return the stored policy, fresh or not, or None."""
        with self._database.reading() as connection:
            row = connection.execute(_GET, (codec.MAX_VALUE, str(origin))).fetchone()
            if row is None:
                return None
            policy = codec.decode(row[0], origin)
            if policy is None:
                raise DamagedValue(
                    f"the value stored for {origin} is damaged, or belongs to another origin"
                )
            packed = _packed(connection, codec.body_digest(policy))
        complete = codec.with_body(policy, packed)
        if complete is None:
            if packed is None and self._is_old(policy):
                return None  # its document has been removed, and the policy will be
            self._delete_damaged_document(codec.body_digest(policy))
            raise DamagedValue(f"the document stored for {origin} is missing or damaged")
        return complete

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy and its document, unless the stored policy is newer
        (`Policy.may_be_replaced_by`).
        """
        row = {
            "origin": str(policy.origin),
            "at": policy.settled_at,
            "horizon": now + CLOCK_SKEW,
            "value": codec.encode(policy),
        }
        body = self._new_body(policy.document, now)
        with self._database.writing() as connection:
            _keep_document(connection, policy.document, body, now)
            connection.execute(_PUT, row)
            if abs(now - self._swept_at) >= 1.0:
                self._swept_at = now
                self._sweep(connection, policy, now)

    def forget(self, origin: Origin) -> bool:
        """Remove the stored policy, but not its document. Returns whether there was one."""
        with self._database.writing() as connection:
            return (
                connection.execute("DELETE FROM policies WHERE origin = ?", (str(origin),)).rowcount
                > 0
            )

    def origins(self) -> Iterator[Origin]:
        """Yield every origin that has a stored policy, in pages of 500.

        Skips keys that are not origins.
        """
        keys: list[tuple[bytes]] = [(b"",)]
        while keys:
            with self._database.reading() as connection:
                page = _page("policies", "origin", PAGE)
                keys = connection.execute(page, {"last": keys[-1][0]}).fetchall()
            for (key,) in keys:
                with contextlib.suppress(MalformedURL, NotGoverned):
                    yield origin_of(key.decode("utf-8", "replace"))

    # -- leases ------------------------------------------------------------------------------------

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        """Take the origin's lease.

        If it is taken, this only reads, so that many processes can poll it.
        """
        row = {
            "origin": str(origin),
            "token": token,
            "now": now,
            "until": now + seconds,
            "horizon": now + 2 * seconds,
        }
        with self._database.reading() as connection:
            if connection.execute(
                _LEASED, {name: row[name] for name in ("origin", "now", "horizon")}
            ).fetchone():
                return False
        with self._database.writing() as connection:
            return connection.execute(_TAKE, row).rowcount > 0

    def release(self, origin: Origin, token: str) -> None:
        """Release the lease, if the token still owns it."""
        with self._database.writing() as connection:
            connection.execute(
                "DELETE FROM leases WHERE origin = ? AND token = ?", (str(origin), token)
            )

    # -- turns -------------------------------------------------------------------------------------

    def reserve(
        self, origin: Origin, delay: float, now: Callable[[], float], name: str = ""
    ) -> Turn | Wait:
        """Take the origin's turn, or return how long to wait for it.

        The clock is read inside the write transaction: a time read before waiting for another
        process's write would be in the past.
        """
        with self._database.writing() as connection:
            at = now()
            last, not_before, line = connection.execute(_TURNS, _of(origin)).fetchone() or _NEVER
            turn, places = queue_turn(
                _places(line), name, next_turn(last, not_before, delay, at), delay, at
            )
            if isinstance(turn, Turn):
                last = turn.stamp
            line = msgspec.json.encode(places).decode()
            row = {"origin": str(origin), "last": last, "not_before": not_before, "line": line}
            connection.execute(_PUT_TURN, row)
        return turn

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        """Re-stamp the turn, if it is still the last."""
        row = {"origin": str(origin), "stamp": stamp, "at": moved_stamp(stamp, since)}
        with self._database.writing() as connection:
            return connection.execute(_MOVE_TURN, row).rowcount > 0

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:
        """Grant no turn for `seconds` from now. Never shortens an earlier pause."""
        with self._database.writing() as connection:
            row = {"origin": str(origin), "until": now + seconds, "latest": _latest(now)}
            connection.execute(_NOTE_PAUSE, row)

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """Return the last turn and the end of the pause, as `reserve` would use them."""
        with self._database.reading() as connection:
            last, not_before, _ = connection.execute(_TURNS, _of(origin)).fetchone() or _NEVER
        return last, not_before

    # -- documents ---------------------------------------------------------------------------------

    def document(self, sha256: str) -> bytes | None:
        """Return the body with that digest, or None."""
        with self._database.reading() as connection:
            packed = _packed(connection, sha256)
        if packed is None:
            return None
        return codec.unpack(packed, sha256)

    def _new_body(self, document: Document | None, now: float) -> bytes | None:
        """Return the packed body of a document that `_is_kept` does not find, else None.

        The body is packed here, before the file is locked.
        """
        if document is None:
            return None
        with self._database.reading() as connection:
            if _is_kept(connection, document, now):
                return None
        return codec.pack(document.body)

    def _delete_damaged_document(self, sha256: str) -> None:
        """Delete a damaged body, so that the next put stores it again."""
        with (
            contextlib.suppress(StoreError),
            self._database.writing(reports_reset=False) as connection,
        ):
            packed = _packed(connection, sha256)  # again: it may have been stored meanwhile
            if packed is None or codec.unpack(packed, sha256) is None:
                connection.execute(
                    "DELETE FROM documents WHERE sha256 = ?", (bytes.fromhex(sha256),)
                )

    def _is_old(self, policy: Policy) -> bool:
        with self._database.reading() as connection:
            before, _ = connection.execute(_LOOKS).fetchone() or _NO_LOOKS
        return policy.settled_at < before - RETENTION

    def _sweep(self, connection: sqlite3.Connection, policy: Policy, now: float) -> None:
        """Remove what is old among the next few rows of each table; begin beside the policy's own."""
        own = {
            "origin": str(policy.origin).encode(),
            "sha256": bytes.fromhex(codec.body_digest(policy)),
        }
        passed = _passed(connection, now)
        for table, key, used_at, kept in _KEPT:
            last = self._swept.get(table, own[key])
            keys = connection.execute(_page(table, key, SWEPT), {"last": last}).fetchall()
            end = keys[-1][0] if keys else last
            connection.execute(
                f"DELETE FROM {table} WHERE {key} > {_AS[key].format('last')}"  # noqa: S608  (constant names)
                f" AND {key} <= {_AS[key].format('end')} AND {used_at} < :oldest",
                {"last": last, "end": end, "oldest": passed - kept},
            )
            self._swept[table] = end if len(keys) == SWEPT else b""


def _keep_document(
    connection: sqlite3.Connection, document: Document | None, body: bytes | None, now: float
) -> None:
    """Store a document with the packed `body`, or without one if `_is_kept` does not find it.

    Requires the transaction that stores the policy: since the document was looked for, it may have
    been removed, or the file replaced.
    """
    if document is None:
        return
    if body is None:
        if _is_kept(connection, document, now):
            return
        body = codec.pack(document.body)
    connection.execute(_KEEP, {"sha256": bytes.fromhex(document.sha256), "now": now, "body": body})


def _is_kept(connection: sqlite3.Connection, document: Document, now: float) -> bool:
    """Whether the document is stored, and recorded as used within the last day."""
    row = {
        "sha256": bytes.fromhex(document.sha256),
        "since": now - DAY,
        "horizon": now + CLOCK_SKEW,
    }
    return connection.execute(_IS_KEPT, row).fetchone() is not None


def _passed(connection: sqlite3.Connection, now: float) -> float:
    """Return a time that has passed by two looks at the clock, at least a day apart: a clock that is
    wrong for less than that removes nothing."""
    before, last = connection.execute(_LOOKS).fetchone() or _NO_LOOKS
    if last > now + CLOCK_SKEW:  # a clock was set back
        before, last = 0.0, now
    elif now - last >= DAY:
        before, last = last, now
    else:
        return min(before, now)
    connection.execute(_LOOK, {"before": repr(before), "last": last})
    return float(before)


def _page(table: str, key: str, rows: int) -> str:
    """Return the SELECT of a table's keys after the `last` one, in order, as bytes: a damaged key may
    be invalid text, and must not end a listing."""
    last = _AS[key].format("last")
    return (
        f"SELECT CAST({key} AS BLOB) FROM {table} WHERE {key} > {last}"  # noqa: S608  (constant names)
        f" AND typeof({key}) = typeof({last}) ORDER BY {key} LIMIT {rows}"
    )


def _packed(connection: sqlite3.Connection, sha256: str) -> bytes | None:
    """Return the packed body with a digest, or None. The empty body is not stored."""
    if sha256 == codec.EMPTY:
        return None
    row = connection.execute(_BODY, (bytes.fromhex(sha256), codec.MAX_VALUE)).fetchone()
    if row is None:
        return None
    packed: bytes = row[0]
    return packed


def _of(origin: Origin) -> dict[str, str | int]:
    return {"origin": str(origin), "longest": MAX_QUEUE * 100}


def _places(line: bytes) -> Places:
    """Return the places in a line; none if it cannot be decoded."""
    try:
        return msgspec.json.decode(line, type=Places)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _latest(now: float) -> float:
    """Return the latest possible end of a pause."""
    return now + LONGEST_PAUSE + MAX_FUTURE
