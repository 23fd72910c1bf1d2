"""Test data for the console: an audit log of some hours, a store, overrides, and hostile records."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import NamedTuple

import msgspec
from audit.decisions import AT, audit_log_in, decision

from robots_guard.app.console import Sources
from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.decisions.pacing import DelaySource, RequiredDelay
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.response import ResponseHead, judge_response
from robots_guard.decisions.verdict import (
    Action,
    Deferral,
    Exemption,
    ResponseRef,
    RuleRef,
    Terms,
    Verdict,
)
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import split_url
from robots_guard.ports import Clocks
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.signals.statement import Place, Signal, Statement

TERMS = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
CLOCKS = Clocks(now=lambda: AT, monotonic=lambda: 7.0)
EARLIER = b"""# robots.txt of the shop
User-agent: *
Disallow: /private/
Allow: /private/open/
Crawl-delay: 10

Sitemap: https://shop.example/sitemap.xml
"""
LOST = b"User-agent: lost <script>alert(6)</script>\n"
RULES = b"""# robots.txt of the shop
User-agent: *
Disallow: /private/
Disallow: /*?sort=
Allow: /private/open/
Crawl-delay: 5

User-agent: badbot
Disallow: /

Sitemap: https://shop.example/sitemap.xml
"""
DISALLOWED = Verdict(
    action=Action.DROP,
    reason=Reason.DISALLOWED,
    rule=RuleRef(3, "Disallow: /private/", "*"),
    group="*",
    form="spec",
)
ALLOWED = Verdict(action=Action.PASS, reason=Reason.ALLOWED, group="*", form="spec")
PACED = Verdict(
    action=Action.DEFER,
    reason=Reason.CRAWL_DELAY,
    rule=RuleRef(6, "Crawl-delay: 5", "*"),
    group="*",
    until=AT + 4,
    delay=RequiredDelay(by=DelaySource.CRAWL_DELAY, seconds=5.0, line=6, text="Crawl-delay: 5"),
)
UNREACHABLE = Verdict(
    action=Action.DEFER, reason=Reason.UNREACHABLE, until=AT + 30, detail="dns: no such host"
)
OPENED = Verdict(action=Action.PASS, reason=Reason.RESTRICTED, relaxed="on_restricted=allow")
EXEMPTION = Exemption(
    id="shop-2026", owner="jane@crawler.example", reason="contract of 12 May", expires=AT + 86400
)
OVERRIDES = f"""
[[override]]
id = "shop-2026"
origin = "https://shop.example"
owner = "jane@crawler.example"
reason = "contract of 12 May: one request a second"
expires = 2027-03-31
max_delay = 1

[[override]]
id = "complaint-17"
suffix = "angry.example"
owner = "abuse desk"
reason = "the owner has asked us to stay away"
expires = 2030-01-01
action = "drop"

[[override]]
id = "soon"
origin = "https://soon.example"
owner = "joe"
reason = "moves to a new host"
expires = 2027-01-20
on_restricted = "allow"

[[override]]
id = "bygone"
origin = "https://old.example"
owner = "joe"
reason = "the relaunch"
expires = 2026-12-01
visit_time = "ignore"

[[override]]
id = "half"
origin = "https://half.example"
reason = "nobody answers for it: <b>{"x" * 10}</b>"
expires = 2030-01-01
action = "pass"
"""
HOSTILE = "https://evil.example/<script>alert(1)</script>?q=\"'><img src=x onerror=alert(2)>"
HOSTILE_RULE = "Disallow: /</code><script>alert(3)</script>\x1b[31m\u202egnp.exe\x07"
#: An id that would add a field to a response, if it were part of one.
HEADER_ID = 'x"; filename="evil.exe\rSet-Cookie: owned=1/../y'


class Scene(NamedTuple):
    """The audit log, the sources and the store of a test."""

    audit_log: Path
    sources: Sources
    store: SqliteStore


def policy(url, body=RULES, at=AT - 600, status=200):
    response = Fetched(status=status, body=body if status == 200 else b"", tls_verified=True)
    return begin(split_url(url)[0], None, "direct").next(response, at).policy


def _down(at):
    failed = Failed(failure=Failure.DNS, detail="no such host")
    return begin(split_url("https://down.example/")[0], None, "direct").next(failed, at).policy


def scene(directory: Path, count: int = 400) -> Scene:
    """Create a scene in a directory."""
    audit_log = directory / "audit_log"
    _fill(audit_log, count)
    store = SqliteStore(directory / "policies.sqlite")
    for each in _policies():
        store.put(each, AT)
    store.reserve(split_url("https://shop.example/")[0], 5.0, lambda: AT - 2)
    overrides = directory / "overrides.toml"
    overrides.write_text(OVERRIDES)
    return Scene(audit_log, Sources(audit_log, store, overrides, TERMS, "mybot", CLOCKS), store)


def _policies():
    yield policy("https://shop.example/", EARLIER, at=AT - 86400)
    yield policy("https://shop.example/")
    yield policy("https://news.example/", b"User-agent: *\nDisallow:\n", at=AT - 90_000)
    yield policy("https://closed.example/", status=403)
    yield policy("https://open.example/", status=404)
    yield policy(
        "https://reserved.example/", b"User-agent: *\nDisallow:\nContent-Usage: search=n\n"
    )
    yield policy("http://plain.example:8080/", b"User-agent: *\nDisallow: /x\n")
    yield _down(AT - 20)
    for number in range(60):
        yield policy(f"https://host-{number:03}.example/", at=AT - number * 60)


def _fill(audit_log: Path, count: int) -> None:
    generator = random.Random(1)
    settings = {"agent": "mybot", "purposes": "search"}
    log = audit_log_in(
        audit_log, component="scrapy", job="shop-2027-01", audit="evidence", settings=settings
    )
    every = []
    for number in range(count):
        host = generator.choice(("shop", "shop", "shop", "news", "open", "blog"))
        verdict = generator.choice((DISALLOWED, ALLOWED, ALLOWED, PACED))
        url = f"https://{host}.example/{'private/' if verdict is DISALLOWED else ''}item/{number}"
        at = AT - 20 * 3600 * (1 - number / count) ** 1.3
        every.append(
            _named(
                f"a-{number}", url, verdict, at=at, component=generator.choice(("scrapy", "proxy"))
            )
        )
    later = _named("let-go", "https://shop.example/item/7", ALLOWED, at=AT - 50)
    question = msgspec.structs.replace(later.question, deferral=Deferral("put-off", AT - 60))
    every += [
        _named("put-off", "https://shop.example/item/7", PACED, at=AT - 60),
        msgspec.structs.replace(later, question=question),
        _named(
            "by-override", "https://shop.example/item/8", ALLOWED, at=AT - 40, override=EXEMPTION
        ),
        _named("opened", "https://closed.example/", OPENED, at=AT - 30),
        msgspec.structs.replace(
            _named("down", "https://down.example/", UNREACHABLE, at=AT - 20), policy=_down(AT - 25)
        ),
        _named("dropped", "https://shop.example/private/diary?day=1", DISALLOWED, at=AT - 10),
    ]
    every.append(_reserved())
    every += _of_the_day_before(count)
    for each in sorted([*every, *_fetches()], key=lambda each: each.at):
        if isinstance(each, FetchMade):
            log.note(each)
        else:
            log.write(each)
    log.close()


def _of_the_day_before(count: int):
    """Decisions of the 24 hours before the last 24, in which blog.example refused nothing."""
    for number in range(count // 2):
        host = ("shop", "shop", "news")[number % 3]
        verdict = DISALLOWED if number % 5 == 0 else ALLOWED
        at = AT - 24 * 3600 - 20 * 3600 * number / count
        yield _named(f"b-{number}", f"https://{host}.example/item/{number}", verdict, at=at)


def _reserved():
    """The decision on a response whose site reserves its use."""
    statement = Statement(
        signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noindex", raw="noindex, nofollow"
    )
    terms = msgspec.structs.replace(TERMS, purposes="search")
    verdict = judge_response([statement], ResponseHead(status=200), "mybot", terms, AT)
    made = decision(
        "https://shop.example/item/9",
        verdict,
        at=AT - 15,
        component="scrapy",
        dialect="union",
        response=ResponseRef(status=200, request="by-override"),
    )
    return msgspec.structs.replace(made, id="reserved")


def _fetches():
    """Fetches of robots.txt files: those on which "dropped" and "down" are based, and others.

    That of shop.example changed an hour ago; gone.example lost its file.
    """
    shop, down = (split_url(f"https://{name}.example/")[0] for name in ("shop", "down"))
    brought = Fetched(status=200, body=RULES, tls_verified=True)
    failed = Failed(failure=Failure.DNS, detail="no such host")
    for origin, at, outcome in ((shop, AT - 310.2, brought), (down, AT - 25, failed)):
        get = Get(url=f"{origin}/robots.txt")
        yield FetchMade(
            at=at, origin=origin, get=get, outcome=outcome, via="direct", elapsed=3.001496
        )
    for hours in range(40, 1, -6):
        yield _fetch("https://shop.example", Fetched(status=200, body=EARLIER), hours)
    yield _fetch("https://shop.example", Fetched(status=200, body=RULES), 1)
    yield _fetch("https://shop.example", Fetched(status=200, body=RULES), 0.5)
    yield _fetch("https://gone.example", Fetched(status=200, body=EARLIER), 30)
    yield _fetch("https://gone.example", Fetched(status=404, body=b"no"), 5)
    yield _fetch("https://lost.example", Fetched(status=200, body=LOST), 30)
    yield _fetch("https://lost.example", Fetched(status=200, body=RULES), 4)


def _fetch(origin: str, outcome: Fetched, hours: float) -> FetchMade:
    return FetchMade(
        at=AT - hours * 3600,
        origin=split_url(f"{origin}/")[0],
        get=Get(url=f"{origin}/robots.txt"),
        outcome=outcome,
        via="direct",
        elapsed=0.1,
    )


def _named(identity, url, verdict, *, at, component="scrapy", **values):
    return msgspec.structs.replace(
        decision(url, verdict, at=at, component=component, **values),
        id=identity,
        policy=policy(url, at=at - 300),
        dialect="rfc9309",
        matching="standard",
        elapsed=(at % 9) * 1e-5,
    )


def plant(audit_log: Path) -> None:
    """Write a file as an attacker with write access could; robots_guard's writers never write such a line."""
    digest = hashlib.sha256(RULES).hexdigest()
    line = {
        "kind": "decision",
        "schema": 1,
        "at": "2027-01-15T07:59:59.000Z",
        "id": "evil<script>alert(4)</script>",
        "agent": "<b>bold</b>",
        "user_agent": "\x1b]0;owned\x07",
        "method": "G<E>T",
        "url": HOSTILE + "a" * 100_000,
        "origin": "https://evil.example",
        "action": "drop\u202e<i>",
        "reason": "<u>because</u>",
        "rule": HOSTILE_RULE,
        "line": 3,
        "group": "\u202eevil",
        "sha256": digest,
        "detail": "<svg onload=alert(5)>",
        "override": "<q>",
        "seq": 1,
        "writer": "w<w>",
        "component": "\x00",
    }
    common = {"schema": 1, "writer": "w<w>/../x", "component": "scrapy"}
    formula = common | {
        "kind": "decision",
        "at": "2027-01-15T07:59:00.000Z",
        "id": HEADER_ID,
        "agent": "=cmd|' /C calc'!A0",
        "job": "@SUM(1)",
        "url": "https://evil.example/formula",
        "origin": "https://evil.example",
        "action": "pass",
        "reason": "+1",
        "rule": "-2\r\n=3",
        "method": "\tX",
        "fetched_at": "2027-01-15T07:58:00.000Z",
        "status": 200,
        "seq": 2,
    }
    fetch = common | {
        "kind": "fetch",
        "at": "2027-01-15T07:58:00.000Z",
        "origin": "https://evil.example",
        "url": HOSTILE,
        "via": "<i>via</i>",
        "location": "javascript:alert(8)",
        "status": 200,
        "sha256": "../../../etc/passwd",
        "warc_id": "<urn:uuid:1>\r\nX: <script>alert(9)</script>",
        "warc_file": "../../../../etc/passwd",
        "seq": 3,
    }
    lines = b"\n".join(map(msgspec.json.encode, (line, formula, fetch)))
    (audit_log / "planted.jsonl").write_bytes(lines + b"\n{torn\n")
