"""The middleware of aiohttp: what it lets through is what was judged, as the origins received it."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from integrations.libraries import library_site
from multidict import CIMultiDict
from support.audit_log import decisions, signals
from support.unread import UnreadSite
from support.waiting import until
from yarl import URL

import robots_guard
from robots_guard.aiohttp import (
    AiohttpDeferred,
    AiohttpDisallowed,
    AiohttpResponseRefused,
    middleware,
)
from robots_guard.client.gate import Gate
from robots_guard.testing import RecordingOrigin

SMUGGLED = b"0\r\n\r\nGET /private/x HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def site(net) -> RecordingOrigin:
    return library_site(net)


@pytest.fixture
def settings(tmp_path) -> dict[str, Any]:
    return {"store": "memory:", "audit_log": str(tmp_path / "audit_log")}


@pytest.fixture
async def session(settings) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        middleware("mybot", audit="all", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded]) as session,
    ):
        yield session


# -- one request is the judged request -----------------------------------------------------------------


async def test_each_hop_of_a_redirect_is_judged(session, site, tmp_path):
    async with session.get(f"{site.url}/open") as response:
        assert response.status == 200
    for path in ("/private/x", "/within", "/away"):
        with pytest.raises(AiohttpDisallowed) as refused:
            await session.get(site.url + path)
        assert isinstance(refused.value, aiohttp.ClientError)
        assert isinstance(refused.value, robots_guard.RequestDisallowed)

    assert site.targets == ["/open", "/within", "/away"]
    assert {each["component"] for each in decisions(tmp_path / "audit_log")} == {"aiohttp"}


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        ("/./private/x", {}, "disallowed"),
        ("/open", {"headers": {"Host": "other.example"}}, "ambiguous-authority"),
        ("/open", {"headers": [("Host", "a"), ("host", "b")]}, "ambiguous-authority"),
        ("/open", {"headers": {"X": "a\r\nHost: other.example"}}, "malformed-target"),
        ("/open", {"server_hostname": "other.example"}, "ambiguous-authority"),
        ("/a b", {}, "malformed-target"),
        ("/open\r\nX: y", {}, "malformed-target"),
    ],
)
async def test_a_request_that_is_not_clear_is_refused(session, site, path, options, reason):
    with pytest.raises(AiohttpDisallowed) as refused:
        await session.get(URL(site.url + path, encoded=True), **options)

    assert refused.value.decision.verdict.reason == reason
    assert site.targets == []


async def test_connect_is_refused(session, site):
    with pytest.raises(AiohttpDisallowed):
        await session.request("CONNECT", f"{site.url}/open")

    assert site.targets == []


async def test_a_websocket_is_judged(session, site):
    ws = site.url.replace("http:", "ws:")
    with pytest.raises(AiohttpDisallowed):
        await session.ws_connect(f"{ws}/private/socket")
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await session.ws_connect(f"{ws}/open")

    assert site.targets == ["/open"]


# -- bodies --------------------------------------------------------------------------------------------


async def test_bodies_have_one_framing_and_end_their_connection(session, site):
    for options in (
        {},
        {"chunked": False},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"Content-Length": "3"}},
        {"headers": {"Content_Length": "0", "Transfer_Encoding": "chunked"}},
        {"headers": {"Content-Length": "3", "Transfer-Encoding": "gzip"}},
    ):
        async with session.post(f"{site.url}/open", data=SMUGGLED, **options) as response:
            await response.read()
    posted = [request for request in site.received if request.method == "POST"]
    names = {name for request in posted for name in request.headers}

    assert [request.body for request in posted] == [SMUGGLED] * 6
    assert {request.headers["content-length"] for request in posted} == {str(len(SMUGGLED))}
    assert {request.headers["connection"] for request in posted} == {"close"}
    assert not {"transfer-encoding", "transfer_encoding", "content_length"} & names
    assert site.targets == ["/open"] * 6
    assert site.connections == len(site.received)


async def test_streamed_and_compressed_bodies_are_chunked(session, site, settings):
    async def parts() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    version = aiohttp.HttpVersion10
    async with (
        middleware("mybot", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded], version=version) as old,
        old.post(f"{site.url}/open", data=parts()) as response,
    ):
        await response.read()
    async with session.post(f"{site.url}/open", data=b"x" * 100, compress="deflate") as response:
        await response.read()

    posted = [request for request in site.received if request.method == "POST"]
    assert [request.headers["transfer-encoding"] for request in posted] == ["chunked"] * 2
    assert posted[0].body == b"ab"


async def test_a_site_that_does_not_read_bodies_finds_no_request_in_them(session):
    with UnreadSite() as site:
        for _ in range(2):
            async with session.get(f"{site.url}/open", data=SMUGGLED) as response:
                await response.read()
        lines = [line for line in site.lines if "robots.txt" not in line]

    assert lines == ["GET /open HTTP/1.1"] * 2


# -- other middlewares ---------------------------------------------------------------------------------


async def refused_behind(later: aiohttp.ClientMiddlewareType, site, settings) -> None:
    """Request an open page with a middleware behind the guard's. The request must be refused, and
    nothing may reach the site."""
    async with (
        middleware("mybot", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded, later]) as session,
    ):
        with pytest.raises(AiohttpDisallowed):
            await session.get(f"{site.url}/open")

    assert site.targets == []


async def test_what_a_later_middleware_changes_is_judged_at_the_write(site, settings):
    async def change(request, handler):
        request.url = request.url.with_path("/private/x")
        return await handler(request)

    await refused_behind(change, site, settings)


@pytest.mark.timing
async def test_what_a_later_middleware_sends_twice_takes_two_turns(net, settings):
    slow = net.origin("User-agent: *\nCrawl-delay: 0.4\n")

    async def repeat(request, handler):
        response = await handler(request)
        await response.read()
        return await handler(request)

    async with (
        middleware("mybot", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded, repeat]) as session,
        session.get(f"{slow.url}/a") as response,
    ):
        assert response.status == 200

    first, second = (request.at for request in slow.received if request.target == "/a")
    assert second - first >= 0.4


async def test_a_later_middleware_cannot_write_more_after_the_judgement(site, settings):
    async def change(request, handler):
        request.headers = CIMultiDict(request.headers, Host="other.example")
        return await handler(request)

    await refused_behind(change, site, settings)


async def refused_with(site, settings, **options) -> None:
    """Request an open page in a session with these options. The request must be refused at the
    write, and nothing may reach the site."""
    async with (
        middleware("mybot", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded], **options) as session,
    ):
        with pytest.raises(AiohttpDisallowed) as refused:
            await session.get(f"{site.url}/open")

    assert refused.value.decision.verdict.reason == "not-judged"
    assert site.targets == []


@pytest.mark.parametrize("name", ["Host", "host ", "Content-Length", "Transfer_Encoding"])
async def test_a_trace_cannot_change_what_was_judged(site, settings, name):
    async def change(_session, _context, parameters):
        parameters.headers.add(name, "other.example")

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(change)
    await refused_with(site, settings, trace_configs=[trace])


async def test_a_request_class_cannot_write_something_else(site, settings):
    class Elsewhere(aiohttp.ClientRequest):
        async def send(self, conn):
            self.url = self.url.with_path("/private/x")
            return await super().send(conn)

    await refused_with(site, settings, request_class=Elsewhere)


async def test_a_connection_to_another_origin_is_not_used(net, site, settings):
    other = net.origin()

    class Elsewhere(aiohttp.TCPConnector):
        async def connect(self, req, *args, **options):
            url, req.url = req.url, URL(other.url)
            try:
                return await super().connect(req, *args, **options)
            finally:
                req.url = url

    await refused_with(site, settings, connector=Elsewhere())
    assert other.received == []


@pytest.mark.parametrize("name", ["Host ", "Transfer-Encoding ", "Host:", "X Y", ""])
async def test_a_field_name_that_is_no_token_is_refused(session, site, name):
    """Lenient servers read "Transfer-Encoding : chunked", and a request in the body."""
    with pytest.raises(AiohttpDisallowed) as refused:
        await session.post(f"{site.url}/open", headers={name: "chunked"}, data=SMUGGLED)

    assert refused.value.decision.verdict.reason == "malformed-target"
    assert site.targets == []


async def test_a_response_without_the_judged_request_is_an_error(site, settings):
    """A middleware behind the guard has made a request of its own, which was not judged."""

    async def own(request, handler):
        return await request.session.get(f"{site.url}/private/x", middlewares=())

    async with (
        middleware("mybot", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded, own]) as session,
    ):
        with pytest.raises(
            AiohttpDisallowed, match="put that component in front of the guard"
        ) as refused:
            await session.get(f"{site.url}/open")

    assert refused.value.decision.verdict.reason == "not-judged"


async def test_a_guard_that_is_listed_twice_takes_one_turn(net, settings, monkeypatch):
    slow = net.origin("User-agent: *\nCrawl-delay: 0.2\n")
    taken, take = [], Gate.take

    async def counted(gate, question, verdict=None):
        taken.append(question.target)
        return await take(gate, question, verdict)

    async def repeat(request, handler):
        (await handler(request)).close()
        return await handler(request)

    monkeypatch.setattr(Gate, "take", counted)
    async with middleware("mybot", hold_max=30, **settings) as guarded:
        async with aiohttp.ClientSession(middlewares=[guarded, guarded]) as session:
            for path in ("/a", "/b"):
                (await session.get(slow.url + path)).close()
        async with aiohttp.ClientSession(middlewares=[repeat, guarded]) as session:
            (await session.get(f"{slow.url}/c")).close()

    assert taken == slow.targets == ["/a", "/b", "/c", "/c"]


async def test_a_proxy_gets_the_judged_request(net, site, session):
    proxy = net.origin()
    async with session.get(f"{site.url}/open?q=%20", proxy=proxy.url) as response:
        assert response.status == 200
    with pytest.raises(AiohttpDisallowed):
        await session.get(f"{site.url}/private/x", proxy=proxy.url)

    assert proxy.targets == [f"{site.url}/open?q=%20"]


# -- turns, deferrals and responses ----------------------------------------------------------------------


async def test_a_deferral_is_an_error_with_its_wait(session, net, site):
    down = net.origin(503)
    with pytest.raises(AiohttpDeferred) as deferred:
        await session.get(f"{down.url}/open")
    assert 1 < deferred.value.retry_after <= 60  # retries that soon follow are waited for
    async with session.get(f"{site.url}/busy") as response:
        assert response.status == 429
    with pytest.raises(AiohttpDeferred) as paused:
        await session.get(f"{site.url}/open")

    assert paused.value.decision.verdict.reason == "retry-after"
    copy = pickle.loads(pickle.dumps(paused.value))
    assert (type(copy), copy.retry_after) == (AiohttpDeferred, paused.value.retry_after)


async def test_held_requests_end_by_a_timeout_and_by_closing(net, settings):
    slow = net.origin("User-agent: *\nCrawl-delay: 300\n")
    guarded = middleware("mybot", hold_max=1000, **settings)
    async with aiohttp.ClientSession(middlewares=[guarded]) as session:
        await session.get(f"{slow.url}/first")
        with pytest.raises(TimeoutError):
            await session.get(f"{slow.url}/late", timeout=aiohttp.ClientTimeout(total=0.1))
        held = asyncio.ensure_future(session.get(f"{slow.url}/held"))
        await until(lambda: guarded.guard.gate.waiting)
        await guarded.aclose()
        with pytest.raises(robots_guard.ClosedGuard):
            await held

    assert slow.targets == ["/first"]


async def test_what_a_response_denies_is_refused_by_its_fields(site, settings, tmp_path):
    async with (
        middleware("mybot", purposes="ai-train", **settings) as guarded,
        aiohttp.ClientSession(middlewares=[guarded]) as session,
    ):
        with pytest.raises(AiohttpResponseRefused) as refused:
            await session.get(f"{site.url}/tagged")

    assert refused.value.decision.verdict.reason == "usage-reserved"
    (stated,) = signals(tmp_path / "audit_log")
    assert (stated["action"], stated["url"]) == ("drop", f"{site.url}/tagged")


async def test_a_guard_can_be_shared_and_stays_open(site, settings):
    async with robots_guard.open("mybot", **settings) as guard:
        async with (
            middleware(guard=guard) as guarded,
            aiohttp.ClientSession(middlewares=[guarded]) as session,
            session.get(f"{site.url}/open") as response,
        ):
            assert response.status == 200
        assert await guard.can_fetch(f"{site.url}/open")
        with pytest.raises(TypeError):
            middleware("mybot", guard=guard)
