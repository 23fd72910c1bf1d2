"""A request as a gateway reads it."""

from __future__ import annotations

from typing import Any

from robots_guard.gateway.wire import Wire


def wire(**changes: Any) -> Wire:
    """A GET of https://site.test/open, as a client sends it through a CONNECT tunnel, or a variant."""
    usual = Wire(
        method="GET",
        scheme="https",
        host="site.test",
        port=443,
        target="/open",
        version="HTTP/1.1",
        hosts=("site.test",),
        authority="",
        sni="site.test",
        addressed=False,
        user_agents=(),
        coding="",
        clean=True,
        client="192.0.2.1",
    )
    return usual._replace(**changes)
