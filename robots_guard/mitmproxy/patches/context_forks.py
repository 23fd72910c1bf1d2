"""`Context.fork` copies the context of a layer for a new one, as for each request.

mitmproxy calls `Context(...)`, which creates a `Server` with a random id, and then replaces that
server by the original's. The replacement copies the four attributes instead.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.proxy.context import Context

from robots_guard.gateway.patch import Patch, method

Forks = Callable[[Context], Context]


def _replace_fork(plain: Forks) -> Forks:
    def fork(self: Context) -> Context:
        if type(self) is not Context:
            return plain(self)
        copy = Context.__new__(Context)
        copy.client, copy.options, copy.server = self.client, self.options, self.server
        copy.layers = self.layers.copy()
        return copy

    return fork


PATCH = Patch(
    owner=Context,
    methods=(
        method("fork", "cad9374a0689", make=_replace_fork),
        method("__init__", "7ee4176662ab"),
    ),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="Each request creates a server object with a random id that is discarded at once.",
    report="""\
Fork a context without a new server.

`Context.fork` calls the constructor, which creates a `Server` and its UUID. Then it replaces this
server by the original's. This happens at least once for each request.

To see it: profile a mitmdump that serves small requests; `Server.__init__` is called for each.

`fork` could copy the attributes.
""",
)
