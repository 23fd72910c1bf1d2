"""The two runtimes behave alike: work is shared, and cancelling or failing one waiter does not
affect others.

The scenarios run on the asyncio reactor, on epoll and without a reactor, each in a separate
process, because a process can have only one reactor.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from concurrent.futures import Future

import pytest
from integrations.scrapy.crawl import MODES, run_python

from robots_guard.guard.fetch.destinations import lookup

REACTORS = {"asyncio reactor": "asyncio", "epoll reactor": "epoll", "no reactor": "none"}


async def waiters_share_a_result(rt):
    started = []

    async def work():
        started.append(1)
        await rt.sleep(0.05)
        return "done"

    handle = rt.spawn(work())
    before = handle.done()
    answers = [await rt.wait(handle), await rt.wait(handle)]
    return before, answers, handle.done(), len(started)


async def waiters_share_a_failure(rt):
    """In a chain of callbacks, the first waiter would get the exception and the others None."""

    async def work():
        await rt.sleep(0.05)
        raise ValueError("broken")

    async def ask(handle):
        try:
            return await rt.wait(handle)
        except ValueError as error:
            return str(error)

    handle = rt.spawn(work())
    asking = [rt.spawn(ask(handle)) for _ in range(3)]
    return [await rt.wait(one) for one in asking]


async def a_cancelled_waiter_does_not_affect_the_work(rt):
    async def work():
        await rt.sleep(0.2)
        return "done"

    handle = rt.spawn(work())
    waiter = rt.spawn(rt.wait(handle))
    await rt.sleep(0.02)
    rt.cancel(waiter)
    return await rt.wait(handle)


async def waiting_can_time_out(rt):
    async def work():
        await rt.sleep(0.3)
        return "done"

    handle = rt.spawn(work())
    first = await rt.wait_at_most(handle, 0.05)
    second = await rt.wait_at_most(handle, 5)
    third = await rt.wait_at_most(handle, 0)
    return first, second, third, await rt.wait(handle)


async def work_can_be_cancelled(rt):
    from robots_guard.scrapy.runtime import CANCELLED

    seen = []

    async def work():
        try:
            await rt.sleep(30)
        except CANCELLED as error:
            seen.append(type(error).__name__)
            raise

    handle = rt.spawn(work())
    await rt.sleep(0.01)
    rt.cancel(handle)
    await rt.wait_at_most(handle, 5)
    rt.cancel(handle)  # after the end: no effect
    return seen, handle.done()


async def work_that_ends_at_once_is_done(rt):
    async def work():
        return "done"

    handle = rt.spawn(work())
    return await rt.wait(handle), await rt.wait_at_most(handle, 0)


async def threads_are_the_runtimes_own(rt):
    names = await rt.in_thread(lambda: threading.current_thread().name)
    try:
        await rt.in_thread(int, "no number")
    except ValueError as error:
        failure = type(error).__name__
    return (
        names.startswith("robots_guard"),
        failure,
        threading.current_thread() is threading.main_thread(),
    )


async def a_queued_call_fails_when_the_runtime_is_closed(_):
    from robots_guard.guard.runtime import THREADS
    from robots_guard.scrapy.runtime import scrapy_runtime

    rt, free, begun = scrapy_runtime(), threading.Event(), []

    def hang():
        begun.append(1)
        return free.wait(60)

    async def call():
        try:
            return await rt.in_thread(hang)
        except RuntimeError as error:
            return str(error)

    calls = [rt.spawn(call()) for _ in range(THREADS + 1)]
    while len(begun) < THREADS:
        await rt.sleep(0.01)
    rt.close()
    free.set()
    return [await rt.wait(one) for one in calls[-2:]]


async def cancelled_work_of_another_thread_fails(rt):
    from robots_guard.scrapy.runtime import CANCELLED

    work = Future()

    async def wait():
        try:
            await rt.result(work)
        except CANCELLED as error:
            return type(error).__name__

    waiting = rt.spawn(wait())
    await rt.sleep(0.01)
    threading.Thread(target=work.cancel).start()
    await rt.wait_at_most(waiting, 20)
    return await rt.wait(waiting) if waiting.done() else "waits for ever"


async def names_are_resolved_in_separate_threads(rt):
    """More lookups run at once than the pool has threads, and results arrive in the loop's
    thread."""
    together = threading.Barrier(50, timeout=60)

    def getaddrinfo(host, port, *args, **kwargs):
        if host == "nowhere.test":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        together.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    socket.getaddrinfo = getaddrinfo
    lookups = [lookup(f"a{number}.test", 80) for number in range(50)]
    found = [str(address) for each in lookups for address in await rt.result(each)]
    try:
        await rt.result(lookup("nowhere.test", 80))
    except OSError as error:
        failure = type(error).__name__
    return found, failure, threading.current_thread() is threading.main_thread()


async def a_semaphore_is_bounded_and_a_cancelled_waiter_frees_its_place(rt):
    gate, inside, most, may_leave = rt.semaphore(2), [], [], []

    async def work(number):
        await gate.acquire()
        inside.append(number)
        most.append(len(inside))
        while not may_leave:
            await rt.sleep(0.005)
        inside.remove(number)
        gate.release()
        return number

    handles = [rt.spawn(work(number)) for number in range(6)]
    await rt.sleep(0.005)
    rt.cancel(handles[3])
    await rt.wait_at_most(handles[3], 5)
    may_leave.append(True)
    answers = [await rt.wait(handle) for handle in handles if handle is not handles[3]]
    return answers, max(most), len(most)


EXPECTED = {
    waiters_share_a_result: [False, ["done", "done"], True, 1],
    waiters_share_a_failure: ["broken"] * 3,
    a_cancelled_waiter_does_not_affect_the_work: "done",
    waiting_can_time_out: [False, True, True, "done"],
    work_can_be_cancelled: [["CancelledError"], True],
    work_that_ends_at_once_is_done: ["done", True],
    a_semaphore_is_bounded_and_a_cancelled_waiter_frees_its_place: [[0, 1, 2, 4, 5], 2, 5],
    a_queued_call_fails_when_the_runtime_is_closed: [
        True,
        "the guard is closed: its threads make no calls",
    ],
    cancelled_work_of_another_thread_fails: "CancelledError",
    threads_are_the_runtimes_own: [True, "ValueError", True],
    names_are_resolved_in_separate_threads: [["127.0.0.1"] * 50, "gaierror", True],
}


@pytest.mark.parametrize("mode", MODES)
def test_all_runtimes_behave_alike(mode):
    child = run_python(__file__, REACTORS[mode], timeout=60)

    assert "Unhandled" not in child.stderr
    assert "never retrieved" not in child.stderr
    assert json.loads(child.stdout) == {
        scenario.__name__: expected for scenario, expected in EXPECTED.items()
    }


async def _all():
    from robots_guard.scrapy.runtime import scrapy_runtime

    rt = scrapy_runtime()
    results = {scenario.__name__: await scenario(rt) for scenario in EXPECTED}
    rt.close()
    print(json.dumps(results))


def _main(reactor_name):
    if reactor_name == "none":
        asyncio.run(_all())
        return
    from scrapy.utils.reactor import install_reactor

    paths = {
        "asyncio": "asyncioreactor.AsyncioSelectorReactor",
        "epoll": "epollreactor.EPollReactor",
    }
    install_reactor(f"twisted.internet.{paths[reactor_name]}")
    from scrapy.utils.defer import deferred_from_coro
    from twisted.internet import reactor

    reactor.callWhenRunning(lambda: deferred_from_coro(_all()).addBoth(_stop))
    reactor.run()


def _stop(result):
    from twisted.internet import reactor

    if result is not None:
        print(result, file=sys.stderr)
    reactor.stop()


if __name__ == "__main__":
    _main(sys.argv[1])
