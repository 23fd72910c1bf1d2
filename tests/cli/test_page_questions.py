"""Page questions of `check --batch`: their form, and the form of their answers."""

from __future__ import annotations

import base64
import json

import pytest

NOINDEX = '<meta name="robots" content="noindex">'


@pytest.fixture
def ask(here, tmp_path):
    """Answer questions, which are dicts of fields or whole lines."""

    def ask(*questions, options=()):
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in questions))
        status, out, err = here("check", "--batch", path, *options)
        assert err == ""
        return status, [json.loads(line) for line in out.splitlines()]

    return ask


@pytest.fixture
def answer(ask):
    """The answer to one question."""

    def answer(given=None, *, options=(), **values):
        question = {"input": given or {}, "url": "https://a.test/page", "agent": "mybot"} | values
        _, [found] = ask(question, options=options)
        return found

    return answer


def test_answer_has_every_field(answer):
    found = answer(
        {
            "headers": [["X-Robots-Tag", "noai, max-snippet: 20, unavailable_after: 2030-01-01"]],
            "html": '<a rel="nofollow" href="/x">x</a><a href="/y">y</a>',
            "robots_txt": "User-agent: *\nContent-Signal: search=yes, use=reference\n",
            "wellknown": {
                "/.well-known/tdmrep.json": '[{"location": "/", "tdm-reservation": 1,'
                ' "tdm-policy": "https://a.test/tdm"}]'
            },
        },
        id=7,
        purposes=["ai-train"],
        content_use="reference",
    )

    assert found == {
        "id": 7,
        "crawl": True,
        "uses": {
            "crawl": "allow",
            "follow": "unknown",
            "search": "allow",
            "snippet": "unknown",
            "archive": "unknown",
            "ai-input": "deny",
            "ai-index": "unknown",
            "ai-train": "deny",
            "tdm": "deny",
        },
        "denied": ["ai-input", "ai-train", "tdm"],
        "images": {},
        "limits": {"max-snippet": 20},
        "unavailable_after": "2030-01-01T00:00:00Z",
        "content_use": "reference",
        "tdm_policy": "https://a.test/tdm",
        "license": [],
        "license_other": None,
        "price": None,
        "payment": None,
        "document_state": None,
        "canonical": None,
        "revisit_after": None,
        "data_nosnippet": [],
        "rules": [
            ["*", "noai", True],
            ["*", "max-snippet", 20],
            ["*", "unavailable_after", "2030-01-01T00:00:00Z"],
        ],
        "flags": ["assumed-utc"],
        "follow": {"https://a.test/x": False, "https://a.test/y": True},
        "incomplete": False,
        "action": {"scrapy": "drop", "proxy": "drop", "phase": "request"},
        "reason": "usage-reserved",
        "detail": found["detail"],
    }
    assert found["detail"].startswith("ai-train: tdm-reservation (tdmrep.json) says ")


def test_page_can_be_given_as_bytes(answer):
    body = NOINDEX.encode("utf-16")

    found = answer({"html_b64": base64.b64encode(body).decode()})

    assert "search" in found["denied"]


def test_header_fields_decide_whether_the_body_is_a_page(answer):
    headers = [["Content-Type", "text/plain"]]

    assert answer({"html": NOINDEX, "headers": headers})["denied"] == []
    assert answer({"html": NOINDEX})["denied"] == ["ai-index", "search", "snippet"]


def test_disallowed_page_is_not_crawled_whatever_is_stated(answer):
    found = answer(
        {"robots_txt": "User-agent: *\nDisallow: /\nContent-Signal: ai-train=yes\n"},
        purposes=["ai-train"],
    )

    assert (found["crawl"], found["uses"]["crawl"], found["reason"]) == (
        False,
        "deny",
        "disallowed",
    )
    assert found["action"] == {"scrapy": "drop", "proxy": "drop", "phase": "request"}


def test_refused_use_does_not_close_the_page_to_other_purposes(answer):
    given = {"robots_txt": "User-agent: *\nContent-Usage: train-ai=n\n"}

    assert answer(given, purposes=["ai-train"])["crawl"] is True
    assert answer(given, purposes=["search"])["action"]["scrapy"] == "annotate"


def test_unanswered_uses_are_refused_if_the_operator_says_so(answer):
    options = ("--on-unknown", "deny")

    assert answer(purposes=["search"], options=options)["reason"] == "usage-reserved"
    assert answer(purposes=["search"])["reason"] != "usage-reserved"


def test_settings_of_the_command_hold_for_what_a_question_leaves_out(answer):
    given = {"headers": [["X-Robots-Tag", "noarchive"]]}
    options = ("--purposes", "ai-train", "--page-dialect", "google")

    assert answer(given, options=options)["action"]["scrapy"] == "annotate"
    assert answer(given, options=options, dialect="bing")["action"]["scrapy"] == "stop"
    assert answer(given, options=options, dialect="bing", purposes=[])["action"]["phase"] is None


def test_agent_of_the_command_is_used_if_a_question_names_none(answer):
    given = {"headers": [["X-Robots-Tag", "mybot: noindex"]]}

    assert "search" in answer(given, agent=None, options=("--agent", "mybot"))["denied"]


def test_version_of_the_agent_is_not_compared(answer):
    given = {"headers": [["X-Robots-Tag", "mybot: noindex"]]}

    assert "search" in answer(given, agent="MyBot/2.0 (+https://mybot.test)")["denied"]


def test_question_is_about_its_moment(answer):
    given = {"headers": [["X-Robots-Tag", "unavailable_after: 2026-01-01T00:00:00Z"]]}

    assert answer(given, at="2025-12-31T23:59:59Z")["denied"] == []
    assert "search" in answer(given, at="2026-01-01T01:00:00+01:00")["denied"]
    assert "search" in answer(given)["denied"]  # now


def test_304_is_dropped_and_not_stopped(answer):
    given = {"headers": [["X-Robots-Tag", "noindex"]]}

    found = answer(given, purposes=["search"], status=304)

    assert found["action"] == {"scrapy": "drop", "proxy": "drop", "phase": "headers"}


@pytest.mark.parametrize("status", [301, 404, 410, 500])
def test_response_without_content_of_its_own_is_recorded(answer, status):
    given = {"headers": [["X-Robots-Tag", "noindex"]]}

    found = answer(given, purposes=["search"], status=status)

    assert "search" in found["denied"]
    assert found["action"]["scrapy"] == "annotate"


def test_lines_of_both_kinds_are_answered_in_order(ask):
    plain = {"id": 1, "robots_txt": "", "user_agent": "mybot", "url": "https://a.test/"}
    page = {"id": 2, "input": {}, "url": "https://a.test/", "agent": "mybot"}

    status, found = ask(plain, page, plain)

    assert status == 0
    assert [each["id"] for each in found] == [1, 2, 1]
    assert "uses" in found[1]


def test_row_of_a_conformance_table_is_a_question(ask):
    row = {
        "id": "X-1",
        "signal": "x-robots-tag",
        "where": "http-header",
        "input": {"licenses": {}, "embedded": {}},
        "url": "https://a.test/",
        "agent": "mybot",
        "purposes": [],
        "expect": {"denied": []},
        "clause": "",
        "spec_example": False,
    }

    status, [found] = ask(row)

    assert (status, found["id"], found["denied"]) == (0, "X-1", [])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"purpose": ["search"]}, "purpose"),
        ({"input": {"header": []}}, "input.header"),
        ({"input": []}, "input"),
        ({"input": {"headers": [["X-Robots-Tag"]]}}, "headers"),
        ({"input": {"headers": "X-Robots-Tag: noindex"}}, "headers"),
        ({"input": {"html": 1}}, "html"),
        ({"input": {"html": "", "html_b64": ""}}, "html_b64"),
        ({"input": {"html_b64": "?"}}, "html_b64"),
        ({"input": {"html": "\ud800"}}, "html"),
        ({"input": {"robots_txt": "\ud800"}}, "robots_txt"),
        ({"input": {"wellknown": {"/.well-known/tdmrep.json": "\ud800"}}}, "wellknown"),
        ({"purposes": ["sell"]}, "purposes"),
        ({"purposes": "search"}, "purposes"),
        ({"status": 42}, "status"),
        ({"status": "200"}, "status"),
        ({"at": "yesterday"}, "at"),
        ({"at": "2026-01-01T00:00:00"}, "at"),
        ({"content_use": "some"}, "content_use"),
        ({"dialect": "rfc9309"}, "dialect"),
        ({"url": "a.test/x"}, "url"),
        ({"url": "ftp://a.test/x"}, "url"),
        ({"url": None}, "url"),
    ],
)
def test_invalid_field_is_named_in_place_of_an_answer(ask, changes, field):
    good = {"id": 1, "input": {}, "url": "https://a.test/", "agent": "mybot"}

    status, found = ask(good, good | {"id": 2} | changes, good | {"id": 3})

    assert status == 2
    assert [each["id"] for each in found] == [1, 2, 3]
    assert found[1].keys() == {"id", "error"}
    assert field in found[1]["error"]


def test_missing_agent_is_named(ask, variables):
    variables.delenv("ROBOTS_GUARD_AGENT")

    status, [found] = ask({"input": {}, "url": "https://a.test/"})

    assert status == 2
    assert "add agent to the line" in found["error"]


@pytest.mark.parametrize("value", ["\ud800", "\x00", "a" * 100_000, "\udcff noindex"])
def test_no_text_of_a_site_stops_the_batch(ask, value):
    good = {"id": 1, "input": {}, "url": "https://a.test/", "agent": "mybot"}
    hostile = good | {
        "input": {"headers": [["X-Robots-Tag", value], [value, value], ["Content-Type", value]]}
    }

    status, found = ask(hostile, good)

    assert status == 0
    assert [each["id"] for each in found] == [1, 1]
