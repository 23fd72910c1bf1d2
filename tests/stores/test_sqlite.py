"""The SQLite store: what is particular to a file that others use too, and may have damaged."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robots_guard.core import codec
from robots_guard.core.access import Fetched
from robots_guard.core.renewal import begin
from robots_guard.errors import SettingsError, StoreError
from robots_guard.origin import origin_of
from robots_guard.stores.sqlite import SqliteStore

A = origin_of("https://a.test")
B = origin_of("https://b.test")


def policy(origin=A, at=1000.0, body=b"User-agent: *\nDisallow: /x\n"):
    return begin(origin, None, "direct").next(Fetched(status=200, body=body), at).policy


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
    """Another connection, that writes what it likes."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def test_what_was_put_is_there_after_closing(path):
    first = SqliteStore(path)
    first.put(policy())
    first.close()
    second = SqliteStore(path)

    assert second.get(A) == policy()
    second.close()


def test_the_file_is_in_wal_mode_and_its_directory_private(rows, path):
    assert rows.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert path.parent.stat().st_mode & 0o777 == 0o700


def put_value(rows, value, origin=A):
    rows.execute("INSERT OR REPLACE INTO policies VALUES (?, ?, ?)", (str(origin), 1000.0, value))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"RG1\n",
        b"\0" * 100,
        codec.encode(policy())[:-1],
        codec.encode(policy(B)),
        b"RG0\n" + codec.encode(policy())[4:],
        "text",
        7,
        2.5,
        b"x" * 2_000_000,
    ],
    ids=["empty", "bare", "zeros", "cut", "another origin's", "another version's", "text", "number", "real", "huge"],
)
def test_a_damaged_or_foreign_value_is_a_miss_and_can_be_replaced(store, rows, value):
    put_value(rows, value)

    assert store.get(A) is None
    store.put(policy())
    assert store.get(A) == policy()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(place=st.integers(0, len(codec.encode(policy())) * 8 - 1))
def test_a_flipped_bit_is_a_miss(store, rows, place):
    value = bytearray(codec.encode(policy()))
    value[place // 8] ^= 1 << place % 8
    put_value(rows, bytes(value))

    assert store.get(A) in (None, policy())


def test_keys_that_are_no_origins_are_not_listed(store, rows):
    store.put(policy())
    rows.executemany(
        "INSERT INTO policies VALUES (?, 1, x'00')", [("nonsense",), ("ftp://a.test",), ("http://a b",), (b"\xff",)]
    )

    assert store.origins() == [A]


def test_reads_do_not_wait_for_anybody_who_writes(store, rows):
    store.put(policy())
    rows.execute("BEGIN EXCLUSIVE")
    rows.execute("DELETE FROM policies")
    writing = threading.Thread(target=store.put, args=(policy(at=2000.0),))
    writing.start()

    assert store.get(A) == policy()
    assert writing.is_alive()
    rows.execute("ROLLBACK")
    writing.join(10)
    assert store.get(A).settled_at == 2000.0


def test_what_fails_later_is_a_store_error(store, rows):
    rows.execute("DROP TABLE policies")

    for work in (
        lambda: store.get(A),
        lambda: store.put(policy()),
        lambda: store.forget(A),
        store.origins,
    ):
        with pytest.raises(StoreError, match="no such table"):
            work()


def test_a_full_disk_is_a_store_error_and_reading_goes_on(store):
    store.put(policy())
    store._writer.execute(f"PRAGMA max_page_count = {store._writer.execute('PRAGMA page_count').fetchone()[0]}")

    with pytest.raises(StoreError, match="full"):
        store.put(policy(B, body=bytes(range(256)) * 1000))
    assert store.get(A) == policy()


def test_after_closing_all_is_a_store_error(path):
    store = SqliteStore(path)
    store.close()
    store.close()

    with pytest.raises(StoreError):
        store.get(A)
    with pytest.raises(StoreError):
        store.put(policy())


# -- paths that cannot be used ------------------------------------------------------------------------------


def refusal(path) -> str:
    with pytest.raises(SettingsError) as caught:
        SqliteStore(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(path)[:40] in sentence
    return sentence


def test_a_directory_is_refused(tmp_path):
    assert "name a writable file of its own" in refusal(tmp_path)


def test_a_file_in_the_way_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "name a writable file of its own" in refusal(tmp_path / "file" / "policies.sqlite")


def test_a_directory_that_cannot_be_made_is_refused():
    from pathlib import Path

    refusal(Path("/proc/self/none/policies.sqlite"))


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "letter").write_text("Dear Sir or Madam, " * 100)
    assert "not a database" in refusal(tmp_path / "letter")
    assert (tmp_path / "letter").read_text().startswith("Dear Sir")


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()

    assert "another program" in refusal(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    other.close()


def test_another_versions_layout_is_refused(tmp_path):
    path = tmp_path / "new.sqlite"
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()

    assert "another version (99)" in refusal(path)


def test_a_path_with_a_nul_is_refused(tmp_path):
    assert "null" in refusal(tmp_path / "a\0b")


# -- two processes ------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from robots_guard.core.access import Fetched
from robots_guard.core.renewal import begin
from robots_guard.origin import origin_of
from robots_guard.stores.sqlite import SqliteStore

print("ready", flush=True)
sys.stdin.readline()
store = SqliteStore(Path(sys.argv[1]))
first, step = int(sys.argv[2]), int(sys.argv[3])
for at in range(first, 400, step):
    for host in ("a", "b", "c"):
        origin = origin_of(f"https://{host}.test")
        body = b"User-agent: *\\nDisallow: /%d\\n" % at
        store.put(begin(origin, None, "direct").next(Fetched(status=200, body=body), float(at)).policy)
        held = store.get(origin)
        assert held is not None and held.settled_at >= at, (host, at)
        assert held.document.body == b"User-agent: *\\nDisallow: /%d\\n" % held.settled_at
store.close()
"""


@pytest.mark.parametrize("processes", [2, 6])
def test_processes_share_a_file_they_open_at_once(path, processes):
    """All create it at the same moment and write against each other: nothing is lost, locked out or torn."""
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
    assert [store.get(origin_of(f"https://{host}.test")).settled_at for host in "abc"] == [399.0] * 3
    store.close()
