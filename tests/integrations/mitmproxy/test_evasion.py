"""Every row of evasion.jsonl through real proxies, judged by what the origin received.

Spellings of a target are sent unchanged: in absolute form, inside a tunnel, and as an HTTP/2 :path. Rows on names
go through a parent proxy that knows the names, so that they are requested exactly as they are written.
"""

from __future__ import annotations

import contextlib
import socket

import pytest
from integrations.evasion import ABSOLUTE, FIELDS, NAMES, ROWS, SPELLINGS, target_bytes
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.names import Names
from integrations.mitmproxy.wire import closed, connected, exchange, http2, read_answer, tunnel

# -- spellings of a target ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judges(start, integrations):
    """Both programs with both values of `matching` that concern spellings."""
    with contextlib.ExitStack() as stack:
        strict = {
            (kind, "strict"): stack.enter_context(start(kind, matching="strict")) for kind in KINDS
        }
        yield {(kind, "standard"): integrations[kind] for kind in KINDS} | strict


@pytest.fixture(scope="module")
def ruled(sites):
    """A site without TLS and one with it for each rule of the rows; started once."""
    made = {}

    def site(scheme, rule):
        if (scheme, rule) not in made:
            made[scheme, rule] = sites.start(
                scheme, "User-agent: *\n" + rule.replace(" + ", "\n") + "\n"
            )
        return made[scheme, rule]

    return site


def absolute(integration, site, target):
    if not target.startswith(b"/"):
        return
    with connected(integration) as connection:
        head = (
            b"GET " + site.url.encode() + target + b" HTTP/1.1\r\nHost: " + site.authority.encode()
        )
        exchange(connection, head + b"\r\nConnection: close\r\n\r\n")


def in_a_tunnel(integration, site, target):
    with tunnel(integration, site.authority, tls=False) as connection:
        head = b"GET " + target + b" HTTP/1.1\r\nHost: " + site.authority.encode()
        exchange(connection, head + b"\r\nConnection: close\r\n\r\n")


def over_h2(integration, site, target):
    with tunnel(integration, site.authority, alpn=["h2"]) as connection:
        pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", site.authority)]
        http2(connection, [*pseudo, (":path", target.decode("latin-1"))])


@pytest.mark.parametrize("send", [absolute, in_a_tunnel, over_h2])
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in SPELLINGS])
def test_a_spelling(row, send, judges, ruled):
    site = ruled("https" if send is over_h2 else "http", row["rule"])
    target = target_bytes(row)
    for (kind, matching), integration in judges.items():
        expected = row["expected_by_profile"].get(matching, "either")
        before = len(site.origin.received)
        send(integration, site, target)
        arrived = [
            one.target for one in site.origin.received[before:] if one.target != "/robots.txt"
        ]
        if row["url_or_request_target"] == "/robots.txt":
            assert len(site.origin.received) > before
        elif expected == "block":
            assert arrived == [], (kind, matching, row["why"])
        elif expected == "allow" and (send is not absolute or target.startswith(b"/")):
            assert arrived == [target.decode("latin-1")], (kind, matching, row["why"])


# -- names ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(sites, start):
    """Integrations behind which example.test and others exist, and the sites they are."""
    known = ("example.test", "allowed.test", "xn--fa-hia.de", "xn--bcher-kva.example")
    plain, secure = sites.start(), sites.start("https", names=known)
    allowed = {scheme: sites.start(scheme, "", names=known) for scheme in ("http", "https")}
    open_tls = sites.start("https", 404, names=("open.test",))
    names = Names(plain, secure, {"open.test": open_tls})
    with contextlib.ExitStack() as stack:
        stack.callback(names.close)
        options = ("--mode", f"upstream:{names.url}")
        yield Named(
            {
                kind: stack.enter_context(start(kind, *options, connect_ports="80, 443"))
                for kind in KINDS
            },
            (plain, secure, *allowed.values()),
            open_tls,
        )


class Named:
    def __init__(self, integrations, closed_sites, open_tls):
        self.integrations, self.sites, self.open_tls = integrations, closed_sites, open_tls


@pytest.fixture(params=KINDS)
def nothing_private(request, named):
    """An integration; afterwards, the check that no site received anything but a request for robots.txt."""
    before = [len(site.origin.received) for site in named.sites]
    yield named.integrations[request.param]
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
    assert one_line(nothing_private, target, host).status in (400, 403)


def test_the_asterisk_form_is_refused(nothing_private):
    """ev102, ev170: nothing in robots.txt forbids it, but a proxy has no place for it."""
    with tunnel(nothing_private, "example.test:80", tls=False) as connection:
        answer = exchange(
            connection, b"OPTIONS * HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\n\r\n"
        )
    assert answer.status == 400


@pytest.mark.parametrize("row", ["ev171", "ev172"])
def test_a_host_field_of_another_site(row, nothing_private):
    row = NAMES[row]
    answer = one_line(
        nothing_private, row["url_or_request_target"].encode(), row["host_header"].encode()
    )
    assert (answer.status, "ambiguous-authority" in answer.guard) == (403, True)


@pytest.mark.parametrize("row", ["ev174", "ev175", "ev176", "ev177", "ev205"])
def test_spellings_of_a_host(row, nothing_private):
    row = NAMES[row]
    for host in ("example.test", "EXAMPLE.test", "example.test."):
        with tunnel(nothing_private, f"{host}:80", tls=False) as connection:
            head = (
                f"GET {row['url_or_request_target']} HTTP/1.1\r\nHost: {row['host_header']}\r\n\r\n"
            )
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
        assert http2(connection, pseudo).status in (0, 400, 403)


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


@pytest.mark.parametrize(("row", "fields"), FIELDS.items())
def test_fields_that_change_nothing(row, fields, nothing_private):
    method, path = NAMES[row]["url_or_request_target"].split()[:2]
    with tunnel(nothing_private, "example.test:80", tls=False) as connection:
        answer = exchange(
            connection, f"{method} {path} HTTP/1.1\r\nHost: example.test\r\n{fields}\r\n".encode()
        )
    assert (answer.status, "disallowed" in answer.guard) == (403, True)


def test_ev192_an_upload(nothing_private):
    with tunnel(nothing_private, "example.test:80", tls=False) as connection:
        connection.sendall(
            b"POST /private/x HTTP/1.1\r\nHost: example.test\r\nContent-Length: 3000000\r\n\r\n"
        )
        connection.sendall(b"x" * 3_000_000)
        assert read_answer(connection).status == 403


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "017700000001", "127.1", "127.0.1", "0x7f.1"]
)
def test_ev197_numbers_that_are_an_address(host, integrations, sites):
    """Without a parent: the proxy itself would resolve the number."""
    site = sites.start()  # somewhere in 127/8, as the number is
    while (unheard := _unheard_port(site.port)) is None:
        site = sites.start()
    with unheard:
        for integration in integrations.values():
            before = len(integration.records())
            answer = one_line(
                integration,
                f"http://{host}:{site.port}/private/x".encode(),
                f"{host}:{site.port}".encode(),
            )
            assert answer.status in (403, 503)
            (record,) = integration.records()[before:]
            assert record["origin"] == f"http://127.0.0.1:{site.port}"
    assert site.seen()[0] == 0


def _unheard_port(port: int) -> socket.socket | None:
    """Take a port of 127.0.0.1, so that connections to it are refused; None if it is in use, such
    as by a proxy of another test."""
    taken = socket.socket()
    try:
        taken.bind(("127.0.0.1", port))
    except OSError:
        taken.close()
        return None
    return taken


def test_ev199_an_address_inside_an_address(integrations, sites):
    site = sites.start()
    for integration in integrations.values():
        host = f"[::ffff:{site.host}]:{site.port}"
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
    # mitmproxy reads A-labels by IDNA 2003, which has no sharp s.
    readable = name == b"xn--bcher-kva.example"
    assert answer.status in ((403,) if readable else (400, 403)), answer


@pytest.mark.parametrize("kind", KINDS)
def test_ev202_http_rules_do_not_apply_to_https(kind, named):
    """The reverse is a wrong refusal, the second worst fault."""
    with tunnel(named.integrations[kind], "open.test:443") as connection:
        answer = exchange(
            connection, b"GET /private/x HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n"
        )
    assert answer.status == 200
    assert named.open_tls.origin.targets[-1] == "/private/x"


def test_every_row_is_here():
    named = {
        "ev171",
        "ev172",
        "ev174",
        "ev175",
        "ev176",
        "ev177",
        "ev182",
        "ev183",
        "ev184",
        "ev185",
        "ev186",
    }
    named |= {
        "ev189",
        "ev190",
        *FIELDS,
        "ev192",
        "ev197",
        "ev199",
        "ev200",
        "ev201",
        "ev202",
        "ev205",
    }
    rest = {row["id"] for row in ROWS} - {row["id"] for row in (*SPELLINGS, *ABSOLUTE)} - named
    assert rest == {"ev102"}  # the asterisk, as ev170
