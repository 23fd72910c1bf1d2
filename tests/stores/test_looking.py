"""Stores opened for reading only: nothing is created, quarantined or written, and unreadable files
are reported.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import threading

import pytest
from support.stores import A, policy, put

from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.stores import look_at, open_store
from robots_guard.guard.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "policies.sqlite"


@pytest.fixture
def integration(path):
    made = SqliteStore(path)
    put(made, policy())
    yield made
    made.close()


def looking(path, **options):
    return look_at(f"sqlite:///{path}", **options)


def names(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_later_writes_of_an_integration_are_seen(path):
    look = looking(path, insist=False)
    with pytest.raises(StoreError, match="does not exist"):
        look.get(A)
    integration = SqliteStore(path)
    assert look.get(A) is None
    put(integration, policy())
    assert look.get(A) == policy()
    integration.close()
    assert look.get(A) == policy()
    assert [*look.origins()] == [A]


def test_reading_leaves_no_file_behind(integration, path):
    integration.close()
    before = names(path)
    look = looking(path)

    assert look.get(A) == policy()
    assert names(path) == before
    look.close()


def copied(path, *ends):
    """Copy the files that an integration has open: the database, its lock, and the journals with
    these suffixes.
    """
    copy = path.parent.with_name("copy") / path.name
    copy.parent.mkdir()
    for end in ("", ".lock", *ends):
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    return copy


def contents(path):
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def test_a_copy_with_its_log_and_index_is_read_and_not_changed(integration, path):
    copy = copied(path, "-wal", "-shm")
    before = contents(copy)

    assert looking(copy).get(A) == policy()
    assert contents(copy) == before


def test_a_copy_with_its_log_but_without_the_index_is_refused_and_not_changed(integration, path):
    """SQLite would create the index; without the log, the data read may be old or inconsistent."""
    copy = copied(path, "-wal")
    before = contents(copy)
    with pytest.raises(
        SettingsError,
        match="has a -wal without its -shm: copy that too, or let an integration open the file",
    ):
        looking(copy)

    assert contents(copy) == before


def test_reading_waits_between_the_removal_of_the_index_and_of_the_log(integration, path):
    """The last integration to close the file removes them in this order."""
    integration.close()
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(b"folded in")
    removal = threading.Timer(0.05, log.unlink)
    removal.start()

    assert looking(path).get(A) == policy()
    removal.join()


def test_nothing_is_written(integration, path):
    look = looking(path)
    with pytest.raises(StoreError, match="for reading only"):
        put(look, policy(at=2000.0))
    with pytest.raises(StoreError, match="for reading only"):
        look.forget(A)
    assert integration.get(A) == policy()


def test_a_damaged_document_is_not_removed(integration, path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as rows:
        rows.execute("UPDATE documents SET body = x'00'")
    with pytest.raises(StoreError, match="damaged"):
        looking(path).get(A)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as rows:
        assert rows.execute("SELECT body FROM documents").fetchall() == [(b"\0",)]


def test_a_missing_file_is_reported_and_not_created(path):
    message = (
        f"store: {str(path)!r} does not exist: an integration creates it;"
        " or name the integrations' store with --store"
    )
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}$"):
        looking(path)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        (True, "is damaged (file is not a database) and was not changed"),
        (False, "is not a policy store (file is not"),
    ],
)
def test_a_damaged_file_is_not_changed(path, beside, message):
    path.parent.mkdir()
    path.write_bytes(b"rubbish" * 1000)
    if beside:
        path.with_name("policies.sqlite.lock").write_text("robots_guard 1")
    before = names(path)
    with pytest.raises(SettingsError, match=re.escape(message)):
        looking(path)

    assert path.read_bytes() == b"rubbish" * 1000
    assert names(path) == before


def test_a_file_that_is_overwritten_or_removed_meanwhile_is_reported(integration, path):
    look = looking(path)
    integration.close()
    path.write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreError, match="is damaged"):
        [*look.origins()]
    shutil.rmtree(path.parent)
    with pytest.raises(StoreError, match="does not exist"):
        look.get(A)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA user_version = 99", "created by another version"),
        ("DROP TABLE turns", "no such table: turns"),
    ],
)
def test_another_layout_is_refused_and_not_changed(integration, path, statement, message):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as rows:
        rows.execute(statement)
    with pytest.raises(SettingsError, match=message):
        looking(path)


def test_another_programs_database_is_refused(tmp_path):
    with contextlib.closing(
        sqlite3.connect(tmp_path / "foreign.sqlite", isolation_level=None)
    ) as rows:
        rows.execute("CREATE TABLE history (url)")
    with pytest.raises(SettingsError, match="a database of another program"):
        looking(tmp_path / "foreign.sqlite")


@pytest.mark.parametrize("open_it", [look_at, open_store])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(tmp_path, make, open_it):
    make(tmp_path / "policies.sqlite")

    with pytest.raises(SettingsError, match="is not a regular file"):
        open_it(f"sqlite:///{tmp_path}/policies.sqlite")
