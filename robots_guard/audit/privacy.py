"""What of a request may be written down.

The law of this file: userinfo and fragments never, secrets by their names and by their looks not, clients as the
operator chooses. It errs towards hiding: a value that is hidden without need costs a reader little.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
from collections import Counter
from urllib.parse import unquote

import msgspec

from robots_guard.plain import encodable

LONGEST = 2048  # characters of any one value
REDACTED = "REDACTED"
QUERIES = ("redact", "keep", "drop", "hash")
CLIENTS = ("keep", "truncate", "drop")

_UNSAFE_OCTET = re.compile(r"[^!-~]")
_USERINFO = re.compile(r"(?<=://)/*[^/?#]*@")  # a slash too many hides no password
_FRAGMENT = re.compile(r"(://[^\s#]*)#\S*")
_PAIR = re.compile(r"(?<=[?&;])([^?&;=/]*)=([^?&;]*)")
_PATH_PAIR = re.compile(r"(?<=;)([^;=/]*)=([^;/]*)")
_SECRET_NAME = re.compile(
    r"token|secret|signature|passw|passphrase|pwd|session|jwt|credential|bearer|[cx]srf|auth(?!ors?\b)|^x-(amz|goog)-"
    r"|(^|[^a-z0-9])(sig|pass|sas|code|otp|cred|creds)($|[^a-z0-9])|(key|sess?id|^sid|[^a-z0-9]sid)($|[^a-z0-9])",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"(?=[^/]*[0-9])[A-Za-z0-9+/_=.~-]{33,}")
_RANDOM_BITS = 3.5  # of entropy a character: words of a language have fewer


class Privacy(msgspec.Struct, frozen=True, kw_only=True):
    """How much an operator wants written down of queries and of clients; `key` is for `query = "hash"`."""

    query: str = "redact"
    client: str = "keep"
    key: bytes = b""

    def url(self, url: str) -> str:
        """A URL fit for the journal: no userinfo, fragment or secret; octets outside printable ASCII escaped."""
        whole = url.partition("#")[0]
        if "@" in whole:
            whole = _USERINFO.sub("", whole, count=1)
        if "?" in whole or ";" in whole:
            whole = self._queried(whole)
        if not (whole.isascii() and whole.isprintable() and " " not in whole):
            whole = _UNSAFE_OCTET.sub(_percent, whole)
        return cut(whole)

    def _queried(self, url: str) -> str:
        if self.query == "keep":
            return url
        path, mark, query = url.partition("?")
        if self.query == "redact" or not mark:
            return redacted(url)
        if self.query == "drop":
            return redacted(path)
        return redacted(path) + _PAIR.sub(self._hashed, mark + query)

    def _hashed(self, pair: re.Match[str]) -> str:
        """Equal values stay equal, and without the key nobody can try values out."""
        digest = hmac.new(self.key, pair[2].encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{pair[1]}={digest.hexdigest()[:16]}"

    def text(self, text: str) -> str:
        """Text for people, in which URLs may stand."""
        return cut(redacted(_FRAGMENT.sub(r"\1", _USERINFO.sub("", text))))

    def client_shown(self, client: str) -> str:
        """Who asked, as far as it may be known. What is no address (a spider's name) is nobody's secret."""
        if self.client == "keep" or not client:
            return client
        return "" if self.client == "drop" else _network(client)


DEFAULT = Privacy()


def shown_url(url: str) -> str:
    """A URL fit for journals, logs and terminals, under the default privacy."""
    return DEFAULT.url(url)


def redacted(text: str) -> str:
    """Text with the values of parameters that look secret replaced."""
    path, mark, query = text.partition("?")
    if ";" in path:
        path = _PATH_PAIR.sub(_without_secret, path)
    return path + _PAIR.sub(_without_secret, mark + query)


def _without_secret(pair: re.Match[str]) -> str:
    name, value = pair.groups()
    return f"{name}={REDACTED}" if _SECRET_NAME.search(unquote(name)) or _hides_secret(value) else pair[0]


def _hides_secret(value: str) -> bool:
    """Whether a value looks random, or is itself a URL that carries a password or a secret parameter."""
    inner = _unquoted(value)
    if _USERINFO.search(inner) or _looks_random(inner):
        return True
    return any(_SECRET_NAME.search(name) for name, _ in _PAIR.findall(inner)) if inner != value else False


def _unquoted(text: str, deep: int = 4) -> str:
    """Text as it stood before it was quoted, also when a URL went from one into the next."""
    inner = unquote(text)
    return inner if inner == text or not deep else _unquoted(inner, deep - 1)


def _looks_random(value: str) -> bool:
    """More than 32 characters of the alphabets that keys are written in, as mixed as no words are."""
    if len(value) <= 32 or not _RANDOM.fullmatch(value):
        return False
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values()) > _RANDOM_BITS


def _network(client: str) -> str:
    """The /24 or /48 of an address with or without its port; text that is no address as it is."""
    host = client[1:].partition("]")[0] if client.startswith("[") else client
    for text in (host, host.rpartition(":")[0]):
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
        return str(ipaddress.ip_network((address, 24 if address.version == 4 else 48), strict=False))
    return client


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in _octets(found[0]))


def _octets(character: str) -> bytes:
    """A target has one Latin-1 character an octet; anything beyond is text from elsewhere."""
    return character.encode("latin-1") if character <= "\xff" else character.encode("utf-8", "surrogatepass")


def cut(text: str, longest: int = LONGEST) -> str:
    """At most so many characters, and none that cannot be encoded."""
    if not text.isascii():
        text = encodable(text)
    return text if len(text) <= longest else text[: longest - 3] + "..."
