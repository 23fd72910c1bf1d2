"""Odd answers to a fetch of robots.txt over HTTP/2: the access is that of the same answer over HTTP/1."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest
from hosts.mitmproxy.wire import inside

TEXT = b"User-agent: *\nDisallow: /private/\n"
CONFIG = h2.config.H2Configuration(
    client_side=False, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
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


@contextlib.contextmanager
def site(authority, fields) -> Iterator[str]:
    """A site that answers each request with these fields and TEXT. Its authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, context, fields), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, context: ssl.SSLContext, fields) -> None:
    with contextlib.suppress(OSError):
        while True:
            accepted, _ = listener.accept()
            threading.Thread(target=_converse, args=(accepted, context, fields), daemon=True).start()


def _converse(accepted: socket.socket, context: ssl.SSLContext, fields) -> None:
    with (
        contextlib.suppress(OSError, h2.exceptions.ProtocolError),
        context.wrap_socket(accepted, server_side=True) as to,
    ):
        conversation = h2.connection.H2Connection(CONFIG)
        conversation.initiate_connection()
        to.sendall(conversation.data_to_send())
        while received := to.recv(65536):
            for event in conversation.receive_data(received):
                if isinstance(event, h2.events.RequestReceived):
                    conversation.send_headers(event.stream_id, fields)
                    conversation.send_data(event.stream_id, TEXT, end_stream=True)
            to.sendall(conversation.data_to_send())


@pytest.fixture(scope="module")
def door(start):
    with start("mitmdump", audit_passes="all", first_byte_timeout="4", fetch_timeout="8") as running:
        yield running


def asked(door, authority, fields):
    with site(authority, fields) as at:
        inside(door, at, "/private/x")
        return next(record for record in door.records() if record["origin"] == f"https://{at}")


@pytest.mark.parametrize("name", UNREACHABLE)
def test_an_answer_that_is_in_doubt_is_no_robots_txt(door, authority, name):
    record = asked(door, authority, UNREACHABLE[name])

    assert (record["action"], record["reason"]) == ("defer", "unreachable"), record


@pytest.mark.parametrize("name", RULES)
def test_an_answer_that_is_not_is_read(door, authority, name):
    record = asked(door, authority, RULES[name])

    assert (record["action"], record["reason"]) == ("drop", "disallowed"), record
