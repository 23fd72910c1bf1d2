"""Policies in Redis or Valkey, shared by a fleet: one server, a cluster, or a primary that Sentinels know.

A policy is one string, ``TIME \\n [MAC] VALUE``; a document another, under its SHA-256; a lease a third, which
ends by itself. All keys begin with one prefix, so that an ACL can name them, and those of an origin carry it in
braces, so that one node of a cluster holds them all. What must not be torn is a Lua script beside this file.
A call that is not answered is made once more; then its server is left alone, for 1 s at first (`breaker.py`), and
each process goes on by itself. So it does with what the server refuses. Whoever can write to the server can forge
policies, unless values carry a MAC.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException

from robots_guard.core import codec
from robots_guard.core.freshness import CLOCK_SKEW
from robots_guard.core.pacing import AHEAD, KEPT, LINE, LONGEST_HOLD_OFF, Turn, counted_from
from robots_guard.core.policy import Policy
from robots_guard.errors import DamagedValue, MalformedURL, NotGoverned, StoreError
from robots_guard.origin import Origin, origin_of
from robots_guard.stores.breaker import Breaker
from robots_guard.stores.refusals import refusal, said

PREFIX = "rg:"
POLICY_LIFE = 31 * 86400_000  # milliseconds: the oldest copy that may be used (30 d), and a day
DOCUMENT_LIFE = 120 * 86400_000  # milliseconds: what a journal keeps (90 d), and the oldest copy it names (30 d)
_MAC = hashlib.sha256().digest_size
_LONGEST = 32 + _MAC + codec.MAX_VALUE  # octets of a policy's string, looked at before it is parsed

_LUA = files("robots_guard.stores") / "lua"
_FAILURES = (redis.RedisError, RedisClusterException, OSError)

T = TypeVar("T")


class Refused(StoreError):
    """The server answers, and will not do what it is asked. The message names the remedy."""


class Script(NamedTuple):
    """A Lua script, and the name under which a server knows it once it has run it."""

    text: bytes
    sha: str


def _script(name: str) -> Script:
    text = (_LUA / "text_at.lua").read_bytes() + (_LUA / f"{name}.lua").read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


_PUT, _TAKE, _RELEASE = _script("put_if_newer"), _script("take_lease"), _script("release_lease")
_RESERVE, _COUNT_FROM, _HOLD_OFF = _script("reserve_turn"), _script("count_from"), _script("hold_off")
_CHECK_RIGHTS = _script("check_rights")


class RedisStore:
    """A SharedStore on a server, or on a cluster of them. With `key`, values that do not carry our HMAC-SHA256 are not
    believed.

    `breaker` makes a breaker: one for each server, one for what may be read and one for what may be written.
    """

    def __init__(
        self,
        client: Any,
        *,
        prefix: str = PREFIX,
        key: bytes | None = None,
        breaker: Callable[[], Breaker] = Breaker,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._key = key
        self._breaker = breaker
        self._servers: dict[str, Breaker] = {}  # by the names of a cluster's nodes; "" for the only one
        self._reading = breaker()
        self._writing = breaker()

    def close(self) -> None:
        """Let the connections go."""
        self._client.close()

    def check_rights(self, *, looks: bool = False) -> None:
        """Find out whether the server refuses us. Raises Refused if it does, StoreError if it cannot be asked."""
        key = f"{self._prefix}start"
        if looks:
            self._read(key, lambda: self._client.getrange(key, 0, 0))
        else:
            self._run(_CHECK_RIGHTS, key)

    # -- policies -----------------------------------------------------------------------------------------

    def get(self, origin: Origin) -> Policy | None:
        """The policy held, fresh or not."""
        held = self._start_of(self._policy_key(origin), _LONGEST)
        if not held:
            return None
        policy = self._opened(held, origin)
        filled = codec.filled(policy, None) or codec.filled(policy, self._packed(_digest(policy)))
        if filled is None:
            raise DamagedValue(f"the document held for {origin} is missing or damaged")
        return filled

    def put(self, policy: Policy, now: float) -> None:
        """Keep a policy, unless what is held does not give way, and its document.

        The document comes first, and by itself, for other origins have it, too, and another node may hold it: a policy
        is never there without it.
        """
        if policy.document:
            key, body = self._document_key(_digest(policy)), codec.pack(policy.document.body)
            self._write(key, lambda: self._client.set(key, body, px=DOCUMENT_LIFE))
        value = self._sealed(codec.encode(policy), policy.origin)
        self._run(_PUT, self._policy_key(policy.origin), policy.settled_at, now + CLOCK_SKEW, value, POLICY_LIFE)

    def forget(self, origin: Origin) -> bool:
        """Drop the policy held; whether there was one. Its document stays for its time."""
        key = self._policy_key(origin)
        return bool(self._write(key, lambda: self._client.delete(key)))

    def origins(self) -> Iterator[Origin]:
        """Every origin held, as the server comes across them; keys that are none are left out."""
        start, end = f"{self._prefix}{{", "}:policy"
        keys = self._client.scan_iter(match=f"{_literal(start)}*{end}", count=1000)
        while True:
            key = self._read("", lambda: next(keys, None))
            if key is None:
                return
            with contextlib.suppress(MalformedURL, NotGoverned):
                yield origin_of(key.decode("utf-8", "replace").removeprefix(start).removesuffix(end))

    # -- leases -------------------------------------------------------------------------------------------

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:  # noqa: ARG002  (the server has its own clock)
        """Take the origin's lease. One that seems to last for more than twice as long is not believed."""
        lasts = round(seconds * 1000)
        return bool(self._run(_TAKE, self._lease_key(origin), token, lasts, 2 * lasts))

    def release(self, origin: Origin, token: str) -> None:
        """Give the lease back, if it is still the token's."""
        self._run(_RELEASE, self._lease_key(origin), token)

    # -- turns --------------------------------------------------------------------------------------------

    def reserve(self, origin: Origin, delay: float, now: Callable[[], float], name: str = "") -> Turn:
        """Take the origin's turn, or say how long until it is, by the server's clock; `now` is read before it is
        asked, and again when it has answered: its clock was read in between."""
        times = (_micro(delay), _micro(AHEAD), _LATEST, _micro(KEPT))
        asked = now()
        answer = self._run(_RESERVE, self._turn_key(origin), *times, LINE, name)
        answered = now()
        wait, stamp, held, crowd, rank, there, pause = (int(part) for part in answer)
        return Turn(
            wait / 1e6,
            stamp / 1e6,
            by_retry_after=bool(held),
            asked=asked,
            crowd=crowd,
            rank=rank,
            skew=there / 1e6 - (asked + answered) / 2,
            pause=pause / 1e6,
            doubt=abs(answered - asked) / 2,
        )

    def count_from(self, origin: Origin, stamp: float, since: float) -> bool:
        """Move the turn, if it is the last."""
        stamps = (_micro(stamp), _micro(counted_from(stamp, since)))
        return bool(self._run(_COUNT_FROM, self._turn_key(origin), *stamps))

    def hold_off(self, origin: Origin, seconds: float, now: float) -> None:  # noqa: ARG002  (the server has its own clock)
        """No turn before then."""
        self._run(_HOLD_OFF, self._turn_key(origin), _micro(seconds), _LATEST)

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """What `reserve` would go by."""
        found = None
        with contextlib.suppress(DamagedValue):
            found = _TURN.fullmatch(self._start_of(self._turn_key(origin), 64))
        return (int(found[1]) / 1e6, int(found[2]) / 1e6) if found else (0.0, 0.0)

    # -- documents ----------------------------------------------------------------------------------------

    def document(self, sha256: str) -> bytes | None:
        """The body of that digest, or None."""
        packed = self._packed(sha256)
        return None if packed is None else codec.unpack(packed, sha256)

    def purge(self, now: float, keep: Iterable[str] = ()) -> int:  # noqa: ARG002  (the server has its own clock)
        """The server removes what has not been used for 120 days by itself; `keep` counts as used now."""
        for key in map(self._document_key, keep):
            self._write(key, partial(self._client.pexpire, key, DOCUMENT_LIFE))
        return 0

    def _packed(self, sha256: str) -> bytes | None:
        return self._start_of(self._document_key(sha256), codec.MAX_VALUE) or None

    # -- keys and values ----------------------------------------------------------------------------------

    def _policy_key(self, origin: Origin) -> str:
        return f"{self._prefix}{{{origin}}}:policy"

    def _lease_key(self, origin: Origin) -> str:
        return f"{self._prefix}{{{origin}}}:lease"

    def _turn_key(self, origin: Origin) -> str:
        return f"{self._prefix}{{{origin}}}:turns"

    def _document_key(self, sha256: str) -> str:
        return f"{self._prefix}document:{sha256}"

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

    # -- asking -------------------------------------------------------------------------------------------

    def _start_of(self, key: str, most: int) -> bytes:
        """The first bytes under a key, empty for none. Raises DamagedValue for what is no string."""
        found: bytes = self._read(key, lambda: self._client.getrange(key, 0, most))
        return found

    def _run(self, script: Script, key: str, *arguments: Any) -> Any:
        """Run a script on the one key it is about. Each is sent in full where it is not known yet: not to all nodes of
        a cluster, as SCRIPT LOAD would be, for another of them may be away."""

        def run() -> Any:
            try:
                return self._client.evalsha(script.sha, 1, key, *arguments)
            except NoScriptError:
                return self._client.eval(script.text, 1, key, *arguments)

        return self._write(key, run)

    def _read(self, key: str, call: Callable[[], T]) -> T:
        return self._ask(self._reading, key, call)

    def _write(self, key: str, call: Callable[[], T]) -> T:
        return self._ask(self._writing, key, call)

    def _ask(self, allowed: Breaker, key: str, call: Callable[[], T]) -> T:
        """Make a call, unless its server is away or has refused its like, and is left alone for that."""
        with allowed.attempt():
            answer = self._answer(key, call)
            if isinstance(answer, redis.ResponseError) and not _is_of_another_type(answer):
                why = refusal(answer) or ""
                allowed.trip(why)
                raise Refused(why) from answer
        if isinstance(answer, redis.ResponseError):
            raise DamagedValue("under one of our keys is no string: somebody else has put it there") from answer
        return answer

    def _answer(self, key: str, call: Callable[[], T]) -> T | redis.ResponseError:
        """What the server answers, be it an error: that it answers is what closes its breaker."""
        server = self._server(key)
        with server.attempt():
            try:
                return call()
            except _FAILURES as error:
                why = refusal(error)
                if why and isinstance(error, redis.ResponseError):
                    self._reconnect_if_demoted(error)
                    return error
                failure = Refused(why) if why else StoreError(f"the server cannot be asked: {said(error)}")
                server.trip(str(failure))
                raise failure from error

    def _server(self, key: str) -> Breaker:
        """The breaker of the server that holds a key."""
        node_of = getattr(self._client, "node_of", None)
        name = node_of(key) if node_of and key else ""
        return self._servers.get(name) or self._servers.setdefault(name, self._breaker())

    def _reconnect_if_demoted(self, error: redis.ResponseError) -> None:
        """Ask the server's name for its address again, which may be another since the primary became a replica."""
        pool = getattr(self._client, "connection_pool", None)
        if isinstance(error, ReadOnlyError) and pool is not None:
            pool.disconnect(inuse_connections=False)


_TURN = re.compile(rb"(\d{1,17}) (\d{1,17})(?![^ ]).*", re.DOTALL)  # as the scripts keep it


def _is_of_another_type(answer: redis.ResponseError) -> bool:
    return str(answer).startswith("WRONGTYPE")


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)


_LATEST = _micro(LONGEST_HOLD_OFF + AHEAD)


def _digest(policy: Policy) -> str:
    return policy.document.sha256 if policy.document else codec.EMPTY


def _literal(prefix: str) -> str:
    """A prefix as a pattern that matches just itself."""
    return "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in prefix)
