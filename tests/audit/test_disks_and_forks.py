"""Counts and records when the disk fails, or a process forks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from audit.decisions import AT, PASS, audit_log_in, decision

from robots_guard.audit.files import Files
from robots_guard.audit.read.reader import Filter, Unreadable, entries, kind_of, records
from robots_guard.audit.read.verify import verify
from robots_guard.decisions.events import FailedOpen
from robots_guard.errors import AuditLogError

TESTS = str(Path(__file__).parents[1])


def passed(url="https://a.test/x", at=AT):
    return decision(url, verdict=PASS, at=at)


def full(*arguments, **named):
    raise OSError(errno.ENOSPC, "No space left on device")


def fails_at(nth, whole):
    """A system call that fails with ENOSPC at the n-th call."""
    calls = iter(range(1, 100))

    def call(*arguments, **named):
        return (full if next(calls) == nth else whole)(*arguments, **named)

    return call


def counts_by_origin(directory):
    """The number of decisions, recorded or counted, by origin."""
    found = entries(directory, Filter(kind=None))
    return sorted(
        (entry.origin, kind_of(entry), getattr(entry, "count", 1))
        for entry in found
        if kind_of(entry) in ("decision", "passes")
    )


@pytest.mark.parametrize("nth", [1, 2])
def test_a_count_that_cannot_be_written_does_not_affect_other_decisions(tmp_path, monkeypatch, nth):
    """The count of a.test is due at the decision on b.test; one of the two writes fails."""
    audit_log = audit_log_in(tmp_path, audit="summary")
    audit_log.write(decision("https://a.test/"))
    for second in range(10):
        audit_log.write(passed("https://a.test/", at=AT + second))
    real_write = os.write
    monkeypatch.setattr(os, "write", fails_at(nth, real_write))
    try:
        audit_log.write(decision("https://b.test/", at=AT + 61))
    except AuditLogError:
        assert nth == 1  # its own record could not be written
    monkeypatch.setattr(os, "write", real_write)
    audit_log.write(decision("https://b.test/", at=AT + 62))
    audit_log.close()

    assert counts_by_origin(tmp_path) == [
        ("https://a.test", "decision", 1),
        ("https://a.test", "passes", 10),
        *[("https://b.test", "decision", 1)] * nth,
    ]


def test_closing_writes_all_counts_even_if_one_fails(tmp_path, monkeypatch):
    audit_log = audit_log_in(tmp_path, audit="summary")
    audit_log.write(decision())
    for _ in range(3):
        audit_log.write(passed("https://a.test/"))
        audit_log.write(passed("https://b.test/"))
    monkeypatch.setattr(os, "write", fails_at(1, os.write))
    audit_log.close()

    assert [each for each in counts_by_origin(tmp_path) if each[1] == "passes"] == [
        ("https://b.test", "passes", 3)
    ]


def test_a_late_count_is_written_to_the_file_of_the_current_day(tmp_path):
    """The next PASS comes four days after the last counted one."""
    audit_log = audit_log_in(tmp_path, audit="summary")
    audit_log.write(decision(at=AT))
    later = AT + 4 * 86400
    for at in (AT, AT + 1, AT + 2, later, later + 1, later + 2, later + 100):
        audit_log.write(passed(at=at))
    audit_log.close()
    counts = list(entries(tmp_path, Filter(kind="passes")))

    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert [(each.at[8:19], each.since[8:19], each.until[8:19]) for each in counts] == [
        ("19T08:00:00", "15T08:00:00", "15T08:00:02"),
        ("19T08:01:40", "19T08:00:00", "19T08:00:02"),
        ("19T08:01:40", "19T08:01:40", "19T08:01:40"),
    ]
    (found,) = verify(tmp_path, Unreadable())
    assert found.problems == []


class Disk(Files):
    """A disk that is full while `is_full` is set, except for lines with `takes`. It counts the refused writes."""

    is_full, takes, tries = False, None, 0

    def write(self, descriptor, data):
        if self.is_full and not (self.takes and self.takes in data):
            self.tries += 1
            full()
        return super().write(descriptor, data)


def test_on_a_full_disk_one_count_per_second_is_tried(tmp_path):
    """200 counts are due. They are written once there is space; until then none is lost or uses a number."""
    disk, seconds = Disk(), [0.0]
    audit_log = audit_log_in(tmp_path, audit="summary", files=disk, monotonic=lambda: seconds[0])
    audit_log.write(decision())
    for number in range(200):
        for _ in range(3):
            audit_log.write(passed(f"https://{number}.test/", at=AT))
    audit_log.write(passed("https://ok.test/", at=AT + 30))
    disk.is_full = True
    for tenth in range(50):  # 5 seconds
        seconds[0] = tenth / 10
        audit_log.write(passed("https://ok.test/", at=AT + 61))
    assert disk.tries == 5
    disk.is_full = False
    seconds[0] = 5.0
    audit_log.write(passed("https://ok.test/", at=AT + 62))
    assert len([each for each in counts_by_origin(tmp_path) if each[1:] == ("passes", 3)]) == 200
    audit_log.close()

    (found,) = verify(tmp_path, Unreadable())
    assert (found.problems, found.notes) == ([], [])


def test_an_event_that_will_be_retried_does_not_count_as_lost(tmp_path):
    """The guard retries the same event with each decision until there is space."""
    disk = Disk()
    audit_log = audit_log_in(tmp_path, files=disk)
    audit_log.write(decision("https://a.test/"))
    event = FailedOpen(at=AT, setting="audit_required", count=3)
    disk.is_full = True
    for _ in range(5):
        with pytest.raises(AuditLogError):
            audit_log.note(event, is_tried_again=True)
    disk.is_full = False
    audit_log.note(event, is_tried_again=True)
    audit_log.close()

    (found,) = verify(tmp_path, Unreadable())
    assert (found.problems, found.notes) == ([], [])


def test_a_count_that_cannot_be_written_at_closing_counts_as_one_lost_record(tmp_path):
    disk = Disk()
    audit_log = audit_log_in(tmp_path, audit="summary", files=disk)
    audit_log.write(decision())
    audit_log.write(passed("https://a.test/"))
    audit_log.write(passed("https://b.test/", at=AT + 30))
    disk.is_full = True
    audit_log.write(passed("https://b.test/", at=AT + 61))
    disk.takes = b'"stop"'
    audit_log.close()

    assert next(entries(tmp_path, Filter(kind="stop"))).lost == 2
    assert disk.tries == 3


@pytest.mark.parametrize("call", ["stat", "fdatasync"])
def test_an_unconfirmed_count_is_not_written_again(tmp_path, monkeypatch, call):
    """The count of a.test is due at the decision on b.test; it is written, and then the call fails."""
    audit_log = audit_log_in(tmp_path, audit="summary", fsync=True)
    audit_log.write(decision("https://a.test/"))
    for second in range(10):
        audit_log.write(passed("https://a.test/", at=AT + second))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails_at(2, getattr(os, call)))
        audit_log.write(decision("https://b.test/", at=AT + 61))
    audit_log.write(decision("https://c.test/", at=AT + 62))
    audit_log.close()

    assert counts_by_origin(tmp_path) == [
        ("https://a.test", "decision", 1),
        ("https://a.test", "passes", 10),
        ("https://b.test", "decision", 1),
        ("https://c.test", "decision", 1),
    ]


# -- forks ----------------------------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import decision, audit_log_in
audit_log = audit_log_in(Path(sys.argv[1]), retention=None)
audit_log.write(decision(client="parent"))
whole, entered, go_on = os.write, threading.Event(), threading.Event()
def write(descriptor, data):
    if threading.current_thread() is other:
        entered.set()
        go_on.wait(60)
    return whole(descriptor, data)
other = threading.Thread(target=audit_log.write, args=[decision("https://b.test/", client="thread")])
if sys.argv[3] == "held":
    os.write = write
    other.start()
    assert entered.wait(60)  # it holds the writer's lock from here
child = os.fork()
if child == 0:
    signal.alarm(30)
    audit_log.write(decision(client="child"))
    audit_log.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go_on.set()
if other.ident:
    other.join()
audit_log.write(decision(client="parent, later"))
audit_log.close()
"""


@pytest.mark.parametrize("lock", ["free", "held"])
def test_a_forked_child_does_not_wait_for_locks_of_its_parents_threads(tmp_path, lock):
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path), TESTS, lock]
    subprocess.run(command, check=True, timeout=120)

    clients = ["child", "parent", "parent, later", *["thread"] * (lock == "held")]
    assert sorted(record.client for record in records(tmp_path)) == clients


EVIDENCE = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import AT, audit_log_in, policy
from robots_guard.decisions.access import Fetched, Get
from robots_guard.decisions.events import FetchMade
audit_log = audit_log_in(Path(sys.argv[1]), audit="evidence", retention=None)
made = FetchMade(at=AT, origin=policy().origin, get=Get(url="https://a.test/robots.txt"), via="direct", elapsed=0.1,
                 outcome=Fetched(status=200, body=b"User-agent: *"))
audit_log.note(made)
audit_log._evidence._lock.acquire()  # a thread that the child has not
child = os.fork()
if child == 0:
    signal.alarm(30)
    audit_log.note(made)
    audit_log.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_has_its_own_evidence_file(tmp_path):
    pytest.importorskip("warcio")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EVIDENCE, str(tmp_path), TESTS],
        check=True,
        timeout=120,
    )
    found = list(entries(tmp_path, Filter(kind="fetch")))

    assert len(found) == 2
    assert {(entry.writer in entry.warc_file) for entry in found} == {True}
    assert len({entry.warc_file for entry in found}) == 2


def test_a_child_does_not_keep_the_lock_of_a_file_its_parent_closed(tmp_path):
    """A living child that records nothing does not make its parent's file appear to be open."""
    from robots_guard.audit.write.maintenance import try_lock

    audit_log = audit_log_in(tmp_path, retention=None)
    audit_log.write(decision())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    path = audit_log.path
    audit_log.close()
    try:
        with try_lock(path) as descriptor:
            assert descriptor is not None
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
