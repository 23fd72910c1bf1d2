"""The ICAP protocol: whatever arrives in whatever pieces is read in one way, or refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.serve.icap_messages import (
    MAX_CHUNK_LINE,
    MAX_ENCAPSULATED,
    MAX_HEAD,
    IcapRequest,
    ProtocolError,
    RequestReader,
    error_response,
    http_response,
    options_response,
    unmodified_response,
)

REQUEST = b"GET http://site.test/a HTTP/1.1\r\nHost: site.test\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def icap(method: str, encapsulated: str, rest: bytes, *fields: str, path: str = "/reqmod") -> bytes:
    lines = [f"{method} icap://127.0.0.1:1344{path} ICAP/1.0", "Host: 127.0.0.1:1344", *fields]
    if encapsulated:
        lines.append(f"Encapsulated: {encapsulated}")
    return "\r\n".join([*lines, "", ""]).encode() + rest


OPTIONS = icap("OPTIONS", "", b"")
REQMOD = icap("REQMOD", f"req-hdr=0, null-body={len(REQUEST)}", REQUEST, "Preview: 0", "Allow: 204")
UPLOAD = icap("REQMOD", f"req-hdr=0, req-body={len(REQUEST)}", REQUEST + b"0\r\n\r\n", "Preview: 0")
WHOLE_UPLOAD = icap(
    "REQMOD",
    f"req-hdr=0, req-body={len(REQUEST)}",
    REQUEST + b'5\r\nhello\r\nA;x="y"\r\n0123456789\r\n0; ieof\r\nX-Trailer: 1\r\n\r\n',
    "Allow: 206, 204",
)
RESPMOD = icap(
    "RESPMOD",
    f"req-hdr=0, res-hdr={len(REQUEST)}, res-body={len(REQUEST) + len(RESPONSE)}",
    REQUEST + RESPONSE + b"0\r\n\r\n",
    "Preview: 0",
    path="/respmod",
)
ALL = (OPTIONS, REQMOD, UPLOAD, WHOLE_UPLOAD, RESPMOD)


def read(*pieces: bytes) -> list[IcapRequest]:
    """The requests that are read from bytes that arrive in these pieces."""
    reader = RequestReader()
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next()) is not None:
            found.append(request)
    return found


def test_the_parts_of_requests():
    options, reqmod, upload, whole, respmod = read(b"".join(ALL))
    assert (options.method, options.path, options.request_head) == ("OPTIONS", "/reqmod", b"")
    assert (reqmod.method, reqmod.request_head, reqmod.has_body) == ("REQMOD", REQUEST, False)
    assert (upload.request_head, upload.has_body) == (REQUEST, True)
    assert (whole.request_head, whole.has_body) == (REQUEST, True)
    assert (respmod.path, respmod.request_head) == ("/respmod", REQUEST)
    assert respmod.response_head == RESPONSE
    assert reqmod.fields["allow"] == "204"


@pytest.mark.parametrize(
    ("fields", "allows"),
    [
        (["Preview: 0"], True),
        (["Allow: 204"], True),
        (["Allow: 206,204"], True),
        (["allow: trailers", "ALLOW: 204"], True),
        (["Allow: 2040"], False),
        ([], False),
    ],
)
def test_204_is_allowed_with_a_preview_or_by_name(fields, allows):
    (request,) = read(icap("REQMOD", f"req-hdr=0, null-body={len(REQUEST)}", REQUEST, *fields))
    assert request.allows_no_content is allows


def test_connection_close():
    (request,) = read(icap("OPTIONS", "", b"", "Connection: foo, Close"))
    assert not request.keeps_alive
    assert read(OPTIONS)[0].keeps_alive


@given(st.lists(st.sampled_from(ALL), max_size=6), st.data())
def test_any_pieces_give_the_same_requests(messages, data):
    stream = b"".join(messages)
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [
        stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)
    ]
    assert read(*pieces) == [request for each in messages for request in read(each)]


@given(st.sampled_from(ALL), st.data())
def test_a_part_of_a_request_is_no_request(message, data):
    end = data.draw(st.integers(0, len(message) - 1))
    assert read(message[:end]) == []


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(ProtocolError):
        assert read(data) == []


@given(
    st.sampled_from(ALL),
    st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=3)), max_size=4),
)
def test_a_damaged_request_is_read_or_refused(message, changes):
    damaged = bytearray(message)
    for place, new in changes:
        damaged[place : place + len(new)] = new
    try:
        for request in read(bytes(damaged)):
            heads = (request.request_head, request.response_head)
            assert all(head.count(b"\r\n\r\n") <= 1 for head in heads)
            assert request.method in ("OPTIONS", "REQMOD", "RESPMOD")
    except ProtocolError:
        pass


REFUSED = {
    "no method": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "another method": b"LOGMOD icap://x/reqmod ICAP/1.0\r\nHost: x\r\n\r\n",
    "another version": b"OPTIONS icap://x/reqmod ICAP/1.1\r\nHost: x\r\n\r\n",
    "two spaces": b"OPTIONS  icap://x/reqmod ICAP/1.0\r\nHost: x\r\n\r\n",
    "a URI with a space": b"OPTIONS icap://x/req mod ICAP/1.0\r\nHost: x\r\n\r\n",
    "a folded field": b"OPTIONS icap://x/reqmod ICAP/1.0\r\nHost: x\r\n y\r\n\r\n",
    "a space before the colon": b"OPTIONS icap://x/reqmod ICAP/1.0\r\nHost : x\r\n\r\n",
    "a bare line break": b"OPTIONS icap://x/reqmod ICAP/1.0\r\nHost: x\nA: y\r\n\r\n",
    "NUL": b"OPTIONS icap://x/reqmod ICAP/1.0\r\nHost: \0\r\n\r\n",
    "two hosts": icap("OPTIONS", "", b"", "Host: y"),
    "two previews": icap("REQMOD", "null-body=0", b"", "Preview: 0", "Preview: 4"),
    "no parts": icap("REQMOD", "", b""),
    "two lists of parts": icap("REQMOD", "null-body=0", b"", "Encapsulated: null-body=0"),
    "unknown part": icap("REQMOD", "req-hdr=0, foo-body=4", b"\r\n\r\n"),
    "part of another method": icap("REQMOD", "res-hdr=0, null-body=4", b"\r\n\r\n"),
    "not from the start": icap("REQMOD", "req-hdr=1, null-body=5", b"x\r\n\r\n"),
    "backwards": icap("RESPMOD", "req-hdr=0, res-hdr=8, null-body=4", b"\r\n\r\n\r\n\r\n"),
    "out of order": icap("RESPMOD", "res-hdr=0, req-hdr=4, null-body=8", b"\r\n\r\n\r\n\r\n"),
    "twice": icap("REQMOD", "req-hdr=0, req-hdr=4, null-body=8", b"\r\n\r\n\r\n\r\n"),
    "no body": icap("REQMOD", "req-hdr=0", b""),
    "two bodies": icap("REQMOD", "req-hdr=0, req-body=4, null-body=8", b"\r\n\r\n\r\n\r\n"),
    "a number too large": icap("REQMOD", f"req-hdr=0, null-body={MAX_ENCAPSULATED + 1}", b""),
    "a negative number": icap("REQMOD", "req-hdr=0, null-body=-4", b""),
    "two heads in one part": icap("REQMOD", "req-hdr=0, null-body=10", b"a\r\n\r\nb\r\n\r\n"),
    "a head without end": icap("REQMOD", "req-hdr=0, null-body=4", b"abcd"),
    "a head that goes on": icap("REQMOD", "req-hdr=0, null-body=6", b"\r\n\r\nab"),
    "no size of a chunk": icap("REQMOD", "req-body=0", b"x\r\n"),
    "a signed size": icap("REQMOD", "req-body=0", b"+1\r\na\r\n0\r\n\r\n"),
    "a size too large": icap("REQMOD", "req-body=0", b"1" * 16 + b"\r\n"),
    "a chunk longer than its size": icap("REQMOD", "req-body=0", b"1\r\nab\r\n"),
    "an endless size": icap("REQMOD", "req-body=0", b"1;" + b"a" * MAX_CHUNK_LINE + b"a"),
    "endless trailers": icap("REQMOD", "req-body=0", b"0\r\n" + b"A: b\r\n" * 5000),
    "an endless head": b"OPTIONS icap://x/reqmod ICAP/1.0\r\nX: " + b"a" * MAX_HEAD,
    "endless fields": icap("OPTIONS", "", b"", *["X: y"] * 300),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_can_be_read_in_two_ways_is_refused(data):
    with pytest.raises(ProtocolError):
        read(data)
    with pytest.raises(ProtocolError):
        read(*(data[at : at + 1] for at in range(len(data))))


def test_a_large_body_is_not_kept():
    reader = RequestReader()
    reader.feed(icap("REQMOD", f"req-hdr=0, req-body={len(REQUEST)}", REQUEST, "Allow: 204"))
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for _ in range(200):
        reader.feed(chunk)
        assert reader.next() is None
        assert reader.buffered < 65536
    reader.feed(b"0\r\n\r\n")
    request = reader.next()
    assert request is not None
    assert request.request_head == REQUEST
    assert reader.buffered == 0


def test_responses():
    options = options_response("REQMOD", tag="rg", ttl=60, connections=9).first
    assert options.startswith(b"ICAP/1.0 200 OK\r\nMethods: REQMOD\r\n")
    for field in (b'ISTag: "rg"', b"Options-TTL: 60", b"Max-Connections: 9", b"Preview: 0"):
        assert b"\r\n" + field + b"\r\n" in options
    assert unmodified_response("rg", [("X-A", "b")]).first == (
        b'ICAP/1.0 204 No Content\r\nISTag: "rg"\r\nX-A: b\r\nEncapsulated: null-body=0\r\n\r\n'
    )
    reply = http_response("rg", RESPONSE, b"hello")
    assert reply.last == b"0\r\n\r\n"
    assert reply.first.endswith(RESPONSE + b"5\r\nhello\r\n")
    assert b"Encapsulated: res-hdr=0, res-body=%d\r\n" % len(RESPONSE) in reply.first
    empty = http_response("rg", RESPONSE, None)
    assert (empty.last, empty.first.endswith(RESPONSE)) == (b"", True)
    assert http_response("rg", RESPONSE, b"").first.endswith(RESPONSE)
    error = error_response(405, "rg")
    assert error.closes
    assert error.first.startswith(b"ICAP/1.0 405 Method not allowed for service\r\n")
