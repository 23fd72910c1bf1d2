"""An alarm: one call, some seconds after it was set, in a daemon thread of its own."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable


class Alarm:
    """Calls a method `seconds` after `set`; never if they are None. It does not keep the method's
    object alive."""

    def __init__(self, call: Callable[[], None], seconds: float | None) -> None:
        self._call = weakref.WeakMethod(call)
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def set(self) -> None:
        """Set the alarm, unless it is set."""
        if self._seconds is None or self._timer is not None:
            return
        timer = threading.Timer(self._seconds, self._ring)
        timer.name, timer.daemon = "robots_guard-counts", True
        with contextlib.suppress(RuntimeError):  # no thread can be started, as at exit
            timer.start()
            self._timer = timer

    def cancel(self) -> None:
        """Stop the alarm, if it is set; it cannot be set again."""
        self._seconds = None
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        call = self._call()
        if call is not None:
            call()
