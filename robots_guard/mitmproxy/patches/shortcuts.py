"""Shortcuts: replaced methods that only save time, for `robots-guard proxy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mitmproxy import ctx
from mitmproxy.connection import Connection
from mitmproxy.http import MessageData
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import HttpLayer, HttpStream
from mitmproxy.proxy.layers.http._hooks import (
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHeadersHook,
    HttpResponseHook,
)
from mitmproxy.proxy.layers.http._http1 import Http1Server
from mitmproxy.proxy.layers.http._http2 import Http2Server

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.addon_dispatch import Addons

JOINED_BYTES = 64 * 1024  # joining more would copy it, and save little
_SWITCHING = 101  # Switching Protocols: other layers take over the connection

Commands = layer.CommandGenerator[None]
Plain = Callable[..., Commands]
Hooks = HttpRequestHeadersHook | HttpRequestHook | HttpResponseHeadersHook | HttpResponseHook


# -- hooks without a task ------------------------------------------------------------------------


def _run_hooks(self: HttpStream, event: events.Event, *, plain: Plain) -> Commands:
    """Call the handlers of the four hooks of an ordinary request, and continue if none of them waits.

    For each of them, mitmproxy starts an asyncio task. When the task ends, an event passes through
    all layers of the connection again. That is a third of the work for a request, although nearly
    all handlers return without waiting. If one waits, the command of the hook is yielded as before,
    and its task awaits what remains (`addon_dispatch`).

    Invariant: each handler is called once, in mitmproxy's order, and other layers find the flow in
    a state that they expect. The command is therefore also yielded

    - if the client speaks HTTP/1 and has sent more than the request: a layer that has received a
      message and not yet noted its end must not be asked for the next one. This bounds the depth of
      nested calls, too.
    - in a replay, whose handler does more than call the addons
    - if the handlers have intercepted the flow, ended it with an error, let its request be streamed
      to the site, or replaced its response, or if the response is a 101
    """
    steps = plain(self, event)
    reply = None
    while True:
        try:
            command = steps.send(reply)
        except StopIteration:
            return
        reply = None  # mitmproxy's reply to the command of a hook
        if not isinstance(command, Hooks) or not _run_hook(self, command):
            reply = yield command


def _run_hook(stream: HttpStream, hook: Hooks) -> bool:
    """Call the handlers of a hook. Returns whether it has ended; if not, its command must be
    yielded."""
    addons = ctx.master.addons
    if not isinstance(addons, Addons) or not _awaits_response(stream):
        return False
    flow = hook.flow
    response = flow.response
    if addons.begin(hook, [flow]) is not None or flow.intercepted or flow.error is not None:
        return False
    if isinstance(hook, HttpRequestHeadersHook):
        return not flow.request.stream
    if isinstance(hook, HttpRequestHook):
        return True
    assert response is not None  # the hooks of a response
    return flow.response is response and response.data.status_code != _SWITCHING


def _awaits_response(stream: HttpStream) -> bool:
    """Whether the client is a live one and, over HTTP/1, has sent nothing after the request."""
    layers = stream.context.layers
    parent = layers[layers.index(stream) - 1]
    assert isinstance(parent, HttpLayer)
    client = parent.connections.get(stream.context.client)
    if type(client) is Http1Server:  # `isinstance` would search an abstract class
        return not client.buf
    return type(client) is Http2Server


# -- joined writes -------------------------------------------------------------------------------


def join_writes(self: HttpLayer, event: events.Event, *, plain: Plain) -> Commands:
    """Join what one event sends to the same connection.

    mitmproxy writes each head, body and frame to the socket separately; with TLS, each is a record.
    It handles an event without a pause, so nothing is sent noticeably later. Everything joined is
    sent before any other command, except for `Log`.

    Invariant: each connection gets the same bytes as from mitmproxy, in the same order relative to
    the commands that have an effect on connections, hooks and timers.
    """
    collected: dict[Connection, bytearray] = {}
    for command in plain(self, event):
        if isinstance(command, commands.SendData) and len(command.data) < JOINED_BYTES:
            data = collected.setdefault(command.connection, bytearray())
            data += command.data
            if len(data) < JOINED_BYTES:
                continue
            command = commands.SendData(command.connection, bytes(data))
            del collected[command.connection]
        elif collected and not isinstance(command, commands.Log):
            yield from _flush(collected)
        yield command
    yield from _flush(collected)


def _flush(collected: dict[Connection, bytearray]) -> Iterator[commands.SendData]:
    for connection, data in collected.items():
        yield commands.SendData(connection, bytes(data))
    collected.clear()


# -- messages ------------------------------------------------------------------------------------


def _accept_fields(_message: MessageData, *, plain: Callable[..., None]) -> None:
    """Assert no types of fields, as if there were the option `python -O`."""


PATCHES = (
    Patch(
        owner=MessageData,
        methods=(method("__post_init__", "f65088e210cd", new=_accept_fields),) if __debug__ else (),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="Assertions of the types of fields take a fifth of a request's CPU time.",
        report="""\
The type assertions of `MessageData` take a fifth of the CPU time of a request.

`MessageData.__post_init__` calls `check_option_type` for each field of each message, which
inspects the annotations every time.

To see it: profile a mitmdump that serves small requests, with and without `python -O`.

`isinstance` with types that are computed once per class would cost little. Or the check could be
left to the tests.
""",
    ),
    Patch(
        owner=HttpStream,
        methods=(method("_handle_event", "e3cbfef7310a", new=_run_hooks),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="Each hook costs a task and an event for all layers, although few handlers wait.",
        report="""\
Call the handlers of a hook without a task if none of them waits.

For each of the four hooks of a request, `ConnectionHandler.server_event` starts an asyncio task
(`hook_task`). When it ends, an event passes through all layers of the connection. Even if the
handlers of each hook are cached, that is a third of the CPU time of a request in a mitmdump
without addons of its own.

To see it: profile a mitmdump that serves small requests; `server_event` is called five times for
each of them.

`server_event` could call the handlers itself, and start a task only if one of them returns an
awaitable.
""",
    ),
    Patch(
        owner=HttpLayer,
        methods=(method("handle_event", "fd88b0fb09ce", new=join_writes),),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="Each head, body and frame is written by a separate system call, as a separate TLS record.",
        report="""\
Join what one event sends to a connection.

`HttpLayer` yields a `SendData` for each head, body and frame, and `ConnectionHandler.server_event`
writes each separately: a small response takes two system calls, and 64 requests that arrive in one
read of an HTTP/2 connection take 64 to the site and 128 to the client. With TLS, each is a record.

To see it: count the calls of `send` with strace while a mitmdump serves small requests.

`server_event` could collect what goes to each connection, and write it before the next command of
another kind and at the end of the event.
""",
    ),
)
