"""A crash of mitmproxy ends only the connection on which it happened."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from integrations.mitmproxy.process import PATIENCE, SCRIPT
from integrations.mitmproxy.wire import H2Client, closed, connected, plain, request_fields, tunnel
from mitmproxy.addons import proxyserver
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode, HttpRequestHeadersHook, HttpStream
from mitmproxy.proxy.server import ConnectionHandler, ConnectionIO
from mitmproxy.test import taddons, tflow
from support.waiting import eventually

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import ADDON_PATCHES, crashes

# These tests set the private `_CRASH_LOG`, which counts for the whole process, and the `_paused` of
# a layer of mitmproxy.

#: What an addon can do to have mitmproxy's layers raise, at the beginning of a flow and at its end.
BREAKS = """
def requestheaders(flow):
    if "crash-early" in flow.request.path: flow.error = "no error of mitmproxy's"
def response(flow):
    if "crash-late" in flow.request.path: flow.response.data.headers = None
def error(flow):
    print("ended:", flow.request.path, flow.error.msg, flush=True)
"""


@pytest.fixture(scope="module")
def crashing(start, tmp_path_factory):
    script = tmp_path_factory.mktemp("scripts") / "breaks.py"
    script.write_text(BREAKS)
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(script)) as integration:
        yield integration


def request_to(site, target):
    return f"GET {site.url}{target} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()


def printed_since(integration, before, text):
    """Wait for a text in the output since then, and return that output."""
    eventually(lambda: text in "".join(integration.output[before:]))
    return "".join(integration.output[before:])


@pytest.mark.parametrize("target", ["/crash-early", "/crash-late"])
def test_over_http1(crashing, http_site, target):
    """The client sees the end of its connection; one line says why."""
    before = len(crashing.output)
    with connected(crashing) as connection:
        connection.sendall(request_to(http_site, target))
        assert closed(connection) == b""
    assert plain(crashing, http_site.url + "/after").status == 200
    printed = printed_since(crashing, before, "crashed")
    assert printed.count("has crashed; the connection of 127.0.0.1 is closed") == 1
    assert "Traceback" not in printed


def test_its_flow_ends(crashing, http_site):
    before = len(crashing.output)
    with connected(crashing) as connection:
        connection.sendall(request_to(http_site, "/crash-early"))
        closed(connection)
    printed_since(crashing, before, "ended: /crash-early mitmproxy has crashed (AttributeError)")


def test_over_http2(crashing, https_site):
    """The other streams of the connection end with it."""
    with tunnel(crashing, https_site.authority, alpn=["h2"]) as connection:
        assert (
            not H2Client(connection)
            .exchange(request_fields(https_site.authority, "/crash-late"))
            .is_whole
        )
        closed(connection)


# -- the handler by itself ------------------------------------------------------------------------------------


class Crashing(layer.Layer):
    """A layer that crashes at the first bytes."""

    def _handle_event(self, event):
        raise RuntimeError("boom\nboom")


class Handler(ConnectionHandler):
    """A handler whose layer is `Crashing`. `hooks` are the hooks that were called."""

    def __init__(self, settings):
        context = Context(tflow.tclient_conn(), settings)
        super().__init__(context)
        self.layer = Crashing(context)
        self.hooks = []

    async def handle_hook(self, hook):
        self.hooks.append(hook.name)

    async def crash(self):
        await self.server_event(events.DataReceived(self.client, b"x"))


@pytest.fixture
async def settings():
    """mitmproxy's options."""
    with taddons.context(proxyserver.Proxyserver()) as context:
        yield context.options


@pytest.fixture
def handler(settings, monkeypatch):
    install_patches(ADDON_PATCHES)
    monkeypatch.setattr(crashes, "_CRASH_LOG", crashes._CrashLog())
    return Handler(settings)


async def forever():
    await asyncio.Event().wait()


def stream_of(context, flow):
    """A stream of an HTTP layer in that context, with a flow under way."""
    inner = HttpLayer(context, HTTPMode.transparent)
    stream = inner.streams[1] = HttpStream(context.fork(), 1)
    stream.flow = flow
    return stream


async def test_every_connection_is_closed(handler, caplog):
    tasks = [asyncio.ensure_future(forever()) for _ in range(2)]
    connections = [handler.client, tflow.tserver_conn()]
    handler.transports.update(zip(connections, map(ConnectionIO, tasks), strict=True))
    with caplog.at_level(logging.DEBUG):
        await handler.crash()
        await handler.crash()
    await asyncio.wait(tasks)

    assert all(task.cancelled() for task in tasks)
    assert {connection.state for connection in connections} == {ConnectionState.CLOSED}
    logged = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [(record.levelno, record.exc_info) for record in logged] == [(logging.ERROR, None)]
    assert logged[0].getMessage().endswith("(RuntimeError: boom boom)")
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.DEBUG)


async def test_a_task_that_crashes(handler, monkeypatch, caplog):
    """mitmproxy does not catch these; the client would wait forever."""
    waiting = asyncio.ensure_future(forever())
    handler.transports[handler.client] = ConnectionIO(handler=waiting)

    async def fails(hook):
        raise UnicodeError("label too long")

    monkeypatch.setattr(handler, "handle_hook", fails)
    await handler.open_connection(commands.OpenConnection(tflow.tserver_conn()))
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert "UnicodeError: label too long" in caplog.text


async def test_a_connection_is_closed_if_its_client_leaves_meanwhile(handler, monkeypatch):
    """mitmproxy cancels the task that makes it, and would leave it open."""
    closed = asyncio.Event()

    async def serve(reader, writer):
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async def leave(hook):
        if hook.name == "server_connected":
            raise asyncio.CancelledError

    monkeypatch.setattr(handler, "handle_hook", leave)
    site = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with site:
        server = Server(address=site.sockets[0].getsockname())
        with pytest.raises(asyncio.CancelledError):
            await handler.open_connection(commands.OpenConnection(server))
        await asyncio.wait_for(closed.wait(), 10)


async def test_lines_are_bounded(handler, settings, caplog):
    for _ in range(crashes.LINES + 5):
        await Handler(settings).crash()
    assert caplog.text.count("handler of one connection has crashed") == crashes.LINES


async def test_a_crashed_replay_ends(handler, settings, monkeypatch):
    """A robots.txt that is fetched this way must not wait for its deadline."""
    replay = ReplayHandler(tflow.tflow(), settings)
    monkeypatch.setattr(replay, "layer", Crashing(replay.layer.context))
    began = time.monotonic()
    await asyncio.wait_for(replay.replay(), PATIENCE)
    assert time.monotonic() - began < PATIENCE


async def test_a_flow_ends_once(handler):
    flow = tflow.tflow()
    stream_of(handler.layer.context, flow)
    await handler.crash()
    await handler.crash()
    await asyncio.sleep(0)
    assert (handler.hooks, flow.live) == (["error"], False)
    assert flow.error.msg == "mitmproxy has crashed (RuntimeError)"


async def test_a_flow_whose_hook_still_runs_ends_after_it(handler):
    """The hook may grant a permit, which would otherwise outlive the flow."""
    hook = HttpRequestHeadersHook(tflow.tflow())
    stream_of(handler.layer.context, hook.flow)._paused = layer.Paused(hook, iter(()))
    await handler.crash()
    await asyncio.sleep(0)
    assert handler.hooks == []

    await handler.hook_task(hook)
    assert handler.hooks == ["requestheaders"]
    await asyncio.sleep(0)
    assert handler.hooks == ["requestheaders", "error"]


async def test_an_ended_flow_does_not_end_again(handler):
    stream = stream_of(handler.layer.context, tflow.tflow(resp=True))
    stream.server_state = stream.state_done
    await handler.crash()
    await asyncio.sleep(0)
    assert handler.hooks == []
