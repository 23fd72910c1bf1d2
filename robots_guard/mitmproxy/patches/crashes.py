"""Crashes: an exception in the protocol layers of a connection ends its handler.

`ConnectionHandler.server_event` (mitmproxy/proxy/server.py) runs the layers and carries out their
commands. It logs whatever they raise as "mitmproxy has crashed!", with a traceback, and continues:
the client waits forever, its flows never end, and the next event reaches layers in an unknown
state. `server_event` cannot be wrapped from outside, because it catches the exception itself; so
`log` is replaced. An exception in the tasks that open connections or run hooks is not caught at
all, with the same effect on the client. The handler of a replay, by which the proxy itself fetches
robots.txt, has a `log` of its own.

With these patches, a crash closes the client's connection and those to servers and calls the
`error` hook of each live flow. No further event reaches the layers, so nothing more is sent. One
line is logged, and the traceback at debug level. Only the first ten crashes within a minute are
logged; the next line gives the number of the others.

Invariant: a handler that has crashed sends no more bytes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from mitmproxy import flow as flows
from mitmproxy import http
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.connection import ConnectionState
from mitmproxy.options import Options
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode, HttpStream
from mitmproxy.proxy.layers.http._hooks import HttpErrorHook, HttpResponseHook
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server import ConnectionHandler

from robots_guard.gateway.patch import Patch, method

log = logging.getLogger("robots_guard")

LINES = 10  # per minute
_MINUTE = 60.0  # seconds


def _log_or_end(
    self: ConnectionHandler,
    message: str,
    level: int = logging.INFO,
    exc_info: Any = None,
    *,
    plain: Callable[..., None],
) -> None:
    """Make `log` end the handler if an exception is logged as an error.

    `server_event` logs only crashes so.
    """
    if exc_info and level >= logging.ERROR:
        error = exc_info[1] if isinstance(exc_info, tuple) else sys.exc_info()[1]
        _end_handler(self, error or RuntimeError(message))
    else:
        plain(self, message, level, exc_info)


async def _end_after_error(
    self: ConnectionHandler, *arguments: Any, plain: Callable[..., Awaitable[None]]
) -> None:
    """Make an exception in a task of a handler end it."""
    try:
        await plain(self, *arguments)
    except Exception as error:  # noqa: BLE001  after any error, the client must not wait forever
        _end_handler(self, error)


class _CrashedLayer(layer.Layer):
    """The layer that replaces those of a crashed handler.

    `awaited` are the flows with a running hook, by hook.
    """

    def __init__(
        self, crashed: layer.Layer, awaited: dict[commands.StartHook | None, http.HTTPFlow]
    ) -> None:
        super().__init__(crashed.context)
        self._awaited = awaited

    def handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Ignore the event, unless it is the end of a hook, which ends its flow."""
        if isinstance(event, events.HookCompleted):
            flow = self._awaited.pop(event.command, None)
            if flow is not None:
                yield HttpErrorHook(flow)

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        raise NotImplementedError  # `handle_event` does not call it


def _end_handler(handler: ConnectionHandler, error: BaseException) -> None:
    if isinstance(handler.layer, _CrashedLayer):
        log.debug("robots_guard: a connection's handler has crashed again", exc_info=error)
        return
    _CRASH_LOG.report(handler, error)
    live = list(_live_flows(handler.layer.context.layers))
    handler.layer = _CrashedLayer(
        handler.layer, {hook: flow for flow, hook in live if _is_awaited(hook)}
    )
    _close(handler)
    for flow, hook in live:
        flow.live = False
        if not isinstance(flow.error, flows.Error):
            flow.error = flows.Error(f"mitmproxy has crashed ({type(error).__name__})")
        if hook is None:
            _start(handler.handle_hook(HttpErrorHook(flow)))
    if isinstance(handler, ReplayHandler) and not live:
        handler.done.set()


def _close(handler: ConnectionHandler) -> None:
    for connection, transport in list(handler.transports.items()):
        connection.state = ConnectionState.CLOSED
        if transport.handler is not None:
            transport.handler.cancel("mitmproxy has crashed")
        elif transport.writer is not None:
            transport.writer.close()


def _live_flows(
    layers: Iterable[layer.Layer],
) -> Iterator[tuple[http.HTTPFlow, commands.StartHook | None]]:
    """The flows that have not ended, each with the hook that runs for it."""
    for stream in _streams(layers, set()):
        flow: http.HTTPFlow | None = getattr(stream, "flow", None)  # not set before the first event
        if flow is None or flow.request.method == "CONNECT" or _has_ended(stream):
            continue
        command = stream._paused.command if stream._paused else None  # noqa: SLF001  mitmproxy has no public name
        yield flow, command if isinstance(command, commands.StartHook) else None


def _streams(layers: Iterable[layer.Layer], seen: set[int]) -> Iterator[HttpStream]:
    """All streams, including those inside a tunnel, which is a stream itself."""
    for each in layers:
        if isinstance(each, HttpLayer) and id(each) not in seen:
            seen.add(id(each))
            for stream in each.streams.values():
                yield stream
                yield from _streams(stream.context.layers, seen)


def _has_ended(stream: HttpStream) -> bool:
    """Whether the response hook or the error hook was called.

    This is mitmproxy's own test (`handle_protocol_error`).
    """
    ended = (stream.state_done, stream.state_errored)
    return stream.client_state == stream.state_errored or stream.server_state in ended


def _is_awaited(hook: commands.StartHook | None) -> bool:
    """Whether the flow must be ended after this hook: the response and error hooks end it."""
    return hook is not None and not isinstance(hook, HttpErrorHook | HttpResponseHook)


_running: set[asyncio.Future[None]] = set()


def _start(hook: Any) -> None:
    task = asyncio.ensure_future(hook)
    _running.add(task)
    task.add_done_callback(_running.discard)


class _CrashLog:
    """The log lines about crashes, at a bounded rate."""

    def __init__(self) -> None:
        self._since = -_MINUTE
        self._lines = 0
        self._unlogged = 0

    def report(self, handler: ConnectionHandler, error: BaseException) -> None:
        """Log that one connection's handler has crashed, or count it if too many were logged."""
        log.debug("robots_guard: a connection's handler has crashed", exc_info=error)
        if time.monotonic() - self._since >= _MINUTE:
            self._since, self._lines = time.monotonic(), 0
        if self._lines == LINES:
            self._unlogged += 1
            return
        self._lines += 1
        unlogged = f"; {self._unlogged} more were not logged" if self._unlogged else ""
        self._unlogged = 0
        log.error("%s%s", _message(handler, error), unlogged)


def _message(handler: ConnectionHandler, error: BaseException) -> str:
    peer = handler.client.peername
    client = peer[0] if peer else "a client"
    what = " ".join(str(error).split())[:120]
    return (
        f"robots_guard: mitmproxy's handler of one connection has crashed; the connection of {client}"
        f" is closed ({type(error).__name__}: {what})"
    )


_CRASH_LOG = _CrashLog()


def _begin_replay(
    self: ReplayHandler, flow: http.HTTPFlow, options: Options, *, plain: Callable[..., None]
) -> None:
    """Give the client of a replay the mode by which its request is sent, by which robots.txt is then
    fetched, too.

    In the mode `upstream`, mitmproxy's layer demands that the client came by this mode, and raises
    for a replayed flow that did not.
    """
    plain(self, flow, options)
    if self.layer.mode is HTTPMode.upstream:
        # The hooks get the flow's client; the handler's is a copy of it.
        flow.client_conn.proxy_mode = ProxyMode.parse(options.mode[0])
        self.client.proxy_mode = flow.client_conn.proxy_mode


PATCHES = (
    Patch(
        owner=ConnectionHandler,
        methods=(
            method("log", "706760d6eecf", new=_log_or_end),
            method("open_connection", "5e0b3cbaf7a4", new=_end_after_error),
            method("hook_task", "9ac797016052", new=_end_after_error),
            method("wakeup", "6e42e075ee5f", new=_end_after_error),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="After an exception in a protocol layer, the client waits forever.",
        report="""\
After "mitmproxy has crashed!" the client waits forever, and its flow never ends.

`ConnectionHandler.server_event` logs an exception of a layer and continues. The client's
connection stays open without an answer, neither `response` nor `error` is called for the flow, and
the next event is handled by layers in an unknown state. An exception in `open_connection`,
`hook_task` or `wakeup` is only reported by asyncio, with the same effect.

To see it: send a request whose layer raises, such as one with a trailer field after a chunked body
("HTTP trailers are not implemented yet"), and wait for the response.

`server_event` should close the client's connection and those to servers, set `flow.error` and call
the `error` hook for each live flow, and ignore later events. The three tasks need the same.
""",
    ),
    Patch(
        owner=ReplayHandler,
        methods=(
            method("log", "99fa0035d5f2", new=_log_or_end),
            method("__init__", "3830fad55fab", new=_begin_replay),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A replay whose protocol layer raises never ends; nor would the fetch of a robots.txt.",
        report="""\
Client replay waits forever after "mitmproxy has crashed!".

`ReplayHandler.replay` waits for `done`, which is set by the `response` and `error` hooks. If a
layer raises, neither is called, and no later flow is replayed.

To see it: replay a flow to a site that sends a trailer field after a chunked body, and another
flow. Or replay one in the mode `upstream` that was recorded in the mode `regular`: the assertion
about `proxy_mode` in `HttpLayer._handle_event` fails.

The report about `ConnectionHandler.server_event` suggests calling `error` for the flows of a
handler that has crashed; that would end the replay, too. `ReplayHandler` could set the client's
`proxy_mode` to the mode that it chooses.
""",
    ),
)
