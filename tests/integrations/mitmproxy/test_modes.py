"""Other modes: behind a parent proxy, as a SOCKS proxy, as a reverse proxy."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest
from integrations.mitmproxy.conftest import KINDS, get, untouched
from integrations.mitmproxy.process import SCRIPT
from integrations.mitmproxy.wire import (
    TIMEOUT,
    closed,
    connected,
    exchange,
    inside,
    plain,
    read_answer,
    trusting,
    tunnel,
)

from robots_guard.testing import Reply

# -- upstream -------------------------------------------------------------------------------------------------


class Parent:
    """A plain proxy that records its requests."""

    def __init__(self):
        self.heads = []
        self.demands = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = client.recv(1)
            if not byte:
                return
            head += byte
        self.heads.append(head.decode())
        if self.demands:
            with client:
                client.sendall(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
                )
            return
        method, target, _ = head.decode().split("\r\n")[0].split()
        authority = target.removeprefix("http://").partition("/")[0]
        host, _, port = authority.rpartition(":")
        with client, socket.create_connection((host, int(port))) as origin:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                assert target.startswith("http://")
                origin.sendall(head.replace(f"http://{authority}".encode(), b"", 1))
            back = threading.Thread(target=self._copy, args=(origin, client), daemon=True)
            back.start()
            self._copy(client, origin)
            back.join()

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def lines(self):
        return [head.split("\r\n")[0].removesuffix(" HTTP/1.1") for head in self.heads]

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()


@pytest.fixture
def parent():
    listening = Parent()
    yield listening
    listening.close()


@pytest.mark.parametrize("kind", KINDS)
def test_behind_a_parent_proxy(kind, parent, start, sites):
    """robots.txt is fetched like pages, with the parent's credentials; a refused request never reaches it."""
    site, secure = sites.start("http"), sites.start("https")
    options = ["--mode", f"upstream:{parent.url}"]
    if kind == "mitmdump":
        options += ["--set", "upstream_auth=crawler:secret"]
    with start(kind, *options) as integration:
        assert plain(integration, site.url + "/open").status == 200
        assert inside(integration, secure.authority, "/open").status == 200
        expected = [
            f"GET {site.url}/robots.txt",
            f"GET {site.url}/open",
            *[f"CONNECT {secure.authority}"] * 2,
        ]
        assert parent.lines() == expected
        assert plain(integration, site.url + "/private/x").status == 403
        assert inside(integration, secure.authority, "/private/x").status == 403
        with tunnel(integration, site.authority, tls=False) as connection:
            connection.sendall(b"\x00\x01\x02GET /private/x HTTP/1.1\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            closed(connection)
        assert parent.lines() == expected
    assert (site.origin.targets, secure.origin.targets) == (["/open"], ["/open"])
    if kind == "mitmdump":
        assert all(
            "Proxy-Authorization: Basic Y3Jhd2xlcjpzZWNyZXQ=" in head for head in parent.heads
        )


@pytest.mark.parametrize("kind", KINDS)
def test_an_unreachable_parent_proxy(kind, parent, start, http_site, tmp_path):
    """Nothing is sent directly instead, and another proxy with the same store goes on."""
    parent.close()
    store = f"sqlite:///{tmp_path}/policies.sqlite"
    with start(kind, "--mode", f"upstream:{parent.url}", store=store) as integration:
        answer = plain(integration, http_site.url + "/open")
        assert (answer.status, "route-failed" in answer.guard) == (503, True)
        (record,) = integration.records()
        assert record["detail"].endswith(f"(through {parent.url.removeprefix('http://')})")
        assert http_site.seen()[0] == 0
        with start(kind, store=store) as another:
            assert plain(another, http_site.url + "/open").status == 200


@pytest.mark.parametrize("own", [True, False], ids=["with-own", "without"])
def test_a_parent_proxy_gets_the_operators_credentials_only(parent, start, sites, own):
    site, secure = sites.start("http"), sites.start("https")
    options = ["--set", "upstream_auth=crawler:secret"] if own else []
    theirs = "Proxy-Authorization: Basic dGhlaXJz\r\nProxy-Connection: keep-alive\r\n"
    with start("mitmdump", "--mode", f"upstream:{parent.url}", *options) as integration:
        assert plain(integration, site.url + "/open", fields=theirs).status == 200
        with connected(integration) as connection:
            head = f"CONNECT {secure.authority} HTTP/1.1\r\nHost: {secure.authority}\r\n{theirs}\r\n".encode()
            assert exchange(connection, head, body=False).status == 200
            with trusting(integration).wrap_socket(
                connection, server_hostname=secure.host
            ) as secured:
                head = f"GET /open HTTP/1.1\r\nHost: {secure.authority}\r\n{theirs}Connection: close\r\n\r\n".encode()
                assert exchange(secured, head).status == 200
    said = [
        line
        for head in parent.heads
        for line in head.split("\r\n")
        if line.lower().startswith("proxy-")
    ]
    assert (len(parent.heads), said) == (
        4,
        ["Proxy-Authorization: Basic Y3Jhd2xlcjpzZWNyZXQ="] * (4 if own else 0),
    )
    assert not any(
        name.startswith("proxy-") for request in secure.origin.received for name in request.headers
    )


SETS_CREDENTIALS = """
def request(flow): flow.request.headers["Proxy-Authorization"] = "Basic b3RoZXJz"
"""


def test_a_parent_proxy_gets_the_credentials_of_an_addon(parent, start, http_site, tmp_path):
    script = tmp_path / "credentials.py"
    script.write_text(SETS_CREDENTIALS)
    theirs = "Proxy-Authorization: Basic dGhlaXJz\r\n"
    with start(
        "mitmdump", "--mode", f"upstream:{parent.url}", "-s", str(SCRIPT), "-s", str(script)
    ) as integration:
        assert plain(integration, http_site.url + "/open", fields=theirs).status == 200
    said = [
        [line for line in head.split("\r\n") if line.lower().startswith("proxy-")]
        for head in parent.heads
    ]
    assert said == [["Proxy-Authorization: Basic b3RoZXJz"]] * 2  # robots.txt goes the same way


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_parent_proxy_that_asks_for_credentials(scheme, parent, start, sites):
    """Its 407 is no answer of the site: it says nothing about the site's robots.txt, and allows nothing."""
    parent.demands = True
    site = sites.start(scheme)
    with start("proxy", "--mode", f"upstream:{parent.url}") as integration:
        answer = get(integration, site, "/open")
        assert (answer.status, "route-failed" in answer.guard) == (503, True)
        (record,) = integration.records()
        assert record["failure"] == "refused"
        assert (
            parent.url.removeprefix("http://") in record["detail"],
            "407" in record["detail"],
        ) == (True, True)
    assert site.seen()[0] == 0


# -- socks5 ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def socks(integration, site, *, by_name=None):
    """A connection after the SOCKS handshake: to an address, or to a name the proxy is to look up."""
    with connected(integration) as connection:
        connection.sendall(b"\x05\x01\x00")
        assert connection.recv(2) == b"\x05\x00"
        where = b"\x01" + socket.inet_aton(site.host)
        if by_name:
            where = b"\x03" + bytes((len(by_name),)) + by_name.encode()
        connection.sendall(b"\x05\x01\x00" + where + struct.pack(">H", site.port))
        assert connection.recv(10)[1] == 0
        yield connection


@pytest.fixture(scope="module")
def socks_integrations(start):
    with contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(start(kind, "--mode", "socks5")) for kind in KINDS}


@pytest.fixture(params=KINDS)
def socks_integration(request, socks_integrations):
    return socks_integrations[request.param]


def request_of(site, target, host=None):
    return f"GET {target} HTTP/1.1\r\nHost: {host or site.authority}\r\nConnection: close\r\n\r\n".encode()


def test_socks_is_judged(socks_integration, http_site):
    with socks(socks_integration, http_site) as connection:
        assert exchange(connection, request_of(http_site, "/open")).status == 200
    with socks(socks_integration, http_site) as connection:
        assert exchange(connection, request_of(http_site, "/private/x")).status == 403
    assert http_site.origin.targets == ["/open"]


@pytest.mark.parametrize(
    "first", [b"\r\nGET /private/x HTTP/1.1\r\n\r\n", b"\x00\x01\x02", b"SSH-2.0-x\r\n"]
)
def test_raw_bytes_through_socks(socks_integration, http_site, first):
    with socks(socks_integration, http_site) as connection:
        connection.sendall(first)
        connection.shutdown(socket.SHUT_WR)
        closed(connection)
    with socks(socks_integration, http_site) as connection:
        assert exchange(connection, request_of(http_site, "/open")).status == 200
    assert http_site.tap.accepts == 2  # robots.txt and the allowed page
    assert http_site.origin.targets == ["/open"]


def test_a_name_replaces_the_address_of_a_socks_client(socks_integration, sites, net):
    """Over SOCKS a client may have looked a name up itself. Its address is not believed: the name is judged,
    so the name is where the request goes."""
    site, named = _start_at_one_port(sites, net)
    claimed = f"localhost:{named.port}"
    for target, status in (("/private/x", 200), ("/closed/x", 403)):
        with socks(socks_integration, site) as connection:
            assert exchange(connection, request_of(site, target, host=claimed)).status == status
    assert named.targets == ["/private/x"]
    assert site.seen()[0] == 0


def _start_at_one_port(sites, net):
    """Start two sites that only their addresses tell apart. The second has that of `localhost`, where
    the port of the first may be in use, such as by another test's proxy."""
    while True:
        site = sites.start()
        with contextlib.suppress(OSError):
            robots = "User-agent: *\nDisallow: /closed/\n"
            return site, net.origin(robots, address="127.0.0.1", port=site.port)


def test_another_port_in_the_host_field(socks_integration, http_site):
    with socks(socks_integration, http_site) as connection:
        answer = exchange(connection, request_of(http_site, "/open", host="localhost:9"))
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)
    assert http_site.seen()[0] == 0


def test_a_host_field_that_differs_from_the_socks_name(socks_integration, http_site):
    with socks(socks_integration, http_site, by_name="localhost") as connection:
        answer = exchange(connection, request_of(http_site, "/open"))
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)
    assert http_site.seen()[0] == 0


# -- reverse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_in_reverse_mode(kind, start, http_site):
    with start(kind, "--mode", f"reverse:{http_site.url}") as integration:
        for target, status in (("/open", 200), ("/private/x", 403)):
            with connected(integration) as connection:
                head = f"GET {target} HTTP/1.1\r\nHost: anything.test\r\nConnection: close\r\n\r\n"
                assert exchange(connection, head.encode()).status == status
        with connected(integration) as connection:
            head = "GET http://elsewhere.test/open HTTP/1.1\r\nHost: elsewhere.test\r\nConnection: close\r\n\r\n"
            assert exchange(connection, head.encode()).status == 403
    assert http_site.origin.targets == ["/open"]


# -- a client that leaves -------------------------------------------------------------------------------------


def test_a_client_that_leaves_during_the_fetch(integration, sites):
    """The check continues for the next client; the request of the first is not sent."""
    requested, go_on = threading.Event(), threading.Event()

    def robots(request):
        requested.set()
        return Reply(
            body="User-agent: *\nDisallow: /private/\n", delay=0.0 if go_on.is_set() else 1.0
        )

    site = sites.start(robots=robots)
    with connected(integration) as connection:
        connection.sendall(
            f"GET {site.url}/left HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
        )
        assert requested.wait(TIMEOUT)
    with untouched(integration, site):  # waits for the same fetch
        pass
    assert len(site.origin.robots_fetches) == 1
    assert site.origin.targets == ["/alive-before", "/alive-after"]


def test_one_waiting_client_does_not_delay_another(integration, sites, http_site):
    slow = sites.start(robots=Reply(body="", delay=2.0))
    with connected(integration) as connection:
        connection.sendall(
            f"GET {slow.url}/slow HTTP/1.1\r\nHost: {slow.authority}\r\n\r\n".encode()
        )
        assert plain(integration, http_site.url + "/open").status == 200
        assert slow.origin.targets == []
        assert read_answer(connection).status == 200
