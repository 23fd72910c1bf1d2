"""Inspected TLS behind Envoy: a verdict for each request inside, and no way around it."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import subprocess

import pytest
import trustme
from integrations.envoy.inspection import NAMES, inspecting
from integrations.mitmproxy.h2_site import h2_site
from integrations.mitmproxy.wire import (
    TIMEOUT,
    H2Client,
    closed,
    connected,
    exchange,
    http2,
    inside,
    request_fields,
    trusting,
    tunnel,
)
from support.programs import program
from support.waiting import eventually

FORBIDDEN = "/private/x"
NUMBERS = itertools.count(10)  # of HTTP/2 sites
NO_HANDSHAKE = r"(?i)eof|reset|timed out"


@pytest.fixture(scope="module")
def integration(ca_file, tmp_path_factory):
    with inspecting(tmp_path_factory.mktemp("envoy"), ca_file, audit="all") as running:
        yield running


@pytest.fixture
def site(sites):
    return sites.start("https")


@contextlib.contextmanager
def untouched(*sites):
    """Nothing done in the block reaches the sites."""
    before = [site.seen() for site in sites]
    yield
    assert [site.seen() for site in sites] == before


def curl(integration, url, *options):
    """Status, HTTP version and body of a request by curl."""
    command = [program("curl"), "-sS", "-m", "40", "-x", integration.url, "--path-as-is", "-w"]
    command += ["\n%{http_code} %{http_version}", "--cacert", str(integration.ca), *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    body, _, (status, version) = (*done.stdout.rpartition("\n")[:2], done.stdout.rsplit()[-2:])
    return int(status), version, body, done.stderr


# -- verdicts inside TLS -----------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "version"), [("--http1.1", "1.1"), ("--http2", "2")])
def test_a_verdict_inside_tls(integration, site, option, version):
    assert curl(integration, site.url + "/open", option)[:2] == (200, version)
    status, spoken, body, _ = curl(integration, site.url + FORBIDDEN, option)
    assert (status, spoken) == (403, version)
    assert '"rule": "Disallow: /private/"' in body
    assert site.origin.targets == ["/open"]


def test_each_request_of_a_connection_is_judged(integration, site):
    with tunnel(integration, site.authority) as connection:
        for target, status in (("/open", 200), (FORBIDDEN, 403), ("/open2", 200)):
            head = f"GET {target} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            assert exchange(connection, head.encode()).status == status
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        client = H2Client(connection)
        for target, status in (("/open3", 200), (FORBIDDEN, 403), ("/open4", 200)):
            assert client.exchange(request_fields(site.authority, target)).status == status
    assert site.origin.targets == ["/open", "/open2", "/open3", "/open4"]


def test_a_stream_that_is_reset_gives_up_its_place(integration, sites):
    """Envoy breaks off its question, and the connection of the client stays open."""
    site = sites.start("https", "User-agent: *\nCrawl-delay: 1.5\n")
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        client = H2Client(connection)
        assert client.exchange(request_fields(site.authority, "/first")).status == 200
        for number in range(8):
            url = f"{site.url}/leaves/{number}"
            stream = client.begin(request_fields(site.authority, f"/leaves/{number}"))
            eventually(lambda url=url: any(each["url"] == url for each in integration.records()))
            client.reset(stream)
        assert client.exchange(request_fields(site.authority, "/stays")).status == 200
    assert site.origin.targets == ["/first", "/stays"]


def test_what_arrives_is_what_was_sent(integration, site):
    """Envoy adds no fields of its own."""
    fields = "User-Agent: me/1\r\nAccept: text/x\r\nX-Mine: 1\r\n"
    assert inside(integration, site.authority, "/open?a=%2F", fields=fields).status == 200
    arrived = site.origin.received[-1]
    assert arrived.target == "/open?a=%2F"
    assert {name: value for name, value in arrived.headers.items() if name != "connection"} == {
        "host": site.authority,
        "user-agent": "me/1",
        "accept": "text/x",
        "x-mine": "1",
    }


def test_the_decision_is_recorded(integration, site):
    before = len(integration.records())
    assert inside(integration, site.authority, FORBIDDEN).status == 403
    (record,) = integration.records()[before:]
    assert record["url"] == f"{site.url}{FORBIDDEN}"
    assert (record["component"], record["client"]) == ("serve", "127.0.0.1")


def test_http_and_https_have_rules_of_their_own(integration, sites):
    site = sites.start("https", "User-agent: *\nDisallow: /tls-only/\n")
    assert inside(integration, site.authority, "/tls-only/x").status == 403
    assert inside(integration, site.authority, FORBIDDEN).status == 200


def test_a_site_that_speaks_http2(integration, authority, tmp_path):
    """Envoy speaks to the site what the site prefers; the rules are those of the judged target."""
    with h2_site(tmp_path, authority, "127.3.251.9", names=("h2.test",), also_http1=True) as site:
        NAMES["h2.test"] = "127.3.251.9"
        authority_of_site = f"h2.test:{site.authority.rpartition(':')[2]}"
        for version in ("--http1.1", "--http2"):
            url = f"https://{authority_of_site}/open"
            assert curl(integration, url, version)[0] == 200
            assert site.next()["path"] == "/open"
        assert curl(integration, f"https://{authority_of_site}{FORBIDDEN}")[0] == 403


@pytest.fixture
def http2_site(authority, tmp_path):
    """The authority of a site that speaks HTTP/2. Its name is a new one, because addresses are cached."""
    number = next(NUMBERS)
    name, address = f"h2-{number}.test", f"127.3.251.{number}"
    with h2_site(tmp_path, authority, address, names=(name,), also_http1=True) as site:
        NAMES[name] = address
        yield f"{name}:{site.authority.rpartition(':')[2]}"


@pytest.mark.parametrize("target", ["/trailers", "/early"])
def test_an_http2_site_cannot_state_what_robots_guard_found(integration, http2_site, target):
    with tunnel(integration, http2_site, alpn=["h2"]) as connection:
        answer = http2(connection, request_fields(http2_site, target))

    assert (answer.status, answer.body, answer.is_whole) == (200, b"whole", True)
    assert not {"robots-guard", "robots-guard-signals"} & set(answer.headers)


@pytest.fixture(scope="module")
def trainer(ca_file, tmp_path_factory):
    """An Envoy whose operator trains models."""
    with inspecting(tmp_path_factory.mktemp("envoy"), ca_file, purposes="ai-train") as running:
        yield running


def test_the_trailers_of_a_refused_response_are_dropped(trainer, http2_site):
    with tunnel(trainer, http2_site, alpn=["h2"]) as connection:
        answer = http2(connection, request_fields(http2_site, "/denying"))

    assert (answer.status, answer.is_whole) == (403, True)
    assert b"usage-reserved" in answer.body
    assert "x-sum" not in answer.headers


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_a_refused_response_with_trailers_and_no_body(trainer, http2_site, version):
    """Envoy 1.40 crashes if a script gives such a response a body. So the refusal is cut off."""
    status, _, body, _ = curl(trainer, f"https://{http2_site}/denying-empty", version)
    assert (status in {0, 403}, body) == (True, "")
    status, _, body, _ = curl(trainer, f"https://{http2_site}/denying", version)
    assert status == 403
    assert "usage-reserved" in body


# -- the site's certificate --------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("fault", ["another name", "an unknown authority"])
def test_a_site_with_a_wrong_certificate(integration, sites, fault, version):
    """Its robots.txt was fetched before: without one, the request would not be permitted at all."""
    site = sites.start("https")
    assert inside(integration, site.authority, FORBIDDEN).status == 403
    if fault == "another name":
        other = sites.start("https")
    else:
        other = sites.start("https", names=(site.name,), authority=trustme.CA())
    site.tap.lead_to(other)
    failures = ("ssl.fail_verify_san", "ssl.fail_verify_error")
    before = sum(map(integration.statistic, failures))
    assert curl(integration, f"{site.url}/open", f"--http{version}")[0] == 503
    assert sum(map(integration.statistic, failures)) > before
    assert other.origin.received == []


# -- no way around -----------------------------------------------------------------------------------


def connect(connection, target, host=None):
    host = target if host is None else host
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"
    return exchange(connection, head.encode("latin-1"), body=False)


HELLO = bytes.fromhex("16030100050100000100")  # the beginning of a ClientHello

RAW = {
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": bytes(100),
    "http2-without-tls": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "broken-tls": HELLO + b"\xff" * 50,
    "tls-record-of-another-kind": b"\x17\x03\x03\x00\x05hello",
    "smtp": b"EHLO me\r\nMAIL FROM:<a@b>\r\n",
    "request-with-a-bare-line-feed": b"GET /private/x HTTP/1.1\nHost: {}\n\n",
    "http-0.9": b"GET /private/x\r\n",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_bytes_that_are_no_request(integration, sites, scheme, data):
    site = sites.start(scheme)
    with untouched(site), connected(integration) as connection:
        assert connect(connection, site.authority).status == 200
        connection.sendall(data.replace(b"{}", site.authority.encode()))
        connection.shutdown(socket.SHUT_WR)
        assert not closed(connection).startswith(b"HTTP/1.1 2")


def test_bytes_that_come_with_the_connect(integration, site):
    """Before the answer to the CONNECT."""
    with untouched(site), connected(integration) as connection:
        head = f"CONNECT {site.authority} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        early = f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        connection.sendall((head + early).encode())
        connection.shutdown(socket.SHUT_WR)
        closed(connection)


def test_plain_http_inside_a_tunnel_is_judged(integration, sites):
    site = sites.start("http")
    for target, status in (("/open", 200), (FORBIDDEN, 403)):
        with tunnel(integration, site.authority, tls=False) as connection:
            head = f"GET {target} HTTP/1.1\r\nHost: {site.authority}\r\nConnection: close\r\n\r\n"
            assert exchange(connection, head.encode()).status == status
    assert site.origin.targets == ["/open"]


def test_plain_http_to_a_site_that_speaks_tls(integration, site):
    """Judged as http://, by rules of its own, which the site does not have."""
    with tunnel(integration, site.authority, tls=False) as connection:
        head = f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        assert exchange(connection, head.encode()).status == 503
    assert site.origin.received == []


def test_tls_without_a_name(integration, site):
    """There is no certificate for it: Envoy selects one by the name in the ClientHello only."""
    with untouched(site), connected(integration) as connection:
        assert connect(connection, site.authority).status == 200
        context = trusting(integration)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
            context.wrap_socket(connection)


@pytest.mark.parametrize(
    "name", ["*", "*.test", "a b", "a/b", "..", "a..test", "x" * 64 + ".test", "1.2.3.4.5"]
)
def test_a_hostile_name(integration, site, name):
    """Python sends only names that it can encode; the bytes of the ClientHello are patched."""
    placeholder = "q" * len(name) if len(name) < 64 else "q" * 60 + "." + "q" * (len(name) - 61)
    context = trusting(integration)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=placeholder)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    assert placeholder.encode() in hello
    with untouched(site), connected(integration) as connection:
        assert connect(connection, site.authority).status == 200
        connection.sendall(hello.replace(placeholder.encode(), name.encode()))
        answer = connection.recv(100)
    assert answer[:1] == b"\x15"  # an alert
    eventually(lambda: integration.statistic("on_demand_secret.cert_active") < 100)


def test_the_ports_that_tunnels_may_lead_to(ca_file, sites, tmp_path):
    site = sites.start("https")
    with inspecting(tmp_path, ca_file, connect_ports="443") as running, untouched(site):
        answer = inside(running, site.authority, "/open")
        assert (answer.status, "destination-refused" in answer.guard) == (403, True)
        with tunnel(running, site.authority, tls=False) as connection:
            head = f"GET /open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            answer = exchange(connection, head.encode())
            assert (answer.status, "destination-refused" in answer.guard) == (403, True)
        for target in (f"{site.name}:22", f"{site.name}:25"):
            with connected(running) as connection:
                assert connect(connection, target).status == 200
                connection.sendall(b"SSH-2.0-x\r\n")
                connection.shutdown(socket.SHUT_WR)
                assert b"SSH" not in closed(connection)


def test_private_addresses(ca_file, sites, tmp_path):
    site = sites.start("https")
    with inspecting(tmp_path, ca_file, allow_private="192.0.2.0/24") as running, untouched(site):
        answer = inside(running, site.authority, "/open")
        assert (answer.status, "destination-refused" in answer.guard) == (403, True)


@pytest.mark.parametrize(
    "target",
    ["{guard}", "{sds}", "{own}", "localhost:{port}", "robots.guard:80", "[::1]:443"],
)
def test_a_tunnel_to_the_programs_themselves(integration, target):
    services = integration.services
    place = target.format(
        guard="{}:{}".format(*services.envoy.getsockname()),
        sds="{}:{}".format(*services.sds.getsockname()),
        own=f"{integration.host}:{integration.port}",
        port=integration.port,
    )
    with connected(integration) as connection:
        answer = connect(connection, place)
        if answer.status != 200:
            return
        head = f"GET /stats HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n"
        assert exchange(connection, head.encode()).status in (400, 403, 503)


@pytest.mark.parametrize(
    "target",
    ["", "/", "https://{}/", "{}/private/x", "user@{}", "*", "{},{}", ":443", "a b:443"],
)
def test_a_connect_that_names_no_host_and_port(integration, site, target):
    target = target.replace("{}", site.authority)
    with untouched(site), connected(integration) as connection:
        answer = connect(connection, target, site.authority)
        if answer.status == 200:
            request = f"GET /open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
            assert exchange(connection, request.encode()).status in (0, 400, 403)


# -- names that disagree -----------------------------------------------------------------------------


def test_a_host_field_that_differs_from_the_tunnel(integration, site, sites):
    other = sites.start("https")
    with untouched(site, other), tunnel(integration, site.authority) as connection:
        head = f"GET /open HTTP/1.1\r\nHost: {other.authority}\r\n\r\n"
        answer = exchange(connection, head.encode())
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


def test_a_host_field_without_the_port(integration, site):
    with untouched(site), tunnel(integration, site.authority) as connection:
        answer = exchange(connection, f"GET /open HTTP/1.1\r\nHost: {site.name}\r\n\r\n".encode())
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


@pytest.mark.parametrize("host", ["tunnel", "sni"])
def test_a_name_in_the_hello_that_differs_from_the_tunnel(integration, site, sites, host):
    other = sites.start("https", names=("fronted.test",), port=site.port)
    named = {"tunnel": site.authority, "sni": other.authority}[host]
    with untouched(site, other):
        with tunnel(integration, site.authority, sni=other.name) as connection:
            answer = exchange(connection, f"GET /open HTTP/1.1\r\nHost: {named}\r\n\r\n".encode())
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


def test_an_absolute_target_inside_the_tunnel(integration, site, sites):
    other = sites.start("https")
    with untouched(site, other), tunnel(integration, site.authority) as connection:
        head = f"GET {other.url}/open HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        answer = exchange(connection, head.encode())
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


def test_an_http2_authority_of_another_site(integration, site, sites):
    other = sites.start("https")
    with untouched(site, other), tunnel(integration, site.authority, alpn=["h2"]) as connection:
        answer = http2(connection, request_fields(other.authority, "/open"))
        assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


def test_a_connect_whose_host_field_differs(integration, site, sites):
    """The target of a CONNECT is where it leads (RFC 9110 section 9.3.6)."""
    other = sites.start("https")
    with untouched(other), connected(integration) as connection:
        answer = connect(connection, site.authority, other.authority)
        if answer.status == 200:
            context = trusting(integration)
            with context.wrap_socket(connection, server_hostname=site.name) as secured:
                head = f"GET {FORBIDDEN} HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
                assert exchange(secured, head.encode()).status == 403
    assert site.origin.targets == []


def test_a_tunnel_inside_a_tunnel(integration, site):
    with untouched(site), tunnel(integration, site.authority) as connection:
        answer = connect(connection, site.authority)
        assert answer.status in (0, 400, 403, 404, 405, 501)


# -- faults ------------------------------------------------------------------------------------------


def test_a_secret_server_that_is_down(integration, site, sites):
    """A known name goes on; a new one gets no connection, and gets it when the server is back."""
    assert inside(integration, site.authority, "/open").status == 200
    new = sites.start("https")
    port = integration.services.close_secrets()
    try:
        assert inside(integration, site.authority, "/open").status == 200
        with untouched(new), pytest.raises(OSError, match=NO_HANDSHAKE):
            inside(integration, new.authority, "/open")
    finally:
        integration.services.open_secrets(port)
    assert (
        eventually(lambda: inside(integration, new.authority, "/open"), despite=OSError).status
        == 200
    )


def test_a_secret_server_that_hangs(integration, sites):
    new = sites.start("https")
    port = integration.services.close_secrets()
    try:
        with (
            socket.create_server(("127.0.0.1", port)),
            untouched(new),
            pytest.raises(OSError, match=NO_HANDSHAKE),
        ):
            inside(integration, new.authority, "/open")
    finally:
        integration.services.open_secrets(port)
    assert (
        eventually(lambda: inside(integration, new.authority, "/open"), despite=OSError).status
        == 200
    )


def test_certificates_are_forgotten(ca_file, sites, tmp_path):
    """Envoy's memory does not grow with the names that it has seen."""
    every = [sites.start("https") for _ in range(3)]
    with inspecting(tmp_path, ca_file, secret_ttl=1) as running:
        for site in every:
            assert inside(running, site.authority, "/open").status == 200
        eventually(lambda: running.statistic("on_demand_secret.cert_active") == 0)
        assert inside(running, every[0].authority, "/open").status == 200
