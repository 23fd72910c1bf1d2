"""Threads for calls that block, and that may never return: a disk or a server can hang.

These are daemon threads, unlike those of `concurrent.futures.ThreadPoolExecutor`, which the interpreter joins before
it exits: with those, a process with a hung call would survive SIGTERM.
The system may refuse a thread, and grant one a moment later: a refusal is an error of one call, and of no later one.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_CLOSED = "the guard is closed: its threads make no calls"


class NoThread(RuntimeError):
    """There is no thread for a call, so it has not been made and will not be."""


class _Submitted(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function(*self.args)
        except BaseException as error:  # noqa: BLE001  it is the caller's
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def refuse(self, why: str) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(NoThread(why))


class Threads:
    """At most `count` daemon threads, each started when a call finds the others busy. Usable after a fork, too."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._is_closed = False
        self.begin_in_process()
        _all.add(self)

    def begin_in_process(self) -> None:
        """Begin with what each process has of its own: threads, their queue, and a lock, for a forked child's copy of
        its parent's lock may be held by a thread that the child does not have."""
        self._calls: SimpleQueue[_Submitted | None] = SimpleQueue()  # None ends a thread
        self._lock = threading.Lock()
        self._started = 0
        self._under_way = 0  # calls that have not ended

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call the function in a thread, once one is free. Raises NoThread when closed, and when none serves and the
        system refuses one."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise NoThread(_CLOSED)
            if self._started < min(self._under_way + 1, self._count):
                self._start_one()
            self._under_way += 1
            self._calls.put(_Submitted(future, function, args))
        return future

    def _start_one(self) -> None:
        """Start one more thread. If the system refuses it, those that serve have to do."""
        name = f"{self._name}_{self._started + 1}"
        try:
            start(self._serve, name=name)
        except NoThread:
            if not self._started:
                raise
        else:
            self._started += 1

    def close(self) -> None:
        """Make no more calls: those that have not begun fail with NoThread, those under way are not waited for."""
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
            call.run()
            with self._lock:
                self._under_way -= 1
            del call  # an idle thread keeps nothing alive


_all: weakref.WeakSet[Threads] = weakref.WeakSet()


def _begin_in_child() -> None:
    """A forked child has none of its parent's threads."""
    for threads in list(_all):
        threads.begin_in_process()


os.register_at_fork(after_in_child=_begin_in_child)


def start(function: Callable[..., None], *args: Any, name: str) -> threading.Thread:
    """Call the function in a daemon thread of its own, which has started. Raises NoThread if the system refuses one:
    so what the caller notes of the thread is noted only if there is one."""
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(str(error)) from error
    return thread


def ends_within(seconds: float, function: Callable[[], None]) -> bool:
    """Call the function in its own thread. Returns whether it ended in time; raises what it raised.

    If the system refuses a thread, the call is made in the present one, however long it takes: what it closes may hold
    data that are not written yet.
    """
    done: Future[None] = Future()
    call = _Submitted(done, function, ())
    try:
        start(call.run, name="robots_guard closing").join(seconds)
    except NoThread:
        call.run()
    if not done.done():
        return False
    done.result()
    return True
