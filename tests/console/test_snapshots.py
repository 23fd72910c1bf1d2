"""The journal as it was a moment ago: read anew when it has changed, and no more often than is cheap."""

from __future__ import annotations

import threading

import pytest
from audit.decisions import AT, decision, journal_in
from support.threads import System

from robots_guard.audit.compact import compact
from robots_guard.audit.resident import Resident
from robots_guard.console import snapshots as module
from robots_guard.console.snapshots import REST, Snapshots
from robots_guard.errors import SettingsError
from robots_guard.ports import Clocks


@pytest.fixture
def opening(monkeypatch, clock):
    """How long an opening takes, and what it waits for; how many there were."""

    class Opening:
        seconds = 0.0
        gate = None
        count = 0

    class Slow(Resident):
        def __init__(self, *args, **options):
            Opening.count += 1
            if Opening.gate:
                assert Opening.gate.wait(60)
            clock.advance(Opening.seconds)
            super().__init__(*args, **options)

    monkeypatch.setattr(module, "Resident", Slow)
    return Opening


@pytest.fixture
def journal(tmp_path):
    made = journal_in(tmp_path)
    made.write(decision(at=AT))
    yield made
    made.close()


@pytest.fixture
def snapshots(journal, clock):
    made = Snapshots(journal.directory, Clocks(now=clock, monotonic=clock))
    yield made
    made.close()


def count(snapshots):
    with snapshots.now() as snapshot:
        return snapshot.once("count", lambda search: next(search.rows("SELECT count(*) FROM decisions"))[0])


def test_what_has_not_changed_is_not_read_again(snapshots, opening):
    assert [count(snapshots) for _ in range(3)] == [1, 1, 1]
    assert opening.count == 1


def test_what_is_cheap_is_there_at_once(snapshots, journal, opening):
    assert count(snapshots) == 1
    journal.write(decision(at=AT))
    assert count(snapshots) == 2


def test_an_opening_is_rested_from(snapshots, journal, opening, clock):
    opening.seconds = 0.1
    assert count(snapshots) == 1
    journal.write(decision(at=AT))
    clock.advance(REST * 0.1 - 0.01)
    assert count(snapshots) == 1
    clock.advance(0.02)
    assert count(snapshots) == 2


def test_nobody_waits_for_a_long_opening(snapshots, journal, opening, clock):
    opening.seconds = 2.0
    assert count(snapshots) == 1
    journal.write(decision(at=AT))
    clock.advance(REST * 2.0)
    opening.gate = threading.Event()
    assert [count(snapshots) for _ in range(3)] == [1, 1, 1]
    aside = snapshots._aside
    opening.gate.set()
    aside.join(60)
    assert (count(snapshots), opening.count) == (2, 2)


def test_a_refused_thread_keeps_no_later_look_from_the_files(snapshots, journal, opening, clock, monkeypatch):
    opening.seconds = 2.0
    assert count(snapshots) == 1
    journal.write(decision(at=AT))
    clock.advance(REST * 2.0)
    system = System(monkeypatch)
    system.refuses = 1
    assert count(snapshots) == 1
    assert count(snapshots) in (1, 2)  # opened aside
    if (aside := snapshots._aside) is not None:
        aside.join(60)
    assert count(snapshots) == 2


def test_a_compacted_file_that_is_removed_is_no_trouble(snapshots, journal, opening):
    journal.close()
    (made,) = compact(journal.directory, "99999999")
    opening.seconds = 5.0
    assert count(snapshots) == 1
    made.path.unlink()
    assert count(snapshots) == 0


def test_a_journal_that_goes_meanwhile_is_said_to_be_gone(snapshots, journal, opening, clock):
    opening.seconds = 2.0
    count(snapshots)
    clock.advance(REST * 2.0)
    journal.close()
    journal.path.unlink()
    journal.directory.rmdir()
    with pytest.raises(SettingsError, match="nothing has been recorded yet"):
        count(snapshots)
