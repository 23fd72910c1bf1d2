"""Neighbours of the rows of signals.jsonl: other rules, places and orders, and what follows for them
from the same documents. They are asked as page questions, in one process.
"""

from __future__ import annotations

import base64
import json

import pytest
from support.signal_rows import answers, disagreements

NOINDEX = ["ai-index", "search", "snippet"]
EVERY = ["ai-index", "ai-input", "ai-train", "archive", "search", "snippet", "tdm"]
LAPSED = ["ai-index", "archive", "search", "snippet"]
PASSED = {"scrapy": "pass", "proxy": "pass", "phase": None}
RECORDED = {"scrapy": "annotate", "proxy": "annotate", "phase": None}
STOPPED = {"scrapy": "stop", "proxy": "drop", "phase": "headers"}
DROPPED = {"scrapy": "drop", "proxy": "drop", "phase": "body"}
NOT_MADE = {"scrapy": "drop", "proxy": "drop", "phase": "request"}
TDMREP = "/.well-known/tdmrep.json"

ROWS: list[dict] = []


def add(given, expect, **more):
    url = more.pop("url", "https://example.com/page")
    row = {"id": f"N-{len(ROWS) + 1:03}", "input": given, "url": url, "agent": "mybot"}
    ROWS.append(row | {"purposes": [], "expect": expect} | more)


def tags(*lines, **expect):
    """X-Robots-Tag lines."""
    more = {
        key: expect.pop(key)
        for key in ("agent", "dialect", "purposes", "at", "status")
        if key in expect
    }
    add({"headers": [["X-Robots-Tag", line] for line in lines]}, expect, **more)


def field(name, value, **expect):
    more = {key: expect.pop(key) for key in ("purposes", "status") if key in expect}
    add({"headers": [[name, value]]}, expect, **more)


def page(html, **expect):
    more = {
        key: expect.pop(key)
        for key in ("agent", "dialect", "purposes", "url", "headers", "status")
        if key in expect
    }
    headers = more.pop("headers", [])
    add({"html": html, "headers": headers}, expect, **more)


def meta(content, name="robots", **expect):
    page(f'<meta name="{name}" content="{content}">', **expect)


def robots(text, **expect):
    more = {
        key: expect.pop(key) for key in ("agent", "purposes", "url", "content_use") if key in expect
    }
    add({"robots_txt": text}, expect, **more)


def tdm(entries, **expect):
    more = {key: expect.pop(key) for key in ("purposes", "url", "headers", "html") if key in expect}
    given = {key: more.pop(key) for key in ("headers", "html") if key in more}
    text = entries if isinstance(entries, str) else json.dumps(entries)
    add({"wellknown": {TDMREP: text}} | given, expect, **more)


# --- X-Robots-Tag: agents (section 3.1) ---
tags("mybot: noindex", denied=NOINDEX)
tags("MYBOT: NOINDEX", denied=NOINDEX)
tags("mybot/2.1: noindex", denied=NOINDEX)
tags("mybot-news: noindex", denied=[], rules=[])
tags("mybotnews: noindex", denied=[])
tags("my: noindex", denied=[])
tags("*: noindex", denied=NOINDEX)
tags("otherbot: noindex, mybot: nofollow", denied=["follow"])
tags("mybot: nofollow, otherbot: noindex", denied=["follow"])
tags("noarchive, otherbot: noindex", denied=["ai-input", "ai-train", "archive"])
tags("otherbot: noindex", "nofollow", denied=["follow"], rules=[["*", "nofollow", True]])
tags("nofollow", "otherbot: noindex", denied=["follow"])
tags("otherbot: index", "noindex", denied=NOINDEX)
tags("mybot: index", "noindex", denied=NOINDEX)
tags("mybot: all", "none", denied=sorted([*NOINDEX, "follow"]))
tags("googlebot: noindex", agent="googlebot-news", denied=[])
tags("googlebot-news: noindex", agent="googlebot-news", denied=NOINDEX)
tags("googlebot-news: noindex", agent="googlebot", denied=[])
tags("otherbot: noindex, nofollow, noarchive", denied=[], rules=[])
tags("otherbot:noindex,mybot:nosnippet", denied=["ai-input", "snippet"])
tags("otherbot: unavailable_after: 1 Jan 2020 00:00:00 GMT", denied=[], unavailable_after=None)
tags("mybot: unavailable_after: 1 Jan 2020 00:00:00 GMT", denied=LAPSED)
tags("otherbot: max-snippet: 5, mybot: max-snippet: 7", limits={"max-snippet": 7})

# --- X-Robots-Tag: form ---
tags("  noindex  ", denied=NOINDEX)
tags(",noindex,", denied=NOINDEX)
tags(", ,", denied=[], rules=[])
tags("NoIndex,NOFOLLOW", denied=sorted([*NOINDEX, "follow"]))
tags("nofollow noarchive", denied=["ai-input", "ai-train", "archive", "follow"], flags=["lenient"])
tags("nosnippet;noai", denied=["ai-input", "ai-train", "snippet"], flags=["lenient"])
tags("'noai'", denied=["ai-input", "ai-train"], flags=["lenient"])
tags("nosnippet: yes", denied=["ai-input", "snippet"], flags=["malformed"])
tags("nofollows", denied=[], flags=["unknown-rule"])
tags("no_archive", denied=[], flags=["unknown-rule"])
tags("follow, index, archive, snippet", denied=[], no_flags=["unknown-rule"])
tags("noindex, indexifembedded", denied=NOINDEX)
tags("noydir, noodp, noyaca", denied=[], no_flags=["unknown-rule"])

# --- X-Robots-Tag: rules ---
tags("none", denied=sorted([*NOINDEX, "follow"]))
tags("nocache", denied=["archive"], limits={"nocache": "title-and-snippet-only"})
tags("noml", denied=["ai-input", "ai-train"])
tags("DisallowAITraining", denied=["ai-train"])
tags("AllowAITraining", denied=[], uses={"ai-train": "unknown"})
tags("disallowaitraining, allowaitraining", denied=["ai-train"])
tags("noimageai", denied=[], images={"ai-train": "deny", "ai-input": "deny"})
tags("noimageindex, noimageai", images={"search": "deny", "ai-train": "deny"})
tags("max-snippet:0", denied=["ai-input", "snippet"], limits={"max-snippet": 0})
tags("max-snippet:-1", denied=[], limits={"max-snippet": -1})
tags("max-snippet:-1, max-snippet:50", denied=[], limits={"max-snippet": 50})
tags("max-snippet:50", "max-snippet:20", limits={"max-snippet": 20})
tags("max-snippet:-2", denied=[], limits={"max-snippet": None})
tags("max-snippet:1.5", denied=[], limits={"max-snippet": None})
tags("max-video-preview:0", denied=[], limits={"max-video-preview": 0})
tags("max-video-preview:-1, max-video-preview:9", limits={"max-video-preview": 9})
tags(
    "max-image-preview:standard, max-image-preview:large", limits={"max-image-preview": "standard"}
)
tags("max-image-preview:none", denied=[], limits={"max-image-preview": "none"})
tags("max-image-preview:huge, noindex", denied=NOINDEX, limits={"max-image-preview": None})
tags("max-snippet:20, otherbot: max-snippet:0", denied=[], limits={"max-snippet": 20})
tags("notranslate", denied=[], limits={"notranslate": True})

# --- Dates (section 3.2) ---
tags(
    "unavailable_after: 2020-09-21",
    denied=LAPSED,
    unavailable_after="2020-09-21T00:00:00Z",
    flags=["assumed-utc"],
)
tags("unavailable_after: 20200921T100000Z", unavailable_after="2020-09-21T10:00:00Z")
tags("unavailable_after: 2020-09-21 10:00:00 +0200", unavailable_after="2020-09-21T08:00:00Z")
tags("unavailable_after: Friday, 25-Jun-10 15:00:00 GMT", unavailable_after="2010-06-25T15:00:00Z")
tags("unavailable_after: Fri, 25 Jun 2010 15:00:00 -0800", unavailable_after="2010-06-25T23:00:00Z")
tags("unavailable_after: Fri Jun 25 15:00:00 2010", unavailable_after="2010-06-25T15:00:00Z")
tags("unavailable_after: 25-Jun-2010 15:00:00 EST", unavailable_after="2010-06-25T20:00:00Z")
tags("unavailable_after: Mon, 25 Jun 2010 15:00:00 GMT", unavailable_after="2010-06-25T15:00:00Z")
tags(
    "unavailable_after: Jun 25, 2010 15:00 PDT, noai",
    unavailable_after="2010-06-25T22:00:00Z",
    denied=sorted([*LAPSED, "ai-input", "ai-train"]),
)
tags("unavailable_after: 05.06.2010", denied=[], flags=["unreadable-date"])
tags("unavailable_after: 31 Feb 2010 00:00:00 GMT", denied=[], flags=["unreadable-date"])
tags("unavailable_after: 06/05/2010, noindex", denied=NOINDEX, flags=["unreadable-date"])
tags(
    "unavailable_after: 2040-01-01T00:00:00Z",
    "unavailable_after: 2035-01-01T00:00:00Z",
    denied=[],
    unavailable_after="2035-01-01T00:00:00Z",
)
tags("unavailable_after: 2027-01-01T00:00:00Z", denied=[], at="2026-12-31T23:59:59Z")
tags("unavailable_after: 2027-01-01T00:00:00Z", denied=LAPSED, at="2027-01-01T00:00:00Z")
tags(
    "unavailable_after: 2027-01-01T00:00:00Z",
    denied=LAPSED,
    dialect="google",
    at="2027-01-01T00:00:00Z",
)

# --- Page dialects (section 5) ---
tags("noindex, index", denied=NOINDEX, dialect="google")
tags("nofollow, follow", denied=[], dialect="yandex")
tags("none, index", denied=["follow"], dialect="yandex")
tags("none, index, follow", denied=[], dialect="yandex")
tags("nofollow, all", denied=[], dialect="yandex")
tags("noindex, nofollow", denied=sorted([*NOINDEX, "follow"]), dialect="yandex")
tags("nosnippet, all", denied=["snippet"], dialect="yandex")
tags("nocache", denied=[], dialect="google")
tags("nocache", denied=["archive"], dialect="bing")
tags("noarchive", "nocache", denied=["archive"], dialect="bing")
tags("noindex, follow", denied=NOINDEX, dialect="kollar1996")
tags("noindex, all", denied=[], dialect="kollar1996")
tags("none", denied=sorted([*NOINDEX, "follow"]), dialect="kollar1996")
tags("nofollow", denied=["follow"], dialect="kollar1996")
meta("noindex", denied=NOINDEX, dialect="bing")
meta("index, noindex", denied=NOINDEX)
meta("noarchive, archive", denied=["ai-input", "ai-train", "archive"])

# --- Robots-Tag (section 3.3) ---
field(
    "Robots-Tag",
    "mybot;nosnippet;max-snippet=20",
    denied=["ai-input", "snippet"],
    limits={"max-snippet": 20},
)
field("Robots-Tag", "otherbot;noindex", denied=[])
field("Robots-Tag", "*;noindex=?0", denied=[])
field("Robots-Tag", "*;noindex, mybot;nofollow", denied=sorted([*NOINDEX, "follow"]))
field("Robots-Tag", "*;noindex;", denied=[], flags=["malformed"])
field("Robots-Tag", "*;colour=red;noarchive", denied=["ai-input", "ai-train", "archive"])

# --- META (sections 3.4 and 4) ---
meta("none", denied=sorted([*NOINDEX, "follow"]))
meta("noindex", name="MyBot", denied=NOINDEX)
meta("noindex", name=" robots ", denied=NOINDEX)
meta("noindex", name="otherbot", denied=[])
meta("noindex", name="keywords", denied=[])
meta("otherbot: noindex", denied=[])
meta("mybot: noindex", denied=NOINDEX)
meta("noindex", name="robots, otherbot", denied=NOINDEX, flags=["lenient"])
page(
    '<meta http-equiv="X-Robots-Tag" content="noai">',
    denied=["ai-input", "ai-train"],
    flags=["nonstandard"],
)
page('<meta property="robots" content="noindex">', denied=[])
page('<meta itemprop="robots" content="noindex">', denied=[])
page('<meta content="noindex" name="robots">', denied=NOINDEX)
page("<meta name=robots content=noindex>", denied=NOINDEX)
page("<META NAME='ROBOTS' CONTENT='NOINDEX' />", denied=NOINDEX)
page('<meta name="robots">', denied=[])
page('<meta name="robots" content="index" content="noindex">', denied=[])
page('<meta name="robots" name="x" content="noindex">', denied=NOINDEX)
page('<meta name="robots" content="no&#105;ndex">', denied=NOINDEX)
page('<meta name="robots" content="noindex&comma;nofollow">', denied=sorted([*NOINDEX, "follow"]))
page('<script>"<meta name=robots content=noindex>"</script>', denied=[])
page("<textarea><meta name=robots content=noindex></textarea>", denied=[])
page("<style><meta name=robots content=noindex></style>", denied=[])
page("<iframe><meta name=robots content=noindex></iframe>", denied=[])
page(
    "<template><meta name=robots content=noindex></template><meta name=robots content=nofollow>",
    denied=["follow"],
)
page("<head><noscript><meta name=robots content=noindex></noscript>", denied=NOINDEX)
page("<body><p>x<meta name=robots content=noindex>", denied=NOINDEX)
page("<html></html><meta name=robots content=noindex>", denied=NOINDEX)
page("<table><tr><meta name=robots content=noindex></table>", denied=NOINDEX)
page("<!--><meta name=robots content=noindex>-->", denied=NOINDEX)
page("<!-- --!><meta name=robots content=noindex>", denied=NOINDEX)
page("<!--[if IE]><meta name=robots content=noindex><![endif]-->", denied=[])
page("<meta name=robots content=noindex", denied=[])
page('<div title="<meta name=robots content=noindex>">', denied=[])
page("<?php x ?><meta name=robots content=noindex>", denied=NOINDEX)
page(
    "<p><meta name=robots content=noarchive><meta name=robots content=nosnippet>",
    denied=["ai-input", "ai-train", "archive", "snippet"],
)
page("<meta name=robots content=noindex>", headers=[["Content-Type", "application/xml"]], denied=[])
page(
    "<meta name=robots content=noindex>",
    headers=[["Content-Type", "application/rss+xml"]],
    denied=[],
)
page("<meta name=robots content=noindex>", headers=[["content-type", "TEXT/HTML"]], denied=NOINDEX)
page("text <meta name=robots content=noindex>", denied=[])
page(
    "<meta name=robots content=all>",
    headers=[["X-Robots-Tag", "noai"]],
    denied=["ai-input", "ai-train"],
)
page(
    "<meta name=robots content=max-snippet:9>",
    headers=[["X-Robots-Tag", "max-snippet:5"]],
    limits={"max-snippet": 5},
)
add(
    {
        "html_b64": base64.b64encode(
            "<meta name=robots content=noindex>".encode("utf-16-be")
        ).decode(),
        "headers": [["Content-Type", "text/html; charset=utf-16be"]],
    },
    {"denied": NOINDEX},
)
page('<meta name="url" content="ftp://a.test/">', denied=[])
page('<meta name="document-state" content="Static">', document_state="STATIC", denied=[])
page('<meta name="document-state" content="dynamic">', document_state="DYNAMIC", denied=[])
page('<meta name="revisit-after" content="15 days">', revisit_after="recorded", denied=[])
page('<meta name="content-usage" content="train-ai=n">', denied=["ai-train"], flags=["nonstandard"])
page(
    '<meta http-equiv="content-usage" content="train-ai=y">',
    denied=[],
    uses={"ai-train": "unknown"},
)

# --- Links (section 3.5) ---
page('<a rel="nofollow noopener" href="/a">', follow={"https://example.com/a": False})
page('<a rel="external" href="/a">', follow={"https://example.com/a": True})
page('<a rel="sponsored nofollow" href="http://b.test/">', follow={"http://b.test/": False})
page('<a rel="nofollow" href="/a#x"><a href="/a#y">', follow={"https://example.com/a": True})
page(
    '<base href="https://b.test/c/"><a href="d" rel=nofollow>', follow={"https://b.test/c/d": False}
)
page(
    '<meta name="robots" content="none"><a href="/a">',
    follow={"https://example.com/a": False},
    denied=sorted([*NOINDEX, "follow"]),
)
page(
    '<meta name="otherbot" content="nofollow"><a href="/a">', follow={"https://example.com/a": True}
)
page(
    '<a href="/a">',
    headers=[["X-Robots-Tag", "otherbot: nofollow"]],
    follow={"https://example.com/a": True},
)
page(
    '<form rel="nofollow" action="/a"></form><a href="/b">', follow={"https://example.com/b": True}
)

# --- Content-Usage (section 3.7) ---
field("Content-Usage", "search=n", denied=["search"])
field("Content-Usage", "ai-use=n", denied=["ai-input"])
field("Content-Usage", "train-ai=y", uses={"ai-train": "allow", "tdm": "unknown"})
field("Content-Usage", "train-ai=n;exceptions=x", denied=["ai-train"])
field("Content-Usage", "train-ai=y, train-ai=n", denied=["ai-train"])
field("Content-Usage", "train-ai=n, train-ai=y", denied=[], uses={"ai-train": "allow"})
field("Content-Usage", 'train-ai="n"', denied=["ai-train"], flags=["lenient"])
field("Content-Usage", "train-ai=N", denied=["ai-train"], flags=["lenient"])
field("Content-Usage", 'train-ai="y"', denied=[], uses={"ai-train": "unknown"})
field("Content-Usage", "train-ai", denied=[], uses={"ai-train": "unknown"})
field("Content-Usage", "train-ai=?0", denied=["ai-train"], flags=["lenient"])
field(
    "Content-Usage",
    "train-ai=n,,search=y",
    denied=["ai-train"],
    flags=["malformed"],
    uses={"search": "unknown"},
)
field("Content-Usage", "bots=n", denied=EVERY, flags=["legacy"])
field("Content-Usage", "bots=y", denied=[], uses={"search": "unknown"})
field("Content-Usage", "tdm=n", denied=["ai-train", "tdm"], flags=["legacy"])
field("Content-Usage", "genai=n", denied=["ai-train"])
field("Content-Usage", "ai-output=n", denied=["ai-input"])
field("Content-Usage", "ai-train=no", denied=["ai-train"], flags=["cross-vocabulary"])
field("Content-Usage", "ai-train=yes", denied=[], uses={"ai-train": "unknown"})
field("Content-Usage", "colour=n", denied=[])
add(
    {"headers": [["Content-Usage", "train-ai=n"], ["Content-Usage", "search=y"]]},
    {"denied": ["ai-train"], "uses": {"search": "allow"}},
)
add(
    {"headers": [["Content-Usage", "train-ai=y"], ["X-Robots-Tag", "noai"]]},
    {"uses": {"ai-train": "deny"}},
)

USAGE = "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /open/ train-ai=y\n"
robots(USAGE, denied=["ai-train"])
robots(USAGE, url="https://example.com/open/x", denied=[], uses={"ai-train": "allow"})
robots("User-agent: *\nContent-Usage: /a search=n\n", url="https://example.com/b", denied=[])
robots(
    "User-agent: *\nContent-Usage: /*.pdf$ search=n\n",
    url="https://example.com/b.pdf",
    denied=["search"],
)
robots(
    "User-agent: *\nContent-Usage: /a train-ai=n\nContent-Usage: /a search=n\n",
    url="https://example.com/a",
    denied=["ai-train", "search"],
)
robots(
    "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /a search=y\n",
    url="https://example.com/a",
    uses={"ai-train": "unknown", "search": "allow"},
)
robots("User-agent: mybot\nDisallow: /x\nUser-agent: *\nContent-Usage: train-ai=n\n", denied=[])
robots("User-agent: otherbot\nContent-Usage: train-ai=n\n", denied=[])
robots(
    "Content-Usage: train-ai=n\nUser-agent: *\nAllow: /\n", denied=["ai-train"], flags=["ungrouped"]
)
robots(
    "Content-Usage: train-ai=y\nUser-agent: *\nAllow: /\n", denied=[], uses={"ai-train": "unknown"}
)
robots("User-agent: *\nContent-Usage: train-ai=n # search=n\n", denied=["ai-train"])
robots("User-agent: *\ncontent-usage:train-ai=n\n", denied=["ai-train"])

# --- Content-Signal (section 3.8) ---
robots("User-agent: *\nContent-Signal: ai-input=no\n", denied=["ai-input"])
robots(
    "User-agent: *\nContent-Signal: search=yes, ai-input=yes\n",
    uses={"search": "allow", "ai-input": "allow", "ai-train": "unknown"},
)
robots("User-agent: *\nContent-Signal: SEARCH=NO\n", denied=["search"])
robots("User-agent: *\nContent-Signal: search=no, search=yes\n", denied=["search"])
robots("User-agent: *\nContent-Signal: search=yes\nContent-Signal: search=no\n", denied=["search"])
robots("User-agent: *\nContent-Signal: ai_train=no\n", denied=["ai-train"], flags=["lenient"])
robots("User-agent: *\nContent-Signal: ai-train=false\n", denied=["ai-train"], flags=["lenient"])
robots("User-agent: *\nContent-Signal: ai-train=true\n", denied=[], uses={"ai-train": "unknown"})
robots(
    "Content-Signal: search=no\nUser-agent: *\nAllow: /\n", denied=["search"], flags=["ungrouped"]
)
robots(
    "Content-Signal: search=yes\nUser-agent: *\nAllow: /\n", denied=[], uses={"search": "unknown"}
)
robots("User-agent: *\nContent-Signals: search=no\n", denied=[])
robots(
    "User-agent: *\nContent-Signal: /a ai-train=no\n",
    url="https://example.com/a/b",
    denied=["ai-train"],
)
robots("User-agent: *\nContent-Signal: /a ai-train=no\n", url="https://example.com/b", denied=[])
add(
    {"robots_txt": "User-agent: *\nContent-Signal: use=full\nContent-Signal: use=immediate\n"},
    {"content_use": "immediate", "denied": []},
    content_use="full",
)
robots(
    "User-agent: *\nContent-Signal: use=immediate\n",
    purposes=["tdm"],
    content_use="reference",
    action=NOT_MADE,
)
robots(
    "User-agent: *\nContent-Signal: use=full\n",
    purposes=["tdm"],
    content_use="full",
    action=RECORDED,
)
robots("User-agent: *\nContent-Signal: search=yes\n", purposes=["ai-input"], action=RECORDED)
field("Content-Signal", "ai-train=no", denied=["ai-train"])
field("Content-Signal", "ai-train=yes", denied=[], uses={"ai-train": "unknown"})
field("Content-Signal", "ai-train=no", purposes=["ai-train"], action=STOPPED)

# --- Other lines (section 3.11) ---
robots(
    "User-agent: *\nNoindex: /a\n",
    url="https://example.com/a",
    denied=["search"],
    flags=["robots-noindex"],
)
robots("User-agent: *\nNoindex: /a\n", url="https://example.com/b", denied=[])
robots(
    "User-agent: *\nNoindex: /*.pdf$\n",
    url="https://example.com/x.pdf",
    denied=["search"],
    purposes=["search"],
    action=NOT_MADE,
)
robots(
    "User-agent: *\nDisallowAITraining: /a\nAllowAITraining: /a/b\n",
    url="https://example.com/a/b",
    denied=[],
)
robots(
    "User-agent: *\nDisallowAITraining: /a\nAllowAITraining: /a\n",
    url="https://example.com/a",
    denied=["ai-train"],
)
robots(
    "User-agent: *\nDisallowAITraining: /a\n",
    url="https://example.com/a",
    crawl=True,
    purposes=["ai-train"],
    action=NOT_MADE,
)
robots(
    "User-agent: mybot\nDisallow: /a\n",
    url="https://example.com/a",
    crawl=False,
    purposes=["search"],
    action=NOT_MADE,
)
robots("User-agent: *\nDisallow: /a\n", crawl=True, action=PASSED)

# --- TDMRep (section 3.10) ---
RESERVED = {"location": "/", "tdm-reservation": 1}
tdm([RESERVED], denied=["ai-train", "tdm"])
tdm(
    [{"location": "/a", "tdm-reservation": 0}, RESERVED],
    url="https://example.com/a",
    denied=[],
    uses={"tdm": "allow", "ai-train": "unknown"},
)
tdm(
    [RESERVED, {"location": "/a", "tdm-reservation": 0}],
    url="https://example.com/a",
    denied=["ai-train", "tdm"],
)
tdm([{"location": "/b", "tdm-reservation": 1}], denied=[])
tdm(
    [{"location": "/*.jpg$", "tdm-reservation": 1}],
    url="https://example.com/x.jpg",
    denied=["ai-train", "tdm"],
)
tdm([RESERVED], headers=[["tdm-reservation", "0"]], denied=[], uses={"tdm": "allow"})
tdm(
    [{"location": "/", "tdm-reservation": 0}],
    headers=[["tdm-reservation", "1"]],
    denied=["ai-train", "tdm"],
)
tdm([RESERVED], html='<meta name="tdm-reservation" content="0">', denied=[])
tdm([RESERVED], headers=[["tdm-policy", "https://a.test/p"]], denied=["ai-train", "tdm"])
tdm({"location": "/", "tdm-reservation": 1}, denied=["ai-train", "tdm"])
tdm({"location": "/", "tdm-reservation": 0}, denied=[], uses={"tdm": "unknown"})
tdm([{"location": "/", "tdm-reservation": "1"}], denied=["ai-train", "tdm"])
tdm([{"location": "/", "tdm-reservation": "0"}], denied=[], uses={"tdm": "unknown"})
tdm([{"location": "/", "tdm-reservation": 2}], denied=[])
tdm("not JSON", denied=[])
tdm([RESERVED], purposes=["ai-train"], action=NOT_MADE)
tdm([RESERVED], purposes=["search"], action=RECORDED)
field("tdm-reservation", "1", denied=["ai-train", "tdm"], purposes=["tdm"], action=STOPPED)
field("tdm-reservation", "2", denied=[])
field("TDM-Reservation", " 1 ", denied=["ai-train", "tdm"])
field("tdm-policy", "https://a.test/p", denied=[], tdm_policy=None)
page(
    '<meta name="TDM-Reservation" content="1"><meta name="tdm-policy" content="https://a.test/p">',
    denied=["ai-train", "tdm"],
    tdm_policy="https://a.test/p",
)
page(
    '<meta name="tdm-reservation" content="1">',
    headers=[["tdm-reservation", "0"]],
    denied=["ai-train", "tdm"],
    purposes=["tdm"],
    action=DROPPED,
)

# --- Licences and payment (sections 3.9 and 3.12) ---
robots(
    "User-agent: *\nLicense: https://a.test/l.xml\n", license=["https://a.test/l.xml"], denied=[]
)
robots(
    "License: https://a.test/g.xml\nUser-agent: otherbot\nLicense: https://a.test/o.xml\n",
    license=["https://a.test/g.xml"],
)
field(
    "Link",
    '<https://a.test/l.xml>; rel=license; type="application/rsl+xml"',
    license=["https://a.test/l.xml"],
    denied=[],
)
field("Link", '<https://a.test/l>; rel="next"', license=None)
page('<link rel="license" href="/l">', license_other=["https://example.com/l"], license=None)
field(
    "crawler-price",
    "USD 1",
    status=402,
    price="USD 1",
    action={"scrapy": "drop", "proxy": "pass", "phase": "headers"},
)
field(
    "WWW-Authenticate",
    "License",
    status=403,
    action={"scrapy": "drop", "proxy": "pass", "phase": "headers"},
)
field("WWW-Authenticate", 'Basic realm="License"', status=401, action=PASSED)
field("WWW-Authenticate", "License", status=200, action=PASSED)
field("crawler-price", "USD 1", status=200, action=RECORDED)

# --- Phases and purposes (section 8.3) ---
tags("noindex", purposes=["archive"], action=RECORDED)
tags("nosnippet", purposes=["snippet"], action=STOPPED)
tags("nosnippet", purposes=["search"], action=RECORDED)
tags("noarchive", purposes=["ai-input"], action=STOPPED)
tags("noai", purposes=["ai-index"], action=RECORDED)
tags("nofollow", purposes=["search"], action=RECORDED)
tags("noimageindex", purposes=["search"], action=RECORDED)
tags("unavailable_after: 2020-01-01T00:00:00Z", purposes=["archive"], action=STOPPED)
tags("unavailable_after: 2040-01-01T00:00:00Z", purposes=["archive"], action=RECORDED)
tags("otherbot: noai", purposes=["ai-train"], action=PASSED)
tags("noindex", purposes=["search"], status=404, action=RECORDED)
tags("noindex", purposes=["search"], status=203, action=STOPPED)
meta("noai", purposes=["ai-train", "search"], action=DROPPED)
meta("nosnippet", purposes=["archive"], action=RECORDED)
page("<p>nothing</p>", purposes=["search"], action=PASSED, denied=[])
page('<a href="/a">', purposes=["search"], action=PASSED)
page("<meta name=robots content=noindex>", purposes=["search"], status=404, action=RECORDED)
add(
    {
        "robots_txt": "User-agent: *\nContent-Usage: train-ai=n\n",
        "headers": [["X-Robots-Tag", "noindex"]],
    },
    {"action": STOPPED},
    purposes=["search"],
)
add(
    {"headers": [["X-Robots-Tag", "nofollow"]], "html": "<meta name=robots content=noarchive>"},
    {"action": DROPPED, "denied": ["ai-input", "ai-train", "archive", "follow"]},
    purposes=["archive"],
)


@pytest.fixture(scope="module")
def answered():
    return {row["id"]: answer for row, answer in zip(ROWS, answers(ROWS), strict=True)}


def test_there_are_neighbours_of_every_signal():
    assert len(ROWS) >= 150


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_neighbour_agrees(row, answered):
    assert disagreements(row["expect"], answered[row["id"]]) == {}, row
