"""Redirects of a robots.txt: another origin's page is fetched only if that origin's rules allow
it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from support.waiting import until

from robots_guard.decisions.access import Failed, Failure, Fetched, Limits
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question
from robots_guard.errors import AuditLogError
from robots_guard.guard import single_flight
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of
from robots_guard.testing import CapturingAuditLog

# These tests read `_renewals`, which has no public face, and replace its `_fetch_for_redirect` to
# cause a fault.

A, B, C = (origin_of(f"https://{name}.test") for name in "abc")
RULES = "User-agent: *\nDisallow: /private/\n"


def file(text: str = RULES, **more) -> Fetched:
    return Fetched(status=200, body=text.encode(), tls_verified=True, **more)


def moved(url: str, **more) -> Fetched:
    return Fetched(status=301, headers={"location": url}, tls_verified=True, **more)


def ask(target: str = "/page", origin=A) -> Question:
    return Question(origin=origin, target=target, agent="mybot")


def fetched_urls(guard: Guard) -> list[str]:
    """The fetched URLs, in order."""
    return [get.url for get in guard.fetcher.gets]


def records_on(guard: Guard, url: str) -> list:
    """The records on a URL."""
    return [record for record in guard.records if record.url == url]


@pytest.fixture
def build(build_guard, tmp_path):
    def build(script, *, shared=False, audit_log=None, **options):
        fetcher = script if isinstance(script, ScriptedFetcher) else ScriptedFetcher(script)
        audit_log = audit_log or CapturingAuditLog()
        store = SqliteStore(tmp_path / "policies.sqlite") if shared else None
        guard = build_guard(fetcher, agent="mybot", store=store, audit_log=audit_log, **options)
        guard.fetcher, guard.records = fetcher, getattr(audit_log, "records", [])
        return guard

    return build


# -- the judgement ------------------------------------------------------------------------------------------


async def test_a_forbidden_page_is_not_fetched_and_the_records_say_why(build):
    guard = build({f"{A}/robots.txt": moved(f"{B}/private/x"), f"{B}/robots.txt": file()})
    decision = await guard.check(ask())
    (target,), (page,) = records_on(guard, f"{B}/private/x"), records_on(guard, f"{A}/page")

    assert fetched_urls(guard) == [f"{A}/robots.txt", f"{B}/robots.txt"]
    assert (decision.verdict.action, decision.verdict.reason) == (Action.DEFER, Reason.UNREACHABLE)
    assert (target.action, target.reason, target.rule) == (
        "drop",
        "disallowed",
        "Disallow: /private/",
    )
    assert (target.robots_txt_of, target.agent) == (str(A), "mybot")
    assert (page.failure, page.detail) == (
        "redirect-disallowed",
        f"redirect-disallowed: disallowed at {B}/private/x",
    )
    assert guard.records.index(target) < guard.records.index(page)


async def test_a_page_that_is_allowed_is_fetched_and_read_for_the_first_origin(build):
    rules = file("User-agent: *\nDisallow: /page\n")
    guard = build(
        {
            f"{A}/robots.txt": moved(f"{B}/shop/a.txt"),
            f"{B}/robots.txt": file(),
            f"{B}/shop/a.txt": rules,
        }
    )
    decision = await guard.check(ask())

    assert fetched_urls(guard) == [f"{A}/robots.txt", f"{B}/robots.txt", f"{B}/shop/a.txt"]
    assert [get.verbatim for get in guard.fetcher.gets] == [False, False, True]
    assert (decision.verdict.action, decision.verdict.reason) == (Action.DROP, Reason.DISALLOWED)
    assert decision.policy.document.url == f"{B}/shop/a.txt"
    assert [(each.action, each.robots_txt_of) for each in records_on(guard, f"{B}/shop/a.txt")] == [
        ("pass", str(A))
    ]
    assert guard.peek(ask("/page", B)).verdict.action is Action.PASS, (
        "its own policy is kept for others, too"
    )


async def test_redirect_to_a_robots_txt_is_not_judged(build):
    guard = build(
        {
            f"{A}/robots.txt": moved(f"{B}/robots.txt"),
            f"{B}/robots.txt": file("User-agent: *\nDisallow: /"),
        }
    )

    assert (await guard.check(ask())).verdict.reason is Reason.DISALLOWED
    assert fetched_urls(guard) == [f"{A}/robots.txt", f"{B}/robots.txt"]
    assert len(guard.records) == 1


@pytest.mark.parametrize(
    "outcome",
    [
        Failed(failure=Failure.DNS),
        Fetched(status=503),
        Fetched(status=403, tls_verified=True),
        moved("file:///etc"),
    ],
)
async def test_redirect_that_cannot_be_judged_is_not_fetched(build, outcome):
    guard = build(
        {f"{A}/robots.txt": moved(f"{B}/open"), f"{B}/robots.txt": outcome, f"{B}/open": file()}
    )
    decision = await guard.check(ask())

    assert decision.verdict.reason is Reason.UNREACHABLE
    assert fetched_urls(guard) == [f"{A}/robots.txt", f"{B}/robots.txt"]
    assert len(records_on(guard, f"{B}/open")) == 1


async def test_the_guards_own_agent_and_the_terms_of_the_target_count(build, tmp_path):
    overrides = tmp_path / "overrides.toml"
    overrides.write_text(
        '[[override]]\nid = "no-b"\norigin = "https://b.test"\naction = "drop"\n'
        'owner = "ann"\nreason = "a test"\nexpires = 2100-01-01\n'
    )
    ours = file("User-agent: mybot\nDisallow: /shop/\n")
    script = {
        f"{A}/robots.txt": moved(f"{B}/shop/a.txt"),
        f"{B}/robots.txt": ours,
        f"{B}/shop/a.txt": file(),
    }
    plain, closed = build(script), build(script, overrides=overrides)
    theirs = Question(origin=A, target="/page", agent="another")

    assert (await plain.check(theirs)).verdict.reason is Reason.UNREACHABLE
    assert records_on(plain, f"{B}/shop/a.txt")[0].reason == "disallowed"
    assert (await closed.check(ask())).verdict.reason is Reason.UNREACHABLE
    assert records_on(closed, f"{B}/shop/a.txt")[0].reason == "blocked"
    assert fetched_urls(closed) == [f"{A}/robots.txt"]


async def test_forbidden_redirect_is_refused_in_report_only_mode_too(build):
    script = {f"{A}/robots.txt": moved(f"{B}/private/x"), f"{B}/robots.txt": file()}
    guard = build(script, report_only=True)
    decision = await guard.check(ask())

    assert (decision.verdict.action, decision.verdict.would) == (Action.PASS, Action.DEFER)
    assert (
        records_on(guard, f"{B}/private/x")[0].action,
        records_on(guard, f"{B}/private/x")[0].would,
    ) == (
        "drop",
        None,
    )
    assert f"{B}/private/x" not in fetched_urls(guard)


async def test_internal_error_stops_the_redirect(build, monkeypatch):
    guard = build(
        {f"{A}/robots.txt": moved(f"{B}/open"), f"{B}/robots.txt": file(), f"{B}/open": file()}
    )
    monkeypatch.setattr(guard._renewals, "_fetch_for_redirect", lambda *_: 1 / 0)
    decision = await guard.check(ask())

    assert decision.verdict.reason is Reason.UNREACHABLE
    assert records_on(guard, f"{B}/open")[0].reason == "internal-error"
    assert f"{B}/open" not in fetched_urls(guard)


async def test_what_cannot_be_recorded_is_not_fetched_where_the_audit_is_required(build):
    class Full(CapturingAuditLog):
        def write(self, decision):
            raise AuditLogError("disk full")

    script = {f"{A}/robots.txt": moved(f"{B}/open"), f"{B}/robots.txt": file(), f"{B}/open": file()}
    strict, lax = (
        build(script, audit_log=Full(), audit_required=True),
        build(script, audit_log=Full()),
    )
    await strict.check(ask())
    await lax.check(ask())

    assert f"{B}/open" not in fetched_urls(strict)
    assert f"{B}/open" in fetched_urls(lax)


async def test_the_fetch_takes_the_turn_of_where_it_goes(build):
    slow = file("User-agent: *\nCrawl-delay: 60\n")
    guard = build(
        {f"{A}/robots.txt": moved(f"{B}/a.txt"), f"{B}/robots.txt": slow, f"{B}/a.txt": file()}
    )
    await guard.check(ask())
    after = await guard.turn(await guard.check(ask("/page", B)))

    assert f"{B}/a.txt" in fetched_urls(guard)
    assert (after.verdict.action, after.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)


@pytest.mark.parametrize("report_only", [False, True])
async def test_a_turn_that_comes_too_late_makes_it_unreachable_for_now(build, report_only):
    slow = file("User-agent: *\nCrawl-delay: 60\n")
    script = {f"{A}/robots.txt": moved(f"{B}/a.txt"), f"{B}/robots.txt": slow, f"{B}/a.txt": file()}
    guard = build(script, report_only=report_only)
    await guard.turn(await guard.check(ask("/page", B)))
    decision = await guard.check(ask())

    assert decision.verdict.reason is Reason.UNREACHABLE
    assert decision.policy.trouble.retry_at - decision.policy.trouble.at > 50
    assert [each.reason for each in records_on(guard, f"{B}/a.txt")] == ["allowed", "crawl-delay"]
    assert f"{B}/a.txt" not in fetched_urls(guard)


# -- from the public to the private -------------------------------------------------------------------------


async def test_redirects_of_a_public_site_stay_public_at_every_hop(build):
    def private(get):
        return (
            Failed(failure=Failure.REFUSED, detail="not public")
            if get.public_only
            else file(public=False)
        )

    script = {
        f"{A}/robots.txt": moved(f"{B}/open", public=True),
        f"{B}/robots.txt": private,
        f"{B}/open": private,
        f"{C}/robots.txt": moved(f"{B}/open", public=False),
    }
    guard = build(script)
    await guard.check(ask())
    public = [(get.url, get.public_only) for get in guard.fetcher.gets]
    refused = records_on(guard, f"{B}/open")
    allowed = await guard.check(ask("/page", C))

    assert public == [(f"{A}/robots.txt", False), (f"{B}/robots.txt", True)]
    assert [each.reason for each in refused] == ["fetcher-failed"]
    assert allowed.verdict.action is Action.PASS, (
        "what the public may not ask for is no trouble of the origin"
    )
    assert (await guard.check(ask("/page", B))).verdict.action is Action.PASS


async def test_cached_policy_does_not_open_private_addresses_to_a_public_site(build):
    """The rules of the private origin are known; its page is still refused, by the address, at its
    own hop."""

    def private(get):
        return (
            Failed(failure=Failure.REFUSED, detail="not public")
            if get.public_only
            else file(public=False)
        )

    script = {
        f"{A}/robots.txt": moved(f"{B}/open", public=True),
        f"{B}/robots.txt": private,
        f"{B}/open": private,
    }
    guard = build(script)
    await guard.check(ask("/page", B))
    decision = await guard.check(ask())

    assert decision.policy.trouble.failure is Failure.REFUSED
    assert [get.public_only for get in guard.fetcher.gets] == [False, False, True]


# -- one level, and no circle -------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "sqlite"])
async def test_two_origins_that_redirect_to_each_other_come_to_an_end(build, shared):
    script = {f"{A}/robots.txt": moved(f"{B}/x"), f"{B}/robots.txt": moved(f"{A}/y")}
    guard = build(script, shared=shared)
    async with asyncio.timeout(60):
        decisions = await asyncio.gather(guard.check(ask()), guard.check(ask("/page", B)))

    assert {decision.verdict.reason for decision in decisions} == {Reason.UNREACHABLE}
    assert {get.url for get in guard.fetcher.gets} == {f"{A}/robots.txt", f"{B}/robots.txt"}
    assert len(guard.fetcher.gets) <= 4


async def test_in_two_processes_too(build):
    """Each process has the lease of one origin while it requests that of the other."""
    both = threading.Barrier(2)

    class Both(ScriptedFetcher):
        async def fetch(self, get):
            if not self.gets:
                await asyncio.to_thread(both.wait, 20)
            return await super().fetch(get)

    script = {f"{A}/robots.txt": moved(f"{B}/x"), f"{B}/robots.txt": moved(f"{A}/y")}
    one, another = build(Both(script), shared=True), build(Both(script), shared=True)
    async with asyncio.timeout(60):
        decisions = await asyncio.gather(one.check(ask()), another.check(ask("/page", B)))

    assert {decision.verdict.reason for decision in decisions} == {Reason.UNREACHABLE}
    assert {url for guard in (one, another) for url in fetched_urls(guard)} == {
        f"{A}/robots.txt",
        f"{B}/robots.txt",
    }


async def test_an_origin_that_comes_back_to_itself_through_another(build):
    script = {
        f"{A}/robots.txt": moved(f"{B}/x"),
        f"{B}/robots.txt": file(),
        f"{B}/x": moved(f"{A}/private/x"),
    }
    guard = build(script)

    assert (await guard.check(ask())).verdict.reason is Reason.UNREACHABLE
    assert fetched_urls(guard) == [f"{A}/robots.txt", f"{B}/robots.txt", f"{B}/x"]
    assert records_on(guard, f"{A}/private/x")[0].reason == "unreachable"


async def test_chain_of_redirects_ends_at_its_first_link(build):
    script = {
        f"{A}/robots.txt": moved(f"{B}/x"),
        f"{B}/robots.txt": moved(f"{C}/y"),
        f"{C}/robots.txt": file(),
    }
    script |= {f"{B}/x": file(), f"{C}/y": file()}
    guard = build(script)
    first = await guard.check(ask())
    before = fetched_urls(guard)
    second = await guard.check(ask("/page", B))

    assert first.verdict.reason is Reason.UNREACHABLE
    assert before == [f"{A}/robots.txt", f"{B}/robots.txt"]
    assert second.verdict.action is Action.PASS, "requested directly, it is one redirect only"
    assert fetched_urls(guard)[2:] == [f"{B}/robots.txt", f"{C}/robots.txt", f"{C}/y"]


async def test_full_fetch_limit_does_not_block_judging_a_redirect(build, monkeypatch):
    """All fetch slots are taken by renewals that need the policy of a redirect target."""
    monkeypatch.setattr(single_flight, "FETCHES", 3)
    shops = [origin_of(f"https://shop{number}.test") for number in range(12)]
    script = {f"{shop}/robots.txt": moved(f"{B}/{shop.host}.txt") for shop in shops}
    script |= {f"{B}/{shop.host}.txt": file() for shop in shops} | {f"{B}/robots.txt": file()}
    guard = build(script)
    async with asyncio.timeout(60):
        decisions = await asyncio.gather(*(guard.check(ask("/private/x", shop)) for shop in shops))

    assert {decision.verdict.reason for decision in decisions} == {Reason.DISALLOWED}
    assert len(guard._renewals._for_redirects) == 0


async def test_redirects_to_one_origin_share_one_fetch_of_its_rules(build):
    shops = [origin_of(f"https://shop{number}.test") for number in range(40)]
    script = {f"{shop}/robots.txt": moved(f"{B}/{shop.host}.txt") for shop in shops}
    script |= {f"{B}/{shop.host}.txt": file() for shop in shops}
    gate = asyncio.Event()

    async def platform(_):
        await gate.wait()
        return file()

    guard = build(script | {f"{B}/robots.txt": platform})
    asking = [asyncio.ensure_future(guard.check(ask("/private/x", shop))) for shop in shops]
    async with asyncio.timeout(60):
        await until(lambda: len(guard.fetcher.gets) == len(shops) + 1)
        gate.set()
        decisions = await asyncio.gather(*asking)

    assert {decision.verdict.reason for decision in decisions} == {Reason.DISALLOWED}
    assert guard.fetcher.counts[f"{B}/robots.txt"] == 1


async def test_a_target_whose_rules_hang_takes_no_longer_than_the_fetch(build):
    gate = asyncio.Event()

    async def hang(_):
        await gate.wait()
        return file()

    script = {f"{A}/robots.txt": moved(f"{B}/x"), f"{B}/robots.txt": hang, f"{B}/x": file()}
    guard = build(script, limits=Limits(connect=0.1, first_byte=0.1, total=0.3))
    async with asyncio.timeout(60):
        decision = await guard.check(ask())
    gate.set()
    await guard.drain()

    assert decision.verdict.reason is Reason.UNREACHABLE
    assert f"{B}/x" not in fetched_urls(guard)
    assert records_on(guard, f"{B}/x")[0].detail == "no robots.txt within the time for a redirect"


async def test_settling_waits_for_the_rules_of_a_target_too(build):
    gate = asyncio.Event()

    async def wait(_):
        await gate.wait()
        return file()

    script = {f"{A}/robots.txt": moved(f"{B}/x"), f"{B}/robots.txt": wait, f"{B}/x": file()}
    guard = build(script)
    asking = asyncio.ensure_future(guard.check(ask()))
    async with asyncio.timeout(60):
        await until(lambda: len(guard.fetcher.gets) == 2)
        settling = asyncio.ensure_future(guard.drain())
        gate.set()
        await settling

    assert (await asking).verdict.action is Action.PASS
    assert guard.fresh_for(B) is not None


async def test_lease_taken_for_a_redirect_is_released(build, tmp_path):
    script = {
        f"{A}/robots.txt": moved(f"{B}/x"),
        f"{B}/robots.txt": Failed(failure=Failure.TIMEOUT),
    }
    await build(script, shared=True).check(ask())
    store = SqliteStore(tmp_path / "policies.sqlite")

    assert store.take(A, "next", time.time(), 35.0)
    assert store.take(B, "next", time.time(), 35.0)
    store.close()
