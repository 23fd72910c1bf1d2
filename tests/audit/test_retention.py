"""Retention of the audit log's files, by observed time, whatever the wall clock shows."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import contextmanager, suppress

import pytest
from audit.decisions import AT, audit_log_in, decision

from robots_guard.audit.read.reader import records
from robots_guard.audit.segments import day_of, key_of
from robots_guard.audit.write import maintenance
from robots_guard.audit.write.log import LogOptions
from robots_guard.audit.write.maintenance import retain, tidy
from robots_guard.audit.write.retention import Inspection, Retention

# A test kills housekeeping at each of its steps, some of which are private.

HOUR, DAY = 3600.0, 86400.0
NINETY = Retention(days=90)
OLD = "20270101-h-1-ab-0001.jsonl"


def wait_for_housekeeping():
    for thread in threading.enumerate():
        if thread.name == "robots_guard-tidy":
            thread.join()


def days_of(directory):
    return sorted(day for path in directory.iterdir() if (day := day_of(path.name)))


class Machine:
    """A machine with a directory. Its wall clock can be set, and it can be rebooted."""

    def __init__(self, directory, retention=NINETY):
        self.directory = directory
        self.retention = retention
        self.boot, self.up, self.wall = "first", 1000.0, AT

    def pass_(self, seconds):
        self.up += seconds
        self.wall += seconds

    def restart(self, after=0.0):
        self.boot, self.up, self.wall = f"after {self.boot}", 10.0, self.wall + after

    def look(self):
        return retain(
            self.directory, self.retention, Inspection(boot=self.boot, up=self.up, wall=self.wall)
        )

    def looks(self, *, hours):
        """Inspect every hour, and return the removed files."""
        gone = []
        for _ in range(hours):
            self.pass_(HOUR + 1)
            gone += self.look()
        return gone

    def days(self, count):
        """Inspect every day, and return the removed files."""
        gone = []
        for _ in range(count):
            self.pass_(DAY)
            gone += self.look()
        return gone


@pytest.fixture
def machine(tmp_path):
    """A machine that has a file and has observed it for a day."""
    (tmp_path / OLD).write_bytes(b"x")
    made = Machine(tmp_path)
    made.look()
    made.looks(hours=24)
    return made


def test_a_clock_120_days_ahead_for_one_record_removes_nothing(tmp_path):
    """The clock of one writer's machine is wrong for one record; neither its files nor other writers' are removed."""
    retention = LogOptions().retention
    for writer in range(4):
        audit_log = audit_log_in(tmp_path, retention=retention, now=AT + writer)
        for number in range(250):
            audit_log.write(decision(f"https://a.test/private/{writer}/{number}", at=AT + number))
        audit_log.close()
    wait_for_housekeeping()
    ahead = AT + 120 * DAY
    jumped = audit_log_in(tmp_path, retention=retention, now=ahead)
    jumped.write(decision("https://a.test/private/jumped", at=ahead))
    jumped.close()
    wait_for_housekeeping()

    assert len(list(records(tmp_path))) == 1001


def test_a_file_is_removed_after_being_observed_for_the_retention(machine):
    assert machine.days(88) == []
    assert [path.name for path in machine.days(4)] == [OLD]


def test_a_file_is_removed_only_if_an_earlier_inspection_found_it_due(machine):
    machine.pass_(100 * DAY)
    assert machine.look() == []
    machine.pass_(HOUR - 1)
    assert machine.look() == []
    machine.pass_(2)
    assert [path.name for path in machine.look()] == [OLD]


@pytest.mark.parametrize(
    "jump", [2 * DAY, 60 * DAY, 120 * DAY, 10_000 * DAY, -120 * DAY, 1e15, -1e15]
)
@pytest.mark.parametrize("lasts", [1, 24 * 30])
def test_a_jump_of_the_wall_clock_removes_nothing(machine, jump, lasts):
    machine.wall += jump
    assert machine.look() == []
    assert machine.looks(hours=lasts) == []
    machine.wall -= jump
    assert machine.looks(hours=24) == []


def test_a_past_day_in_a_file_name_does_not_age_the_file(machine):
    """A clock that was set back names files after 1970, although they have today's records."""
    machine.days(40)
    (machine.directory / "19700101-h-2-cd-0001.jsonl").write_bytes(b"x")

    assert [path.name[:8] for path in machine.days(55)] == ["20270101"]
    assert days_of(machine.directory) == ["19700101"]


def test_a_file_named_after_a_future_day_is_removed_in_time(machine):
    (machine.directory / "20300101-h-2-cd-0001.jsonl").write_bytes(b"x")
    machine.days(93)

    assert days_of(machine.directory) == []


@pytest.mark.parametrize("ahead", [60 * DAY, 120 * DAY])
def test_a_clock_corrected_after_boot_ages_nothing(machine, ahead):
    machine.days(58)
    machine.restart(after=ahead)
    machine.look()
    machine.wall -= ahead
    machine.looks(hours=3)

    assert machine.days(28) == []
    assert len(machine.days(4)) == 1


def test_a_clock_wrong_since_boot_ages_files_once_by_a_third_of_the_retention(machine):
    machine.days(20)
    for _ in range(4):
        machine.restart(after=60 * DAY)
        assert machine.looks(hours=3) == []
        machine.restart(after=-60 * DAY)
        assert machine.looks(hours=3) == []
    assert machine.days(35) == []
    assert len(machine.days(6)) == 1


def test_a_clock_ahead_by_more_than_the_retention_ages_nothing(machine):
    machine.days(80)
    machine.restart(after=120 * DAY)

    assert machine.looks(hours=24) == []
    assert len(machine.days(12)) == 1


def test_short_lived_machines_remove_old_files(tmp_path):
    """Each day, a crawl runs on a new machine: only the wall clock shows the time between them."""
    (tmp_path / OLD).write_bytes(b"x")
    machine, gone = Machine(tmp_path), []
    for day in range(95):
        gone += [(day, path.name) for path in machine.look()]
        machine.restart(after=DAY)

    assert gone == [(91, OLD)]


def test_a_compressed_file_is_as_old_as_its_content(machine):
    machine.days(40)
    (machine.directory / OLD).rename(machine.directory / (OLD + ".zst"))

    assert [path.name for path in machine.days(52)] == [OLD + ".zst"]


def test_files_seen_first_are_removed_first_whatever_their_day(tmp_path):
    machine = Machine(tmp_path, Retention(days=0, size=250))
    for day in ("20270110", "20300101", "19700101", "20270111", "20270112"):
        (tmp_path / f"{day}-h-1-ab-0001.jsonl").write_bytes(b"x" * 100)
        gone = [path.name[:8] for path in machine.looks(hours=1)]
        assert len(gone) <= 1, "the rest fits"

    assert days_of(tmp_path) == ["20270111", "20270112"]


def test_without_a_limit_in_days_nothing_is_removed(machine):
    machine.retention = Retention(days=0)
    assert machine.days(500) == []


# -- the account --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"{"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_bytes(b'{"x":' + b"[" * 100_000),
        lambda path: path.write_bytes(b'{"highest":0,"settled":["",0,0]}'),
        lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_without_a_readable_account_all_ages_restart(machine, spoil):
    machine.days(89)
    spoil(machine.directory / ".retention")

    assert machine.days(90) == []
    assert len(machine.days(3)) == 1


def test_a_directory_in_place_of_the_account_stops_removal_but_no_writer(machine, caplog):
    (machine.directory / ".retention").unlink()
    (machine.directory / ".retention").mkdir()
    tidy(machine.directory, NINETY, Inspection(boot="b", up=1.0, wall=AT))

    assert "could not be removed" in caplog.text
    assert days_of(machine.directory) == ["20270101"]


@pytest.mark.parametrize("wall", [1e18, -1e18, float("nan"), float("inf")])
def test_no_clock_makes_housekeeping_raise(machine, wall):
    for up in (1.0, 2.0, 2 * HOUR):
        tidy(machine.directory, NINETY, Inspection(boot="b", up=up, wall=wall))

    assert days_of(machine.directory) == ["20270101"]


@pytest.mark.parametrize("step", ["read_plain", "_try_remove", "_save_account", "put_in_place"])
def test_a_kill_at_any_step_removes_nothing_that_is_not_due(machine, monkeypatch, step):
    real, looks = getattr(maintenance, step), iter(range(1000))

    def is_killed_every_other_time(*args):
        if next(looks) % 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(maintenance, step, is_killed_every_other_time)
    for day in range(2, 120):
        with suppress(KeyboardInterrupt):
            machine.days(1)
        assert day > 90 or days_of(machine.directory)

    assert days_of(machine.directory) == []


@contextmanager
def housekeeping_elsewhere(directory):
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_one_process_removes_files_at_a_time(machine):
    """Two processes that read the sizes at the same time would together remove twice as much as needed."""
    machine.retention = Retention(days=0, size=1)
    (machine.directory / "20270102-h-1-ab-0001.jsonl").write_bytes(b"x")
    with housekeeping_elsewhere(machine.directory):
        assert machine.look() == []
    assert len(machine.look()) == 1


def test_evidence_stays_while_its_log_file_is_open(tmp_path):
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision())
    evidence = tmp_path / f"{key_of(audit_log.path.name)}.warc.gz"
    evidence.write_bytes(b"x" * 100)
    machine = Machine(tmp_path, Retention(days=1, size=10))

    assert machine.days(4) == []
    audit_log.close()
    assert {path.name for path in machine.look()} == {evidence.name, audit_log.path.name}
