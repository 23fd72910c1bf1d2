"""An alarm: one call, some seconds after it was set, in a daemon thread of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable


class Alarm:
    """Calls a method some seconds after `set`, unless it is disabled. It does not keep the method's
    object alive."""

    def __init__(self, call: Callable[[], None], *, is_enabled: bool) -> None:
        self._call = weakref.WeakMethod(call)
        self._is_enabled = is_enabled
        self._timer: threading.Timer | None = None

    def set(self, seconds: float) -> None:
        """Set the alarm, unless it is set."""
        if not self._is_enabled or self._timer is not None:
            return
        timer = threading.Timer(seconds, self._ring)
        timer.name, timer.daemon = "robots_guard-counts", True
        self._timer = timer
        try:
            timer.start()
        except RuntimeError:  # no thread can be started, as at exit
            self._timer = None

    def cancel(self) -> None:
        """Stop the alarm, if it is set; it cannot be set again."""
        self._is_enabled = False
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        call = self._call()
        if call is not None:
            call()
