"""Counted repeats, when a write fails, when threads race, and after a fork: the first of a kind is always written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from audit.decisions import AT, decision, journal_in

from robots_guard.audit.files import Files
from robots_guard.audit.query import Filter, Trouble, entries, kind_of, records
from robots_guard.audit.verify import verify
from robots_guard.errors import JournalError

TESTS = str(Path(__file__).parents[1])


def full(*arguments, **named):
    raise OSError(errno.ENOSPC, "No space left on device")


def fails_at(nth, whole):
    """A system call that finds no space at the n-th call."""
    calls = iter(range(1, 100))

    def call(*arguments, **named):
        return (full if next(calls) == nth else whole)(*arguments, **named)

    return call


def told(directory):
    """Every decision and every count, by origin."""
    found = entries(directory, Filter(kind=None))
    return sorted(
        (entry.origin, kind_of(entry), getattr(entry, "count", 1))
        for entry in found
        if kind_of(entry) in ("decision", "repeats")
    )


@pytest.mark.parametrize("nth", [1, 2])
def test_a_run_that_cannot_be_told_neither_refuses_nor_loses_another_decision(tmp_path, monkeypatch, nth):
    """At the decision on b.test the count of a.test is due; one of the two writes fails."""
    journal = journal_in(tmp_path, aggregate=60.0)
    for second in range(10):
        journal.write(decision("https://a.test/", at=AT + second))
    whole = os.write
    monkeypatch.setattr(os, "write", fails_at(nth, whole))
    try:
        journal.write(decision("https://b.test/", at=AT + 61))
    except JournalError:
        assert nth == 1  # its own record could not be written, and its like are not counted with it
    monkeypatch.setattr(os, "write", whole)
    journal.write(decision("https://b.test/", at=AT + 62))
    journal.close()

    assert told(tmp_path) == [
        ("https://a.test", "decision", 1),
        ("https://a.test", "repeats", 9),
        ("https://b.test", "decision", 1),
    ] + [("https://b.test", "repeats", 1)] * (nth == 2)


def test_a_repeat_is_not_counted_with_a_first_that_is_not_written_yet(tmp_path, monkeypatch):
    """While the first is being written, a second thread decides alike; then the first cannot be written."""
    journal = journal_in(tmp_path, aggregate=60.0)
    journal.write(decision("https://other.test/"))
    whole = os.write
    second = threading.Thread(target=journal.write, args=[decision(client="second")])

    def fails_meanwhile(descriptor, data):
        monkeypatch.setattr(os, "write", whole)
        second.start()
        second.join(0.2)
        full(descriptor, data)

    monkeypatch.setattr(os, "write", fails_meanwhile)
    with pytest.raises(JournalError):
        journal.write(decision(client="first"))
    second.join(60)
    journal.close()

    assert [record.client for record in records(tmp_path)][1:] == ["second"]


def test_counts_are_told_when_the_journal_is_closed_though_one_fails(tmp_path, monkeypatch):
    journal = journal_in(tmp_path, aggregate=60.0)
    for _ in range(3):
        journal.write(decision("https://a.test/"))
        journal.write(decision("https://b.test/"))
    monkeypatch.setattr(os, "write", fails_at(1, os.write))
    journal.close()

    assert [each for each in told(tmp_path) if each[1] == "repeats"] == [("https://b.test", "repeats", 2)]


def test_a_count_that_is_told_late_is_written_to_the_file_of_its_day(tmp_path):
    """Four idle days lie between the last of those counted and the next decision."""
    journal = journal_in(tmp_path, aggregate=60.0)
    later = AT + 4 * 86400
    for at in (AT, AT + 1, AT + 2, later, later + 1, later + 2, later + 100):
        journal.write(decision(at=at))
    journal.close()
    counts = list(entries(tmp_path, Filter(kind="repeats")))

    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert [(each.at[8:19], each.since[8:19], each.until[8:19]) for each in counts] == [
        ("19T08:00:00", "15T08:00:00", "15T08:00:02"),
        ("19T08:01:40", "19T08:00:00", "19T08:00:02"),
    ]
    (found,) = verify(tmp_path, Trouble())
    assert found.problems == []


class Disk(Files):
    """A disk that is full while it is told to be, but for lines with `takes`, and counts what was tried meanwhile."""

    is_full, takes, tries = False, None, 0

    def write(self, descriptor, data):
        if self.is_full and not (self.takes and self.takes in data):
            self.tries += 1
            full()
        return super().write(descriptor, data)


def test_on_a_full_disk_one_count_is_tried_a_second(tmp_path):
    """200 counts are due. They are written once there is room; none is lost meanwhile, and none takes a number."""
    disk, seconds = Disk(), [0.0]
    journal = journal_in(tmp_path, aggregate=60.0, files=disk, monotonic=lambda: seconds[0])
    for number in range(200):
        for _ in range(3):
            journal.write(decision(f"https://{number}.test/", at=AT))
    journal.write(decision("https://ok.test/", at=AT + 30))
    disk.is_full = True
    for tenth in range(50):  # 5 seconds
        seconds[0] = tenth / 10
        journal.write(decision("https://ok.test/", at=AT + 61))
    assert disk.tries == 5
    disk.is_full = False
    seconds[0] = 5.0
    journal.write(decision("https://ok.test/", at=AT + 62))
    assert len([each for each in told(tmp_path) if each[1:] == ("repeats", 2)]) == 200
    journal.close()

    (found,) = verify(tmp_path, Trouble())
    assert (found.problems, found.notes) == ([], [])


def test_a_count_that_cannot_be_written_when_the_journal_is_closed_is_lost_once(tmp_path):
    disk = Disk()
    journal = journal_in(tmp_path, aggregate=60.0, files=disk)
    for _ in range(2):
        journal.write(decision("https://a.test/"))
    journal.write(decision("https://b.test/", at=AT + 30))
    disk.is_full = True
    journal.write(decision("https://b.test/", at=AT + 61))
    disk.takes = b'"stop"'
    journal.close()

    assert next(entries(tmp_path, Filter(kind="stop"))).lost == 2
    assert disk.tries == 3


@pytest.mark.parametrize("call", ["stat", "fdatasync"])
def test_a_count_is_told_once_though_an_error_leaves_open_whether_it_lasts(tmp_path, monkeypatch, call):
    """At the decision on b.test the count of a.test is due, and is written; then the call fails."""
    journal = journal_in(tmp_path, aggregate=60.0, fsync=True)
    for second in range(10):
        journal.write(decision("https://a.test/", at=AT + second))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails_at(2, getattr(os, call)))
        journal.write(decision("https://b.test/", at=AT + 61))
    journal.write(decision("https://c.test/", at=AT + 62))
    journal.close()

    assert told(tmp_path) == [
        ("https://a.test", "decision", 1),
        ("https://a.test", "repeats", 9),
        ("https://b.test", "decision", 1),
        ("https://c.test", "decision", 1),
    ]


# -- forks ----------------------------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import decision, journal_in
journal = journal_in(Path(sys.argv[1]), aggregate=60.0, retention=None)
journal.write(decision(client="parent"))
whole, entered, go_on = os.write, threading.Event(), threading.Event()
def write(descriptor, data):
    if threading.current_thread() is other:
        entered.set()
        go_on.wait(60)
    return whole(descriptor, data)
other = threading.Thread(target=journal.write, args=[decision("https://b.test/", client="thread")])
if sys.argv[3] == "held":
    os.write = write
    other.start()
    assert entered.wait(60)  # it holds the writer's lock from here
child = os.fork()
if child == 0:
    signal.alarm(30)
    journal.write(decision(client="child"))
    journal.write(decision(client="child, counted"))
    journal.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go_on.set()
if other.ident:
    other.join()
journal.write(decision(client="parent, counted"))
journal.close()
"""


@pytest.mark.parametrize("lock", ["free", "held"])
def test_a_forked_child_writes_its_own_first_and_does_not_wait_for_a_thread_that_it_has_not(tmp_path, lock):
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path), TESTS, lock]
    subprocess.run(command, check=True, timeout=120)

    expected = [("https://a.test", "decision", 1)] * 2 + [("https://a.test", "repeats", 1)] * 2
    assert told(tmp_path) == expected + [("https://b.test", "decision", 1)] * (lock == "held")
    assert {"child", "parent"} <= {record.client for record in records(tmp_path)}


EVIDENCE = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import AT, journal_in, policy
from robots_guard.core.access import Fetched, Get
from robots_guard.core.events import FetchMade
journal = journal_in(Path(sys.argv[1]), warc=True, retention=None)
made = FetchMade(at=AT, origin=policy().origin, get=Get(url="https://a.test/robots.txt"), via="direct", elapsed=0.1,
                 outcome=Fetched(status=200, body=b"User-agent: *"))
journal.note(made)
journal._evidence._lock.acquire()  # a thread that the child has not
child = os.fork()
if child == 0:
    signal.alarm(30)
    journal.note(made)
    journal.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_keeps_evidence_beside_its_own_file(tmp_path):
    pytest.importorskip("warcio")
    subprocess.run([sys.executable, "-W", "ignore", "-c", EVIDENCE, str(tmp_path), TESTS], check=True, timeout=120)
    found = list(entries(tmp_path, Filter(kind="fetch")))

    assert len(found) == 2
    assert {(entry.writer in entry.evidence_file) for entry in found} == {True}
    assert len({entry.evidence_file for entry in found}) == 2


def test_the_lock_of_a_closed_file_is_not_held_by_a_child(tmp_path):
    """A child that records nothing, and lives on, does not make its parent's file look as if it were written."""
    from robots_guard.audit.keeping import unheld

    journal = journal_in(tmp_path, retention=None)
    journal.write(decision())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    path = journal.path
    journal.close()
    try:
        with unheld(path) as descriptor:
            assert descriptor is not None
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
