"""The SQLite store: behaviour specific to a file that other programs can use and damage."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.stores import A, B, in_a_fork, policy, put
from support.turns import wait_of

from robots_guard.audit.read.reader import Filter, entries
from robots_guard.configuration.settings import open_guard, settings_of
from robots_guard.decisions.verdict import Question
from robots_guard.errors import SettingsError, StoreError, StoreReset
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores import database_files
from robots_guard.guard.stores.breaker import FIRST_PAUSE, Breaker, CircuitOpen
from robots_guard.guard.stores.database import Database
from robots_guard.guard.stores.database_files import System, connect
from robots_guard.guard.stores.sqlite import RETENTION, SqliteStore
from robots_guard.origin import origin_of

# These tests reach into `_database`: the faults that they cause (a lock, a read-only connection, an
# open circuit) have no public face.

DAY = 86400.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "policies.sqlite"


@pytest.fixture
def store(path):
    made = SqliteStore(path)
    yield made
    made.close()


@pytest.fixture
def rows(store, path):
    """Another connection to the file, for arbitrary statements."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def aside(path) -> list[Path]:
    return [name for name in path.parent.glob("*.corrupt-*") if not name.name.endswith("-wal")]


def test_policies_survive_closing(path):
    first = SqliteStore(path)
    put(first, policy())
    first.close()
    second = SqliteStore(path)

    assert second.get(A) == policy()
    second.close()


def test_the_file_is_in_wal_mode_and_its_directory_private(rows, path):
    assert rows.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "value", ["text", 7, 2.5, b"x" * 2_000_000], ids=["text", "number", "real", "huge"]
)
def test_a_value_of_another_type_counts_as_damage_and_can_be_replaced(store, rows, value):
    rows.execute("INSERT INTO policies VALUES (?, ?, ?)", (str(A), 1000.0, value))

    with pytest.raises(StoreError, match="damaged"):
        store.get(A)
    put(store, policy())
    assert store.get(A) == policy()


@pytest.mark.parametrize("at", ["later", b"\xff", 1e300, float("inf")])
def test_a_damaged_time_does_not_prevent_a_put(store, rows, at):
    put(store, policy(body=b"before"))
    rows.execute("UPDATE policies SET settled_at = ?", (at,))
    put(store, policy(body=b"after"))

    assert store.get(A).document.body == b"after"


def test_keys_that_are_not_origins_are_not_listed(store, rows):
    put(store, policy())
    rows.executemany(
        "INSERT INTO policies VALUES (?, 1, x'00')",
        [("nonsense",), ("ftp://a.test",), ("http://a b",), (b"\xff",)],
    )
    rows.execute("INSERT INTO policies VALUES (CAST(x'7aff' AS TEXT), 1, x'00')")  # invalid UTF-8

    assert list(store.origins()) == [A]


def test_a_listing_is_paged(store):
    origins = {origin_of(f"https://{n}.test") for n in range(1100)}
    for origin in origins:
        put(store, policy(origin))

    assert sorted(store.origins()) == sorted(origins)


def test_reads_do_not_wait_for_writers(store, rows):
    put(store, policy())
    rows.execute("BEGIN EXCLUSIVE")
    rows.execute("DELETE FROM policies")
    writing = threading.Thread(target=put, args=(store, policy(at=1100.0)))
    writing.start()

    assert store.get(A) == policy()
    assert writing.is_alive()
    rows.execute("ROLLBACK")
    writing.join(60)
    assert store.get(A).settled_at == 1100.0


def test_a_failed_take_of_a_lease_does_not_write(store, rows):
    store.take(A, "one", 1000.0, 35.0)
    rows.execute("BEGIN EXCLUSIVE")

    assert store.take(A, "two", 1001.0, 35.0) is False
    rows.execute("ROLLBACK")


def test_a_lease_expires(store):
    store.take(A, "one", 1000.0, 35.0)

    assert not store.take(A, "two", 1034.9, 35.0)
    assert store.take(A, "two", 1035.0, 35.0)
    store.release(A, "one")
    assert not store.take(A, "three", 1036.0, 35.0)


def test_a_lease_taken_before_the_clock_was_set_back_is_ignored(store):
    store.take(A, "one", 1000.0 + 30 * DAY, 35.0)

    assert store.take(A, "two", 1000.0, 35.0)


# -- documents -------------------------------------------------------------------------------------


def test_a_body_is_stored_once_for_all_origins_that_serve_it(store, rows):
    for n in range(20):
        put(store, policy(origin_of(f"https://{n}.test")))

    assert rows.execute("SELECT count(*) FROM documents").fetchone() == (1,)


@pytest.mark.parametrize("damage", ["DELETE FROM documents", "UPDATE documents SET body = x'00'"])
def test_a_lost_or_damaged_body_is_a_miss_and_is_stored_again_by_the_next_put(store, rows, damage):
    put(store, policy())
    rows.execute(damage)

    with pytest.raises(
        StoreError, match=r"document stored for https://a\.test is missing or damaged"
    ):
        store.get(A)
    put(store, policy(at=1001.0))
    assert store.get(A) == policy(at=1001.0)


@pytest.mark.parametrize("replacement", ["DELETE FROM documents", "another file"])
def test_a_policy_is_not_put_without_its_document(store, rows, path, monkeypatch, replacement):
    """The document is there when the store looks for it, and is not when it writes the policy."""
    put(store, policy())
    writing = store._database.writing

    def lose_documents_then_write(**options):
        monkeypatch.setattr(store._database, "writing", writing)
        if replacement == "another file":
            path.unlink()
        else:
            rows.execute(replacement)
        return writing(**options)

    monkeypatch.setattr(store._database, "writing", lose_documents_then_write)
    put(store, policy(at=1001.0))

    assert store.get(A) == policy(at=1001.0)


def test_a_document_stored_again_while_its_loss_is_noticed_is_kept(store, rows, path, monkeypatch):
    put(store, policy())
    rows.execute("DELETE FROM documents")
    writing = store._database.writing

    def be_overtaken(**options):
        other = SqliteStore(path)
        put(other, policy(at=1001.0))
        other.close()
        return writing(**options)

    monkeypatch.setattr(store._database, "writing", be_overtaken)
    with pytest.raises(StoreError, match="is missing or damaged"):
        store.get(A)

    assert store.get(A) == policy(at=1001.0)


C = origin_of("https://c.test")


def look_twice(store, now):
    """Let a store look at the clock a second time, a day after the first, by which what is old then
    is removed from the third time on."""
    for at in (now, now + DAY, now + 2 * DAY):
        put(store, policy(C, at=at, body=b"new"))


def test_what_was_not_used_for_long_is_removed(store, rows):
    put(store, policy(A, body=b"old"))
    put(store, policy(B, body=b"kept"))
    store.take(A, "dead", 1000.0, 35.0)
    kept, old = policy(B, body=b"kept").document, policy(A, body=b"old").document
    put(store, policy(B, at=1000.0 + 100 * DAY, body=b"kept"))

    look_twice(store, 1000.0 + RETENTION + 2 * DAY)

    assert store.document(kept.sha256) == b"kept"
    assert store.document(old.sha256) is None
    assert list(store.origins()) == [B, C]
    assert rows.execute("SELECT count(*) FROM leases WHERE origin != ''").fetchone() == (0,)


def test_a_wrong_clock_removes_nothing(store):
    """A machine whose clock is years ahead for some hours, and then right again."""
    put(store, policy(A, body=b"old"))
    for at in (2000.0, 2000.0 + DAY, 1e9, 1e9 + DAY / 2, 3000.0 + DAY, 2e9):
        put(store, policy(C, at=at, body=b"new"))

    assert store.get(A) == policy(A, body=b"old")


def test_a_turn_that_may_still_bind_is_kept(store):
    now = 1e9
    look_twice(store, now - 2 * DAY)
    assert wait_of(store.reserve(A, 7200.0, lambda: now)) == 0

    put(store, policy(at=now + 4000))

    assert wait_of(store.reserve(A, 7200.0, lambda: now + 4000)) == 3200


def test_of_many_old_policies_a_put_removes_some(store):
    for n in range(400):
        put(store, policy(origin_of(f"https://{n}.test"), body=b"%d" % n))
    later = 1000.0 + RETENTION + 2 * DAY
    look_twice(store, later)
    before = len(list(store.origins()))
    for n in range(30):
        put(store, policy(C, at=later + 3 * DAY + n, body=b"new"))

    assert 100 < before < 401
    assert list(store.origins()) == [C]
    assert store.document(policy(body=b"7").document.sha256) is None


def test_an_old_policy_without_its_document_is_a_miss_and_no_damage(store, rows):
    """The document may be removed first, since a put looks at a few rows of each table."""
    put(store, policy(A, body=b"old"))
    (row,) = rows.execute("SELECT * FROM policies").fetchall()
    look_twice(store, 1000.0 + RETENTION + 2 * DAY)
    rows.execute("INSERT INTO policies VALUES (?, ?, ?)", row)

    assert store.get(A) is None
    assert rows.execute("SELECT count(*) FROM policies").fetchone() == (2,)


def test_a_renewed_document_counts_as_used(store):
    for days in range(0, 300, 10):
        put(store, policy(at=1000.0 + days * DAY))

    look_twice(store, 1000.0 + 300 * DAY)
    assert store.get(A) is not None


# -- damage to the file ----------------------------------------------------------------------------

POLICIES = [
    policy(origin_of(f"https://{n}.test"), body=b"User-agent: *\nDisallow: /%d/\n" % n * (n + 1))
    for n in range(60)
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    """The content of a file with sixty policies, without journals."""
    path = tmp_path_factory.mktemp("sound") / "policies.sqlite"
    store = SqliteStore(path)
    for stored in POLICIES:
        put(store, stored)
    store.close()
    assert not Path(f"{path}-wal").exists()
    return path.read_bytes()


def survey(path) -> tuple[int, int, int]:
    """Read every policy of a damaged file.

    Returns how many are right and how many missing; a wrong one fails.
    """
    right = missing = 0
    try:
        store = SqliteStore(path)
    except SettingsError as error:
        # A flipped bit in the version looks like another version, for a person to resolve.
        return 0, 0, 1 if "later version" in str(error) else 10_000
    for stored in POLICIES:
        try:
            found = store.get(stored.origin)
        except StoreError:
            found = None
        assert found is None or found == stored
        right, missing = right + (found is not None), missing + (found is None)
    with contextlib.suppress(StoreError):
        put(store, policy())  # the store still works
    with contextlib.suppress(StoreError):
        assert store.get(A) in (None, policy())  # a damaged tree may hide the new row
    store.close()
    return right, missing, 0


def damaged(path, data: bytes) -> None:
    for name in path.parent.iterdir():
        name.unlink()
    path.write_bytes(data)
    # marks the file as a store
    Path(f"{path}.lock").write_text(f"robots_guard {path.stat().st_ino}")


def test_a_thousand_flipped_bits_never_yield_a_wrong_policy(tmp_path, sound):
    path = tmp_path / "policies.sqlite"
    chance = random.Random(4)
    right = missing = refused = 0
    for _ in range(1000):
        data = bytearray(sound)
        place = chance.randrange(len(data) * 8)
        data[place // 8] ^= 1 << place % 8
        damaged(path, bytes(data))
        found = survey(path)
        right, missing, refused = right + found[0], missing + found[1], refused + found[2]

    assert right > 30_000  # sanity check: most of the sixty thousand policies are intact
    assert missing > 0
    assert refused <= 5


def test_truncation_at_every_page_never_yields_a_wrong_policy(tmp_path, sound):
    path = tmp_path / "policies.sqlite"
    for length in [*range(0, len(sound), 4096), *range(1, len(sound), 4999)]:
        damaged(path, sound[:length])
        survey(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE policies",
        "DROP TABLE documents",
        "ALTER TABLE policies RENAME COLUMN value TO worth",
        "PRAGMA user_version = 0",
        "DROP TABLE leases",
    ],
)
def test_a_file_with_a_wrong_schema_is_quarantined_at_startup(path, statement):
    SqliteStore(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    store = SqliteStore(path)
    # reported once, to the first call
    with pytest.raises(StoreReset, match=r"was damaged .* recreated; the old file is"):
        put(store, policy())
    put(store, policy())

    assert store.get(A) == policy()
    assert len(aside(path)) == 1
    store.close()


def test_a_file_found_damaged_when_opened_is_recorded_in_the_audit_log(path, tmp_path):
    SqliteStore(path).close()
    path.write_bytes(b"garbage")
    settings = settings_of(
        {"agent": "mybot", "store": f"sqlite:///{path}", "audit_log": str(tmp_path / "audit_log")}
    )

    async def asks():
        guard = open_guard(
            settings, component="cli", runtime=AsyncioRuntime(), fetcher=ScriptedFetcher({})
        )
        await guard.check(Question(origin=A, target="/", agent="mybot"))
        guard.close()

    asyncio.run(asks())
    (entry,) = entries(tmp_path / "audit_log", Filter(kind="store-reset"))
    assert "recreated; the old file is" in entry.detail


class Disk:
    """A disk that can be full when a store opens its file."""

    def __init__(self) -> None:
        self.is_full = False
        self.system = System(connect=self._connect)

    def _connect(self, path):
        if self.is_full:
            raise sqlite3.OperationalError("database or disk is full")
        return connect(path)


def outcomes(calls, store) -> list[str]:
    """Make calls to a store. Returns the names of the exceptions they raised."""
    found = []
    for call in calls:
        try:
            call(store)
        except StoreError as error:
            found.append(type(error).__name__)
    return found


def test_a_reset_is_reported_when_the_new_file_could_not_be_created_at_once(path):
    disk = Disk()
    store = SqliteStore(path, Database(path, disk.system))
    put(store, policy())
    Path(f"{path}-wal").unlink()
    disk.is_full = True
    assert outcomes([lambda store: store.get(A)] * 2, store) == ["StoreError", "StoreError"]
    assert aside(path)
    disk.is_full = False

    with pytest.raises(
        StoreReset, match=re.escape(f"recreated; the old file is {str(aside(path)[0])!r}")
    ):
        store.get(A)
    assert store.get(A) is None
    store.close()


def test_a_reset_is_reported_when_the_log_could_not_be_renamed(path):
    fails = [False]

    def unlink(name):
        if fails[0]:
            raise OSError(5, "Input/output error")
        Path(name).unlink()

    store = SqliteStore(path, Database(path, System(unlink=unlink)))
    Path(f"{path}-wal").unlink()
    fails[0] = True
    assert outcomes([lambda store: store.get(A)], store) == ["StoreError"]
    fails[0] = False

    assert outcomes([lambda store: store.get(A)] * 3, store) == ["StoreReset"]
    store.close()


def test_a_start_that_cannot_create_the_new_file_names_the_old_one(path):
    path.parent.mkdir()
    damaged(path, b"garbage" * 1000)
    writable = []

    def connect_once(there):
        if writable:
            raise sqlite3.OperationalError("database or disk is full")
        writable.append(True)
        return connect(there)

    with pytest.raises(
        SettingsError, match=r"\(database or disk is full; the damaged file is now '.*corrupt-.*'\)"
    ):
        Database(path, System(connect=connect_once))


def test_a_reset_is_reported_when_the_call_that_found_the_damage_suppresses_it(store, rows):
    """Reading the policy finds the first damage; removing the damaged document finds the second."""
    put(store, policy())
    rows.execute("UPDATE documents SET body = x'00'")
    rows.execute("CREATE TRIGGER broken BEFORE DELETE ON documents BEGIN DELETE FROM nowhere; END")

    assert outcomes([lambda store: store.get(A)] * 4, store) == ["DamagedValue", "StoreReset"]


def test_a_table_that_vanishes_costs_one_error(store, rows, path):
    put(store, policy())
    rows.execute("DROP TABLE policies")

    with pytest.raises(StoreError, match=r"no such table.*recreated; the old file is"):
        store.get(A)
    assert store.get(A) is None
    put(store, policy())
    assert store.get(A) == policy()
    assert len(aside(path)) == 1


def test_garbage_over_the_open_file_costs_one_error(path):
    """Two stores have the file open while it is overwritten; both continue with the same new file."""
    one, two = SqliteStore(path), SqliteStore(path)
    for stored in POLICIES:
        put(one, stored)
    for connection in (
        c for s in (one, two) for c in (s._database._opened.reader, s._database._opened.writer)
    ):
        connection.execute("PRAGMA cache_size = 0")  # every read goes to the file
    for name in (path, Path(f"{path}-wal")):
        with name.open("r+b") as file:
            file.write(b"\xa5" * name.stat().st_size)

    failures = 0
    for store in (one, two) * 3:
        for stored in POLICIES:
            try:
                found = store.get(stored.origin)
            except StoreError:
                failures += 1
            else:
                assert found in (None, stored)
        try:
            put(store, policy())
        except StoreError:
            failures += 1
    assert failures <= 4
    assert one.get(A) == two.get(A) == policy()
    assert aside(path)
    one.close()
    two.close()


@pytest.mark.parametrize("journals", [False, True], ids=["the file alone", "with its audit logs"])
def test_deleting_the_open_file_starts_a_new_one_for_all_stores(path, journals):
    one, two = SqliteStore(path), SqliteStore(path)
    put(one, policy())
    assert two.get(A) == policy()
    path.unlink()
    if journals:
        Path(f"{path}-wal").unlink()
        Path(f"{path}-shm").unlink()

    assert one.get(A) is None
    put(one, policy(B))
    assert two.get(B) == policy(B)
    put(two, policy(A, at=1001.0))
    assert one.get(A).settled_at == 1001.0
    two.close()
    assert one.get(A).settled_at == 1001.0
    one.close()
    again = SqliteStore(path)
    assert again.get(A).settled_at == 1001.0
    again.close()


def test_the_whole_directory_may_be_removed(path, store):
    put(store, policy())
    shutil.rmtree(path.parent)

    assert store.get(A) is None
    put(store, policy())
    assert store.get(A) == policy()


def test_old_quarantined_files_are_removed(path):
    for _ in range(6):
        SqliteStore(path).close()
        path.write_bytes(b"no database at all" * 100)
    SqliteStore(path).close()

    assert len(aside(path)) == database_files.MAX_QUARANTINED


def quarantined_at(path, time: str) -> Path:
    """Create a damaged file that was quarantined at this time."""
    made = Path(f"{path}.corrupt-{time}")
    made.write_bytes(b"earlier")
    return made


@pytest.mark.parametrize("year", ["2001", "2901"], ids=["before", "by a clock that was wrong"])
def test_a_newly_quarantined_file_is_kept_however_old_its_content(path, year):
    """A restored backup keeps its own time, while three other files were quarantined earlier."""
    SqliteStore(path).close()
    earlier = [quarantined_at(path, f"{year}0101T00000{second}Z") for second in range(3)]
    notes = quarantined_at(path, "notes")
    path.write_bytes(b"no database at all" * 100)
    os.utime(path, (1.0, 1.0))
    store = SqliteStore(path)
    with pytest.raises(StoreReset) as caught:
        store.get(A)
    store.close()

    (made,) = {*aside(path)} - {*earlier, notes}
    assert repr(str(made)) in str(caught.value)
    assert {*aside(path)} == {made, notes, *earlier[1:]}


def test_a_journal_is_not_replayed_into_the_next_file(path):
    """A quarantined file is renamed together with its journal."""
    store = SqliteStore(path)
    put(store, policy(body=b"of the old file"))
    assert Path(f"{path}-wal").stat().st_size
    rest = sqlite3.connect(path)  # prevents a checkpoint of the log when the store is closed
    rest.execute("SELECT 1 FROM policies").fetchall()
    rest.execute("DROP TABLE leases")
    with pytest.raises(StoreError):
        store.take(A, "x", 1.0, 1.0)

    assert store.get(A) is None
    rest.close()
    assert store.get(A) is None
    store.close()


# -- a file that cannot be written -----------------------------------------------------------------


def test_a_full_disk_is_a_store_error_and_reads_still_work(store):
    put(store, policy())
    writer = store._database._opened.writer
    writer.execute(f"PRAGMA max_page_count = {writer.execute('PRAGMA page_count').fetchone()[0]}")

    for _ in range(3):
        with pytest.raises(StoreError, match="full"):
            put(store, policy(B, body=random.Random(1).randbytes(250_000)))
        assert store.get(A) == policy()
    writer.execute("PRAGMA max_page_count = 100000")
    put(store, policy(B))
    assert store.get(B) == policy(B)


def test_a_read_only_file_is_a_store_error_and_reads_still_work(store):
    put(store, policy())
    store._database._opened.writer.execute("PRAGMA query_only = 1")

    with pytest.raises(StoreError, match="readonly"):
        put(store, policy(B))
    with pytest.raises(StoreError, match="readonly"):
        store.take(A, "x", 1000.0, 35.0)
    assert store.get(A) == policy()


def test_a_file_that_stays_locked_is_not_tried_for_a_while(store, rows, clock):
    """Only the first call waits for the lock."""
    store._database._breaker = Breaker(clock, lambda: 0.0)
    put(store, policy())
    store._database._opened.writer.execute("PRAGMA busy_timeout = 1")
    rows.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        put(store, policy(B))
    store._database._opened.writer.execute("PRAGMA busy_timeout = 60000")

    with pytest.raises(CircuitOpen, match=r"^could not be written: database is locked$"):
        put(store, policy(B))
    assert store.get(A) == policy()
    rows.execute("ROLLBACK")
    clock.advance(FIRST_PAUSE)
    put(store, policy(B))
    assert store.get(B) == policy(B)


class Watched:
    """A lock that sets an event when a thread tries to take it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.lock = threading.Lock()

    def acquire(self, timeout=-1):
        self.asked.set()
        return self.lock.acquire(timeout=timeout)

    def release(self):
        self.lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()


def test_a_call_that_waited_for_the_writer_does_not_repeat_a_recent_failure(store, clock):
    """Otherwise each queued call would wait for the locked file again."""
    store._database._breaker = Breaker(clock, lambda: 0.0)
    raised = []

    def write() -> None:
        try:
            put(store, policy())
        except StoreError as error:
            raised.append((type(error), str(error)))

    opened = store._database._opened
    opened.writing = Watched()
    second = threading.Thread(target=write)
    with opened.writing.lock:
        second.start()
        assert opened.writing.asked.wait(60)
        store._database._breaker.trip("could not be written: database is locked")
    second.join(60)

    assert raised == [(CircuitOpen, "could not be written: database is locked")]
    assert store.get(A) is None


def test_every_call_after_closing_is_a_store_error(path):
    store = SqliteStore(path)
    store.close()
    store.close()

    for work in (
        lambda: store.get(A),
        lambda: put(store, policy()),
        lambda: store.forget(A),
        lambda: list(store.origins()),
        lambda: store.take(A, "x", 1.0, 1.0),
        lambda: store.document(policy().document.sha256),
    ):
        with pytest.raises(StoreError, match="closed"):
            work()


# -- paths that cannot be used ---------------------------------------------------------------------


def refusal(path) -> str:
    for _ in range(2):  # a second attempt has the same result
        with pytest.raises(SettingsError) as caught:
            SqliteStore(path)
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert str(path)[:40] in sentence
    return sentence


def test_a_directory_is_refused(tmp_path):
    assert "name a writable file that no other program uses" in refusal(tmp_path)


def test_a_file_in_the_way_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "name a writable file that no other program uses" in refusal(
        tmp_path / "file" / "policies.sqlite"
    )


def test_a_directory_that_cannot_be_created_is_refused():
    refusal(Path("/proc/self/none/policies.sqlite"))


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "letter").write_text("Dear Sir or Madam, " * 100)
    assert "not a database" in refusal(tmp_path / "letter")
    assert (tmp_path / "letter").read_text().startswith("Dear Sir")


@pytest.mark.parametrize("version", [0, 1, 2, 99])
def test_a_foreign_database_is_refused_and_not_changed(tmp_path, version):
    path = tmp_path / "other.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE pages (x)")
    other.execute(f"PRAGMA user_version = {version}")
    other.commit()

    assert "another program" in refusal(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("pages",)]
    other.close()


@pytest.mark.parametrize("content", [b"", b"4711"], ids=["empty", "a process"])
def test_a_foreign_file_with_a_foreign_lock_is_refused(tmp_path, content):
    path, lock = tmp_path / "letter", tmp_path / "letter.lock"
    path.write_text("Dear Sir or Madam, " * 100)
    lock.write_bytes(content)
    refusal(path)

    assert path.read_text().startswith("Dear Sir")
    assert lock.read_bytes() == content
    assert sorted(tmp_path.iterdir()) == [path, lock]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_not_a_byte_of_a_foreign_database_is_changed(tmp_path, mode):
    """Nor is it switched to WAL mode, which its program may not expect."""
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute("CREATE TABLE pages (x)")
    before = path.read_bytes()
    refusal(path)

    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("version", [1, 2, 4, 99])
def test_another_layout_is_refused_and_kept(path, version):
    SqliteStore(path).close()
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {version}")
    other.close()

    assert (
        f"created by another version of robots_guard (layout {version}, this one uses 3):"
        " use that version, or name another file"
    ) in refusal(path)
    assert not aside(path)


def test_a_path_with_a_nul_is_refused(tmp_path):
    assert "null" in refusal(tmp_path / "a\0b")


# -- many processes --------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.renewal import begin
from robots_guard.origin import origin_of
from robots_guard.guard.stores.sqlite import SqliteStore

print("ready", flush=True)
sys.stdin.readline()
store = SqliteStore(Path(sys.argv[1]))
first, step = int(sys.argv[2]), int(sys.argv[3])
for at in range(first, 400, step):
    for host in ("a", "b", "c"):
        origin = origin_of(f"https://{host}.test")
        body = b"User-agent: *\\nDisallow: /%d\\n" % at
        store.put(begin(origin, None, "direct").next(Fetched(status=200, body=body), float(at)).policy, 400.0)
        stored = store.get(origin)
        assert stored is not None and stored.settled_at >= at, (host, at)
        assert stored.document.body == b"User-agent: *\\nDisallow: /%d\\n" % stored.settled_at
store.close()
"""


@pytest.mark.parametrize("processes", [2, 6])
def test_processes_can_open_a_file_concurrently(path, processes):
    """All processes create it at once and write concurrently; no write is lost, locked out or torn."""
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", CHILD, str(path), str(number), str(processes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(processes)
    ]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert (child.returncode, errors) == (0, b"")

    store = SqliteStore(path)
    assert [store.get(origin_of(f"https://{host}.test")).settled_at for host in "abc"] == [
        399.0
    ] * 3
    assert not aside(path)
    store.close()


def test_a_forked_child_opens_its_own_connections(store, path):
    put(store, policy())
    opened = store._database._opened
    assert in_a_fork(
        lambda: (
            put(store, policy(B))
            or (store.get(A) == policy() and store._database._opened is not opened)
        )
    )

    assert store.get(B) == policy(B)
    put(store, policy(at=1001.0))
    assert store.get(A).settled_at == 1001.0
