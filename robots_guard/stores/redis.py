"""Policies in Redis or Valkey, shared by a fleet.

A policy is one string, ``TIME \\n [MAC] VALUE``; a document another, under its SHA-256; a lease a third, which
ends by itself. All keys begin with one prefix, so that an ACL can name them. What must not be torn is a Lua
script beside this file. A server that is down or slow costs 200 ms once in 30 s: in between, every call fails
at once and each process goes on by itself. Whoever can write to the server can forge policies, unless values
carry a MAC.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from robots_guard.core import codec
from robots_guard.core.freshness import CLOCK_SKEW
from robots_guard.core.pacing import AHEAD, KEPT, LINE, LONGEST_HOLD_OFF, Turn, counted_from
from robots_guard.core.policy import Policy
from robots_guard.errors import DamagedValue, MalformedURL, MissingExtra, NotGoverned, SettingsError, StoreError
from robots_guard.origin import Origin, origin_of
from robots_guard.stores.breaker import Breaker

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    raise MissingExtra("redis", "a store on Redis") from None

TIMEOUT = 0.2  # seconds
PREFIX = "rg:"
POLICY_LIFE = 31 * 86400_000  # milliseconds: the oldest copy that may be used (30 d), and a day
DOCUMENT_LIFE = 120 * 86400_000  # milliseconds: what a journal keeps (90 d), and the oldest copy it names (30 d)
_MAC = hashlib.sha256().digest_size
_LONGEST = 32 + _MAC + codec.MAX_VALUE  # octets of a policy's string, looked at before it is parsed

_PLACE = re.compile(r"rediss?://[^/]*(/[0-9]*/?)?|unix://.*", re.DOTALL)  # redis-py takes any other path for 0
_LUA = files("robots_guard.stores") / "lua"
_OURS = ("prefix", "hmac_env", "hmac_file", "timeout", "ssl_ca_certs")
FORMS = "redis://[user:password@]host:port/db?prefix=rg:&timeout=0.2, rediss://... or unix:///path/to/socket?db=0"


def open_redis(url: str) -> RedisStore:
    """The store a URL names. It is not connected to yet: a fleet starts while its server does.

    Raises SettingsError for a URL that cannot be read, or a key for MACs that cannot be found.
    """
    place, _, query = url.partition("?")
    if not _PLACE.fullmatch(place):
        raise SettingsError(f"store: not the URL of a Redis server (its path is no number of a database): use {FORMS}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    known = (*_OURS, "db") if place.startswith("unix:") else _OURS
    for name in options:
        if name not in known:
            raise SettingsError(f"store: {name!r} is no option of a Redis URL: use {', '.join(known)}")
    ours = {name: options.pop(name) for name in _OURS[:4] if name in options}
    timeout = _timeout(ours.get("timeout"))
    try:
        client = redis.Redis.from_url(
            f"{place}?{urlencode(options)}",
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
    except (ValueError, TypeError) as error:
        raise SettingsError(f"store: not the URL of a Redis server ({error}): use {FORMS}") from None
    return RedisStore(client, prefix=ours.get("prefix", PREFIX), key=_key(ours))


def _timeout(text: str | None) -> float:
    """Seconds a server may take to answer before the guard goes on without it."""
    if text is None:
        return TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 60:
        raise SettingsError(f"store: timeout = {text!r} is no number of seconds: use 0 < timeout <= 60")
    return seconds


def _key(options: dict[str, str]) -> bytes | None:
    """The key for MACs, from the environment or a file: never from the URL, which is shown and logged."""
    if "hmac_env" in options:
        key = os.environ.get(options["hmac_env"], "").encode()
        where = f"the environment has no {options['hmac_env']}"
    elif "hmac_file" in options:
        path = Path(options["hmac_file"]).expanduser()
        with contextlib.suppress(OSError):
            return _long_enough(path.read_bytes().strip(), f"{str(path)!r}")
        raise SettingsError(f"store: hmac_file = {str(path)!r} cannot be read: name a file that holds the key")
    else:
        return None
    if not key:
        raise SettingsError(f"store: hmac_env: {where}: set it to the key")
    return _long_enough(key, options["hmac_env"])


def _long_enough(key: bytes, where: str) -> bytes:
    if len(key) < 16:
        raise SettingsError(f"store: the key in {where} is too short to keep anybody out: use at least 16 octets")
    return key


class RedisStore:
    """A SharedStore on a server. With `key`, values that do not carry our HMAC-SHA256 are not believed."""

    def __init__(self, client: Any, *, prefix: str = PREFIX, key: bytes | None = None) -> None:
        self._client = client
        self._prefix = prefix
        self._key = key
        self._breaker = Breaker()
        self._put = client.register_script((_LUA / "put_if_newer.lua").read_text("utf-8"))
        self._reserve = client.register_script((_LUA / "reserve_turn.lua").read_text("utf-8"))
        self._count_from = client.register_script((_LUA / "count_from.lua").read_text("utf-8"))
        self._hold_off = client.register_script((_LUA / "hold_off.lua").read_text("utf-8"))
        self._release = client.register_script((_LUA / "release_lease.lua").read_text("utf-8"))

    def close(self) -> None:
        """Let the connections go."""
        self._client.close()

    # -- policies -----------------------------------------------------------------------------------------

    def get(self, origin: Origin) -> Policy | None:
        """The policy held, fresh or not."""
        key = self._policy_key(origin)
        with self._asking():
            held = self._client.getrange(key, 0, _LONGEST)
        if not held:
            return None
        policy = self._opened(held, origin)
        filled = codec.filled(policy, None) or codec.filled(policy, self._packed(_digest(policy)))
        if filled is None:
            raise DamagedValue(f"the document held for {origin} is missing or damaged")
        return filled

    def put(self, policy: Policy, now: float) -> None:
        """Keep a policy, unless what is held does not give way, and its document."""
        document = policy.document
        keys = (self._policy_key(policy.origin), self._document_key(_digest(policy)))
        body = codec.pack(document.body) if document else b""
        value = self._sealed(codec.encode(policy), policy.origin)
        with self._asking():
            self._put(keys, (policy.settled_at, now + CLOCK_SKEW, value, POLICY_LIFE, body, DOCUMENT_LIFE))

    def forget(self, origin: Origin) -> bool:
        """Drop the policy held; whether there was one. Its document stays for its time."""
        with self._asking():
            return bool(self._client.delete(self._policy_key(origin)))

    def origins(self) -> Iterator[Origin]:
        """Every origin held, as the server comes across them; keys that are none are left out."""
        start = f"{self._prefix}p:"
        keys = self._client.scan_iter(match=_literal(start) + "*", count=1000)
        while True:
            with self._asking():
                key = next(keys, None)
            if key is None:
                return
            with contextlib.suppress(MalformedURL, NotGoverned):
                yield origin_of(key.decode("utf-8", "replace").removeprefix(start))

    # -- leases -------------------------------------------------------------------------------------------

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:  # noqa: ARG002  (the server has its own clock)
        """Take the origin's lease."""
        with self._asking():
            return bool(self._client.set(self._lease_key(origin), token, nx=True, px=round(seconds * 1000)))

    def release(self, origin: Origin, token: str) -> None:
        """Give the lease back, if it is still the token's."""
        with self._asking():
            self._release((self._lease_key(origin),), (token,))

    # -- turns --------------------------------------------------------------------------------------------

    def reserve(self, origin: Origin, delay: float, now: Callable[[], float], name: str = "") -> Turn:
        """Take the origin's turn, or say how long until it is, by the server's clock; `now` is read before it is
        asked."""
        times = (_micro(delay), _micro(AHEAD), _LATEST, _micro(KEPT))
        with self._asking():
            asked = now()
            answer = self._reserve((self._turn_key(origin),), (*times, LINE, name))
        wait, stamp, held, crowd, ahead = (int(part) for part in answer)
        return Turn(wait / 1e6, stamp / 1e6, by_retry_after=bool(held), asked=asked, crowd=crowd, ahead=ahead)

    def count_from(self, origin: Origin, stamp: float, since: float) -> bool:
        """Move the turn, if it is the last."""
        stamps = (_micro(stamp), _micro(counted_from(stamp, since)))
        with self._asking():
            return bool(self._count_from((self._turn_key(origin),), stamps))

    def hold_off(self, origin: Origin, seconds: float, now: float) -> None:  # noqa: ARG002  (the server has its own clock)
        """No turn before then."""
        with self._asking():
            self._hold_off((self._turn_key(origin),), (_micro(seconds), _LATEST))

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """What `reserve` would go by."""
        with self._asking():
            found = _TURN.fullmatch(self._client.getrange(self._turn_key(origin), 0, 64))
        return (int(found[1]) / 1e6, int(found[2]) / 1e6) if found else (0.0, 0.0)

    # -- documents ----------------------------------------------------------------------------------------

    def document(self, sha256: str) -> bytes | None:
        """The body of that digest, or None."""
        packed = self._packed(sha256)
        return None if packed is None else codec.unpack(packed, sha256)

    def purge(self, now: float, keep: Iterable[str] = ()) -> int:  # noqa: ARG002  (the server has its own clock)
        """The server removes what has not been used for 120 days by itself; `keep` counts as used now."""
        for sha256 in keep:
            with self._asking():
                self._client.pexpire(self._document_key(sha256), DOCUMENT_LIFE)
        return 0

    def _packed(self, sha256: str) -> bytes | None:
        with self._asking():
            packed: bytes = self._client.getrange(self._document_key(sha256), 0, codec.MAX_VALUE)
        return packed or None

    # -- keys and values ----------------------------------------------------------------------------------

    def _policy_key(self, origin: Origin) -> str:
        return f"{self._prefix}p:{origin}"

    def _lease_key(self, origin: Origin) -> str:
        return f"{self._prefix}l:{origin}"

    def _turn_key(self, origin: Origin) -> str:
        return f"{self._prefix}t:{origin}"

    def _document_key(self, sha256: str) -> str:
        return f"{self._prefix}d:{sha256}"

    def _sealed(self, value: bytes, origin: Origin) -> bytes:
        return value if self._key is None else self._mac(value, origin) + value

    def _opened(self, held: bytes, origin: Origin) -> Policy:
        """The policy in a policy's string, without its body."""
        value = held.partition(b"\n")[2]
        if self._key is not None:
            mac, value = value[:_MAC], value[_MAC:]
            if not hmac.compare_digest(mac, self._mac(value, origin)):
                raise DamagedValue(f"what is held for {origin} does not carry our MAC: somebody else has put it there")
        policy = codec.decode(value, origin)
        if policy is None:
            raise DamagedValue(f"what is held for {origin} is damaged, or another origin's")
        return policy

    def _mac(self, value: bytes, origin: Origin) -> bytes:
        assert self._key is not None
        return hmac.digest(self._key, f"{origin}\n".encode() + value, "sha256")

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self._breaker.check()
        try:
            yield
        except redis.ResponseError as error:  # an answer: out of memory, read-only, not allowed
            if str(error).startswith("WRONGTYPE"):
                raise DamagedValue("under one of our keys is no string: somebody else has put it there") from error
            raise StoreError(f"the server refuses: {error}") from error
        except (redis.RedisError, OSError) as error:
            self._breaker.trip(str(error))
            raise StoreError(f"the server cannot be asked: {error}") from error


_TURN = re.compile(rb"(\d{1,17}) (\d{1,17})(?![^ ]).*", re.DOTALL)  # as the scripts keep it


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)


_LATEST = _micro(LONGEST_HOLD_OFF + AHEAD)


def _digest(policy: Policy) -> str:
    return policy.document.sha256 if policy.document else codec.EMPTY


def _literal(prefix: str) -> str:
    """A prefix as a pattern that matches just itself."""
    return "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in prefix)
