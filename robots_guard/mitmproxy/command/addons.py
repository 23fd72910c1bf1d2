"""The addons that only `robots-guard proxy` has: streamed responses, and the check of its start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mitmproxy import http

from robots_guard.errors import SettingsError
from robots_guard.gateway.decision_log import LOGGER as DECISIONS


class Streaming:
    """Forwards responses as they arrive: nothing here reads them, and large files need not fit into memory."""

    name = "robots_guard_streaming"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Stream the response. This changes nothing for one that the guard has made: it is already complete."""
        if flow.response is not None:
            flow.response.stream = True

    def response(self, flow: http.HTTPFlow) -> None:
        """Drop the body of an answered request: reference cycles between layers would keep it much longer."""
        flow.request.data.content = None

    def error(self, flow: http.HTTPFlow) -> None:
        """Drop the body of a request that failed, for the same reason."""
        flow.request.data.content = None


class StartCheck(logging.Handler):
    """Ends the start if an error is logged during it. It replaces mitmproxy's ErrorCheck under the same name."""

    name = "errorcheck"

    def __init__(self, started: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._started = started
        self._errors: list[str] = []
        self._printer = logging.StreamHandler()
        self._printer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._printer.addFilter(_is_guard_warning)
        for handler in (self, self._printer):
            logging.getLogger().addHandler(handler)
        logging.getLogger(DECISIONS).setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line of the message."""
        self._errors.append(record.getMessage().removeprefix("robots_guard: ").partition("\n")[0])

    async def shutdown_if_errored(self) -> None:
        """Raise SettingsError if an error was logged. The master calls this at each step of its start."""
        await asyncio.sleep(0)
        if self._errors:
            raise SettingsError("; ".join(dict.fromkeys(self._errors)))

    def finish(self) -> None:
        """Announce the successful start. From now on errors are printed, too."""
        logging.getLogger().removeHandler(self)
        self._printer.removeFilter(_is_guard_warning)
        self._printer.addFilter(
            lambda record: _is_guard_warning(record) or record.levelno >= logging.ERROR
        )
        self._started()


def _is_guard_warning(record: logging.LogRecord) -> bool:
    if record.name == DECISIONS:
        return True
    return record.name == "robots_guard" and record.levelno == logging.WARNING
