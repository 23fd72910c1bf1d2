"""`ReplayHandler` sends the requests of replays, and of the proxy's own fetches of robots.txt.

Like any `ConnectionHandler` it logs an exception of a protocol layer and continues, but by a `log`
of its own. The flow never ends, and the fetch of robots.txt waits for it. The replacement ends the
handler (`connection_crashes`).

In the mode `upstream`, mitmproxy's layer demands that the client came by this mode, and raises for
a replayed flow that did not. The replacement of `__init__` gives the client the mode by which its
request is sent, by which robots.txt is then fetched, too.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import http
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.options import Options
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.mode_specs import ProxyMode

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.connection_crashes import replace_log

Begins = Callable[[ReplayHandler, http.HTTPFlow, Options], None]


def _replace_init(plain: Begins) -> Begins:
    def __init__(self: ReplayHandler, flow: http.HTTPFlow, options: Options) -> None:  # noqa: N807  (replaces that)
        plain(self, flow, options)
        if self.layer.mode is HTTPMode.upstream:
            # The hooks get the flow's client; the handler's is a copy of it.
            flow.client_conn.proxy_mode = ProxyMode.parse(options.mode[0])
            self.client.proxy_mode = flow.client_conn.proxy_mode

    return __init__


PATCH = Patch(
    owner=ReplayHandler,
    methods=(
        method("log", "99fa0035d5f2", make=replace_log),
        method("__init__", "3830fad55fab", make=_replace_init),
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
)
