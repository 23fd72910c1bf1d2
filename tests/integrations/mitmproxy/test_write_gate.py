"""The write gate: no change of a request after the last hook is sent without a verdict."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from integrations.mitmproxy.conftest import get
from integrations.mitmproxy.h2_site import h2_site
from integrations.mitmproxy.process import SCRIPT
from integrations.mitmproxy.test_modes import Parent
from integrations.mitmproxy.wire import http2, request_fields, tunnel
from mitmproxy import connection, http
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import tflow, tutils

from robots_guard.mitmproxy.patches.write_check import NotApproved
from robots_guard.mitmproxy.permits import JudgedRequest, Permits
from robots_guard.mitmproxy.wire import Approved, http1_request, http2_request
from robots_guard.mitmproxy.write_gate import WriteGate

# A test reads the private `_sealed`: which permits are left over has no public face.

# -- beside an addon that changes requests after the enforcer's last hook ---------------------------------------

LATE = '''
import asyncio

class Late:
    """Changes a request as its X-Late field says: when, and what."""
    pending = None

    def request(self, flow):
        when, _, what = flow.request.headers.get("x-late", "").partition(" ")
        if when:
            self.pending = when, what, flow
        if when == "resumed":
            flow.intercept()
            asyncio.get_running_loop().call_later(0.05, self.resume, flow)

    def resume(self, flow):
        self.change("resumed")
        flow.resume()

    def server_connect(self, data): self.change("connecting")
    def server_connected(self, data): self.change("connected")
    def tls_established_server(self, data): self.change("secured")

    def change(self, now):
        if self.pending is None or self.pending[0] != now:
            return
        _, what, flow = self.pending
        self.pending, request = None, flow.request
        if what == "path": request.path = "/private/x"
        if what == "method": request.method = "DELETE"
        if what == "host": request.headers["host"] = "elsewhere.test"
        if what == "authority": request.authority = "elsewhere.test"
        if what == "port": request.data.port = 9
        if what == "scheme": request.data.scheme = b"https" if request.scheme == "http" else b"http"
        if what == "object": flow.request = request.copy()
        if what == "line-break": request.headers["x-late"] = "a\\r\\n\\r\\nGET /private/x HTTP/1.1"
        if what == "coding": request.headers["transfer-encoding"] = "gzip, chunked"
        if what == "body": request.content = b"GET /private/x HTTP/1.1\\r\\n\\r\\n"
        if what == "stream": request.stream = True
        if what == "trailers":
            from mitmproxy.http import Headers
            request.trailers = Headers(x="1")

addons = [Late()]
'''

CHANGES = [
    "path",
    "method",
    "host",
    "authority",
    "port",
    "scheme",
    "object",
    "line-break",
    "coding",
]
HARMLESS = ["body", "stream", "trailers", "nothing"]


@pytest.fixture(scope="module")
def late_script(tmp_path_factory):
    script = tmp_path_factory.mktemp("late") / "late.py"
    script.write_text(LATE)
    return script


@pytest.fixture(scope="module")
def late(start, late_script):
    with start("mitmdump", "-s", str(SCRIPT), "-s", str(late_script)) as integration:
        yield integration


def moments(site):
    return ["resumed", "connecting", "connected", *(["secured"] if site.scheme == "https" else [])]


@pytest.mark.parametrize("what", CHANGES)
def test_a_request_changed_late_is_not_sent(late, site, what):
    for moment in moments(site):
        seen = len(site.origin.received)
        answer = get(late, site, "/open", fields=f"X-Late: {moment} {what}\r\n")
        assert answer.status == 502, moment
        assert late.records()[-1]["id"].encode() in answer.body
        received = [
            request.target
            for request in site.origin.received[seen:]
            if request.target != "/robots.txt"
        ]
        assert received == [], moment
    assert {record["reason"] for record in late.records()} == {"not-judged"}
    assert get(late, site, "/open").status == 200


@pytest.mark.parametrize("what", HARMLESS)
def test_parts_irrelevant_to_the_verdict_may_change(late, site, what):
    """Other addons may change these parts: the framing is adapted, and trailers are removed."""
    for moment in moments(site):
        answer = get(late, site, "/open", fields=f"X-Late: {moment} {what}\r\n")
        assert answer.status == 200, moment
        request = site.origin.received[-1]
        assert (request.target, request.body) == (
            "/open",
            b"GET /private/x HTTP/1.1\r\n\r\n" * (what == "body"),
        )


def test_a_parent_proxy_gets_no_connect_for_another_host(start, late_script, https_site):
    """By the time of the write, the CONNECT would have been sent already."""
    parent = Parent()
    scripts = ["-s", str(SCRIPT), "-s", str(late_script)]
    with start("mitmdump", "--mode", f"upstream:{parent.url}", *scripts) as integration:
        assert get(integration, https_site, "/open").status == 200
        before = parent.lines()
        assert (
            get(integration, https_site, "/open", fields="X-Late: resumed port\r\n").status == 502
        )
        assert parent.lines() == before
    parent.close()


# -- the same in front of a site that speaks HTTP/2 --------------------------------------------------------------


@pytest.fixture
def http2_site(tmp_path, authority):
    """A site that takes one stream at a time, so that a request may have to queue before it is written."""
    with h2_site(tmp_path, authority, "127.0.0.1", streams=1) as site:
        yield site


@pytest.mark.parametrize("what", CHANGES)
def test_over_http2(late, http2_site, what):
    with tunnel(late, http2_site.authority, alpn=["h2"]) as inside:
        fields = [*request_fields(http2_site.authority, "/open"), ("x-late", f"secured {what}")]
        assert http2(inside, fields).status == 502
    with tunnel(late, http2_site.authority, alpn=["h2"]) as inside:
        assert http2(inside, request_fields(http2_site.authority, "/second")).status == 200
    assert http2_site.next()["path"] == "/second"
    assert late.records()[-1]["reason"] == "not-judged"


@pytest.mark.parametrize("what", HARMLESS)
def test_parts_that_may_change_over_http2(late, http2_site, what):
    with tunnel(late, http2_site.authority, alpn=["h2"]) as inside:
        fields = [*request_fields(http2_site.authority, "/open"), ("x-late", f"secured {what}")]
        assert http2(inside, fields).status == 200
    request = http2_site.next()
    assert (request["path"], request["trailers"]) == ("/open", {})


# -- the gate by itself -----------------------------------------------------------------------------------------

SITE = ("site.test", 443)


def flow_to(host="site.test", port=443, scheme="https"):
    flow = tflow.tflow(req=tutils.treq(host=host, port=port, scheme=scheme.encode(), content=None))
    flow.request.headers["host"] = f"{host}:{port}"
    flow.client_conn.sni = None
    return flow


def server_at(address=SITE, *, tls=True):
    server = connection.Server(address=address)
    server.tls = tls
    return server


def connecting(flow):
    return ServerConnectionHookData(server=server_at(), client=flow.client_conn)


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def permits():
    return Permits()


@pytest.fixture
def gate(permits, recorded):
    def record(request, client, why):
        recorded.append(why)
        return SimpleNamespace(id="w-1")

    return WriteGate(permits, record, lambda decision_id: True)


def passed(permits, flow, decision_id=""):
    seen = JudgedRequest.of(flow)
    permits.grant(flow, Approved(seen.wire.origin(), seen.wire), seen.request, decision_id)
    return flow


def written(gate, flow, server=None, *, is_http1=True, has_body=False):
    return gate.outgoing(
        flow.request, flow.client_conn, server or server_at(), has_body=has_body, is_http1=is_http1
    )


def test_an_unsealed_permit_allows_no_write(gate, permits, recorded):
    flow = passed(permits, flow_to())
    with pytest.raises(NotApproved):
        written(gate, flow)
    permits.seal(flow)
    assert written(gate, flow).headers["host"] == "site.test"
    assert len(recorded) == 1


def test_an_ended_permit_allows_no_write(gate, permits):
    for end in (permits.release, lambda flow: permits.forget(flow.client_conn)):
        flow = passed(permits, flow_to())
        permits.seal(flow)
        end(flow)
        with pytest.raises(NotApproved, match="no verdict"):
            written(gate, flow)


def test_a_permit_is_sealed_for_one_object(gate, permits):
    flow = passed(permits, flow_to())
    permits.seal(flow)
    judged, flow.request = flow.request, flow.request.copy()
    with pytest.raises(NotApproved, match="no verdict"):
        written(gate, flow)
    permits.seal(flow)  # a hook has seen the new one
    assert written(gate, flow)
    flow.request = judged
    with pytest.raises(NotApproved, match="no verdict"):
        written(gate, flow)
    permits.release(flow)
    assert not permits._sealed


@pytest.mark.parametrize(
    "server",
    [
        server_at(("other.test", 443)),
        server_at(("site.test", 80)),
        server_at(tls=False),
        server_at(None),
    ],
)
def test_a_connection_to_another_address(gate, permits, server):
    flow = passed(permits, flow_to())
    permits.seal(flow)
    with pytest.raises(NotApproved, match="does not lead"):
        written(gate, flow, server)


def test_a_request_without_a_valid_turn_is_not_written(permits, recorded):
    def record(request, client, why):
        recorded.append(why)
        return SimpleNamespace(id="w-1")

    gate = WriteGate(permits, record, lambda decision_id: decision_id != "a-1")
    flow = passed(permits, flow_to(), "a-1")
    permits.seal(flow)

    for _ in range(2):
        with pytest.raises(NotApproved, match="its turn expired"):
            written(gate, flow)
    assert len(recorded) == 2


def test_a_request_that_was_deferred_while_it_waited_gets_the_deferral(permits):
    deferral = http.Response.make(429)
    deferred = {"a-1": deferral}
    gate = WriteGate(
        permits,
        lambda *_: 1 / 0,
        lambda _: False,
        lambda request, decision_id: deferred[decision_id],
    )
    flow = passed(permits, flow_to(), "a-1")
    permits.seal(flow)

    with pytest.raises(NotApproved) as raised:
        written(gate, flow)

    assert raised.value.response is deferral
    assert permits.state_of(flow).response is deferral
    assert permits.unsent(flow.client_conn) == []
    assert permits.objection(connecting(flow)) is not None
    permits.release(flow)
    assert len(permits) == 0


def test_a_turn_is_counted_when_its_own_request_is_written(permits):
    sent = []
    gate = WriteGate(
        permits, lambda *_: 1 / 0, lambda decision_id: sent.append(decision_id) or True
    )
    flow = passed(permits, flow_to(), "a-1")
    permits.seal(flow)
    assert permits.unsent(flow.client_conn) == ["a-1"]

    assert written(gate, flow)

    assert sent == ["a-1"]
    assert permits.unsent(flow.client_conn) == [], "it no longer waits for a connection"


def test_an_ended_flow_releases_its_decision():
    released = []
    permits = Permits(released.append)
    for number, end in enumerate((permits.release, lambda flow: permits.forget(flow.client_conn))):
        end(passed(permits, flow_to(), f"a-{number}"))
    assert released == ["a-0", "a-1"]


def test_a_failing_audit_log_allows_no_write(permits):
    gate = WriteGate(permits, lambda *_: 1 / 0, lambda decision_id: True)
    with pytest.raises(NotApproved):
        written(gate, flow_to())


# -- the forms --------------------------------------------------------------------------------------------------


def request_with(*fields, method="GET", version=b"HTTP/1.1", content=None):
    headers = tutils.http.Headers([(name.encode(), value.encode()) for name, value in fields])
    flow = tflow.tflow(
        req=tutils.treq(method=method.encode(), path=b"/a", headers=headers, content=content)
    )
    flow.request.data.http_version = version
    flow.request.data.host, flow.request.data.port = "site.test", 80
    flow.request.data.scheme = b"http"
    return flow


def http1(flow, length=0, **how):
    flow.request.headers.setdefault("host", "site.test")
    wire = JudgedRequest.of(flow).wire
    how = {"credentials": None, "is_absolute": False} | how
    return http1_request(flow.request, Approved(wire.origin(), wire), length=length, **how)


def fields_of(request):
    return [(name.decode(), value.decode()) for name, value in request.headers.fields]


def test_every_body_has_explicit_framing():
    host = ("Host", "site.test")
    lengths = {
        (0, "GET"): [host],
        (0, "POST"): [host, ("Content-Length", "0")],
        (5, "GET"): [host, ("Content-Length", "5"), ("Connection", "close")],
        (None, "PUT"): [host, ("Transfer-Encoding", "chunked"), ("Connection", "close")],
    }
    for (length, method), expected in lengths.items():
        assert fields_of(http1(request_with(method=method), length)) == expected


def test_the_clients_framing_is_not_forwarded():
    flow = request_with(("Content-Length", "7"), ("Transfer-Encoding", "chunked"))
    assert fields_of(http1(flow, 0)) == [("Host", "site.test"), ("Content-Length", "0")]


def test_http_1_0_is_never_chunked():
    assert http1(request_with(version=b"HTTP/1.0"), None).http_version == "HTTP/1.1"
    assert http1(request_with(version=b"HTTP/1.0"), 3).http_version == "HTTP/1.0"


def test_a_websocket_upgrade_has_no_body():
    said = [
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "WebSocket"),
        ("Sec-WebSocket-Version", "13"),
    ]
    fields = fields_of(http1(request_with(*said)))
    assert fields[-2:] == [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    assert ("Sec-WebSocket-Version", "13") in fields
    assert [name for name, _ in fields_of(http1(request_with(*said), 3))][-2:] == [
        "Content-Length",
        "Connection",
    ]
    assert not [name for name, _ in fields_of(http1(request_with(("Upgrade", "h2c"))))][1:]


def test_cookies_of_http2_become_one_field():
    flow = request_with(("cookie", "a=1"), ("cookie", "b=2"), version=b"HTTP/2.0")
    assert fields_of(http1(flow)) == [
        ("Host", "site.test"),
        ("cookie", "a=1; b=2"),
        ("Connection", "close"),
    ]


def test_connection_close_of_a_client_is_forwarded():
    assert fields_of(http1(request_with(("Connection", "close"))))[-1] == ("Connection", "close")


def test_http2_has_a_length_only_if_it_is_known():
    flow = request_with(("Host", "site.test"), ("Content-Length", "7"), ("TE", "trailers"))
    wire = JudgedRequest.of(flow).wire
    approved = Approved(wire.origin(), wire)
    assert fields_of(http2_request(flow.request, approved, length=None)) == []
    assert fields_of(http2_request(flow.request, approved, length=7)) == [("content-length", "7")]
    flow.request.data.http_version = b"HTTP/2.0"
    assert fields_of(http2_request(flow.request, approved, length=None)) == [("te", "trailers")]


def test_http2_has_no_connection_fields():
    said = [
        ("Host", "site.test"),
        ("Connection", "X-Mine"),
        ("X-Mine", "1"),
        ("TE", "gzip"),
        ("Upgrade", "h2c"),
    ]
    flow = request_with(*said, ("Transfer-Encoding", "chunked"), ("Cookie", "a=1"))
    wire = JudgedRequest.of(flow).wire
    request = http2_request(flow.request, Approved(wire.origin(), wire), length=3)
    assert fields_of(request) == [("cookie", "a=1"), ("content-length", "3")]
    assert request.authority == "site.test"
