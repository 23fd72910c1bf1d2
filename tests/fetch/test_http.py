"""Direct fetches from a real server that stalls, breaks, floods and lies."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import socket
import ssl
import struct
import threading
import time
import tracemalloc
import zlib
from collections import Counter
from ipaddress import ip_address, ip_network

import pytest
import trustme
from support.waiting import until

from robots_guard.decisions.access import Failed, Failure, Fetched, Get, Limits, is_trouble
from robots_guard.decisions.addresses import networks
from robots_guard.guard.fetch import destinations, http
from robots_guard.guard.fetch.destinations import Destinations
from robots_guard.guard.fetch.http import HttpFetcher
from robots_guard.origin import split_url
from robots_guard.testing import Reply

# These tests replace the private `_session` and `_socket`, to cause a fault and to see how sockets
# end.

TEXT = b"User-agent: *\nDisallow: /private/\n"
CAP = 512_000


def trusted(agent="mybot (robots_guard)", **options) -> HttpFetcher:
    """Return a fetcher that may connect to loopback addresses."""
    return HttpFetcher(agent, destinations=Destinations(trusts_caller=True), **options)


async def fetch(url, *, fetcher=None, headers=(), public_only=False, **limits):
    limits = {"connect": 5.0, "first_byte": 5.0, "total": 10.0} | limits
    url = f"{url}/robots.txt" if url.count("/") == 2 else url
    get = Get(url=url, headers=headers, limits=Limits(**limits), public_only=public_only)
    return await (fetcher or trusted()).fetch(get)


async def outcome(net, reply, **limits):
    return await fetch(net.origin(reply).url, **limits)


def raw(head: str, body: bytes = b"") -> Reply:
    return Reply(raw=head.replace("\n", "\r\n").encode("latin-1") + body)


# -- an answer ----------------------------------------------------------------------------------------------


async def test_response_is_returned_unchanged(net):
    got = await outcome(
        net,
        Reply(body=TEXT, headers=(("ETag", '"1"'), ("Cache-Control", "a"), ("cache-control", "b"))),
    )

    assert isinstance(got, Fetched)
    assert (got.status, got.body, got.truncated, got.tls_verified) == (200, TEXT, False, False)
    assert got.headers["etag"] == '"1"'
    assert got.headers["cache-control"] == "a, b"


async def test_request_carries_the_user_agent_and_nothing_personal(net, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    site = net.origin(Reply(body=TEXT, headers=(("Set-Cookie", "a=b; Path=/"),)))
    fetcher = trusted()
    await fetch(site.url, fetcher=fetcher)
    got = await fetch(site.url, fetcher=fetcher, headers=(("If-None-Match", '"1"'),))

    assert isinstance(got, Fetched)
    first, second = site.received
    assert first.method == second.method == "GET"
    assert first.headers["user-agent"] == "mybot (robots_guard)"
    assert first.headers["accept-encoding"] == "identity"
    assert second.headers["if-none-match"] == '"1"'
    assert not {"cookie", "authorization", "proxy-authorization", "referer"} & (
        set(first.headers) | set(second.headers)
    )


async def test_a_redirect_is_not_followed(net):
    elsewhere = net.origin("")
    got = await outcome(net, Reply(status=302, headers=(("Location", f"{elsewhere.url}/r\u00fc"),)))

    assert isinstance(got, Fetched)
    assert (got.status, got.body) == (302, b"")
    assert got.headers["location"] == f"{elsewhere.url}/r\u00fc"
    assert not elsewhere.connections


@pytest.mark.parametrize("status", [204, 304, 401, 404, 429, 500, 503])
async def test_a_status_is_an_answer(net, status):
    body = b"" if status in (204, 304) else b"x" * 10
    got = await outcome(
        net, Reply(status=status, body=body, headers=(("Content-Length", str(len(body))),))
    )

    assert isinstance(got, Fetched)
    assert (got.status, got.body) == (status, b"")


async def test_target_is_sent_byte_by_byte_and_cannot_end_its_line(net):
    site = net.origin("")
    await fetch(f"{site.url}/a\xc3\xbc%2fb?c=%zz&d='\r\nX-Evil: 1 e")

    assert site.targets == ["/a%C3%BC%2fb?c=%zz&d='%0D%0AX-Evil:%201%20e"]
    assert "x-evil" not in site.received[0].headers


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/a", True),
        ("//a/../b;c?d=[e]", True),
        ("/%2e%2E/%zz", True),
        ("/a?", False),
        ("/?", False),
    ],
)
async def test_judged_target_is_sent_unchanged_or_not_at_all(net, target, sent):
    """A rule may forbid `/a$` and not `/a?`."""
    site = net.origin(200)
    outcome = await trusted().fetch(Get(url=f"{site.url}{target}", verbatim=True))

    assert site.targets == ([target] if sent else [])
    assert sent or outcome.failure is Failure.REFUSED


async def test_request_header_cannot_end_its_line(net):
    site = net.origin("")
    got = await fetch(site.url, headers=(("If-None-Match", '"1"\r\nX-Evil: 1'),))

    assert got.failure is Failure.PROTOCOL
    assert not site.received


async def test_header_values_can_always_be_encoded(net):
    """Policies and records contain them, so bytes that are not UTF-8 must not become lone
    surrogates."""
    got = await outcome(
        net, raw("HTTP/1.1 200 OK\nX-A: \xff\xfe\nX-B: \xc3\xbc\nContent-Length: 0\n\n")
    )

    assert got.headers["x-a"] == "\xff\xfe"
    assert got.headers["x-b"] == "\u00fc"
    assert "".join(got.headers.values()).encode()


# -- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "truncated"), [(CAP - 1, False), (CAP, False), (CAP + 1, True), (5_000_000, True)]
)
async def test_a_body_is_cut_at_the_cap(net, size, truncated):
    got = await outcome(net, Reply(body=b"x" * size))

    assert isinstance(got, Fetched)
    assert (len(got.body), got.truncated) == (min(size, CAP), truncated)


async def test_a_body_without_a_length_ends_with_its_connection(net):
    got = await outcome(net, raw("HTTP/1.0 200 OK\nContent-Type: text/plain\n\n", TEXT))

    assert got.body == TEXT


async def test_a_chunked_body_is_put_together(net):
    chunks = b"5\r\nUser-\r\n1d\r\nagent: *\nDisallow: /private/\n\r\n0\r\n\r\n"
    got = await outcome(net, raw("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", chunks))

    assert got.body == TEXT


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param("".join(f"X-{n}: 1\n" for n in range(210)), id="many"),
        pytest.param("".join(f"X-{n}: {'y' * 4000}\n" for n in range(20)), id="much"),
        pytest.param(f"X: {'y' * 30_000}\n", id="one long"),
        pytest.param("".join(f"X-{n}: {'y' * 8000}\n" for n in range(2000)), id="a flood"),
    ],
)
async def test_header_bombs_are_refused(net, fields):
    got = await outcome(net, raw(f"HTTP/1.1 200 OK\n{fields}Content-Length: 2\n\n", b"hi"))

    assert isinstance(got, Failed)
    assert got.failure is Failure.PROTOCOL


async def test_as_many_fields_as_honest_sites_send_are_read(net):
    fields = "".join(f"X-{n}: {'y' * 200}\n" for n in range(150))
    got = await outcome(net, raw(f"HTTP/1.1 200 OK\n{fields}Content-Length: 2\n\n", b"hi"))

    assert got.body == b"hi"


# -- unrequested codings ------------------------------------------------------------------------------------


def packed(body: bytes, coding: str) -> Reply:
    return Reply(body=body, headers=(("Content-Encoding", coding),))


def gzipped(body: bytes) -> bytes:
    # The result is always the same, because the names of tests contain it.
    return gzip.compress(body, mtime=0)


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzipped(TEXT)),
        ("X-GZIP", gzipped(TEXT)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("gzip", gzipped(TEXT[:10]) + gzipped(TEXT[10:])),
        ("gzip", gzipped(TEXT) + b"\0" * 100),
        ("identity", TEXT),
    ],
)
async def test_one_layer_is_unpacked(net, coding, body):
    got = await outcome(net, packed(body, coding))

    assert isinstance(got, Fetched)
    assert (got.body, got.truncated) == (TEXT, False)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("br", TEXT),
        ("zstd", TEXT),
        ("compress", TEXT),
        ("gzip, gzip", gzipped(gzipped(TEXT))),
        ("gzip", TEXT),
        ("gzip", gzipped(TEXT)[:-9]),
        ("gzip", gzipped(TEXT) + b"rubbish"),
        ("deflate", zlib.compress(TEXT)[:-5]),
    ],
)
async def test_undecodable_body_is_refused(net, coding, body):
    got = await outcome(net, packed(body, coding))

    assert isinstance(got, Failed)
    assert got.failure is Failure.PROTOCOL


@pytest.mark.parametrize("pack", [gzipped, zlib.compress], ids=["gzip", "deflate"])
async def test_a_bomb_is_cut_at_the_cap_and_costs_no_memory(net, pack):
    bomb = pack(b"\0" * 200_000_000)
    site = net.origin(packed(bomb, "gzip" if pack is gzipped else "deflate"))
    tracemalloc.start()
    try:
        got = await fetch(site.url)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert isinstance(got, Fetched)
    assert (len(got.body), got.truncated) == (CAP, True)
    assert peak < 16 * 1024 * 1024


async def test_a_bomb_of_empty_members_is_no_file(net):
    """Rules could follow them, however far the content is below its bound."""
    got = await outcome(net, packed(gzipped(b"") * 100_000, "gzip"))

    assert isinstance(got, Failed)
    assert got.failure is Failure.PROTOCOL


# -- times --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "limits"),
    [
        pytest.param(Reply(hang=True), {"first_byte": 0.3}, id="no first byte"),
        pytest.param(Reply(hang=True), {"total": 0.3}, id="no answer in all"),
        pytest.param(Reply(body=TEXT * 9, drip=0.02), {"total": 0.3}, id="dripping body"),
    ],
)
async def test_a_deadline_is_kept(net, reply, limits):
    began = time.monotonic()
    got = await outcome(net, reply, **limits)

    assert isinstance(got, Failed)
    assert got.failure is Failure.TIMEOUT
    assert 0.25 < time.monotonic() - began < 10


async def test_dripping_header_fields_do_not_put_off_the_end():
    """Each byte comes within the first-byte time; the total time ends the fetch."""

    async def drip(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        try:
            while not writer.is_closing():
                writer.write(b"X-Drip: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(drip, "127.0.0.1") as server:
        began = time.monotonic()
        got = await fetch(
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", first_byte=0.2, total=0.5
        )

    assert got.failure is Failure.TIMEOUT
    assert 0.4 < time.monotonic() - began < 10


async def test_connecting_has_a_deadline_of_its_own():
    """A listener whose queue is full does not answer."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            began = time.monotonic()
            got = await fetch(f"http://127.0.0.1:{full.getsockname()[1]}", connect=0.3)
        finally:
            for each in waiting:
                each.close()

    assert got.failure is Failure.TIMEOUT
    assert time.monotonic() - began < 10


# -- what breaks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        pytest.param(Reply(reset=True), Failure.RESET, id="closed without a word"),
        pytest.param(Reply(body=TEXT, cut=True), Failure.PROTOCOL, id="shorter than it says"),
        pytest.param(Reply(raw=TEXT), Failure.PROTOCOL, id="HTTP/0.9"),
        pytest.param(
            Reply(raw=b"\x16\x03\x01\x00\x05garbage\r\n\r\n"), Failure.PROTOCOL, id="garbage"
        ),
        pytest.param(
            raw("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 9\n\n", TEXT),
            Failure.PROTOCOL,
            id="2 lengths",
        ),
        pytest.param(
            raw("HTTP/1.1 200 OK\nContent-Length: -5\n\n", TEXT),
            Failure.PROTOCOL,
            id="negative length",
        ),
        pytest.param(
            raw("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", b"zz\r\n"),
            Failure.PROTOCOL,
            id="bad chunk",
        ),
        pytest.param(
            raw("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", b"5\r\nUser"),
            Failure.PROTOCOL,
            id="cut chunk",
        ),
        pytest.param(raw("HTTP/1.1 999999 OK\n\n"), Failure.PROTOCOL, id="no status"),
    ],
)
async def test_a_broken_answer_is_a_failure(net, reply, failure):
    got = await outcome(net, reply)

    assert isinstance(got, Failed)
    assert got.failure is failure


async def test_an_answer_that_aiohttp_reads_otherwise_than_its_framing_says_is_a_failure(
    net, monkeypatch
):
    async def longer(content):
        while data := await content.readany():
            yield data
        yield b"a"

    monkeypatch.setattr(http.aiohttp.StreamReader, "iter_any", longer)

    got = await outcome(net, Reply(body=TEXT))

    assert got == Failed(
        failure=Failure.PROTOCOL, detail="35 bytes of content were read where the framing says 34"
    )


async def test_reset_is_a_failure_and_nothing_is_requested_twice():
    """aiohttp by itself repeats a GET once when a connection breaks."""
    connections = 0

    async def reset(reader, writer):
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        with writer.get_extra_info("socket").dup() as connection:
            # This makes `close` send RST.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1") as server:
        got = await fetch(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    assert got.failure is Failure.RESET
    assert connections == 1


async def test_closed_port_is_a_failure_to_connect():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        got = await fetch(f"http://127.0.0.1:{closed.getsockname()[1]}")

    assert got.failure is Failure.CONNECT


@pytest.mark.parametrize(
    "host", ["nowhere.test", "a_b.test", "-a-.test", "xn--fa-hia.de", "xn--a.test"]
)
async def test_a_name_that_does_not_resolve_is_a_failure_of_dns(monkeypatch, host):
    asked = []

    def unknown(name, *args, **kwargs):
        asked.append(name)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    assert (await fetch(f"http://{host}")).failure is Failure.DNS
    assert set(asked) == {host}


async def test_whatever_else_goes_wrong_is_an_outcome_too(monkeypatch):
    monkeypatch.setattr(HttpFetcher, "_session", lambda self, limits, visit: 1 / 0)

    assert (await fetch("http://nowhere.test")).failure is Failure.INTERNAL


@pytest.mark.parametrize(
    "url", ["http://", "x:y", "", "http://[::1/robots.txt", "http://a b/robots.txt"]
)
async def test_invalid_url_is_an_outcome_too(url):
    got = await fetch(url or "http:///robots.txt")

    assert isinstance(got, Failed)


async def test_fetches_run_side_by_side_on_one_fetcher(net):
    fetcher = trusted("mybot")
    hanging = net.origin(Reply(hang=True))
    sites = [net.origin(Reply(body=TEXT)) for _ in range(5)]
    slow = asyncio.ensure_future(fetch(hanging.url, fetcher=fetcher, first_byte=2.0))
    got = await asyncio.gather(*(fetch(site.url, fetcher=fetcher) for site in sites))

    assert [each.body for each in got] == [TEXT] * 5
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


# -- TLS ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def serving(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


ADDRESSES = (f"127.2.0.{n}" for n in itertools.count(1))


async def test_a_certificate_is_verified(net, authority):
    address = next(ADDRESSES)
    site = net.origin(Reply(body=TEXT), tls=serving(authority, address), address=address)
    got = await fetch(site.url, fetcher=trusted("mybot", tls=trusting(authority)))

    assert isinstance(got, Fetched)
    assert (got.body, got.tls_verified) == (TEXT, True)


async def test_unknown_authority_is_refused_and_nothing_is_requested(net, authority):
    address = next(ADDRESSES)
    site = net.origin(Reply(body=TEXT), tls=serving(authority, address), address=address)
    got = await fetch(site.url)

    assert isinstance(got, Failed)
    assert got.failure is Failure.TLS
    assert not site.received


@contextlib.contextmanager
def staying(context: ssl.SSLContext, address: str):
    """A TLS server that answers one request and then neither sends nor reads. Its port."""
    done = threading.Event()

    def serve() -> None:
        with (
            listener.accept()[0] as accepted,
            context.wrap_socket(accepted, server_side=True) as connection,
        ):
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            done.wait(60)

    with socket.create_server((address, 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        done.set()
        server.join()


async def test_a_connection_ends_with_its_fetch(authority, monkeypatch):
    """It does not wait for the peer's close, which TLS peers may delay by 30 s."""
    sockets, make = [], http._socket
    monkeypatch.setattr(
        http, "_socket", lambda address: sockets.append(make(address)) or sockets[-1]
    )
    address = next(ADDRESSES)
    with staying(serving(authority, address), address) as port:
        got = await fetch(
            f"https://{address}:{port}", fetcher=trusted("mybot", tls=trusting(authority))
        )
        await asyncio.sleep(0)
        assert [each.fileno() for each in sockets] == [-1]

    assert got.body == b"ok"


async def test_a_certificate_for_another_name_is_refused(net, authority):
    address = next(ADDRESSES)
    site = net.origin(Reply(body=TEXT), tls=serving(authority, "other.test"), address=address)
    got = await fetch(site.url, fetcher=trusted("mybot", tls=trusting(authority)))

    assert got.failure is Failure.TLS
    assert not site.received


async def test_unverified_outcome_says_so(net, authority):
    address = next(ADDRESSES)
    site = net.origin(Reply(body=TEXT), tls=serving(authority, "other.test"), address=address)
    careless = ssl.create_default_context()
    careless.check_hostname = False
    careless.verify_mode = ssl.CERT_NONE
    got = await fetch(site.url, fetcher=trusted("mybot", tls=careless))

    assert isinstance(got, Fetched)
    assert not got.tls_verified


async def test_a_site_that_closes_before_its_response_is_read(net, authority, monkeypatch):
    """A busy process reads a response when TLS has ended already. On Python 3.11.2, a TLS connection
    that has ended cannot be closed and aborted."""
    start = http.aiohttp.ClientResponse.start

    async def late(response, connection):
        while not connection.transport.is_closing():
            await asyncio.sleep(0)
        return await start(response, connection)

    monkeypatch.setattr(http.aiohttp.ClientResponse, "start", late)
    address = next(ADDRESSES)
    site = net.origin(Reply(body=TEXT), tls=serving(authority, address), address=address)
    got = await fetch(site.url, fetcher=trusted("mybot", tls=trusting(authority)))

    assert isinstance(got, Fetched), got
    assert got.body == TEXT


async def test_plain_http_on_a_tls_port_is_a_failure():
    async def plain(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1") as server:
        got = await fetch(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    assert got.failure is Failure.TLS


# -- where it may go ----------------------------------------------------------------------------------------


def resolving(monkeypatch, **names):
    """Make names resolve to these addresses; return how often each was looked up."""
    asked = Counter()

    def getaddrinfo(host, port, *args, **kwargs):
        asked[host] += 1
        family = {4: socket.AF_INET, 6: socket.AF_INET6}
        found = [ip_address(address) for address in names[host.partition(".")[0]]]
        ends = {4: (), 6: (0, 0)}
        return [
            (
                family[each.version],
                socket.SOCK_STREAM,
                6,
                "",
                (str(each), port, *ends[each.version]),
            )
            for each in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.fixture
def public_loopback(monkeypatch):
    """127.9.0.0/16 counts as public."""
    ours, really = ip_network("127.9.0.0/16"), destinations.is_public
    monkeypatch.setattr(
        destinations, "is_public", lambda address: address in ours or really(address)
    )


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "2130706433"],
)
async def test_a_private_address_is_refused_unless_trusted_or_allowed(host, monkeypatch):
    # Nothing may be connected.
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", None)
    got = await fetch(
        f"http://{split_url(f'http://{host}')[0].authority}", fetcher=HttpFetcher("mybot")
    )

    assert got.failure is Failure.REFUSED
    assert "allow_private" in got.detail


async def test_allowed_address_is_reached_and_its_neighbour_is_not(net):
    near, far = (
        net.origin(Reply(body=TEXT), address="127.8.0.1"),
        net.origin(Reply(body=TEXT), address="127.8.1.1"),
    )
    fetcher = HttpFetcher("mybot", destinations=Destinations(allowed=networks("127.8.0.0/24")))

    assert (await fetch(near.url, fetcher=fetcher)).body == TEXT
    assert (await fetch(far.url, fetcher=fetcher)).failure is Failure.REFUSED
    assert not far.connections


async def test_name_is_resolved_once_and_the_checked_address_is_used(net, monkeypatch):
    site = net.origin(Reply(body=TEXT), address="127.9.0.1")
    asked = resolving(monkeypatch, rebinding=["127.9.0.1"])
    monkeypatch.setattr(destinations, "is_public", lambda address: True)
    got = await fetch(f"http://rebinding.test:{site.port}/robots.txt", fetcher=HttpFetcher("mybot"))

    assert (got.body, got.public) == (TEXT, True)
    assert asked == {"rebinding.test": 1}
    assert site.received[0].headers["host"] == f"rebinding.test:{site.port}"


async def test_hanging_lookups_do_not_block_others(net, monkeypatch):
    """There are more hanging lookups than any pool has threads."""
    site, given_up = net.origin(Reply(body=TEXT), address="127.9.0.3"), threading.Event()
    names = resolving(monkeypatch, good=["127.9.0.3"])
    resolve = socket.getaddrinfo

    def tarpit(host, *args, **kwargs):
        if host.startswith("hangs"):
            names[host] += 1
            given_up.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", tarpit)
    hanging = [
        asyncio.ensure_future(fetch(f"http://hangs{n}.test", connect=30, total=30))
        for n in range(100)
    ]
    try:
        await until(lambda: len(names) == 100)
        got = await fetch(f"http://good.test:{site.port}/robots.txt")
    finally:
        given_up.set()

    assert got.body == TEXT
    assert {each.failure for each in await asyncio.gather(*hanging)} == {Failure.DNS}


async def test_one_private_address_among_several_refuses_all(monkeypatch, net, public_loopback):
    site = net.origin(Reply(body=TEXT), address="127.9.0.2")
    resolving(monkeypatch, mixed=["127.9.0.2", "10.0.0.1"])
    got = await fetch(f"http://mixed.test:{site.port}/robots.txt", fetcher=HttpFetcher("mybot"))

    assert got.failure is Failure.REFUSED
    assert not site.connections


async def test_public_site_cannot_redirect_to_a_private_one_whatever_is_allowed(net):
    inside = net.origin(Reply(body=TEXT))
    allowing = Destinations(allowed=networks("0.0.0.0/0"), trusts_caller=True)
    got = await fetch(
        inside.url, fetcher=HttpFetcher("mybot", destinations=allowing), public_only=True
    )

    assert got.failure is Failure.REFUSED
    assert not inside.connections


async def test_the_outcome_says_whether_the_address_was_public(net, public_loopback):
    assert (await fetch(net.origin("", address="127.9.0.3").url)).public is True
    assert (await fetch(net.origin("").url)).public is False


@pytest.mark.parametrize("port", [22, 25, 6379, 11211])
async def test_a_port_of_another_protocol_is_refused(port, monkeypatch):
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", None)
    got = await fetch(f"http://127.0.0.1:{port}/robots.txt")

    assert (got.failure, got.detail) == (Failure.REFUSED, f"port {port} is not used for HTTP")


async def test_tls_verifies_the_name_and_not_the_address(net, authority, monkeypatch):
    site = net.origin(
        Reply(body=TEXT), tls=serving(authority, "site.test"), address=next(ADDRESSES)
    )
    resolving(monkeypatch, site=[site.address], other=[site.address])
    fetcher = trusted("mybot", tls=trusting(authority))

    assert (await fetch(f"https://site.test:{site.port}/robots.txt", fetcher=fetcher)).tls_verified
    assert (
        await fetch(f"https://other.test:{site.port}/robots.txt", fetcher=fetcher)
    ).failure is Failure.TLS


# -- through a proxy ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def forward_proxy(answer=None):
    """A proxy that forwards tunnels and absolute targets to loopback, and records first lines."""
    seen = []

    async def pump(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head)
        if answer:
            writer.write(answer)
            writer.close()
            return
        method, target, _ = head.split("\r\n")[0].split(" ")
        port = int(target.removeprefix("http://").partition("/")[0].rpartition(":")[2])
        far_reader, far_writer = await asyncio.open_connection("127.7.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            far_writer.write(head.replace(target, "/" + target.split("/", 3)[3], 1).encode())
        await asyncio.gather(
            pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True
        )

    def accepted(reader, writer):
        under_way.append(asyncio.ensure_future(serve(reader, writer)))

    under_way = []
    async with await asyncio.start_server(accepted, "127.0.0.1") as server:
        yield f"http://me:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    await asyncio.wait(under_way, timeout=60)


async def test_a_proxy_is_used_when_the_settings_say_so_and_resolves_the_names(
    net, authority, monkeypatch
):
    plain = net.origin(Reply(body=TEXT), address="127.7.0.1")
    secure = net.origin(Reply(body=TEXT), tls=serving(authority, "site.test"), address="127.7.0.1")
    asked = resolving(monkeypatch)
    async with forward_proxy() as (url, seen):
        fetcher = HttpFetcher("mybot", tls=trusting(authority), proxy=url)
        first = await fetch(f"http://site.test:{plain.port}/robots.txt", fetcher=fetcher)
        second = await fetch(f"https://site.test:{secure.port}/robots.txt", fetcher=fetcher)
        inside = await fetch("http://10.0.0.1/robots.txt", fetcher=fetcher)

    assert (first.body, first.public) == (TEXT, None)
    assert (second.body, second.tls_verified) == (TEXT, True)
    assert inside.failure is Failure.REFUSED
    assert [head.split(" ")[0] for head in seen] == ["GET", "CONNECT"]
    assert all("proxy-authorization: basic" in head.lower() for head in seen)
    assert "secret" not in repr(plain.received + secure.received)
    assert not asked


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_never_taken_for_a_site_without_a_file(scheme):
    async with forward_proxy(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n") as (url, _):
        got = await fetch(
            f"{scheme}://site.test/robots.txt", fetcher=HttpFetcher("mybot", proxy=url)
        )

    if isinstance(got, Fetched):
        assert is_trouble(got.status)
    else:
        assert got.failure is Failure.CONNECT
