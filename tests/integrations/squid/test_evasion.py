"""Every row of evasion.jsonl through a real Squid, judged by what the site received.

Nothing that is forbidden arrives, and what arrives is what the client wrote: Squid changes no target.
"""

from __future__ import annotations

import contextlib
import socket
from typing import NamedTuple

import pytest
from integrations.mitmproxy.names import Names
from integrations.mitmproxy.origin import Site
from integrations.mitmproxy.test_evasion import ABSOLUTE, FIELDS, NAMES, SPELLINGS, target_bytes
from integrations.mitmproxy.wire import closed, connected, exchange, read_answer, tunnel
from integrations.squid.conftest import bumped
from integrations.squid.process import SquidIntegration, squid


@pytest.fixture(scope="module")
def judges(integration, ca_file, tmp_path_factory):
    """Squids with both values of `matching` that concern spellings."""
    folder = tmp_path_factory.mktemp("strict")
    with squid(folder, upstream_ca=ca_file, matching="strict") as strict:
        yield {"standard": integration, "strict": strict}


@pytest.fixture(scope="module")
def ruled(sites):
    """A site without TLS and one with it for each rule of the rows; started once."""
    made = {}

    def site(scheme, rule):
        if (scheme, rule) not in made:
            rules = "User-agent: *\n" + rule.replace(" + ", "\n") + "\n"
            made[scheme, rule] = sites.start(scheme, rules)
        return made[scheme, rule]

    return site


def plainly(integration, site, target):
    url = site.url.encode() + target
    if not target.startswith(b"/"):
        return  # it would belong to the port
    with connected(integration) as connection:
        _exchange(connection, site, url)


def inside_tls(integration, site, target):
    with bumped(integration, site.authority) as connection:
        _exchange(connection, site, target)


def _exchange(connection, site, target):
    head = b"GET " + target + b" HTTP/1.1\r\nHost: " + site.authority.encode()
    exchange(connection, head + b"\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("send", [plainly, inside_tls])
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in SPELLINGS])
def test_a_spelling(row, send, judges, ruled):
    site = ruled("https" if send is inside_tls else "http", row["rule"])
    target = target_bytes(row)
    for matching, integration in judges.items():
        expected = row["expected_by_profile"].get(matching, "either")
        before = len(site.origin.received)
        send(integration, site, target)
        received = site.origin.received[before:]
        arrived = [one.target for one in received if one.target != "/robots.txt"]
        if row["url_or_request_target"] == "/robots.txt":
            assert received
        elif expected == "block":
            assert arrived == [], (matching, row["why"])
        elif expected == "allow" and (send is inside_tls or target.startswith(b"/")):
            assert arrived == [target.decode("latin-1")], (matching, row["why"])
        else:
            assert arrived in ([], [target.decode("latin-1")])


# -- names -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(sites, tmp_path_factory, ca_file):
    """A Squid behind which example.test and others exist, by a parent proxy that knows them."""
    known = ("example.test", "allowed.test", "xn--fa-hia.de", "xn--bcher-kva.example")
    private = (sites.start(), sites.start("https", names=known))
    open_tls = sites.start("https", 404, names=("open.test",))
    allowed = sites.start("https", "", names=known)
    names = Names(*private, {"open.test": open_tls, "allowed.test": allowed})
    port = names.url.rpartition(":")[2]
    parent = f"cache_peer 127.0.0.1 parent {port} 0 no-query no-digest no-netdb-exchange default"
    with squid(
        tmp_path_factory.mktemp("named"),
        upstream_ca=ca_file,
        change=lambda text: f"{text}\n{parent}\nnever_direct allow all\n",
        fetch_proxy=names.url,
        connect_ports="80, 443",
    ) as started:
        yield Named(started, private, open_tls)
    names.close()


class Named(NamedTuple):
    integration: SquidIntegration
    private: tuple[Site, Site]
    open_tls: Site


@pytest.fixture
def nothing_private(named):
    """A Squid; afterwards, the check that no private page has arrived."""
    before = [len(site.origin.received) for site in named.private]
    yield named.integration
    for site, seen in zip(named.private, before, strict=True):
        assert {one.target for one in site.origin.received[seen:]} <= {"/robots.txt"}


def one_line(integration, line, host, fields=b""):
    with connected(integration) as connection:
        head = b"GET " + line + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + fields
        return exchange(connection, head + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ABSOLUTE])
def test_an_absolute_target(row, nothing_private):
    target = row["url_or_request_target"].encode()
    host = target.split(b"/")[2].rpartition(b"@")[2]
    assert one_line(nothing_private, target, host).status in (400, 403)


@pytest.mark.parametrize("row", ["ev171", "ev172"])
def test_a_host_field_of_another_site(row, nothing_private):
    """Squid sends the host of the URL, so that the Host field means nothing."""
    row = NAMES[row]
    one_line(nothing_private, row["url_or_request_target"].encode(), row["host_header"].encode())


def test_the_asterisk_form(nothing_private):
    """ev102, ev170"""
    with bumped(nothing_private, "example.test:443") as connection:
        head = b"OPTIONS * HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\n\r\n"
        assert exchange(connection, head).status in (0, 400, 403, 501)


@pytest.mark.parametrize("row", ["ev174", "ev175", "ev176", "ev177", "ev205"])
def test_spellings_of_a_host(row, nothing_private):
    row = NAMES[row]
    host = row["host_header"].replace("80", "443")
    for name in ("example.test", "EXAMPLE.test", "example.test."):
        with tunnel(nothing_private, f"{name}:443", sni="example.test") as connection:
            head = f"GET {row['url_or_request_target']} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            answer = exchange(connection, head.encode())
        assert answer.status in (400, 403), answer


def test_ev182_domain_fronting(nothing_private):
    """Squid connects to the site of the Host field, whose rules are asked."""
    with bumped(nothing_private, "allowed.test:443") as connection:
        head = b"GET /private/x HTTP/1.1\r\nHost: example.test\r\n\r\n"
        answer = exchange(connection, head)
    assert (answer.status, "disallowed" in answer.guard) == (403, True)


def test_squid_speaks_no_http2(nothing_private):
    """ev183 to ev186: a client cannot negotiate it."""
    with tunnel(nothing_private, "example.test:443", alpn=["h2", "http/1.1"]) as connection:
        assert connection.selected_alpn_protocol() != "h2"


def test_ev189_two_bytes_first(nothing_private):
    """In a tunnel that is no TLS: nothing passes."""
    with tunnel(nothing_private, "example.test:443", tls=False) as connection:
        connection.sendall(b"GE")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        connection.sendall(b"T /private/x HTTP/1.1\r\nHost: example.test\r\n\r\n")
        closed(connection)


@pytest.mark.parametrize("first", [b"\r\n", b"\r\n\r\n", b"\n"])
def test_ev190_a_line_break_first_inside_tls(first, nothing_private):
    with bumped(nothing_private, "example.test:443") as connection:
        connection.sendall(first + b"GET /private/x HTTP/1.1\r\nHost: example.test\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        closed(connection)


@pytest.mark.parametrize("row", FIELDS)
def test_fields_that_change_nothing(row, nothing_private):
    method, path = NAMES[row]["url_or_request_target"].split()[:2]
    with bumped(nothing_private, "example.test:443") as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: example.test\r\n{FIELDS[row]}\r\n"
        answer = exchange(connection, head.encode())
    assert (answer.status, "disallowed" in answer.guard) == (403, True)


def test_ev192_an_upload(nothing_private):
    head = b"POST /private/x HTTP/1.1\r\nHost: example.test\r\nContent-Length: 3000000\r\n\r\n"
    with bumped(nothing_private, "example.test:443") as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):  # Squid may close the connection behind the answer
            connection.sendall(b"x" * 3_000_000)
        assert read_answer(connection).status in (0, 403)


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "017700000001", "127.1", "127.0.1", "0x7f.1"]
)
def test_ev197_numbers_that_are_an_address(host, nothing_private):
    answer = one_line(nothing_private, f"http://{host}/private/x".encode(), host.encode())
    assert answer.status in (400, 403, 503)


def test_ev199_an_address_inside_an_address(nothing_private):
    host = b"[::ffff:127.0.0.1]"
    answer = one_line(nothing_private, b"http://" + host + b"/private/x", host)
    assert answer.status in (400, 403)


@pytest.mark.parametrize("name", [b"fa\xdf.de", b"xn--fa-hia.de", b"b\xfccher.example"])
@pytest.mark.parametrize("row", ["ev200", "ev201"])
def test_international_names(row, name, nothing_private):
    assert NAMES[row]
    assert one_line(nothing_private, b"http://" + name + b"/private/x", name).status in (400, 403)


def test_ev202_http_rules_do_not_apply_to_https(named):
    with bumped(named.integration, "open.test:443") as connection:
        head = b"GET /private/x HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n"
        answer = exchange(connection, head)
    assert answer.status == 200
    assert named.open_tls.origin.targets[-1] == "/private/x"
