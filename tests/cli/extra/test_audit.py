"""`audit`: what the integrations decided, searched and followed."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision
from cli.command import COMMAND, argument, quiet
from support.terminals import read_terminal

from robots_guard.app.cli.audit.records import HEADINGS
from robots_guard.audit.bundle.archive import read_archive, write_archive
from robots_guard.audit.record import record_of
from robots_guard.audit.write.maintenance import compress
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Exemption, Verdict
from robots_guard.ports import Clocks


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "audit_log"


@pytest.fixture
def audit_log(directory):
    made = audit_log_in(directory, audit="all")
    made.write(decision("https://a.test/private/1", component="scrapy"))
    made.write(decision("https://b.test/private/2?token=abc", component="proxy", at=AT + 1))
    made.write(decision("https://a.test/3", verdict=DEFER, at=AT + 2, agent="otherbot"))
    yield made
    made.close()


def test_records_are_found_in_any_locale(ran, tmp_path):
    """In folders whose names the locale cannot spell, and by such texts."""
    place = tmp_path / "größe" / "audit_log"
    options = ("--audit-log", place, "--audit-job", argument(ran, "größe"))
    assert quiet(ran("check", *options, argument(ran, "http://127.0.0.1:9/größe"))).returncode == 3
    for filters in ((), ("--job", argument(ran, "größe"))):
        found = quiet(ran("audit", "query", "--audit-log", place, *filters))
        assert (found.returncode, b"/gr%C3%B6%C3%9Fe" in found.stdout) == (0, True), filters
    found = quiet(
        ran("audit", "query", "--audit-log", place, "--rule", argument(ran, "Disallow: /größe/"))
    )
    assert (found.returncode, b"/gr%C3%B6%C3%9Fe" in found.stdout) == (0, False)


def test_query_prints_one_untruncated_row_per_record(here, audit_log):
    audit_log.write(decision("https://a.test/" + "x" * 500, at=AT + 3))
    status, out, err = here("audit", "query", "--oldest-first")
    lines = out.splitlines()

    assert (status, err) == (0, "")
    assert lines[0].split("\t") == [*HEADINGS]
    assert lines[1].split("\t") == [
        "drop",
        "2027-01-15T08:00:00.000Z",
        "scrapy",
        "mybot",
        "disallowed",
        "https://a.test/private/1",
        "Disallow: /private/",
        "2",
        "",
        "w-1",
    ]
    assert lines[4].split("\t")[5] == "https://a.test/" + "x" * 500


OVERRIDE = Exemption(id="shop-2026", owner="jane", reason="contract of 12 May", expires=AT + 9)
TOLD = "override shop-2026 (jane: contract of 12 May)"


@pytest.mark.parametrize(
    ("verdict", "cell"),
    [
        (Verdict(action=Action.PASS, reason=Reason.BYPASSED), TOLD),
        (Verdict(action=Action.DROP, reason=Reason.BLOCKED), TOLD),
        (DROP, f"Disallow: /private/; {TOLD}"),
    ],
    ids=lambda value: getattr(value, "reason", ""),
)
def test_override_of_a_decision_is_shown(here, directory, verdict, cell):
    audit_log = audit_log_in(directory)
    audit_log.write(decision("https://a.test/", verdict=verdict, override=OVERRIDE))
    audit_log.close()

    assert here("audit", "query").out.splitlines()[1].split("\t")[6] == cell
    assert cell in here("audit", "query", "--csv").out


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--origin", "https://a.test"], [4, 2]),
        (["--origin", "https://A.test:443"], [4, 2]),
        (["--url", "https://A.test/private/%31#top"], [2]),
        (["--url", "https://b.test/private/2?token=other"], [3]),
        (["--url", "https://a.test/*"], [4, 2]),
        (["--url", "https://a.test/priv*"], [2]),
        (["--url", "B.test"], [3]),
        (["--url", "b.test:80"], []),
        (["--id", "w-1"], [4, 3, 2]),
        (["--reason", "unreachable"], [4]),
        (["--action", "drop"], [3, 2]),
        (["--component", "scrapy"], [2]),
        (["--component", "proxy"], [3]),
        (["--agent", "OtherBot"], [4]),
        (["--since", "2027-01-15T08:00:01"], [4, 3]),
        (["--since", "2027-01-15T09:00:01+01:00"], [4, 3]),
        (["--until", "2027-01-15T08:00:01Z"], [2]),
        (["--until", "1h"], []),
        (["--limit", "2"], [4, 3]),
        (["--limit", "2", "--oldest-first"], [3, 4]),
        (["--oldest-first"], [2, 3, 4]),
        (["--action", "drop", "--component", "proxy"], [3]),
    ],
    ids=str,
)
def test_filters_and_json(here, audit_log, options, found):
    status, out, _ = here("audit", "query", "--json", *options)

    assert status == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == found


def test_record_is_found_by_its_id(here, audit_log):
    audit_log.write(
        msgspec.structs.replace(decision("https://a.test/private/4", at=AT + 4), id="w-4")
    )
    (found,) = here("audit", "query", "--id", "w-4", "--json").out.splitlines()

    assert json.loads(found)["url"] == "https://a.test/private/4"
    assert here("audit", "query", "--id", "none").out == ""


@pytest.mark.parametrize(
    ("form", "out"), [([], ""), (["--json"], ""), (["--csv"], "action,time,component")], ids=str
)
def test_no_match_is_reported(here, audit_log, form, out):
    status, printed, err = here("audit", "query", "--origin", "https://c.test", *form)

    assert (status, printed[: len("action,time,component")]) == (0, out)
    assert err == "robots-guard: no record matches\n"
    assert here("audit", "query", *form).err == ""
    (audit_log.directory / "other.jsonl").write_bytes(b"nonsense\n")
    assert "no record" not in here("audit", "query", "--origin", "https://c.test", *form).err


@pytest.mark.parametrize("filters", [("--kind", "passes"), ("--action", "pass")], ids=str)
def test_passes_that_are_still_being_counted_are_explained(here, directory, filters):
    made = audit_log_in(directory, audit="summary", settings={"audit": "summary"})
    made.write(decision("https://a.test/1"))
    late = "no record matches: where audit is summary, passes are counted, and the numbers recorded"

    assert late in here("audit", "query", *filters).err
    assert late not in here("audit", "query", "--kind", "fetch").err
    made.close()


def test_json_and_csv_exclude_each_other(here, audit_log):
    status, out, err = here("audit", "query", "--json", "--csv")

    assert (status, out) == (2, "")
    assert "--json and --csv exclude each other: give one of them" in err


def test_missing_records_are_reported(here, directory):
    directory.mkdir()

    assert here("audit", "query") == (
        0,
        "",
        f"robots-guard: nothing has been recorded yet in {directory}\n",
    )


def test_tail_waits_for_the_first_record(variables, directory):
    directory.mkdir()
    child = subprocess.Popen(
        [COMMAND, "audit", "tail", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stderr.readline() == (
        f"robots-guard: nothing has been recorded yet in {directory}; waiting for the first record\n".encode()
    )
    audit_log = audit_log_in(directory)
    audit_log.write(decision("https://a.test/private/"))
    assert json.loads(child.stdout.readline())["url"] == "https://a.test/private/"
    audit_log.close()
    child.send_signal(signal.SIGINT)

    assert child.wait(60) == 130
    child.communicate(timeout=60)


def test_json_equals_the_line_in_the_audit_log(here, audit_log):
    printed = here("audit", "query", "--json", "--kind", "all", "--oldest-first").out
    assert printed == audit_log.path.read_text()


def test_unreadable_lines_are_reported_and_skipped(here, audit_log):
    (audit_log.directory / "torn.jsonl").write_bytes(
        b"\x1b]0;evil\x07\n" + audit_log.path.read_bytes()[:300]
    )
    status, out, err = here("audit", "query")

    assert (status, len(out.splitlines())) == (0, 4)
    assert err == "robots-guard: 2 unreadable lines in torn.jsonl\n"


def test_records_cannot_control_the_terminal(here, directory):
    directory.mkdir()
    hostile = json.loads(record_of(decision()).line_of_json())
    hostile |= {
        "url": "https://a.test/\x1b[2J\n\tdrop[red]\u202e",
        "component": "\x9b31m",
        "rule": "[link=x]\r",
    }
    (directory / "a.jsonl").write_text(json.dumps(hostile) + "\n")
    out = here("audit", "query").out

    assert len(out.splitlines()) == 2
    assert out.replace("\t", "").replace("\n", "").rstrip("\n").isprintable()
    assert "drop[red]" in out


def test_tail_shows_the_latest(here, audit_log):
    _, out, _ = here("audit", "tail", "-n", 2, "--no-follow", "--json")

    assert [json.loads(line)["seq"] for line in out.splitlines()] == [3, 4]
    assert here("audit", "tail", "-n", 0, "--no-follow").out == ""


def test_tail_follows_all_files_and_ends_quietly(variables, audit_log, directory):
    child = subprocess.Popen(
        [COMMAND, "audit", "tail", "-n", "1", "--action", "drop", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = [json.loads(child.stdout.readline())["url"]]
    audit_log.write(decision("https://a.test/private/4", at=AT + 4))
    seen.append(json.loads(child.stdout.readline())["url"])
    audit_log.write(decision("https://a.test/5", verdict=DEFER, at=AT + 5))
    late = audit_log_in(directory)
    late.write(decision("https://late.test/private/", at=AT + 6))
    seen.append(json.loads(child.stdout.readline())["url"])
    late.close()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)

    assert seen == [
        "https://b.test/private/2?token=REDACTED",
        "https://a.test/private/4",
        "https://late.test/private/",
    ]
    assert (child.returncode, out, err.strip()) == (130, b"", b"")


@pytest.mark.parametrize("args", [["query"], ["tail", "--no-follow"]], ids=str)
def test_terminal_gets_a_coloured_table_without_markup(variables, audit_log, args):
    audit_log.write(decision("https://a.test/[red]x[/red]", at=AT + 7))
    shown = on_a_terminal("audit", *args)

    assert b"\x1b[31mdrop" in shown
    assert b"\x1b[33mdefer" in shown
    assert b"[red]x[/red]" in shown


@pytest.mark.parametrize(
    "variables_of_terminal", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str
)
def test_terminal_of_80_columns_shows_long_values_on_lines_of_their_own(
    variables, audit_log, variables_of_terminal
):
    url = f"http://127.2.0.10:8000/private/{'x' * 300}/report.pdf"
    audit_log.write(decision(url, at=AT + 7))
    shown = on_a_terminal(
        "audit", "query", both=True, environment={"COLUMNS": "80", **variables_of_terminal}
    )
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    lines = [line.rpartition("\r")[2] for line in plain.split("\r\n")]
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("action")) :]
    table = [line.rstrip() for line in table if line and not line.startswith("searching")]
    first = table[2 : table.index("  rule   Disallow: /private/")]

    assert max(map(len, table)) <= 80
    assert any(line.startswith("times are in UTC; a time without a date") for line in lines)
    assert table[0].split() == ["action", "time", "component", "reason", "line", "id"]
    assert table[1].split() == ["drop", "2027-01-15", "08:00:07", "cli", "disallowed", "2", "w-1"]
    assert first[0] == "  agent  mybot"
    assert "".join(first[1:]).replace(" ", "") == f"url{url}"
    if variables_of_terminal:
        assert not re.search(rb"\x1b\[[0-9;]*m[^\x1b]*(action|drop)", shown)


def test_summary_of_verify_is_folded_on_a_terminal_and_one_line_elsewhere(
    here, variables, audit_log
):
    audit_log.close()
    shown = on_a_terminal(
        "audit", "verify", environment={"COLUMNS": "80", "NO_COLOR": "1"}
    ).decode()
    lines = shown.partition("whole: ")[2].splitlines()

    assert max(map(len, shown.splitlines())) <= 80
    assert len(lines) > 1
    assert (
        "whole: " + " ".join(map(str.strip, lines)) == here("audit", "verify").out.splitlines()[-1]
    )


def on_a_terminal(*args, both=False, environment=None) -> bytes:
    """What the command writes to a terminal of 200 columns, with `both` also to standard error."""
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = inherited | {"TERM": "xterm", "COLUMNS": "200"} | (environment or {})
    child = subprocess.Popen(
        [COMMAND, *args],
        stdout=theirs,
        stdin=theirs,
        stderr=theirs if both else None,
        env=environment,
    )
    os.close(theirs)
    shown = read_terminal(ours)
    assert child.wait(60) == 0
    return shown


def test_piped_output_is_complete_even_if_colours_are_forced(apart, audit_log, variables):
    variables.setenv("FORCE_COLOR", "1")
    plain = apart("audit", "query").out

    assert plain.splitlines()[0].split("\t") == [*HEADINGS]
    assert "\x1b" not in plain


def test_tail_prints_headings_once(here, audit_log):
    lines = here("audit", "tail", "--no-follow").out.splitlines()

    assert lines[0].split("\t") == [*HEADINGS]
    assert len(lines) == 4


def test_verdict_of_report_only_is_shown(here, directory):
    would = Verdict(action=Action.PASS, reason=Reason.DISALLOWED, would=Action.DROP)
    audit_log = audit_log_in(directory, audit="all")
    audit_log.write(decision("https://a.test/", verdict=would))
    audit_log.close()
    headings, row = here("audit", "query").out.splitlines()

    assert dict(zip(headings.split("\t"), row.split("\t"), strict=True))["would"] == "drop"


# -- other forms, and SQL ---------------------------------------------------------------------------------------


def test_csv_has_headings_and_no_formulas(here, audit_log):
    audit_log.write(
        decision("https://a.test/private/=1+1", user_agent="=1", agent="=cmd", at=AT + 9)
    )
    rows = list(csv.DictReader(here("audit", "query", "--csv", "--oldest-first").out.splitlines()))

    assert [row["action"] for row in rows] == ["drop", "drop", "defer", "drop"]
    assert rows[3]["agent"] == "'=cmd"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ([], "action\tmany\ndefer\t1\ndrop\t2\n"),
        (["--csv"], "action,many\ndefer,1\ndrop,2\n"),
        (["--json"], '{"action":"defer","many":1}\n{"action":"drop","many":2}\n'),
    ],
    ids=str,
)
def test_sql(here, audit_log, form, expected):
    sql = "SELECT action, count(*) AS many FROM decisions GROUP BY 1 ORDER BY 1"

    assert here("audit", "query", "--sql", sql, *form) == (0, expected, "")


def test_sql_errors_keep_the_hints_of_duckdb(here, audit_log):
    err = here("audit", "query", "--sql", "SELECT actoin FROM decisions").err

    assert 'Candidate bindings: "action"' in err
    assert err.endswith("LINE 1: SELECT actoin FROM decisions\n               ^^^^^^\n")


def test_the_columns_of_the_sql_tables_are_those_of_the_views(here, audit_log):
    """They are printed without a log."""
    printed = here("audit", "query", "--sql-columns", "--audit-log", "/none").out
    for table in ("decisions", "signals", "records"):
        described = here("audit", "query", "--json", "--sql", f"SELECT * FROM {table} LIMIT 1").out
        named = [line.split("\t")[1] for line in printed.splitlines() if line.startswith(table)]
        assert not described or set(json.loads(described)) == set(named)
    assert "decisions\ttime\tTIMESTAMP\n" in printed


@pytest.mark.parametrize("url", ["https://a*", "https://a.test*", "https://a.test:8*", "https://*"])
def test_the_beginning_of_a_host_is_refused(here, audit_log, url):
    """It would be taken for the whole host, and nothing be found."""
    status, out, err = here("audit", "query", "--url", url)

    assert (status, out) == (2, "")
    assert "write the whole host before /, as in https://example.com/*" in err


def test_an_origin_with_a_path_is_said_to_widen(here, audit_log):
    found = here("audit", "query", "--json", "--origin", "https://A.test:443/some/page")

    assert [json.loads(line)["seq"] for line in found.out.splitlines()] == [4, 2]
    assert found.err == (
        "robots-guard: --origin means all of https://a.test: use --url for this URL alone\n"
    )


def test_a_named_period_is_said_in_utc(here, audit_log, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    monkeypatch.setattr(
        "robots_guard.app.cli.audit_log_options.CLOCKS",
        Clocks(now=lambda: AT + 3600, monotonic=time.monotonic),
    )
    try:
        found = here("audit", "query", "--json", "--since", "last night")
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()

    assert found.err == (
        "robots-guard: searching 2027-01-14T17:00:00.000Z to 2027-01-15T07:00:00.000Z\n"
        "robots-guard: no record matches\n"
        "robots-guard: the audit log begins at 2027-01-15T08:00:00.000Z"
        " and says nothing of the time before\n"
    )


def test_invalid_sql_is_reported_in_one_sentence(here, audit_log):
    status, out, err = here("audit", "query", "--sql", "DROP VIEW decisions")

    assert (status, out) == (2, "")
    assert err == "robots-guard: --sql takes a single SELECT statement\n"


@pytest.mark.parametrize(
    "given", [["--origin", "https://a.test"], ["--since", "2h"], ["--kind", "fetch"]]
)
def test_sql_cannot_be_combined_with_filters(here, audit_log, given):
    status, out, err = here("audit", "query", "--sql", "SELECT 1", *given)

    assert (status, out) == (2, "")
    assert f"--sql cannot be combined with {given[0]}:" in err


def test_empty_sql_is_an_error(here, audit_log):
    status, out, _ = here("audit", "query", "--sql", "")

    assert (status, out) == (2, "")


def test_what_if_report(here, audit_log, tmp_path):
    status, _, _ = here("audit", "report", "--what-if", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()

    assert status == 0
    assert "Sites that would differ" in page
    assert "counted as if report_only had not been set" in page


def test_kinds(here, audit_log):
    assert here("audit", "query", "--kind", "start").out.splitlines()[1].split("\t")[0] == "start"
    assert len(here("audit", "query", "--kind", "all").out.splitlines()) == 5


def test_missing_extra_is_reported_in_one_sentence(here, audit_log, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for command in (["query"], ["report"], ["export", "--format", "csv"], ["replay", "x"]):
        status, _, err = here("audit", *command)
        assert status == 2
        assert err.endswith(
            "needs an extra that is not installed: pip install 'robots_guard[audit]'\n"
        )
    assert here("audit", "tail", "--no-follow").status == 0
    assert here("audit", "verify").status == 0


# -- checked, reported -----------------------------------------------------------------------------------


def test_verify_reports_its_findings(here, audit_log):
    audit_log.close()
    _, row, summary = here("audit", "verify").out.splitlines()
    assert row == f"{audit_log.writer}\t5\tnone\tnothing is missing"
    assert summary.startswith("whole: 1 file; 1 writer; 5 records from ")
    lines = audit_log.path.read_bytes().splitlines(keepends=True)
    audit_log.path.write_bytes(b"".join(lines[:1] + lines[2:]))
    status, out, _ = here("audit", "verify")
    found, _ = map(json.loads, here("audit", "verify", "--json").out.splitlines())

    assert status == 1
    assert "2 is missing" in out
    assert (found["writer"], found["records"], found["last"]) == (audit_log.writer, 4, 5)


def test_lines_that_are_not_records_are_a_finding(here, audit_log):
    (audit_log.directory / "other.jsonl").write_bytes(b"nonsense\n")

    assert here("audit", "verify").status == 1


@pytest.mark.parametrize(
    "command",
    [["report"], ["export", "--format", "csv"], ["bundle", "w-1"]],
    ids=lambda args: args[0],
)
def test_unwritable_output_names_the_remedy(here, audit_log, tmp_path, command):
    status, out, err = here("audit", *command, "-o", tmp_path / "none" / "file")

    assert (status, out) == (2, "")
    assert err == (
        f"robots-guard: '{tmp_path}/none/file' cannot be written (No such file or directory):"
        " name another file with --output\n"
    )


def test_report_is_a_single_file(here, audit_log, tmp_path):
    status, _, err = here(
        "audit", "report", "-o", tmp_path / "report.html", "--origin", "https://a.test"
    )

    assert (status, err) == (0, f"robots-guard: report written to {tmp_path}/report.html\n")
    assert "Decisions with origin https://a.test<" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "covers"),
    [
        ((), "All decisions in the audit log"),
        (("--since", "2026-11-20"), "Decisions from 2026-11-20 00:00:00 UTC"),
        (
            ("--agent", "mybot", "--since", "2026-11-20", "--until", "2028-01-01"),
            "Decisions with agent mybot from 2026-11-20 00:00:00 UTC until 2028-01-01 00:00:00 UTC",
        ),
        (("--url", "https://a.test/x*"), "Decisions with URLs that begin with https://a.test/x"),
    ],
)
def test_cover_says_what_the_report_counts(here, audit_log, tmp_path, options, covers):
    here("audit", "report", "-o", tmp_path / "report.html", *options)
    assert f">{covers}<" in (tmp_path / "report.html").read_text()


def test_export_goes_to_a_file_or_stdout(here, audit_log, tmp_path):
    assert here("audit", "export", "--format", "heritrix", "-o", tmp_path / "crawl.log").out == ""
    assert [line.split()[1] for line in (tmp_path / "crawl.log").read_text().splitlines()] == [
        "-9998",
        "-9998",
        "-61",
    ]
    assert len(here("audit", "export", "--format", "ecs", "--action", "drop").out.splitlines()) == 2


def test_schema_equals_the_one_in_the_docs(here):
    docs = Path(__file__).parents[3] / "docs" / "audit-record.schema.json"

    assert here("audit", "query", "--schema").out == docs.read_text()


def test_refusal_is_replayed_from_store_and_bundle(here, net, tmp_path, monkeypatch):
    site = net.origin("User-agent: *\n# who reads this?\nDisallow: /private/\n")
    here("check", f"{site.url}/private/")
    identity = json.loads(here("audit", "query", "--json").out)["id"]
    status, out, err = here("audit", "replay", identity)

    assert (status, err) == (0, "")
    assert ">    3  Disallow: /private/\n" in out
    assert out.endswith("the same verdict\n")
    recorded = out.removesuffix("the same verdict\n")

    path = tmp_path / "bundle.zip"
    written = here("audit", "bundle", identity, "-o", path)
    assert (written.status, written.out) == (0, "")
    assert f"bundle written to {path}: 3 records, 1 document\n" in written.err
    assert "lacks" not in written.err
    again = here("audit", "bundle", identity, "-o", path)
    assert again.status == 2
    assert "exists and is not overwritten: name another file with --output" in again.err

    monkeypatch.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/elsewhere.sqlite")
    monkeypatch.setenv("ROBOTS_GUARD_AUDIT_LOG", f"{tmp_path}/elsewhere")
    status, out, err = here("audit", "replay", path)
    assert (status, err) == (0, "")
    assert out.startswith(recorded)
    assert out.endswith("the record is consistent, but nothing ties it to a time or a writer\n")
    found = json.loads(here("audit", "replay", "--json", path).out)
    assert found["verified"] is True
    assert {each["state"] for each in found["claims"]} == {"proven", "not proven"}

    files = read_archive(path.read_bytes())
    forged = files["records.jsonl"].replace(b'"line":3', b'"line":2')
    with (tmp_path / "forged.zip").open("wb") as archive:
        write_archive(archive, files | {"records.jsonl": forged})
    status, out, _ = here("audit", "replay", tmp_path / "forged.zip")
    assert status == 1
    assert "records.jsonl is not as MANIFEST.sha256 lists it" in out
    assert "line: recorded 2, now '3'" in out
    (tmp_path / "other.zip").write_bytes(b"PK")
    assert here("audit", "replay", tmp_path / "other.zip") == (
        2,
        "",
        "robots-guard: this is not a bundle (not a zip file): make one with"
        " robots-guard audit bundle ID -o FILE.zip\n",
    )


@pytest.mark.parametrize("args", [(), ("w-1", "--since", "1d")])
def test_bundle_takes_ids_or_filters(here, audit_log, args):
    status, _, err = here("audit", "bundle", *args)

    assert status == 2
    assert "give either ids of decisions or filters" in err


def test_missing_record_is_reported_in_one_sentence(here, audit_log, directory):
    assert here("audit", "replay", "nosuch") == (
        2,
        "",
        f"robots-guard: there is no decision 'nosuch' in {str(directory)!r}:"
        " check the id, or name the audit log's directory with --audit-log\n",
    )


def test_a_bundle_without_a_document_names_what_is_missing_and_the_remedy(
    here, net, tmp_path, monkeypatch
):
    """The store has lost it, as a Redis without persistence does when it restarts."""
    site = net.origin("User-agent: *\nDisallow: /private/\n")
    here("check", f"{site.url}/private/")
    record = json.loads(here("audit", "query", "--json").out)
    monkeypatch.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/empty.sqlite")

    status, _, err = here("audit", "bundle", record["id"], "-o", tmp_path / "bundle.zip")

    assert status == 0
    assert f"the bundle lacks the robots.txt of {record['origin']}" in err
    assert record["sha256"] in err
    assert f"robots-guard policy refresh {record['origin']}" in err
    assert "audit = evidence" in err
    here("policy", "refresh", record["origin"])
    repaired = here("audit", "bundle", record["id"], "-o", tmp_path / "repaired.zip")
    assert "1 document\n" in repaired.err
    assert "lacks" not in repaired.err


def test_a_page_that_was_only_counted_is_said_to_be_perhaps_so(here, variables, tmp_path):
    variables.setenv("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path / "counted"))
    log = audit_log_in(tmp_path / "counted", audit="summary", settings={"audit": "summary"})
    log.write(decision("https://a.test/open", PASS))
    log.close()
    said = [
        here("audit", "query", *options).err
        for options in (
            ("--url", "https://a.test/open"),
            ("--url", "https://a.test/*", "--agent", "mybot"),
            ("--origin", "https://a.test", "--action", "pass"),
            ("--url", "https://a.test/open", "--action", "drop"),
            ("--url", "https://a.test/open", "--reason", "disallowed"),
        )
    ]

    assert ["passes are counted, and" in each for each in said] == [
        *[True] * 3,
        *[False] * 2,
    ]


@pytest.mark.parametrize(
    ("since", "until", "note"),
    [
        (
            "2027-01-14",
            None,
            "begins at 2027-01-15T08:00:00.000Z and says nothing of the time before",
        ),
        ("2027-01-15T07:59", "2027-01-15T08:30", "begins at"),
        ("2027-01-15T08:00", "2027-01-15T08:30", ""),
        ("2027-01-17", None, "ends at 2027-01-15T09:00:00.000Z and says nothing of the time after"),
        (None, "2027-01-16", "ends at"),
        (None, "2027-01-15T09:00", ""),
        ("2027-01-01", "2027-01-15T10:00", "before, and ends at 2027-01-15T09:00:00.000Z"),
    ],
)
@pytest.mark.parametrize("form", ["lines", "compressed"])
def test_a_search_says_what_the_log_does_not_reach(
    here, variables, tmp_path, monkeypatch, since, until, note, form
):
    directory = tmp_path / "short"
    variables.setenv("ROBOTS_GUARD_AUDIT_LOG", str(directory))
    monkeypatch.setattr(
        "robots_guard.app.cli.audit.records.CLOCKS",
        Clocks(now=lambda: AT + 1e6, monotonic=time.monotonic),
    )
    log = audit_log_in(directory)
    for hours in (0, 1):
        log.write(decision(at=AT + 3600 * hours))
    log.close()
    if form == "compressed":
        compress(directory)
    period = [*(["--since", since] if since else []), *(["--until", until] if until else [])]
    query = here("audit", "query", *period).err
    report = here("audit", "report", "--no-verify", *period, "-o", tmp_path / "report.html").err

    assert (note in query, note in report) == (True, True)
    assert ("the audit log" in query) == ("the audit log" in report) == bool(note)
    assert (note in (tmp_path / "report.html").read_text()) is True
