"""Every row of evasion.jsonl through a real Envoy, judged by what the site received.

Each is sent to the plain proxy, inside a tunnel without TLS, inside TLS, and as the :path of
HTTP/2. Nothing forbidden arrives, and what arrives is what the client wrote: Envoy changes no
target.
"""

from __future__ import annotations

import contextlib
import socket

import pytest
from integrations.envoy.inspection import inspecting
from integrations.evasion import ABSOLUTE, FIELDS, NAMES, ROWS, SPELLINGS, target_bytes
from integrations.mitmproxy.process import NO_RETRY
from integrations.mitmproxy.wire import (
    closed,
    connected,
    exchange,
    http2,
    read_answer,
    request_fields,
    tunnel,
)


@pytest.fixture(scope="module")
def integration(ca_file, tmp_path_factory):
    with inspecting(
        tmp_path_factory.mktemp("standard"), ca_file, hold_max=NO_RETRY, audit="all"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def judges(integration, ca_file, tmp_path_factory):
    """Envoys with both values of `matching` that concern spellings."""
    with inspecting(tmp_path_factory.mktemp("strict"), ca_file, matching="strict") as strict:
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


# -- spellings of a target -------------------------------------------------------------------------


def plainly(integration, site, target):
    with connected(integration) as connection:
        return _exchange(connection, site, site.url.encode() + target)


def in_a_tunnel(integration, site, target):
    with tunnel(integration, site.authority, tls=False) as connection:
        return _exchange(connection, site, target)


def inside_tls(integration, site, target):
    with tunnel(integration, site.authority) as connection:
        return _exchange(connection, site, target)


def over_http2(integration, site, target):
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        return http2(connection, request_fields(site.authority, target.decode("latin-1")))


def _exchange(connection, site, target):
    head = b"GET " + target + b" HTTP/1.1\r\nHost: " + site.authority.encode()
    return exchange(connection, head + b"\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("send", [plainly, in_a_tunnel, inside_tls, over_http2])
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in SPELLINGS])
def test_a_spelling(row, send, judges, ruled):
    site = ruled("http" if send in (plainly, in_a_tunnel) else "https", row["rule"])
    target = target_bytes(row)
    for matching, integration in judges.items():
        expected = row["expected_by_profile"].get(matching, "either")
        before = len(site.origin.received)
        answer = send(integration, site, target)
        received = site.origin.received[before:]
        arrived = [one.target for one in received if one.target != "/robots.txt"]
        if row["url_or_request_target"] == "/robots.txt":
            assert received
        elif expected == "block":
            assert arrived == [], (matching, row["why"])
        elif expected == "allow":
            assert arrived == [target.decode("latin-1")], (matching, row["why"], answer)
        else:
            assert arrived in ([], [target.decode("latin-1")]), (matching, row["why"])


NOT_ASCII = [b"\xe9", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xc3\xa9", b"\xf0\x9f\x98\x80"]


@pytest.mark.parametrize("send", [plainly, in_a_tunnel, inside_tls, over_http2])
@pytest.mark.parametrize("data", NOT_ASCII)
@pytest.mark.parametrize("target", [b"/caf%s/x", b"/open?a=%s"])
def test_bytes_that_are_not_ascii(integration, ruled, send, target, data):
    """Envoy would judge another target than it sends: it replaces what is not UTF-8 by "!"."""
    site = ruled("http" if send in (plainly, in_a_tunnel) else "https", "Disallow: /x")
    before = site.seen()
    answer = send(integration, site, target % data)
    assert (answer.status, answer.guard) == (400, "")
    assert site.seen() == before


# -- names -----------------------------------------------------------------------------------------


class Named:
    """An Envoy, sites that no row may reach, and one that allows all over TLS only."""

    def __init__(self, integration, closed_sites, open_tls):
        self.integration, self.sites, self.open_tls = integration, closed_sites, open_tls


@pytest.fixture(scope="module")
def named(sites, ca_file, tmp_path_factory):
    """An Envoy that reaches the sites of the rows by name, at the default ports."""
    known = ("example.test", "allowed.test", "xn--fa-hia.de", "xn--bcher-kva.example")
    address = sites.new_address()
    forbidding = [sites.start("http", names=known, port=80, address=address)]
    forbidding.append(sites.start("https", names=known, port=443, address=address))
    open_tls = sites.start("https", 404, names=("open.test",), port=443)
    folder = tmp_path_factory.mktemp("named")
    with inspecting(folder, ca_file, connect_ports="80, 443") as integration:
        yield Named(integration, forbidding, open_tls)


@pytest.fixture
def nothing_private(named):
    """The Envoy; afterwards, the check that no site received anything but a request for robots.txt."""
    before = [len(site.origin.received) for site in named.sites]
    yield named.integration
    for site, seen in zip(named.sites, before, strict=True):
        assert {one.target for one in site.origin.received[seen:]} <= {"/robots.txt"}


def one_line(integration, line, host):
    with connected(integration) as connection:
        head = b"GET " + line + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
        return exchange(connection, head)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["id"]) for row in ABSOLUTE if row["expected"] == "block"]
)
def test_an_absolute_target(row, nothing_private):
    target = row["url_or_request_target"].encode()
    host = target.split(b"/")[2].rpartition(b"@")[2]
    # 503: judged as a site that does not exist
    assert one_line(nothing_private, target, host).status in (400, 403, 404, 503)


def test_the_asterisk_form_is_refused(nothing_private):
    """ev102, ev170: nothing in robots.txt forbids it, but a proxy has no place for it."""
    with tunnel(nothing_private, "example.test:80", tls=False) as connection:
        head = b"OPTIONS * HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\n\r\n"
        assert exchange(connection, head).status in (400, 403, 404)


@pytest.mark.parametrize("row", ["ev171", "ev172"])
def test_a_host_field_of_another_site(row, nothing_private):
    """Envoy replaces it by the authority of the target, which is judged."""
    row = NAMES[row]
    target, host = row["url_or_request_target"].encode(), row["host_header"].encode()
    answer = one_line(nothing_private, target, host)
    assert (answer.status, "disallowed" in answer.guard) == (403, True)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("row", ["ev174", "ev175", "ev176", "ev177", "ev205"])
def test_spellings_of_a_host(row, tls, nothing_private):
    row = NAMES[row]
    port = 443 if tls else 80
    claimed = row["host_header"].replace("80", str(port))
    for host in ("example.test", "EXAMPLE.test", "example.test."):
        with tunnel(nothing_private, f"{host}:{port}", tls=tls, sni="example.test") as connection:
            head = f"GET {row['url_or_request_target']} HTTP/1.1\r\nHost: {claimed}\r\n\r\n"
            answer = exchange(connection, head.encode())
        assert (answer.status, "disallowed" in answer.guard) == (403, True), answer


def test_ev182_domain_fronting(nothing_private):
    with tunnel(nothing_private, "allowed.test:443") as connection:
        answer = exchange(connection, b"GET /private/x HTTP/1.1\r\nHost: example.test\r\n\r\n")
    assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


@pytest.mark.parametrize(
    ("row", "method", "claimed", "path"),
    [
        ("ev183", "GET", "allowed.test", "/private/x"),
        ("ev184", "GET /private/x?", "example.test", "/ok"),
        ("ev185", "GET", "example.test", "/ok /private/x"),
        ("ev186", "GET", "example.test", "private/x"),
    ],
)
def test_over_http2(row, method, claimed, path, nothing_private):
    pseudo = [(":method", method), (":scheme", "https"), (":authority", claimed), (":path", path)]
    with tunnel(nothing_private, "example.test:443", alpn=["h2"]) as connection:
        assert connection.selected_alpn_protocol() == "h2"
        assert http2(connection, pseudo).status in (0, 400, 403, 404)


def test_ev189_two_bytes_first(nothing_private):
    with tunnel(nothing_private, "example.test:80", tls=False) as connection:
        connection.sendall(b"GE")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        answer = exchange(connection, b"T /private/x HTTP/1.1\r\nHost: example.test\r\n\r\n")
    assert (answer.status, "disallowed" in answer.guard) == (403, True)


@pytest.mark.parametrize("first", [b"\r\n", b"\r\n\r\n", b"\n"])
def test_ev190_a_line_break_first_inside_tls(first, nothing_private):
    with tunnel(nothing_private, "example.test:443") as connection:
        connection.sendall(first + b"GET /private/x HTTP/1.1\r\nHost: example.test\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        closed(connection)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("row", "fields"), FIELDS.items())
def test_fields_that_change_nothing(row, fields, tls, nothing_private):
    method, path = NAMES[row]["url_or_request_target"].split()[:2]
    port = 443 if tls else 80
    with tunnel(nothing_private, f"example.test:{port}", tls=tls) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: example.test\r\n{fields}\r\n"
        answer = exchange(connection, head.encode())
    is_judged = row != "ev191"  # Envoy refuses every upgrade by itself
    assert (answer.status, "disallowed" in answer.guard) == (403, is_judged)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_ev192_an_upload(tls, nothing_private):
    port = 443 if tls else 80
    with tunnel(nothing_private, f"example.test:{port}", tls=tls) as connection:
        head = b"POST /private/x HTTP/1.1\r\nHost: example.test\r\nContent-Length: 3000000\r\n\r\n"
        connection.sendall(head)
        with contextlib.suppress(OSError):  # Envoy closes after the answer
            connection.sendall(b"x" * 3_000_000)
        assert read_answer(connection).status in (0, 403)


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "017700000001", "127.1", "127.0.1", "0x7f.1"]
)
def test_ev197_numbers_that_are_an_address(host, integration, sites):
    site = sites.start()  # somewhere in 127/8, as the number is
    before = len(integration.records())
    place = f"{host}:{site.port}".encode()
    answer = one_line(integration, b"http://" + place + b"/private/x", place)
    assert answer.status in (403, 503)
    (record,) = integration.records()[before:]
    assert record["origin"] == f"http://127.0.0.1:{site.port}"
    assert site.seen()[0] == 0


def test_ev199_an_address_inside_an_address(integration, sites):
    site = sites.start()
    host = f"[::ffff:{site.origin.address}]:{site.port}"
    answer = one_line(integration, f"http://{host}/private/x".encode(), host.encode())
    assert (answer.status, "destination-refused" in answer.guard) == (403, True)
    assert site.seen()[0] == 0


@pytest.mark.parametrize("row", ["ev200", "ev201"])
@pytest.mark.parametrize("spelling", ["u-label", "a-label"])
def test_international_names(row, spelling, nothing_private):
    """The A-label on the wire is what is judged; bytes that are not ASCII name no host."""
    host = {
        "ev200": ("fa\xdf.de", "xn--fa-hia.de"),
        "ev201": ("b\xfccher.example", "xn--bcher-kva.example"),
    }[row]
    name = host[spelling == "a-label"].encode()
    answer = one_line(nothing_private, b"http://" + name + b"/private/x", name)
    assert answer.status == (403 if spelling == "a-label" else 400), answer


def test_ev202_http_rules_do_not_apply_to_https(named):
    """The reverse is a wrong refusal, the second worst fault."""
    with tunnel(named.integration, "open.test:443") as connection:
        head = b"GET /private/x HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n"
        assert exchange(connection, head).status == 200
    assert named.open_tls.origin.targets[-1] == "/private/x"


def test_every_row_is_here():
    """The rest of the rows are tested by their ids above."""
    by_id = {*FIELDS, "ev102", "ev189", "ev190", "ev192", "ev197", "ev199", "ev200", "ev201"}
    by_id |= {"ev171", "ev172", "ev174", "ev175", "ev176", "ev177", "ev205", "ev202"}
    by_id |= {"ev182", "ev183", "ev184", "ev185", "ev186"}
    assert {row["id"] for row in (*SPELLINGS, *ABSOLUTE)} | by_id == {row["id"] for row in ROWS}
