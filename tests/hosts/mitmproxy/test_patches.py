"""The replaced methods of mitmproxy have known sources: a change of one fails here."""

from __future__ import annotations

import hashlib
import inspect

import pytest
from mitmproxy.addons import proxyserver
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.test import taddons

from robots_guard.mitmproxy import patches
from robots_guard.mitmproxy.patches import clients, crashes, interim, received_bytes, resets, streams, trailers

#: First digits of the SHA-256 of each function's source, in mitmproxy 11.0.2 and 12.2.3. If one differs: read what has
#: changed, see whether the patch is still right and still needed, and add the digest.
READ = {
    "mitmproxy.addons.clientplayback.ReplayHandler.log": {"99fa0035d5f2"},
    "mitmproxy.proxy.layers.http.HttpStream.make_server_connection": {"9ed0ff470bbb", "ddc7bc72f4d2"},
    "mitmproxy.proxy.layers.http._http1.Http1Client.send": {"35d961e20d48"},
    "mitmproxy.proxy.layers.http._http1.Http1Connection._handle_event": {"2ac8db3e43ae"},
    "mitmproxy.proxy.layers.http._http1.Http1Server.send": {"f530fe5b569e", "cc218a1337c0"},
    "mitmproxy.proxy.layers.http._http1.make_body_reader": {"9b076acda459"},
    "mitmproxy.proxy.layers.http._http2.Http2Client._handle_event2": {"a3b722b18c3f"},
    "mitmproxy.proxy.layers.http._http2.Http2Client.handle_h2_event": {"ff6f4bd92716"},
    "mitmproxy.proxy.layers.http._http2.Http2Server.handle_h2_event": {"d24a023c678d"},
    "mitmproxy.proxy.layers.http._http3.Http3Client._handle_event": {"94b342097cc2"},
    "mitmproxy.proxy.layers.http._http_h2.BufferedH2Connection.receive_data": {"7dd57c12dc7e"},
    "mitmproxy.proxy.mode_servers.ServerInstance.handle_stream": {"21eea06f208c"},
    "mitmproxy.proxy.server.ConnectionHandler.hook_task": {"9ac797016052"},
    "mitmproxy.proxy.server.ConnectionHandler.log": {"706760d6eecf"},
    "mitmproxy.proxy.server.ConnectionHandler.open_connection": {"5e0b3cbaf7a4"},
    "mitmproxy.proxy.server.ConnectionHandler.wakeup": {"6e42e075ee5f"},
}


@pytest.fixture(scope="module", autouse=True)
def applied():
    for patch in (clients, crashes, interim, received_bytes, resets, streams, trailers):
        patch.apply()


def digest(function) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]


def test_replaced_functions_have_known_sources():
    found = {name: digest(plain) for name, plain in patches.replaced()}
    assert {name: value for name, value in found.items() if value not in READ.get(name, ())} == {}


def test_every_known_function_is_replaced():
    assert {name for name, _ in patches.replaced()} == set(READ)


def test_a_head_is_written_in_one_place_of_each_client():
    """If mitmproxy writes one elsewhere, too, this fails before anything is sent unjudged."""
    for module, writes in ((_http1, "assemble_request_head"), (_http2, "format_h2_request_headers")):
        lines = inspect.getsource(module).splitlines()
        assert len([line for line in lines if f"{writes}(" in line and not line.startswith("def ")]) == 1, module


def test_a_patch_is_applied_once():
    before = crashes.ConnectionHandler.log
    crashes.apply()
    assert crashes.ConnectionHandler.log is before


def test_mitmproxy_still_logs_a_crash():
    """`server_event` cannot be wrapped from outside: what it catches shows in its log only."""
    source = inspect.getsource(crashes.ConnectionHandler.server_event)
    assert 'self.log(f"mitmproxy has crashed!", logging.ERROR, exc_info=True)' in source


def test_mitmproxy_still_lacks_trailers():
    """If it does, the patch can go."""
    from mitmproxy.proxy.layers.http._http1 import Http1Connection

    assert "HTTP trailers are not implemented yet" in inspect.getsource(Http1Connection.read_body)


async def test_options_the_patches_read_exist():
    with taddons.context(proxyserver.Proxyserver()) as context:
        assert {"validate_inbound_headers", "body_size_limit"} <= set(context.options.keys())
