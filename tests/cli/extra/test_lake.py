"""`audit export --parquet`, and the commands that read what it writes."""

from __future__ import annotations

import re

import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision

from robots_guard.audit.lake.export import export
from robots_guard.audit.lake.places import place_at
from robots_guard.audit.read.reader import Unreadable
from robots_guard.cli.audit import reports
from robots_guard.ports import Clocks

UNTIL = ("--until", "2027-01-16")
NO_CHAIN = "is a Parquet export"


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory):
    log = audit_log_in(tmp_path_factory.mktemp("log") / "audit_log", passes=1, component="scrapy")
    for number, verdict in enumerate((DROP, PASS, DEFER) * 5):
        log.write(decision(f"https://a.test/private/{number}", verdict, at=AT + number))
    log.close()
    return log.directory


@pytest.fixture(scope="module")
def lake(audit_log):
    place = audit_log.parent / "lake"
    [*export(audit_log, place_at(str(place)), "2027-01-16", Unreadable())]
    return place


def test_export_names_what_it_wrote_and_the_next_one_has_nothing_to_do(here, audit_log, tmp_path):
    command = ("audit", "export", "--audit-log", audit_log, "--parquet", tmp_path, *UNTIL)
    status, out, err = here(*command, "--by", "day")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "decisions/day=2027-01-15/records.parquet\t15 records, 15 new",
        "events/day=2027-01-15/records.parquet\t2 records, 2 new",
    ]
    assert here(*command) == (0, "", "robots-guard: there is nothing new before 2027-01-16\n")


def test_an_export_on_the_first_day_says_how_to_have_it(here, audit_log, tmp_path, monkeypatch):
    clocks = Clocks(now=lambda: AT + 3600, monotonic=lambda: 7.0)
    monkeypatch.setattr(reports, "CLOCKS", clocks)
    command = ("audit", "export", "--audit-log", audit_log, "--parquet", tmp_path / "lake")

    _, _, err = here(*command)

    assert err.endswith("2027-01-15: --until 2027-01-16 exports the day so far\n")


def test_by_default_today_is_left_for_later(here, audit_log, tmp_path, monkeypatch):
    command = ("audit", "export", "--audit-log", audit_log, "--parquet", tmp_path / "lake")
    for now, found in ((AT + 3600, False), (AT + 86400, True)):
        monkeypatch.setattr(
            reports, "CLOCKS", Clocks(now=lambda now=now: now, monotonic=lambda: 7.0)
        )
        status, out, err = here(*command)
        assert (status, bool(out), "nothing new before 2027-01-15" in err) == (0, found, not found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give either --format (ecs, "),
        (("--format", "csv", "--parquet", "x"), "give either --format (ecs, "),
        (("--format", "csv", "--by", "day"), "--by and --source go with --parquet"),
        (("--parquet", "x", "--action", "drop"), "--action cannot be combined"),
        (("--parquet", "x", "--since", "1d"), "--since cannot be combined"),
        (("--parquet", "x", "-o", "y"), "--output cannot be combined"),
        (("--parquet", "x", "--source", "a/b"), "--source 'a/b' is not a name"),
    ],
)
def test_options_that_do_not_go_together_are_refused(here, audit_log, options, said):
    status, _, err = here("audit", "export", "--audit-log", audit_log, *options)
    assert (status, said in err) == (2, True), err


def test_records_of_a_newer_version_are_an_exit_status(here, tmp_path):
    log = tmp_path / "audit_log"
    log.mkdir()
    line = '{"kind":"decision","schema":2,"at":"2027-01-14T08:00:00.000Z","seq":1,"writer":"w"}\n'
    (log / "20270114-w-0001.jsonl").write_text(line)
    command = ("audit", "export", "--audit-log", log, "--parquet", tmp_path / "lake", *UNTIL)
    status, out, err = here(*command)
    assert (status, out) == (1, "")
    assert "written by a newer robots_guard (schema 2)" in err


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "query"),
        ("audit", "query", "--kind", "all", "--json"),
        ("audit", "query", "--sql", "SELECT action, count(*) FROM decisions GROUP BY 1 ORDER BY 1"),
        ("audit", "export", "--format", "csv"),
        ("why", "https://a.test/private/3"),
    ],
)
def test_the_same_answer_as_from_the_log(here, audit_log, lake, command):
    known = here(*command, "--audit-log", audit_log)
    found = here(*command, "--audit-log", lake)
    shown = found.out.replace(str(lake), str(audit_log))
    assert (found.status, shown) == (known.status, known.out)
    assert NO_CHAIN in found.err
    assert "has no chain" in found.err


def test_the_report_has_the_same_figures_and_says_what_is_not_proved(
    here, audit_log, lake, tmp_path
):
    pages = []
    for directory in (audit_log, lake):
        path = tmp_path / f"{directory.name}.html"
        assert here("audit", "report", "--audit-log", directory, "-o", path).status == 0
        pages.append(path.read_text())
    verified = "were not verified: it is a Parquet export, which has no chain"
    assert [verified in page for page in pages] == [False, True]
    tables = [re.findall(r"<table.*?</table>", page, re.DOTALL) for page in pages]
    assert tables[0] == tables[1]
    assert tables[0]


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "verify"),
        ("audit", "tail", "--no-follow"),
        ("audit", "compact"),
        ("audit", "anchor"),
        ("audit", "bundle", "w-1"),
        ("audit", "hold", "list"),
        ("audit", "export", "--parquet", "x"),
        ("check", "http://127.0.0.1:9/"),
    ],
)
def test_what_needs_lines_or_a_chain_is_refused(here, lake, command):
    before = set(lake.rglob("*"))
    status, _, err = here(*command, "--audit-log", lake)
    assert (status, NO_CHAIN in err) == (2, True), err
    assert set(lake.rglob("*")) == before
