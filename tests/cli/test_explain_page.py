"""`explain --headers --html`: what a response states of each use, and what follows."""

from __future__ import annotations

import json

import pytest

from robots_guard.app.cli.ask.header_file import InvalidHeaderFile, read_header_file

HEADERS = """\
HTTP/2 200
content-type: text/html
x-robots-tag: noai, max-snippet: 20
x-robots-tag: otherbot: noindex
"""
PAGE = """\
<meta name="robots" content="noarchive, no-index">
<a rel="nofollow" href="/x">x</a> <a href="/y">y</a>
"""
ROBOTS = "User-agent: *\nContent-Signal: search=yes\nDisallow: /private\n"


@pytest.fixture
def explain(here, tmp_path):
    """Explain https://a.test/page by the given files."""

    def explain(*options, url="https://a.test/page", robots=ROBOTS, headers=None, html=None):
        given = {"robots": robots, "headers": headers, "html": html}
        for name, text in given.items():
            if text is not None:
                path = tmp_path / name
                path.write_bytes(text.encode("latin-1"))
                options += (f"--{name}", path)
        return here("explain", url, *options)

    return explain


def section(out):
    return out[out.index("What the site states") :].splitlines()


def test_each_use_has_the_statements_that_decide_it(explain):
    ran = explain("--purposes", "ai-train", headers=HEADERS, html=PAGE)

    assert ran.status == 1
    assert section(ran.out) == [
        "What the site states of the use of the page:",
        "  follow    unknown",
        "  search    allow    line 2 of robots.txt: Content-Signal: search=yes",
        "  snippet   unknown",
        '  archive   deny     meta-robots in the page: <meta name="robots" content="noarchive, no-index">',
        "  ai-input  deny     x-robots-tag in the header: x-robots-tag: noai, max-snippet: 20",
        '                     meta-robots in the page: <meta name="robots" content="noarchive, no-index">',
        "  ai-index  unknown",
        "  ai-train  deny     x-robots-tag in the header: x-robots-tag: noai, max-snippet: 20",
        '                     meta-robots in the page: <meta name="robots" content="noarchive, no-index">',
        "  tdm       unknown",
        "  max-snippet 20",
        "  1 of 2 links may not be followed",
        '  means nothing: meta-robots in the page: <meta name="robots" content="noarchive, no-index">'
        " (unknown-rule)",
        "",
        "purposes   ai-train; page dialect union; status 200",
        "DROP       ai-train: x-robots-tag (header) says x-robots-tag: noai, max-snippet: 20"
        " (reason: usage-reserved)",
        "Scrapy     stops the download at the header fields; the request ends in its errback",
        "proxy      answers 403 in place of the page",
    ]


def test_without_purposes_the_page_passes_with_what_is_stated(explain):
    ran = explain(headers=HEADERS)

    assert ran.status == 0
    assert "purposes   none, so no use is refused; page dialect union; status 200\n" in ran.out
    assert "Scrapy     hands the page to the spider, with what is stated" in ran.out
    assert "PASS " in section(ran.out)[-3]


def test_page_alone_is_html(explain):
    ran = explain("--purposes", "archive", html=PAGE)

    assert ran.status == 1
    assert "does not hand the page to the spider" in ran.out


def test_header_fields_say_what_the_page_is(explain):
    headers = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"

    assert explain("--purposes", "archive", headers=headers, html=PAGE).status == 0


def test_refusal_before_the_request_is_that_of_both_integrations(explain):
    robots = "User-agent: *\nContent-Usage: train-ai=n\n"
    ran = explain("--purposes", "ai-train", robots=robots, html="")

    assert ran.status == 1
    assert "rule       line 2: Content-Usage: train-ai=n\n" in ran.out
    assert "Scrapy     makes no request" in ran.out
    assert "proxy      makes no request, and answers 403\n" in ran.out


def test_disallowed_page_stays_refused_whatever_its_response_states(explain):
    ran = explain(
        "--purposes", "search", url="https://a.test/private", headers="X-Robots-Tag: all\n"
    )

    assert ran.status == 1
    assert "DROP " in section(ran.out)[-3]


def test_price_is_shown_and_passed_on_by_the_proxy(explain):
    ran = explain(headers="HTTP/1.1 402 Payment Required\ncrawler-price: USD 0.01\n")

    assert ran.status == 1
    assert "  price USD 0.01\n" in ran.out
    assert "proxy      passes the response on\n" in ran.out


def test_site_that_cannot_be_reached_is_deferred(explain, net):
    ran = explain(url=net.origin(503).url, robots=None, headers=HEADERS)

    assert ran.status == 3
    assert "Scrapy     makes no request yet; it is scheduled again\n" in ran.out


def test_policy_of_the_store_counts_too(explain, net):
    site = net.origin("User-agent: *\nContent-Usage: train-ai=n\n")

    ran = explain("--purposes", "ai-train", url=f"{site.url}/x", robots=None, headers=HEADERS)

    assert ran.status == 1
    assert "  ai-train  deny     line 2 of robots.txt: Content-Usage: train-ai=n\n" in ran.out


def test_json_has_the_statements_and_the_action(explain):
    ran = explain("--purposes", "ai-train", "--json", headers=HEADERS, html=PAGE)
    found = json.loads(ran.out)["signals"]

    assert found["denied"] == ["ai-input", "ai-train", "archive"]
    assert found["action"] == {"scrapy": "stop", "proxy": "drop", "phase": "headers"}
    assert (found["verdict"], found["reason"]) == ("drop", "usage-reserved")
    assert found["follow"] == {"https://a.test/x": False, "https://a.test/y": True}
    assert {each["rule"] for each in found["evidence"]} >= {"noai", "noarchive", "search"}


def test_without_a_response_nothing_is_added(explain):
    assert "What the site states" not in explain().out
    assert "signals" not in json.loads(explain("--json").out)


def test_text_of_the_site_is_escaped(explain):
    ran = explain(headers="X-Robots-Tag: noai\x1b[31m, noindex\n")

    assert "\x1b" not in ran.out
    assert "noindex" in ran.out


def test_line_that_is_no_field_is_a_usage_error(explain):
    ran = explain(headers="HTTP/1.1 200 OK\n\n<html>\n")

    assert ran.status == 2
    assert "line 3 of " in ran.err
    assert "is not a header field" in ran.err


def test_last_of_several_responses_counts():
    body = b"HTTP/1.1 301 Moved\r\nX-Robots-Tag: noindex\r\n\r\nHTTP/2 404 \r\nX-Robots-Tag: a:\r\n"

    file = read_header_file(body, "file")

    assert (file.head.status, file.head.headers) == (404, (("X-Robots-Tag", "a:"),))
    assert [each.number for each in file.fields] == [5]


def test_folded_line_continues_the_field_above():
    file = read_header_file(b"X-Robots-Tag: noindex,\r\n\t nofollow\r\n", "file")

    assert file.head.headers == (("X-Robots-Tag", "noindex, nofollow"),)
    assert file.status == 200


@pytest.mark.parametrize("line", [b": x", b"a b: x", b"<p>", b"\xff: x", b" folded"])
def test_other_lines_are_refused(line):
    with pytest.raises(InvalidHeaderFile, match="line 1 of file"):
        read_header_file(line, "file")
