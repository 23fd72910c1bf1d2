"""`ReplayHandler` sends the requests of replays, and of the proxy's own fetches of robots.txt.

Like any `ConnectionHandler` it logs an exception of a protocol layer and continues, but by a `log`
of its own. The flow never ends, and the fetch of robots.txt waits for it. The replacement ends the
handler (`connection_crashes`).
"""

from __future__ import annotations

from mitmproxy.addons.clientplayback import ReplayHandler

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.connection_crashes import replace_log

PATCH = Patch(
    owner=ReplayHandler,
    methods=(method("log", "99fa0035d5f2", make=replace_log),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A replay whose protocol layer raises never ends; nor would the fetch of a robots.txt.",
    report="""\
Client replay waits forever after "mitmproxy has crashed!".

`ReplayHandler.replay` waits for `done`, which is set by the `response` and `error` hooks. If a
layer raises, neither is called, and no later flow is replayed.

To see it: replay a flow to a site that sends a trailer field after a chunked body, and another
flow.

The report about `ConnectionHandler.server_event` suggests calling `error` for the flows of a
handler that has crashed; that would end the replay, too.
""",
)
