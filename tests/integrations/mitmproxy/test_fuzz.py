"""Random heads, through mitmproxy's own parser and the addon's gates.

Whatever comes: no exception leaves a hook, and what may go out is a request that was judged and let pass, whose
names agree and whose target no rule of the site forbids by any reading of it that servers have.
"""

from __future__ import annotations

import socket
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from mitmproxy import connection, ctx, http
from mitmproxy.addons import proxyserver
from mitmproxy.net.http import http1
from mitmproxy.proxy import server_hooks
from mitmproxy.test import taddons, tflow
from support.hooks import finish

from robots_guard.configuration.settings import ProxySettings
from robots_guard.decisions.access import Fetched
from robots_guard.mitmproxy.addon import install
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.service import Service
from robots_guard.origin import parse_authority

# These tests replace the private `_new_fetcher`, and read `_permits`: what is left over has no
# public face.

RULES = b"User-agent: *\nDisallow: /private/\n"
WORDS = [
    b"site.test",
    b"other.test",
    b"/",
    b"private",
    b"x",
    b"..",
    b"%2e",
    b"%2F",
    b":",
    b"80",
    b"@",
    b"?",
    b"#",
    b"\\",
]
PIECE = st.one_of(st.sampled_from(WORDS), st.binary(max_size=3))
PIECES = st.lists(PIECE, max_size=6).map(b"".join)
METHOD = st.one_of(
    st.sampled_from([b"GET", b"HEAD", b"POST", b"OPTIONS", b"CONNECT", b"get"]),
    st.binary(max_size=5),
)
TARGET = st.one_of(
    PIECES,
    PIECES.map(b"/".__add__),
    PIECES.map(b"http://site.test/".__add__),
    PIECES.map(b"http://site.test".__add__),
    st.sampled_from(
        [b"*", b"/private/x", b"/open", b"http://site.test/private/x", b"http://site.test/open"]
    ),
)
VERSION = st.one_of(st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0"]), st.binary(max_size=8))
NAME = st.one_of(
    st.sampled_from([b"Host", b"host", b"User-Agent", b"Upgrade", b"Connection"]),
    st.binary(max_size=6),
)
FIELD = st.tuples(NAME, st.one_of(st.just(b"site.test"), PIECES))


class Nowhere:
    """Every origin has the same robots.txt."""

    via = "nowhere"

    meanwhile = staticmethod(lambda: None)

    async def fetch(self, get):
        self.meanwhile()
        return Fetched(status=200, body=RULES)


@pytest.fixture
def nowhere(monkeypatch):
    """The fetcher of the enforcer: it has no network."""
    fetcher = Nowhere()
    monkeypatch.setattr(Service, "_new_fetcher", lambda service, settings: fetcher)
    return fetcher


@pytest.fixture
async def enforcer(tmp_path, monkeypatch, nowhere):
    def somewhere(host, port, *_, **__):
        return [(2, 1, 6, "", ("8.8.8.8", port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", somewhere)
    with taddons.context(proxyserver.Proxyserver()) as context:
        chosen = ProxySettings(
            agent="mybot", store="memory:", audit_log=str(tmp_path), matching="strict"
        )
        planted = Enforcer(chosen)
        install(planted)
        context.configure(planted)
        planted.running()
        assert planted.fault is None
        yield planted
        planted.done()


def flow_of(line, fields, *, parsed):
    """A flow that mitmproxy parses from these bytes, or one built of them; None if mitmproxy refuses them."""
    flow = tflow.tflow()
    flow.live = True
    if parsed:
        try:
            flow.request = http1.read_request_head(
                [b" ".join(line), *(b": ".join(field) for field in fields)]
            )
        except ValueError:
            return None
    else:
        data = flow.request.data
        data.method, data.path, data.http_version = line
        data.headers = http.Headers(fields)
        data.authority = b""
    request = flow.request
    if not request.data.host or not parsed:
        request.data.host, request.data.port, request.data.scheme = "site.test", 80, b"http"
    return flow


def readings(path):
    """The readings of a target by servers: decoded or not, in any case, dots resolved."""
    for text in (path, unquote_to_bytes(path)):
        parts = []
        for part in text.partition(b"?")[0].replace(b"\\", b"/").split(b"/"):
            parts = (
                parts[:-1]
                if part == b".."
                else [*parts, part]
                if part not in (b"", b".")
                else parts
            )
        yield b"/" + b"/".join(parts).lower() + b"/"


async def through(enforcer, flow):
    await finish(enforcer.requestheaders(flow))
    await finish(enforcer.request(flow))
    data = server_hooks.ServerConnectionHookData(
        connection.Server(address=(flow.request.data.host, flow.request.data.port)),
        flow.client_conn,
    )
    ctx.master.addons.invoke_addon_sync(enforcer, server_hooks.ServerConnectHook(data))
    return data


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(METHOD, TARGET, VERSION), st.lists(FIELD, max_size=4), st.booleans())
@example((b"GET", b"http://site.test/open", b"HTTP/1.1"), [(b"Host", b"site.test")], True)
@example((b"GET", b"/private/x", b"HTTP/1.1"), [(b"Host", b"site.test")], False)
async def test_only_permitted_requests_are_sent(enforcer, caplog, line, fields, parsed):
    flow = flow_of(line, fields, parsed=parsed)
    assume(flow is not None)
    try:
        check(enforcer, flow, await through(enforcer, flow))
        assert "robots_guard failed" not in caplog.text
    finally:
        enforcer.error(flow)
    assert len(enforcer._permits) == len(enforcer._service.guard_or_none.admission) == 0


def check(enforcer, flow, data):
    if flow.response is not None:
        assert flow.response.status_code in (400, 403, 404, 503)
        assert data.server.error
        return
    assert flow.metadata["robots_guard"]["action"] == "pass"
    assert not data.server.error
    for is_http1 in (True, False):
        written = enforcer.write_gate.outgoing(
            flow.request, flow.client_conn, data.server, has_body=False, is_http1=is_http1
        ).data
        hosts = [value for name, value in written.headers.fields if name.lower() == b"host"]
        (named,) = hosts if is_http1 else [written.authority]
        assert parse_authority("http", named.decode()).host == flow.request.data.host
        assert written.path.startswith(b"/")
        assert not any(each.startswith(b"/private/x") for each in readings(written.path)), (
            written.path
        )


async def test_a_request_changed_during_its_judgement_is_judged_again(enforcer, nowhere):
    """Another addon may have a task of its own, and robots.txt takes its time."""
    flow = flow_of((b"GET", b"/open", b"HTTP/1.1"), [(b"Host", b"site.test")], parsed=False)
    nowhere.meanwhile = lambda: setattr(flow.request, "path", "/private/x")
    await finish(enforcer.requestheaders(flow))
    assert flow.response is None
    await finish(enforcer.request(flow))
    assert flow.response.status_code == 403
