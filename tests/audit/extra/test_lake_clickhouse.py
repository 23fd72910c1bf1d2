"""examples/clickhouse, run by chDB, which is ClickHouse in a library (`tox -e lake`).

The tables and the statements that load them are compared with the columns of the export where chDB
is not installed, too: it takes half a gigabyte.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from audit.decisions import AT, DROP, PASS, audit_log_in, decision, policy
from support.lake import LOAD, insertion, statements

from robots_guard.audit.lake.export import export
from robots_guard.audit.lake.places import place_at
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.search import Search
from robots_guard.audit.tables import LAKE_TABLES
from robots_guard.core.access import Fetched, Get
from robots_guard.core.events import FetchMade
from robots_guard.origin import split_url

EXAMPLES = Path(__file__).parents[3] / "examples/clickhouse"
RULES = b"User-agent: *\nDisallow: /private/"


def test_the_tables_have_the_columns_of_the_export():
    assert (EXAMPLES / "tables.sql").read_text() == statements()
    insertions = [f"\n{insertion(table)}" for table in LAKE_TABLES.values()]
    assert (EXAMPLES / "load.sql").read_text() == LOAD + "".join(insertions)


def queries():
    text = (EXAMPLES / "queries.sql").read_text()
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_queries_have_names():
    assert [*queries()] == ["gaps", "refusals", "robots_txt", "passes"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A session of chDB into which an export was loaded, twice; and the audit log."""
    session = pytest.importorskip("chdb.session", reason="chDB is installed by `tox -e lake`")
    place = tmp_path_factory.mktemp("clickhouse")
    audit_log = place / "audit_log"
    log = audit_log_in(audit_log, component="proxy", passes=1)
    robots = policy()
    get = Get(url="https://a.test/robots.txt")
    outcome = Fetched(status=200, body=RULES, tls_verified=True)
    fetched = FetchMade(
        at=AT - 60, origin=split_url("https://a.test/")[0], get=get, outcome=outcome,
        via="direct", elapsed=0.1,
    )  # fmt: skip
    log.note(fetched)
    for number in range(60):
        verdict = PASS if number % 3 else DROP
        url = f"https://{'ab'[number % 2]}.test/private/{number}"
        log.write(decision(url, verdict, at=AT + number, policy=robots))
    log.close()
    hostile = {
        "kind": "decision", "schema": 1, "at": "2027-01-15T09:00:00.000Z", "seq": 1, "writer": "x",
        "url": "';DROP TABLE", "later": 1,
    }  # fmt: skip
    (audit_log / "20270115-x-0001.jsonl").write_text(json.dumps(hostile))
    [*export(audit_log, place_at(str(place / "lake")), "2027-01-16", Unreadable())]
    with session.Session(str(place / "clickhouse")) as made:
        run(made, (EXAMPLES / "tables.sql").read_text())
        load = (EXAMPLES / "load.sql").read_text()
        for _ in range(2):
            run(made, load.replace("'lake/", f"'{place}/lake/"), places=place / "lake")
        yield made, audit_log


def run(session, text, places=None):
    """Run statements. Those that read a table of which there is no file are left out: ClickHouse
    reports a pattern that matches nothing."""
    text = re.sub(r"--.*", "", text)
    settings = []
    for statement in filter(str.strip, text.split(";")):
        if statement.strip().startswith("SET "):
            settings.append(statement.strip().removeprefix("SET "))
            continue
        table = re.search(r"/lake/(\w+)/", statement)
        if places and table and not (places / table[1]).exists():
            continue
        tail = f" SETTINGS {', '.join(settings)}" if settings else ""
        session.query(statement + tail)


def asked(session, sql):
    return [json.loads(line) for line in str(session.query(sql, "JSONEachRow")).splitlines()]


def test_a_repeated_load_adds_nothing(loaded):
    session, audit_log = loaded
    with Search(audit_log) as search:
        ((count,),) = search.select("SELECT count(*) FROM records WHERE kind = 'decision'")[1]
    (found,) = asked(
        session,
        "SELECT toInt32(count()) AS n, toString(min(at)) AS first FROM robots_guard.decisions FINAL",
    )
    assert found == {"n": count, "first": "2027-01-15 08:00:00.000"}
    (kept,) = asked(session, "SELECT raw, url FROM robots_guard.decisions FINAL WHERE raw != ''")
    assert (json.loads(kept["raw"])["later"], kept["url"]) == (1, "';DROP TABLE")


def test_refusals_are_those_of_the_log(loaded):
    session, audit_log = loaded
    with Search(audit_log) as search:
        known = search.select(
            "SELECT origin, sum(coalesce(sampled, 1)) FROM decisions WHERE action = 'drop'"
            " GROUP BY 1 ORDER BY 1"
        )[1]
        expected = [(origin, int(number)) for origin, number in known]
    found = asked(session, queries()["refusals"])
    assert sorted((row["origin"], int(row["refused"])) for row in found) == expected


def test_a_gap_is_found(loaded):
    session, _ = loaded
    assert asked(session, queries()["gaps"]) == []
    lost = (
        "ALTER TABLE robots_guard.decisions DELETE WHERE seq IN (5, 6) SETTINGS mutations_sync = 2"
    )
    session.query(lost)
    (found,) = asked(session, queries()["gaps"])
    assert [int(found[name]) for name in ("first_missing", "last_missing", "missing")] == [5, 6, 2]


def test_the_robots_txt_of_decisions_has_its_fetch(loaded):
    found = {row["origin"]: row for row in asked(loaded[0], queries()["robots_txt"])}
    assert int(found["https://a.test"]["fetches"]) == 1
    assert found["https://a.test"]["first_fetch"].startswith("2027-01-15 07:59:00")
    assert int(found["https://b.test"]["fetches"]) == 0


def test_passes_have_a_cost(loaded):
    (day,) = asked(loaded[0], queries()["passes"])
    assert day["day"] == "2027-01-15"
    assert int(day["passes"]) > 30
    assert int(day["bytes"]) > 30 * 100


def test_lines_of_the_log_can_be_inserted_as_they_are(loaded):
    """What examples/vector and examples/fluent-bit send: the lines, without a change."""
    session, audit_log = loaded
    lines = b"".join(path.read_bytes() for path in sorted(audit_log.glob("*.jsonl")))
    decisions = [line for line in lines.splitlines() if b'"decision"' in line]
    session.query("CREATE TABLE robots_guard.sent AS robots_guard.decisions")
    settings = (
        "SETTINGS input_format_skip_unknown_fields = 1, date_time_input_format = 'best_effort',"
        " input_format_json_read_objects_as_strings = 1, input_format_json_read_arrays_as_strings = 1"
    )
    body = b"\n".join(decisions).decode()
    session.query(f"INSERT INTO robots_guard.sent {settings} FORMAT JSONEachRow {body}")
    session.query(f"INSERT INTO robots_guard.sent {settings} FORMAT JSONEachRow {body}")
    columns = "writer, seq, at, id, url, action, reason, rule, line, sha256, fetched_at, age"
    rows = f"SELECT {columns} FROM robots_guard.{{}} FINAL WHERE seq NOT IN (5, 6) ORDER BY writer, seq"
    assert asked(session, rows.format("sent")) == asked(session, rows.format("decisions"))
