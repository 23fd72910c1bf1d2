"""Odd responses to a fetch of robots.txt over HTTP/2 have the same outcome as over HTTP/1."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest
from integrations.mitmproxy.wire import inside

TEXT = b"User-agent: *\nDisallow: /private/\n"
CONFIG = h2.config.H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


def answer(*fields: tuple[str, str], status: int = 200) -> tuple[tuple[str, str], ...]:
    return ((":status", str(status)), *fields)


UNREACHABLE = {
    "longer-than-its-length": answer(("content-length", "14")),
    "shorter-than-its-length": answer(("content-length", "35")),
    "longer-than-nothing": answer(("content-length", "0")),
    "404-longer-than-its-length": answer(("content-length", "14"), status=404),
    "length-with-a-sign": answer(("content-length", "+34")),
    "two-equal-lengths": answer(("content-length", "34"), ("content-length", "34")),
    "206": answer(("content-range", "bytes 0-33/900"), status=206),
    "226": answer(status=226),
    "field-of-40-kib": answer(("x", "y" * 40 * 1024)),
    "201-fields": answer(*((f"x-{n}", "y") for n in range(201))),
    "two-locations": answer(("location", "/a"), ("location", "/b"), status=301),
    "location-with-a-backslash": answer(("location", "/a\\b"), status=301),
    "nul-in-a-field": answer(("x", "a\0b")),
}
RULES = {
    "no-length": answer(),
    "its-length": answer(("content-length", "34")),
    "field-of-8-kib": answer(("x", "y" * 8000)),
}


PACKED = gzip.compress(TEXT)


@contextlib.contextmanager
def site(authority, fields, frames=(TEXT,), padding: int | None = None) -> Iterator[str]:
    """A site that answers each request with these fields and DATA frames. Its authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(
            target=_serve, args=(listener, context, fields, frames, padding), daemon=True
        ).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, context: ssl.SSLContext, *answer_with) -> None:
    with contextlib.suppress(OSError):
        while True:
            accepted, _ = listener.accept()
            threading.Thread(
                target=_converse, args=(accepted, context, *answer_with), daemon=True
            ).start()


def _converse(accepted: socket.socket, context: ssl.SSLContext, fields, frames, padding) -> None:
    with (
        contextlib.suppress(OSError, h2.exceptions.ProtocolError),
        context.wrap_socket(accepted, server_side=True) as to,
    ):
        conversation = h2.connection.H2Connection(CONFIG)
        conversation.initiate_connection()
        to.sendall(conversation.data_to_send())
        stream, left = 0, []
        while received := to.recv(65536):
            for event in conversation.receive_data(received):
                if isinstance(event, h2.events.RequestReceived):
                    stream, left = event.stream_id, list(frames)
                    conversation.send_headers(stream, fields)
            while left and conversation.local_flow_control_window(stream) > len(left[0]) + (
                padding or 0
            ):
                frame = left.pop(0)
                conversation.send_data(stream, frame, end_stream=not left, pad_length=padding)
            to.sendall(conversation.data_to_send())


@pytest.fixture(scope="module")
def integration(start):
    with start("mitmdump", audit="all", fetch_timeout="8") as running:
        yield running


def fetch_record(integration, authority, fields, *frames_and_padding):
    with site(authority, fields, *frames_and_padding) as at:
        inside(integration, at, "/private/x")
        return next(
            record for record in integration.records() if record["origin"] == f"https://{at}"
        )


@pytest.mark.parametrize("name", UNREACHABLE)
def test_a_doubtful_response_is_not_a_robots_txt(integration, authority, name):
    record = fetch_record(integration, authority, UNREACHABLE[name])

    assert (record["action"], record["reason"]) == ("defer", "unreachable"), record


@pytest.mark.parametrize("name", RULES)
def test_an_undoubted_response_is_read(integration, authority, name):
    record = fetch_record(integration, authority, RULES[name])

    assert (record["action"], record["reason"]) == ("drop", "disallowed"), record


@pytest.mark.parametrize(
    "frames", [(PACKED[:20], PACKED[20:]), (PACKED[:20], b"", PACKED[20:]), (PACKED, b"")]
)
def test_an_empty_frame_does_not_end_a_compressed_file(integration, authority, frames):
    record = fetch_record(integration, authority, answer(("content-encoding", "gzip")), frames)

    assert (record["action"], record["reason"]) == ("drop", "disallowed"), record


def test_a_truncated_compressed_file_is_not_a_robots_txt(integration, authority):
    record = fetch_record(
        integration, authority, answer(("content-encoding", "gzip")), (PACKED[:20], b"")
    )

    assert (record["action"], record["reason"]) == ("defer", "unreachable"), record
    assert "cut short" in record["detail"]


def test_a_file_with_too_much_padding_is_not_a_robots_txt(integration, authority):
    """It is not read to its end, and what was read is far from the bound of the content."""
    rules = b"User-agent: *\n" + b"Disallow: /x\n" * 8000 + b"Disallow: /private/\n"
    frames = [rules[start : start + 16] for start in range(0, len(rules), 16)]
    record = fetch_record(integration, authority, answer(), frames, 200)

    assert (record["action"], record["reason"]) == ("defer", "unreachable"), record
    assert "on the wire" in record["detail"]
