"""`HttpStream._handle_event` yields a command for each hook of a flow, and continues after the hook.

For each of these commands, mitmproxy starts an asyncio task. When the task ends, an event passes
through all layers of the connection again. That is a third of the work for a request, although
nearly all handlers return without waiting. The replacement itself calls the handlers of the four
hooks of an ordinary request, and continues if none of them waits. Otherwise it yields the command
as before, and the task of the command awaits what remains (`addon_dispatch`).

Invariant: each handler is called once, in mitmproxy's order, and other layers find the flow in a
state that they expect. The command is therefore also yielded

- if the client speaks HTTP/1 and has sent more than the request: a layer that has received a message
  and not yet noted its end must not be asked for the next one. This bounds the depth of nested
  calls, too.
- in a replay, whose handler does more than call the addons
- if the handlers have intercepted the flow, ended it with an error, let its request be streamed to
  the site, or replaced its response, or if the response is a 101
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import ctx
from mitmproxy.proxy import events, layer
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

Commands = layer.CommandGenerator[None]
Handles = Callable[[HttpStream, events.Event], Commands]
Hooks = HttpRequestHeadersHook | HttpRequestHook | HttpResponseHeadersHook | HttpResponseHook

_SWITCHING = 101  # Switching Protocols: other layers take over the connection


def _replace_handle_event(plain: Handles) -> Handles:
    def _handle_event(self: HttpStream, event: events.Event) -> Commands:
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

    return _handle_event


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


PATCH = Patch(
    owner=HttpStream,
    methods=(method("_handle_event", "e3cbfef7310a", make=_replace_handle_event),),
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
)
