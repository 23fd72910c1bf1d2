"""Plain errors: the messages of OpenSSL, the system and the HTTP libraries as words for people, and
the scope of the system's errors.

Every fetcher describes its failures by `in_plain_words`, so that a record says the same of a fault
whichever library met it. It keeps a message that is not in the table.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterable

from robots_guard.decisions.access import Scope

#: Errors of errno(3) and getaddrinfo(3) that are about this machine's network, or this process.
_SCOPES = {
    **dict.fromkeys(
        (
            errno.ENETUNREACH,
            errno.ENETDOWN,
            errno.EHOSTUNREACH,
            errno.EADDRNOTAVAIL,
            errno.EACCES,
            errno.EPERM,
            socket.EAI_AGAIN,  # no name server has answered
            socket.EAI_FAIL,
        ),
        Scope.ROUTE,
    ),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, socket.EAI_MEMORY), Scope.FETCHER
    ),
}
LONGEST = 200  # characters of a description
UNTRUSTED = "the certificate is not trusted"
UNKNOWN_AUTHORITY = f"{UNTRUSTED}: unknown authority"
CLOSED = "the connection was closed during the TLS handshake"
DISTRUSTED = "the other side does not trust the certificate"
SELF_SIGNED = f"{UNTRUSTED}: self-signed certificate"

#: Patterns of messages, and what to say instead. The first that is found decides.
_SAID = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        # OpenSSL's X509_verify_cert_error_string, which Python, pyOpenSSL and mitmproxy pass on
        (r"self[- ]signed certificate in certificate chain", UNKNOWN_AUTHORITY),
        (r"self[- ]signed certificate", SELF_SIGNED),
        (r"unable to (get|verify)[\w ]*(issuer|first) cert", UNKNOWN_AUTHORITY),
        (r"certificate (has )?expired", f"{UNTRUSTED}: it has expired"),
        (r"certificate is not yet valid", f"{UNTRUSTED}: it is not valid yet"),
        (
            r"hostname mismatch|ip address mismatch|certificate is not valid for"
            r"|doesn't match either|DNSMismatch|IPAddressMismatch",
            f"{UNTRUSTED}: it is for another host",
        ),
        (r"certificate verify failed:? ?(?P<rest>[\w ]+)", f"{UNTRUSTED}: {{rest}}"),
        (r"certificate[_ ]verify[_ ]failed", UNTRUSTED),
        # OpenSSL's reasons (SSL_R_...), as the alerts of the peer or of its own
        (
            r"wrong[_ ]version[_ ]number|packet length too long|http[_ ]request'|does not speak TLS"
            r"|record layer failure",
            "the server does not speak TLS on this port",
        ),
        (
            r"alert[_ ]protocol[_ ]version|unsupported[_ ]protocol|cannot agree on a TLS version",
            "there is no version of TLS that both sides support",
        ),
        (
            r"alert[_ ]handshake[_ ]failure|no[_ ]shared[_ ]cipher",
            "the server refused the TLS handshake (handshake_failure)",
        ),
        (
            r"alert[_ ](unknown[_ ]ca|bad[_ ]certificate|certificate[_ ]unknown)",
            DISTRUSTED,
        ),
        (r"unrecognized[_ ]name", "the server has no certificate for this host name"),
        (
            r"unexpected[_ ]eof|disconnected during the handshake",  # the latter is mitmproxy's
            CLOSED,
        ),
        # getaddrinfo(3), and Twisted's and aiohttp's messages about it
        (
            r"name or service not known|no address associated|nodename nor servname"
            r"|DNS lookup failed|name has no usable address|unknown host",
            "the host name does not exist",
        ),
        (r"temporary failure in name resolution", "the host name could not be looked up"),
        # errno(3)
        (r"connection refused|connect call failed", "connection refused"),
        (r"no route to host|network is unreachable|host is down", "the host cannot be reached"),
        (r"connection (was )?reset|connection aborted|broken pipe", "connection reset"),
    )
)


def in_plain_words(message: str) -> str | None:
    """What a message of a library says, in words; None if it is not a known one."""
    for pattern, words in _SAID:
        if found := pattern.search(message):
            return words.format(rest=(found.groupdict().get("rest") or "").strip())[:LONGEST]
    return None


def scope_of(errors: Iterable[BaseException | None]) -> Scope | None:
    """The scope of an error and its causes; None if their error numbers do not tell."""
    for error in errors:
        if isinstance(error, ssl.SSLError):  # its number is OpenSSL's
            continue
        number = getattr(error, "errno", None) or getattr(error, "osError", None)  # Twisted's name
        if isinstance(number, int) and number in _SCOPES:
            return _SCOPES[number]
    return None
