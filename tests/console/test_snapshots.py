"""Snapshots of the audit log are reloaded when it has changed, and no more often than is cheap."""

from __future__ import annotations

import threading

import pytest
from audit.decisions import AT, audit_log_in, decision
from support.threads import System

from robots_guard.app.console import snapshots as module
from robots_guard.app.console.snapshots import REST, Snapshots
from robots_guard.audit.read import index
from robots_guard.audit.read.search import LoadedSearch
from robots_guard.audit.write.maintenance import inspect, retain
from robots_guard.audit.write.retention import Retention
from robots_guard.errors import SettingsError
from robots_guard.ports import Clocks

# These tests wait for the private `_loader`: the end of a load in the background has no public
# face.


@pytest.fixture
def opening(monkeypatch, clock):
    """Control how long loading a snapshot takes and what it waits for; count the loads."""

    class Opening:
        seconds = 0.0
        gate = None
        count = 0

    class Slow(LoadedSearch):
        def __init__(self, *args, **options):
            Opening.count += 1
            if Opening.gate:
                assert Opening.gate.wait(60)
            clock.advance(Opening.seconds)
            super().__init__(*args, **options)

    monkeypatch.setattr(module, "LoadedSearch", Slow)
    return Opening


@pytest.fixture
def audit_log(tmp_path):
    made = audit_log_in(tmp_path)
    made.write(decision(at=AT))
    yield made
    made.close()


@pytest.fixture
def snapshots(audit_log, clock):
    made = Snapshots(audit_log.directory, Clocks(now=clock, monotonic=clock))
    yield made
    made.close()


def count(snapshots):
    with snapshots.newest() as snapshot:
        return snapshot.cached(
            "count", lambda search: next(search.rows("SELECT count(*) FROM decisions"))[0]
        )


def test_unchanged_files_are_not_reloaded(snapshots, opening):
    assert [count(snapshots) for _ in range(3)] == [1, 1, 1]
    assert opening.count == 1


def test_cheap_reload_is_immediate(snapshots, audit_log, opening):
    assert count(snapshots) == 1
    audit_log.write(decision(at=AT))
    assert count(snapshots) == 2


def test_reload_waits_a_multiple_of_its_duration(snapshots, audit_log, opening, clock):
    opening.seconds = 0.1
    assert count(snapshots) == 1
    audit_log.write(decision(at=AT))
    clock.advance(REST * 0.1 - 0.01)
    assert count(snapshots) == 1
    clock.advance(0.02)
    assert count(snapshots) == 2


def test_slow_load_runs_in_background(snapshots, audit_log, opening, clock):
    opening.seconds = 2.0
    assert count(snapshots) == 1
    audit_log.write(decision(at=AT))
    clock.advance(REST * 2.0)
    opening.gate = threading.Event()
    assert [count(snapshots) for _ in range(3)] == [1, 1, 1]
    loader = snapshots._loader
    opening.gate.set()
    loader.join(60)
    assert (count(snapshots), opening.count) == (2, 2)


def test_failed_thread_start_is_retried(snapshots, audit_log, opening, clock, monkeypatch):
    opening.seconds = 2.0
    assert count(snapshots) == 1
    audit_log.write(decision(at=AT))
    clock.advance(REST * 2.0)
    system = System(monkeypatch)
    system.refuses = 1
    assert count(snapshots) == 1
    assert count(snapshots) in (1, 2)  # loaded in the background
    if (loader := snapshots._loader) is not None:
        loader.join(60)
    assert count(snapshots) == 2


def test_removed_file_is_no_error(snapshots, audit_log, opening, monkeypatch):
    monkeypatch.setattr(index, "WORTHWHILE", 1)
    audit_log.close()
    opening.seconds = 5.0
    assert count(snapshots) == 1
    retain(audit_log.directory, Retention(days=0, size=1), inspect(AT))
    assert count(snapshots) == 0


def test_vanished_audit_log_is_reported(snapshots, audit_log, opening, clock):
    opening.seconds = 2.0
    count(snapshots)
    clock.advance(REST * 2.0)
    audit_log.close()
    audit_log.path.unlink()
    audit_log.directory.rmdir()
    with pytest.raises(SettingsError, match="nothing has been recorded yet"):
        count(snapshots)
