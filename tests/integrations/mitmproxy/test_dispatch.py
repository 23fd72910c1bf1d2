"""Hooks are dispatched without a task where none of their handlers waits."""

from __future__ import annotations

import asyncio
import logging

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded
from integrations.mitmproxy.wire import connected, read_answer, request_fields, tunnel
from mitmproxy.exceptions import AddonHalt
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook
from mitmproxy.test import tflow

from robots_guard.mitmproxy.patches.addon_dispatch import cache_handlers

MANY = 400  # more than could be handled by nested calls


class Handler:
    """An addon that notes the calls of its hook."""

    def __init__(self, name, seen, *, waits=False, error=None):
        self.name, self._seen, self._waits, self._error = name, seen, waits, error

    def request(self, flow):
        self._seen.append(self.name)
        if self._waits:
            return self._wait()
        if self._error is not None:
            raise self._error
        return None

    async def _wait(self):
        await asyncio.sleep(0)
        self._seen.append(f"{self.name} waited")
        if self._error is not None:
            raise self._error


class Unhaltable(Handler):
    unhaltable = True


class Updated(Handler):
    def update(self, flows):
        self._seen.append(f"{self.name} updated {len(flows)}")


@pytest.fixture
async def manager():
    addons = Master(Options()).addons
    cache_handlers(addons)
    return addons


async def test_a_hook_without_a_wait_leaves_nothing_to_await(manager):
    seen = []
    manager.add(Handler("a", seen), Updated("b", seen))
    manager.remove(manager.get("b"))
    hook = HttpRequestHook(tflow.tflow())
    assert manager.begin(hook, hook.args()) is None
    await manager.handle_lifecycle(hook)
    assert seen == ["a"]


async def test_a_wait_delays_the_later_handlers(manager):
    seen = []
    manager.add(Handler("a", seen), Handler("b", seen, waits=True), Updated("c", seen))
    hook = HttpRequestHook(tflow.tflow())
    assert manager.begin(hook, hook.args()) is not None
    assert seen == ["a", "b"]
    await manager.handle_lifecycle(hook)
    assert seen == ["a", "b", "b waited", "c", "c updated 1"]


async def test_a_hook_that_was_not_begun_is_called_as_a_whole(manager):
    seen = []
    manager.add(Handler("a", seen, waits=True), Updated("b", seen))
    for _ in range(2):
        await manager.handle_lifecycle(HttpRequestHook(tflow.tflow()))
    assert seen == ["a", "a waited", "b", "b updated 1"] * 2


@pytest.mark.parametrize("waits", [False, True])
async def test_a_halt_skips_the_later_handlers_that_can_be_halted(manager, waits):
    seen = []
    halting = Handler("a", seen, waits=waits, error=AddonHalt())
    manager.add(halting, Handler("b", seen), Unhaltable("c", seen, waits=True))
    await manager.handle_lifecycle(HttpRequestHook(tflow.tflow()))
    assert [each for each in seen if "waited" not in each] == ["a", "c"]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_is_logged_and_stops_no_other_handler(manager, waits, caplog):
    seen = []
    manager.add(Handler("a", seen, waits=waits, error=ValueError("oops")), Handler("b", seen))
    await manager.handle_lifecycle(HttpRequestHook(tflow.tflow()))
    assert seen[-1] == "b"
    assert [
        record.getMessage() for record in caplog.records if record.levelno == logging.ERROR
    ] == ["Addon error: oops"]


@pytest.mark.parametrize(("path", "status"), [("/private/x", 403), ("/open", 200)])
def test_many_pipelined_requests(integration, http_site, path, status):
    """Each is answered in order. The calls for one request do not contain those for the next."""
    head = f"GET {http_site.url}{path} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
    with connected(integration) as connection:
        connection.sendall(head.encode() * MANY)
        assert {read_answer(connection).status for _ in range(MANY)} == {status}


@pytest.mark.parametrize("path", ["/private/x", "/open"])
def test_many_requests_in_one_read_over_http2(integration, https_site, path):
    client = H2Connection(H2Configuration(header_encoding="latin-1"))
    client.initiate_connection()
    streams = {client.get_next_available_stream_id() + 2 * number for number in range(60)}
    for stream in sorted(streams):
        client.send_headers(stream, request_fields(https_site.authority, path), end_stream=True)
    statuses, ended = set(), set()
    with tunnel(integration, https_site.authority, alpn=["h2"]) as connection:
        connection.sendall(client.data_to_send())
        while ended < streams:
            for event in client.receive_data(connection.recv(65536)):
                if isinstance(event, ResponseReceived):
                    statuses.add(dict(event.headers)[":status"])
                elif isinstance(event, DataReceived):
                    size = event.flow_controlled_length
                    client.acknowledge_received_data(size, event.stream_id)
                elif isinstance(event, StreamEnded):
                    ended.add(event.stream_id)
            connection.sendall(client.data_to_send())
    assert statuses == {"403" if path == "/private/x" else "200"}


def test_an_upload_that_expects_to_continue(integration, http_site):
    head = (
        f"POST {http_site.url}/open HTTP/1.1\r\nHost: {http_site.authority}\r\n"
        "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    )
    with connected(integration) as connection:
        connection.sendall(head.encode())
        assert read_answer(connection).status == 100
        connection.sendall(b"abc")
        assert read_answer(connection).status == 200
    assert http_site.origin.received[-1].body == b"abc"
