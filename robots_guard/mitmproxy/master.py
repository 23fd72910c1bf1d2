"""Our master: what a program of its own has in mitmdump's place, and how its start is watched."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from mitmproxy import http, master, options, optmanager

from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.dispatch import quicken


class Streaming:
    """Passes answers on as they come: nobody here reads them, and large files need not fit into memory."""

    name = "robots_guard_streaming"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Only what an origin sends; a reply of our own has no more to come."""
        if flow.response is not None:
            flow.response.stream = True

    def response(self, flow: http.HTTPFlow) -> None:
        """Drop the body of a request that was answered: reference cycles between layers free the flow much later."""
        flow.request.data.content = None

    def error(self, flow: http.HTTPFlow) -> None:
        """Drop the body of a request that failed, for the same reason."""
        flow.request.data.content = None


class StartCheck(logging.Handler):
    """What is logged as an error before we run ends the start. Stands in for mitmproxy's ErrorCheck, by its name."""

    name = "errorcheck"

    def __init__(self, started: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._started = started
        self._errors: list[str] = []
        self._printing = logging.StreamHandler()
        self._printing.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._printing.addFilter(_is_our_warning)
        for handler in (self, self._printing):
            logging.getLogger().addHandler(handler)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the sentence."""
        self._errors.append(record.getMessage().removeprefix("robots_guard: ").partition("\n")[0])

    async def shutdown_if_errored(self) -> None:
        """Called by the master at each step of its start. Raises SettingsError."""
        await asyncio.sleep(0)
        if self._errors:
            raise SettingsError("; ".join(dict.fromkeys(self._errors)))

    def finish(self) -> None:
        """The start is over and went well. From now on errors are printed, too."""
        logging.getLogger().removeHandler(self)
        self._printing.removeFilter(_is_our_warning)
        self._printing.addFilter(lambda record: _is_our_warning(record) or record.levelno >= logging.ERROR)
        self._started()


def _is_our_warning(record: logging.LogRecord) -> bool:
    return record.name == "robots_guard" and record.levelno == logging.WARNING


class Options(options.Options):
    """Options that are read as they are. mitmproxy's own copy each value deeply, a dozen times a request."""

    def __getattr__(self, name: str) -> Any:
        """A value that cannot be changed needs no copy."""
        option = self.__dict__.get("_options", {}).get(name)
        if option is not None:
            value = option._default if option.value is optmanager.unset else option.value  # noqa: SLF001  see above
            if type(value) in _IMMUTABLE:
                return value
        return super().__getattr__(name)  # type: ignore[no-untyped-call]  # mitmproxy's has no annotations


_IMMUTABLE = frozenset((bool, int, str, type(None)))


def trust_messages() -> None:
    """mitmproxy asserts the type of each field of each message; this is what `python -O` would leave out."""
    http.MessageData.__post_init__ = lambda _: None  # type: ignore[method-assign]  # a fifth of a request's work


class Master(master.Master):
    """A master whose addons are called by what they handle."""

    def __init__(self, opts: options.Options) -> None:
        super().__init__(opts)
        quicken(self.addons)
