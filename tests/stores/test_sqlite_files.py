"""The SQLite store when its files are removed, replaced, truncated or damaged under running
processes.

In each case no process dies or hangs, none gets another origin's policy, and the store recovers or
says why it cannot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.fleet import Member, policy_for
from support.stores import A, B, in_a_fork, policy, put
from support.turns import wait_of
from support.waiting import eventually

from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.stores import database
from robots_guard.guard.stores.database import Database, ReadOnlyDatabase
from robots_guard.guard.stores.database_files import Connection, System, connect
from robots_guard.guard.stores.sqlite import SqliteStore

# These tests reach into `_database`: its locks and connections, which a fork must not inherit, have no
# public face.


@pytest.fixture(scope="module")
def members():
    """Three processes, shared by the tests because starting them is slow."""
    running = [Member() for _ in range(3)]
    yield running
    for member in running:
        member.kill()


@pytest.fixture
def fleet(members):
    """The three processes; any that an earlier test left dead or busy is replaced."""
    for number, member in enumerate(members):
        if not member.is_ready:
            member.kill()
            members[number] = Member()
    return members


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policies.sqlite"


@pytest.fixture
def beside(path):
    return lambda end: Path(f"{path}{end}")


@pytest.fixture
def store(path):
    made = SqliteStore(path)
    put(made, policy())
    yield made
    made.close()


def all_of(members, command, **arguments):
    for member in members:
        member.send(command, **arguments)
    return [member.receive() for member in members]


def work(members, calls=60):
    for number, member in enumerate(members):
        member.send("work", calls=calls, seed=number)
    return members


# -- what a careless program does to the files -----------------------------------------------------


def unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def rename(path: Path) -> None:
    if path.exists():
        path.rename(f"{path}.moved-{time.monotonic_ns()}")


def swap(path: Path) -> None:
    """Move another intact store over this one, as when a backup is restored."""
    other = path.with_name("other")
    made = SqliteStore(other)
    put(made, policy_for(A, 500.0))
    made.close()
    other.replace(path)


def cut(length: float):
    def cut_to(path: Path) -> None:
        if path.exists():
            os.truncate(path, int(path.stat().st_size * length))

    return cut_to


def scribble(path: Path) -> None:
    """Overwrite some pages with random bytes."""
    if not path.exists() or path.stat().st_size < 4096:
        return
    chance = random.Random(7)
    with path.open("r+b") as file:
        for _ in range(4):
            file.seek(chance.randrange(path.stat().st_size // 4096) * 4096)
            file.write(chance.randbytes(4096))


def enlarge(path: Path) -> None:
    if path.exists():
        os.truncate(path, 1 << 40)


def everything(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        unlink(Path(f"{path}{end}"))


def on(end: str, attack):
    return lambda path: attack(Path(f"{path}{end}"))


ATTACKS = {
    "the file is deleted": unlink,
    "the file is renamed": rename,
    "the file is replaced": swap,
    "all three are deleted": everything,
    "the file is emptied": cut(0),
    "the file is halved": cut(0.5),
    "pages are overwritten": scribble,
    "the file is huge": enlarge,
    "the log is deleted": on("-wal", unlink),
    "the log is emptied": on("-wal", cut(0)),
    "the log is halved": on("-wal", cut(0.5)),
    "the index is deleted": on("-shm", unlink),
    "the lock is deleted": on(".lock", unlink),
    "the link is deleted": on(".link", unlink),
}
AT_REST = {
    **ATTACKS,
    "the index is emptied": on("-shm", cut(0)),
    "the index is halved": on("-shm", cut(0.5)),
}


def assert_heals(fleet, path):
    """Check that, after one round that finds the damage, all processes work on one file without
    errors.
    """
    for member in fleet:  # a close may write by a damaged index, so that all come first
        member.call("close")
    for member in fleet:  # a start that found the damage was refused
        assert member.call("open", path=str(path)) == ""
        member.call("work", calls=30, seed=1)
    for _ in range(3):
        results = [member.receive() for member in work(fleet)]
    assert results == [{"failures": 0, "last": ""}] * 3
    all_of(fleet, "close")


@pytest.mark.parametrize("attack", AT_REST.values(), ids=AT_REST)
def test_attacks_between_two_calls(fleet, path, attack):
    """Every process has the file open, and none is using it."""
    first, second, late = fleet
    for member in (first, second):
        assert member.call("open", path=str(path)) == ""
    for _ in range(3):
        for member in work((first, second)):
            member.receive()
        attack(path)
    late.call("open", path=str(path))
    assert_heals(fleet, path)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_attacks_during_calls(fleet, path, attack):
    """Two processes work while a third opens and closes the store.

    Truncating the index during a call is not among the attacks.
    """
    first, second, late = fleet
    for member in (first, second):
        assert member.call("open", path=str(path)) == ""
    for _ in range(4):
        working = work((first, second), calls=100)
        time.sleep(0.01)
        attack(path)
        late.call("close")
        late.call("open", path=str(path))
        for member in working:
            member.receive()
    assert_heals(fleet, path)


# -- what stands in the file's place ---------------------------------------------------------------


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_nowhere(path: Path) -> None:
    path.symlink_to("/proc/self/none/at/all")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("stand_in", [directory, pipe, link_to_nowhere, link_to_itself])
def test_a_non_regular_file_is_an_error_until_it_is_removed(fleet, path, stand_in):
    member = fleet[0]
    assert member.call("open", path=str(path)) == ""
    member.call("work", calls=20, seed=1)
    path.unlink()
    stand_in(path)

    answer = member.call("work", calls=10, seed=1)
    assert answer["failures"] == 10
    assert answer["last"].startswith("could not be ")
    assert "name a writable file that no other program uses" in fleet[1].call(
        "open", path=str(path)
    )
    path.rmdir() if path.is_dir() else path.unlink()
    assert_heals(fleet, path)


def test_a_link_to_another_store_is_followed(store, path, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "other.sqlite"
    other = SqliteStore(elsewhere)
    put(other, policy(B))
    path.unlink()
    path.symlink_to(elsewhere)

    assert store.get(B) == policy(B)
    assert store.get(A) is None
    other.close()


def test_an_immutable_file_is_still_read(fleet, path):
    member = fleet[0]
    assert member.call("open", path=str(path)) == ""
    member.call("work", calls=200, seed=1)
    if (
        shutil.which("chattr") is None
        or subprocess.run(["chattr", "+i", path], check=False).returncode
    ):
        pytest.skip("this file system, or this user, cannot make a file immutable")
    try:
        member.call("work", calls=60, seed=1)
        member.call("close")
        refused = member.call("open", path=str(path))
        assert "name a writable file that no other program uses" in refused or not refused
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    assert_heals(fleet, path)


def test_a_full_disk_is_survived(path):
    """Simulated by a limit on the file size."""
    member = Member()
    try:
        assert member.call("open", path=str(path)) == ""
        assert member.call("work", calls=20, seed=1)["failures"] == 0
        member.call("limit", size=Path(f"{path}-wal").stat().st_size)
        answer = member.call("work", calls=100, seed=2)
        assert 0 < answer["failures"] < 100
        assert answer["last"].startswith("could not be written")
        member.call("limit", size=1 << 30)
        assert member.call("work", calls=100, seed=3)["failures"] == 0
    finally:
        member.kill()


# -- journals, and the files to which they belong --------------------------------------------------


def test_a_new_file_is_never_opened_beside_the_journals_of_a_lost_one(store, path, beside):
    """Otherwise the first process to open it truncates an index that other processes map, which
    kills them.
    """
    wal, shm = beside("-wal").stat().st_ino, beside("-shm").stat().st_ino
    path.unlink()
    second = SqliteStore(path)

    assert beside("-wal").stat().st_ino != wal
    assert beside("-shm").stat().st_ino != shm
    assert store.get(A) is None
    assert [kept.stat().st_ino for kept in path.parent.glob("*.corrupt-*-wal")] == [wal]
    second.close()


def test_a_file_moved_over_another_is_never_opened_beside_its_journals(store, path, beside):
    shm = beside("-shm").stat().st_ino
    swap(path)
    second = SqliteStore(path)

    assert second.get(A) == policy_for(A, 500.0)
    assert store.get(A) == policy_for(A, 500.0)
    assert beside("-shm").stat().st_ino != shm
    second.close()


def test_a_file_whose_index_was_truncated_is_quarantined_and_not_touched_again(fleet, path, beside):
    member = fleet[0]
    assert member.call("open", path=str(path)) == ""
    member.call("work", calls=20, seed=1)
    os.truncate(beside("-shm"), 0)

    answer = member.call("work", calls=1, seed=1)
    assert (
        "its -wal or -shm was removed, replaced or truncated by another program" in answer["last"]
    )
    assert "recreated; the old file is" in answer["last"]
    assert member.call("work", calls=20, seed=1)["failures"] == 0
    os.truncate(beside("-shm"), 0)
    assert member.call("close") == ""


def test_journals_left_by_a_killed_process_are_used(path):
    """They belong to the file, so nothing is moved away."""
    member = Member()
    assert member.call("open", path=str(path)) == ""
    member.call("work", calls=40, seed=1)
    member.kill()
    assert Path(f"{path}-wal").stat().st_size
    store = SqliteStore(path)

    assert [*store.origins()]
    assert not [*path.parent.glob("*.corrupt-*")]
    store.close()


def restored(path) -> SqliteStore:
    """Return a store whose processes were killed and whose file was replaced by another store's
    backup.
    """
    backup = path.with_name("backup")
    made = SqliteStore(backup)
    put(made, policy(B))
    made.close()
    member = Member()
    assert member.call("open", path=str(path)) == ""
    member.call("work", calls=40, seed=1)
    member.kill()
    data, number = backup.read_bytes(), path.stat().st_ino
    path.unlink()
    path.write_bytes(data)
    for other in range(200):  # most file systems assign the lowest free number
        if path.stat().st_ino == number:
            break
        path.rename(path.with_name(f"other-{other}"))
        path.write_bytes(data)
    return SqliteStore(path)


def test_a_backup_is_not_opened_beside_the_journals_of_a_deleted_file(path):
    """Many file systems reuse the inode number of a deleted file for the next one."""
    store = restored(path)

    assert [*store.origins()] == [B]
    assert store.get(B) == policy(B)
    assert len([*path.parent.glob("policies.sqlite.corrupt-*-wal")]) == 1
    store.close()


def test_an_inode_number_is_not_reused_until_the_file_is_replaced(store, path, beside):
    first = path.stat().st_ino
    assert beside(".link").stat().st_ino == first
    path.unlink()
    assert beside(".link").stat().st_ino == first
    store.get(A)

    assert beside(".link").stat().st_ino == path.stat().st_ino != first


def test_a_file_system_without_hard_links_works(path, beside):
    def link(old, new):
        raise PermissionError(1, "Operation not permitted")

    store = SqliteStore(path, Database(path, System(link=link)))
    put(store, policy())
    assert store.get(A) == policy()
    assert not beside(".link").exists()
    store.close()


# -- forks -----------------------------------------------------------------------------------------


def test_a_forked_child_takes_its_own_locks(store, path):
    """SQLite counts the locks that a parent held as held by the child too, which has none: then any
    other process may believe to be alone with the file.
    """
    ready, go = os.pipe(), os.pipe()

    def child() -> bool:
        store.get(A)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        return store.get(A) == policy()

    def parent() -> None:
        os.read(ready[0], 1)
        store.close()
        alone = subprocess.run(
            [sys.executable, "-c", ALONE, path], capture_output=True, text=True, check=True
        )
        found.append(alone.stdout.strip())
        os.write(go[1], b"x")

    found: list[str] = []
    thread = threading.Thread(target=parent)
    thread.start()
    assert in_a_fork(child)
    thread.join(60)
    assert found == ["database is locked"]
    for descriptor in (*ready, *go):
        os.close(descriptor)


ALONE = """
import sqlite3, sys
try:
    print(sqlite3.connect(sys.argv[1], timeout=0).execute("PRAGMA journal_mode = DELETE").fetchone())
except sqlite3.OperationalError as error:
    print(error)
"""


LOCKS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


def test_a_fork_interrupts_a_call_that_waits_for_another_process(store, path, tmp_path):
    """Child and parent then request the same turn, and one of them gets it."""
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert locker.stdout.readline() == b"locked\n"
    waits = []
    thread = threading.Thread(target=lambda: waits.append(reserved(store)))
    thread.start()
    eventually(store._database._opened.writing.locked)

    def child() -> bool:
        is_closed = not has_open(path)
        os.write(locker.stdin.fileno(), b"go on\n")
        (tmp_path / "child").write_text(str(reserved(store)))
        return is_closed

    assert in_a_fork(child)
    thread.join(60)
    locker.communicate()
    assert sorted([*waits, float((tmp_path / "child").read_text())]) == [
        0.0,
        pytest.approx(30.0, abs=10.0),
    ]


def has_open(path) -> bool:
    """Whether this process has the file or its journals open."""
    names = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    return any(name.startswith(str(path)) and ".lock" not in name for name in names)


def reserved(store) -> float:
    return wait_of(store.reserve(B, 30.0, lambda: 1000.0, str(os.getpid())))


def test_a_fork_interrupts_a_call_that_waits_for_the_lock(path):
    held, waiting = [], threading.Event()

    def flock(descriptor, operation):
        if held:
            waiting.set()
            raise BlockingIOError("held")
        fcntl.flock(descriptor, operation)

    store = SqliteStore(path, Database(path, System(flock=flock)))
    held.append(True)
    path.unlink()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(outcome(lambda: store.get(A))))
    thread.start()
    assert waiting.wait(60)

    assert in_a_fork(
        lambda: not has_open(path) and (held.clear() or outcome(lambda: store.get(A)) is None)
    )
    held.clear()
    thread.join(60)
    assert answers == [None]
    store.close()


@contextlib.contextmanager
def held_by_a_thread(lock):
    """Let a hanging thread hold the lock until the event is set or the block ends."""
    begun, ending = threading.Event(), threading.Event()

    def hang() -> None:
        with lock:
            begun.set()
            ending.wait(60)

    thread = threading.Thread(target=hang)
    thread.start()
    assert begun.wait(60)
    yield ending
    ending.set()
    thread.join(60)


@pytest.fixture
def hanging(store):
    """A hanging call that holds the writer."""
    with held_by_a_thread(store._database._opened.writing) as ending:
        yield ending


FORKED = "only a newly started process can open it"


def is_refused(store) -> bool:
    return FORKED in str(outcome(lambda: store.get(A)))


def test_a_forked_child_does_not_open_a_file_that_its_parent_could_not_close(store, hanging):
    """SQLite would mistake the parent's locks for the child's, even in a store that the child opens
    itself.
    """

    def child() -> bool:
        with pytest.raises(SettingsError, match=FORKED):
            SqliteStore(store.path)
        with pytest.raises(StoreError, match=FORKED):
            SqliteStore(store.path, ReadOnlyDatabase(store.path, must_exist=False)).get(A)
        SqliteStore(store.path.with_name("another")).close()
        return is_refused(store) and in_a_fork(lambda: is_refused(store))

    assert in_a_fork(child)
    assert store.get(A) == policy()


def test_a_file_that_was_closed_can_be_opened_by_the_next_child(store, hanging):
    assert in_a_fork(lambda: is_refused(store))
    hanging.set()
    eventually(lambda: in_a_fork(lambda: store.get(A) == policy()))


def test_a_forked_child_does_not_open_a_file_that_its_parent_is_opening(store):
    """A thread of the parent hangs while opening it."""
    with held_by_a_thread(store._database._reopening.lock):
        assert in_a_fork(lambda: is_refused(store))

    assert store.get(A) == policy()


@pytest.fixture
def opening(path):
    """A thread that opens the store and holds its lock until the event is set."""
    begun, ending, made = threading.Event(), threading.Event(), []

    def link(old, new):
        begun.set()
        ending.wait(60)
        os.link(old, new)

    thread = threading.Thread(
        target=lambda: made.append(SqliteStore(path, Database(path, System(link=link))))
    )
    thread.start()
    assert begun.wait(60)
    yield ending
    ending.set()
    thread.join(60)
    assert made[0].get(A) is None
    made[0].close()


def has_its_lock(path) -> bool:
    return any(os.path.realpath(each) == f"{path}.lock" for each in Path("/proc/self/fd").iterdir())


def test_a_fork_waits_for_a_store_that_is_being_opened_for_the_first_time(opening, path):
    threading.Timer(0.2, opening.set).start()

    assert in_a_fork(
        lambda: not has_open(path) and not has_its_lock(path) and SqliteStore(path).get(A) is None
    )


def test_a_forked_child_does_not_hold_the_lock_of_a_store_whose_opening_hangs(
    opening, path, monkeypatch
):
    """Otherwise no other process could open the store while the child lives."""
    monkeypatch.setattr(database, "CLOSING", 0.1)

    def child() -> bool:
        with pytest.raises(SettingsError, match=FORKED):
            SqliteStore(path)
        return not has_its_lock(path)

    assert in_a_fork(child)


def test_a_fork_interrupts_the_first_opening_of_a_store_that_waits_for_its_lock(path):
    held, waiting, made = [True], threading.Event(), []

    def flock(descriptor, operation):
        if held:
            waiting.set()
            raise BlockingIOError("held")
        fcntl.flock(descriptor, operation)

    thread = threading.Thread(
        target=lambda: made.append(SqliteStore(path, Database(path, System(flock=flock))))
    )
    thread.start()
    assert waiting.wait(60)
    assert in_a_fork(lambda: not has_its_lock(path))
    held.clear()
    thread.join(60)

    assert made[0].get(A) is None
    made[0].close()


# -- a call that comes between ---------------------------------------------------------------------


def fork(_store) -> None:
    assert in_a_fork(lambda: True)


def delete(store) -> None:
    store.path.unlink()
    store.get(A)  # which opens a new file


@pytest.fixture
def call_between(store, monkeypatch):
    """Make a call in another thread, and run a function after the call checked the files and before
    it locked one.
    """
    looked, go_on = threading.Event(), threading.Event()
    is_current = database._Opened.is_current

    def held_up(opened):
        answer = is_current(opened)
        if threading.current_thread().name == "held up" and not looked.is_set():
            looked.set()
            go_on.wait(60)
        return answer

    def run(call, between):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(outcome(call)), name="held up")
        thread.start()
        assert looked.wait(60)
        between(store)
        go_on.set()
        thread.join(60)
        return answers

    monkeypatch.setattr(database._Opened, "is_current", held_up)
    return run


def outcome(call):
    try:
        return call()
    except StoreError as error:
        return str(error)


@pytest.mark.parametrize("between", [fork, delete])
def test_a_call_retries_when_another_thread_closes_its_connection(store, call_between, between):
    assert call_between(lambda: wait_of(store.reserve(A, 2.0, lambda: 1000.0, "x")), between) == [
        0.0
    ]
    assert wait_of(store.reserve(A, 2.0, lambda: 1000.0, "y")) >= 2.0


@pytest.mark.parametrize("between", [fork, delete])
def test_a_read_retries_when_another_thread_closes_its_connection(store, call_between, between):
    assert call_between(lambda: store.get(B), between) == [None]


def test_a_call_fails_when_another_thread_closes_the_store(store, call_between):
    assert call_between(lambda: store.get(A), SqliteStore.close) == ["is closed"]


def test_calls_all_succeed_while_the_process_forks_and_the_file_is_deleted(store):
    answers, ended = [], threading.Event()

    def work(origin) -> None:
        while not ended.is_set():
            answers.append(outcome(lambda: store.last_turn(origin)))

    threads = [threading.Thread(target=work, args=(origin,)) for origin in (A, B)]
    for thread in threads:
        thread.start()
    for between in (fork, lambda store: store.path.unlink(missing_ok=True)) * 15:
        between(store)
        time.sleep(0.01)
    ended.set()
    for thread in threads:
        thread.join(60)

    assert not [answer for answer in answers if isinstance(answer, str)]


class Deleting(Connection):
    """A connection that deletes its file before one of the statements of all connections."""

    statements_left, file = 0, Path()

    def execute(self, sql, parameters=(), /):
        Deleting.statements_left -= 1
        if Deleting.statements_left == 0:
            Deleting.file.unlink()
        return super().execute(sql, parameters)

    @classmethod
    def connect(cls, path):
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=cls)


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_that_is_deleted_at_any_step_of_its_opening_is_created_again(path, exists):
    Deleting.file = path
    for step in range(1, 100):
        path.unlink(missing_ok=True)
        if exists:
            SqliteStore(path).close()
        Deleting.statements_left = step
        opened = SqliteStore(path, Database(path, System(connect=Deleting.connect)))
        is_deleted, Deleting.statements_left = Deleting.statements_left <= 0, 0
        assert opened.get(A) is None
        opened.close()
        if not is_deleted:
            return
    pytest.fail("the last step was not reached")


# -- the lock, and ends ----------------------------------------------------------------------------


def test_a_lock_that_is_deleted_while_it_is_held_is_recreated(store, beside):
    files = store._database._files
    with files.locked():
        beside(".lock").unlink()
        with files.locked() as second:
            assert not second.marks_a_store
            assert beside(".lock").exists()
    with files.locked() as third:
        assert not third.marks_a_store
    store.path.unlink()
    store.get(A)
    with files.locked() as fourth:
        assert fourth.marks_a_store


def started_while_another_start_fails(path) -> list[str]:
    """Open two stores at once, so that the second waits for the lock of the first.

    Returns both outcomes.
    """
    is_in, is_waited_for = threading.Event(), threading.Event()

    def connect_late(there):
        is_in.set()
        assert is_waited_for.wait(60)
        return connect(there)

    def flock(descriptor, operation):
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            is_waited_for.set()
            raise

    def start(system) -> None:
        try:
            Database(path, system).close()
        except SettingsError as error:
            answers.append(str(error))
        else:
            answers.append("opened")

    answers: list[str] = []
    first = threading.Thread(target=start, args=(System(connect=connect_late),))
    first.start()
    assert is_in.wait(60)
    start(System(flock=flock))
    first.join(60)
    return answers


def test_a_foreign_database_is_refused_by_concurrent_starts(path):
    """The second start waits for a lock that the first creates, and removes after refusing the
    file.
    """
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE pages (x)")
    for answer in started_while_another_start_fails(path):
        assert "a database of another program" in answer
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("pages",)]


def test_a_foreign_text_file_is_refused_by_concurrent_starts(path):
    path.write_text("Dear Sir or Madam, " * 100)
    for answer in started_while_another_start_fails(path):
        assert "not a database" in answer
    assert path.read_text().startswith("Dear Sir")
    assert [*path.parent.iterdir()] == [path]


def test_a_lock_that_is_not_released_is_an_error_after_a_while(store, path):
    """With a simulated clock."""
    clock = [0.0]
    system = System(
        monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )
    with (
        store._database._files.locked(),
        pytest.raises(SettingsError, match="temporarily unavailable"),
    ):
        Database(path, system)

    assert 5.0 < clock[0] < 6.0


def test_a_store_whose_lock_is_not_released_is_not_tried_for_a_while(path):
    clock = [0.0]
    refused = []

    def flock(descriptor, operation):
        if refused:
            raise BlockingIOError("held")
        fcntl.flock(descriptor, operation)

    system = System(
        monotonic=lambda: clock[0],
        sleep=lambda s: clock.__setitem__(0, clock[0] + s),
        flock=flock,
        busy=1.0,
    )
    database = Database(path, system)
    refused.append(True)
    path.unlink()
    for _ in range(3):
        with pytest.raises(StoreError), database.reading():
            pass
    assert clock[0] < 2.0  # the first call waited, the others did not
    refused.clear()
    clock[0] += 60.0
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM policies").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("name", ["stat", "open", "flock", "rename"])
def test_a_call_that_fails_is_a_store_error_and_heals(path, name):
    failing = []

    def call(*arguments):
        if failing:
            raise OSError(5, "Input/output error")
        return getattr(System(), name)(*arguments)

    database = Database(path, System(**{name: call}))
    with database.writing() as connection:
        connection.execute("DROP TABLE turns")
    failing.append(True)
    with pytest.raises(StoreError, match=r"Input/output error"), database.reading() as connection:
        connection.execute("SELECT * FROM turns")
    failing.clear()
    for _ in range(2):
        try:
            with database.reading() as connection:
                connection.execute("SELECT * FROM turns")
        except StoreError as error:
            message = str(error)
    assert "recreated" in message
    database.close()


@pytest.mark.parametrize("what", ["reading", "writing"])
def test_closing_does_not_wait_forever(path, what):
    """Even if a call hangs."""
    store = SqliteStore(path)
    ending, begun = threading.Event(), threading.Event()

    def hang() -> None:
        with getattr(store._database, what)():
            begun.set()
            ending.wait(60)

    hanging = threading.Thread(target=hang)
    hanging.start()
    assert begun.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert hanging.is_alive()
    ending.set()
    hanging.join(60)
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.get(A)


def test_a_connection_is_closed_once(path):
    """A second close completes what a hanging call prevented in the first."""
    store = SqliteStore(path)
    opened = store._database._opened
    with opened.reading:
        store.close()
        assert opened.writer.execute("SELECT 1").fetchone() == (1,)
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        opened.writer.execute("SELECT 1")
