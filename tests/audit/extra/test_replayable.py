"""Whatever a guard records as evidence, its bundle verifies: each site under each setting, by a generated log."""

from __future__ import annotations

import asyncio
import io
import time

import msgspec
import pytest
from audit.forgeries import contradictions

from robots_guard.audit.bundle.trust import BundleTrust
from robots_guard.audit.bundle.verification import verify_bundle
from robots_guard.audit.bundle.writer import write_bundle
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import moment
from robots_guard.audit.signing import new_signer
from robots_guard.audit.write.log import FileAuditLog
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.reasons import MEANINGS, Comparison, Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Deferral, Question, Verdict
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import split_url
from robots_guard.ports import Clocks

TDMREP = (
    b'[{"location": "/reserved/", "tdm-reservation": 1}, {"location": "/", "tdm-reservation": 0}]'
)
RULES = "User-agent: *\nDisallow: /private/\nDisallow: /*?q=secret\n"


def text(body: str, status: int = 200, **fields: str) -> Fetched:
    return Fetched(status=status, body=body.encode(), tls_verified=True, headers=fields)


DAY = 86400.0
RESERVED = Fetched(status=200, body=TDMREP, tls_verified=True)
DOWN = Failed(failure=Failure.CONNECT, detail="connection refused")


async def late(get):
    await asyncio.sleep(0.4)
    return text(RULES)


#: What each site answers for its robots.txt; each has a tdmrep.json, too.
SITES = {
    "rules": text(RULES),
    "training": text(f"{RULES}Content-Signal: ai-train=no, search=yes\n"),
    "usage": text(f"{RULES}Content-Usage: train-ai=n\nContent-Usage: /reserved/ search=n\n"),
    "delay": text(f"{RULES}Crawl-delay: 7\n"),
    "rate": text(f"{RULES}Request-rate: 1/11\n"),
    "long": text(f"{RULES}Crawl-delay: 9999\n"),
    "night": text(f"{RULES}Visit-time: 0000-0001\n"),
    "mirror": text("User-agent: *\nDisallow: /forum\nHost: main.example.ru\n"),
    "closed": text("User-agent: *\nDisallow: /\n"),
    "tokens": text("User-agent: Google-Extended\nDisallow: /\n"),
    "odd": text("\ufeffUser-agent: *\nDisallow: /private/ü\nCrawl-delay: soon\n<b>\n"),
    "empty": text(""),
    "none": text("", 404),
    "gone": text("no such page", 410),
    "forbidden": text("", 401),
    "busy": text("", 503, **{"retry-after": "120"}),
    "down": DOWN,
    "behind": DOWN.on_route("127.0.0.1:3128"),
    "unverified": Failed(failure=Failure.TLS, detail="self-signed certificate"),
    "late": late,
    "moved": text("", 301, location="https://rules.test/robots.txt"),
    "led": text("", 301, location="https://rules.test/private/rules.txt"),
    "loop": text("", 302, location="https://loop.test/robots.txt"),
    "large": text(RULES + "# " + "x" * 600_000),
}
#: Settings of one writer each; every one has a purpose but the first.
SETTINGS: list[dict[str, object]] = [
    {},
    *({"purposes": purpose} for purpose in ("search", "tdm", "archive,ai-input")),
    *(
        {"purposes": "ai-train,search", **more}
        for more in (
            {"signals": "record"},
            {"on_unknown": "deny"},
            {"report_only": True},
            {"audit_query": "keep"},
            {"audit_query": "hash"},
            {"audit_query": "drop"},
            {"matching": "strict", "dialect": "google"},
            {"matching": "spec", "dialect": "strictest(rfc9309, yandex)"},
            {"on_restricted": "allow", "on_unreachable": "allow"},
            {"on_unreachable": "drop", "on_disallowed": "defer"},
            {"min_delay": 30.0, "max_delay": 2.0, "visit_time": "ignore"},
            {"dialect": "yandex2003"},
            {"page_dialect": "google", "noindex_action": "follow-only", "content_use": "full"},
        )
    ),
]
OVERRIDES = ('action = "pass"', 'action = "drop"', "max_delay = 1.0", 'dialect = "yandex"',
             'robots_file = "pinned.txt"', 'purposes = "search"', 'on_unreachable = "allow"')  # fmt: skip
USUAL = [name for name in SITES if name not in ("large", "late", "loop", "moved")]
UNDER_OVERRIDES = ("rules", "training", "delay", "none", "down", "closed")
OVERRIDE = """\
[[override]]
id = "for-{0}"
origin = "https://{0}.test"
owner = "jane"
reason = "a test"
expires = 2099-01-01
KEY
"""
TARGETS = (
    "/robots.txt", "/.well-known/tdmrep.json", "/open", "/private/x", "/reserved/x?q=secret&n=2",
    "/%ff//../private/%2e?q=secret", "/private/ü", "/" + "long/" * 600, "/a?x=" + "y" * 3000,
)  # fmt: skip
RESPONSES = (
    (),
    (("crawler-price", "USD 0.01"),),
    (("X-Robots-Tag", "noindex, noai"),),
    (("Content-Usage", "train-ai=n"), ("tdm-reservation", "1")),
    (("X-Robots-Tag", "unavailable_after: 2020-01-01"), ("X-Robots-Tag", "none, " + "x" * 5000)),
)


class Fleet:
    """Guards with a log, a clock and a signing key in common."""

    def __init__(self, folder):
        self.folder, self.log, self.signer = folder, folder / "log", new_signer()
        self.began = self.now = float(int(time.time())) - 20 * DAY
        self.clocks = Clocks(now=lambda: self.now, monotonic=lambda: self.now)

    def guard(self, values, fetcher):
        settings = Settings(
            agent="mybot", audit="evidence", store="memory:", fetch_timeout=0.1, **values
        )
        writing = msgspec.structs.replace(settings.writing("scrapy"), signer=self.signer)
        return Guard(
            settings.guard_options("scrapy", demands_verified=True),
            runtime=AsyncioRuntime(),
            clocks=self.clocks,
            memory=MemoryStore(),
            store=None,
            fetcher=fetcher,
            audit_log=FileAuditLog(self.log, self.clocks, settings.log_options("scrapy"), writing),
        )

    async def crawl(self, values, sites=tuple(SITES), targets=TARGETS):
        """Visit all sites, and again when their robots.txt has expired and cannot be fetched."""
        script = {f"https://{name}.test/robots.txt": answer for name, answer in SITES.items()}
        script |= {f"https://{name}.test/.well-known/tdmrep.json": RESERVED for name in SITES}
        fetcher = ScriptedFetcher(script)
        guard = self.guard(values, fetcher)
        try:
            for name in sites:
                await self._visit(guard, f"https://{name}.test", targets)
            self.now += 2 * DAY
            fetcher.script |= {f"https://{name}.test/robots.txt": DOWN for name in SITES}
            for name in sites:
                await self._visit(guard, f"https://{name}.test", TARGETS[1:4])
            self._refuse(guard)
        finally:
            guard.close()

    async def _visit(self, guard, origin, targets):
        for target in targets:
            self.now += 0.25
            place, found = split_url(f"{origin}{target}")
            if guard.terms(place).action == "pass":  # whose robots.txt is fetched in the background
                await guard.policy(place)
            question = Question(origin=place, target=found, agent="mybot")
            decision = await guard.check(question)
            if decision.verdict.action is Action.PASS:
                decision = await guard.turn(decision)
            if decision.verdict.action is Action.DEFER:
                deferral = Deferral(decision.id, self.now - 1)
                await guard.check(msgspec.structs.replace(question, deferral=deferral))
            if target == "/open":
                await guard.note_pause(place, 5.0)
            for fields in RESPONSES if target == "/open" else ():
                status = 402 if fields and fields[0][0] == "crawler-price" else 200
                head = ResponseHead(status=status, headers=fields)
                verdict = guard.responses.judge(question, head, policy=decision.policy)
                if verdict is not None:
                    guard.responses.record(question, head, verdict, decision.id)

    def _refuse(self, guard):
        """Refuse a request for each reason that an integration may have itself."""
        place, target = split_url("https://rules.test/open")
        question = Question(origin=place, target=target, agent="mybot")
        for reason in Reason:
            if MEANINGS[reason].replay is Comparison.NOTHING or reason is Reason.BYPASSED:
                action = Action.PASS if reason is Reason.BYPASSED else Action.DROP
                guard.decide(question, Verdict(action=action, reason=reason, detail="a test"))

    def verified(self):
        data = io.BytesIO()
        with Search(self.log) as search:
            write_bundle(
                data,
                search,
                Filter(kind=None, since=moment(self.began)),
                documents={}.get,
                now=self.now + 60,
                signer=self.signer,
            )
        return verify_bundle(data.getvalue(), BundleTrust([self.signer.key]))


@pytest.fixture(scope="module")
def verified(tmp_path_factory):
    """The bundle of a log with all decisions, as it is verified."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))

    async def crawl_all():
        await fleet.crawl({"purposes": "ai-train"})
        for values in SETTINGS:
            await fleet.crawl(values, USUAL)
        for number, key in enumerate(OVERRIDES):
            path = fleet.folder / f"overrides-{number}.toml"
            path.write_text("".join(map(OVERRIDE.format, UNDER_OVERRIDES)).replace("KEY", key))
            await fleet.crawl(
                {"overrides": str(path), "purposes": "ai-train"}, UNDER_OVERRIDES, TARGETS[:5]
            )

    (fleet.folder / "pinned.txt").write_text("User-agent: *\nDisallow: /open\nCrawl-delay: 3\n")
    asyncio.run(crawl_all())
    return fleet.verified()


def test_each_decision_is_the_one_that_was_recorded(verified):
    assert [
        (judged.record, replayed.differences)
        for judged, replayed in verified.replayed
        if replayed.differences
    ] == []
    assert contradictions(verified) == []


def test_each_reason_that_depends_on_a_site_is_among_them(verified):
    """So a new reason is replayed, too."""
    replayed = {judged.record.reason for judged, _ in verified.replayed}
    expected = {
        each for each, meaning in MEANINGS.items() if meaning.replay is not Comparison.NOTHING
    }

    assert expected - replayed == set(), "add to SITES a robots.txt for which it is the reason"
    assert any(judged.record.override for judged, _ in verified.replayed)
    assert any(getattr(judged.record, "robots_txt_of", None) for judged, _ in verified.replayed)
