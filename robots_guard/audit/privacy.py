"""Privacy: which parts of a request are recorded.

Invariant: userinfo and fragments are never recorded, nor are values that look like secrets by their
names or their characters; clients are recorded as the operator chooses. When in doubt a value is
hidden, which costs a reader little.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import msgspec

from robots_guard.text import encodable

LONGEST = 2048  # characters of any value
REDACTED = "REDACTED"
# The file in an audit log with the key for hashing query values. All writers share it, so that equal
# values have equal hashes.
KEY = ".key"
KEY_BYTES = 32

_UNSAFE = re.compile(r"[^!-~]")
_USERINFO = re.compile(r"(?<=://)/*[^/?#]*@")  # extra slashes must not hide a password
_FRAGMENT = re.compile(r"(://[^\s#]*)#\S*")
_PAIR = re.compile(r"(?<=[?&;])([^?&;=/]*)=([^?&;]*)")
_PATH_PAIR = re.compile(r"(?<=;)([^;=/]*)=([^;/]*)")
_SECRET_NAME = re.compile(
    r"token|secret|signature|passw|passphrase|pwd|session|jwt|credential|bearer|[cx]srf|auth(?!ors?\b)|^x-(amz|goog)-"
    r"|(^|[^a-z0-9])(sig|pass|sas|code|otp|cred|creds)($|[^a-z0-9])|(key|sess?id|^sid|[^a-z0-9]sid)($|[^a-z0-9])",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"(?=[^/]*[0-9])[A-Za-z0-9+/_=.~-]{33,}")
_RANDOM_BITS = 3.5  # bits of entropy per character; words have fewer


class Privacy(msgspec.Struct, frozen=True, kw_only=True):
    """How much of queries and clients the operator wants to be recorded; `key` is for `query =
    "hash"`."""

    query: str = "redact"
    client: str = "keep"
    key: bytes = b""

    def url(self, url: str) -> str:
        """A URL fit for the audit log: without userinfo, fragment and secrets; printable ASCII,
        other bytes escaped; cut to LONGEST characters."""
        return cut(self.uncut_url(url))

    def uncut_url(self, url: str) -> str:
        """The same in full length."""
        whole = url.partition("#")[0]
        if "@" in whole:
            whole = _USERINFO.sub("", whole, count=1)
        if "?" in whole or ";" in whole:
            whole = self._hide_query(whole)
        if not (whole.isascii() and whole.isprintable() and " " not in whole):
            whole = _UNSAFE.sub(_percent, whole)
        return whole

    def _hide_query(self, url: str) -> str:
        if self.query == "keep":
            return url
        path, mark, query = url.partition("?")
        if self.query == "redact" or not mark:
            return redacted(url)
        if self.query == "drop":
            return redacted(path)
        return redacted(path) + _PAIR.sub(self._hash_value, mark + query)

    def _hash_value(self, pair: re.Match[str]) -> str:
        """The pair with its value hashed. Equal values stay equal; the key prevents finding values
        by trial."""
        digest = hmac.new(self.key, pair[2].encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{pair[1]}={digest.hexdigest()[:16]}"

    def text(self, text: str) -> str:
        """Text for people that may contain URLs, with their userinfo, fragments and secrets
        removed."""
        return cut(redacted(_FRAGMENT.sub(r"\1", _USERINFO.sub("", text))))

    def client_text(self, client: str) -> str:
        """The client as far as it may be recorded. Only addresses are truncated: the name of a
        spider is no secret."""
        if self.client == "keep" or not client:
            return client
        if self.client == "drop":
            return ""
        return _network(client)


DEFAULT = Privacy()


def shown_url(url: str) -> str:
    """A URL fit for audit logs, logs and terminals, under the default privacy."""
    return DEFAULT.url(url)


def redacted(text: str) -> str:
    """Replace the values of parameters that look secret."""
    path, mark, query = text.partition("?")
    if ";" in path:
        path = _PATH_PAIR.sub(_redact_pair, path)
    return path + _PAIR.sub(_redact_pair, mark + query)


def is_secret_name(name: str) -> bool:
    """Whether a name looks like that of a password, a key or a token."""
    return _SECRET_NAME.search(name) is not None


def _redact_pair(pair: re.Match[str]) -> str:
    name, value = pair.groups()
    if is_secret_name(unquote(name)) or _has_secret(value):
        return f"{name}={REDACTED}"
    return pair[0]


def _has_secret(value: str) -> bool:
    """Whether a value looks random, or is itself a URL that has a password or a secret parameter."""
    inner = _unquote_all(value)
    if _USERINFO.search(inner) or _looks_random(inner):
        return True
    return inner != value and any(_SECRET_NAME.search(name) for name, _ in _PAIR.findall(inner))


def _unquote_all(text: str, depth: int = 4) -> str:
    """Undo repeated percent-encoding, as of a URL in the query of a URL in a query."""
    inner = unquote(text)
    if inner == text or not depth:
        return inner
    return _unquote_all(inner, depth - 1)


def _looks_random(value: str) -> bool:
    """Whether a value has more than 32 characters of the alphabets used for keys, with more entropy
    than words."""
    if len(value) <= 32 or not _RANDOM.fullmatch(value):
        return False
    return (
        -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
        > _RANDOM_BITS
    )


def _network(client: str) -> str:
    """The /24 or /48 of an address with or without a port; text that is not an address is
    unchanged."""
    host = client
    if client.startswith("["):
        host = client[1:].partition("]")[0]
    for text in (host, host.rpartition(":")[0]):
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
        return str(
            ipaddress.ip_network((address, 24 if address.version == 4 else 48), strict=False)
        )
    return client


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in _to_bytes(found[0]))


def _to_bytes(character: str) -> bytes:
    """A request target has one Latin-1 character per byte; other characters are of text from
    elsewhere."""
    if character <= "\xff":
        return character.encode("latin-1")
    return character.encode("utf-8", "surrogatepass")


def cut(text: str, longest: int = LONGEST) -> str:
    """Text cut to `longest` characters, with characters replaced that cannot be encoded."""
    if not text.isascii():
        text = encodable(text)
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return text


def key_in(directory: Path) -> str:
    """Return the key with which an audit log hashes values, in hexadecimal; empty if there is none."""
    try:
        return (directory / KEY).read_bytes()[:KEY_BYTES].hex()
    except OSError:
        return ""
