"""Records of responses: written, found, counted, exported, replayed and kept as evidence."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
from audit.decisions import AT, audit_log_in, decision, policy
from warcio.archiveiterator import ArchiveIterator

from robots_guard.audit.read import index
from robots_guard.audit.read.reader import LONGEST_LINE, Filter, entries
from robots_guard.audit.read.replay import Judgement, replay
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import SignalsRecord
from robots_guard.audit.show.export import exported
from robots_guard.audit.show.figures import summary
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.check import judge_offline
from robots_guard.decisions.policy import Reservations
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead, judge_response
from robots_guard.decisions.verdict import Action, ResponseRef, as_report_only
from robots_guard.errors import SettingsError
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.statement import Flag, Place, Signal, Statement

NOINDEX = Statement(
    signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noindex", raw="noindex, max-snippet: 20"
)
SNIPPET = Statement(
    signal=Signal.X_ROBOTS_TAG,
    place=Place.HEADER,
    rule="max-snippet",
    value=20,
    raw="noindex, max-snippet: 20",
)
TRAINING = Statement(
    signal=Signal.CONTENT_USAGE,
    place=Place.ROBOTS_TXT,
    rule="train-ai",
    value="y",
    raw="Content-Usage: train-ai=y",
    line=2,
    flags=(Flag.LENIENT,),
)
LAPSE = Statement(
    signal=Signal.META_ROBOTS,
    place=Place.PAGE,
    rule="unavailable_after",
    value=AT + 86_400,
    raw="unavailable_after: ...",
)
URL = "https://a.test/page?id=1"


def settings_for(**values):
    return Settings(agent="mybot", store="memory:", **values)


def response_decision(
    *statements, status=200, url=URL, identity="w-9", method="GET", links_only=False, **settings
):
    terms = settings_for(**settings).terms()
    head = ResponseHead(status=status, method=method)
    verdict = judge_response(statements, head, "mybot", terms, AT, can_use_links_only=links_only)
    response = ResponseRef(status=status, request="w-8")
    made = decision(url, verdict, response=response, method=method)
    return msgspec.structs.replace(
        made, id=identity, dialect=terms.page_dialect, purposes=terms.declared
    )


def write(directory, *made, **options):
    log = audit_log_in(directory, **options)
    for each in made:
        log.write(each)
    log.close()


def read(directory, kind="signals"):
    return list(entries(directory, Filter(kind=kind)))


def test_a_record_has_the_statements_and_the_uses(tmp_path):
    write(tmp_path, response_decision(NOINDEX, SNIPPET, TRAINING, purposes="search"))
    (record,) = read(tmp_path)

    assert (record.action, record.reason, record.status) == ("drop", "usage-reserved", 200)
    assert (record.id, record.request, record.url) == ("w-9", "w-8", URL)
    assert record.purposes == ["search"]
    assert record.uses == {
        "search": "deny", "snippet": "deny", "ai-index": "deny", "ai-train": "allow",
    }  # fmt: skip
    assert record.limits == {"max-snippet": 20}
    assert record.flags == ["lenient"]
    first, _, last = record.evidence
    assert (first.raw, first.denies) == (NOINDEX.raw, ["search", "snippet", "ai-index"])
    assert (last.line, last.allows, last.where) == (2, ["ai-train"], "robots.txt")


@pytest.mark.parametrize(
    ("statements", "audit", "is_recorded"),
    [
        ([NOINDEX], "refusals", True),  # the response says it itself
        ([TRAINING], "refusals", False),  # its robots.txt does: like an ordinary PASS
        ([TRAINING], "all", True),
    ],
)
def test_a_pass_with_statements_of_the_policy_only_is_an_ordinary_pass(
    tmp_path, statements, audit, is_recorded
):
    write(tmp_path, response_decision(*statements), audit=audit)
    assert bool(read(tmp_path)) is is_recorded


def test_responses_are_never_only_counted(tmp_path):
    made = (response_decision(NOINDEX, identity=f"w-{n}", purposes="search") for n in range(3))
    write(tmp_path, *made, audit="summary")
    assert len(read(tmp_path)) == 3


def test_decisions_include_the_refusals_of_responses(tmp_path):
    refused = response_decision(NOINDEX, purposes="search", identity="w-1")
    passed = response_decision(NOINDEX, identity="w-2")
    write(tmp_path, refused, passed, decision())

    with Search(tmp_path, Filter()) as search:
        assert [entry.id for entry in search.records()] == ["w-1", "w-1"]
        assert [*search.rows("SELECT count(*) FROM decisions")] == [(2,)]
    assert [entry.id for entry in read(tmp_path, kind="decision")] == ["w-1", "w-1"]
    with Search(tmp_path, Filter(kind="signals")) as search:
        assert [type(entry) for entry in search.records()] == [SignalsRecord, SignalsRecord]


def test_decisions_include_responses_that_passed_because_of_a_setting(tmp_path):
    recorded = response_decision(NOINDEX, purposes="search", signals="record", identity="w-1")
    write(tmp_path, recorded, response_decision(NOINDEX, identity="w-2"))

    assert [entry.id for entry in read(tmp_path, kind="decision")] == ["w-1"]
    with Search(tmp_path, Filter()) as search:
        assert [entry.id for entry in search.records()] == ["w-1"]
        figures = summary(search, "2027-01-16T00:00:00.000Z")
    (table,) = (each for each in figures.tables if each.title == "Let through by a setting")
    assert table.rows == [("signals=record", 1, 1)]


def test_what_if_counts_the_responses_that_would_be_refused(tmp_path):
    made = response_decision(NOINDEX, purposes="search")
    made = msgspec.structs.replace(made, verdict=as_report_only(made.verdict))
    write(tmp_path, made)
    with Search(tmp_path, Filter()) as search:
        figures = summary(search, "2027-01-16T00:00:00.000Z", what_if=True)
    assert figures.timeline.totals["drop"] == 1


def test_indexed_records_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "WORTHWHILE", 1)
    write(tmp_path, response_decision(NOINDEX, SNIPPET, purposes="search"))
    before = read(tmp_path)
    with Search(tmp_path, Filter(kind="signals")) as search:
        assert [*search.records()] == before
        rows = search.rows("SELECT use_search, use_ai_train, max_snippet FROM signals")
        assert [*rows] == [("deny", "unknown", 20)]


def test_the_report_counts_by_use_and_signal(tmp_path):
    write(
        tmp_path,
        response_decision(NOINDEX, purposes="search", identity="w-1"),
        response_decision(NOINDEX, identity="w-2"),
    )
    with Search(tmp_path, Filter()) as search:
        figures = summary(search, "2027-01-16T00:00:00.000Z")
    (table,) = (each for each in figures.tables if each.title == "Uses that sites deny")
    assert ("search", "x-robots-tag", 1, 2, 1) in table.rows
    assert figures.timeline.totals["drop"] == 1


def test_the_export_has_a_column_for_each_use(tmp_path):
    write(tmp_path, response_decision(NOINDEX, SNIPPET, TRAINING, purposes="search"))
    (row,) = csv.DictReader(io.StringIO("\n".join(exported(read(tmp_path), "signals"))))
    assert (row["use_search"], row["use_ai_train"], row["use_tdm"]) == ("deny", "allow", "unknown")
    assert (row["max_snippet"], row["status"], row["url"]) == ("20", "200", URL)


# -- replay ----------------------------------------------------------------------------------------


def judgement_of(record, **settings):
    values = msgspec.to_builtins(settings_for(**settings))
    return Judgement(record=record, settings={name: str(value) for name, value in values.items()})


def test_a_response_is_judged_again_by_its_recorded_statements(tmp_path):
    write(tmp_path, response_decision(NOINDEX, TRAINING, purposes="search"))
    (record,) = read(tmp_path)
    judgement = judgement_of(record, purposes="search")
    again = msgspec.json.decode(msgspec.json.encode(judgement), type=Judgement)

    assert replay(again).differences == []
    assert replay(judgement_of(record, purposes="ai-train")).differences == [
        "action: recorded 'drop', now 'pass'",
        "reason: recorded 'usage-reserved', now 'allowed'",
    ]


@pytest.mark.parametrize(
    ("made", "settings"),
    [
        ({"links_only": True}, {"purposes": "search", "noindex_action": "follow-only"}),
        ({"links_only": False}, {"purposes": "search", "noindex_action": "follow-only"}),
        ({"method": "HEAD"}, {"purposes": "ai-train", "on_unknown": "deny"}),
        ({"method": "GET"}, {"purposes": "ai-train", "on_unknown": "deny"}),
    ],
)
def test_a_replay_knows_what_the_integration_could_do(tmp_path, made, settings):
    write(tmp_path, response_decision(NOINDEX, **made, **settings))
    (record,) = read(tmp_path)
    assert replay(judgement_of(record, **settings)).differences == []


def test_an_exempted_response_has_nothing_to_replay(tmp_path):
    made = response_decision(NOINDEX, purposes="search")
    exempt = msgspec.structs.replace(made.verdict, action=Action.PASS, reason=Reason.BYPASSED)
    write(tmp_path, msgspec.structs.replace(made, verdict=exempt))
    (record,) = read(tmp_path)
    with pytest.raises(SettingsError, match="nothing to replay"):
        replay(judgement_of(record, purposes="search"))


def test_a_changed_statement_is_found(tmp_path):
    write(tmp_path, response_decision(NOINDEX, purposes="search"))
    (record,) = read(tmp_path)
    evidence = [msgspec.structs.replace(record.evidence[0], rule="nofollow")]
    forged = msgspec.structs.replace(record, evidence=evidence)
    assert "denied: recorded" in "".join(
        replay(judgement_of(forged, purposes="search")).differences
    )


@pytest.mark.parametrize("change", [{"dialect": "klingon"}, {"evidence": "signal"}])
def test_a_record_that_cannot_be_judged_is_an_error(tmp_path, change):
    write(tmp_path, response_decision(NOINDEX))
    (record,) = read(tmp_path)
    if "evidence" in change:
        change = {"evidence": [msgspec.structs.replace(record.evidence[0], signal="smoke")]}
    with pytest.raises(SettingsError):
        replay(judgement_of(msgspec.structs.replace(record, **change)))


def test_a_lapse_since_the_decision_is_reported(tmp_path):
    write(tmp_path, response_decision(LAPSE, purposes="search"))
    (record,) = read(tmp_path)
    judgement = judgement_of(record, purposes="search")
    assert replay(judgement, AT + 3600).caveats == []
    (caveat,) = replay(judgement, AT + 2 * 86_400).caveats
    assert "unavailable_after" in caveat


@pytest.mark.parametrize(
    "entry",
    [
        b'[{"location": "/", "tdm-reservation": 1}]',
        b'[{"location": "/", "tdm-reservation": 1, "tdm-policy": "https://a.test/p"}]',
        b'[{"location": "/", "tdm-reservation": 1}, 5]',
        b'[{"location": "/page", "x": 1}, {"location": "/", "tdm-reservation": 1}]',
        b'[{"location": "/%b", "tdm-reservation": 1}]' % (b"*" * 900),
        b'{"tdm-reservation": "1"}',
    ],
)
def test_a_reservation_is_judged_again_as_it_was_recorded(tmp_path, entry):
    site = policy("https://a.test/")
    reserved = Reservations(attempted_at=AT, status=200, fetched_at=AT, body=entry)
    site = msgspec.structs.replace(site, reservations=reserved)
    terms = settings_for(purposes="tdm").terms()
    question = decision(URL).question
    verdict = judge_offline(question, terms, site, AT)
    write(tmp_path, decision(URL, verdict, policy=site, dialect="rfc9309", matching="standard"))
    (record,) = read(tmp_path, kind="decision")

    assert (record.reason, record.line) == ("usage-reserved", None)
    judgement = judgement_of(record, purposes="tdm")
    judgement = msgspec.structs.replace(judgement, document=site.document.body)
    assert replay(judgement).differences == []


# -- evidence --------------------------------------------------------------------------------------


def test_the_evidence_has_a_metadata_record(tmp_path):
    write(tmp_path, response_decision(NOINDEX, purposes="search"), audit="evidence")
    (path,) = tmp_path.glob("*.warc.gz")
    with path.open("rb") as file:
        found = [
            (each.rec_headers, each.content_stream().read())
            for each in ArchiveIterator(file)
            if each.rec_type == "metadata"
        ]
    ((head, content),) = found
    content = json.loads(content)
    assert head.get_header("WARC-Target-URI") == URL
    assert head.get_header("Content-Type") == "application/json"
    assert (content["kind"], content["id"]) == ("signals", "w-9")


# -- limits ----------------------------------------------------------------------------------------

WIDE = "\U0001f600"
MANY = {
    "limits": [("X-Robots-Tag", f"max-snippet: {number}, x{WIDE * 600}") for number in range(1000)],
    "dates": [("X-Robots-Tag", f"unavailable_after: {year}-01-01") for year in range(1970, 2970)],
    "unknown words": [("X-Robots-Tag", f"word{number} {WIDE * 600}") for number in range(1000)],
    "licences": [("Link", f"</{number}{WIDE * 600}>; rel=license") for number in range(1000)],
    "prices": [("crawler-price", f"{number} {WIDE * 600}") for number in range(1000)],
    "policies": [("tdm-reservation", "1"), *([("tdm-policy", f"/{WIDE * 900}")] * 500)],
}


@pytest.mark.parametrize("last", ["noindex", "all"])
@pytest.mark.parametrize("kind", MANY)
def test_a_record_can_be_read_however_much_a_site_states(tmp_path, kind, last):
    headers = [*MANY[kind], ("X-Robots-Tag", last), ("Content-Signal", "use=reference, search=no")]
    statements = header_statements(headers, 200, URL)
    write(tmp_path, response_decision(*statements, purposes="search,archive"))

    (record,) = read(tmp_path)
    judgement = judgement_of(record, purposes="search,archive")
    assert (record.action, "search" in record.uses) == ("drop", True)
    assert len(record.line_of_json()) < LONGEST_LINE
    assert len(record.evidence) + record.evidence_omitted == len(statements)
    assert replay(judgement).differences == []
