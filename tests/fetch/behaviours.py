"""Behaviours of origins that are asked for /robots.txt: one table of the expected results for every
fetcher.

Each row has its own origin. `means` is the access for rfc9309, `failure` the reason why the file
could not be fetched, `lifetime` the seconds for which the copy is fresh; `target` is then
requested, and decided by `action` and `reason`.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from robots_guard.guard.fetch.content_coding import Undecodable, decoder
from robots_guard.testing import Received, Reply

PASS, DROP, DEFER = "pass", "drop", "defer"
DAY, FLOOR = 86_400.0, 300.0
PUBLIC = "127.9.0.0/16"  # counts as public in these runs
TEXT = b"User-agent: *\nDisallow: /private/\n"
CAP = 512_000


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """One row. `tls`: none, a `good` certificate, one by an `unknown` authority, or for an `other`
    name.

    `only`: the fetchers that the row applies to, if not all. `leads_to`: the robots.txt redirects
    to this target of another origin, whose robots.txt and pages are those of `other`, and which
    `may_see` these targets only.
    """

    name: str
    robots: object
    means: str
    action: str
    reason: str
    target: str = "/private/x"
    failure: tuple[str, ...] = ()
    status: int | None = None
    truncated: bool = False
    lifetime: float | None = None
    tls: str = ""
    public: bool = False
    pages: Mapping[str, object] = field(default_factory=dict)
    only: tuple[str, ...] = ("direct", "scrapy", "mitmproxy")
    leads_to: str = ""
    other: tuple[object, Mapping[str, object]] = (None, {})
    may_see: tuple[str, ...] = ()


def rules(name: str, robots: object, **more) -> Behaviour:
    """The file is read, and forbids /private/."""
    settled = {"means": "rules", "action": DROP, "reason": "disallowed", "status": 200} | more
    return Behaviour(name=name, robots=robots, **settled)


def no_rule(name: str, robots: object, **more) -> Behaviour:
    """The file is read, and forbids nothing."""
    settled = {"means": "rules", "action": PASS, "reason": "allowed", "status": 200} | more
    return Behaviour(name=name, robots=robots, **settled)


def no_file(name: str, robots: object, status: int, **more) -> Behaviour:
    return Behaviour(
        name=name,
        robots=robots,
        means="unrestricted",
        action=PASS,
        reason="unrestricted",
        status=status,
        **more,
    )


def kept_out(name: str, robots: object, status: int, **more) -> Behaviour:
    return Behaviour(
        name=name,
        robots=robots,
        means="restricted",
        action=DROP,
        reason="restricted",
        status=status,
        **more,
    )


def trouble(name: str, robots: object, *failure: str, **more) -> Behaviour:
    return Behaviour(
        name=name,
        robots=robots,
        means="unreachable",
        action=DEFER,
        reason="unreachable",
        failure=failure,
        **more,
    )


def text(*headers: tuple[str, str], body: bytes = TEXT, **more) -> Reply:
    return Reply(body=body, headers=headers, **more)


def raw(head: str, body: bytes = b"", **more) -> Reply:
    return Reply(raw=head.replace("\n", "\r\n").encode("latin-1") + body, **more)


def moved(location: str, status: int = 301):
    def reply(request: Received) -> Reply:
        return Reply(
            status=status, headers=(("Location", location.format(host=request.headers["host"])),)
        )

    return reply


def packed(coding: str, body: bytes) -> Reply:
    return text(("Content-Encoding", coding), body=body)


def cached(name: str, lifetime: float, *headers: tuple[str, str]) -> Behaviour:
    return rules(name, text(*headers), lifetime=lifetime)


def bomb_by(coding: str, compress: Callable[[bytes], bytes]) -> Behaviour:
    """A bomb that is made when it is asked for: every pytest worker imports this module."""

    @cache
    def reply() -> Reply:
        return packed(coding, compress(TEXT + b"\n" * 100_000_000))

    return rules(f"{coding}-bomb", lambda received: reply(), truncated=True)


def zstd_bomb() -> bytes:
    """TEXT and 100 MB of empty lines, built by hand (RFC 8878 section 3.1.1): a raw block, then
    blocks of one byte each."""

    def block(kind: int, size: int, data: bytes, last: bool = False) -> bytes:
        return (last | kind << 1 | size << 3).to_bytes(3, "little") + data

    repeated = [block(1, 128 * 1024, b"\n", last=n == 762) for n in range(763)]
    return b"\x28\xb5\x2f\xfd\x00\x38" + block(0, len(TEXT), TEXT) + b"".join(repeated)


def is_read(coding: str) -> bool:
    """Whether a decoder that can be bounded is installed."""
    try:
        decoder(coding, CAP).feed(b"\0")
    except Undecodable as error:
        return "needs" not in str(error)
    return True


def bomb(coding: str, data: bytes) -> Behaviour:
    name = f"{coding}-bomb"
    if is_read(coding):
        return rules(name, packed(coding, data), truncated=True)
    return trouble(name, packed(coding, data), "protocol")


def interim(status: str) -> Reply:
    """The whole file after an interim response."""
    return raw(f"HTTP/1.1 {status}\n\n{_OK}{_LENGTH}\n", TEXT)


def length(*values: str, body: bytes = TEXT) -> Reply:
    """An answer with these Content-Length fields."""
    return raw(_OK + "".join(f"Content-Length:{value}\n" for value in values) + "\n", body)


def field_line(line: bytes) -> Reply:
    """The whole file, with a line among its header fields."""
    return Reply(raw=b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 34\r\n\r\n" + TEXT)


def chunked(body: bytes, *fields: str, version: str = "HTTP/1.1") -> Reply:
    """An answer in chunks."""
    more = "".join(f"{each}\n" for each in fields)
    return raw(f"{version} 200 OK\nTransfer-Encoding: chunked\n{more}\n", body)


def misframed(name: str, robots: object, **more) -> Behaviour:
    """It is uncertain where the response ends."""
    return trouble(name, robots, "protocol", "reset", **more)


def located(*fields: str, status: int = 301) -> Reply:
    """A redirect with these Location fields, byte by byte."""
    return raw(
        f"HTTP/1.1 {status} Moved\n"
        + "".join(f"Location:{each}\n" for each in fields)
        + "Content-Length: 0\n\n"
    )


_MOVED_TO = {f"/{name}": text() for name in ("r.txt", "r%202", "r%092", "r2", "r%C3%A9", "r%5C2")}


def leads(name: str, *fields: str) -> Behaviour:
    """The redirect is followed to the rules."""
    return rules(name, located(*fields), pages=_MOVED_TO)


def leads_nowhere(name: str, *fields: str) -> Behaviour:
    """It is uncertain where the redirect leads."""
    failures = ("redirect-refused", "redirect-loop", "protocol", "reset", "status")
    return trouble(name, located(*fields), *failures, pages=_MOVED_TO)


_HOPS = {f"/hop{n}": moved(f"/hop{n + 1}") for n in range(5)} | {"/hop5": text()}
# The file of `bomb_by` by brotli.compress: the library is not installed everywhere; the row then
# tests how the bytes are handled.
BROTLI_BOMB = base64.b85decode(
    "%m4pB02~Q6PIPbN#g9<wt)TKkBtg>VsznDJa=`jsTSk#VwV26aj*}>4H@UIU{>Qxki}?Tl2fqYB92NoS-v9Cc{||l%fH*7w(7pfT|NkHS5&&^n0"
    "HAyS$N&F7_$2`1umC{!{*V9vfAC8H#9;w|?)@MC|Nr2Z0Eoi^0NwjP{{R2MF98sT1pvDDfBgUdgI@w54hsNu@BjG!{|CPWKpYkT=-&VF|Njqu34k"
    "~(0MNbv%aHIo{1O0hSOCC{T?Y"
)
_HINTS = raw("HTTP/1.1 103 Early Hints\n\nHTTP/1.1 200 OK\nContent-Length: 34\n\n", TEXT)
_OK = "HTTP/1.1 200 OK\n"
_LENGTH = "Content-Length: 34\n"
_CHUNKED = f"{_OK}Transfer-Encoding: chunked\n\n"
_CHUNKS = b"22\r\n" + TEXT + b"\r\n0\r\n\r\n"
_IN_TWO_CHUNKS = b"13\r\n%s\r\nf\r\n%s\r\n0\r\n\r\n" % (TEXT[:19], TEXT[19:])  # inside a rule
_ANY_WAY = ("protocol", "reset", "status", "timeout")
_CLOSED = text(body=b"User-agent: *\nDisallow: /\n")
_ODD = "/open.txt?[x]"
_DATE = ("Date", "Sun, 01 Nov 2026 12:00:00 GMT")

_OPEN = {"/open.txt": text(), "/go": moved("/private/x"), "/private/x": text(body=b"the secret")}


def led(
    settled: Callable[..., Behaviour],
    name: str,
    target: str,
    robots: object,
    *more: object,
    **others,
) -> Behaviour:
    """The robots.txt redirects to a target of another origin with this robots.txt."""
    return settled(name, None, *more, leads_to=target, other=(robots, _OPEN), **others)


STATUSES = [
    rules("200", text()),
    rules("203", text(status=203), status=203),
    trouble("206-unasked", text(status=206), "status", status=206),
    trouble(
        "206-of-a-part", text(("Content-Range", "bytes 0-33/900"), status=206), "status", status=206
    ),
    trouble(
        "206-of-the-whole",
        text(("Content-Range", "bytes 0-33/34"), status=206),
        "status",
        status=206,
    ),
    no_rule("205", Reply(status=205), status=205),
    rules("205-with-a-body", text(status=205), status=205),
    trouble("226-unasked", text(("IM", "feed"), status=226), "status", status=226),
    no_rule("204", Reply(status=204, headers=(("Content-Length", "0"),)), status=204),
    no_file("400", Reply(status=400), 400),
    no_file("402", Reply(status=402), 402),
    no_file("404", Reply(status=404), 404),
    no_file("404-with-rules", text(status=404), 404),
    no_file("410", Reply(status=410), 410),
    no_file("451", Reply(status=451), 451),
    kept_out("401", text(("WWW-Authenticate", "Basic"), status=401), 401),
    kept_out("403", text(status=403), 403),
    trouble("407-is-a-proxy's", text(status=407), "status", status=407),
    trouble("429", Reply(status=429), "status", status=429),
    trouble("500", Reply(status=500), "status", status=500),
    trouble(
        "503-with-retry-after",
        Reply(status=503, headers=(("Retry-After", "120"),)),
        "status",
        status=503,
    ),
    trouble("521", Reply(status=521), "status", status=521),
    trouble(
        "304-nobody-asked-for",
        Reply(status=304, headers=(("Content-Length", "0"),)),
        "status",
        status=304,
    ),
    trouble("999", raw("HTTP/1.1 999 Denied\nContent-Length: 0\n\n"), "status", "protocol"),
    rules("103-before-the-answer", _HINTS),
    rules("100-before-the-answer", interim("100 Continue")),
    rules("102-before-the-answer", interim("102 Processing")),
    rules("199-before-the-answer", interim("199 What")),
    rules(
        "30-times-103-before-the-answer",
        raw("HTTP/1.1 103 Early Hints\n\n" * 30 + _OK + _LENGTH + "\n", TEXT),
    ),
    misframed(
        "103-and-close-before-the-answer",
        raw(f"HTTP/1.1 103 Hints\nConnection: close\n\n{_OK}{_LENGTH}\n", TEXT),
    ),
    misframed(
        "100-in-http-1.0-before-the-answer", raw(f"HTTP/1.0 100 Continue\n\n{_OK}{_LENGTH}\n", TEXT)
    ),
    trouble("101-unasked", interim("101 Switching Protocols"), "protocol", "reset", "status"),
    trouble(
        "101-and-nothing-more", raw("HTTP/1.1 101 Switching Protocols\nUpgrade: x\n\n"), *_ANY_WAY
    ),
    trouble("100-and-nothing-more", raw("HTTP/1.1 100 Continue\n\n"), "protocol", "reset"),
]

REDIRECTS = [
    rules("redirect-relative", moved("/r.txt", 302), pages={"/r.txt": text()}),
    rules("redirect-absolute", moved("http://{host}/r.txt", 308), pages={"/r.txt": text()}),
    rules("redirect-with-fragment", moved("/r.txt#top", 307), pages={"/r.txt": text()}),
    rules("five-redirects", moved("/hop1"), pages=_HOPS),
    no_file("redirect-to-404", moved("/none"), 404, pages={"/none": Reply(status=404)}),
    kept_out("redirect-to-403", moved("/none"), 403, pages={"/none": Reply(status=403)}),
    trouble(
        "redirect-to-503", moved("/none"), "status", status=503, pages={"/none": Reply(status=503)}
    ),
    trouble("six-redirects", moved("/hop0"), "redirect-limit", pages=_HOPS),
    trouble("redirect-to-itself", moved("/robots.txt"), "redirect-loop"),
    trouble(
        "redirects-in-a-circle",
        moved("/a.txt"),
        "redirect-loop",
        pages={"/a.txt": moved("/robots.txt")},
    ),
    trouble("redirect-to-file", moved("file:///etc/passwd"), "redirect-refused"),
    trouble("redirect-to-ftp", moved("ftp://{host}/robots.txt"), "redirect-refused"),
    trouble("redirect-to-data", moved("data:text/plain,User-agent:%20*"), "redirect-refused"),
    trouble(
        "redirect-to-no-host", moved("http:///robots.txt"), "redirect-refused", "redirect-loop"
    ),
    trouble("redirect-to-redis", moved("http://127.0.0.1:6379/"), "redirect-refused"),
    trouble("redirect-without-location", Reply(status=302), "status", status=302),
    trouble("redirect-inside", moved("http://127.1.1.1/robots.txt"), "refused", public=True),
    trouble(
        "redirect-to-metadata", moved("http://169.254.169.254/robots.txt"), "refused", public=True
    ),
    trouble(
        "redirect-to-metadata-itself",
        moved("http://169.254.169.254/"),
        "redirect-disallowed",
        public=True,
    ),
    rules("redirect-within-the-public", moved("/r.txt"), pages={"/r.txt": text()}, public=True),
    led(rules, "redirect-to-anothers-file", "/robots.txt", text()),
    led(rules, "redirect-to-anothers-page", "/open.txt", text(), may_see=("/open.txt",)),
    led(
        rules,
        "redirect-to-a-page-without-rules",
        "/open.txt",
        Reply(status=404),
        may_see=("/open.txt",),
    ),
    led(trouble, "redirect-to-anothers-private-page", "/private/x", text(), "redirect-disallowed"),
    led(
        trouble,
        "redirect-to-a-private-page-respelt",
        "/open/%2e%2e/private/x",
        text(),
        "redirect-disallowed",
    ),
    led(
        trouble,
        "redirect-to-anothers-file-with-a-query",
        "/robots.txt?x",
        _CLOSED,
        "redirect-disallowed",
    ),
    led(trouble, "redirect-to-a-closed-site", "/open.txt", text(status=403), "redirect-disallowed"),
    led(
        trouble,
        "redirect-to-a-site-in-trouble",
        "/open.txt",
        Reply(status=503),
        "redirect-disallowed",
    ),
    led(
        trouble,
        "redirect-to-a-redirecting-site",
        "/open.txt",
        moved("http://127.0.0.1:81/x"),
        "redirect-disallowed",
    ),
    led(
        trouble,
        "redirect-through-an-open-redirector",
        "/go",
        text(),
        "redirect-disallowed",
        may_see=("/go",),
    ),
    led(rules, "redirect-to-odd", _ODD, text(), may_see=(_ODD,), only=("direct", "mitmproxy")),
    led(trouble, "redirect-to-what-scrapy-respells", _ODD, text(), "refused", only=("scrapy",)),
    led(
        trouble,
        "redirect-to-a-page-inside",
        "/open.txt",
        text(),
        "redirect-disallowed",
        public=True,
    ),
    no_rule(
        "meta-refresh-is-no-redirect",
        text(
            ("Content-Type", "text/html"),
            body=b'<html><meta http-equiv="refresh" content="0;url=/r.txt">',
        ),
        pages={"/r.txt": text()},
    ),
]

BODIES = [
    no_rule("empty", text(body=b"")),
    rules("utf-8-bom", text(body=b"\xef\xbb\xbf" + TEXT)),
    rules("utf-16-le", text(body=b"\xff\xfe" + TEXT.decode().encode("utf-16-le"))),
    rules("utf-16-be", text(body=b"\xfe\xff" + TEXT.decode().encode("utf-16-be"))),
    no_rule(
        "html",
        text(("Content-Type", "text/html"), body=b"<!doctype html><title>Welcome</title><p>Hello"),
    ),
    no_rule(
        "html-with-rules-of-no-group",
        text(("Content-Type", "text/html"), body=b"<pre>\nDisallow: /\n</pre>"),
    ),
    no_rule("binary", text(body=bytes(range(256)) * 40)),
    rules("cr-only", text(body=TEXT.replace(b"\n", b"\r"))),
    rules("no-content-type", raw("HTTP/1.1 200 OK\nContent-Length: 34\n\n", TEXT)),
    rules("rule-within-the-cap", text(body=TEXT + b"#\n" * 300_000), truncated=True),
    no_rule("rule-beyond-the-cap", text(body=b"#\n" * 300_000 + TEXT), truncated=True),
    rules(
        "one-line-of-a-megabyte", text(body=TEXT + b"Allow: /" + b"x" * 1_000_000), truncated=True
    ),
    rules("endless-body", text(endless=b"#" * 65_535 + b"\n"), truncated=True),
]

CODINGS = [
    rules("gzip", packed("gzip", gzip.compress(TEXT))),
    rules("x-gzip", packed("x-gzip", gzip.compress(TEXT))),
    rules("deflate", packed("deflate", zlib.compress(TEXT))),
    rules("deflate-without-its-frame", packed("deflate", zlib.compress(TEXT)[2:-4])),
    rules("gzip-in-two-members", packed("gzip", gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]))),
    bomb_by("gzip", gzip.compress),
    bomb_by("deflate", zlib.compress),
    bomb("br", BROTLI_BOMB),
    bomb("zstd", zstd_bomb()),
    trouble("gzip-in-gzip", packed("gzip, gzip", gzip.compress(gzip.compress(TEXT))), "protocol"),
    trouble("no-gzip", packed("gzip", TEXT), "protocol"),
    trouble("gzip-cut-short", packed("gzip", gzip.compress(TEXT)[:-9]), "protocol"),
    trouble("unknown-coding", packed("compress", TEXT), "protocol"),
    trouble("no-brotli", packed("br", TEXT), "protocol"),
    trouble("no-zstd", packed("zstd", TEXT), "protocol"),
    no_file(
        "coding-of-a-404", Reply(status=404, headers=(("Content-Encoding", "br"),), body=b"x"), 404
    ),
]

WIRE = [
    trouble("silent", Reply(hang=True), "timeout"),
    trouble("dripping-body", text(body=TEXT * 10, drip=0.1), "timeout"),
    trouble("dripping-head", raw("HTTP/1.1 200 OK\n", endless=b"X: y\r\n", drip=0.1), "timeout"),
    trouble(
        "endless-head",
        raw("HTTP/1.1 200 OK\n", endless=b"X: " + b"y" * 1000 + b"\r\n"),
        "protocol",
        "timeout",
    ),
    trouble(
        "one-endless-field",
        raw("HTTP/1.1 200 OK\nX: ", endless=b"y" * 1000),
        "protocol",
        "timeout",
        "reset",
    ),
    trouble("300-fields", text(*((f"X-{n}", "y") for n in range(300))), "protocol"),
    trouble("100-kib-of-fields", text(*((f"X-{n}", "y" * 1000) for n in range(100))), "protocol"),
    rules("150-fields", text(*((f"X-{n}", "y" * 100) for n in range(150)))),
    trouble("closed-without-a-word", Reply(reset=True), "reset"),
    trouble("cut-short", text(cut=True), "protocol", "reset"),
    trouble("chunks-cut-short", raw(_CHUNKED, b"22\r\nUser"), "protocol", "reset"),
    trouble("no-chunks", raw(_CHUNKED, b"zz\r\n"), "protocol", "reset"),
    rules("chunks", raw(_CHUNKED, b"22\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    rules("http-1.0-until-closed", raw("HTTP/1.0 200 OK\n\n", TEXT)),
    trouble("http-0.9", Reply(raw=TEXT), "protocol", "reset"),
    trouble("ssh", Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "protocol", "reset"),
    trouble(
        "two-lengths",
        raw("HTTP/1.1 200 OK\nContent-Length: 34\nContent-Length: 3\n\n", TEXT),
        "protocol",
        "reset",
    ),
    trouble(
        "negative-length",
        raw("HTTP/1.1 200 OK\nContent-Length: -34\n\n", TEXT),
        "protocol",
        "reset",
    ),
]

FRAMING = [
    misframed("shorter-than-its-length", length(" 35")),
    misframed("longer-than-its-length", length(" 14")),
    misframed("bytes-behind-an-empty-body", length(" 0")),
    misframed("bytes-behind-a-204", raw("HTTP/1.1 204 No Content\n\n", TEXT)),
    misframed("bytes-behind-the-chunks", chunked(_CHUNKS + TEXT)),
    misframed("bytes-behind-no-chunk", chunked(b"0\r\n\r\n" + TEXT)),
    misframed(
        "an-answer-behind-the-answer", raw(f"{_OK}Content-Length: 0\n\n{_OK}{_LENGTH}\n", TEXT)
    ),
    misframed(
        "404-shorter-than-its-length", raw("HTTP/1.1 404 Not Found\nContent-Length: 35\n\n", TEXT)
    ),
    misframed(
        "404-longer-than-its-length", raw("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n", TEXT)
    ),
    misframed(
        "404-with-broken-chunks", raw(_CHUNKED.replace("200 OK", "404 Not Found"), b"zz\r\n")
    ),
    misframed(
        "redirect-longer-than-its-length",
        raw("HTTP/1.1 301 Moved\nLocation: /r.txt\nContent-Length: 0\n\n", TEXT),
    ),
    misframed("length-plus", length(" +34")),
    misframed("length-minus-zero", length(" -0")),
    misframed("length-with-spaces-inside", length(" 3 4")),
    rules("length-with-spaces-around", length("  34 ")),
    misframed("length-before-a-tab", length(" 34\t")),
    misframed("length-behind-a-tab", length("\t34")),
    misframed("length-of-nothing", length(" ")),
    misframed("length-of-words", length(" many")),
    misframed("length-in-hex", length(" 0x22")),
    misframed("length-with-an-underscore", length(" 3_4")),
    misframed("length-in-other-digits", length(" \xb3\xb4")),
    misframed("length-with-zeros-in-front", length(" 0034")),
    misframed("length-of-16-digits", length(" 0000000000000034")),
    misframed("length-of-30-digits", length(" 340000000000000000000000000000")),
    misframed("length-34.0", length(" 34.0")),
    misframed("two-equal-lengths", length(" 34", " 34")),
    misframed("two-equal-lengths-in-a-list", length(" 34, 34")),
    misframed("two-lengths-in-a-list", length(" 14, 34")),
    misframed("length-and-chunks", chunked(_CHUNKS, "Content-Length: 34")),
    misframed(
        "length-of-the-chunks-and-chunks", chunked(_CHUNKS, f"Content-Length: {len(_CHUNKS)}")
    ),
    misframed("chunks-twice-said", chunked(_CHUNKS, "Transfer-Encoding: chunked")),
    misframed("chunks-twice", raw(f"{_OK}Transfer-Encoding: chunked, chunked\n\n", _CHUNKS)),
    misframed("unknown-transfer-coding", raw(f"{_OK}Transfer-Encoding: x\n{_LENGTH}\n", TEXT)),
    misframed("identity-transfer-coding", raw(f"{_OK}Transfer-Encoding: identity\n\n", TEXT)),
    *(
        misframed(
            f"{where}-chunked",
            raw(f"{_OK}Transfer-Encoding:{value}\nConnection: close\n\n", _IN_TWO_CHUNKS),
        )
        for where, value in {
            "tab-behind": " chunked\t",
            "space-and-tab-behind": " chunked \t",
            "tab-before": "\tchunked",
            "fold-behind": " chunked\n ",
            "fold-before": "\n chunked",
        }.items()
    ),
    rules("spaces-around-chunked", raw(f"{_OK}Transfer-Encoding:  chunked  \n\n", _IN_TWO_CHUNKS)),
    misframed(
        "vertical-tab-before-chunked", raw(f"{_OK}Transfer-Encoding: \x0bchunked\n\n", _CHUNKS)
    ),
    misframed("chunks-in-http-1.0", chunked(_CHUNKS, version="HTTP/1.0")),
    rules("chunked-in-capitals", raw(f"{_OK}Transfer-Encoding: Chunked\n\n", _CHUNKS)),
    rules("chunk-extension", chunked(b"22;a=b\r\n" + TEXT + b"\r\n0;c\r\n\r\n")),
    rules("chunk-size-with-zeros", chunked(b"0022\r\n" + TEXT + b"\r\n00\r\n\r\n")),
    rules("chunk-extensions", chunked(b'22;a;b=c;d="e f"\r\n' + TEXT + b'\r\n0;g="h"\r\n\r\n')),
    misframed("chunk-size-and-a-space", chunked(b"22 \r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-and-a-tab", chunked(b"22\t;a\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("last-chunk-size-and-a-space", chunked(b"22\r\n" + TEXT + b"\r\n0 \r\n\r\n")),
    misframed(
        "chunk-extension-of-a-control-character", chunked(b"22;\1\r\n" + TEXT + b"\r\n0\r\n\r\n")
    ),
    misframed("chunk-extension-of-words", chunked(b"22;a b\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-extension-of-bytes", chunked(b"22;\xff\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-negative", chunked(b"-22\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-plus", chunked(b"+22\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-0x", chunked(b"0x22\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-underscore", chunked(b"2_2\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-empty", chunked(b"\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-with-a-space-before", chunked(b" 22\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-size-of-20-digits", chunked(b"f" * 20 + b"\r\n" + TEXT)),
    misframed("chunk-shorter-than-its-size", chunked(b"24\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-longer-than-its-size", chunked(b"e\r\n" + TEXT + b"\r\n0\r\n\r\n")),
    misframed("chunk-with-another-end", chunked(b"22\r\n" + TEXT + b"xx0\r\n\r\n")),
    misframed("chunk-lines-that-end-in-lf", chunked(b"22\n" + TEXT + b"\n0\n\n")),
    misframed("no-last-chunk", chunked(b"22\r\n" + TEXT + b"\r\n")),
    misframed("no-end-of-the-last-chunk", chunked(b"22\r\n" + TEXT + b"\r\n0\r\n")),
    rules("chunks-with-a-trailer", chunked(_CHUNKS[:-2] + b"X-Sum: 1\r\n\r\n")),
    rules("chunks-with-a-folded-trailer", chunked(_CHUNKS[:-2] + b"X-Sum: 1\r\n 2\r\n\r\n")),
    rules(
        "chunks-with-a-coding-in-a-trailer",
        chunked(_CHUNKS[:-2] + b"Content-Encoding: gzip\r\n\r\n"),
    ),
    misframed(
        "chunks-with-a-length-in-a-trailer", chunked(_CHUNKS[:-2] + b"Content-Length: 34\r\n\r\n")
    ),
    misframed(
        "chunks-with-chunks-in-a-trailer",
        chunked(_CHUNKS[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"),
    ),
    misframed(
        "chunks-with-another-coding-in-a-trailer",
        chunked(_CHUNKS[:-2] + b"Transfer-Encoding: x\r\n\r\n"),
    ),
    misframed("chunks-with-a-trailer-that-is-none", chunked(_CHUNKS[:-2] + b"no colon\r\n\r\n")),
    rules("http-1.1-until-closed", raw(f"{_OK}\n", TEXT)),
    rules("http-1.0-with-a-length", raw(f"HTTP/1.0 200 OK\n{_LENGTH}\n", TEXT)),
]

_PART = TEXT[:14] + b"Disallow: /a\n"  # "Disallow: /private/" has yet to come
_UNTIL_CLOSED = {"http-1.0": "HTTP/1.0 200 OK\n\n", "http-1.1": f"{_OK}\n"}

ENDS = [
    *(
        misframed(f"{name}-broken-off", raw(head, _PART, broken=True))
        for name, head in _UNTIL_CLOSED.items()
    ),
    *(
        misframed(f"{name}-broken-off-in-tls", raw(head, _PART, broken=True), tls="good")
        for name, head in _UNTIL_CLOSED.items()
    ),
    *(
        misframed(f"{name}-without-close-notify", raw(head, _PART, unannounced=True), tls="good")
        for name, head in _UNTIL_CLOSED.items()
    ),
    *(
        rules(f"{name}-until-closed-in-tls", raw(head, TEXT), tls="good")
        for name, head in _UNTIL_CLOSED.items()
    ),
    misframed("404-broken-off", raw("HTTP/1.1 404 Not Found\n\n", b"no", broken=True)),
    misframed("redirect-broken-off", raw("HTTP/1.1 301 Moved\nLocation: /r.txt\n\n", broken=True)),
    misframed(
        "404-without-close-notify",
        raw("HTTP/1.1 404 Not Found\n\n", b"no", unannounced=True),
        tls="good",
    ),
    rules("length-and-a-reset", text(broken=True)),
    rules("chunks-and-a-reset", raw(_CHUNKED, _CHUNKS, broken=True)),
    rules("length-without-close-notify", text(unannounced=True), tls="good"),
    rules("chunks-without-close-notify", raw(_CHUNKED, _CHUNKS, unannounced=True), tls="good"),
]

HEAD = [
    misframed("http-0.9-with-a-tag", Reply(raw=b"<html>HTTP/1.1 200 OK\r\n\r\n" + TEXT)),
    misframed("http-2.0", raw(f"HTTP/2.0 200 OK\n{_LENGTH}\n", TEXT)),
    misframed("http-1.2", raw(f"HTTP/1.2 200 OK\n{_LENGTH}\n", TEXT)),
    misframed("http-1.10", raw(f"HTTP/1.10 200 OK\n{_LENGTH}\n", TEXT)),
    misframed("http-in-small-letters", raw(f"http/1.1 200 OK\n{_LENGTH}\n", TEXT)),
    misframed("status-of-two-digits", raw(f"HTTP/1.1 20 OK\n{_LENGTH}\n", TEXT)),
    misframed("status-of-four-digits", raw(f"HTTP/1.1 0200 OK\n{_LENGTH}\n", TEXT)),
    misframed("status-plus", raw(f"HTTP/1.1 +404 OK\n{_LENGTH}\n", TEXT)),
    trouble("status-000", raw(f"HTTP/1.1 000 What\n{_LENGTH}\n", TEXT), *_ANY_WAY),
    rules("no-reason-phrase", raw(f"HTTP/1.1 200\n{_LENGTH}\n", TEXT)),
    rules("reason-phrase-in-latin-1", raw(f"HTTP/1.1 200 d\xe9j\xe0\n{_LENGTH}\n", TEXT)),
    misframed("two-spaces-before-the-status", raw(f"HTTP/1.1  200 OK\n{_LENGTH}\n", TEXT)),
    misframed("an-empty-line-first", raw(f"\n{_OK}{_LENGTH}\n", TEXT)),
    rules("folded-field", field_line(b"X-Long: a\r\n b")),
    *(
        misframed(f"folded-{name.lower()}", field_line(f"{name}: {value}\r\n ".encode()))
        for name, value in {
            "Cache-Control": "max-age=3600",
            "Connection": "close",
            "Content-Encoding": "identity",
            "Content-Type": "text/plain",
            "ETag": '"1"',
            "Expires": "0",
        }.items()
    ),
    misframed(
        "folded-retry-after", raw("HTTP/1.1 503 Busy\nRetry-After:\n 77\nContent-Length: 0\n\n")
    ),
    misframed("control-character-in-a-coding", field_line(b"Content-Encoding: \x0bidentity")),
    misframed("folded-length", raw(f"{_OK}Content-Length: 3\n 4\n\n", TEXT)),
    misframed("field-without-a-colon", field_line(b"X-None")),
    misframed("field-without-a-name", field_line(b": x")),
    misframed("space-before-the-colon", field_line(b"Content-Length : 14")),
    misframed("space-in-a-name", field_line(b"X Y: z")),
    misframed("space-before-the-first-field", field_line(b" X: y")),
    misframed("nul-in-a-field", field_line(b"X: a\0b")),
    misframed("cr-in-a-field", field_line(b"X: a\rContent-Length: 14")),
    rules("control-character-in-a-field", field_line(b"X: a\x01b")),
    rules("fields-that-end-in-lf", Reply(raw=b"HTTP/1.1 200 OK\nContent-Length: 34\n\n" + TEXT)),
    misframed(
        "fields-that-end-in-cr", Reply(raw=b"HTTP/1.1 200 OK\rContent-Length: 34\r\r" + TEXT)
    ),
    rules(
        "one-line-that-ends-in-lf",
        Reply(raw=b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 34\r\n\r\n" + TEXT),
    ),
    rules("field-of-bytes", field_line(b"X: \xff\xfe")),
    rules("empty-field", field_line(b"X:")),
    rules("field-of-8-kib", field_line(b"X: " + b"y" * 8000)),
    misframed("field-of-40-kib", field_line(b"X: " + b"y" * 40 * 1024)),
    rules("200-fields", text(*((f"X-{n}", "y") for n in range(198)))),
    trouble("201-fields", text(*((f"X-{n}", "y") for n in range(199))), "protocol"),
]


LOCATIONS = [
    leads("location-with-a-space", " /r 2"),
    leads_nowhere("location-with-a-tab", " /r\t2"),
    leads("location-in-spaces", "  /r.txt  "),
    leads("location-in-tabs", "\t/r.txt\t"),
    leads_nowhere("location-behind-a-fold", "\n /r.txt"),
    leads_nowhere("location-before-a-fold", " /r.txt\n "),
    leads_nowhere("location-in-two-lines", " /r\n .txt"),
    leads_nowhere("location-with-a-vertical-tab", " /r.txt\x0b"),
    leads_nowhere("location-behind-a-form-feed", " \x0c/r.txt"),
    leads_nowhere("location-with-del", " /r.txt\x7f"),
    leads("location-in-utf-8", " /r\xc3\xa9"),
    leads("location-in-latin-1", " /r\xe9"),
    leads_nowhere("location-with-a-backslash", " /r\\2"),
    leads("location-escaped", " /r%202"),
    leads("location-with-a-fragment", " /r.txt#a"),
    leads_nowhere("location-that-is-a-fragment", " #top"),
    leads_nowhere("location-empty", " "),
    leads("location-twice-equal", " /r.txt", " /r.txt"),
    leads_nowhere("location-twice", " /r.txt", " /r2"),
    leads_nowhere("location-with-a-nul", " /r.txt\0"),
    leads("location-without-a-slash", " r.txt"),
    leads("location-with-dots", " ./a/../r.txt"),
    leads("location-above-the-root", " ../../r.txt"),
    leads("location-without-a-host", " http:///r.txt"),
    leads_nowhere("location-with-a-scheme-alone", " http:"),
]

TLS = [
    rules("tls", text(), tls="good"),
    trouble("tls-unknown-authority", text(), "tls", tls="unknown"),
    trouble("tls-other-name", text(), "tls", tls="other"),
    trouble(
        "tls-that-is-none",
        raw("HTTP/1.1 400 Bad Request\nContent-Length: 0\n\n"),
        "tls",
        "timeout",
        tls="none",
    ),
]

CACHING = [
    cached("nothing-said", DAY),
    cached("max-age", 3600.0, ("Cache-Control", "max-age=3600")),
    cached("max-age-and-age", 3000.0, ("Cache-Control", "public, max-age=3600"), ("Age", "600")),
    cached("max-age-in-quotes", 3600.0, ("Cache-Control", 'max-age="3600"')),
    cached("max-age-below-the-floor", FLOOR, ("Cache-Control", "max-age=5")),
    cached("max-age-of-a-trillion", DAY, ("Cache-Control", "max-age=1000000000000")),
    cached("max-age-negative", FLOOR, ("Cache-Control", "max-age=-1")),
    cached("max-age-of-words", FLOOR, ("Cache-Control", "max-age=soon")),
    cached("age-beyond-max-age", FLOOR, ("Cache-Control", "max-age=3600"), ("Age", "7200")),
    cached("no-cache", FLOOR, ("Cache-Control", "no-cache, max-age=3600")),
    cached("no-store", FLOOR, ("Cache-Control", "max-age=3600"), ("Cache-Control", "no-store")),
    cached("expires", 7200.0, _DATE, ("Expires", "Sun, 01 Nov 2026 14:00:00 GMT")),
    cached("expires-in-the-past", FLOOR, _DATE, ("Expires", "Sun, 01 Nov 2026 11:00:00 GMT")),
    cached("expires-never", DAY, _DATE, ("Expires", "Fri, 01 Nov 2069 12:00:00 GMT")),
    cached("expires-0", FLOOR, _DATE, ("Expires", "0")),
    cached(
        "max-age-beats-expires", 3600.0, _DATE, ("Cache-Control", "max-age=3600"), ("Expires", "0")
    ),
]

ROWS = (
    STATUSES
    + REDIRECTS
    + BODIES
    + CODINGS
    + WIRE
    + FRAMING
    + ENDS
    + HEAD
    + LOCATIONS
    + TLS
    + CACHING
)
