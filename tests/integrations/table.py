"""The table for "two integrations, one verdict": (robots.txt outcome, target) -> action and reason.

Each row has its own origin. `control` is a target that the same outcome allows, so that every row
has a request that reaches the origin; if no other target is allowed it is /robots.txt itself, which
always is.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass

from robots_guard.testing import Received, Reply

PASS, DROP, DEFER = "pass", "drop", "defer"
ROBOTS_TXT = "/robots.txt"
_R = "User-agent: *\nDisallow: /private/\n"


@dataclass(frozen=True)
class Row:
    """One row.

    `as_written`: only for clients that send a target unchanged (wget rewrites dot segments).
    """

    name: str
    robots: object
    target: str
    action: str
    reason: str
    control: str = "/open"
    as_written: bool = False


def _rules(
    name: str, text: str, target: str, action: str, control: str = "/open", **options
) -> Row:
    reason = {PASS: "allowed", DROP: "disallowed"}[action]
    return Row(name, text, target, action, reason, control, **options)


def _moved(location: str, status: int = 301):
    def reply(request: Received) -> Reply:
        return Reply(
            status=status, headers=(("Location", location.format(host=request.headers["host"])),)
        )

    return reply


def _bytes(body: bytes, *headers: tuple[str, str], **options) -> Reply:
    return Reply(body=body, headers=headers, **options)


RULES = [
    _rules("prefix-disallows", _R, "/private/x", DROP),
    _rules("prefix-leaves-the-rest", _R, "/privat", PASS),
    _rules(
        "own-group-beats-star",
        "User-agent: *\nDisallow: /\n\nUser-agent: mybot\nDisallow: /a\n",
        "/b",
        PASS,
        "/c",
    ),
    _rules(
        "own-group-disallows",
        "User-agent: mybot\nDisallow: /a\n\nUser-agent: *\nAllow: /\n",
        "/a",
        DROP,
    ),
    _rules("agent-name-in-another-case", "User-agent: MyBot\nDisallow: /a\n", "/a", DROP),
    _rules("agent-with-version", "User-agent: mybot/2.0\nDisallow: /a\n", "/a", DROP),
    _rules("longer-name-is-not-ours", "User-agent: mybots\nDisallow: /\n", "/a", PASS),
    _rules(
        "groups-of-one-name-merge",
        "User-agent: mybot\nDisallow: /a\n\nUser-agent: mybot\nDisallow: /b\n",
        "/b",
        DROP,
    ),
    _rules(
        "several-names-one-group", "User-agent: x\nUser-agent: mybot\nDisallow: /a\n", "/a", DROP
    ),
    _rules(
        "crawl-delay-does-not-split-names",
        "User-agent: mybot\nCrawl-delay: 5\nUser-agent: x\nDisallow: /a\n",
        "/a",
        DROP,
    ),
    _rules("longest-match-allows", "User-agent: *\nDisallow: /a\nAllow: /a/b\n", "/a/b/c", PASS),
    _rules("longest-match-disallows", "User-agent: *\nAllow: /a\nDisallow: /a/b\n", "/a/b/c", DROP),
    _rules("allow-wins-a-tie", "User-agent: *\nDisallow: /a\nAllow: /a\n", "/a", PASS),
    _rules("empty-disallow-opens", "User-agent: *\nDisallow:\n", "/a", PASS),
    _rules("disallow-all", "User-agent: *\nDisallow: /\n", "/a", DROP, ROBOTS_TXT),
    _rules("wildcard", "User-agent: *\nDisallow: /*.pdf\n", "/x/y.pdf?z", DROP),
    _rules("end-anchor-matches", "User-agent: *\nDisallow: /*.pdf$\n", "/y.pdf", DROP),
    _rules("end-anchor-does-not", "User-agent: *\nDisallow: /*.pdf$\n", "/y.pdf?z", PASS),
    _rules("query-is-matched", "User-agent: *\nDisallow: /s?q=\n", "/s?q=1", DROP),
    _rules("query-order-counts", "User-agent: *\nDisallow: /s?q=\n", "/s?a=1&q=1", PASS),
    _rules("case-of-path-counts", _R, "/PRIVATE/x", PASS),
    _rules("percent-encoded-unreserved", _R, "/%70rivate/x", DROP),
    _rules("percent-encoded-tilde-in-rule", "User-agent: *\nDisallow: /%7Ejoe/\n", "/~joe/", DROP),
    _rules(
        "hex-digits-in-another-case", "User-agent: *\nDisallow: /caf%c3%a9/\n", "/caf%C3%A9/x", DROP
    ),
    _rules("non-ascii-rule", "User-agent: *\nDisallow: /café/\n", "/caf%C3%A9/x", DROP),
    _rules("encoded-slash-is-not-a-slash", _R, "/private%2Fx", PASS),
    _rules("dot-segments", _R, "/public/../private/x", DROP, as_written=True),
    _rules("dot-segments-encoded", _R, "/public/%2e%2e/private/x", DROP, as_written=True),
    _rules("single-dot", _R, "/./private/x", DROP, as_written=True),
    _rules("double-slash", _R, "//private/x", DROP, as_written=True),
    _rules("path-parameters", _R, "/private;v=1/x", DROP),
    _rules("rules-before-any-group", "Disallow: /\nUser-agent: *\nDisallow: /a\n", "/b", PASS),
    _rules(
        "comments-and-blank-lines",
        "# c\n\nUser-agent: * # all\n\n# c\nDisallow: /a # b\n",
        "/a",
        DROP,
    ),
    _rules(
        "unknown-lines-do-not-disturb",
        "User-agent: *\nFoo: bar\nDisallow: /a\nSitemap: /s\nDisallow: /b\n",
        "/b",
        DROP,
    ),
    _rules("no-group-for-us", "User-agent: x\nDisallow: /\n", "/a", PASS),
    _rules("empty-file", "", "/a", PASS),
    Row(
        "robots-txt-itself",
        "User-agent: *\nDisallow: /\n",
        ROBOTS_TXT,
        PASS,
        "robots-txt",
        ROBOTS_TXT,
    ),
    _rules(
        "robots-txt-with-a-query-is-not-exempt",
        "User-agent: *\nDisallow: /\n",
        "/robots.txt?x",
        DROP,
        ROBOTS_TXT,
    ),
]

BODIES = [
    _rules("crlf", _R.replace("\n", "\r\n"), "/private/x", DROP),
    _rules("cr-only", _R.replace("\n", "\r"), "/private/x", DROP),
    Row("utf-8-bom", _bytes(b"\xef\xbb\xbf" + _R.encode()), "/private/x", DROP, "disallowed"),
    Row("utf-16-with-bom", _bytes(_R.encode("utf-16")), "/private/x", DROP, "disallowed"),
    Row(
        "gzip-though-not-asked-for",
        _bytes(gzip.compress(_R.encode()), ("Content-Encoding", "gzip")),
        "/private/x",
        DROP,
        "disallowed",
    ),
    Row(
        "html-with-200",
        _bytes(b"<!doctype html><title>home</title>", ("Content-Type", "text/html")),
        "/private/x",
        PASS,
        "allowed",
    ),
    Row("binary", _bytes(bytes(range(256)) * 40), "/private/x", PASS, "allowed"),
    Row(
        "rule-within-500-kib",
        _bytes(_R.encode() + b"#" * 99 + b"\n" + b"#\n" * 300_000),
        "/private/x",
        DROP,
        "disallowed",
    ),
    Row(
        "rule-beyond-500-kib", _bytes(b"#\n" * 300_000 + _R.encode()), "/private/x", PASS, "allowed"
    ),
]

ACCESS = [
    Row("204", 204, "/a", PASS, "allowed"),
    Row("400", 400, "/a", PASS, "unrestricted"),
    Row("401", 401, "/a", DROP, "restricted", ROBOTS_TXT),
    Row("403", 403, "/a", DROP, "restricted", ROBOTS_TXT),
    Row("404", 404, "/a", PASS, "unrestricted"),
    Row(
        "404-with-rules-in-its-body",
        Reply(status=404, body="User-agent: *\nDisallow: /"),
        "/a",
        PASS,
        "unrestricted",
    ),
    Row("410", 410, "/a", PASS, "unrestricted"),
    Row("429", 429, "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("451", 451, "/a", PASS, "unrestricted"),
    Row("500", 500, "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row(
        "500-with-an-open-body",
        Reply(status=500, body="User-agent: *\nAllow: /"),
        "/a",
        DEFER,
        "unreachable",
        ROBOTS_TXT,
    ),
    Row("502", 502, "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("503", 503, "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("304-nobody-asked-for", 304, "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("redirect-without-location", 302, "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("redirect-loop", _moved("/robots.txt"), "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("redirect-to-file", _moved("file:///etc/hostname"), "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row(
        "redirect-to-ftp", _moved("ftp://{host}/robots.txt"), "/a", DEFER, "unreachable", ROBOTS_TXT
    ),
    Row("redirect-to-rules", _moved("/r.txt", 302), "/private/x", DROP, "disallowed"),
    Row("redirect-to-404", _moved("/none", 308), "/a", PASS, "unrestricted"),
    Row("six-redirects", _moved("/hop0"), "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("five-redirects", _moved("/hop1"), "/private/x", DROP, "disallowed"),
    Row("connection-reset", Reply(reset=True), "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("no-answer-in-time", Reply(body=_R, delay=12), "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row("body-cut-short", Reply(body=_R, cut=True), "/a", DEFER, "unreachable", ROBOTS_TXT),
    Row(
        "not-http",
        Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        "/a",
        DEFER,
        "unreachable",
        ROBOTS_TXT,
    ),
]

ROWS = RULES + BODIES + ACCESS

#: The origins' pages besides /robots.txt: the targets of redirects.
PAGES = {
    "/r.txt": Reply(body=_R),
    "/none": Reply(status=404),
    **{f"/hop{n}": _moved(f"/hop{n + 1}") for n in range(5)},
    "/hop5": Reply(body=_R),
}
