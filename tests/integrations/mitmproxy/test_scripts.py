"""Beside other addons of a plain mitmdump: those that fail, rewrite, answer, reload and replay."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import time

import pytest
from integrations.mitmproxy.conftest import get, untouched
from integrations.mitmproxy.process import SCRIPT
from integrations.mitmproxy.test_modes import Parent
from integrations.mitmproxy.wire import closed, connected, exchange, inside, plain, tunnel
from mitmproxy import http, io
from mitmproxy.test import tflow
from support.waiting import eventually

RAISES = """
def requestheaders(flow): raise RuntimeError("boom")
def request(flow): raise RuntimeError("boom")
def server_connect(data): raise RuntimeError("boom")
"""

BREAKS_THE_GUARD = """
from mitmproxy import ctx
async def boom(flow): raise RuntimeError("boom")
def running(): ctx.master.addons.get("robots_guard_enforcer")._judge = boom
"""

REWRITES = """
def request(flow):
    if "rewrite-path" in flow.request.query: flow.request.path = "/private/x"
    if "rewrite-target" in flow.request.headers: flow.request.data.port = 9
    if "rewrite-both" in flow.request.headers: flow.request.port = 9
    if "rewrite-host" in flow.request.headers: flow.request.headers["host"] = "elsewhere.test"
"""

ADDS_ITSELF_BEHIND = """
from mitmproxy import ctx
class Behind:
    def request(self, flow):
        if "rewrite-path" in flow.request.query: flow.request.path = "/private/x"
def running(): ctx.master.addons.add(Behind())
"""

JOINS_LATE = """
from mitmproxy import ctx
class Behind:
    def requestheaders(self, flow):
        if flow.request.path == "/open?late": flow.request.path, flow.request.stream = "/private/late", True
        if flow.request.path == "/private/cleared": flow.response, flow.request.stream = None, True
class Plants:
    planted = False
    def plant(self, *_):
        if not self.planted: ctx.master.addons.add(Behind())
        self.planted = True
    {hook} = plant
addons = [Plants()]
"""

HALTS = """
from mitmproxy.exceptions import AddonHalt
def requestheaders(flow):
    if flow.request.path == "/private/halted": raise AddonHalt
"""

HALTS_EVERYTHING = """
import logging
from mitmproxy import ctx
from mitmproxy.exceptions import AddonHalt, OptionsError
def halt(flow):
    if "/private/" in flow.request.path: raise AddonHalt
requestheaders = request = halt
def configure(updated):
    if updated == {"connection_strategy"}: raise AddonHalt
def response(flow):
    try: ctx.options.update(connection_strategy="eager")
    except OptionsError as error: logging.warning(str(error))
"""

STREAMS = """
def requestheaders(flow): flow.request.stream = True
"""

OPENS_TUNNELS = """
from mitmproxy.proxy import layers
def next_layer(nextlayer):
    if nextlayer.data_client().startswith(b"raw"): nextlayer.layer = layers.TCPLayer(nextlayer.context)
def tls_clienthello(data): data.ignore_connection = True
"""

CLEARS = """
def request(flow): flow.response = None
"""


@pytest.fixture
def beside(start, tmp_path):
    """A mitmdump with the guard's script and another, in either order."""

    def begin(text, *options, first=False):
        other = tmp_path / "other.py"
        other.write_text(text)
        scripts = (
            ["-s", str(other), "-s", str(SCRIPT)]
            if first
            else ["-s", str(SCRIPT), "-s", str(other)]
        )
        return start("mitmdump", *scripts, *options)

    return begin


@pytest.mark.parametrize("first", [True, False], ids=["before-the-guard", "after-the-guard"])
def test_an_addon_that_raises(beside, http_site, first):
    with beside(RAISES, first=first) as integration, untouched(integration, http_site):
        assert get(integration, http_site, "/private/x").status == 403


def test_an_exception_of_the_guard_refuses(beside, http_site):
    with beside(BREAKS_THE_GUARD) as integration:
        answer = plain(integration, http_site.url + "/open")
        assert (answer.status, answer.guard) == (503, "drop; reason=internal-error")
        assert b"boom" not in answer.body
    assert http_site.seen()[0] == 0


@pytest.mark.parametrize("first", [True, False], ids=["before-the-guard", "after-the-guard"])
def test_a_path_rewritten_after_it_was_judged(beside, http_site, first):
    with beside(REWRITES, first=first) as integration, untouched(integration, http_site):
        assert get(integration, http_site, "/open?rewrite-path").status == 403


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("rewrite-target", "ambiguous-authority"),
        ("rewrite-host", "ambiguous-authority"),
        # Now it is a request to another origin, which does not answer.
        (
            "rewrite-both",
            "unreachable",
        ),
    ],
)
def test_a_destination_rewritten_after_it_was_judged(beside, http_site, field, reason):
    with beside(REWRITES) as integration, untouched(integration, http_site):
        answer = plain(integration, http_site.url + "/open", fields=f"{field}: 1\r\n")
        assert (answer.status in (403, 503), reason in answer.guard) == (True, True)


def test_an_addon_that_is_added_behind_the_enforcer(beside, http_site):
    with beside(ADDS_ITSELF_BEHIND) as integration, untouched(integration, http_site):
        assert get(integration, http_site, "/open?rewrite-path").status == 403


@pytest.mark.parametrize("hook", ["client_connected", "response", "requestheaders", "next_layer"])
@pytest.mark.parametrize("target", ["/open?late", "/private/cleared"])
def test_an_addon_that_is_added_late_and_streams(beside, http_site, hook, target):
    """On a connection that has had a request already, so that a connection to the origin is open."""
    head = f"POST {http_site.url}{{}} HTTP/1.1\r\nHost: {http_site.authority}\r\nContent-Length: 1\r\n\r\nx"
    with (
        beside(JOINS_LATE.format(hook=hook), first=True) as integration,
        connected(integration) as connection,
    ):
        assert exchange(connection, head.format("/open").encode()).status in (200, 503)
        assert exchange(connection, head.format(target).encode()).status == 403
        assert plain(integration, http_site.url + "/open").status == 200
    assert set(http_site.origin.targets) == {"/open"}


def test_an_addon_that_halts_the_first_hook(beside, http_site):
    with beside(HALTS, first=True) as integration, untouched(integration, http_site):
        assert get(integration, http_site, "/private/halted").status == 403


def test_an_addon_that_halts_every_hook(beside, http_site):
    """On an existing connection to the origin, so that the third gate is skipped, too."""
    head = f"GET {http_site.url}{{}} HTTP/1.1\r\nHost: {http_site.authority}\r\n\r\n"
    with beside(HALTS_EVERYTHING, first=True) as integration, connected(integration) as connection:
        assert exchange(connection, head.format("/open").encode()).status == 200
        assert exchange(connection, head.format("/private/halted").encode()).status == 403
        assert any("connection_strategy=eager bypasses" in line for line in integration.output)
    assert http_site.origin.targets == ["/open"]


def test_an_addon_that_removes_the_refusal(beside, http_site):
    with beside(CLEARS) as integration, untouched(integration, http_site):
        assert get(integration, http_site, "/private/x").status == 403


def test_an_addon_that_opens_tunnels(beside, http_site, https_site):
    """Only the gate at the connection is left to see these."""
    with beside(OPENS_TUNNELS) as integration:
        with (
            untouched(integration, http_site),
            tunnel(integration, http_site.authority, tls=False) as connection,
        ):
            connection.sendall(b"raw bytes")
            connection.shutdown(socket.SHUT_WR)
            closed(connection)
        with tunnel(integration, https_site.authority, tls=False) as connection:
            hello = ssl.create_default_context().wrap_bio(
                ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_hostname="site.test"
            )
            with pytest.raises(ssl.SSLWantReadError):
                hello.do_handshake()
            connection.sendall(outgoing.read())
            connection.shutdown(socket.SHUT_WR)
            closed(connection)
        assert [record["reason"] for record in integration.records()] == ["not-http", "not-http"]
    assert https_site.seen()[0] == 0


@pytest.mark.parametrize("first", [True, False], ids=["before-the-guard", "after-the-guard"])
def test_streamed_uploads(beside, http_site, first):
    body = b"x" * 100_000
    fields = f"Content-Length: {len(body)}\r\n"
    with beside(STREAMS, first=first) as integration:
        with untouched(integration, http_site):
            answer = plain(
                integration, http_site.url + "/private/x", method="POST", fields=fields, body=body
            )
            assert answer.status == 403
        assert (
            plain(
                integration, http_site.url + "/open", method="POST", fields=fields, body=body
            ).status
            == 200
        )
    assert http_site.origin.received[-1].body == body


def test_proxy_authentication_comes_first(start, http_site):
    """A client without credentials learns nothing about robots.txt, and causes no request to the origin."""
    with start("mitmdump", "--set", "proxyauth=crawler:secret") as integration:
        assert plain(integration, http_site.url + "/private/x").status == 407
        assert http_site.seen()[0] == 0
        allowed = "Proxy-Authorization: Basic Y3Jhd2xlcjpzZWNyZXQ=\r\n"
        assert plain(integration, http_site.url + "/private/x", fields=allowed).status == 403
        assert plain(integration, http_site.url + "/open", fields=allowed).status == 200
    assert http_site.origin.targets == ["/open"]
    assert "proxy-authorization" not in http_site.origin.robots_fetches[0].headers


def test_the_enforcer_survives_changes_of_the_script(start, tmp_path, https_site):
    """mitmproxy reloads scripts, and drops those that fail. The enforcer stays."""
    script = tmp_path / "guard.py"
    shutil.copy(SCRIPT, script)
    with start("mitmdump", "-s", str(script)) as integration:
        assert inside(integration, https_site.authority, "/private/x").status == 403
        for text, message in (
            (SCRIPT.read_text(), "Loading script"),
            ("(", "error in script"),
            (None, "Un-loading"),
        ):
            seen = len(integration.output)
            script.write_text(text) if text else script.unlink()
            if text:
                os.utime(script, (time.time() + 5 + seen, time.time() + 5 + seen))
            eventually(
                lambda message=message, seen=seen: any(
                    message in line for line in integration.output[seen:]
                )
            )
            with untouched(integration, https_site):
                assert inside(integration, https_site.authority, "/private/x").status == 403


@pytest.mark.parametrize("mode", ["regular", "upstream"])
def test_replayed_flows_are_judged_too(start, tmp_path, http_site, mode):
    """Also through a parent proxy, although the client of a saved flow came without one."""
    saved = tmp_path / "flows"
    with saved.open("wb") as file:
        writer = io.FlowWriter(file)
        for target in ("/private/x", "/open", "/private/y"):
            flow = tflow.tflow()
            flow.request = http.Request.make(
                "GET", http_site.url + target, headers={"Host": http_site.authority}
            )
            writer.add(flow)
    parent = Parent()
    behind = ["--mode", f"upstream:{parent.url}"] if mode == "upstream" else []
    with start("mitmdump", "-C", str(saved), *behind, audit="all") as integration:
        eventually(lambda: len(integration.records()) == 3)
        eventually(lambda: http_site.origin.targets == ["/open"])
        assert [record["action"] for record in integration.records()] == ["drop", "pass", "drop"]
    expected = [f"GET {http_site.url}{target}" for target in ("/robots.txt", "/open")]
    assert parent.lines() == (expected if behind else [])
    parent.close()
