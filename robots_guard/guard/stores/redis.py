"""Policies in Redis or Valkey, shared by a fleet: a single server, a cluster, or a primary found by
Sentinels.

A policy is a string ``TIME [BODY] \\n [MAC] VALUE``; a document is a string under its SHA-256; a
lease is a string that expires. All keys begin with one prefix, so that an ACL can name them. The
keys of an origin contain it in braces, so that they are all on one node of a cluster. Operations
that must be atomic are Lua scripts in ``lua/``.

BODY is a copy of the policy's document, compressed and in base64, if that is short. Most policies
are thus read in one call, also in a cluster, where the document may be on another node. The copy
needs no MAC, because VALUE contains its SHA-256. The document is also stored under its SHA-256,
where other programs read it and where it outlives the policy.

A call that gets no answer is retried once. After that its server is not called for a while, 1 s at
first (`breaker.py`), and each process continues without it. The same applies to operations that the
server refuses. Anyone who can write to the server can forge policies, unless values carry a MAC.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException

from robots_guard.decisions import codec
from robots_guard.decisions.freshness import CLOCK_SKEW
from robots_guard.decisions.lease import Taken
from robots_guard.decisions.pacing import (
    LONGEST_PAUSE,
    MAX_FUTURE,
    MAX_QUEUE,
    PLACE_GRACE,
    Turn,
    Wait,
    moved_stamp,
)
from robots_guard.decisions.policy import Policy
from robots_guard.errors import DamagedValue, MalformedURL, NotGoverned, StoreError
from robots_guard.guard.stores.breaker import Breaker
from robots_guard.guard.stores.refusals import message, refusal
from robots_guard.origin import Origin, origin_of

PREFIX = "rg:"
POLICY_LIFE = 31 * 86400_000  # milliseconds: the maximum age of a usable copy (30 d), plus a day
# milliseconds: the retention of an audit log (90 d), plus the age of the oldest copy it refers to
# (30 d)
DOCUMENT_LIFE = 120 * 86400_000
_MAC = hashlib.sha256().digest_size
#: Bytes of a compressed document that is copied into its policies. 97 of 100 are shorter
#: (`benchmarks/stores.py --only copies`).
MAX_COPY = 2048
#: The most bytes of a policy's string that are read. A copy in base64 is a third longer.
_MAX_POLICY = 32 + 2 * MAX_COPY + _MAC + codec.MAX_VALUE

_LUA = files("robots_guard.guard.stores") / "lua"
_FAILURES = (redis.RedisError, RedisClusterException, OSError)

T = TypeVar("T")


class RedisRefused(StoreError):
    """The server answers, but refuses the command. The message names the remedy."""


class Script(NamedTuple):
    """A Lua script, and the SHA-1 under which a server caches it once it has run it."""

    text: bytes
    sha: str


def _script(name: str) -> Script:
    text = (_LUA / "text_at.lua").read_bytes() + (_LUA / f"{name}.lua").read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


_PUT, _TAKE, _RELEASE = _script("put_if_newer"), _script("take_lease"), _script("release_lease")
_RESERVE, _MOVE_TURN, _NOTE_PAUSE = (
    _script("reserve_turn"),
    _script("move_turn"),
    _script("note_pause"),
)
_CHECK_RIGHTS = _script("check_rights")


class RedisStore:
    """A SharedStore on a server or a cluster.

    With `key`, policies without a valid HMAC-SHA256 are rejected. `breaker` creates circuit
    breakers: one per server, one for reads and one for writes.
    """

    is_local = False

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
        # By name of a cluster's node; "" for a single server.
        self._servers: dict[str, Breaker] = {}
        self._reading = breaker()
        self._writing = breaker()
        self._has_nodes = hasattr(client, "node_of")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def check_rights(self, *, read_only: bool = False) -> None:
        """Check that the server permits the store's commands.

        Raises RedisRefused if it does not, and StoreError if it cannot be reached.
        """
        key = f"{self._prefix}start"
        if read_only:
            self._read(key, lambda: self._client.getrange(key, 0, 0))
        else:
            self._run(_CHECK_RIGHTS, (key,))

    # -- policies ----------------------------------------------------------------------------------

    def get(self, origin: Origin) -> Policy | None:
        """Return the stored policy, fresh or not, or None."""
        string = self._read_prefix(self._policy_key(origin), _MAX_POLICY)
        if not string:
            return None
        return self._policy_in(string, origin)

    def _policy_in(self, string: bytes, origin: Origin) -> Policy:
        """Return the policy of a stored string. Reads its document, unless the string has a copy."""
        head, _, value = string.partition(b"\n")
        policy = self._verify(value, origin)
        complete = codec.with_body(policy, _copy_in(head))
        if complete is None:
            complete = codec.with_body(policy, self._packed(codec.body_digest(policy)))
        if complete is None:
            raise DamagedValue(f"the document stored for {origin} is missing or damaged")
        return complete

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy and its document, unless the stored policy is newer
        (`Policy.may_be_replaced_by`).

        The document is written first, so that a policy is never stored without it; and separately,
        since other origins may share it and it may be on another node. On a single server, one
        round trip writes both.
        """
        keys = (self._policy_key(policy.origin),)
        body = codec.pack(policy.document.body) if policy.document else b""
        value = self._add_mac(codec.encode(policy), policy.origin)
        string = _copy_of(body) + b"\n" + value
        arguments = (policy.settled_at, now + CLOCK_SKEW, string, POLICY_LIFE)
        if policy.document is None:
            self._run(_PUT, keys, *arguments)
            return
        key = self._document_key(policy.document.sha256)
        if self._has_nodes:
            self._write(key, lambda: self._client.set(key, body, px=DOCUMENT_LIFE))
            self._run(_PUT, keys, *arguments)
            return
        self._write(key, lambda: self._put_both(key, body, keys, arguments))

    def _put_both(
        self, key: str, body: bytes, keys: tuple[str, ...], arguments: tuple[Any, ...]
    ) -> None:
        """Write a document and then its policy to a single server, in one round trip."""
        with self._client.pipeline(transaction=False) as both:
            both.set(key, body, px=DOCUMENT_LIFE)
            both.evalsha(_PUT.sha, len(keys), *keys, *arguments)
            of_document, of_policy = both.execute(raise_on_error=False)
        if isinstance(of_document, Exception):
            raise of_document
        if isinstance(of_policy, NoScriptError):
            self._client.eval(_PUT.text, len(keys), *keys, *arguments)
        elif isinstance(of_policy, Exception):
            raise of_policy

    def forget(self, origin: Origin) -> bool:
        """Remove the stored policy; its document expires by itself.

        Returns whether there was one.
        """
        key = self._policy_key(origin)
        return bool(self._write(key, lambda: self._client.delete(key)))

    def origins(self) -> Iterator[Origin]:
        """Yield every origin that has a stored policy, in no order.

        Skips keys that are not origins.
        """
        start, end = f"{self._prefix}{{", "}:policy"
        keys = self._client.scan_iter(match=f"{_literal(start)}*{end}", count=1000)
        while True:
            key = self._read("", lambda: next(keys, None))
            if key is None:
                return
            with contextlib.suppress(MalformedURL, NotGoverned):
                yield origin_of(
                    key.decode("utf-8", "replace").removeprefix(start).removesuffix(end)
                )

    # -- leases ------------------------------------------------------------------------------------

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:  # noqa: ARG002  (the server has its own clock)
        """Take the origin's lease.

        Ignores an existing lease with more than `2 * seconds` left, as corrupt.
        """
        return self._take(origin, token, seconds, policy_bytes=0)[0]

    def take_and_get(self, origin: Origin, token: str, now: float, seconds: float) -> Taken:  # noqa: ARG002  (the server has its own clock)
        """Take the origin's lease, and return also the policy that is stored then, in one call."""
        is_ours, string = self._take(origin, token, seconds, policy_bytes=_MAX_POLICY + 1)
        if not string:
            return Taken(is_ours)
        try:
            return Taken(is_ours, self._policy_in(string, origin))
        except DamagedValue as error:
            return Taken(is_ours, damage=str(error))

    def _take(
        self, origin: Origin, token: str, seconds: float, policy_bytes: int
    ) -> tuple[bool, bytes]:
        """Take the lease. Returns also the first bytes of the policy's string."""
        life = round(seconds * 1000)
        keys = (self._lease_key(origin), self._policy_key(origin))
        is_ours, string = self._run(_TAKE, keys, token, life, 2 * life, policy_bytes)
        return bool(is_ours), string

    def release(self, origin: Origin, token: str) -> None:
        """Release the lease, if the token still owns it."""
        self._run(_RELEASE, (self._lease_key(origin),), token)

    # -- turns -------------------------------------------------------------------------------------

    def reserve(
        self, origin: Origin, delay: float, now: Callable[[], float], name: str = ""
    ) -> Turn | Wait:
        """Take the origin's turn, or return how long to wait for it, by the server's clock.

        `now` is read before and after the call, to estimate the skew of the server's clock.
        """
        times = (_micro(delay), _micro(MAX_FUTURE), _LATEST, _micro(PLACE_GRACE))
        before = now()
        answer = self._run(_RESERVE, (self._turn_key(origin),), *times, MAX_QUEUE, name)
        after = now()
        wait, stamp, is_pause, crowd, rank, server_now, pause = (int(part) for part in answer)
        reply: dict[str, Any] = {
            "asked": before,
            "crowd": crowd,
            "rank": rank,
            "skew": server_now / 1e6 - (before + after) / 2,
            "doubt": abs(after - before) / 2,
        }
        if wait:
            return Wait(
                seconds=wait / 1e6, by_retry_after=bool(is_pause), pause=pause / 1e6, **reply
            )
        return Turn(stamp=stamp / 1e6, **reply)

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        """Re-stamp the turn, if it is still the last."""
        stamps = (_micro(stamp), _micro(moved_stamp(stamp, since)))
        return bool(self._run(_MOVE_TURN, (self._turn_key(origin),), *stamps))

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:  # noqa: ARG002  (the server has its own clock)
        """Grant no turn for `seconds` from now. Never shortens an earlier pause."""
        self._run(_NOTE_PAUSE, (self._turn_key(origin),), _micro(seconds), _LATEST)

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """Return the last turn and the end of the pause, as `reserve` would use them."""
        found = None
        with contextlib.suppress(DamagedValue):
            found = _TURN.fullmatch(self._read_prefix(self._turn_key(origin), 64))
        if found is None:
            return 0.0, 0.0
        return int(found[1]) / 1e6, int(found[2]) / 1e6

    # -- documents ---------------------------------------------------------------------------------

    def document(self, sha256: str) -> bytes | None:
        """Return the body with that digest, or None."""
        packed = self._packed(sha256)
        if packed is None:
            return None
        return codec.unpack(packed, sha256)

    def _packed(self, sha256: str) -> bytes | None:
        return self._read_prefix(self._document_key(sha256), codec.MAX_VALUE) or None

    # -- keys and values ---------------------------------------------------------------------------

    def _policy_key(self, origin: Origin) -> str:
        return f"{self._prefix}{{{origin}}}:policy"

    def _lease_key(self, origin: Origin) -> str:
        return f"{self._prefix}{{{origin}}}:lease"

    def _turn_key(self, origin: Origin) -> str:
        return f"{self._prefix}{{{origin}}}:turns"

    def _document_key(self, sha256: str) -> str:
        return f"{self._prefix}document:{sha256}"

    def _add_mac(self, value: bytes, origin: Origin) -> bytes:
        if self._key is None:
            return value
        return self._mac(value, origin) + value

    def _verify(self, value: bytes, origin: Origin) -> Policy:
        """Verify the MAC of a policy's value. Returns the policy without its body."""
        if self._key is not None:
            mac, value = value[:_MAC], value[_MAC:]
            if not hmac.compare_digest(mac, self._mac(value, origin)):
                raise DamagedValue(
                    f"the value stored for {origin} has no valid MAC: another program wrote it"
                )
        policy = codec.decode(value, origin)
        if policy is None:
            raise DamagedValue(
                f"the value stored for {origin} is damaged, or belongs to another origin"
            )
        return policy

    def _mac(self, value: bytes, origin: Origin) -> bytes:
        assert self._key is not None
        return hmac.digest(self._key, f"{origin}\n".encode() + value, "sha256")

    # -- calls -------------------------------------------------------------------------------------

    def _read_prefix(self, key: str, length: int) -> bytes:
        """Return the first `length` + 1 bytes of a value, empty if there is none.

        Raises DamagedValue for a value that is not a string.
        """
        found: bytes = self._read(key, lambda: self._client.getrange(key, 0, length))
        return found

    def _run(self, script: Script, keys: tuple[str, ...], *arguments: Any) -> Any:
        """Run a script on keys of one slot, sending its text to a server that does not have it yet.

        SCRIPT LOAD would go to all nodes of a cluster, and one of them may be down.
        """

        def run() -> Any:
            try:
                return self._client.evalsha(script.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return self._client.eval(script.text, len(keys), *keys, *arguments)

        return self._write(keys[0], run)

    def _read(self, key: str, call: Callable[[], T]) -> T:
        return self._call(self._reading, key, call)

    def _write(self, key: str, call: Callable[[], T]) -> T:
        return self._call(self._writing, key, call)

    def _call(self, breaker: Breaker, key: str, call: Callable[[], T]) -> T:
        """Make a call, unless the breaker of its server or of its kind (read or write) is open."""
        with breaker.attempt():
            answer = self._answer(key, call)
            if isinstance(answer, redis.ResponseError) and not _is_of_another_type(answer):
                why = refusal(answer) or ""
                breaker.trip(why)
                raise RedisRefused(why) from answer
        if isinstance(answer, redis.ResponseError):
            raise DamagedValue(
                "the value of a key is not a string: another program wrote it"
            ) from answer
        return answer

    def _answer(self, key: str, call: Callable[[], T]) -> T | redis.ResponseError:
        """Make a call.

        Returns an error that the server answers with: any answer closes its breaker.
        """
        server = self._server(key)
        with server.attempt():
            try:
                return call()
            except _FAILURES as error:
                why = refusal(error)
                if why and isinstance(error, redis.ResponseError):
                    self._reconnect_if_demoted(error)
                    return error
                failure = (
                    RedisRefused(why)
                    if why
                    else StoreError(f"the server cannot be reached: {message(error)}")
                )
                server.trip(str(failure))
                raise failure from error

    def _server(self, key: str) -> Breaker:
        """Return the breaker of the server that stores a key."""
        name = self._client.node_of(key) if self._has_nodes and key else ""
        return self._servers.get(name) or self._servers.setdefault(name, self._breaker())

    def _reconnect_if_demoted(self, error: redis.ResponseError) -> None:
        """Drop the connections if the primary became a replica, to resolve its address again."""
        pool = getattr(self._client, "connection_pool", None)
        if isinstance(error, ReadOnlyError) and pool is not None:
            pool.disconnect(inuse_connections=False)


def _copy_of(body: bytes) -> bytes:
    """Return a compressed document as it is stored after the time; empty if it is too long.

    It is in base64, which contains no newline: version 0.1 reads all after the first newline as the
    value.
    """
    if not 0 < len(body) <= MAX_COPY:
        return b""
    return b" " + binascii.b2a_base64(body, newline=False)


def _copy_in(head: bytes) -> bytes | None:
    """Return the compressed document that is stored after the time, or None."""
    with contextlib.suppress(binascii.Error):
        return binascii.a2b_base64(head.partition(b" ")[2]) or None
    return None


# the format that the Lua scripts write
_TURN = re.compile(rb"(\d{1,17}) (\d{1,17})(?![^ ]).*", re.DOTALL)


def _is_of_another_type(answer: redis.ResponseError) -> bool:
    return str(answer).startswith("WRONGTYPE")


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)


_LATEST = _micro(LONGEST_PAUSE + MAX_FUTURE)


def _literal(prefix: str) -> str:
    """Return a Redis pattern that matches only this prefix."""
    return "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in prefix)
