"""The overview reads only files that may have records of its periods, and shows the same figures."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, audit_log_in, decision
from hypothesis import given, settings
from hypothesis import strategies as st

from robots_guard.audit.read import index
from robots_guard.audit.read.search import LoadedSearch
from robots_guard.audit.record import moment
from robots_guard.audit.segments import INDEX, segments, stem_of
from robots_guard.audit.show.overview import overview

DAY = 86400
LAST = 20  # days of a log
SPANS = (3600, DAY, 7 * DAY, 30 * DAY, None)

#: A record: how long after its file was begun it was written, and what became of the request.
RECORD = st.tuples(
    st.floats(-3600, 5 * DAY),
    st.sampled_from(["drop", "pass", "defer", "fetch", "passes"]),
    st.integers(0, 3),
)
FILES = st.lists(
    st.tuples(st.integers(0, LAST - 1), st.lists(RECORD, min_size=1, max_size=8)), max_size=6
)


class Unlimited(LoadedSearch):
    """A search that reads all files for each query."""

    def only_since(self, at):
        return nullcontext()


def line(seq, at, what, site):
    """A line of a decision, of a fetch or of a count of passes."""
    shown = moment(at)
    values = {"seq": seq, "writer": "w", "component": "scrapy", "origin": f"https://s{site}.test"}
    if what == "fetch":
        kind = {
            "kind": "fetch",
            "schema": 1,
            "at": shown,
            "status": 200,
            "sha256": f"{seq % 2:064}",
        }
        return msgspec.json.encode(kind | values) + b"\n"
    kind = {"kind": "passes" if what == "passes" else "decision", "schema": 1, "at": shown}
    values |= {"agent": "mybot", "job": f"job-{site}", "since": shown, "until": shown, "count": 3}
    values["action"] = "pass" if what == "passes" else what
    values["reason"] = {"drop": "disallowed", "defer": "crawl-delay"}.get(what, "allowed")
    return msgspec.json.encode(kind | values) + b"\n"


def write(directory, files):
    """Write files as writers leave them: changed last when their last record was written."""
    for number, (day, records) in enumerate(files, 1):
        begins = AT + day * DAY
        times = sorted((begins + delay, what, site) for delay, what, site in records)
        stem = stem_of(moment(begins)[:10].replace("-", ""), "w", number)
        path = directory / f"{stem}.jsonl"
        path.write_bytes(b"".join(line(seq, *each) for seq, each in enumerate(times, 1)))
        os.utime(path, (begins, times[-1][0] + 1))


def figures(kind, directory, span):
    until = AT + LAST * DAY
    with kind(directory) as search:
        return overview(search, None if span is None else moment(until - span), moment(until))


@settings(max_examples=6)
@given(FILES, st.sampled_from([1, 2**30]), st.sampled_from(SPANS))
def test_the_figures_are_those_of_all_files(files, worthwhile, span):
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "WORTHWHILE", worthwhile)
        directory = Path(scratch)
        write(directory, files)
        assert figures(LoadedSearch, directory, span) == figures(Unlimited, directory, span)


@pytest.fixture
def old_file(tmp_path, monkeypatch):
    """A log of two days, a month apart; the copy of the older one."""
    monkeypatch.setattr(index, "WORTHWHILE", 1)
    for at in (AT - 30 * DAY, AT):
        made = audit_log_in(tmp_path)
        made.write(decision(at=at))
        made.close()
    for segment in segments(tmp_path):
        end = AT - 29 * DAY if segment.day < moment(AT)[:10].replace("-", "") else AT + DAY
        os.utime(segment.path, (end, end))
    with LoadedSearch(tmp_path):
        pass
    return min((tmp_path / INDEX).iterdir())


def test_files_of_other_periods_are_not_opened(old_file):
    directory = old_file.parent.parent
    count = "SELECT count(*) FROM decisions"
    content = old_file.read_bytes()
    with LoadedSearch(directory) as search:
        old_file.write_bytes(b"no table")
        with search.only_since(moment(AT - DAY)):
            assert [*search.rows(count)] == [(1,)]
            assert old_file.read_bytes() == b"no table"
            old_file.write_bytes(content)
        assert [*search.rows(count)] == [(2,)]
