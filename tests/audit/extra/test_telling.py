"""Outputs of the audit log: exports, read by the consumers' own readers; the report; replay; evidence."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision, policy
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from warcio.archiveiterator import ArchiveIterator

from robots_guard.audit.privacy import DEFAULT
from robots_guard.audit.read.reader import Filter, entries
from robots_guard.audit.read.replay import Judgement, replay
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import (
    Writer,
    record_of,
    record_of_event,
    signals_record_of,
)
from robots_guard.audit.show.export import FORMATS, exported
from robots_guard.audit.show.figures import passes_recorded, summary
from robots_guard.audit.show.overview import overview
from robots_guard.audit.show.report import Cover, page
from robots_guard.audit.write.maintenance import compress
from robots_guard.audit.write.retention import Retention
from robots_guard.audit.write.warc import records_of
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.events import FailedOpen, FetchMade
from robots_guard.decisions.pacing import DelaySource
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import (
    Action,
    Exemption,
    ResponseRef,
    Verdict,
    as_report_only,
    judge,
    needs_no_policy,
)
from robots_guard.errors import SettingsError

# These tests read the private `_COUNTED`, `_question` and `_terms`: the columns that figures need,
# and the question that a record stands for, have no public face.

HOSTILE = "https://a.test/\x1b[2J</title><script>alert(1)</script>\"'\n\r\u2028\u202e,=1+1"
LONG = "https://a.test/" + "x" * 100_000
DAY = 86400


def recorded(*made, writer="w"):
    return [
        record_of(each, Writer(writer=writer), seq=number, mono=1.5)
        for number, each in enumerate(made, 1)
    ]


def fetch(outcome, url="https://a.test/robots.txt", **more):
    origin, get = policy().origin, Get(url=url)
    return FetchMade(
        at=AT, origin=origin, get=get, outcome=outcome, via="direct", elapsed=0.1, **more
    )


MADE = recorded(
    decision(policy=policy()),
    decision(HOSTILE, verdict=DEFER, user_agent="=cmd|' /C calc'!A0", client="spider\n"),
    decision(LONG, verdict=PASS, client="[2001:db8::1]:4000"),
    decision(
        "http://b.test:8080/x?q=1",
        verdict=Verdict(action=Action.DROP, reason=Reason.INTERNAL_ERROR),
    ),
)


# -- exports -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_a_line_of_an_export_is_one_line_of_printable_text(form):
    stated = signals_record_of(
        decision(HOSTILE, PASS, response=ResponseRef(status=200)), Writer(writer="w")
    )
    found = list(exported([*MADE, stated], form))

    assert len(found) in (2, 3, 4, 5)
    assert all(line.isprintable() for line in found)


def test_otel_lines_are_valid_otlp_messages():
    requests = [Parse(line, ExportLogsServiceRequest()) for line in exported(MADE, "otel")]
    (record,) = requests[0].resource_logs[0].scope_logs[0].log_records
    values = {each.key: each.value for each in record.attributes}

    assert len(requests) == 4
    assert record.time_unix_nano == int(AT) * 10**9
    assert record.event_name == "robots.decision"
    assert values["url.full"].string_value == "https://a.test/private/x"
    assert values["server.port"].int_value == 443
    assert values["robots.rule"].string_value == "Disallow: /private/"
    assert values["robots.line"].int_value == 2
    assert values["robots.age"].double_value == 60.0


def otel_values(entry):
    (line,) = exported([entry], "otel")
    (record,) = Parse(line, ExportLogsServiceRequest()).resource_logs[0].scope_logs[0].log_records
    return {each.key: each.value for each in record.attributes}


def test_a_record_without_a_method_is_exported_without_one():
    (entry,) = recorded(decision(method=""))
    (document,) = map(json.loads, exported([entry], "ecs"))

    assert "http" not in document
    assert "http.request.method" not in otel_values(entry)


@pytest.mark.parametrize("form", FORMATS)
def test_a_forged_time_does_not_stop_an_export(form):
    (entry,) = recorded(decision())

    assert list(exported([msgspec.structs.replace(entry, at="0000-01-01T00:00:00.000Z")], form))


def test_otel_has_a_client_once():
    _, spider, proxied, _ = map(otel_values, MADE)

    assert proxied["client.address"].string_value == "2001:db8::1"
    assert proxied["client.port"].int_value == 4000
    assert "robots.client" not in proxied
    assert spider["robots.client"].string_value == MADE[1].client
    assert "client.address" not in spider


def test_ecs_documents_have_the_standard_fields():
    first, deferred, passed, _ = map(json.loads, exported(MADE, "ecs"))

    assert first["@timestamp"] == "2027-01-15T08:00:00.000Z"
    assert first["event"]["type"] == ["access", "denied"]
    assert (first["event"]["action"], first["event"]["reason"]) == ("robots-drop", "disallowed")
    assert first["rule"] == {
        "name": "Disallow: /private/",
        "ruleset": "*",
        "category": "disallowed",
        "reference": "https://a.test/robots.txt",
    }
    assert (first["url"]["domain"], first["url"]["port"], first["url"]["path"]) == (
        "a.test",
        443,
        "/private/x",
    )
    assert first["source"] == {"ip": "127.0.0.1", "port": 4000}
    assert "source" not in deferred
    assert passed["event"]["type"] == ["access", "allowed"]
    assert passed["source"] == {"ip": "2001:db8::1", "port": 4000}


#: The format in Heritrix's operating manual.
HERITRIX = re.compile(
    r"(\S+) +(-?\d+) +(-|\d+) (\S+) (\S+) (\S+) (\S+) (#\d{3}) (\S+) (\S+) (\S+) (\S+)"
)


def test_heritrix_lines_have_its_twelve_fields_and_its_codes():
    failed = record_of_event(fetch(Failed(failure=Failure.DNS)), {})
    missing = record_of_event(fetch(Fetched(status=404, body=b"no")), {})
    unreachable = recorded(decision(verdict=DEFER))
    lines = list(exported([*MADE, failed, missing, *unreachable], "heritrix"))
    fields = [HERITRIX.fullmatch(line).groups() for line in lines]

    assert [field[1] for field in fields] == ["-9998", "-61", "-5", "-1", "404", "-61"]
    assert [field[4] for field in fields] == ["-", "-", "-", "P", "P", "-"]
    assert fields[0][11] == "robots:disallowed,line:2"
    (escaped,) = exported([msgspec.structs.replace(MADE[0], escaped=True)], "heritrix")
    assert escaped.endswith("robots:disallowed,line:2,escaped")
    assert (fields[4][2], fields[4][3]) == ("2", "https://a.test/robots.txt")


@pytest.mark.parametrize("reason", ["destination-refused", "not-intercepted"])
def test_heritrix_does_not_take_a_refusal_for_a_deferral(reason):
    (record,) = recorded(decision(verdict=Verdict(action=Action.DROP, reason=Reason(reason))))

    assert next(exported([record], "heritrix")).split()[1] == "-7"


SQUID = re.compile(r"\d+\.\d{3} +\d+ \S+ TCP_DENIED/\d{3} \d+ \S+ \S+ \S+ HIER_NONE/\S+ \S+")


def test_squid_lines_are_its_native_format():
    lines = list(exported(MADE, "squid"))

    assert all(SQUID.fullmatch(line) for line in lines)
    assert [line.split()[3] for line in lines] == [
        "TCP_DENIED/403",
        "TCP_DENIED/503",
        "TCP_DENIED/503",
    ]


@pytest.mark.parametrize(
    ("action", "reason", "status"),
    [
        (Action.DROP, Reason.MALFORMED_TARGET, 400),
        (Action.DROP, Reason.DISALLOWED, 403),
        (Action.DEFER, Reason.DISALLOWED, 503),
        (Action.DEFER, Reason.CRAWL_DELAY, 429),
    ],
)
def test_squid_lines_have_the_status_of_the_proxys_response(action, reason, status):
    (record,) = recorded(decision(verdict=Verdict(action=action, reason=reason, until=AT + 9)))

    assert f" TCP_DENIED/{status} " in next(exported([record], "squid"))


def test_csv_is_read_back_and_contains_no_formula():
    rows = list(csv.DictReader(io.StringIO("\n".join(exported(MADE, "csv")))))

    assert len(rows) == 4
    assert (rows[0]["rule"], rows[0]["line"], rows[0]["tls_verified"]) == (
        "Disallow: /private/",
        "2",
        "true",
    )
    assert rows[1]["user_agent"] == "'=cmd|' /C calc'!A0"
    assert not any(
        value.startswith(("=", "+", "@", "\t")) for row in rows for value in row.values()
    )


# -- the report ------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


def reported(directory, **wanted):
    with Search(directory, Filter(**wanted)) as search:
        figures = summary(search, "2027-01-16T00:00:00.000Z")
    return figures, page(figures, Cover("2027-01-16T00:00:00.000Z", "1.0", "All"))


@pytest.fixture
def sample_log(tmp_path):
    audit_log = audit_log_in(tmp_path, audit="summary")
    shop = Exemption(id="shop", owner="ann <b>", reason="contract", expires=AT + DAY)
    hostile = "Disallow: /<img src=x onerror=alert(1)>\x1b[31m\u202e"
    for number in range(20):
        audit_log.write(
            decision(f"https://a.test/private/{number}", at=AT + number, policy=policy())
        )
    audit_log.write(
        decision(
            "https://b.test/",
            verdict=msgspec.structs.replace(DROP, rule=_rule(hostile)),
            at=AT + 60,
        )
    )
    audit_log.write(decision("https://c.test/", verdict=DEFER, at=AT + 1))
    for _ in range(10):
        audit_log.write(decision("https://e.test/", verdict=PASS, at=AT + 2))
    relaxed = Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed="override=shop")
    audit_log.write(decision("https://d.test/", verdict=relaxed, override=shop, at=AT + DAY))
    audit_log.note(FailedOpen(at=AT + 5, setting="audit_required", count=3))
    audit_log.close()
    return tmp_path


def _rule(text):
    return msgspec.structs.replace(DROP.rule, text=text)


def table(directory, title):
    figures, _ = reported(directory)
    return next(table.rows for table in figures.tables if table.title == title)


UNREACHABLE = "Sites whose robots.txt could not be fetched"
BYPASSED = Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed="override=EX")
OPENED = Verdict(
    action=Action.PASS, reason=Reason.UNREACHABLE, relaxed="on_unreachable=allow", detail="timeout"
)


def test_reports_count_each_use_of_an_override(tmp_path):
    """Also if the owner of an id changed."""
    audit_log = audit_log_in(tmp_path)
    for owner in ("ann", "bob"):
        used = Exemption(id="EX", owner=owner, reason="contract", expires=AT + 99 * DAY)
        for number in range(50):
            audit_log.write(decision(f"https://a.test/{number}", verdict=BYPASSED, override=used))
    audit_log.close()

    assert [(row[1], row[-2]) for row in table(tmp_path, "Exceptions")] == [
        ("ann", 50),
        ("bob", 50),
    ]


def test_reports_count_failed_open_and_unreachable_decisions(tmp_path):
    audit_log = audit_log_in(tmp_path)
    for number in range(100):
        audit_log.write(
            decision(f"https://a.test/{number}", verdict=OPENED, policy=troubled(Failure.DNS))
        )
    for number in range(10):
        audit_log.write(
            decision(f"https://a.test/{number}", verdict=OPENED, policy=troubled(Failure.TIMEOUT))
        )
    for number in range(5):
        audit_log.write(decision(f"https://a.test/{number}", verdict=OPENED))
    audit_log.close()

    assert table(tmp_path, "Let through by a setting") == [("on_unreachable=allow", 1, 115)]
    found = [(row[1], row[-1]) for row in table(tmp_path, UNREACHABLE)]
    assert found == [("dns", 100), ("timeout", 15)]


def test_counted_passes_are_figures_and_nothing_else_shows_them(tmp_path):
    """They are PASSes of their origin, agent and minute; no export and no table of decisions has
    a line for them."""
    audit_log = audit_log_in(tmp_path, audit="summary", component="scrapy")
    for second in range(100):
        audit_log.write(decision(f"https://a.test/{second}", verdict=PASS, at=AT + second))
    audit_log.write(decision("https://b.test/", at=AT + 700, component="scrapy"))
    audit_log.close()
    with Search(tmp_path, Filter()) as search:
        assert [record.action for record in search.records()] == ["drop"]
        found = overview(search, "2027-01-15T08:00:00.000Z", "2027-01-15T08:15:00.000Z")
        lines = {form: [*exported(search.records(), form)] for form in FORMATS}
    figures, _ = reported(tmp_path)
    compress(tmp_path)

    assert found.timeline.totals == figures.timeline.totals == {"drop": 1, "defer": 0, "pass": 100}
    assert ("pass", "allowed", 100) in found.timeline.reasons
    assert found.origins == [("https://b.test", 1, 0, 0), ("https://a.test", 0, 0, 100)]
    assert [bar.counts["pass"] for bar in found.timeline.bars][:3] == [60, 40, 0]
    assert table(tmp_path, "Crawlers") == [("mybot", "scrapy", None, 101)]
    assert {form: len(each) - bool(FORMATS[form].headings) for form, each in lines.items()} == {
        form: int(form != "signals") for form in FORMATS
    }
    assert reported(tmp_path)[0].timeline.totals["pass"] == 100


def test_whether_passes_are_recorded_is_known_from_the_starts(tmp_path):
    def run(component, audit, at):
        audit_log = audit_log_in(tmp_path, component=component, now=at, settings={"audit": audit})
        audit_log.write(decision(at=at))
        audit_log.close()

    def found(since=None):
        with Search(tmp_path) as search:
            return passes_recorded(search, since)

    assert not found()
    run("cli", "all", AT)
    assert not found()
    run("scrapy", "summary", AT)
    assert found()
    assert found("2027-01-15T08:30:00.000Z")
    run("proxy", "refusals", AT + DAY)
    assert not found("2027-01-16T00:00:00.000Z")
    assert not found()
    run("scrapy", "all", AT + 2 * DAY)
    run("proxy", "evidence", AT + 2 * DAY)
    assert found("2027-01-17T00:00:00.000Z")


def test_an_exempted_request_is_no_request_that_was_only_reported(tmp_path):
    shop = Exemption(id="shop", owner="ann", reason="contract", expires=AT + DAY)
    exempted = msgspec.structs.replace(BYPASSED, would=Action.DROP, rule=DROP.rule)
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision(verdict=exempted, override=shop))
    audit_log.write(decision(verdict=as_report_only(DROP)))
    audit_log.close()
    with Search(tmp_path, Filter()) as search:
        assert overview(search, None, "2027-01-16T00:00:00.000Z").would == 1
        what_if = summary(search, "2027-01-16T00:00:00.000Z", what_if=True)

    assert what_if.timeline.totals == {"drop": 1, "defer": 0, "pass": 1}
    assert table(tmp_path, "Would have been refused") == [
        ("drop", "disallowed", "https://a.test", 1)
    ]


def troubled(failure):
    """A policy of an origin whose robots.txt could not be fetched."""
    return begin(policy().origin, None, "direct").next(Failed(failure=failure), AT - 60).policy


def test_figures_count_the_decisions_that_a_record_stands_for(sample_log):
    figures, _ = reported(sample_log)
    tables = {table.title: table.rows for table in figures.tables}

    assert figures.timeline.totals == {"drop": 21, "defer": 1, "pass": 11}
    assert sum(bar.counts["drop"] for bar in figures.timeline.bars) == 21
    assert tables["Sites that refused most"] == [("https://a.test", 20), ("https://b.test", 1)]
    assert tables["Rules that forbade most"][0] == ("https://a.test", "Disallow: /private/", 2, 20)
    assert tables["Waiting times"] == [("https://c.test", "unreachable", 29.0, 29.0, 1)]
    assert tables[UNREACHABLE][0][:2] == ("https://c.test", "dns: no such host")
    assert tables["Exceptions"] == [
        ("shop", "ann <b>", "contract", "2027-01-16T08:00:00.000Z", "soon", 1, 0)
    ]
    assert tables["Let through by a setting"] == [("audit_required", 0, 3)]


def test_a_filter_applies_to_all_figures(sample_log):
    figures, _ = reported(sample_log, origin="https://c.test")

    assert figures.timeline.totals == {"drop": 0, "defer": 1, "pass": 0}


def test_the_page_loads_nothing_and_hostile_values_are_text(sample_log):
    _, html = reported(sample_log)
    seen = Tags(html)

    assert {"script", "img", "link", "iframe", "a"} & set(seen.tags) == set()
    assert not any(name in ("src", "href") or name.startswith("on") for name, _ in seen.attributes)
    assert "default-src 'none'" in html
    assert "<img src=x onerror=alert(1)>" in seen.text
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert seen.tags.count("rect") > 5


def test_an_empty_audit_log_has_a_report(tmp_path):
    tmp_path.joinpath("empty.jsonl").write_bytes(b"")
    figures, html = reported(tmp_path)

    assert figures.timeline.bars == []
    assert "Nothing was recorded" in html


# -- replays ------------------------------------------------------------------------------------------------

BODY = b"User-agent: *\nDisallow: /private/\nAllow: /private/open\n"
TERMS = {"dialect": "rfc9309", "matching": "standard"}


def judgement_of(
    url="https://a.test/private/x", body=BODY, settings=None, *, document=True, **changed
):
    """A decision with what it was judged by, as a guard makes it."""
    from robots_guard.audit.read.replay import _question, _terms  # the question a record stands for

    origin = decision(url).question.origin
    policy = (
        begin(origin, None, "direct")
        .next(Fetched(status=200, body=body, tls_verified=True), AT - 60)
        .policy
    )
    made = decision(url, verdict=DROP, policy=policy, **TERMS)
    (record,) = recorded(made)
    judgement = Judgement(record=record, settings=settings or {}, document=body)
    terms = _terms(record, judgement.settings)
    from robots_guard.protocol.ruleset import compile_rules

    rules = compile_rules(body, terms.dialect, "mybot", terms.matching.name)
    question = _question(record, terms, AT)
    verdict = needs_no_policy(question, terms) or judge(question, policy, rules, terms, AT)
    (record,) = recorded(msgspec.structs.replace(made, verdict=verdict))
    record = msgspec.structs.replace(record, **changed)
    return Judgement(record=record, settings=settings or {}, document=body if document else None)


@pytest.mark.parametrize(
    "url", ["private/x", "private/open", "else", "private/%7Ex;v=1//y", "robots.txt"]
)
def test_the_same_document_gives_the_same_verdict(url):
    result = replay(judgement_of(f"https://a.test/{url}"))

    assert result.differences == []
    assert result.caveats == []


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"action": "pass", "reason": "allowed"}, "action: recorded 'pass', now 'drop'"),
        ({"line": 3}, "line: recorded 3, now '2'"),
        ({"rule": "Disallow: /"}, "rule: recorded 'Disallow: /', now 'Disallow: /private/'"),
    ],
)
def test_replay_detects_a_changed_record(changed, difference):
    assert difference in replay(judgement_of(**changed)).differences


def test_a_changed_document_is_refused():
    judgement = judgement_of()
    with pytest.raises(SettingsError, match="its SHA-256 differs"):
        replay(msgspec.structs.replace(judgement, document=b"User-agent: *\nDisallow:\n"))
    with pytest.raises(SettingsError, match="is not stored any more"):
        replay(msgspec.structs.replace(judgement, document=None))


def test_an_empty_document_is_accepted():
    judgement = judgement_of(body=b"", sha256=EMPTY)

    assert replay(msgspec.structs.replace(judgement, document=None)).verdict.action is Action.PASS
    with pytest.raises(SettingsError, match="its SHA-256 differs"):
        replay(msgspec.structs.replace(judgement, document=BODY))


def test_a_report_only_decision_is_compared_by_its_would():
    lenient = {"action": "pass", "would": "drop", "relaxed": "report_only"}
    settings = Settings(agent="mybot", report_only=True).writing("cli").settings

    assert replay(judgement_of(settings=settings, **lenient)).differences == []
    assert replay(judgement_of(settings=settings, **lenient | {"would": None})).differences == [
        "would: recorded None, now 'drop'"
    ]


def test_missing_information_is_a_caveat():
    (caveat,) = replay(judgement_of("https://a.test/private/x?token=abc")).caveats

    assert "redacted" in caveat


def test_replay_uses_the_writers_settings():
    troubled = begin(policy().origin, None, "direct").next(Fetched(status=503), AT).policy
    for choice, action, reason in (
        ("allow", "pass", "unreachable"),
        ("drop", "drop", "unreachable"),
    ):
        verdict = Verdict(action=Action(action), reason=Reason(reason))
        (record,) = recorded(decision(verdict=verdict, policy=troubled, **TERMS))
        judgement = Judgement(record=record, settings={"on_unreachable": choice, "agent": "mybot"})

        assert replay(judgement).differences == []
    assert replay(Judgement(record=record, settings={})).differences == [
        "action: recorded 'drop', now 'defer'"
    ]


JUDGED = {  # what `check.judge_offline` can say, and whose turn it was
    "allowed",
    "unrestricted",
    "robots-txt",
    "disallowed",
    "usage-reserved",
    "payment-required",
    "mirror",
    "restricted",
    "unreachable",
    "route-failed",
    "fetcher-failed",
    "malformed-target",
    *map(str, DelaySource),
}


@pytest.mark.parametrize("reason", sorted(set(Reason) - JUDGED))
def test_a_decision_of_an_integration_cannot_be_replayed(reason):
    (record,) = recorded(decision(verdict=Verdict(action=Action.DROP, reason=reason)))
    with pytest.raises(SettingsError, match=f"not judged by a robots.txt \\({reason}\\)"):
        replay(Judgement(record=record, settings={}))


# -- evidence ---------------------------------------------------------------------------------------------


def test_each_response_is_archived_with_its_request(tmp_path):
    audit_log = audit_log_in(tmp_path, audit="evidence")
    secret = {
        "set-cookie": "sid=SECRET",
        "etag": '"x"',
        "location": "https://u:SECRET@b.test/?token=SECRET",
    }
    audit_log.note(
        fetch(
            Fetched(status=200, body=BODY, headers=secret), "https://a.test/robots.txt?token=SECRET"
        )
    )
    audit_log.note(fetch(Fetched(status=404, body=b"none here")))
    audit_log.note(fetch(Failed(failure=Failure.DNS)))
    audit_log.close()
    (path,) = tmp_path.glob("*.warc.gz")
    with path.open("rb") as file:
        found = [
            (each.rec_type, dict(each.rec_headers.headers), _whole(each))
            for each in ArchiveIterator(file)
        ]
    fetches = list(entries(tmp_path, Filter(kind="fetch")))

    assert [kind for kind, _, _ in found] == [
        "warcinfo",
        "response",
        "request",
        "response",
        "request",
    ]
    assert b"robots: obey" in found[0][2]
    assert found[1][2].endswith(BODY)
    assert found[3][2].startswith(b"HTTP/1.1 404 Not Found")
    assert [each.warc_id for each in fetches] == [
        found[1][1]["WARC-Record-ID"],
        found[3][1]["WARC-Record-ID"],
        None,
    ]
    assert fetches[0].warc_file == path.name
    assert b"SECRET" not in b"".join(data for _, _, data in found)
    assert "SECRET" not in repr([headers for _, headers, _ in found])
    assert path.stat().st_mode & 0o137 == 0


def test_a_tdmrep_json_is_archived_and_recorded_as_one(tmp_path):
    audit_log = audit_log_in(tmp_path, audit="evidence")
    url, body = "https://a.test/.well-known/tdmrep.json", b'[{"location": "/"}]'
    audit_log.note(fetch(Fetched(status=200, body=BODY)))
    audit_log.note(fetch(Fetched(status=200, body=body), url, file="tdmrep.json"))
    audit_log.close()
    with next(tmp_path.glob("*.warc.gz")).open("rb") as file:
        found = {
            each.rec_headers["WARC-Record-ID"]: (
                each.rec_headers["WARC-Target-URI"],
                _whole(each),
            )
            for each in ArchiveIterator(file)
            if each.rec_type == "response"
        }
    fetches = list(entries(tmp_path, Filter(kind="fetch")))

    assert [each.file for each in fetches] == ["robots.txt", "tdmrep.json"]
    assert fetches[1].url == found[fetches[1].warc_id][0] == url
    assert found[fetches[1].warc_id][1].endswith(body)


def _whole(record):
    head = record.http_headers.to_bytes() if record.http_headers else b""
    return head + record.raw_stream.read()


def test_digests_of_a_warc_are_right():
    data, _ = records_of(fetch(Fetched(status=200, body=BODY)), DEFAULT)
    kinds = []
    for each in ArchiveIterator(io.BytesIO(data), check_digests="raise"):
        each.raw_stream.read()
        kinds.append(each.rec_type)

    assert kinds == ["response", "request"]


def test_evidence_is_kept_as_long_as_its_log_file(tmp_path):
    from robots_guard.audit.write.maintenance import retain
    from robots_guard.audit.write.retention import Inspection

    audit_log = audit_log_in(tmp_path, audit="evidence")
    audit_log.note(fetch(Fetched(status=404)))
    audit_log.close()

    days = (Inspection("boot", day * DAY, AT) for day in (0, 1, 12, 13))
    assert [len(retain(tmp_path, Retention(days=10), day)) for day in days] == [0, 0, 0, 2]


@pytest.mark.parametrize(
    "spoil", [lambda path: path.unlink(), lambda path: path.rename(path.with_name("rotated.1"))]
)
def test_after_losing_its_name_evidence_continues_in_another_file(tmp_path, spoil):
    from robots_guard.audit.write.maintenance import retain
    from robots_guard.audit.write.retention import Inspection

    audit_log = audit_log_in(tmp_path, audit="evidence")
    audit_log.note(fetch(Fetched(status=404)))
    spoil(next(tmp_path.glob("*.warc.gz")))
    audit_log.note(fetch(Fetched(status=404)))
    retain(tmp_path, Retention(days=0, size=1), Inspection("boot", 1.0, AT))
    latest = list(entries(tmp_path, Filter(kind="fetch")))[-1]

    assert (tmp_path / latest.warc_file).exists()
    audit_log.close()
    assert len(retain(tmp_path, Retention(days=0, size=1), Inspection("boot", 1.0, AT))) == 2
