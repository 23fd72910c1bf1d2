"""The SQLite store when its files are removed, replaced, cut short or damaged under running processes.

For each: no process dies or hangs, none is given another origin's policy, and the store heals or says why not.
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
from support.fleet import Member, held_for
from support.stores import A, B, in_a_fork, policy, put

from robots_guard.errors import SettingsError, StoreError
from robots_guard.stores import database
from robots_guard.stores.database import Database, Look
from robots_guard.stores.patience import connect
from robots_guard.stores.sqlite import SqliteStore
from robots_guard.stores.system import System


@pytest.fixture(scope="module")
def members():
    """Three processes, which cost more to start than most tests take."""
    running = [Member() for _ in range(3)]
    yield running
    for member in running:
        member.kill()


@pytest.fixture
def fleet(members):
    """The three; one that another test has left dead or at work is replaced."""
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
        member.tell(command, **arguments)
    return [member.answer() for member in members]


def work(members, calls=60):
    for number, member in enumerate(members):
        member.tell("work", calls=calls, seed=number)
    return members


# -- what a careless program does to the files --------------------------------------------------------------


def unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def rename(path: Path) -> None:
    if path.exists():
        path.rename(f"{path}.moved-{time.monotonic_ns()}")


def swap(path: Path) -> None:
    """Another sound store is moved over this one, as when a backup is restored."""
    other = path.with_name("other")
    made = SqliteStore(other)
    put(made, held_for(A, 500.0))
    made.close()
    other.replace(path)


def cut(length: float):
    def cut_to(path: Path) -> None:
        if path.exists():
            os.truncate(path, int(path.stat().st_size * length))

    return cut_to


def scribble(path: Path) -> None:
    """Some pages become rubbish."""
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
AT_REST = {**ATTACKS, "the index is emptied": on("-shm", cut(0)), "the index is halved": on("-shm", cut(0.5))}


def assert_heals(fleet, path):
    """After a round in which what is damaged is found, all work on one file without an error."""
    for member in fleet:  # a start that met the damage was refused with a sentence
        member.ask("close")
        assert member.ask("open", path=str(path)) == ""
        member.ask("work", calls=30, seed=1)
    for _ in range(3):
        failures = [member.answer()["failures"] for member in work(fleet)]
    assert failures == [0, 0, 0]
    all_of(fleet, "close")


@pytest.mark.parametrize("attack", AT_REST.values(), ids=AT_REST)
def test_between_two_calls(fleet, path, attack):
    """Every process has the file open, and none is at it."""
    first, second, late = fleet
    for member in (first, second):
        assert member.ask("open", path=str(path)) == ""
    for _ in range(3):
        for member in work((first, second)):
            member.answer()
        attack(path)
    late.ask("open", path=str(path))
    assert_heals(fleet, path)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_under_way(fleet, path, attack):
    """Two processes work, a third one comes and goes. An index cut short under a running call is not among these."""
    first, second, late = fleet
    for member in (first, second):
        assert member.ask("open", path=str(path)) == ""
    for _ in range(4):
        working = work((first, second), calls=100)
        time.sleep(0.01)
        attack(path)
        late.ask("close")
        late.ask("open", path=str(path))
        for member in working:
            member.answer()
    assert_heals(fleet, path)


# -- what stands in the file's place ------------------------------------------------------------------------


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_nowhere(path: Path) -> None:
    path.symlink_to("/proc/self/none/at/all")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("stand_in", [directory, pipe, link_to_nowhere, link_to_itself])
def test_what_is_no_file_is_an_error_until_it_is_gone(fleet, path, stand_in):
    member = fleet[0]
    assert member.ask("open", path=str(path)) == ""
    member.ask("work", calls=20, seed=1)
    path.unlink()
    stand_in(path)

    answer = member.ask("work", calls=10, seed=1)
    assert answer["failures"] == 10
    assert answer["last"].startswith("could not be ")
    assert "name a writable file of its own" in fleet[1].ask("open", path=str(path))
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


def test_a_file_that_must_not_be_changed_goes_on_being_read(fleet, path):
    member = fleet[0]
    assert member.ask("open", path=str(path)) == ""
    member.ask("work", calls=200, seed=1)
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", path], check=False).returncode:
        pytest.skip("this file system, or this user, cannot make a file immutable")
    try:
        member.ask("work", calls=60, seed=1)
        member.ask("close")
        refused = member.ask("open", path=str(path))
        assert "name a writable file of its own" in refused or not refused
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    assert_heals(fleet, path)


def test_a_full_disk_is_survived(path):
    """As the limit of a file's size shows it."""
    member = Member()
    try:
        assert member.ask("open", path=str(path)) == ""
        assert member.ask("work", calls=20, seed=1)["failures"] == 0
        member.ask("limit", size=Path(f"{path}-wal").stat().st_size)
        answer = member.ask("work", calls=100, seed=2)
        assert 0 < answer["failures"] < 100
        assert answer["last"].startswith("could not be written")
        member.ask("limit", size=1 << 30)
        assert member.ask("work", calls=100, seed=3)["failures"] == 0
    finally:
        member.kill()


# -- journals, and the files to which they belong -----------------------------------------------------------


def test_a_new_file_is_never_opened_beside_the_journals_of_a_lost_one(store, path, beside):
    """Else the process that opens it first shortens an index that others map, and they die."""
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

    assert second.get(A) == held_for(A, 500.0)
    assert store.get(A) == held_for(A, 500.0)
    assert beside("-shm").stat().st_ino != shm
    second.close()


def test_a_file_whose_index_is_cut_short_is_set_aside_and_not_touched_again(fleet, path, beside):
    member = fleet[0]
    assert member.ask("open", path=str(path)) == ""
    member.ask("work", calls=20, seed=1)
    os.truncate(beside("-shm"), 0)

    answer = member.ask("work", calls=1, seed=1)
    assert "its -wal or -shm was removed, replaced or cut short by another program" in answer["last"]
    assert "begun anew; the old file is" in answer["last"]
    assert member.ask("work", calls=20, seed=1)["failures"] == 0
    os.truncate(beside("-shm"), 0)
    assert member.ask("close") == ""


def test_journals_left_by_a_process_that_was_killed_are_used(path):
    """The file is its own, so nothing is moved away."""
    member = Member()
    assert member.ask("open", path=str(path)) == ""
    member.ask("work", calls=40, seed=1)
    member.kill()
    assert Path(f"{path}-wal").stat().st_size
    store = SqliteStore(path)

    assert [*store.origins()]
    assert not [*path.parent.glob("*.corrupt-*")]
    store.close()


def restored(path) -> SqliteStore:
    """The store after all its processes were killed, its file was deleted and a backup of another was written there."""
    backup = path.with_name("backup")
    made = SqliteStore(backup)
    put(made, policy(B))
    made.close()
    member = Member()
    assert member.ask("open", path=str(path)) == ""
    member.ask("work", calls=40, seed=1)
    member.kill()
    octets, number = backup.read_bytes(), path.stat().st_ino
    path.unlink()
    path.write_bytes(octets)
    for other in range(200):  # most file systems give the lowest number that is free
        if path.stat().st_ino == number:
            break
        path.rename(path.with_name(f"other-{other}"))
        path.write_bytes(octets)
    return SqliteStore(path)


def test_a_backup_is_not_opened_beside_the_journals_of_a_deleted_file(path):
    """Many file systems give the inode number of a deleted file to the next one."""
    store = restored(path)

    assert [*store.origins()] == [B]
    assert store.get(B) == policy(B)
    assert len([*path.parent.glob("policies.sqlite.corrupt-*-wal")]) == 1
    store.close()


def test_a_file_keeps_its_inode_number_for_itself_until_another_takes_its_place(store, path, beside):
    first = path.stat().st_ino
    assert beside(".link").stat().st_ino == first
    path.unlink()
    assert beside(".link").stat().st_ino == first
    store.get(A)

    assert beside(".link").stat().st_ino == path.stat().st_ino != first


def test_a_file_system_without_hard_links_will_do(path, beside):
    def link(old, new):
        raise PermissionError(1, "Operation not permitted")

    store = SqliteStore(path, Database(path, System(link=link)))
    put(store, policy())
    assert store.get(A) == policy()
    assert not beside(".link").exists()
    store.close()


# -- forks --------------------------------------------------------------------------------------------------


def test_a_forked_child_has_locks_of_its_own(store, path):
    """SQLite counts the locks that a parent held as held by the child too, which has none: then any other process
    may believe to be alone with the file."""
    ready, go = os.pipe(), os.pipe()

    def child() -> bool:
        store.get(A)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        return store.get(A) == policy()

    def parent() -> None:
        os.read(ready[0], 1)
        store.close()
        alone = subprocess.run([sys.executable, "-c", ALONE, path], capture_output=True, text=True, check=True)
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


def test_a_call_that_waits_for_another_process_gives_way_to_a_fork(store, path, tmp_path):
    """Child and parent then ask for the same turn: one of them gets it."""
    locker = subprocess.Popen([sys.executable, "-c", LOCKS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert locker.stdout.readline() == b"locked\n"
    waits = []
    thread = threading.Thread(target=lambda: waits.append(reserved(store)))
    thread.start()
    assert until(store._database._opened.writing.locked)

    def child() -> bool:
        is_closed = not has_open(path)
        os.write(locker.stdin.fileno(), b"go on\n")
        (tmp_path / "child").write_text(str(reserved(store)))
        return is_closed

    assert in_a_fork(child)
    thread.join(60)
    locker.communicate()
    assert sorted([*waits, float((tmp_path / "child").read_text())]) == [0.0, pytest.approx(30.0, abs=10.0)]


def has_open(path) -> bool:
    """Whether this process has the file or its journals open."""
    names = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    return any(name.startswith(str(path)) and ".lock" not in name for name in names)


def reserved(store) -> float:
    return store.reserve(B, 30.0, lambda: 1000.0, str(os.getpid())).wait


def until(there) -> bool:
    """Whether it came about within a minute."""
    end = time.monotonic() + 60
    while not there() and time.monotonic() < end:
        time.sleep(0.01)
    return there()


def test_a_call_that_waits_for_the_lock_gives_way_to_a_fork(path):
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

    assert in_a_fork(lambda: not has_open(path) and (held.clear() or outcome(lambda: store.get(A)) is None))
    held.clear()
    thread.join(60)
    assert answers == [None]
    store.close()


@contextlib.contextmanager
def held_by_a_thread(lock):
    """A thread that hangs holds the lock, until the event is set or the block ends."""
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
    """A call that does not end holds the writer."""
    with held_by_a_thread(store._database._opened.writing) as ending:
        yield ending


FORKED = "only a process started anew can open it"


def is_refused(store) -> bool:
    return FORKED in str(outcome(lambda: store.get(A)))


def test_a_forked_child_leaves_a_file_alone_that_could_not_be_closed_before(store, hanging):
    """SQLite would take the parent's locks for the child's, even through a store that the child opens by itself."""

    def child() -> bool:
        with pytest.raises(SettingsError, match=FORKED):
            SqliteStore(store.path)
        with pytest.raises(StoreError, match=FORKED):
            SqliteStore(store.path, Look(store.path, insist=False)).get(A)
        SqliteStore(store.path.with_name("another")).close()
        return is_refused(store) and in_a_fork(lambda: is_refused(store))

    assert in_a_fork(child)
    assert store.get(A) == policy()


def test_a_file_that_is_closed_again_can_be_opened_by_the_next_child(store, hanging):
    assert in_a_fork(lambda: is_refused(store))
    hanging.set()
    assert until(lambda: in_a_fork(lambda: store.get(A) == policy()))


def test_a_file_that_is_being_opened_is_left_alone_by_a_forked_child(store):
    """By a thread that hangs meanwhile."""
    with held_by_a_thread(store._database._swapping.held):
        assert in_a_fork(lambda: is_refused(store))

    assert store.get(A) == policy()


@pytest.fixture
def opening(path):
    """A thread opens the store and holds its lock until the event is set; then it goes on."""
    begun, ending, made = threading.Event(), threading.Event(), []

    def link(old, new):
        begun.set()
        ending.wait(60)
        os.link(old, new)

    thread = threading.Thread(target=lambda: made.append(SqliteStore(path, Database(path, System(link=link)))))
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

    assert in_a_fork(lambda: not has_open(path) and not has_its_lock(path) and SqliteStore(path).get(A) is None)


def test_a_forked_child_does_not_hold_the_lock_of_a_store_whose_opening_hangs(opening, path, monkeypatch):
    """Else no other process could open the store as long as the child lives."""
    monkeypatch.setattr(database, "CLOSING", 0.1)

    def child() -> bool:
        with pytest.raises(SettingsError, match=FORKED):
            SqliteStore(path)
        return not has_its_lock(path)

    assert in_a_fork(child)


def test_a_store_whose_lock_is_awaited_at_its_first_opening_gives_way_to_a_fork(path):
    held, waiting, made = [True], threading.Event(), []

    def flock(descriptor, operation):
        if held:
            waiting.set()
            raise BlockingIOError("held")
        fcntl.flock(descriptor, operation)

    thread = threading.Thread(target=lambda: made.append(SqliteStore(path, Database(path, System(flock=flock)))))
    thread.start()
    assert waiting.wait(60)
    assert in_a_fork(lambda: not has_its_lock(path))
    held.clear()
    thread.join(60)

    assert made[0].get(A) is None
    made[0].close()


# -- a call that comes between ------------------------------------------------------------------------------


def fork(_store) -> None:
    assert in_a_fork(lambda: True)


def delete(store) -> None:
    store.path.unlink()
    store.get(A)  # which opens a new file


@pytest.fixture
def call_between(store, monkeypatch):
    """Makes a call in another thread; runs something after that call's look at the files, before it holds one."""
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
def test_a_call_goes_on_with_the_next_connection_when_another_thread_closes_its_own(store, call_between, between):
    assert call_between(lambda: store.reserve(A, 2.0, lambda: 1000.0, "x").wait, between) == [0.0]
    assert store.reserve(A, 2.0, lambda: 1000.0, "y").wait >= 2.0


@pytest.mark.parametrize("between", [fork, delete])
def test_a_read_goes_on_with_the_next_connection_when_another_thread_closes_its_own(store, call_between, between):
    assert call_between(lambda: store.get(B), between) == [None]


def test_a_call_says_so_when_another_thread_closes_the_store(store, call_between):
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


# -- the lock, and ends -------------------------------------------------------------------------------------


def test_a_lock_that_is_deleted_while_it_is_held_is_made_anew(store, beside):
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
    """Two stores are opened at once: the second waits for the lock of the first. What became of each."""
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


def test_another_programs_database_is_refused_by_each_of_several_starts(path):
    """The second waits for a lock that the first creates, and removes when it has refused the file."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")
    for answer in started_while_another_start_fails(path):
        assert "a database of another program" in answer
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_another_programs_text_is_refused_by_each_of_several_starts(path):
    path.write_text("Dear Sir or Madam, " * 100)
    for answer in started_while_another_start_fails(path):
        assert "not a database" in answer
    assert path.read_text().startswith("Dear Sir")
    assert [*path.parent.iterdir()] == [path]


def test_a_lock_that_is_not_given_back_is_an_error_after_a_while(store, path):
    """In time that passes as the test says."""
    clock = [0.0]
    system = System(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    with store._database._files.locked(), pytest.raises(SettingsError, match="temporarily unavailable"):
        Database(path, system)

    assert 5.0 < clock[0] < 6.0


def test_a_store_whose_lock_is_not_given_back_is_left_alone_for_a_while(path):
    clock = [0.0]
    refused = []

    def flock(descriptor, operation):
        if refused:
            raise BlockingIOError("held")
        fcntl.flock(descriptor, operation)

    system = System(
        monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s), flock=flock, busy=1.0
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
            told = str(error)
    assert "begun anew" in told
    database.close()


@pytest.mark.parametrize("what", ["reading", "writing"])
def test_closing_has_an_end(path, what):
    """Also when a call is under way that does not end."""
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
    """Closing again does what a hanging call kept the first from."""
    store = SqliteStore(path)
    opened = store._database._opened
    with opened.reading:
        store.close()
        assert opened.writer.execute("SELECT 1").fetchone() == (1,)
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        opened.writer.execute("SELECT 1")
