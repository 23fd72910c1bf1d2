"""Findings in header fields, pages and tdmrep.json: each code where it must be found, and a similar
response without it."""

from __future__ import annotations

import pytest

from robots_guard.protocol.dialect import DIALECTS
from robots_guard.protocol.lint.finding import Severity
from robots_guard.protocol.lint.linter import MOST
from robots_guard.protocol.lint.response import (
    KINDS,
    RESPONSE_CHECKS,
    RobotsOfPage,
    lint_response,
    lint_tdmrep,
)


def tag(value):
    return ("X-Robots-Tag", value)


def meta(content, name="robots"):
    return f'<meta name="{name}" content="{content}">'


def found(*fields, html=None, robots=None, agent=""):
    """The codes of the header fields and of the page, with their lines."""
    lines = [(number, *field) for number, field in enumerate(fields, 2)]
    body = None if html is None else html.encode()
    findings = lint_response(lines, body, robots=robots, agent=agent)
    return [{(each.code, each.line) for each in part} for part in (findings.headers, findings.page)]


def codes(*fields, **given):
    return {code for part in found(*fields, **given) for code, _ in part}


HTML = ("Content-Type", "text/html")

# code -> header fields with it, and header fields without it
FIELDS = {
    "RG701": [
        ([tag("index, noindex")], [tag("index, nofollow")]),
        ([tag("all"), tag("nofollow")], [tag("all"), tag("noarchive")]),
        ([tag("none, follow")], [tag("none"), tag("otherbot: follow")]),
        ([tag("max-snippet:5, max-snippet:6")], [tag("max-snippet:5"), tag("nosnippet")]),
    ],
    "RG702": [
        ([tag("none, nofollow")], [tag("none, noarchive")]),
        ([tag("noindex, noindex")], [tag("a: noindex"), tag("b: noindex")]),
        ([tag("noindex"), tag("noindex")], [tag("noindex"), tag("nofollow")]),
    ],
    "RG703": [
        ([tag("noodp, noydir, noyaca")], [tag("noindex")]),
        ([tag("nositelinkssearchbox")], [tag("nosnippet")]),
        ([tag("noarchive")], [tag("noai")]),
    ],
    "RG704": [([tag("no-index")], [tag("noindex")]), ([tag("noindx")], [tag("googlebot: noai")])],
    "RG705": [
        ([tag("googlebot: noindex, nofollow")], [tag("googlebot: noindex"), tag("nofollow")]),
        ([tag("my bot: noindex")], [tag("mybot: noindex")]),
        ([tag("a: noindex, b: nofollow")], [tag("a: noindex"), tag("b: nofollow")]),
    ],
    "RG706": [
        ([tag("max-snippet: some")], [tag("max-snippet: 5")]),
        ([tag("unavailable_after: 06/05/2010")], [tag("unavailable_after: 2010-06-05T00:00:00Z")]),
        ([("Robots-Tag", "*;noindex;;")], [("Robots-Tag", "*;noindex")]),
    ],
    "RG707": [
        ([tag("noindex nofollow")], [tag("noindex, nofollow")]),
        ([tag("noindex; nofollow")], [tag("noindex,nofollow")]),
        ([tag("noindex: x")], [tag("noindex")]),
        ([tag("noindex, indexifembedded")], [tag("noindex")]),
    ],
    "RG708": [
        (
            [tag("unavailable_after: 2030-01-01 00:00")],
            [tag("unavailable_after: 2030-01-01 00:00 GMT")],
        )
    ],
    "RG709": [
        (
            [("Content-Signal", "ai-train=no")],
            [("Content-Usage", "train-ai=n")],
        )
    ],
    "RG711": [
        ([("tdm-reservation", "yes")], [("tdm-reservation", "1")]),
        ([("tdm-reservation", "1"), ("tdm-reservation", "true")], [("tdm-reservation", "0")]),
    ],
    "RG603": [([("Content-Usage", "train-ai=no")], [("Content-Usage", "train-ai=n")])],
    "RG604": [([("Content-Usage", "train-ai=n,,")], [("Content-Usage", "train-ai=n, search=y")])],
    "RG605": [([("Content-Usage", "ai-train=n")], [("Content-Usage", "train-ai=n")])],
}
CASES = [
    pytest.param(code, *case, id=f"{code}-{number}")
    for code, cases in FIELDS.items()
    for number, case in enumerate(cases)
]

# The same in a page, where this is another reader.
PAGES = {
    "RG701": (meta("index,noindex"), meta("index,nofollow")),
    "RG702": (meta("none, nofollow"), meta("none")),
    "RG703": (meta("noodp"), meta("noindex")),
    "RG704": (meta("no-index"), meta("noindex")),
    "RG705": (meta("googlebot: noindex, nofollow"), meta("noindex, nofollow", "googlebot")),
    "RG706": (meta("unavailable_after: 06/05/2010"), meta("unavailable_after: 2010-06-05")),
    "RG707": (meta("noindex nofollow"), meta("noindex,nofollow")),
    "RG709": ('<meta http-equiv="robots" content="noindex">', meta("noindex")),
    "RG711": (meta("x", "tdm-reservation"), meta("1", "tdm-reservation")),
    "RG713": (meta("a &lt;b>bold</b> claim", "description"), meta("a bold claim", "description")),
}

TDMREP = [
    (b'{"location": "/", "tdm-reservation": 1}', "is an object"),
    (b'[{"location": "/", "tdm-reservation": "1"}]', 'the reservation "1"'),
    (b'[{"location": "/", "tdm-reservation": true}]', "the reservation true"),
    (b'[{"location": "/"}]', "the reservation null"),
    (b'[{"tdm-reservation": 1}]', "no location"),
    (b'[{"location": "a", "tdm-reservation": 1}]', "no location"),
    (b'[{"location": "/", "tdm-reservation": 0, "tdm-policy": "https://a.test/"}]', "a policy"),
    (b"[1]", "entry 1 is not an object"),
    (b'"x"', "not an array"),
    (b"<html>", "not JSON"),
    (b"[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("code", "bad", "good"), CASES)
def test_each_code_is_found_in_its_fields_and_not_in_similar_ones(code, bad, good):
    assert code in codes(*bad)
    assert code not in codes(*good)


@pytest.mark.parametrize("code", PAGES)
def test_each_code_is_found_in_its_page_and_not_in_a_similar_one(code):
    bad, good = PAGES[code]

    headers, page = found(HTML, html=f"<!doctype html>\n<title>t</title>\n{bad}\n")
    assert (code, 3) in page
    assert headers == set()
    assert code not in codes(HTML, html=good)


def test_every_code_of_a_response_has_a_case():
    tested = FIELDS.keys() | PAGES.keys() | {"RG710", "RG712"}
    assert {each.code for each in RESPONSE_CHECKS} <= tested


def test_codes_are_unique_and_in_order():
    every = [each.code for each in KINDS]
    assert every == sorted(set(every))
    assert len({each.name for each in KINDS}) == len(every)


def test_a_good_response_has_no_finding():
    fields = [
        HTML,
        tag("max-snippet:50, max-image-preview:large"),
        tag("googlebot: noindex"),
        ("Content-Usage", "train-ai=n, search=y"),
        ("tdm-reservation", "1"),
        ("tdm-policy", "https://a.test/policy.json"),
        ("Server", "index, noindex"),
    ]
    page = "<title>t</title>" + meta("noindex, follow") + meta("width=device-width", "viewport")

    assert codes(*fields, html=page) == set()


def test_header_fields_and_page_are_compared():
    headers, page = found(HTML, tag("noindex"), html="\n" + meta("index, follow"))

    assert headers == set()
    assert page == {("RG701", 2)}


def test_contradiction_of_the_page_alone_is_reported_once():
    lines = [(1, *HTML)]
    findings = lint_response(lines, meta("index, noindex").encode()).page

    assert [each.code for each in findings] == ["RG701"]
    assert "header fields" not in findings[0].message


@pytest.mark.parametrize(
    "page",
    [
        f"<!-- {meta('no-index')} -->",
        f"<script>{meta('no-index')}</script>",
        f"<template>{meta('no-index')}</template>",
        meta("no-index", "keywords"),
    ],
)
def test_metas_that_state_nothing_are_not_checked(page):
    assert codes(HTML, html=page) == set()


def test_body_that_is_no_page_is_not_checked():
    assert codes(("Content-Type", "text/plain"), html=meta("no-index")) == set()


def test_page_is_decoded_before_it_is_read():
    body = ("<title>é</title>\n" + meta("no-index")).encode("utf-16")

    findings = lint_response([(1, *HTML)], body).page

    assert [(each.code, each.line) for each in findings] == [("RG704", 2)]


def test_rule_on_a_disallowed_page_is_not_seen():
    robots = RobotsOfPage(
        b"User-agent: *\nDisallow: /*.pdf\n",
        "/a.pdf",
        [DIALECTS["rfc9309"], DIALECTS["koster1994"]],
    )
    findings = lint_response([(1, *tag("noindex"))], None, robots=robots).headers

    assert [each.code for each in findings] == ["RG710"]
    assert findings[0].severity is Severity.ERROR
    assert [(each.dialects, each.does) for each in findings[0].effects] == [
        (("rfc9309",), "disallowed by line 2: Disallow: /*.pdf")
    ]


@pytest.mark.parametrize(
    ("robots", "rule"),
    [
        pytest.param(b"User-agent: *\nDisallow: /b\n", "noindex", id="allowed"),
        pytest.param(b"User-agent: otherbot\nDisallow: /\n", "noindex", id="another crawler"),
        pytest.param(b"User-agent: *\nDisallow: /\n", "notranslate", id="a rule of display"),
        pytest.param(
            b"User-agent: *\nDisallow: /\nUser-agent: abot\nAllow: /\n",
            "abot: noindex",
            id="the crawler of the rule is allowed",
        ),
    ],
)
def test_rule_that_crawlers_see_is_not_reported(robots, rule):
    page = RobotsOfPage(robots, "/a", [DIALECTS["rfc9309"]])

    assert "RG710" not in codes(tag(rule), robots=page)


def test_with_an_agent_only_what_it_reads_is_reported():
    fields = [tag("abot: no-index"), tag("bbot: noodp")]

    assert codes(*fields, agent="abot") == {"RG704"}
    assert codes(*fields, agent="BBOT") == {"RG703"}


@pytest.mark.parametrize(("body", "message"), TDMREP)
def test_tdmrep_file_has_its_form(body, message):
    findings = lint_tdmrep(body)

    assert any(message in each.message for each in findings)
    assert {each.code for each in findings} == {"RG712"}


def test_a_good_tdmrep_file_has_no_finding():
    body = (
        b'[{"location": "/a/*", "tdm-reservation": 1, "tdm-policy": "https://a.test/"},'
        b' {"location": "/", "tdm-reservation": 0}]'
    )
    assert lint_tdmrep(body) == []


def test_findings_of_one_kind_are_bounded():
    fields = [(number, *tag(f"x{number}: word-{number}")) for number in range(3 * MOST)]
    page = "".join(meta(f"word-{number}, noindex") for number in range(3 * MOST)).encode()

    findings = lint_response(fields, page)

    for part in (findings.headers, findings.page):
        for code in {each.code for each in part}:
            assert sum(each.code == code for each in part) <= MOST
