"""Clients for the servers that a URL names: one Redis, a Redis Cluster, or the primary that Sentinels know.

    redis://[user:password@]host:port/db                            rediss://... (TLS)
    redis+cluster://[user:password@]host:port,host:port/            rediss+cluster://...
    redis+sentinel://[user:password@]host:port,host:port/SERVICE/db rediss+sentinel://...
    unix:///path/to/socket?db=0

A connection is tried twice before the server counts as away. A client connects when it is first used.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from robots_guard.errors import SettingsError, StoreError
from robots_guard.stores.breaker import Breaker
from robots_guard.stores.redis import PREFIX, RedisStore, Refused
from robots_guard.stores.sentinels import Sentinels

TIMEOUT = 0.2  # seconds

_PLACE = re.compile(r"rediss?://[^/]*(/[0-9]*/?)?|unix://.*", re.DOTALL)  # redis-py takes any other path for 0
_FLEET = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^/@]*)@)?([^/]*)(/.*)?", re.DOTALL)
_HOST = re.compile(r"(?:[^\s:\[\]@]+|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?")
_SERVICE = re.compile(r"/([^/]+)(?:/([0-9]*))?/?")
_OURS = ("prefix", "hmac_env", "hmac_file", "timeout", "ssl_ca_certs")
# A call whose connection broke, or that was not answered, is made once more: a hiccup is no failure. Each call of the
# store bears that. A turn that was taken though the answer was lost is taken again, which costs a delay and breaks
# none; a lease is known by its token; the others change nothing the second time.
_TWICE = Retry(NoBackoff(), 1)  # copied for each connection
FORMS = (
    "redis://[user:password@]host:port/db?prefix=rg:&timeout=0.2, rediss://..., unix:///path/to/socket?db=0,"
    " redis+cluster://host:port,host:port/ or redis+sentinel://host:port,host:port/SERVICE/db"
)


def open_redis(
    url: str, *, looks: bool = False, insist: bool = True, breaker: Callable[[], Breaker] = Breaker
) -> RedisStore:
    """The store that a URL names.

    Raises SettingsError for a URL that cannot be read, an HMAC key that cannot be found, and, with `insist`, a server
    that refuses access, or Sentinels that do not know the service. A server that is away is no error: a fleet may start
    before it. A store that only `looks` needs no right to write.
    """
    place, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    _insist_on_known(options, _known(place))
    timeout = _timeout(options.get("timeout"))
    prefix = options.get("prefix", PREFIX)
    if "{" in prefix or "}" in prefix:
        raise SettingsError(f"store: prefix = {prefix!r}: use no braces, which choose a node of a Redis Cluster")
    key = _key(options)
    try:
        client = _client(place, options, timeout)
    except (ValueError, TypeError) as error:
        raise _unreadable(str(error)) from None
    store = RedisStore(client, prefix=prefix, key=key, breaker=breaker)
    if insist:
        _insist_on_rights(store, looks=looks)
    return store


def _insist_on_rights(store: RedisStore, *, looks: bool) -> None:
    try:
        store.check_rights(looks=looks)
    except Refused as error:
        store.close()
        raise SettingsError(f"store: {error}") from error
    except StoreError:
        return  # it is away, and may come later


def _known(place: str) -> tuple[str, ...]:
    if place.startswith("unix:"):
        return (*_OURS, "db")
    return (*_OURS, "sentinel_password_env") if "+sentinel:" in place[:20] else _OURS


def _insist_on_known(options: dict[str, str], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise SettingsError(f"store: {name!r} is no option of a Redis URL: use {', '.join(known)}")


def _unreadable(why: str) -> SettingsError:
    return SettingsError(f"store: not the URL of a Redis server ({why}): use {FORMS}")


def _client(place: str, options: dict[str, str], timeout: float) -> Any:
    times = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    fleet = _FLEET.fullmatch(place)
    if fleet is None:
        return _one(place, {name: options[name] for name in ("db", "ssl_ca_certs") if name in options}, times)
    scheme, kind, credentials, hosts, path = fleet.groups(default="")
    # redis-py reads the credentials, so that they mean the same in every form.
    read = parse_url(f"{scheme}://{credentials}@host") if credentials else {}
    common = {name: read[name] for name in ("username", "password") if name in read} | times
    if scheme == "rediss":
        common |= {"ssl": True} | {name: options[name] for name in ("ssl_ca_certs",) if name in options}
    if kind == "cluster":
        return _cluster(_addresses(hosts, 6379), path, common)
    return _primary(_addresses(hosts, 26379), path, common, _sentinel_password(options))


def _one(place: str, options: dict[str, str], times: dict[str, float]) -> Any:
    if not _PLACE.fullmatch(place):
        raise ValueError("its path is no number of a database")
    return redis.Redis.from_url(f"{place}?{urlencode(options)}", retry=_TWICE, **times)


def _addresses(hosts: str, port: int) -> list[tuple[str, int]]:
    listed = hosts.split(",")
    for each in listed:
        if not _HOST.fullmatch(each):
            raise ValueError(f"{each.rpartition('@')[2]!r} is no host:port")
    found = (parse_url(f"redis://{each}") for each in listed)
    return [(each["host"], each.get("port", port)) for each in found]


# -- a cluster ----------------------------------------------------------------------------------------------


def _cluster(addresses: list[tuple[str, int]], path: str, options: dict[str, Any]) -> Any:
    if path not in ("", "/", "/0"):
        raise ValueError("a Redis Cluster has one database, 0: end with /")
    return LateCluster(addresses, options)


class LateCluster:
    """A RedisCluster that is made at its first use, because its constructor calls a node."""

    def __init__(self, addresses: list[tuple[str, int]], options: dict[str, Any]) -> None:
        self._addresses = addresses
        self._options = options
        self._made: dict[str, Any] = {}  # of two threads that make one at once, the first to have it sets it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster(), name)

    def node_of(self, key: str) -> str:
        """The name of the node that holds a key, as far as is known; empty if it is not."""
        cluster = self._made.get("cluster")
        with contextlib.suppress(redis.RedisError, RedisClusterException, AttributeError):
            return cluster.get_node_from_key(key).name if cluster else ""
        return ""

    def close(self) -> None:
        """Close the connections."""
        cluster = self._made.pop("cluster", None)
        if cluster is not None:
            cluster.close()

    def _cluster(self) -> Any:
        made = self._made.get("cluster")
        if made is None:
            nodes = [ClusterNode(host, port) for host, port in self._addresses]
            one = RedisCluster(
                startup_nodes=nodes, retry=Retry(NoBackoff(), 1), require_full_coverage=False, **self._options
            )
            made = self._made.setdefault("cluster", one)
            if made is not one:
                one.close()
        return made


# -- Sentinels ----------------------------------------------------------------------------------------------


def _primary(
    addresses: list[tuple[str, int]], path: str, options: dict[str, Any], sentinel_password: str | None
) -> Any:
    service = _SERVICE.fullmatch(path)
    if service is None:
        raise ValueError("it names no SERVICE, as the Sentinels know it: end with /SERVICE/db")
    own = {name: value for name, value in options.items() if name not in ("username", "password")}
    sentinels: Any = Sentinels(addresses, {**own, "password": sentinel_password, "retry": Retry(NoBackoff(), 0)})
    return sentinels.master_for(service[1], db=int(service[2] or 0), retry=_TWICE, **options)


def _sentinel_password(options: dict[str, str]) -> str | None:
    name = options.get("sentinel_password_env")
    if name is None:
        return None
    password = os.environ.get(name)
    if not password:
        raise SettingsError(f"store: sentinel_password_env: the environment has no {name}: set it to the password")
    return password


# -- options ------------------------------------------------------------------------------------------------


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
        raise SettingsError(f"store: the key in {where} is too short to be safe: use at least 16 octets")
    return key
