"""The readers find smuggled requests: without that, finding none behind the proxy would mean nothing."""

from __future__ import annotations

import re
from random import Random

import pytest
from integrations.mitmproxy.differential.frames import Connection
from integrations.mitmproxy.differential.grammar import CLASSES, Aims
from integrations.mitmproxy.differential.readers import by_h2, by_h11, readings_of, streams
from integrations.mitmproxy.differential.servers import read_by_servers

HIDDEN = b"GET /private/x HTTP/1.1\r\nHost: site.test\r\n\r\n"
AIMS = Aims(1, "127.0.0.1:80")


def message(
    *fields: bytes, method: bytes = b"GET", body: bytes = HIDDEN, end: bytes = b"\r\n"
) -> bytes:
    return end.join((method + b" /open HTTP/1.1", b"Host: site.test", *fields, b"", b"")) + body


LENGTH = b"Content-Length: %d" % len(HIDDEN)
CODED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)


def finders(data: bytes, protocol: str = "http") -> set[str]:
    """The readers in this process that find the hidden request."""
    found = readings_of(protocol, data)
    return {
        reader
        for reader, requests in found
        if any(each.target == "/private/x" for each in requests)
    }


@pytest.mark.parametrize(
    ("data", "finder"),
    [
        (message(), "h11"),  # an unframed body
        (message(LENGTH), "no body where none is usual, CRLF"),
        (message(LENGTH, method=b"POST"), "no body at all, CRLF"),
        (
            message(LENGTH, b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
            "coding before length, CRLF",
        ),
        (
            message(b"Content-Length: 0", b"Transfer-Encoding: chunked", body=HIDDEN),
            "length before coding, CRLF",
        ),
        (message(b"Transfer-Encoding: chunked", body=HIDDEN), "length only, CRLF"),
        (message(LENGTH), "coding only, CRLF"),
        (
            message(LENGTH, b"Transfer_Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
            "coding before length, CRLF, loose",
        ),
        (
            message(LENGTH, b"Transfer-Encoding : xchunked", body=b"0\r\n\r\n" + HIDDEN),
            "coding before length, CRLF, loose",
        ),
        (message(LENGTH, b"Content-Length: 0"), "coding before length, CRLF, loose"),
        (message(b"Content-Length: +0", body=HIDDEN), "coding before length, CRLF"),
        (
            message(b"Transfer-Encoding: chunked", method=b"OPTIONS", body=CODED),
            "length only, CRLF, skips junk",
        ),
        (message(end=b"\n"), "coding before length, bare LF"),
        (message(b"X: y\n\n" + HIDDEN.rstrip()), "coding before length, bare LF"),
        (message(b"X: y\r\r" + HIDDEN.rstrip()), "coding before length, bare CR"),
        (message(body=b"GET /private/x\r\n"), "coding before length, CRLF, HTTP/0.9"),
        (
            message(b"Transfer-Encoding: chunked", body=b"0;a=\nb\r\n\r\n" + HIDDEN),
            "coding before length, CRLF",
        ),
    ],
)
def test_each_reading_finds_requests_hidden_from_others(data, finder):
    assert finder in finders(data)


@pytest.mark.parametrize(
    "data",
    [
        message(b"Connection: close"),
        message(LENGTH, b"Connection: close"),
        message(LENGTH, b"connection: foo, CLOSE", method=b"POST"),
        message(b"Transfer-Encoding: chunked", b"Connection: close", body=CODED),
    ],
)
def test_a_server_that_has_hung_up_reads_no_further(data):
    """The model by which a body is harmless to servers that do not read bodies."""
    assert finders(data) == set()


def test_a_body_on_a_shared_connection_is_dangerous():
    assert finders(message(LENGTH, method=b"POST")) == {
        *(
            f"no body at all, CRLF{rest}"
            for rest in ("", ", loose", ", HTTP/0.9", ", skips junk", ", loose, skips junk")
        ),
        "coding only, CRLF",
        "coding only, CRLF, loose",
    }


def test_http2_is_read_by_frames_and_as_a_downgrade():
    link = Connection(Random(1), AIMS, "https")
    link.request([*link.names("/open"), (b"content-length", b"0")], HIDDEN)
    data = b"".join(link.frames)
    assert [stream.found.target for stream in streams(data)] == ["/open"]
    assert streams(data)[0].body == HIDDEN
    assert finders(data, "h2") == {
        f"downgraded, {reading}"
        for reading in (
            "coding before length, CRLF",
            "coding before length, CRLF, loose",
            "length before coding, CRLF",
        )
    }


def test_libraries_and_servers_agree_on_valid_requests():
    link = Connection(Random(2), AIMS, "https")
    link.request(link.names("/a"))
    link.request([*link.names("/b", "POST"), (b"content-length", b"3")], b"abc")
    frames = b"".join(link.frames)
    plain = message(b"Content-Length: 3", method=b"POST", body=b"abc") + message(body=b"")
    expected = {"http": ["POST /open", "GET /open"], "h2": ["GET /a", "POST /b"]}
    assert [f"{each.method} {each.target}" for each in by_h2(frames)] == expected["h2"]
    assert [f"{each.method} {each.target}" for each in by_h11(plain)] == expected["http"]
    found = read_by_servers([("http", plain), ("h2", frames)])
    assert {reader: sorted(places) for reader, places in found.items()} == {
        "llhttp": [0],
        "llhttp, lenient": [0],
        "nginx": [0],
        "nghttp2": [1],
    }
    for reader, places in found.items():
        (place,) = places
        read = [f"{each.method} {each.target}" for each in places[place]]
        assert read == expected["h2" if reader == "nghttp2" else "http"], reader


def test_servers_find_smuggled_requests():
    found = read_by_servers([("http", message())])
    assert {
        reader
        for reader, places in found.items()
        if "/private/x" in {each.target for each in places[0]}
    } == {
        "llhttp",
        "llhttp, lenient",
        "nginx",
    }


@pytest.mark.parametrize("name", CLASSES)
def test_a_seed_determines_a_stream(name):
    assert CLASSES[name](Random(7), AIMS) == CLASSES[name](Random(7), AIMS)


@pytest.mark.parametrize(
    "name", [name for name in CLASSES if name not in ("request line", "hosts")]
)
def test_each_class_smuggles_past_some_reader(name):
    """Sent to a server as they are, without the proxy, streams of a class are more than they seem to be."""
    targets = set()
    for seed in range(100):
        for _, requests in readings_of("http", CLASSES[name](Random(seed), AIMS)):
            targets |= {each.target for each in requests}
    assert any(
        re.fullmatch(r"/private/1\.(smuggled|swallowed|field|in\d)", target) for target in targets
    )
