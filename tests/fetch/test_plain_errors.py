"""Messages of libraries, as they come, and what a record says instead."""

from __future__ import annotations

import pytest

from robots_guard.guard.fetch.plain_errors import in_plain_words

#: Messages of aiohttp, ssl, mitmproxy (pyOpenSSL) and Twisted.
KNOWN = [
    ("self-signed certificate", "the certificate is not trusted: self-signed certificate"),
    (
        "Certificate verify failed: self-signed certificate in certificate chain",
        "the certificate is not trusted: unknown authority",
    ),
    (
        "Certificate verify failed: unable to get local issuer certificate",
        "the certificate is not trusted: unknown authority",
    ),
    (
        "unable to verify the first certificate",
        "the certificate is not trusted: unknown authority",
    ),
    ("certificate has expired", "the certificate is not trusted: it has expired"),
    (
        "Certificate verify failed: certificate is not yet valid",
        "the certificate is not trusted: it is not valid yet",
    ),
    (
        "Hostname mismatch, certificate is not valid for 'a.test'.",
        "the certificate is not trusted: it is for another host",
    ),
    (
        "Certificate verify failed: CA certificate key too weak",
        "the certificate is not trusted: CA certificate key too weak",
    ),
    (
        "[<twisted.python.failure.Failure OpenSSL.SSL.Error: [('SSL routines', '', 'certificate"
        " verify failed')]>]",
        "the certificate is not trusted",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS on this port"),
    ("The remote server does not speak TLS.", "the server does not speak TLS on this port"),
    (
        "OpenSSL Error([('SSL routines', '', 'sslv3 alert handshake failure')])",
        "the server refused the TLS handshake (handshake_failure)",
    ),
    (
        "OpenSSL Error([('SSL routines', '', 'ssl/tls alert certificate unknown')])",
        "the other side does not trust the certificate",
    ),
    ("tlsv1 alert unknown ca", "the other side does not trust the certificate"),
    (
        "OpenSSL Error([('SSL routines', '', 'unexpected eof while reading')])",
        "the connection was closed during the TLS handshake",
    ),
    ("TLSV1_ALERT_PROTOCOL_VERSION", "there is no version of TLS that both sides support"),
    ("[Errno -2] Name or service not known", "the host name does not exist"),
    ("[Errno -5] No address associated with hostname", "the host name does not exist"),
    (
        "DNS lookup failed: no results for hostname lookup: a.invalid",
        "the host name does not exist",
    ),
    ("[Errno -3] Temporary failure in name resolution", "the host name could not be looked up"),
    ("Connection refused", "connection refused"),
    (
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 80, 0, 0), [Errno 111]"
        " Connect call failed ('127.0.0.1', 80)",
        "connection refused",
    ),
    ("Connection was refused by other side: 111: Connection refused.", "connection refused"),
    ("[Errno 113] No route to host", "the host cannot be reached"),
    ("[Errno 104] Connection reset by peer", "connection reset"),
]


@pytest.mark.parametrize(("message", "words"), KNOWN)
def test_known_messages(message, words):
    assert in_plain_words(message) == words


@pytest.mark.parametrize(
    "message", ["", "HTTP/1 protocol error: Invalid HTTP/1 status line", "{rest}"]
)
def test_other_messages_are_left_to_the_caller(message):
    assert in_plain_words(message) is None
