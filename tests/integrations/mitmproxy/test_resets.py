"""HTTP/2 clients that cancel requests at once."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest
from h2.stream import H2Stream
from integrations.mitmproxy.wire import closed, request_fields, tunnel
from mitmproxy.addons import proxyserver
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import Http2Server
from mitmproxy.test import taddons, tflow

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import ADDON_PATCHES
from robots_guard.mitmproxy.patches.http2 import BURST, RATE, Allowance

CANCEL = h2.errors.ErrorCodes.CANCEL
TLS_RECORD = 16_384  # bytes at most (RFC 8446 section 5.1)


def flooding(client, fields, streams):
    """The bytes of so many requests, each reset at once."""
    for _ in range(streams):
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, fields, end_stream=True)
        client.reset_stream(stream, CANCEL)
    return client.data_to_send()


@pytest.fixture
def client():
    begun = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1"))
    begun.initiate_connection()
    return begun


@pytest.mark.parametrize("path", ["/open", "/private/x"])
def test_a_flood_ends_its_connection(integration, https_site, client, path):
    before = len(https_site.origin.received)
    with tunnel(integration, https_site.authority, alpn=["h2"]) as connection:
        # One TLS record, and so one write: between two the proxy could close the connection.
        flood = flooding(client, request_fields(https_site.authority, path), 2 * BURST)
        assert len(flood) <= TLS_RECORD
        connection.sendall(flood)
        events = client.receive_data(closed(connection))
    ended = [event for event in events if isinstance(event, h2.events.ConnectionTerminated)]
    assert [event.error_code for event in ended] == [h2.errors.ErrorCodes.ENHANCE_YOUR_CALM]
    judged = [record for record in integration.records() if record["origin"] == https_site.url]
    assert len(judged) <= BURST
    assert len(https_site.origin.received) - before <= BURST


def test_a_browser_that_leaves_a_page_keeps_its_connection(integration, https_site, client):
    """A browser has at most a hundred requests in progress."""
    fields = request_fields(https_site.authority, "/open")
    with tunnel(integration, https_site.authority, alpn=["h2"]) as connection:
        connection.sendall(flooding(client, fields, 100))
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, fields, end_stream=True)
        connection.sendall(client.data_to_send())
        assert answered(connection, client, stream)


def test_a_request_reset_in_the_same_read_is_not_sent(integration, https_site, client):
    fields = request_fields(https_site.authority, "/open")
    with tunnel(integration, https_site.authority, alpn=["h2"]) as connection:
        connection.sendall(flooding(client, fields, 1))
        stream = client.get_next_available_stream_id()
        client.send_headers(stream, request_fields(https_site.authority, "/last"), end_stream=True)
        connection.sendall(client.data_to_send())
        assert answered(connection, client, stream)
    judged = [record for record in integration.records() if record["origin"] == https_site.url]
    assert (len(judged), https_site.origin.targets) == (1, ["/last"])


async def test_a_stream_with_a_response_is_not_counted():
    """Clients that need only the beginning of each response may reset every stream."""
    install_patches(ADDON_PATCHES)
    with taddons.context(proxyserver.Proxyserver()) as context:
        server = Http2Server(Context(tflow.tclient_conn(), context.options))
    server.h2_conn.streams[1] = begun = H2Stream(1, server.h2_conf, 65535, 65535)
    begun.state_machine.headers_sent = True
    ended = [list(server.handle_h2_event(_reset(1))) for _ in range(2 * BURST)]
    assert not any(ended)
    begun.state_machine.headers_sent = False
    server.h2_conn.initiate_connection()
    server.conn.peername = ("192.0.2.1", 1)
    ended = [list(server.handle_h2_event(_reset(1))) for _ in range(2 * BURST)]
    assert [any(each) for each in ended].index(True) >= BURST


def _reset(stream):
    event = h2.events.StreamReset.__new__(h2.events.StreamReset)
    event.stream_id, event.error_code, event.remote_reset = stream, CANCEL, True
    return event


def answered(connection, client, stream):
    """Whether an answer to that stream begins."""
    while data := connection.recv(65536):
        for event in client.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                return False
            if isinstance(event, h2.events.ResponseReceived) and event.stream_id == stream:
                return True
    return False


def test_an_allowance_refills_up_to_the_burst():
    allowance = Allowance(100.0)
    assert sum(allowance.take(100.0) for _ in range(2 * BURST)) == BURST
    assert sum(allowance.take(101.0) for _ in range(2 * BURST)) == int(RATE)
    assert sum(allowance.take(10_000.0) for _ in range(2 * BURST)) == BURST
