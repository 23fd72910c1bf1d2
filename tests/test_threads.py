"""Threads of our own: as many as are needed, never more than allowed, and none keeps a process from ending."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from robots_guard.threads import Threads, ends_within

HANGS = """
import threading
from robots_guard.{module} import {name} as make
from robots_guard.threads import ends_within
hanging = threading.Event()
def hang():
    hanging.set()
    threading.Event().wait()
{start}
hanging.wait()
print("hangs", flush=True)
"""


@pytest.fixture
def threads():
    made = Threads(3, "test")
    yield made
    made.close()


def test_results_and_failures_come_back(threads):
    assert threads.submit(int, "7").result(60) == 7
    with pytest.raises(ValueError, match="no number"):
        threads.submit(int, "no number").result(60)


def test_a_thread_that_is_free_is_used_again(threads):
    names = {threads.submit(lambda: threading.current_thread().name).result(60) for _ in range(20)}
    assert len(names) <= 2  # a thread may still be on its way back from the call before


def test_there_are_no_more_than_allowed(threads):
    free = threading.Event()
    calls = [threads.submit(free.wait, 20) for _ in range(50)]
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("test_")]
    free.set()
    assert all(call.result(60) for call in calls)
    assert len(ours) == 3
    assert all(thread.daemon for thread in ours)


def test_closing_cancels_what_has_not_begun(threads):
    free, begun = threading.Event(), threading.Semaphore(0)

    def call():
        begun.release()
        return free.wait(60)

    calls = [threads.submit(call) for _ in range(5)]
    for _ in range(3):
        assert begun.acquire(timeout=60)
    threads.close()
    free.set()
    assert [call.result(60) for call in calls[:3]] == [True] * 3
    for late in calls[3:]:
        with pytest.raises(CancelledError):
            late.result(60)
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(int)


def test_closing_ends_the_threads(threads):
    threads.submit(int).result(60)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("test_")]
    threads.close()
    for thread in ours:
        thread.join(60)
    assert not any(thread.is_alive() for thread in ours)


def test_an_end_that_comes_in_time_and_one_that_does_not():
    hangs = threading.Event()
    assert ends_within(20, lambda: None)
    assert not ends_within(0.01, lambda: hangs.wait(60) and None)
    hangs.set()
    with pytest.raises(ZeroDivisionError):
        ends_within(20, lambda: 1 // 0 and None)


@pytest.mark.parametrize(
    ("module", "name", "start"),
    [
        ("threads", "Threads", "make(2, 'test').submit(hang)"),
        ("threads", "ends_within", "make(0.1, hang)"),
        ("runtime", "AsyncioRuntime", "threading.Thread(target=__import__('asyncio').run, daemon=True,"
         " args=(make().in_thread(hang),)).start()"),
        ("scrapy.runtime", "TwistedRuntime", "threading.Thread(target=lambda: make().in_thread(hang).send(None),"
         " daemon=True).start()"),
    ],
)  # fmt: skip
def test_a_process_ends_though_a_call_hangs(module, name, start):
    program = HANGS.format(module=module, name=name, start=start)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "hangs\n"), done.stderr
