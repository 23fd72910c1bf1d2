"""Redis clients by URL: a single server, a Redis Cluster, or the primary that Sentinels name.

    redis://[user:password@]host:port/db                            rediss://... (TLS)
    redis+cluster://[user:password@]host:port,host:port/            rediss+cluster://...
    redis+sentinel://[user:password@]host:port,host:port/SERVICE/db rediss+sentinel://...
    unix:///path/to/socket?db=0

A connection is tried twice before the server counts as down. A client connects at its first use.

If no primary is found, redis-py raises one error for every cause. But Sentinels that are down and a
primary that is lost recover by themselves, while Sentinels that do not know the service, or refuse
to answer, do not.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import RedisClusterException
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.stores.breaker import Breaker
from robots_guard.guard.stores.redis import PREFIX, RedisRefused, RedisStore
from robots_guard.guard.stores.refusals import SentinelsRefuse, sentinel_refusal


class Sentinels(Sentinel):
    """Sentinels queried in turn. The one that names a primary is queried first the next time."""

    def __init__(self, addresses: list[tuple[str, int]], options: dict[str, Any]) -> None:
        parent: Any = super()
        parent.__init__(addresses, sentinel_kwargs=options)

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the host and port of the service's primary.

        Raises MasterNotFoundError if there is none now, and SentinelsRefuse for a mistake in the
        URL.
        """
        answers = _Answers(service_name)
        sentinels: list[Any] = list(self.sentinels)
        for sentinel in sentinels:
            address = _address(sentinel)
            try:
                services = sentinel.sentinel_masters()
            except exceptions.RedisError as error:
                answers.add_failure(address, error)
                continue
            found = services.get(service_name)
            if found and _is_up(found):
                self._move_to_front(sentinel)
                return found["ip"], found["port"]
            answers.add_without_primary(address, services)
        raise answers.error()

    def _move_to_front(self, sentinel: Any) -> None:
        """Put a Sentinel first, in one assignment because other threads may be iterating."""
        self.sentinels = [sentinel, *(each for each in self.sentinels if each is not sentinel)]


class _Answers:
    """The answers of Sentinels that did not name a primary."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._known_to: list[str] = []
        self._unknown_to: list[str] = []
        self._services: set[str] = set()
        self._refusals: list[str] = []
        self._failures: list[str] = []

    def add_without_primary(self, address: str, services: Mapping[str, Any]) -> None:
        """Add a Sentinel that listed its services but no usable primary of this one."""
        self._services.update(services)
        if self._service in services:
            self._known_to.append(address)
        else:
            self._unknown_to.append(address)

    def add_failure(self, address: str, error: exceptions.RedisError) -> None:
        """Add a Sentinel that did not answer, or refused to."""
        refusal = sentinel_refusal(address, error)
        if refusal:
            self._refusals.append(refusal)
        else:
            self._failures.append(str(error))

    def error(self) -> exceptions.RedisError:
        """Return the most likely cause.

        The name is wrong only if no Sentinel that answers knows the service.
        """
        if self._known_to:
            return MasterNotFoundError(
                f"the Sentinels know of no primary of {self._service!r} that is up"
            )
        if self._unknown_to:
            return SentinelsRefuse(self._unknown_service())
        if self._refusals:
            return SentinelsRefuse(self._refusals[0])
        return MasterNotFoundError(f"no Sentinel answers ({'; '.join(self._failures)})")

    def _unknown_service(self) -> str:
        sentinels = _join("the Sentinel at {} knows", "the Sentinels at {} know", self._unknown_to)
        known = ", ".join(map(repr, sorted(self._services)))
        remedy = "configure them to monitor it, or name other Sentinels"
        if known:
            remedy = f"end the URL with a service they know ({known})"
        return f"{sentinels} no service {self._service!r}: {remedy}"


def _is_up(found: Mapping[str, Any]) -> bool:
    return bool(found["is_master"]) and not (found["is_sdown"] or found["is_odown"])


def _join(singular: str, plural: str, addresses: list[str]) -> str:
    template = plural if len(addresses) > 1 else singular
    return template.format(", ".join(addresses))


def _address(sentinel: Any) -> str:
    address = sentinel.connection_pool.connection_kwargs
    host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
    return f"{host}:{address['port']}"


TIMEOUT = 0.2  # seconds

#: How often redis-py sends a command to a cluster at most, and for how many seconds it sleeps before
#: each of the second half of them while a slot moves (TRYAGAIN).
_CLUSTER_TRIES = RedisCluster.RedisClusterRequestTTL
_PAUSE_WHILE_A_SLOT_MOVES = 0.05

# redis-py reads any other path as database 0
_SINGLE = re.compile(r"rediss?://[^/]*(/[0-9]*/?)?|unix://.*", re.DOTALL)
_FLEET = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^/@]*)@)?([^/]*)(/.*)?", re.DOTALL)
_HOST = re.compile(r"(?:[^\s:\[\]@]+|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?")
_SERVICE = re.compile(r"/([^/]+)(?:/([0-9]*))?/?")
_OPTIONS = ("prefix", "hmac_env", "hmac_file", "timeout", "ssl_ca_certs")
# A call whose connection broke, or that got no answer, is retried once, so that a hiccup is not a
# failure. Every call of the store can be repeated. A turn whose answer was lost is taken again,
# which costs a delay and violates none; a lease is recognised by its token; the other calls are
# idempotent.
_RETRY_ONCE = Retry(NoBackoff(), 1)  # copied for each connection
FORMS = (
    "redis://[user:password@]host:port/db?prefix=rg:&timeout=0.2, rediss://..., unix:///path/to/socket?db=0,"
    " redis+cluster://host:port,host:port/ or redis+sentinel://host:port,host:port/SERVICE/db"
)


def open_redis(
    url: str,
    *,
    read_only: bool = False,
    must_accept: bool = True,
    breaker: Callable[[], Breaker] = Breaker,
) -> RedisStore:
    """Open the store that a URL names. A `read_only` store needs no write permissions.

    Raises SettingsError for an invalid URL, a missing HMAC key, and, with `must_accept`, a server
    that refuses access or Sentinels that do not know the service. A server that is down is no
    error: a fleet may start before it.
    """
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    _check_options(options, _known_options(address))
    timeout = _timeout(options.get("timeout"))
    prefix = options.get("prefix", PREFIX)
    if "{" in prefix or "}" in prefix:
        raise SettingsError(
            f"store: prefix = {prefix!r}: use no braces, which choose a node of a Redis Cluster"
        )
    key = _key(options)
    try:
        client = _client(address, options, timeout)
    except (ValueError, TypeError) as error:
        raise SettingsError(
            f"store: not the URL of a Redis server ({error}): use {FORMS}"
        ) from None
    store = RedisStore(client, prefix=prefix, key=key, breaker=breaker)
    if must_accept:
        _check_rights(store, read_only=read_only)
    return store


def _check_rights(store: RedisStore, *, read_only: bool) -> None:
    """Check that the server lets this process do what a store does.

    Raises SettingsError, and closes the store, if the server refuses. A server that does not answer
    is no error: it may come up later, and the store retries.
    """
    try:
        store.check_rights(read_only=read_only)
    except RedisRefused as error:
        store.close()
        raise SettingsError(f"store: {error}") from error
    except StoreError:
        return  # the server is down, and may come up later


def _known_options(address: str) -> tuple[str, ...]:
    if address.startswith("unix:"):
        return (*_OPTIONS, "db")
    if "+sentinel:" in address[:20]:
        return (*_OPTIONS, "sentinel_password_env")
    return _OPTIONS


def _check_options(options: dict[str, str], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise SettingsError(
                f"store: {name!r} is not an option of a Redis URL: use {', '.join(known)}"
            )


def _client(address: str, options: dict[str, str], timeout: float) -> Any:
    timeouts = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    fleet = _FLEET.fullmatch(address)
    if fleet is None:
        own = {name: value for name, value in options.items() if name in ("db", "ssl_ca_certs")}
        return _single(address, own, timeouts)
    scheme, kind, credentials, hosts, path = fleet.groups(default="")
    # Parsed by redis-py, so that credentials mean the same in every form.
    parsed = parse_url(f"{scheme}://{credentials}@host") if credentials else {}
    common = {name: parsed[name] for name in ("username", "password") if name in parsed} | timeouts
    if scheme == "rediss":
        common |= {"ssl": True} | {
            name: options[name] for name in ("ssl_ca_certs",) if name in options
        }
    if kind == "cluster":
        return _cluster(_addresses(hosts, 6379), path, common)
    return _primary(_addresses(hosts, 26379), path, common, _sentinel_password(options))


def _single(address: str, options: dict[str, str], timeouts: dict[str, float]) -> Any:
    if not _SINGLE.fullmatch(address):
        raise ValueError("its path is not the number of a database")
    return redis.Redis.from_url(f"{address}?{urlencode(options)}", retry=_RETRY_ONCE, **timeouts)


def _addresses(hosts: str, port: int) -> list[tuple[str, int]]:
    names = hosts.split(",")
    for name in names:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name.rpartition('@')[2]!r} is not a host:port")
    parsed = (parse_url(f"redis://{name}") for name in names)
    return [(each["host"], each.get("port", port)) for each in parsed]


# -- a cluster -------------------------------------------------------------------------------------


def _cluster(addresses: list[tuple[str, int]], path: str, options: dict[str, Any]) -> Any:
    if path not in ("", "/", "/0"):
        raise ValueError("a Redis Cluster has one database, 0: end with /")
    return LateCluster(addresses, options)


class LateCluster:
    """A RedisCluster that is created at its first use, because its constructor calls a node."""

    def __init__(self, addresses: list[tuple[str, int]], options: dict[str, Any]) -> None:
        self._addresses = addresses
        self._options = options
        self._clients: dict[str, Any] = {}  # at most one; setdefault decides between threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster(), name)

    def node_of(self, key: str) -> str:
        """Return the name of the node that stores a key, empty if not known yet."""
        cluster = self._clients.get("cluster")
        with contextlib.suppress(redis.RedisError, RedisClusterException, AttributeError):
            if cluster:
                return str(cluster.get_node_from_key(key).name)
        return ""

    def close(self) -> None:
        """Close the connections."""
        cluster = self._clients.pop("cluster", None)
        if cluster is not None:
            cluster.close()

    def _cluster(self) -> Any:
        cluster = self._clients.get("cluster")
        if cluster is None:
            nodes = [ClusterNode(host, port) for host, port in self._addresses]
            created = RedisCluster(
                startup_nodes=nodes,
                retry=Retry(NoBackoff(), 1),
                require_full_coverage=False,
                **self._options,
            )
            created.RedisClusterRequestTTL = _cluster_tries(self._options["socket_timeout"])
            cluster = self._clients.setdefault("cluster", created)
            if cluster is not created:
                created.close()
        return cluster


def _cluster_tries(timeout: float) -> int:
    """Return how often to send a command: it may wait as long for a moving slot as for an answer."""
    return max(_CLUSTER_TRIES, 2 * math.ceil(timeout / _PAUSE_WHILE_A_SLOT_MOVES))


# -- Sentinels -------------------------------------------------------------------------------------


def _primary(
    addresses: list[tuple[str, int]],
    path: str,
    options: dict[str, Any],
    sentinel_password: str | None,
) -> Any:
    service = _SERVICE.fullmatch(path)
    if service is None:
        raise ValueError("it names no SERVICE that the Sentinels monitor: end with /SERVICE/db")
    own = {name: value for name, value in options.items() if name not in ("username", "password")}
    sentinels: Any = Sentinels(
        addresses, {**own, "password": sentinel_password, "retry": Retry(NoBackoff(), 0)}
    )
    return sentinels.master_for(service[1], db=int(service[2] or 0), retry=_RETRY_ONCE, **options)


def _sentinel_password(options: dict[str, str]) -> str | None:
    name = options.get("sentinel_password_env")
    if name is None:
        return None
    password = os.environ.get(name)
    if not password:
        raise SettingsError(
            f"store: sentinel_password_env: the environment has no {name}: set it to the password"
        )
    return password


# -- options ---------------------------------------------------------------------------------------


def _timeout(text: str | None) -> float:
    """Return the seconds a server may take to answer before the guard continues without it."""
    if text is None:
        return TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 60:
        raise SettingsError(
            f"store: timeout = {text!r} is not a number of seconds: use 0 < timeout <= 60"
        )
    return seconds


def _key(options: dict[str, str]) -> bytes | None:
    """Return the MAC key from the environment or a file.

    It is never part of the URL, which is shown and logged.
    """
    if "hmac_env" in options:
        key = os.environ.get(options["hmac_env"], "").encode()
        where = f"the environment has no {options['hmac_env']}"
    elif "hmac_file" in options:
        path = Path(options["hmac_file"]).expanduser()
        with contextlib.suppress(OSError):
            return _require_length(path.read_bytes().strip(), f"{str(path)!r}")
        raise SettingsError(
            f"store: hmac_file = {str(path)!r} cannot be read: name a file that contains the key"
        )
    else:
        return None
    if not key:
        raise SettingsError(f"store: hmac_env: {where}: set it to the key")
    return _require_length(key, options["hmac_env"])


def _require_length(key: bytes, where: str) -> bytes:
    if len(key) < 16:
        raise SettingsError(
            f"store: the key in {where} is too short to be safe: use at least 16 bytes"
        )
    return key
