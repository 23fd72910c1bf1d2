"""Threads for calls that block, and that may never return: a disk or a server can hang.

These are daemon threads, unlike those of `concurrent.futures.ThreadPoolExecutor`, which the interpreter joins before
it exits: with those, a process with a hung call would survive SIGTERM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


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


class Threads:
    """At most `count` daemon threads, each started when a call finds the others busy."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: SimpleQueue[_Submitted | None] = SimpleQueue()  # None ends a thread
        self._lock = threading.Lock()
        self._started = 0
        self._under_way = 0  # calls that have not ended
        self._is_closed = False

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call the function in a thread, once one is free. Raises RuntimeError when closed."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the guard is closed: its threads make no calls")
            self._under_way += 1
            starts = self._started < min(self._under_way, self._count)
            self._started += starts
            number = self._started
            self._calls.put(_Submitted(future, function, args))
        if starts:
            threading.Thread(target=self._serve, name=f"{self._name}_{number}", daemon=True).start()
        return future

    def close(self) -> None:
        """Make no more calls: those that have not begun are cancelled, those under way are not waited for."""
        with self._lock:
            self._is_closed = True
            while not self._calls.empty():
                call = self._calls.get()
                if call is not None:
                    call.future.cancel()
            for _ in range(self._started):
                self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            with self._lock:
                self._under_way -= 1
            del call  # an idle thread keeps nothing alive


def ends_within(seconds: float, function: Callable[[], None]) -> bool:
    """Call the function in its own thread. Returns whether it ended in time; raises what it raised."""
    done: Future[None] = Future()
    call = _Submitted(done, function, ())
    thread = threading.Thread(target=call.run, name="robots_guard closing", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done.done():
        return False
    done.result()
    return True
