"""Each code has a file in which it must be found, with lines, and a similar one in which it must not."""

from __future__ import annotations

import pytest

from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.lines import BODY_CAP, LINE_CAP
from robots_guard.protocol.lint.finding import Severity
from robots_guard.protocol.lint.linter import CHECKS, MOST, lint

COMMENT = b"#" * 999 + b"\n"
ANY = b"User-agent: *\n"

# code -> a file with it, the lines it is found at, and a file without it
CASES = {
    "RG001": (b"<!DOCTYPE html>\n<html>User-agent: *", [1], ANY + b"Disallow: /<html>\n"),
    "RG002": ((ANY + b"Disallow: /x\n").decode().encode("utf-16"), [1], ANY + b"Disallow: /x\n"),
    "RG003": (b"\xef\xbb\xbf" + ANY + b"Disallow: /x\n", [1], ANY + b"Disallow: /x\n"),
    "RG004": (ANY + b"Disallow: /a\0b\nAllow: /c\x1b[31m\n", [2, 3], ANY + b"Disallow: /a # \0\n"),
    "RG005": (
        ANY + b"Disallow: /" + b"a" * LINE_CAP + b"\n",
        [2],
        ANY + b"Disallow: /" + b"a" * 16_000 + b"\n",
    ),
    "RG006": (ANY + COMMENT * 520, [512], ANY + COMMENT * 511),
    "RG007": (b"# nothing\nSitemap: https://a.test/s.xml\n", [], ANY),
    "RG008": (
        "User-agent: *\n\xa0Disallow: /x\nAllow: /y\u200b # c\n".encode(),
        [2, 3],
        "User-agent: *\nDisallow: /caf\xe9\nAllow: /y # \xa0\n".encode(),
    ),
    "RG009": (b"\x1f\x8b\x08\0" + ANY, [1], ANY),
    "RG101": (
        b"Useragent: *\nDisalow: /x\nDisallop: /y\nDesallow: /z\n",
        [1, 2, 3, 4],
        ANY + b"DISALLOW: /x\n",
    ),
    "RG102": (
        ANY + b"Crawldelay: 3\nSite-map: https://a.test/\n",
        [2, 3],
        ANY + b"Crawl-Delay: 3\n",
    ),
    "RG103": (ANY + b"Disallow /x\nDisallow; /y\nUser-agent\n", [2, 3, 4], ANY + b"see Disallow\n"),
    "RG104": (ANY + b"hello there\n1\n", [2, 3], ANY + b"# hello there\n"),
    "RG105": (
        ANY + b"LLM-Policy: /x\nhttps://a.test/s.xml\n/path:x\n",
        [2, 3, 4],
        ANY + b"License: https://a.test/\n",
    ),
    "RG106": (
        ANY + b"Disallow: /\nCrawl-delay: 5\n",
        [3],
        ANY + b"Disallow: /\nContent-Signal: search=yes\n",
    ),
    "RG107": (ANY + b"Noindex: /x\n", [2], ANY + b"Disallow: /noindex\n"),
    "RG108": (
        ANY + b"Disallow: /a#b\n",
        [2],
        ANY + b"Disallow: /a #b\nDisallow: #c\nDisallow:#d\n",
    ),
    "RG109": (
        b"User-agent: *<br>\nDisallow: /x\\nAllow: /y\nDisallow: /z\xef\xbb\xbfUser-agent: y\n",
        [1, 2, 3],
        ANY + b"Disallow: /x<y\nDisallow: /z # <br>\n",
    ),
    "RG201": (b"Disallow: /x\nAllow: /y\n" + ANY, [1, 2], ANY + b"Disallow: /x\n"),
    "RG202": (
        ANY + b"Disallow: /a\n\nDisallow: /b\n",
        [4],
        ANY + b"Disallow: /a\n# a comment\nDisallow: /b\n",
    ),
    "RG203": (
        b"User-agent: abot, bbot\nDisallow: /\n",
        [1],
        b"User-agent: abot\nUser-agent: bbot\nDisallow: /\n",
    ),
    "RG204": (
        b"User-agent: 360Spider\nUser-agent: a/1.0\nDisallow: /\n",
        [1, 2],
        b"User-agent: a-b_C\nDisallow: /\n",
    ),
    "RG205": (b"User-agent:\nDisallow: /\n", [1], ANY + b"Disallow: /\n"),
    "RG206": (ANY + b"Crawl-delay: 1\n", [1], ANY + b"Disallow:\n"),
    "RG207": (
        ANY + b"Disallow: /a\n\nUser-agent: *\nDisallow: /b\n",
        [4],
        ANY + ANY + b"Disallow: /b\n",
    ),
    "RG208": (
        b"User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\n",
        [2],
        ANY + b"Crawl-delay: 1\nDisallow: /\n",
    ),
    "RG209": (b"User-agent: a b\nDisallow: /\n", [1], b"User-agent: a\nDisallow: /\n"),
    "RG301": (
        ANY + b"Disallow: cgi-bin\nAllow: ?q\n",
        [2, 3],
        ANY + b"Disallow: /cgi-bin\nDisallow: *.gif\n",
    ),
    "RG302": (
        ANY + b"Disallow: http://a.test/x\nAllow: //a.test/y\n",
        [2, 3],
        ANY + b"Disallow: /http://a.test/x\n",
    ),
    "RG303": (ANY + b"Disallow: /a /b\n", [2], ANY + b"Disallow: /a%20b\n"),
    "RG304": (
        ANY + b"Disallow: /a*b\nDisallow: /c\nDisallow: /d*e\n",
        [2, 4],
        ANY + b"Disallow: /%2A\n",
    ),
    "RG305": (ANY + b"Disallow: /a$\n", [2], ANY + b"Disallow: /a$b\n"),
    "RG306": (ANY + b"Disallow: /a$b\n", [2], ANY + b"Disallow: /a$\n"),
    "RG307": (ANY + b"Disallow: *\n", [2], ANY + b"Disallow: /*\n"),
    "RG308": (ANY + b"Allow: /a\n", [2], ANY + b"Disallow: /a\n"),
    "RG309": (ANY + b"Disallow: /a\nAllow:\n", [3], ANY + b"Disallow:\n"),
    "RG310": (ANY + b"Disallow: /a\nDisallow:\n", [3], ANY + b"Disallow:\n"),
    "RG311": (ANY + b"Disallow: /robots.txt\n", [2], ANY + b"Disallow: /robots.txt.bak\n"),
    "RG312": (ANY + b"Disallow: /%7ejoe\nDisallow: /%2b\n", [2, 3], ANY + b"Disallow: /~joe%2B\n"),
    "RG313": (ANY + b"Disallow: /100%\nDisallow: /%zz\n", [2, 3], ANY + b"Disallow: /100%25\n"),
    "RG314": (ANY + "Disallow: /é\n".encode(), [2], ANY + "Disallow: /e # é\n".encode()),
    "RG315": (ANY + b"Disallow: /\xe9\n", [2], ANY + "Disallow: /é\n".encode()),
    "RG316": (
        ANY + b"Disallow: ^/a\nDisallow: /(a|b)\nDisallow: /[0-9]+\n",
        [2, 3, 4],
        ANY + b"Disallow: /a.*\n",
    ),
    "RG317": (
        ANY + b"Disallow: /" + b"a" * 1_024 + b"\n",
        [2],
        ANY + b"Disallow: /" + b"a" * 1_000 + b"\n",
    ),
    "RG401": (
        ANY + b"Disallow: /a\nAllow: /b\nDisallow: /a\n",
        [4],
        ANY + b"Disallow: /a$\nDisallow: /a\nDisallow: /a/b\n",
    ),
    "RG402": (ANY + b"Allow: /a\nDisallow: /a\n", [3], ANY + b"Allow: /a/\nDisallow: /a\n"),
    "RG403": (ANY + b"Disallow: /a/\nAllow: /a/b\n", [3], ANY + b"Allow: /a/b\nDisallow: /a/\n"),
    "RG404": (
        ANY + b"".join(b"Disallow: /%d/\n" % number for number in range(5_001)),
        [5_002],
        ANY + b"".join(b"Disallow: /%d/\n" % number for number in range(5_000)),
    ),
    "RG501": (
        ANY + b"Disallow:\nCrawl-delay: 10s\nCrawl-delay: 1,5\n",
        [3, 4],
        ANY + b"Crawl-delay: 0.5\n",
    ),
    "RG502": (ANY + b"Crawl-delay: 500\n", [2], ANY + b"Crawl-delay: 30\n"),
    "RG503": (
        b"Crawl-delay: 5\n" + ANY + b"Disallow: /\n",
        [1],
        b"Sitemap: https://a.test/\n" + ANY + b"Disallow: /\n",
    ),
    "RG504": (
        ANY + b"Request-rate: 10\n",
        [2],
        ANY + b"Request-rate: 1/10s 0900-1730\nRequest-rate: 100/15m\n",
    ),
    "RG505": (ANY + b"Visit-time: 9-17\n", [2], ANY + b"Visit-time: 0600-0845\n"),
    "RG506": (
        ANY + b"Sitemap: /s.xml\nSitemap: a.test/s.xml\n",
        [2, 3],
        ANY + b"Sitemap: HTTPS://a.test:8/s.xml\n",
    ),
    "RG507": (
        ANY + b"Disallow: /\nHost: www.mysi.te\n",
        [3],
        ANY + b"Disallow: /\nHost: www.example.com:8080\n",
    ),
    "RG601": (
        ANY + b"Content-Signals: https://a.test/s.json\n",
        [2],
        ANY + b"Content-Signal: search=yes\n",
    ),
    "RG602": (
        b"Content-Signal: search=yes\nContent-Usage: search=y\n" + ANY,
        [1, 2],
        ANY + b"Content-Signal: search=yes\n",
    ),
    "RG603": (
        ANY + b"Content-Usage: /a train-ai=no\nContent-Signal: ai-train=n, use=full\n",
        [2, 3],
        ANY + b"Content-Usage: /a train-ai=n\nContent-Signal: ai-train=no, use=full\n",
    ),
    "RG604": (
        ANY + b"Content-Usage: train-ai=n;;\nContent-Signal: search\n",
        [2, 3],
        ANY + b"Content-Usage: train-ai=n;a=b\n",
    ),
    "RG605": (
        ANY + b"Content-Usage: ai-train=n\nContent-Usage: bots=n\nContent-Signal: serach=no\n",
        [2, 3, 4],
        ANY + b"Content-Usage: train-ai=n, search=y, ai-use=n\nContent-Signal: ai-input=no\n",
    ),
}


def _lines(body: bytes, code: str) -> list[int]:
    return [line for finding in lint(body) if finding.code == code for line in finding.lines]


@pytest.mark.parametrize("code", [check.code for check in CHECKS])
def test_each_code_is_found_in_its_file_and_not_in_a_similar_one(code):
    found, lines, clean = CASES[code]

    assert code in {finding.code for finding in lint(found)}
    assert _lines(found, code) == lines
    assert code not in {finding.code for finding in lint(clean)}


def test_codes_are_unique_and_in_order():
    codes = [check.code for check in CHECKS]

    assert codes == sorted(set(codes))
    assert len({check.name for check in CHECKS}) == len(codes)
    assert set(CASES) == set(codes)


def test_a_good_file_has_no_finding():
    body = b"User-agent: *\nDisallow: /private/\n\nSitemap: https://example.com/sitemap.xml\n"

    assert lint(body) == []


# -- what each dialect does is what its engine does ----------------------------------------------------------


def _effects(body: bytes, code: str, **options) -> dict[str, str]:
    [finding] = [finding for finding in lint(body, **options) if finding.code == code]
    return {name: effect.does for effect in finding.effects for name in effect.dialects}


def test_a_misspelt_field_is_read_by_some():
    does = _effects(ANY + b"Disalow: /x\n", "RG101")

    assert does["rfc9309"] == does["google"] == "Disallow: /x, for *"
    assert does["koster1994"] == does["slurp2006"] == "not read"


def test_a_blank_line_ends_a_record_for_some():
    does = _effects(ANY + b"\nDisallow: /x\n", "RG202")

    assert does["koster1996"] == "outside any group, so ignored"
    assert does["rambler2003"] == does["rfc9309"] == "Disallow: /x, for *"


def test_a_record_that_is_void_for_another_reason_has_no_blank_line():
    for body in (
        ANY + b"Disalow: /x\n",
        b"Useragent: *\nDisallow: /x\n",
        b"\n" + ANY + b"# a\nDisalow: /x\n\n",
    ):
        assert _lines(body, "RG202") == []


def test_the_text_of_a_finding_shows_the_comment_that_cuts_it():
    [finding] = [each for each in lint(ANY + b"Disallow: /a#b  \n") if each.code == "RG108"]

    assert finding.text == "Disallow: /a#b"


def test_two_names_on_a_line():
    does = _effects(b"User-agent: abot bbot\nDisallow: /\n", "RG203")

    assert does["kollar1996"] == "applies to abot bbot, abot, bbot"
    assert does["rfc9309"] == "applies to abot bbot, abot, not bbot"


def test_two_paths_on_a_line():
    does = _effects(ANY + b"Disallow: /a /b\n", "RG303")

    assert does["kollar1996"] == "matches /a, /b, /a%20/b"
    assert does["rfc9309"] == "matches /a%20/b, not /a nor /b"


def test_host_between_names_splits_their_group_in_yandex2003_only():
    does = _effects(b"User-agent: a\nHost: a.com\nUser-agent: b\nDisallow: /\n", "RG208")

    assert {name for name, what in does.items() if "separate" in what} == {"yandex2003"}


def test_an_invalid_host_has_its_reason_and_effect():
    [finding] = [
        each
        for each in lint(ANY + b"Disallow: /x\nHost: http://www.myhost.ru\n")
        if each.code == "RG507"
    ]

    assert finding.message == "this is not a valid host: it is a URL; write the host only"
    assert {effect.does for effect in finding.effects if "yandex2003" in effect.dialects} == {
        "ignored"
    }


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("www.myhost-.ru", "hyphen"),
        ("www.-myhost.ru", "hyphen"),
        ("www.myhost.ru:0", "port"),
        ("www.my_host.ru", "character"),
        (".my-host.ru:8000", "empty label"),
        ("my-host.ru.", "empty label"),
        ("my..host.ru", "empty label"),
        ("www.myhost.ru/", "path"),
        ("www.myhost.ru:8080/", "path"),
        ("http://www.myhost.ru", "URL"),
        ("www.mysi.te", "top-level"),
        ("213.180.194.129", "address"),
        ("www.firsthost.ru,www.secondhost.ru", "more than one"),
    ],
)
def test_yandex_examples_of_a_wrong_host_each_say_why(value, why):
    [finding] = [
        each
        for each in lint(ANY + b"Disallow: /x\nHost: " + value.encode())
        if each.code == "RG507"
    ]

    assert why in finding.message


def test_escapes_that_only_some_equate():
    does = _effects(ANY + b"Disallow: /%7Ejoe\n", "RG312")

    assert does["rfc9309"] == does["koster1996"] == "matches /%7Ejoe, /~joe"
    assert does["koster1994"] == "matches /%7Ejoe, not /~joe"


def test_the_first_match_shadows_and_the_longest_does_not():
    does = _effects(ANY + b"Disallow: /a\nAllow: /a/b\n", "RG403")

    assert does["koster1996"] == "line 2 decides (Disallow: /a)"
    assert does["rfc9309"] == "decides"
    assert "koster1994" not in does


@pytest.mark.parametrize(
    "rules",
    [
        b"Allow: /a*0\nDisallow: /a\n",  # each matches what the other does not
        b"Disallow: /a$\nDisallow: /a\n",
        b"Disallow: /*.php\nAllow: /x.php$\n",
        b"Disallow: /a*b\nDisallow: /a*c\n",
        b"Disallow: /%41\nDisallow: /b\n",
        b"Disallow: *.gif\nDisallow: /x\n",
    ],
)
def test_rules_that_may_win_are_not_called_shadowed(rules):
    found = lint(ANY + rules, [dialect("rfc9309"), dialect("google")])

    assert not {"RG401", "RG402", "RG403"} & {each.code for each in found}


# -- options ------------------------------------------------------------


def test_only_the_requested_dialects_are_reported():
    body = ANY + b"Disallow: /a*b\n\nAllow: /c\n"

    assert lint(body, [dialect("rfc9309")]) == []
    assert {
        name
        for each in lint(body, [dialect("koster1996")])
        for e in each.effects
        for name in e.dialects
    } == {"koster1996"}


def test_a_composite_counts_as_its_parts():
    does = _effects(
        ANY + b"Disalow: /x\n", "RG101", dialects=[dialect("strictest(google, koster1994)")]
    )

    assert list(does) == ["google", "koster1994"]


def test_with_an_agent_only_its_groups_and_ungrouped_lines_are_reported():
    body = b"hello\nUser-agent: abot\nDisallow: x\n\nUser-agent: bbot\nDisallow: y\nSitemap: /s\n"
    found = {
        line for finding in lint(body, [dialect("rfc9309")], agent="abot") for line in finding.lines
    }

    assert found == {1, 3}


def test_a_body_truncated_by_the_fetcher_is_reported():
    assert [each.code for each in lint(ANY + b"Disallow: /x\n", truncated=True)] == ["RG006"]


def test_the_size_says_what_is_lost():
    body = ANY + b"Disallow: /%06d\n" * 40_000 % tuple(range(40_000))
    [finding] = [each for each in lint(body, [dialect("rfc9309")]) if each.code == "RG006"]
    kept = (BODY_CAP - len(ANY)) // len(b"Disallow: /000000\n")

    assert finding.lines == (kept + 1,)
    assert f"{40_000 - kept} rules" in finding.message


def test_findings_of_one_kind_are_bounded_and_no_line_is_lost():
    found = [each for each in lint(ANY + b"Disallow: x\n" * 5_000) if each.code == "RG301"]

    assert len(found) == MOST
    assert [line for each in found for line in each.lines] == list(range(2, 5_002))


def test_severities_have_an_order():
    assert [each.rank for each in (Severity.ERROR, Severity.WARNING, Severity.NOTE)] == [0, 1, 2]


def test_the_default_is_all_dialects():
    assert set(_effects(ANY + b"Disalow: /x\n", "RG101")) == set(DIALECTS)
