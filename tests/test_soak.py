"""The checks of benchmarks/soak.py notice a forbidden request and a missing record."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

import pytest
from audit.decisions import audit_log_in, decision

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Verdict

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
pytest.importorskip("redis")
from soaking.faults import Spans, schedule
from soaking.records import read
from soaking.sites import Ledger, Site


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


@pytest.fixture
def quiet(monkeypatch):
    """Origins that always answer well."""
    monkeypatch.setattr("soaking.sites.ANSWERS", {"good": 1})
    monkeypatch.setattr("soaking.sites.PAGES", {"good": 1})


def test_a_page_is_forbidden_until_a_robots_txt_that_allows_it_was_served(net, quiet):
    ledger = Ledger()
    site = Site(net, 5, 1, ledger).origin.url

    get(f"{site}/open/1")
    get(f"{site}/robots.txt")
    get(f"{site}/open/2")
    get(f"{site}/private/3")
    get(f"{site}/v/0/4")
    get(f"{site}/v/1/5")
    get(f"{site}/robots.txt")  # the second version
    get(f"{site}/v/1/6")

    assert ledger.forbidden == [f"{site}/{page}" for page in ("open/1", "private/3", "v/1/5")]
    assert ledger.pages == {1, 2, 3, 4, 5, 6}


def test_a_part_of_a_file_permits_nothing(net, monkeypatch, quiet):
    monkeypatch.setattr("soaking.sites.ANSWERS", {"partial": 1})
    ledger = Ledger()
    site = Site(net, 5, 1, ledger).origin.url

    get(f"{site}/robots.txt")
    get(f"{site}/open/1")

    assert ledger.forbidden == [f"{site}/open/1"]


@pytest.fixture
def log(tmp_path):
    """A log of a PASS of page 1, and two refusals."""
    audit_log = audit_log_in(tmp_path)
    audit_log.write(
        decision("https://a.test/open/1", Verdict(action=Action.PASS, reason=Reason.BYPASSED))
    )
    audit_log.write(decision())
    audit_log.write(decision())
    audit_log.close()
    return tmp_path


def test_a_whole_log_has_no_gap(log):
    found = read(log, Spans())

    assert (found.ids, found.passed, found.explained, found.unexplained) == ({"w-1"}, {1}, 0, [])


def test_a_record_that_was_removed_is_a_gap_unless_the_disk_was_full(log):
    (file,) = log.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    at = json.loads(lines[2])["mono"]
    file.write_bytes(b"".join(lines[:2] + lines[3:]))

    assert len(read(log, Spans()).unexplained) == 1
    assert read(log, Spans([(at, at)])).explained == 1
    assert len(read(log, Spans([(at + 60, at + 61)])).unexplained) == 1


def test_a_seed_draws_the_same_schedule_again():
    lanes = {"one": ["a", "b"], "two": ["c"]}

    assert schedule(7, 100, lanes) == schedule(7, 100, lanes) != schedule(8, 100, lanes)
