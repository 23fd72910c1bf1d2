"""The lines of the decision log: one for each kind, and a bounded number whatever happens."""

from __future__ import annotations

import logging

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, decision

from robots_guard.audit.privacy import Privacy
from robots_guard.decisions.access import Failed, Failure
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import Action, Exemption
from robots_guard.gateway.decision_log import LOGGER, MAX_LINES, WINDOW, DecisionLog


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@pytest.fixture
def lines(caplog):
    """The lines logged so far."""
    caplog.set_level(logging.INFO, LOGGER)
    handler = _Lines()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler.messages
    logging.getLogger(LOGGER).removeHandler(handler)


def test_repeats_of_a_kind_are_counted(lines):
    log = DecisionLog("drops", Privacy())
    for second in range(50):
        log.add(decision(f"https://a.test/private/{second}", at=AT + second))
    log.add(decision("https://b.test/private/", at=AT + 50))
    log.add(decision("https://a.test/x", DEFER, at=AT + 50))

    assert [line.partition(" [")[0] for line in lines] == [
        "drop (disallowed): GET https://a.test/private/0: line 2 of its robots.txt says"
        " 'Disallow: /private/', group '*'",
        "drop (disallowed): GET https://b.test/private/: line 2 of its robots.txt says"
        " 'Disallow: /private/', group '*'",
        "defer (unreachable): GET https://a.test/x: dns: no such host; retry in 0 s",
    ]
    del lines[:]
    log.end_windows(AT + WINDOW - 1)
    assert lines == []
    log.end_windows(AT + WINDOW)
    assert [line.partition(":")[0] for line in lines] == [
        "49 more within 49 s like",
    ]
    log.add(decision("https://a.test/private/again", at=AT + WINDOW))
    assert lines[1].startswith("drop (disallowed): GET https://a.test/private/again")


def test_decisions_that_differ_in_what_a_report_groups_by_are_of_different_kinds(lines):
    """Such as the owner of an override whose id is the same, or the failure of a robots.txt."""
    shop = Exemption(id="shop", owner="ann", reason="contract", expires=AT)
    made = decision(verdict=DEFER, override=shop)
    unreachable = begin(made.question.origin, None, "direct")
    sent = msgspec.structs.replace(made.question, sent=True)
    failed = {each: unreachable.next(Failed(failure=each), AT).policy for each in Failure}
    log = DecisionLog("drops", Privacy())
    kinds = [
        decision(verdict=DEFER),
        made,
        msgspec.structs.replace(made, override=msgspec.structs.replace(shop, owner="bob")),
        msgspec.structs.replace(made, policy=failed[Failure.DNS]),
        msgspec.structs.replace(made, policy=failed[Failure.TIMEOUT]),
        decision(verdict=msgspec.structs.replace(DEFER, detail="timeout")),
        msgspec.structs.replace(decision(), question=sent),
        decision(verdict=DROP),
        decision(verdict=DROP, agent="otherbot"),
    ]
    for each in [*kinds, *kinds]:
        log.add(each)
    assert len(lines) == len(kinds)


def test_a_loop_over_many_sites_has_a_bounded_number_of_lines(lines):
    log = DecisionLog("drops", Privacy())
    for number in range(MAX_LINES * 3):
        log.add(decision(f"https://s{number}.test/private/", at=AT + number / 100))
    assert len(lines) == MAX_LINES
    log.end_windows(AT + WINDOW)
    assert lines[MAX_LINES:] == [
        f"{2 * MAX_LINES} more have no lines of their own, because there are {MAX_LINES} a minute"
        " at most: see robots-guard audit query"
    ]
    log.add(decision("https://new.test/private/", at=AT + WINDOW + 1))
    assert len(lines) == MAX_LINES + 2


def test_the_end_logs_the_counts(lines):
    log = DecisionLog("drops", Privacy())
    for second in range(3):
        log.add(decision(at=AT + second))
    log.close()
    assert lines[1].startswith("2 more within 2 s like: drop (disallowed)")


def test_repeats_of_less_than_a_second_are_not_within_no_time(lines):
    log = DecisionLog("drops", Privacy())
    for number in range(3):
        log.add(decision(at=AT + number / 20))
    log.close()
    assert lines[1].startswith("2 more within 1 s like: drop (disallowed)")


def test_a_clock_that_is_set_back_ends_the_windows(lines):
    log = DecisionLog("drops", Privacy())
    for number in range(MAX_LINES):
        log.add(decision(f"https://s{number}.test/private/", at=AT))
    log.add(decision("https://late.test/private/", at=AT - 3600))
    assert "late.test" in lines[-1]


@pytest.mark.parametrize(("level", "actions"), [("drops", 2), ("all", 3), ("none", 0)])
def test_levels(lines, level, actions):
    log = DecisionLog(level, Privacy())
    for verdict in (DROP, DEFER, PASS):
        log.add(decision(verdict=verdict))
    assert len(lines) == actions


@pytest.mark.parametrize(("reason", "count"), [("disallowed", 1), ("bypassed", 0)])
def test_what_would_be_refused_has_a_line_unless_an_override_lets_it_pass(lines, reason, count):
    would = {"action": Action.PASS, "reason": Reason(reason), "would": Action.DROP}
    verdict = msgspec.structs.replace(DROP, relaxed="report_only", **would)
    DecisionLog("drops", Privacy()).add(decision(verdict=verdict))
    assert len(lines) == count


def test_values_that_the_audit_log_hashes_are_left_out(lines):
    """Without the audit log's key, a hash could be found by trial."""
    DecisionLog("drops", Privacy(query="hash")).add(decision("https://a.test/x?name=jane"))
    assert lines[0].startswith("drop (disallowed): GET https://a.test/x: ")
