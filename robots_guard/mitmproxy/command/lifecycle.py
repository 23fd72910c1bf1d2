"""The start and the end of a proxy that runs as a program."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from mitmproxy.addons import proxyserver
from mitmproxy.master import Master

from robots_guard.errors import SettingsError
from robots_guard.gateway.decision_log import LOGGER as DECISIONS
from robots_guard.mitmproxy.enforcer import Enforcer

_POLL_INTERVAL = 0.05  # seconds


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


class Shutdown:
    """The shutdown that a signal starts: it refuses new requests, and waits at most `timeout` seconds until
    the permitted ones have ended."""

    def __init__(
        self, master: Master, servers: proxyserver.Proxyserver, enforcer: Enforcer, timeout: float
    ) -> None:
        self._master, self._servers, self._enforcer, self._timeout = (
            master,
            servers,
            enforcer,
            timeout,
        )
        self._task: asyncio.Future[None] | None = None

    def begin(self, number: int) -> None:
        """Start the shutdown; a second SIGINT ends the proxy at once."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._end())
        elif number == signal.SIGINT:
            self._master.shutdown()

    async def _end(self) -> None:
        self._enforcer.drain()
        try:
            if any(server.is_running for server in self._servers.servers):
                await self._servers.servers.update([])
            async with asyncio.timeout(self._timeout):
                while self._enforcer.under_way() or _has_unsent(self._servers):  # noqa: ASYNC110  flows can end in many ways
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError:
            return
        finally:
            self._master.shutdown()


def _has_unsent(servers: proxyserver.Proxyserver) -> bool:
    """Whether bytes of a response still wait for the client to read them."""
    transports = (
        each
        for handler in servers.connections.values()
        for each in list(handler.transports.values())
    )
    writers = (transport.writer for transport in transports)
    return any(
        isinstance(each, asyncio.StreamWriter) and each.transport.get_write_buffer_size()
        for each in writers
    )
