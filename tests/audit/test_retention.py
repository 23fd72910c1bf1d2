"""How long the journal's files are kept: by time that was witnessed, whatever the wall clock says."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import contextmanager, suppress

import pytest
from audit.decisions import AT, decision, journal_in

from robots_guard.audit import keeping
from robots_guard.audit.journal import Keeping
from robots_guard.audit.keeping import retain, tidy
from robots_guard.audit.query import records
from robots_guard.audit.retention import Look, Retention
from robots_guard.audit.segments import day_of, key_of

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
    """A machine with a directory: it is up, its wall clock can be set, and it can be started anew."""

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
        return retain(self.directory, self.retention, Look(boot=self.boot, up=self.up, wall=self.wall))

    def looks(self, *, hours):
        """Looks an hour apart; what went."""
        gone = []
        for _ in range(hours):
            self.pass_(HOUR + 1)
            gone += self.look()
        return gone

    def days(self, count):
        """A look each day; what went."""
        gone = []
        for _ in range(count):
            self.pass_(DAY)
            gone += self.look()
        return gone


@pytest.fixture
def machine(tmp_path):
    """One that has a file, and has looked at it for a day."""
    (tmp_path / OLD).write_bytes(b"x")
    made = Machine(tmp_path)
    made.look()
    made.looks(hours=24)
    return made


def test_one_record_from_120_days_ahead_leaves_every_record_in_place(tmp_path):
    """As a writer meets it whose machine's clock is set wrong for one record, and as its neighbours' records do."""
    retention = Keeping().retention
    for writer in range(4):
        journal = journal_in(tmp_path, retention=retention, now=AT + writer)
        for number in range(250):
            journal.write(decision(f"https://a.test/private/{writer}/{number}", at=AT + number))
        journal.close()
    wait_for_housekeeping()
    ahead = AT + 120 * DAY
    jumped = journal_in(tmp_path, retention=retention, now=ahead)
    jumped.write(decision("https://a.test/private/jumped", at=ahead))
    jumped.close()
    wait_for_housekeeping()

    assert len(list(records(tmp_path))) == 1001


def test_a_file_goes_when_it_has_been_watched_for_its_time(machine):
    assert machine.days(88) == []
    assert [path.name for path in machine.days(4)] == [OLD]


def test_what_goes_was_due_at_an_earlier_look(machine):
    machine.pass_(100 * DAY)
    assert machine.look() == []
    machine.pass_(HOUR - 1)
    assert machine.look() == []
    machine.pass_(2)
    assert [path.name for path in machine.look()] == [OLD]


@pytest.mark.parametrize("jump", [2 * DAY, 60 * DAY, 120 * DAY, 10_000 * DAY, -120 * DAY, 1e15, -1e15])
@pytest.mark.parametrize("lasts", [1, 24 * 30])
def test_a_jump_of_the_wall_clock_removes_nothing_however_long_it_lasts(machine, jump, lasts):
    machine.wall += jump
    assert machine.look() == []
    assert machine.looks(hours=lasts) == []
    machine.wall -= jump
    assert machine.looks(hours=24) == []


def test_files_stamped_with_a_day_long_past_are_as_young_as_they_are(machine):
    """A clock that was set back names files of 1970; they hold the records of today."""
    machine.days(40)
    (machine.directory / "19700101-h-2-cd-0001.jsonl").write_bytes(b"x")

    assert [path.name[:8] for path in machine.days(55)] == ["20270101"]
    assert days_of(machine.directory) == ["19700101"]


def test_a_file_stamped_with_a_day_to_come_goes_in_its_time_too(machine):
    (machine.directory / "20300101-h-2-cd-0001.jsonl").write_bytes(b"x")
    machine.days(93)

    assert days_of(machine.directory) == []


@pytest.mark.parametrize("ahead", [60 * DAY, 120 * DAY])
def test_a_wrong_clock_after_a_start_that_is_set_right_ages_nothing(machine, ahead):
    machine.days(58)
    machine.restart(after=ahead)
    machine.look()
    machine.wall -= ahead
    machine.looks(hours=3)

    assert machine.days(28) == []
    assert len(machine.days(4)) == 1


def test_a_clock_that_stays_wrong_after_a_start_ages_by_a_third_of_the_retention_and_once(machine):
    machine.days(20)
    for _ in range(4):
        machine.restart(after=60 * DAY)
        assert machine.looks(hours=3) == []
        machine.restart(after=-60 * DAY)
        assert machine.looks(hours=3) == []
    assert machine.days(35) == []
    assert len(machine.days(6)) == 1


def test_where_the_clock_is_further_on_than_the_retention_nothing_has_aged(machine):
    machine.days(80)
    machine.restart(after=120 * DAY)

    assert machine.looks(hours=24) == []
    assert len(machine.days(12)) == 1


def test_machines_that_live_for_minutes_remove_what_is_old(tmp_path):
    """A crawl each day, each on a machine of its own: only the wall clock tells how far apart they are."""
    (tmp_path / OLD).write_bytes(b"x")
    machine, gone = Machine(tmp_path), []
    for day in range(95):
        gone += [(day, path.name) for path in machine.look()]
        machine.restart(after=DAY)

    assert gone == [(91, OLD)]


def test_a_compressed_or_compacted_file_is_as_old_as_what_it_holds(machine):
    machine.days(40)
    (machine.directory / OLD).rename(machine.directory / (OLD + ".zst"))
    machine.days(40)
    (machine.directory / (OLD + ".zst")).rename(machine.directory / "20270101.1.parquet")

    assert [path.name for path in machine.days(12)] == ["20270101.1.parquet"]


def test_the_first_seen_go_until_the_rest_fits_whatever_their_day(tmp_path):
    machine = Machine(tmp_path, Retention(days=0, octets=250))
    for day in ("20270110", "20300101", "19700101", "20270111", "20270112"):
        (tmp_path / f"{day}-h-1-ab-0001.jsonl").write_bytes(b"x" * 100)
        gone = [path.name[:8] for path in machine.looks(hours=1)]
        assert len(gone) <= 1, "the rest fits"

    assert days_of(tmp_path) == ["20270111", "20270112"]


def test_with_no_bound_in_days_nothing_goes(machine):
    machine.retention = Retention(days=0)
    assert machine.days(500) == []


# -- the account --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"{"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_bytes(b'{"highest":0,"settled":["",0,0]}'),
        lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_without_a_readable_account_all_ages_begin_anew(machine, spoil):
    machine.days(89)
    spoil(machine.directory / ".retention")

    assert machine.days(90) == []
    assert len(machine.days(3)) == 1


def test_a_directory_in_the_place_of_the_account_stops_removal_and_no_writer(machine, caplog):
    (machine.directory / ".retention").unlink()
    (machine.directory / ".retention").mkdir()
    tidy(machine.directory, NINETY, Look(boot="b", up=1.0, wall=AT))

    assert "could not be removed" in caplog.text
    assert days_of(machine.directory) == ["20270101"]


@pytest.mark.parametrize("wall", [1e18, -1e18, float("nan"), float("inf")])
def test_no_clock_makes_housekeeping_raise(machine, wall):
    for up in (1.0, 2.0, 2 * HOUR):
        tidy(machine.directory, NINETY, Look(boot="b", up=up, wall=wall))

    assert days_of(machine.directory) == ["20270101"]


@pytest.mark.parametrize("step", ["read_plain", "_removed", "_save", "put_in_place"])
def test_being_killed_at_any_step_removes_nothing_that_is_not_due(machine, monkeypatch, step):
    real, looks = getattr(keeping, step), iter(range(1000))

    def is_killed_every_other_time(*args):
        if next(looks) % 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(keeping, step, is_killed_every_other_time)
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


def test_one_process_keeps_house_at_a_time(machine):
    """Two that look at the sizes at once would each remove enough, and together twice as much."""
    machine.retention = Retention(days=0, octets=1)
    (machine.directory / "20270102-h-1-ab-0001.jsonl").write_bytes(b"x")
    with housekeeping_elsewhere(machine.directory):
        assert machine.look() == []
    assert len(machine.look()) == 1


def test_evidence_stays_while_the_file_beside_it_is_written(tmp_path):
    journal = journal_in(tmp_path)
    journal.write(decision())
    evidence = tmp_path / f"{key_of(journal.path.name)}.warc.gz"
    evidence.write_bytes(b"x" * 100)
    machine = Machine(tmp_path, Retention(days=1, octets=10))

    assert machine.days(4) == []
    journal.close()
    assert {path.name for path in machine.look()} == {evidence.name, journal.path.name}
