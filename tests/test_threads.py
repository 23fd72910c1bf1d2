"""The guard's threads: started as needed, bounded in number, and no obstacle to the end of the
process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from support.stores import in_a_fork
from support.threads import System

from robots_guard.guard.threads import NoThread, Threads, run_within

# A test holds the private `_lock`, as a thread does when its process forks.

HANGS = """
import threading
from robots_guard.{module} import {name} as make
from robots_guard.guard.threads import run_within
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


@pytest.fixture
def system(monkeypatch):
    return System(monkeypatch)


def test_results_and_failures_come_back(threads):
    assert threads.submit(int, "7").result(60) == 7
    with pytest.raises(ValueError, match="no number"):
        threads.submit(int, "no number").result(60)


def test_a_thread_that_is_free_is_used_again(threads):
    names = {threads.submit(lambda: threading.current_thread().name).result(60) for _ in range(20)}
    assert len(names) <= 2  # a thread may still be on its way back from the call before


def test_number_of_threads_is_bounded(threads):
    free = threading.Event()
    calls = [threads.submit(free.wait, 20) for _ in range(50)]
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("test_")]
    free.set()
    assert all(call.result(60) for call in calls)
    assert len(ours) == 3
    assert all(thread.daemon for thread in ours)


def test_a_refused_thread_is_an_error_of_that_call_only(threads, system):
    """After as many refusals as there are threads, all threads are still available."""
    system.refuses = 3
    for _ in range(3):
        with pytest.raises(NoThread, match="can't start new thread"):
            threads.submit(int)
    assert threads.submit(int, "7").result(60) == 7


def test_a_call_that_was_refused_is_not_made_later(threads, system):
    made = []
    system.refuses = 1
    with pytest.raises(NoThread):
        threads.submit(made.append, "refused")
    threads.submit(made.append, "accepted").result(60)
    assert made == ["accepted"]


def test_existing_threads_make_the_calls_of_a_refused_one(threads, system):
    free = threading.Event()
    first = threads.submit(free.wait, 60)
    system.refuses = 1
    second = threads.submit(int, "7")
    free.set()
    assert first.result(60)
    assert second.result(60) == 7


def test_refused_thread_is_requested_again(threads, system):
    """The next call requests it, even if the existing threads never return."""
    free = threading.Event()
    threads.submit(free.wait, 60)
    system.refuses = 1
    queued = threads.submit(int, "7")
    assert threads.submit(int, "8").result(60) == 8
    assert queued.result(60) == 7
    free.set()


NO_PROCESSES = """
import os, resource
from robots_guard.guard.threads import NoThread, Threads
os.setgid(61234)
os.setuid(61234)
threads = Threads(8, "test")
_, hard = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
refused = 0
for _ in range(8):
    try:
        threads.submit(int)
    except NoThread:
        refused += 1
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
print(refused, threads.submit(int, "7").result(60))
"""


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="a limit of processes does not bind root, and only root can be another",
)
def test_a_limit_of_the_system_is_survived():
    program = [sys.executable, "-c", NO_PROCESSES]
    done = subprocess.run(program, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == "8 7\n", done.stderr


def test_a_forked_child_has_threads_of_its_own(threads):
    """The parent's threads are busy as long as the child lives, and one may hold the lock."""
    free, begun = threading.Event(), threading.Semaphore(0)

    def call():
        begun.release()
        return free.wait(60)

    calls = [threads.submit(call) for _ in range(3)]
    for _ in calls:
        assert begun.acquire(timeout=60)
    with threads._lock:
        assert in_a_fork(lambda: threads.submit(int, "7").result(20) == 7)
    free.set()
    assert all(call.result(60) for call in calls)
    assert threads.submit(int, "7").result(60) == 7


def test_a_closed_pool_is_closed_in_a_forked_child_too(threads):
    threads.close()

    def child() -> bool:
        with pytest.raises(NoThread, match="closed"):
            threads.submit(int)
        return True

    assert in_a_fork(child)


def test_closing_refuses_queued_calls(threads):
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
        with pytest.raises(NoThread, match="closed"):
            late.result(60)
    with pytest.raises(NoThread, match="closed"):
        threads.submit(int)


def test_closing_leaves_a_call_that_was_cancelled_alone(threads):
    free = threading.Event()
    calls = [threads.submit(free.wait, 60) for _ in range(4)]
    assert calls[3].cancel()
    threads.close()
    free.set()
    assert calls[3].cancelled()


def test_closing_ends_the_threads(threads):
    threads.submit(int).result(60)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("test_")]
    threads.close()
    for thread in ours:
        thread.join(60)
    assert not any(thread.is_alive() for thread in ours)


def test_run_within_says_whether_the_call_ended_in_time():
    hangs = threading.Event()
    assert run_within(20, lambda: None)
    assert not run_within(0.01, lambda: hangs.wait(60) and None)
    hangs.set()
    with pytest.raises(ZeroDivisionError):
        run_within(20, lambda: 1 // 0 and None)


def test_run_within_calls_directly_where_no_thread_is_available(system):
    system.refuses = 2
    made = []
    assert run_within(20, lambda: made.append(threading.current_thread()))
    assert made == [threading.current_thread()]
    with pytest.raises(ZeroDivisionError):
        run_within(20, lambda: 1 // 0 and None)


@pytest.mark.parametrize(
    ("module", "name", "start"),
    [
        ("guard.threads", "Threads", "make(2, 'test').submit(hang)"),
        ("guard.threads", "run_within", "make(0.1, hang)"),
        ("guard.runtime", "AsyncioRuntime", "threading.Thread(target=__import__('asyncio').run, daemon=True,"
         " args=(make().in_thread(hang),)).start()"),
        ("scrapy.runtime", "TwistedRuntime", "threading.Thread(target=lambda: make().in_thread(hang).send(None),"
         " daemon=True).start()"),
    ],
)  # fmt: skip
def test_a_process_ends_though_a_call_hangs(module, name, start):
    program = HANGS.format(module=module, name=name, start=start)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "hangs\n"), done.stderr
