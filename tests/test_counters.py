"""Failures: each is counted, each fault is logged once a minute, and recovery is logged."""

from __future__ import annotations

import pytest

from robots_guard.errors import AuditLogError, DamagedValue, StoreError, StoreReset
from robots_guard.guard.counters import FAULTS, QUIET, WARN_EVERY, Counters
from robots_guard.ports import Clocks

READ = "cannot be read: %s"


@pytest.fixture
def counters(clock):
    return Counters(Clocks(now=clock, monotonic=clock))


def fail(counters: Counters, error: str | Exception = "refused", part: str = "reading") -> None:
    made = error if isinstance(error, Exception) else StoreError(error)
    counters.warn("store/error", READ, made, part=part)


def test_a_fault_is_logged_once_a_minute_and_counted_each_time(counters, clock, caplog):
    for _ in range(3):
        fail(counters)
    clock.advance(WARN_EVERY)
    fail(counters)

    assert counters.counts["store/error"] == 4
    assert caplog.messages == ["cannot be read: refused"] * 2


def test_another_fault_is_logged_beside_the_first(counters, caplog):
    """Each has a remedy of its own."""
    fail(counters, "the user may not do this")
    fail(counters, "it wants another password")
    fail(counters, "the user may not do this")

    assert caplog.messages == [
        "cannot be read: the user may not do this",
        "cannot be read: it wants another password",
    ]


def test_a_fault_with_other_numbers_is_the_same(counters, caplog):
    for seconds in (0.25, 0.5, 12):
        fail(counters, f"it took {seconds} s")
        fail(counters, DamagedValue(f"what is held for https://{seconds}.test is damaged"))

    assert len(caplog.messages) == 2


def test_however_many_faults_there_are_a_few_a_minute_are_logged(counters, clock, caplog):
    for letter in "abcdefghijklmnopqrstuvwxyz":
        fail(counters, letter)
    assert len(caplog.messages) == FAULTS
    clock.advance(WARN_EVERY)
    fail(counters, "z")

    assert len(caplog.messages) == FAULTS + 1


def test_recovery_of_the_store_is_logged_once(counters, clock, caplog):
    counters.mark_working("store/error", "reading", "writing")
    fail(counters)
    clock.advance(QUIET)
    for _ in range(3):
        counters.mark_working("store/error", "reading", "writing")

    assert caplog.messages == ["cannot be read: refused", "the policy store works again"]


def test_recovery_of_the_audit_log_is_logged(counters, clock, caplog):
    counters.warn("audit_log/error", "not recorded: %s", AuditLogError("disk full"), part="records")
    clock.advance(QUIET)
    counters.mark_working("audit_log/error", "records")

    assert caplog.messages == ["not recorded: disk full", "the audit log works again"]


def test_a_store_that_can_be_read_but_not_written_does_not_work_again(counters, clock, caplog):
    """For example, its disk is full."""
    fail(counters, part="writing")
    clock.advance(QUIET)
    counters.mark_working("store/error", "reading")
    assert len(caplog.messages) == 1
    counters.mark_working("store/error", "writing")

    assert caplog.messages[1:] == ["the policy store works again"]


def test_a_store_that_fails_every_now_and_then_does_not_work_again(counters, clock, caplog):
    """For example, one node of several is down."""
    for _ in range(20):
        fail(counters)
        clock.advance(QUIET / 2)
        counters.mark_working("store/error", "reading")

    assert caplog.messages == ["cannot be read: refused"]


def test_a_new_outage_is_logged_though_a_minute_has_not_passed(counters, clock, caplog):
    for _ in range(2):
        fail(counters)
        clock.advance(QUIET)
        counters.mark_working("store/error", "reading")

    assert caplog.messages == ["cannot be read: refused", "the policy store works again"] * 2


def test_replaced_store_is_logged(counters, clock, caplog):
    """It is no outage: the store is usable."""
    fail(counters, StoreReset("was damaged (no database) and has been recreated"))
    clock.advance(QUIET)
    counters.mark_working("store/error", "reading")

    assert caplog.messages == [
        "the policy store was damaged (no database) and has been recreated: continuing with the new one"
    ]
