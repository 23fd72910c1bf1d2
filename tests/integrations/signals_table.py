"""The table for "two integrations, one action": what a site states, and what becomes of its page.

The pages of a group are asked for with the same settings. A page whose robots.txt, tdmrep.json or
override is its own has a site of its own; the others of its group share one.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from robots_guard.testing import Reply

OPEN = "User-agent: *\nAllow: /\n"
HTML = "text/html; charset=utf-8"
LIMIT = 65_536  # bytes of a page that the proxy reads
ROBOTS_TXT = "/robots.txt"
TDMREP = "/.well-known/tdmrep.json"


class Refused(NamedTuple):
    """A refusal, by a signal at a place; or by neither, if the operator takes silence for one."""

    signal: str = ""
    place: str = ""
    reason: str = "usage-reserved"

    @property
    def is_request_refused(self) -> bool:
        """Whether the request is refused before it is made."""
        return self.place in ("robots.txt", "tdmrep.json")


DISALLOWED = Refused(place="robots.txt", reason="disallowed")
SILENCE = Refused()
PAYMENT = Refused(reason="payment-required")
PASSES = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page, and what both integrations do with it.

    `in_proxy` is what the proxy does where the documents say that it differs: it leaves a demand
    for payment to its client, and reads neither the rest of a long page nor one with two
    codings. `override` has the settings of an override for the page's site. `is_cut`: the proxy
    records that it has not read all of the page, of which Scrapy knows nothing.
    """

    name: str
    reply: Reply
    expected: Refused | None = PASSES
    in_proxy: Refused | None = PASSES
    method: str = "GET"
    robots: str = OPEN
    tdmrep: str = ""
    override: str = ""
    is_cut: bool = False

    @property
    def path(self) -> str:
        """The path of its URL."""
        return f"/{self.name}"

    @property
    def has_own_site(self) -> bool:
        """Whether its site has no other page."""
        return self.robots != OPEN or bool(self.tdmrep or self.override)

    @property
    def files(self) -> dict[str, Reply]:
        """The files of its site besides the page, by path."""
        reservations = Reply(body=self.tdmrep) if self.tdmrep else Reply(status=404)
        return {ROBOTS_TXT: Reply(body=self.robots), TDMREP: reservations}


@dataclass(frozen=True)
class Group:
    """Settings, and the pages that are asked for with them."""

    name: str
    settings: dict[str, str]
    pages: list[Page] = field(default_factory=list)


# -- replies ---------------------------------------------------------------------------------------


def html(*metas: str, body: str = "", head: str = "", status: int = 200, **fields: str) -> Reply:
    """A page with METAs, each as `name=content`."""
    tags = "".join(
        f'<meta name="{name}" content="{content}">'
        for name, _, content in (meta.partition("=") for meta in metas)
    )
    text = f"<!doctype html><html><head>{tags}{head}</head><body>{body}</body></html>"
    return raw(text.encode(), status=status, **fields)


def raw(body: bytes, content_type: str = HTML, status: int = 200, **fields: str) -> Reply:
    """A body as it is, with header fields, whose names have `_` for `-`."""
    named = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    return Reply(status=status, headers=(("Content-Type", content_type), *named), body=body)


def tagged(*lines: str, status: int = 200, name: str = "X-Robots-Tag") -> Reply:
    """A page with several lines of one header field."""
    fields = tuple((name, line) for line in lines)
    return Reply(status=status, headers=(("Content-Type", HTML), *fields), body=html().body)


PLAIN = html()
NOAI = '<meta name="robots" content="noai">'
TWICE = gzip.compress(gzip.compress(NOAI.encode()))
CUT = gzip.compress(NOAI.encode() + bytes(range(256)) * 4)[:-20]
AND_MORE = gzip.compress(NOAI.encode()) + b"more"

# -- rows ------------------------------------------------------------------------------------------


def passes(name: str, reply: Reply = PLAIN, **more) -> Page:
    """A page that both integrations hand on."""
    return Page(name=name, reply=reply, **more)


def refused(name: str, by: Refused, reply: Reply = PLAIN, **more) -> Page:
    """A page that both integrations refuse."""
    return Page(name=name, reply=reply, expected=by, in_proxy=by, **more)


def differs(name: str, in_scrapy: Refused, reply: Reply) -> Page:
    """A page that Scrapy refuses and the proxy hands on, as documented."""
    return Page(name=name, reply=reply, expected=in_scrapy, in_proxy=PASSES)


HEADER = Refused("x-robots-tag", "header")
META = Refused("meta-robots", "page")
USAGE = Refused("content-usage", "header")
USAGE_LINE = Refused("content-usage", "robots.txt")
SIGNAL = Refused("content-signal", "header")
SIGNAL_LINE = Refused("content-signal", "robots.txt")
TDM_FILE = Refused("tdm-reservation", "tdmrep.json")
TDM = Refused("tdm-reservation", "header")
TDM_PAGE = Refused("tdm-reservation", "page")

TRAIN = [
    passes("plain"),
    # header fields
    refused("noai", HEADER, tagged("noai")),
    refused("noai-in-capitals", HEADER, tagged("NOAI")),
    refused("noml-in-a-list", HEADER, tagged("nofollow,, noml ,max-snippet:3")),
    refused("noarchive", HEADER, tagged("noarchive")),
    refused("a-permission-lifts-nothing", HEADER, tagged("all, index, AllowAITraining, noai")),
    refused("a-rule-of-training", HEADER, tagged("DisallowAITraining")),
    passes("another-use", tagged("noindex, nofollow")),
    passes("another-agent", tagged("googlebot: noai, noarchive")),
    passes("a-longer-agent", tagged("mybot-news: noai")),
    refused("own-agent", HEADER, tagged("MyBot/2.1: noai")),
    refused("own-agent-second", HEADER, tagged("googlebot: noindex, mybot: noai")),
    passes("another-agent-second", tagged("mybot: noindex, googlebot: noai")),
    refused("own-line", HEADER, tagged("googlebot: noindex", "noai")),
    passes("another-agents-line", tagged("noindex", "googlebot: all, noai")),
    refused("after-a-date", HEADER, tagged("unavailable_after: 1 Jan 2090 10:00:00 GMT, noai")),
    passes("an-unknown-word", tagged("noaim, xnoai")),
    passes("images-only", tagged("noimageai")),
    refused("robots-tag", Refused("robots-tag", "header"), tagged("*;noai", name="Robots-Tag")),
    refused(
        "robots-tag-of-agent",
        Refused("robots-tag", "header"),
        tagged("*;noindex, mybot;noml", name="Robots-Tag"),
    ),
    passes("robots-tag-off", tagged("*;noai=?0", name="Robots-Tag")),
    refused("usage", USAGE, html(Content_Usage="train-ai=n")),
    passes("usage-permits", html(Content_Usage="train-ai=y")),
    refused("usage-malformed", USAGE, html(Content_Usage="train-ai=n, =;")),
    refused("usage-lines", USAGE, tagged("train-ai=y", "train-ai=n", name="Content-Usage")),
    passes("usage-of-search", html(Content_Usage="search=n")),
    refused("signal", SIGNAL, html(Content_Signal="search=yes, ai-train=no")),
    passes("signal-permits", html(Content_Signal="search=no, ai-train=yes")),
    refused("signal-lower-use", SIGNAL, html(Content_Signal="ai-train=yes, use=reference")),
    refused("tdm", TDM, html(tdm_reservation="1")),
    passes("tdm-not-reserved", html(tdm_reservation="0")),
    refused("one-of-two-signals", USAGE, html(Content_Usage="train-ai=n", tdm_reservation="0")),
    # other types of content
    refused("image", HEADER, raw(b"\x89PNG", "image/png", X_Robots_Tag="noai")),
    passes("image-of-html", raw(NOAI.encode(), "image/png")),
    passes("json", raw(b'{"a": "<meta name=robots content=noai>"}', "application/json")),
    passes("feed", raw(b"<rss>" + NOAI.encode() + b"</rss>", "application/rss+xml")),
    refused("xhtml", META, raw(NOAI.encode(), "application/xhtml+xml")),
    refused("pdf", HEADER, raw(b"%PDF-1.7", "application/pdf", X_Robots_Tag="noarchive")),
    # META
    refused("meta", META, html("robots=noai")),
    refused("meta-own", META, html("MyBot= noml ")),
    passes("meta-of-other", html("googlebot=noai")),
    passes("meta-not-a-word", html("robots=noaix", "description=noai")),
    refused("meta-second", META, html("robots=index", "robots=noindex", "robots=noai")),
    refused("meta-in-body", META, html(body=f"<p>words {NOAI}")),
    refused("meta-after-the-end", META, raw(html().body + NOAI.encode())),
    refused("meta-in-noscript", META, html(head=f"<noscript>{NOAI}</noscript>")),
    refused("meta-in-table", META, html(body=f"<table>{NOAI}</table>")),
    refused("meta-in-svg-title", META, html(body=f"<svg><title>{NOAI}</title></svg>")),
    refused("meta-unquoted", META, html(head="<META NAME=ROBOTS CONTENT=NoAI>")),
    refused("meta-references", META, html(head='<meta name="rob&#111;ts" content="noa&#105;">')),
    refused("meta-after-comment", META, html(head=f"<!-->{NOAI}")),
    passes("meta-first-attribute", html(head='<meta name=x name=robots content="noai">')),
    passes("meta-in-comment", html(head=f"<!-- {NOAI} -->")),
    passes("meta-in-script", html(head=f"<script>'{NOAI}'</script>")),
    passes("meta-in-style", html(head=f"<style>{NOAI}</style>")),
    passes("meta-in-title", html(head=f"<title>{NOAI}</title>")),
    passes("meta-in-textarea", html(body=f"<textarea>{NOAI}</textarea>")),
    passes("meta-in-iframe", html(body=f"<iframe>{NOAI}</iframe>")),
    passes("meta-in-xmp", html(body=f"<xmp>{NOAI}</xmp>")),
    passes("meta-in-template", html(body=f"<template>{NOAI}</template>")),
    passes("meta-in-plaintext", html(body=f"<plaintext>{NOAI}")),
    passes("meta-in-attribute", html(body=f"<p title='{NOAI}'>")),
    passes("meta-in-srcdoc", html(body=f"<iframe srcdoc='{NOAI}'></iframe>")),
    passes("meta-in-conditional", html(head=f"<!--[if IE]>{NOAI}<![endif]-->")),
    passes("meta-property", html(head='<meta property="robots" content="noai">')),
    passes("meta-cut-off", raw(b'<!doctype html><meta name="robots" content="noai"')),
    # encodings
    refused("utf-16", META, raw(NOAI.encode("utf-16"))),
    refused("utf-16-by-field", META, raw(NOAI.encode("utf-16-le"), "text/html; charset=utf-16le")),
    refused("unknown-charset", META, raw(NOAI.encode(), "text/html; charset=x-none")),
    refused("gzip", META, raw(gzip.compress(NOAI.encode()), Content_Encoding="gzip")),
    passes("gzip-plain", raw(gzip.compress(b"<p>words"), Content_Encoding="gzip")),
    refused("deflate", META, raw(zlib.compress(NOAI.encode()), Content_Encoding="deflate")),
    refused("gzip-cut", META, raw(CUT, Content_Encoding="gzip"), is_cut=True),
    refused("gzip-and-more", META, raw(AND_MORE, Content_Encoding="gzip"), is_cut=True),
    differs("gzip-twice", META, raw(TWICE, Content_Encoding="gzip, gzip")),
    passes("unknown-coding", raw(NOAI.encode(), Content_Encoding="x-none")),
    refused("long", META, raw(NOAI.encode() + b"x" * LIMIT * 2), is_cut=True),
    differs("beyond-the-limit", META, raw(b"x" * LIMIT + NOAI.encode())),
    # TDMRep in pages
    refused("tdm-page", TDM_PAGE, html("tdm-reservation=1")),
    # the header is judged first, so that the page, which is nearer, is not waited for
    refused("tdm-header-before-page", TDM, html("tdm-reservation=0", tdm_reservation="1")),
    # statuses and methods
    passes("not-found", tagged("noai", status=404)),
    passes("error", tagged("noai", status=500)),
    passes("redirect", raw(b"", status=302, Location="/plain", X_Robots_Tag="noai")),
    refused("part-by-field", HEADER, tagged("noai", status=206)),
    refused("part-of-a-page", META, html("robots=noai", status=206)),
    passes("part-that-is-silent", html("robots=noindex", status=206)),
    refused("non-authoritative", META, html("robots=noai", status=203)),
    refused("not-modified", HEADER, raw(b"", status=304, X_Robots_Tag="noai")),
    refused("head", HEADER, tagged("noai"), method="HEAD"),
    passes("head-of-a-page", html("robots=noai"), method="HEAD"),
    differs("priced", PAYMENT, html(status=402, crawler_price="USD 0.01")),
    differs("licensed", PAYMENT, html(status=401, WWW_Authenticate="License")),
    passes("unpriced", tagged("noai", status=402)),
    # robots.txt
    refused("usage-line", USAGE_LINE, robots=f"{OPEN}Content-Usage: train-ai=n\n"),
    refused("usage-by-path", USAGE_LINE, robots=f"{OPEN}Content-Usage: /usage train-ai=n\n"),
    passes("usage-by-other-path", robots=f"{OPEN}Content-Usage: /other train-ai=n\n"),
    refused("signal-line", SIGNAL_LINE, robots=f"{OPEN}Content-Signal: ai-train=no\n"),
    refused("signal-ungrouped", SIGNAL_LINE, robots=f"Content-Signal: ai-train=no\n{OPEN}"),
    passes("signal-of-other", robots=f"{OPEN}\nUser-agent: x\nContent-Signal: ai-train=no\n"),
    refused("a-line-permits", HEADER, tagged("noai"), robots=f"{OPEN}Content-Usage: train-ai=y\n"),
    refused(
        "training-line",
        Refused("disallow-ai-training", "robots.txt"),
        robots=f"{OPEN}DisallowAITraining: /training\n",
    ),
    refused(
        "disallowed-and-permitted",
        DISALLOWED,
        html(Content_Usage="train-ai=y"),
        robots="User-agent: *\nDisallow: /\nContent-Signal: ai-train=yes, search=yes\n",
    ),
    # overrides
    passes("signals-off", tagged("noai"), override='signals = "off"'),
    passes("signals-recorded", html("robots=noai"), override='signals = "record"'),
    passes(
        "line-recorded",
        robots=f"{OPEN}Content-Signal: ai-train=no\n",
        override='signals = "record"',
    ),
    passes("exempt", tagged("noai"), override='action = "pass"'),
    passes("google", tagged("noarchive, noai"), override='page_dialect = "google"'),
    refused("bing", HEADER, tagged("noarchive"), override='page_dialect = "bing"'),
    passes("bing-nocache", tagged("noarchive", "nocache"), override='page_dialect = "bing"'),
    passes("other-purpose", tagged("noai"), override='purposes = "search"'),
]

SEARCH = [
    refused("noindex", HEADER, tagged("noindex")),
    refused("none", HEADER, tagged("none")),
    refused("noindex-by-blanks", HEADER, tagged("nofollow noindex")),
    refused("index-and-noindex", HEADER, tagged("index", "noindex")),
    refused("indexifembedded", HEADER, tagged("noindex, indexifembedded")),
    refused("noindex-own", HEADER, tagged("googlebot: all", "mybot: noindex")),
    passes("nofollow", tagged("nofollow")),
    passes("nosnippet-noarchive", tagged("nosnippet, noarchive, noai, notranslate")),
    refused("noindex-meta", META, html("robots=noindex,follow")),
    passes("nonexistent", html("robots=nonexistent")),
    refused("lapsed", HEADER, tagged("unavailable_after: 25 Jun 2010 15:00:00 GMT")),
    refused("lapsed-850", HEADER, tagged("unavailable_after: Friday, 25-Jun-10 15:00:00 GMT")),
    refused("lapsed-iso", META, html("robots=unavailable_after: 2020-09-21T10:00:00+02:00")),
    passes("later", tagged("unavailable_after: 25 Jun 2090 15:00:00 GMT")),
    refused(
        "earliest",
        META,
        html("robots=unavailable_after: 2011-01-01, unavailable_after: 2090-01-01"),
    ),
    passes("unreadable-date", tagged("unavailable_after: 06/05/2010")),
    refused("search-usage", USAGE, html(Content_Usage="search=n, train-ai=y")),
    refused("legacy-usage", USAGE, html(Content_Usage="bots=n")),
    refused(
        "noindex-line", Refused("robots-noindex", "robots.txt"), robots=f"{OPEN}Noindex: /no\n"
    ),
    passes("signal-of-training", robots=f"{OPEN}Content-Signal: search=yes, ai-train=no\n"),
    refused("signal-of-search", SIGNAL_LINE, robots=f"{OPEN}Content-Signal: search=no\n"),
    refused("immediate", SIGNAL_LINE, robots=f"{OPEN}Content-Signal: search=yes, use=immediate\n"),
    passes("yandex", tagged("noindex, index"), override='page_dialect = "yandex"'),
    passes("kollar", html("robots=all,noindex"), override='page_dialect = "kollar1996"'),
    passes("tdm-of-another-use", tdmrep='[{"location": "/", "tdm-reservation": 1}]'),
]

ARCHIVE = [
    refused("archive-noarchive", META, html("robots=noarchive")),
    refused("archive-nocache", HEADER, tagged("nocache")),
    refused("archive-nosnippet", HEADER, tagged("nosnippet")),
    refused("archive-no-characters", META, html("robots=max-snippet:0")),
    passes("archive-characters", html("robots=max-snippet:20", "robots=max-image-preview:none")),
    refused("archive-lapsed", HEADER, tagged("unavailable_after: 21 Sep 2020")),
    passes("archive-nofollow", tagged("nofollow, noai, noimageindex")),
    passes("archive-data-nosnippet", html(body="<p><span data-nosnippet>words</span>")),
]

STRICT = [
    refused("silent", SILENCE),
    refused("silent-image", SILENCE, raw(b"\x89PNG", "image/png")),
    refused("half-permitted", SILENCE, html(Content_Usage="search=y")),
    passes("permitted", html(Content_Usage="search=y, train-ai=y")),
    passes("permitted-by-line", robots=f"{OPEN}Content-Signal: search=yes, ai-train=yes\n"),
    passes(
        "permitted-by-both",
        html(Content_Usage="train-ai=y"),
        robots=f"{OPEN}Content-Signal: search=yes\n",
    ),
    refused(
        "permitted-and-denied", META, html("robots=noindex", Content_Usage="search=y, train-ai=y")
    ),
    refused("denied", HEADER, tagged("noml")),
    refused(
        "denied-by-line", SIGNAL_LINE, robots=f"{OPEN}Content-Signal: search=yes, ai-train=no\n"
    ),
    refused("all-is-no-permission", SILENCE, html("robots=all")),
    refused("silent-part", SILENCE, html(status=206)),
    passes("silent-error", html(status=404)),
    passes("silent-head", PLAIN, method="HEAD"),
    passes("silent-not-modified", raw(b"", status=304)),
]

RESERVED = '[{"location": "/", "tdm-reservation": 1}]'
NOT_RESERVED = '[{"location": "/", "tdm-reservation": 0}]'
MINING = [
    passes("mining-plain"),
    passes("mining-noai", tagged("noai, noarchive")),
    refused("mining-header", TDM, html(tdm_reservation="1", tdm_policy="https://x.example/p")),
    refused("mining-page", TDM_PAGE, html("tdm-reservation=1")),
    passes("mining-policy-only", html(tdm_policy="https://x.example/p")),
    refused("mining-file", TDM_FILE, tdmrep=RESERVED),
    refused(
        "mining-file-by-path", TDM_FILE, tdmrep='[{"location": "/mining-f*", "tdm-reservation": 1}]'
    ),
    passes("mining-file-of-others", tdmrep='[{"location": "/other", "tdm-reservation": 1}]'),
    refused("mining-bare-object", TDM_FILE, tdmrep='{"location": "/", "tdm-reservation": "1"}'),
    passes("mining-unreadable", tdmrep="<!doctype html>"),
    refused("mining-header-is-nearer", TDM, html(tdm_reservation="1"), tdmrep=NOT_RESERVED),
    refused(
        "mining-page-is-nearest",
        TDM_PAGE,
        html("tdm-reservation=1", tdm_reservation="0"),
        tdmrep=NOT_RESERVED,
    ),
    refused("mining-file-before-header", TDM_FILE, html(tdm_reservation="0"), tdmrep=RESERVED),
]

CHOSEN = [
    passes("chosen-level", html(Content_Signal="use=reference")),
    refused("chosen-lower-level", SIGNAL, html(Content_Signal="use=immediate")),
    refused(
        "chosen-token",
        Refused("purpose-token", "robots.txt"),
        robots=f"{OPEN}\nUser-agent: GPTBot\nDisallow: /\n",
    ),
]

GROUPS = [
    Group("train", {"purposes": "ai-train"}, TRAIN),
    Group("search", {"purposes": "search"}, SEARCH),
    Group("archive", {"purposes": "archive,snippet"}, ARCHIVE),
    Group("strict", {"purposes": "search,ai-train", "on_unknown": "deny"}, STRICT),
    Group("mining", {"purposes": "tdm"}, MINING),
    Group(
        "chosen",
        {
            "purposes": "ai-train",
            "content_use": "reference",
            "purpose_tokens": "ai-train=GPTBot",
        },
        CHOSEN,
    ),
]
