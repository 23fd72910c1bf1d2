"""The Python API, asked about scripted origins."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from support.audit_log import decisions
from support.waiting import eventually, until

import robots_guard
from robots_guard.audit.read.reader import Filter, entries
from robots_guard.decisions.pacing import MAX_TURN_AGE
from robots_guard.testing import RecordingOrigin, Reply

RULES = "User-agent: *\nDisallow: /private/\n"
SLOW = "User-agent: *\nCrawl-delay: {}\n"


@pytest.fixture(autouse=True)
def configured(tmp_path, monkeypatch) -> Path:
    """The directory of the audit log. The store is in memory, and every setting is configured."""
    monkeypatch.setenv("ROBOTS_GUARD_STORE", "memory:")
    monkeypatch.setenv("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path / "audit_log"))
    monkeypatch.setenv("ROBOTS_GUARD_AGENT", "mybot")
    return tmp_path / "audit_log"


@pytest.fixture
def site(net) -> RecordingOrigin:
    return net.origin(RULES)


# -- permissions -----------------------------------------------------------------------------------


async def test_a_permission_is_true_only_for_a_pass(net, site):
    down = net.origin(503)
    async with robots_guard.open("mybot") as guard:
        passed = await guard.can_fetch(f"{site.url}/open")
        dropped = await guard.can_fetch(f"{site.url}/private/x#top")
        deferred = await guard.can_fetch(f"{down.url}/open")

    assert [bool(each) for each in (passed, dropped, deferred)] == [True, False, False]
    assert (passed.reason, passed.rule, passed.wait) == ("allowed", None, None)
    assert (dropped.reason, dropped.rule, dropped.line) == ("disallowed", "Disallow: /private/", 2)
    assert dropped.url == f"{site.url}/private/x"
    assert dropped.decision is not None
    assert dropped.decision.id in str(dropped)
    assert (deferred.action, deferred.reason) == ("defer", "unreachable")
    assert deferred.wait <= 60 < deferred.until
    assert deferred.decision.at < deferred.until


async def test_the_url_of_a_permission_is_the_one_that_was_judged(site):
    async with robots_guard.open("mybot") as guard:
        permission = await guard.can_fetch(f"{site.url}/caf\u00e9?q=%20#x")
        again = await guard.can_fetch(permission.url)

    assert permission.url == again.url == f"{site.url}/caf%C3%A9?q=%20"


async def test_a_permission_that_is_not_awaited_has_no_truth_value(site):
    async with robots_guard.open() as guard:
        with pytest.raises(TypeError, match="if await guard"):
            bool(guard.can_fetch(site.url))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(guard.can_fetch(site.url))
        both = await asyncio.gather(guard.can_fetch(site.url), asyncio.shield(task))

    assert all(both)


@pytest.mark.parametrize(
    "url", ["example.com/x", "localhost:80/x", "http://u:secret@a b/", "http:///"]
)
async def test_a_url_without_an_origin_is_refused_and_recorded(configured, url):
    async with robots_guard.open() as guard:
        permission = await guard.can_fetch(url)

    assert not permission
    assert permission.reason == "malformed-target"
    (record,) = decisions(configured)
    assert "secret" not in str(record)


async def test_what_no_robots_txt_governs_passes_unrecorded(configured):
    async with robots_guard.open() as guard:
        permission = await guard.can_fetch("mailto:someone@example.com")
        with pytest.raises(robots_guard.NotGoverned):
            await guard.admit("mailto:someone@example.com")

    assert permission
    assert permission.reason == "not-governed"
    assert decisions(configured) == []


async def test_passes_are_counted_as_those_of_the_component_python(configured, site):
    async with robots_guard.open() as guard:
        for _ in range(3):
            assert await guard.can_fetch(f"{site.url}/open")

    (count,) = entries(configured, Filter(kind="passes"))
    assert (count.component, count.count) == ("python", 3)
    assert len(site.robots_fetches) == 1


def test_the_configuration_is_read_and_arguments_win(tmp_path, monkeypatch, site):
    monkeypatch.delenv("ROBOTS_GUARD_AGENT")
    file = tmp_path / "mine.toml"
    file.write_text('agent = "filebot"\nmin_delay = 7\n')
    with robots_guard.open_sync(config=str(file)) as guard:
        permission = guard.can_fetch(f"{site.url}/open")
    assert permission.decision.question.agent == "filebot"
    assert permission.delay == 7
    with robots_guard.open_sync("mybot", config=str(file), min_delay=0) as guard:
        assert guard.can_fetch(f"{site.url}/open").delay is None
    with pytest.raises(robots_guard.SettingsError, match="agent"):
        robots_guard.open_sync()


def test_the_version_is_that_of_the_distribution():
    assert robots_guard.__version__ == version("robots_guard")


# -- turns -----------------------------------------------------------------------------------------


async def test_asking_takes_no_turn_and_a_turn_waits(net):
    slow = net.origin(SLOW.format(0.3))
    async with robots_guard.open() as guard:
        for _ in range(5):
            assert (await guard.can_fetch(f"{slow.url}/a")).delay == 0.3
        began = time.monotonic()
        for _ in range(3):
            async with guard.turn(f"{slow.url}/a"):
                pass

    assert time.monotonic() - began >= 0.6


async def test_a_turn_that_does_not_come_within_hold_max_is_an_error_with_its_wait(net, site):
    slow = net.origin(SLOW.format(60))
    async with robots_guard.open(hold_max=0.1) as guard:
        await guard.admit(f"{slow.url}/a")
        with pytest.raises(robots_guard.RequestDeferred) as deferred:
            await guard.admit(f"{slow.url}/a")
        with pytest.raises(robots_guard.RequestDisallowed) as disallowed:
            async with guard.turn(f"{site.url}/private/x"):
                pytest.fail("the request is not allowed")

    assert 55 < deferred.value.retry_after <= 60
    assert deferred.value.decision.verdict.reason == "crawl-delay"
    assert disallowed.value.decision.verdict.rule.line == 2
    assert isinstance(disallowed.value, robots_guard.RequestRefused)


async def test_a_deferral_that_ends_within_hold_max_is_waited_for(configured, site):
    """The repetition is linked to the first deferral, so that `max_defer` counts from there."""
    settings = {"on_disallowed": "defer", "max_defer": 0.3, "hold_max": 20}
    async with robots_guard.open(**settings) as guard:
        with pytest.raises(robots_guard.RequestDisallowed):
            await guard.admit(f"{site.url}/private/x")

    assert [each["action"] for each in decisions(configured)] == ["defer", "drop"]


async def test_a_passage_that_is_used_again_needs_another_turn(net):
    slow = net.origin(SLOW.format(0.3))
    async with robots_guard.open() as guard:
        passage = await guard.admit(f"{slow.url}/a")
        first = passage.decision.turn
        await passage.use()
        await passage.use()

    assert passage.decision.turn.stamp - first.stamp >= 0.3


async def test_a_turn_that_grew_old_while_a_connection_was_made_is_moved_to_now(net):
    slow = net.origin(SLOW.format(60))
    async with robots_guard.open(hold_max=0) as guard:
        passage = await guard.admit(f"{slow.url}/a")
        taken = passage.decision.turn
        await asyncio.sleep(2 * MAX_TURN_AGE)
        await passage.use()

    assert passage.decision.turn.stamp >= taken.stamp + 2 * MAX_TURN_AGE


async def test_a_pause_that_a_site_asks_for_is_kept(site):
    async with robots_guard.open(hold_max=0) as guard:
        async with guard.turn(f"{site.url}/a") as passage:
            await passage.respond(429, "30")
        with pytest.raises(robots_guard.RequestDeferred) as deferred:
            await guard.admit(f"{site.url}/b")

    assert deferred.value.decision.verdict.reason == "retry-after"
    assert 25 < deferred.value.retry_after <= 30


# -- waiting, and the end --------------------------------------------------------------------------


async def test_a_request_that_is_cancelled_leaves_the_queue(net):
    slow = net.origin(SLOW.format(0.5))
    async with robots_guard.open(hold_max=60) as guard:
        await guard.admit(f"{slow.url}/a")
        waiting = [asyncio.ensure_future(guard.admit(f"{slow.url}/a")) for _ in range(20)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        began = time.monotonic()
        await guard.admit(f"{slow.url}/a")

    assert {type(each) for each in ended} == {asyncio.CancelledError}
    assert time.monotonic() - began < 5


async def test_closing_ends_the_requests_that_are_held(net):
    slow = net.origin(SLOW.format(300))
    guard = robots_guard.open(hold_max=300)
    await guard.admit(f"{slow.url}/a")
    held = asyncio.ensure_future(guard.admit(f"{slow.url}/a"))
    await until(lambda: guard.gate.waiting)
    await guard.aclose()

    with pytest.raises(robots_guard.ClosedGuard):
        await held
    with pytest.raises(robots_guard.ClosedGuard):
        await guard.can_fetch(f"{slow.url}/a")


def test_closing_ends_the_requests_that_are_held_in_other_threads(net):
    slow = net.origin(SLOW.format(300))
    guard = robots_guard.open_sync(hold_max=1000)
    guard.admit(f"{slow.url}/a")
    with ThreadPoolExecutor(2) as pool, contextlib.closing(guard):
        held = [pool.submit(guard.admit, f"{slow.url}/a") for _ in range(2)]
        eventually(lambda: guard.gate.waiting == 2)
        guard.close()
        errors = [future.exception(10) for future in held]

    assert {type(error) for error in errors} == {robots_guard.ClosedGuard}
    with pytest.raises(robots_guard.ClosedGuard):
        guard.can_fetch(f"{slow.url}/a")
    guard.close()


async def test_the_twin_works_where_an_event_loop_is_running(site):
    with robots_guard.open_sync() as guard:
        assert guard.can_fetch(f"{site.url}/open")
        assert not guard.can_fetch(f"{site.url}/private/x")


def test_the_twin_is_used_from_many_threads_at_once(site):
    urls = [f"{site.url}/open/{n}" for n in range(50)] + [
        f"{site.url}/private/{n}" for n in range(50)
    ]
    with robots_guard.open_sync() as guard, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda url: bool(guard.can_fetch(url)), urls))

    assert found == [True] * 50 + [False] * 50
    assert len(site.robots_fetches) == 1


def test_a_guard_of_one_event_loop_cannot_be_used_in_another_that_runs(net):
    """What is fetched for both belongs to the first, so that the second would wait for ever."""
    slow = net.origin(lambda _request: Reply(body=RULES, delay=1))
    guard = robots_guard.open("mybot")

    async def ask() -> bool:
        return bool(await guard.can_fetch(f"{slow.url}/open"))

    def ask_in_another_loop() -> bool:
        return asyncio.run(asyncio.wait_for(ask(), 30))

    async def ask_in_both() -> bool:
        first = asyncio.create_task(ask())
        await until(lambda: slow.received)
        with pytest.raises(robots_guard.ClosedGuard, match=r"with robots_guard\.open_sync"):
            await asyncio.to_thread(ask_in_another_loop)
        return await first

    assert asyncio.run(ask_in_both())
    assert asyncio.run(ask())  # one loop after another
    asyncio.run(guard.aclose())


def test_a_guard_that_is_forgotten_ends_its_thread(site):
    def threads() -> int:
        return sum(thread.name == "robots_guard loop" for thread in threading.enumerate())

    before = threads()
    guard = robots_guard.open_sync()
    assert guard.can_fetch(site.url)
    assert threads() == before + 1
    del guard
    eventually(lambda: threads() == before)


async def test_the_other_context_manager_is_refused():
    guard = robots_guard.open()
    with pytest.raises(TypeError, match="async with"), guard:
        pass
    await guard.aclose()


PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
import robots_guard

guard = robots_guard.open_sync("mybot")
assert guard.can_fetch(sys.argv[1] + "/open")
child = os.fork()
if not child:
    try:
        guard.can_fetch(sys.argv[1] + "/open")
    except robots_guard.ClosedGuard as error:
        print(error)
    guard.close()  # does nothing here
    with robots_guard.open_sync("mybot") as other:
        print(bool(other.can_fetch(sys.argv[1] + "/private/x")))
    sys.exit(0)
os.waitpid(child, 0)
assert guard.can_fetch(sys.argv[1] + "/open")
waiting = robots_guard.open("mybot")  # never closed
print("the end")
"""


def test_a_program_that_forks_and_ends_without_closing(configured, site):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, site.url], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    forked, judged, end = done.stdout.splitlines()
    assert "forked" in forked
    assert (judged, end) == ("False", "the end")
    assert time.monotonic() - began < 30
    assert sum(each.count for each in entries(configured, Filter(kind="passes"))) == 2


# -- errors ----------------------------------------------------------------------------------------


async def test_an_error_can_be_handed_to_another_process(site):
    async with robots_guard.open() as guard:
        with contextlib.suppress(robots_guard.RequestRefused):
            await guard.admit(f"{site.url}/private/x")
        with pytest.raises(robots_guard.RequestDisallowed) as raised:
            await guard.admit(f"{site.url}/private/x?password=secret")

    copy = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy)) == (type(raised.value), str(raised.value))
    assert msgspec.structs.asdict(copy.decision) == msgspec.structs.asdict(raised.value.decision)
    assert "secret" not in str(copy)
