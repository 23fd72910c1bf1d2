"""Looking at a store: nothing is created, set aside or written, and what cannot be read is said not to be."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import threading

import pytest
from support.stores import A, policy, put

from robots_guard.errors import SettingsError, StoreError
from robots_guard.stores import look_at
from robots_guard.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "policies.sqlite"


@pytest.fixture
def door(path):
    made = SqliteStore(path)
    put(made, policy())
    yield made
    made.close()


def looking(path, **options):
    return look_at(f"sqlite:///{path}", **options)


def names(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_what_a_door_writes_meanwhile_is_seen(path):
    look = looking(path, insist=False)
    with pytest.raises(StoreError, match="is not there"):
        look.get(A)
    door = SqliteStore(path)
    assert look.get(A) is None
    put(door, policy())
    assert look.get(A) == policy()
    door.close()
    assert look.get(A) == policy()
    assert [*look.origins()] == [A]


def test_a_look_leaves_no_file_behind(door, path):
    door.close()
    before = names(path)
    look = looking(path)

    assert look.get(A) == policy()
    assert names(path) == before
    look.close()


def copied(path, *ends):
    """A copy of what a door has open: the file, its lock, and the journals of these ends."""
    copy = path.parent.with_name("copy") / path.name
    copy.parent.mkdir()
    for end in ("", ".lock", *ends):
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    return copy


def octets(path):
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def test_a_copy_with_its_log_and_index_is_read_and_left_as_it_is(door, path):
    copy = copied(path, "-wal", "-shm")
    before = octets(copy)

    assert looking(copy).get(A) == policy()
    assert octets(copy) == before


def test_a_copy_with_its_log_but_without_the_index_is_refused_and_left_as_it_is(door, path):
    """SQLite would create the index; without the log, what is read may be old, or torn."""
    copy = copied(path, "-wal")
    before = octets(copy)
    with pytest.raises(SettingsError, match="has a -wal without its -shm: copy that, too, or let a door open the file"):
        looking(copy)

    assert octets(copy) == before


def test_a_look_between_the_removal_of_the_index_and_that_of_the_log_waits(door, path):
    """As the last door removes them."""
    door.close()
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(b"folded in")
    removal = threading.Timer(0.05, log.unlink)
    removal.start()

    assert looking(path).get(A) == policy()
    removal.join()


def test_nothing_is_written(door, path):
    look = looking(path)
    with pytest.raises(StoreError, match="only looked at"):
        put(look, policy(at=2000.0))
    with pytest.raises(StoreError, match="only looked at"):
        look.forget(A)
    assert door.get(A) == policy()


def test_a_damaged_document_stays_for_somebody_to_look_at(door, path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as rows:
        rows.execute("UPDATE documents SET body = x'00'")
    with pytest.raises(StoreError, match="damaged"):
        looking(path).get(A)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as rows:
        assert rows.execute("SELECT body FROM documents").fetchall() == [(b"\0",)]


def test_a_missing_file_is_one_sentence_and_stays_missing(path):
    says = f"store: {str(path)!r} is not there: a door creates it, or name the doors' own with --store"
    with pytest.raises(SettingsError, match=f"^{re.escape(says)}$"):
        looking(path)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("beside", "says"),
    [(True, "is damaged (file is not a database) and left as it is"), (False, "is no policy store (file is not")],
)
def test_rubbish_is_left_as_it_is(path, beside, says):
    path.parent.mkdir()
    path.write_bytes(b"rubbish" * 1000)
    if beside:
        path.with_name("policies.sqlite.lock").write_text("robots_guard 1")
    before = names(path)
    with pytest.raises(SettingsError, match=re.escape(says)):
        looking(path)

    assert path.read_bytes() == b"rubbish" * 1000
    assert names(path) == before


def test_a_file_that_is_overwritten_or_removed_meanwhile_is_said_to_be(door, path):
    look = looking(path)
    door.close()
    path.write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreError, match="is damaged"):
        [*look.origins()]
    shutil.rmtree(path.parent)
    with pytest.raises(StoreError, match="is not there"):
        look.get(A)


@pytest.mark.parametrize(
    ("statement", "says"),
    [("PRAGMA user_version = 99", "made by another version"), ("DROP TABLE turns", "no such table: turns")],
)
def test_another_layout_is_refused_and_left(door, path, statement, says):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as rows:
        rows.execute(statement)
    with pytest.raises(SettingsError, match=says):
        looking(path)


def test_another_programs_database_is_refused(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "theirs.sqlite", isolation_level=None)) as rows:
        rows.execute("CREATE TABLE history (url)")
    with pytest.raises(SettingsError, match="a database of another program"):
        looking(tmp_path / "theirs.sqlite")
