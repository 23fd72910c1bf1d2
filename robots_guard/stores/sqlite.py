"""Policies in an SQLite file, shared by the processes of one machine.

One row an origin, and one a document, however many origins serve it. The file is in WAL mode: readers and the
one writer do not wait for each other, and a crash leaves it consistent; losing the last commits in a power
failure costs a fetch. What the file holds is data of unknown origin: the codec turns whatever is not a policy
of the origin asked for into a miss.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from robots_guard.core import codec
from robots_guard.core.freshness import CLOCK_SKEW
from robots_guard.core.pacing import (
    AHEAD,
    LINE,
    LONGEST_DELAY,
    LONGEST_HOLD_OFF,
    Places,
    Turn,
    counted_from,
    in_line,
    next_turn,
)
from robots_guard.core.policy import Document, Policy
from robots_guard.errors import DamagedValue, MalformedURL, NotGoverned, StoreError
from robots_guard.origin import Origin, origin_of
from robots_guard.stores.database import Database, Look

RETENTION = 120 * 86400.0  # seconds: what a journal keeps (90 d), and the oldest copy it names (30 d)
_AS = {"origin": "CAST(:key AS TEXT)", "sha256": ":key"}  # octets as a key of its column
TOUCH = 86400.0  # seconds: a document's last use is known to the day, so that most puts need not write it
BATCH = 500  # rows a transaction, or a page of a listing

# In one statement, so that no writer of another process comes between the comparison and the replacement; and
# so that a damaged time (NULL, text) gives way. The rule is `Policy.gives_way_to`.
_PUT = """
INSERT INTO policies (origin, settled_at, value) VALUES (:origin, :at, :value)
ON CONFLICT (origin) DO UPDATE SET settled_at = excluded.settled_at, value = excluded.value
WHERE NOT coalesce(policies.settled_at > :at AND policies.settled_at <= :horizon, FALSE)
"""
_KEEP = """
INSERT INTO documents (sha256, used_at, body) VALUES (:sha256, :now, :body)
ON CONFLICT (sha256) DO UPDATE SET used_at = excluded.used_at, body = excluded.body
"""
# What is no blob, or larger than any policy, is not even read.
_GET = "SELECT iif(typeof(value) = 'blob' AND length(value) <= ?, value, x'') FROM policies WHERE origin = ?"
_BODY = "SELECT body FROM documents WHERE sha256 = ? AND typeof(body) = 'blob' AND length(body) <= ?"
# A lease from far beyond what one lasts was taken before the clock was set back: it is not honoured. Not just
# beyond: another process may have read the clock later and come first.
_HELD = "SELECT 1 FROM leases WHERE origin = :origin AND until > :now AND until <= :horizon"
_TAKE = """
INSERT INTO leases (origin, token, until) VALUES (:origin, :token, :until)
ON CONFLICT (origin) DO UPDATE SET token = excluded.token, until = excluded.until
WHERE NOT coalesce(leases.until > :now AND leases.until <= :horizon, FALSE)
"""

# What is no number is not believed, and what is longer than any line is not even read. A line is read as octets:
# text that is not UTF-8 could not be read at all, and each call of its origin would fail.
_TURNS = """
SELECT iif(typeof(last) = 'real', last, 0.0), iif(typeof(not_before) = 'real', not_before, 0.0),
    iif(typeof(line) = 'text' AND length(CAST(line AS BLOB)) <= :longest, CAST(line AS BLOB), x'')
FROM turns WHERE origin = :origin
"""
_STAND = """
INSERT INTO turns (origin, last, not_before, line) VALUES (:origin, :last, :not_before, :line)
ON CONFLICT (origin) DO UPDATE SET last = :last, line = :line
"""
_COUNT_FROM = "UPDATE turns SET last = :at WHERE origin = :origin AND last = :stamp"
_HOLD_OFF = """
INSERT INTO turns (origin, last, not_before, line) VALUES (:origin, 0, :until, '')
ON CONFLICT (origin) DO UPDATE SET not_before = max(:until, iif(not_before <= :latest, not_before, 0))
"""
_NEVER = (0.0, 0.0, b"")


class SqliteStore:
    """A SharedStore in a file, which is created if need be, with its directory.

    Raises SettingsError if the file cannot be used; once open, what fails is a StoreError. With a Look, nothing is
    created, and what would write is a StoreError.
    """

    def __init__(self, path: Path, look: Look | None = None) -> None:
        self.path = path
        self._database = look or Database(path)

    def close(self) -> None:
        """Close the file, when what is under way has ended."""
        self._database.close()

    # -- policies -----------------------------------------------------------------------------------------

    def get(self, origin: Origin) -> Policy | None:
        """The policy held, fresh or not."""
        with self._database.reading() as connection:
            row = connection.execute(_GET, (codec.MAX_VALUE, str(origin))).fetchone()
        if row is None:
            return None
        policy = codec.decode(row[0], origin)
        if policy is None:
            raise DamagedValue(f"what is held for {origin} is damaged, or another origin's")
        return self._filled(policy)

    def put(self, policy: Policy, now: float) -> None:
        """Keep a policy, unless what is held does not give way, and its document."""
        row = {
            "origin": str(policy.origin),
            "at": policy.settled_at,
            "horizon": now + CLOCK_SKEW,
            "value": codec.encode(policy),
        }
        body = self._body_to_keep(policy.document, now) if policy.document else None
        with self._database.writing() as connection:
            if body:
                connection.execute(_KEEP, body)
            connection.execute(_PUT, row)

    def forget(self, origin: Origin) -> bool:
        """Drop the policy held; whether there was one. Its document stays for its time."""
        with self._database.writing() as connection:
            return connection.execute("DELETE FROM policies WHERE origin = ?", (str(origin),)).rowcount > 0

    def origins(self) -> Iterator[Origin]:
        """Every origin held; keys that are none are left out. A page at a time, so millions fit."""
        for keys in self._pages("policies", "origin"):
            for (key,) in keys:
                with contextlib.suppress(MalformedURL, NotGoverned):
                    yield origin_of(key.decode("utf-8", "replace"))

    # -- leases -------------------------------------------------------------------------------------------

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        """Take the origin's lease. Who finds it held only reads, so that many may wait for one."""
        row = {"origin": str(origin), "token": token, "now": now, "until": now + seconds, "horizon": now + 2 * seconds}
        with self._database.reading() as connection:
            if connection.execute(_HELD, {name: row[name] for name in ("origin", "now", "horizon")}).fetchone():
                return False
        with self._database.writing() as connection:
            return connection.execute(_TAKE, row).rowcount > 0

    def release(self, origin: Origin, token: str) -> None:
        """Give the lease back, if it is still the token's."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM leases WHERE origin = ? AND token = ?", (str(origin), token))

    # -- turns --------------------------------------------------------------------------------------------

    def reserve(self, origin: Origin, delay: float, now: Callable[[], float], name: str = "") -> Turn:
        """Take the origin's turn, or say how long until it is. The clock is read as the only writer: whoever had to
        wait for another's write would otherwise take a turn of the past."""
        with self._database.writing() as connection:
            at = now()
            last, not_before, line = connection.execute(_TURNS, _of(origin)).fetchone() or _NEVER
            turn, places = in_line(_places(line), name, next_turn(last, not_before, delay, at), delay, at)
            row = {"origin": str(origin), "last": last if turn.wait else turn.stamp, "not_before": not_before}
            connection.execute(_STAND, {**row, "line": msgspec.json.encode(places).decode()})
        return turn

    def count_from(self, origin: Origin, stamp: float, since: float) -> bool:
        """Move the turn, if it is the last."""
        row = {"origin": str(origin), "stamp": stamp, "at": counted_from(stamp, since)}
        with self._database.writing() as connection:
            return connection.execute(_COUNT_FROM, row).rowcount > 0

    def hold_off(self, origin: Origin, seconds: float, now: float) -> None:
        """No turn before then."""
        with self._database.writing() as connection:
            row = {"origin": str(origin), "until": now + seconds, "latest": _latest(now)}
            connection.execute(_HOLD_OFF, row)

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """What `reserve` would go by."""
        with self._database.reading() as connection:
            last, not_before, _ = connection.execute(_TURNS, _of(origin)).fetchone() or _NEVER
        return last, not_before

    # -- documents ----------------------------------------------------------------------------------------

    def document(self, sha256: str) -> bytes | None:
        """The body of that digest, or None."""
        packed = self._packed(sha256)
        return None if packed is None else codec.unpack(packed, sha256)

    def purge(self, now: float, keep: Iterable[str] = ()) -> int:
        """Remove what was not used for 120 days; how many documents. `keep` counts as used now."""
        self._touch(now, keep)
        oldest = now - RETENTION
        self._remove("policies", "origin", "settled_at", oldest)
        self._remove("leases", "origin", "until", now)
        self._remove("turns", "origin", "max(last, not_before)", now - LONGEST_DELAY)
        return self._remove("documents", "sha256", "used_at", oldest)

    def _body_to_keep(self, document: Document, now: float) -> dict[str, object] | None:
        """The row of a document, if it is not kept yet, or was not used today. Packed before the file is locked."""
        sha256 = bytes.fromhex(document.sha256)
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM documents WHERE sha256 = ? AND used_at > ? AND used_at <= ?",
                (sha256, now - TOUCH, now + CLOCK_SKEW),
            ).fetchone()
        return None if found else {"sha256": sha256, "now": now, "body": codec.pack(document.body)}

    def _packed(self, sha256: str) -> bytes | None:
        with self._database.reading() as connection:
            row = connection.execute(_BODY, (bytes.fromhex(sha256), codec.MAX_VALUE)).fetchone()
        return row[0] if row else None

    def _filled(self, policy: Policy) -> Policy:
        """The policy with its body. A body that is not what it should be goes, so that the next put replaces it."""
        sha256 = policy.document.sha256 if policy.document else codec.EMPTY
        filled = codec.filled(policy, None) or codec.filled(policy, self._packed(sha256))
        if filled is None:
            with contextlib.suppress(StoreError), self._database.writing(tells=False) as connection:
                connection.execute("DELETE FROM documents WHERE sha256 = ?", (bytes.fromhex(sha256),))
            raise DamagedValue(f"the document held for {policy.origin} is missing or damaged")
        return filled

    def _touch(self, now: float, digests: Iterable[str]) -> None:
        rows = ((now, bytes.fromhex(sha256)) for sha256 in digests)
        while batch := list(islice(rows, BATCH)):
            with self._database.writing() as connection:
                connection.executemany("UPDATE documents SET used_at = ? WHERE sha256 = ?", batch)

    def _remove(self, table: str, key: str, when: str, oldest: float) -> int:
        """Remove a table's old rows, a page at a time, so that others may write in between; how many."""
        removed = 0
        for keys in self._pages(table, key, f"AND {when} < {oldest!r}"):
            with self._database.writing() as connection:
                removed += connection.executemany(
                    f"DELETE FROM {table} WHERE {key} = {_AS[key]} AND {when} < {oldest!r}",  # noqa: S608  (ours)
                    [{"key": found} for (found,) in keys],
                ).rowcount
        return removed

    def _pages(self, table: str, key: str, condition: str = "") -> Iterator[list[tuple[bytes]]]:
        """A table's keys in order, as octets: a damaged one may be no text, and must not stop us."""
        last = b""
        while True:
            with self._database.reading() as connection:
                keys = connection.execute(
                    f"SELECT CAST({key} AS BLOB) FROM {table}"  # noqa: S608  (ours)
                    f" WHERE {key} > {_AS[key]} AND typeof({key}) = typeof({_AS[key]}) {condition}"
                    f" ORDER BY {key} LIMIT {BATCH}",
                    {"key": last},
                ).fetchall()
            if not keys:
                return
            yield keys
            last = keys[-1][0]


def _of(origin: Origin) -> dict[str, str | int]:
    return {"origin": str(origin), "longest": LINE * 100}


def _places(line: bytes) -> Places:
    """The places in a line; none in one that cannot be read."""
    try:
        return msgspec.json.decode(line, type=Places)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _latest(now: float) -> float:
    """The latest moment until which an origin can have asked to be left alone."""
    return now + LONGEST_HOLD_OFF + AHEAD
