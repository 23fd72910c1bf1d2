"""`HttpStream.make_server_connection` requests the connection to a site or parent proxy.

Its result may be a CONNECT to the parent proxy, which names the site. mitmproxy does not ask again
whether the request may still be made. The replacement asks the gate of the master first
(`write_check`).
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import HttpStream

from robots_guard.gateway.patch import Patch, method
from robots_guard.mitmproxy.patches.write_check import current_gate, refusal

Connects = Callable[[HttpStream], layer.CommandGenerator[bool]]


def _replace_make_server_connection(plain: Connects) -> Connects:
    def make_server_connection(self: HttpStream) -> layer.CommandGenerator[bool]:
        gate = current_gate()
        objection = None
        if gate is not None:
            objection = gate.objection(self.flow.request, self.context.client)
        if objection is None:
            return (yield from plain(self))
        yield from self.handle_protocol_error(refusal(self.stream_id, objection))
        return False

    return make_server_connection


PATCH = Patch(
    owner=HttpStream,
    methods=(
        method(
            "make_server_connection",
            "9ed0ff470bbb",
            "ddc7bc72f4d2",
            make=_replace_make_server_connection,
        ),
    ),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="No hook can refuse a connection, or the CONNECT to a parent proxy, for what a flow has"
    " become after its last hook.",
    report="""\
Addons cannot check the connection that a request leads to after the `request` hook.

Between the `request` hook and the connection, a flow can change: while it is intercepted, or
because another task has the object. In upstream mode the first bytes are a CONNECT for the new
destination. `server_connect` gets the address of the parent proxy, and not the flow.

To see it: start `mitmdump --mode upstream:...` with an addon that sets `flow.request.host` from a
task that runs 0.1 s after `request`, and delay `server_connect`.

A hook that gets the flow when its connection is requested would help, or the flow as an attribute
of `ServerConnectionHookData`.
""",
)
