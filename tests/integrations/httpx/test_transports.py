"""The transports of httpx: what they let through is what was judged, as the origins received it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
import trustme
from integrations.libraries import library_site, trusted
from integrations.mitmproxy.h2_site import h2_site
from support.audit_log import decisions, signals
from support.unread import UnreadSite
from support.waiting import until

import robots_guard
from robots_guard.client.gate import Gate
from robots_guard.httpx import (
    AsyncTransport,
    HttpxDeferred,
    HttpxDisallowed,
    HttpxResponseRefused,
    Transport,
)
from robots_guard.testing import RecordingOrigin, Reply

SMUGGLED = b"GET /private/x HTTP/1.1\r\nHost: x\r\n\r\n"

Ask = Callable[..., httpx.Response]


@pytest.fixture
def site(net) -> RecordingOrigin:
    return library_site(net)


@pytest.fixture
def settings(tmp_path) -> dict[str, Any]:
    return {"store": "memory:", "audit_log": str(tmp_path / "audit_log")}


@pytest.fixture(params=["sync", "async"])
def ask(request, settings) -> Iterator[Ask]:
    """A function that makes one request after another, with one client."""
    if request.param == "sync":
        with httpx.Client(transport=Transport("mybot", **settings)) as client:
            yield partial(client.request, follow_redirects=True)
        return
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=AsyncTransport("mybot", **settings))

        def ask(*args: Any, **options: Any) -> httpx.Response:
            return runner.run(client.request(*args, follow_redirects=True, **options))

        yield ask
        runner.run(client.aclose())


# -- one request is the judged request ---------------------------------------------------------------


def test_each_hop_of_a_redirect_is_judged(ask, site):
    assert ask("GET", f"{site.url}/open").status_code == 200
    for path in ("/private/x", "/within", "/away"):
        with pytest.raises(HttpxDisallowed) as refused:
            ask("GET", site.url + path)
        assert refused.value.request.url.path in ("/private/x", "/x")
        assert isinstance(refused.value, httpx.TransportError)
        assert isinstance(refused.value, robots_guard.RequestDisallowed)

    assert site.targets == ["/open", "/within", "/away"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (b"/private/x", "disallowed"),
        (b"/./private/x", "disallowed"),
        (b"http://other.example/private/x", "malformed-target"),
        (b"*", "malformed-target"),
        (b"/open#x", "malformed-target"),
        (b"/open HTTP/1.1\r\nX: y", "malformed-target"),
        ("/private/x", "disallowed"),
    ],
)
def test_the_target_that_is_written_is_judged(ask, site, target, reason):
    with pytest.raises(HttpxDisallowed) as refused:
        ask("GET", f"{site.url}/open", extensions={"target": target})

    assert refused.value.decision.verdict.reason == reason
    assert site.targets == []


def test_a_target_of_the_caller_is_written_as_it_was_judged(ask, site):
    ask("GET", f"{site.url}/x", extensions={"target": b"/open//%7e?q"})
    ask("GET", httpx.URL(site.url, raw_path=b"/open/a%2Fb"))

    assert site.targets == ["/open//%7e?q", "/open/a%2Fb"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"headers": {"Host": "other.example"}}, "ambiguous-authority"),
        ({"extensions": {"sni_hostname": "other.example"}}, "ambiguous-authority"),
        ({"headers": [("Host", "a"), ("Host", "b")]}, "malformed-target"),
        ({"headers": {"X": "a\r\nHost: other.example"}}, "malformed-target"),
        ({"headers": {"Transfer-Encoding": "gzip, chunked"}, "content": b"x"}, "malformed-target"),
        (
            {"headers": [("Content-Length", "1"), ("Content-Length", "9")], "content": b"x"},
            "malformed-target",
        ),
    ],
)
def test_a_request_that_two_readers_could_read_differently_is_refused(ask, site, options, reason):
    with pytest.raises(HttpxDisallowed) as refused:
        ask("POST", f"{site.url}/open", **options)

    assert refused.value.decision.verdict.reason == reason
    assert site.received == []


def test_a_method_that_is_no_token_is_refused(ask, site):
    with pytest.raises(HttpxDisallowed):
        ask("GET /private/x HTTP/1.1\r\nX:", f"{site.url}/open")

    assert site.received == []


# -- bodies ------------------------------------------------------------------------------------------


def test_bodies_have_one_framing_and_end_their_connection(ask, site):
    for headers in ({}, {"Content-Length": "1"}, {"Transfer-Encoding": "chunked"}):
        ask("POST", f"{site.url}/open", content=SMUGGLED, headers=headers)
    ask("POST", f"{site.url}/open", content=SMUGGLED, headers={"Content_Length": "0"})
    ask("POST", f"{site.url}/open")

    posted = [request for request in site.received if request.method == "POST"]
    assert [request.body for request in posted] == [SMUGGLED] * 4 + [b""]
    assert {request.headers["content-length"] for request in posted[:4]} == {str(len(SMUGGLED))}
    assert {request.headers["connection"] for request in posted[:4]} == {"close"}
    assert not {"transfer-encoding", "content_length"} & {n for r in posted for n in r.headers}
    assert site.targets == ["/open"] * 5


def test_streamed_bodies_have_the_declared_length_or_fail(site, settings):
    with httpx.Client(transport=Transport("mybot", **settings)) as client:
        client.post(f"{site.url}/open", content=iter([b"a", b"b"]))
        client.post(f"{site.url}/open", content=iter([b"ab"]), headers={"Content-Length": "2"})
        for length in ("1", "3"):
            with pytest.raises(httpx.LocalProtocolError, match="than its Content-Length"):
                client.post(
                    f"{site.url}/open", content=iter([b"ab"]), headers={"Content-Length": length}
                )

    whole = [request for request in site.received if request.whole and request.method == "POST"]
    assert [request.body for request in whole] == [b"ab", b"ab"]


def test_a_site_that_does_not_read_bodies_finds_no_request_in_them(ask):
    with UnreadSite() as site:
        for _ in range(2):
            with contextlib.suppress(httpx.TransportError):
                ask("GET", f"{site.url}/open", content=SMUGGLED)
        lines = [line for line in site.lines if "robots.txt" not in line]

    assert lines == ["GET /open HTTP/1.1"] * 2


def test_connect_is_refused(ask, site):
    with pytest.raises(HttpxDisallowed) as refused:
        ask("CONNECT", f"{site.url}/open")

    assert refused.value.decision.verdict.reason == "malformed-target"
    assert site.targets == []


async def test_what_is_changed_while_a_request_waits_is_not_sent(net, settings):
    slow = net.origin("User-agent: *\nCrawl-delay: 0.5\n")
    closed = net.origin("User-agent: *\nDisallow: /\n")
    transport = AsyncTransport("mybot", **settings)
    async with httpx.AsyncClient(transport=transport) as client:
        await client.get(f"{slow.url}/a")
        request = client.build_request("GET", f"{slow.url}/b")
        sending = asyncio.create_task(client.send(request))
        await until(lambda: transport.guard.gate.waiting)
        request.url = httpx.URL(f"{closed.url}/x")
        request.method = "DELETE"
        await sending

    assert closed.targets == []
    assert [each.method for each in slow.received if each.target == "/b"] == ["GET"]


# -- what is wrapped ---------------------------------------------------------------------------------


def test_a_wrapped_transport_without_announcements_gets_only_what_was_judged(settings):
    received: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(200)

    wrapped = httpx.MockTransport(answer)
    with httpx.Client(
        transport=Transport("mybot", wrapped=wrapped, on_unreachable="allow", **settings)
    ) as client:
        client.get("http://127.9.9.9:9/open", extensions={"target": b"/other"})

    (request,) = received
    assert (request.url.raw_path, "target" in request.extensions) == (b"/open", False)


def test_a_wrapped_transport_cannot_send_something_else(site, settings):
    class Changing(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.extensions["target"] = b"/private/x"
            return super().handle_request(request)

    transport = Transport("mybot", wrapped=Changing(), **settings)
    with httpx.Client(transport=transport) as client, pytest.raises(HttpxDisallowed) as refused:
        client.get(f"{site.url}/open")

    assert refused.value.decision.verdict.reason == "not-judged"
    assert site.targets == []


def test_a_wrapped_transport_cannot_send_it_to_another_origin(net, site, settings):
    closed = net.origin("User-agent: *\nDisallow: /\n")

    class Elsewhere(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            there = httpx.URL(closed.url)
            request.url = request.url.copy_with(host=there.host, port=there.port)
            return super().handle_request(request)

    transport = Transport("mybot", wrapped=Elsewhere(), **settings)
    with httpx.Client(transport=transport) as client, pytest.raises(HttpxDisallowed) as refused:
        client.get(f"{site.url}/open")

    assert refused.value.decision.verdict.reason == "not-judged"
    assert closed.targets == []


class Around(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport of a project: it changes a request, and hands it to httpx's own transport `times`
    times, while it is entered."""

    def __init__(self, path: str = "/open", times: int = 1) -> None:
        self.path, self.times = path, times

    def __enter__(self) -> httpx.BaseTransport:
        self.inner = httpx.HTTPTransport()
        return self

    def __exit__(self, *error: object) -> None:
        self.inner.close()
        del self.inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(path=self.path)
        for _ in range(self.times - 1):
            self.inner.handle_request(request).read()
        return self.inner.handle_request(request)

    async def __aenter__(self) -> httpx.AsyncBaseTransport:
        self.inner = httpx.AsyncHTTPTransport()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.inner.aclose()
        del self.inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(path=self.path)
        for _ in range(self.times - 1):
            await (await self.inner.handle_async_request(request)).aread()
        return await self.inner.handle_async_request(request)


async def get_around(url: str, around: Around, is_async: bool, **settings: Any) -> httpx.Response:
    """GET by a guarded client that wraps a transport of a project."""
    if is_async:
        async with httpx.AsyncClient(
            transport=AsyncTransport("mybot", wrapped=around, **settings)
        ) as client:
            return await client.get(url)
    with httpx.Client(transport=Transport("mybot", wrapped=around, **settings)) as client:
        return client.get(url)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_transport_around_httpx_s_own_is_entered_and_sends_what_was_judged(
    site, settings, is_async
):
    around = Around()
    assert (await get_around(f"{site.url}/open", around, is_async, **settings)).is_success
    assert not hasattr(around, "inner")
    with pytest.raises(HttpxDisallowed, match="the target differs") as refused:
        await get_around(f"{site.url}/open", Around("/private/x"), is_async, **settings)

    assert refused.value.decision.verdict.reason == "not-judged"
    assert site.targets == ["/open"]


@pytest.mark.timing
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_transport_around_httpx_s_own_that_sends_twice_takes_two_turns(
    net, settings, is_async
):
    slow = net.origin("User-agent: *\nCrawl-delay: 0.4\n")
    await get_around(f"{slow.url}/open", Around(times=2), is_async, **settings)

    first, second = (request.at for request in slow.received if request.target == "/open")
    assert second - first >= 0.4


def test_a_guard_that_wraps_itself_takes_one_turn(net, settings, monkeypatch):
    slow = net.origin("User-agent: *\nCrawl-delay: 0.2\n")
    taken, take = [], Gate.take

    async def counted(gate, question, verdict=None):
        taken.append(question.target)
        return await take(gate, question, verdict)

    monkeypatch.setattr(Gate, "take", counted)
    inner = Transport("mybot", hold_max=30, **settings)
    trace = partial(lambda *_: None)
    with httpx.Client(transport=Transport(guard=inner.guard, wrapped=inner)) as client:
        for path in ("/a", "/b"):
            client.get(slow.url + path, extensions={"trace": trace})

    assert taken == slow.targets == ["/a", "/b"]


@pytest.mark.parametrize("url", ["ftp://site.example/x", "site.example/x", "mailto:a@site.example"])
def test_a_url_without_http_is_httpx_s_own_error(ask, tmp_path, url):
    with pytest.raises(httpx.UnsupportedProtocol):
        ask("GET", url)

    assert not decisions(tmp_path / "audit_log")


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_response_to_a_request_that_was_not_announced_is_an_error(
    site, settings, tmp_path, is_async
):
    """A subclass that makes a request of its own must hand on the extension `trace`."""

    def own(request: httpx.Request) -> httpx.Request:
        return httpx.Request("GET", request.url.copy_with(path="/private/x"))

    class Own(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return super().handle_request(own(request))

    class AsyncOwn(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return await super().handle_async_request(own(request))

    async def get() -> None:
        if is_async:
            transport = AsyncTransport("mybot", wrapped=AsyncOwn(), **settings)
            async with httpx.AsyncClient(transport=transport) as client:
                await client.get(f"{site.url}/open")
        else:
            with httpx.Client(transport=Transport("mybot", wrapped=Own(), **settings)) as client:
                client.get(f"{site.url}/open")

    with pytest.raises(
        HttpxDisallowed, match="put that component in front of the guard"
    ) as refused:
        await get()

    assert refused.value.decision.verdict.reason == "not-judged"
    (record,) = decisions(tmp_path / "audit_log")
    assert (record["reason"], record["url"]) == ("not-judged", f"{site.url}/open")


@pytest.mark.timing
def test_a_wrapped_transport_that_sends_twice_takes_two_turns(net, settings):
    slow = net.origin("User-agent: *\nCrawl-delay: 0.4\n")

    class Twice(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            super().handle_request(request).read()
            return super().handle_request(request)

    with httpx.Client(transport=Transport("mybot", wrapped=Twice(), **settings)) as client:
        client.get(f"{slow.url}/a")

    first, second = (request.at for request in slow.received if request.target == "/a")
    assert second - first >= 0.4


def test_the_callers_own_trace_is_called(site, settings):
    events = []
    with httpx.Client(transport=Transport("mybot", **settings)) as client:
        client.get(
            f"{site.url}/open", extensions={"trace": lambda event, _info: events.append(event)}
        )

    assert "http11.send_request_headers.started" in events


def test_a_proxy_gets_the_judged_request_in_absolute_form(net, site, settings):
    proxy = net.origin(pages={f"{site.url}/open": Reply(body=b"by the proxy")})
    wrapped = httpx.HTTPTransport(proxy=proxy.url)
    with httpx.Client(transport=Transport("mybot", wrapped=wrapped, **settings)) as client:
        assert client.get(f"{site.url}/open").text == "by the proxy"
        with pytest.raises(HttpxDisallowed):
            client.get(f"{site.url}/private/x")

    assert proxy.targets == [f"{site.url}/open"]


# -- turns, deferrals and responses --------------------------------------------------------------------


def test_a_deferral_is_an_error_with_its_wait(ask, net, site):
    down = net.origin(503)
    with pytest.raises(HttpxDeferred) as deferred:
        ask("GET", f"{down.url}/open")
    assert 1 < deferred.value.retry_after <= 60  # retries that soon follow are waited for

    assert ask("GET", f"{site.url}/busy").status_code == 429
    with pytest.raises(HttpxDeferred) as paused:
        ask("GET", f"{site.url}/open")
    assert paused.value.decision.verdict.reason == "retry-after"
    assert 20 < paused.value.retry_after <= 30


def test_errors_can_be_pickled(ask, site):
    with pytest.raises(HttpxDisallowed) as refused:
        ask("GET", f"{site.url}/private/x")
    copy = pickle.loads(pickle.dumps(refused.value))

    assert (type(copy), str(copy)) == (HttpxDisallowed, str(refused.value))


async def test_a_request_that_is_cancelled_while_it_waits_is_not_sent(net, settings):
    slow = net.origin("User-agent: *\nCrawl-delay: 1\n")
    transport = AsyncTransport("mybot", hold_max=30, **settings)
    async with httpx.AsyncClient(transport=transport) as client:
        await client.get(f"{slow.url}/first")
        held = asyncio.ensure_future(client.get(f"{slow.url}/cancelled"))
        await until(lambda: transport.guard.gate.waiting)
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        began = time.monotonic()
        await client.get(f"{slow.url}/second")
        assert time.monotonic() - began < 20

    assert slow.targets == ["/first", "/second"]


async def test_closing_ends_held_requests(net, settings):
    slow = net.origin("User-agent: *\nCrawl-delay: 300\n")
    transport = AsyncTransport("mybot", hold_max=300, **settings)
    client = httpx.AsyncClient(transport=transport)
    await client.get(f"{slow.url}/first")
    held = asyncio.ensure_future(client.get(f"{slow.url}/held"))
    await until(lambda: transport.guard.gate.waiting)
    await client.aclose()

    with pytest.raises(robots_guard.ClosedGuard):
        await held
    assert slow.targets == ["/first"]


def test_what_a_response_denies_is_refused_by_its_fields(site, settings, tmp_path):
    transport = Transport("mybot", purposes="ai-train", **settings)
    with httpx.Client(transport=transport) as client:
        with pytest.raises(HttpxResponseRefused) as refused:
            client.get(f"{site.url}/tagged")
        assert client.get(f"{site.url}/html").status_code == 200

    assert refused.value.decision.verdict.reason == "usage-reserved"
    stated = {each["url"]: each for each in signals(tmp_path / "audit_log")}
    assert stated[f"{site.url}/tagged"]["action"] == "drop"
    assert stated[f"{site.url}/html"]["incomplete"] is True


def test_records_name_the_component(site, settings, tmp_path):
    with httpx.Client(transport=Transport("mybot", audit="all", **settings)) as client:
        client.get(f"{site.url}/open", headers={"User-Agent": "mybot/1.0"})

    (record,) = decisions(tmp_path / "audit_log")
    assert (record["component"], record["user_agent"]) == ("httpx", "mybot/1.0")


def test_a_guard_can_be_shared_and_stays_open(site, settings):
    with robots_guard.open_sync("mybot", **settings) as guard:
        with httpx.Client(transport=Transport(guard=guard)) as client:
            assert client.get(f"{site.url}/open").status_code == 200
        assert guard.can_fetch(f"{site.url}/open")
        with pytest.raises(TypeError):
            Transport("mybot", guard=guard)


# -- HTTP/2 --------------------------------------------------------------------------------------------


def test_over_http2(tmp_path, settings):
    """The site speaks only HTTP/2, which the guard's own fetches do not."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "site.pem"))
    with h2_site(tmp_path, authority, "127.0.0.1") as site, trusted(tmp_path / "site.pem") as tls:
        wrapped = httpx.HTTPTransport(verify=tls, http2=True)
        transport = Transport("mybot", wrapped=wrapped, on_unreachable="allow", **settings)
        with httpx.Client(transport=transport) as client:
            response = client.post(f"{site.url}/open", content=iter([b"a", b"b"]))
            assert (response.http_version, response.text) == ("HTTP/2", "whole")
            assert site.next()["body"] == "ab"
            for options in ({"headers": {"Host": "a.example"}}, {"extensions": {"target": b"*"}}):
                with pytest.raises(HttpxDisallowed):
                    client.get(f"{site.url}/refused", **options)
            short = {"Content-Length": "1"}
            with pytest.raises(httpx.LocalProtocolError):
                client.post(f"{site.url}/cut", content=iter([SMUGGLED]), headers=short)
            client.get(f"{site.url}/last")
            assert site.next()["path"] == "/last"
