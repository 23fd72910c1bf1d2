"""`HttpStream._handle_event` yields a command for each hook of a flow, and is paused until it ends.

For each of them, mitmproxy starts an asyncio task, and its end is an event that passes through all
layers of the connection again. That is a third of the work for a request, and nearly all hooks end
without having waited. The replacement calls the handlers of the four hooks of an ordinary request
at once, and continues if none of them waits. Otherwise the command is yielded as before, and its
task awaits what remains (`addon_dispatch`).

Only a hook that leaves the flow as other layers expect it may end at once. A layer that has
received a message and not yet noted its end must not be asked for the next one, so a hook of an
HTTP/1 client that has sent ahead is yielded, which also bounds the depth of nested calls. So is one
after which the flow is intercepted, has failed, is to be streamed to the site, or has another
response, and each hook of a replay, whose handler does more than to call the addons.
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

_SWITCHING = 101


def _replace_handle_event(plain: Handles) -> Handles:
    def _handle_event(self: HttpStream, event: events.Event) -> Commands:
        steps = plain(self, event)
        reply = None
        while True:
            try:
                command = steps.send(reply)
            except StopIteration:
                return
            reply = None  # that of a hook, too
            if not isinstance(command, Hooks) or not _ends_at_once(self, command):
                reply = yield command

    return _handle_event


def _ends_at_once(stream: HttpStream, hook: Hooks) -> bool:
    """Call the handlers of a hook. Returns False if its command must still be yielded."""
    addons = ctx.master.addons
    if not isinstance(addons, Addons) or not _has_sent_nothing_ahead(stream):
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


def _has_sent_nothing_ahead(stream: HttpStream) -> bool:
    """Whether the client is a live one, and awaits the response before it sends more."""
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
    versions="mitmproxy 11.0.2, 12.2.3",
    reason="Each hook is a task, and its end an event for all layers, though few hooks wait.",
    report="""\
Call the handlers of a hook without a task if none of them waits.

Each of the four hooks of a request starts an asyncio task by `ConnectionHandler.hook_task`, whose
end is an event that passes through all layers of the connection. With the handlers of each hook
cached, that is a third of the CPU time of a request in a mitmdump without addons of its own.

To see it: profile a mitmdump that serves small requests; `server_event` is called five times for
each of them.

`server_event` could call the handlers itself, and start a task only if one of them returns an
awaitable.
""",
)
