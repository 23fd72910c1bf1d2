"""Threads for calls that block and may never return, because a disk or a server can hang.

These are daemon threads. The interpreter joins the threads of
`concurrent.futures.ThreadPoolExecutor` before it exits, so with those a process with a hung call
would survive SIGTERM. The system may refuse a thread and grant one a moment later, so a refusal
fails one call only.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_CLOSED = "the guard is closed: its threads make no calls"


class NoThread(RuntimeError):
    """No thread is available for a call. The call has not been made and will not be."""


class _Submitted(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]

    def run(self) -> Callable[[], None]:
        """Make the call; return a function that sets its outcome in the future."""
        if not self.future.set_running_or_notify_cancel():
            return _deliver_nothing
        try:
            result = self.function(*self.args)
        except BaseException as error:  # noqa: BLE001  raised in the caller
            return partial(self.future.set_exception, error)
        return partial(self.future.set_result, result)

    def run_and_deliver(self) -> None:
        """Make the call, and set its outcome in the future."""
        self.run()()

    def refuse(self, why: str) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(NoThread(why))


def _deliver_nothing() -> None:
    """Do nothing: the call was cancelled."""


class Threads:
    """A pool of at most `count` daemon threads, each started when all others are busy. Usable after
    a fork."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._is_closed = False
        self.reset_after_fork()
        _all.add(self)

    def reset_after_fork(self) -> None:
        """Create the state that each process needs for itself: threads, their queue and a lock.

        A thread of the parent may hold the parent's lock at the fork, and no thread of the child
        would release it.
        """
        self._calls: SimpleQueue[_Submitted | None] = SimpleQueue()  # None ends a thread
        self._lock = threading.Lock()
        self._started = 0
        self._pending = 0  # calls that have not ended

    def allow(self, count: int) -> None:
        """Let the pool have `count` threads, if it may not have more already. Starts none."""
        self._count = max(self._count, count)

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call the function in a thread as soon as one is free.

        Raises NoThread if the pool is closed, or if it has no thread and the system refuses one.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise NoThread(_CLOSED)
            if self._started < min(self._pending + 1, self._count):
                self._start_one()
            self._pending += 1
            self._calls.put(_Submitted(future, function, args))
        return future

    def _start_one(self) -> None:
        """Start one more thread. If the system refuses it, the existing ones must suffice."""
        name = f"{self._name}_{self._started + 1}"
        try:
            start(self._serve, name=name)
        except NoThread:
            if not self._started:
                raise
        else:
            self._started += 1

    def close(self) -> None:
        """Make no more calls: queued ones fail with NoThread, running ones are not waited for."""
        with self._lock:
            self._is_closed = True
            while not self._calls.empty():
                call = self._calls.get()
                if call is not None:
                    call.refuse(_CLOSED)
            for _ in range(self._started):
                self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            deliver = call.run()
            with self._lock:
                self._pending -= 1
            deliver()  # last: it wakes the caller, which need not then compete with this thread
            del call, deliver  # an idle thread must not keep objects alive


_all: weakref.WeakSet[Threads] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    """A forked child has none of its parent's threads."""
    for threads in list(_all):
        threads.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)


def start(function: Callable[..., None], *args: Any, name: str) -> threading.Thread:
    """Start a daemon thread that calls the function. Raises NoThread if the system refuses one."""
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(str(error)) from error
    return thread


def run_within(seconds: float, function: Callable[[], None]) -> bool:
    """Call the function in its own thread. Returns whether it ended in time; raises its exception.

    If the system refuses a thread, the function is called in the current one, however long it
    takes: the file it closes may have unwritten data.
    """
    done: Future[None] = Future()
    call = _Submitted(done, function, ())
    try:
        start(call.run_and_deliver, name="robots_guard closing").join(seconds)
    except NoThread:
        call.run_and_deliver()
    if not done.done():
        return False
    done.result()
    return True
