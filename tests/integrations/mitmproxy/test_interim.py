"""Interim responses and the final ones after them reach the client."""

from __future__ import annotations

import h2.events
import pytest
from integrations.mitmproxy.test_clients import run
from integrations.mitmproxy.wire import closed, connected, exchange, plain
from mitmproxy import options
from mitmproxy.addons import proxyserver
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import (
    ReceiveHttp,
    RequestEndOfMessage,
    RequestHeaders,
    ResponseData,
    ResponseHeaders,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.http._http2 import Http2Client
from mitmproxy.test import taddons, tflow, tutils

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import ADDON_PATCHES
from robots_guard.mitmproxy.patches.events import Interim
from robots_guard.testing import Reply

FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"
EARLY = (
    b"HTTP/1.1 102 Processing\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nContent-Length: 3\r\nAlt-Svc: h3\r\n\r\n"
    b"HTTP/1.1 103\r\nLink: </b.css>; rel=preload\r\n\r\n"
)
HINTS = ["</a.css>; rel=preload", "</b.css>; rel=preload"]


def heads(printed: str) -> list[list[str]]:
    """The heads that `curl -i` prints before a body, each a list of lines."""
    blocks = printed.replace("\r\n", "\n").split("\n\n")
    return [
        block.split("\n")
        for block in blocks
        if block.startswith("HTTP/") and "Connection established" not in block
    ]


def assert_whole(done, version):
    assert done.stdout.endswith("whole"), done
    assert (done.stderr, done.returncode) == ("", 0)
    found = heads(done.stdout)
    assert [head[0].split()[:2] for head in found] == [
        [version, status] for status in ("102", "103", "103", "200")
    ]
    fields = [line.lower() for head in found[:-1] for line in head[1:]]
    assert fields == [f"link: {hint}" for hint in HINTS]


@pytest.mark.parametrize(("option", "version"), [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")])
def test_an_https_site(integration, sites, option, version):
    site = sites.start("https", pages={"/early": Reply(raw=EARLY + FINAL)})
    done = run(
        "curl",
        integration,
        "-isS",
        option,
        "--cacert",
        str(integration.ca),
        "-m",
        "15",
        site.url + "/early",
    )
    assert_whole(done, version)


def test_an_http_site(integration, sites):
    site = sites.start("http", pages={"/early": Reply(raw=EARLY + FINAL)})
    assert_whole(run("curl", integration, "-isS", "-m", "15", site.url + "/early"), "HTTP/1.1")


def test_an_http2_site(integration, http2_site):
    done = run(
        "curl",
        integration,
        "-isS",
        "--http2",
        "--cacert",
        str(integration.ca),
        "-m",
        "15",
        http2_site.url + "/early",
    )
    assert_whole(done, "HTTP/2")


async def test_in_pieces():
    """However the bytes come in, the reader finds the same heads. The master is mitmproxy's own, without a gate."""
    with taddons.context():
        install_patches(ADDON_PATCHES)
        context = Context(tflow.tclient_conn(), options.Options())
        context.server.state = ConnectionState.OPEN
        client = Http1Client(context)
        found = list(client.handle_event(events.Start()))
        request = tutils.treq(http_version=b"HTTP/1.1", content=None)
        found += client.handle_event(RequestHeaders(1, request, end_stream=True))
        found += client.handle_event(RequestEndOfMessage(1))
        for byte in EARLY + FINAL:
            found += client.handle_event(events.DataReceived(context.server, bytes([byte])))
        received = [each.event for each in found if isinstance(each, ReceiveHttp)]

        interim = [each.response.status_code for each in received if isinstance(each, Interim)]
        final = [
            each.response.status_code for each in received if isinstance(each, ResponseHeaders)
        ]
        body = b"".join(each.data for each in received if isinstance(each, ResponseData))
        assert (interim, final, body) == ([102, 103, 103], [200], b"whole")


@pytest.mark.parametrize(
    "fields",
    [
        [],
        *([(b":status", status)] for status in (b"1x3", b"1", b"101", b"1000")),
        [(b":status", b"103"), (b":path", b"/")],
        [(b":status", b"103")] * 2,
    ],
)
async def test_an_http2_head_that_is_no_interim_response(fields):
    """The hyper-h2 library takes any status that begins with 1 for one. mitmproxy ignores all of them."""
    with taddons.context(proxyserver.Proxyserver()) as master:
        install_patches(ADDON_PATCHES)
        client = Http2Client(Context(tflow.tclient_conn(), master.options))
        # Versions of h2 differ in the arguments it takes.
        event = object.__new__(h2.events.InformationalResponseReceived)
        event.stream_id, event.headers = 1, fields
        assert list(client.handle_h2_event(event)) == []


def test_an_upload_that_waits_for_a_continue(integration, sites):
    """mitmproxy answers the Expect; a site that still sends a 100 does not cause a second one."""
    site = sites.start("http", pages={"/open": Reply(raw=b"HTTP/1.1 100 Continue\r\n\r\n" + FINAL)})
    options = ("-isS", "-m", "15", "-H", "Expect: 100-continue", "-d", "abc")
    done = run("curl", integration, *options, site.url + "/open")
    assert [head[0].split()[1] for head in heads(done.stdout)] == ["100", "200"]
    assert done.stdout.endswith("whole")
    assert site.origin.received[-1].body == b"abc"


def test_an_http_1_0_client(integration, sites):
    site = sites.start("http", pages={"/early": Reply(raw=EARLY + FINAL)})
    with connected(integration) as connection:
        connection.sendall(
            f"GET {site.url}/early HTTP/1.0\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        assert closed(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_without_a_final_response(integration, sites):
    """The client gets the reason, as without the interim response."""
    site = sites.start("http", pages={"/early": Reply(raw=EARLY)})
    with connected(integration) as connection:
        connection.sendall(
            f"GET {site.url}/early HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        received = closed(connection)
    assert received.count(b"HTTP/1.1 103") == 2
    assert b"HTTP/1.1 502 Bad Gateway" in received


def test_an_unreadable_interim_response(integration, sites):
    site = sites.start(
        "http", pages={"/early": Reply(raw=b"HTTP/1.1 103 Early\r\nno field\r\n\r\n" + FINAL)}
    )
    assert plain(integration, site.url + "/early").status == 502


def test_a_connection_that_is_used_again(integration, sites):
    """A site closes its connection after a raw reply, so each request has a site of its own."""
    pages = {"/early": Reply(raw=EARLY + FINAL)}
    with connected(integration) as connection:
        for site in (sites.start("http", pages=pages), sites.start("http", pages=pages)):
            head = f"GET {site.url}/early HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
            statuses = [
                exchange(connection, head).status,
                *(exchange(connection, b"").status for _ in range(3)),
            ]
            assert statuses == [102, 103, 103, 200]
