"""Refusals: why a Redis server answers a command with an error, and the remedy.

A server that is down or slow recovers by itself. One that refuses must be fixed, or its URL
changed.
"""

from __future__ import annotations

from redis import exceptions

from robots_guard.text import page_url

MAX_MESSAGE = 300  # characters of an error that are shown

_ACCESS = (
    "it requires a user and password, or different ones: put them into the URL as user:password@,"
    " and the Sentinels' password into sentinel_password_env"
)
_RIGHTS = (
    "the user lacks permission: grant it the keys of the prefix, and the commands that"
    f" {page_url('stores.md#redis-and-valkey')} lists"
)
_REPLICA = (
    "it is a read-only replica: name the primary, or let Sentinels name it with redis+sentinel://"
)
_FULL = "it is full: set maxmemory-policy to allkeys-lru or volatile-lru, or give it more memory"
_DISK = "it cannot write to its disk: fix that, or set stop-writes-on-bgsave-error to no"
_ALONE = "it reaches too few replicas: bring them back, or lower min-replicas-to-write"
_NODE = "it is a node of a Redis Cluster: use redis+cluster://"
_NO_NODE = "it is not a node of a Redis Cluster: use redis://"
_NO_SENTINEL = "is not a Sentinel: name the Sentinels, or use redis://"
_SENTINEL_ACCESS = (
    "requires a password, or a different one:"
    " name the environment variable that contains it in sentinel_password_env"
)
_SENTINEL_RIGHTS = "grant its user the command SENTINEL MASTERS"

_BY_TYPE: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.AuthenticationError, _ACCESS),
    (exceptions.NoPermissionError, _RIGHTS),
    (exceptions.ReadOnlyError, _REPLICA),
    (exceptions.OutOfMemoryError, _FULL),
    (exceptions.MovedError, _NODE),
)
#: Message fragments, for errors that redis-py has no type for or that it or a script has wrapped.
_BY_WORD = (
    ("AuthenticationError", _ACCESS),
    ("NOPERM", _RIGHTS),
    ("READONLY", _REPLICA),
    ("OOM command", _FULL),
    ("MISCONF", _DISK),
    ("NOREPLICAS", _ALONE),
    ("Cluster mode is not enabled", _NO_NODE),
)
#: Prefixes of errors that are temporary: the server answers, but cannot serve the command yet.
_TEMPORARY = ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "LOADING")


class SentinelsRefuse(exceptions.RedisError):
    """The Sentinels answer, but will name no primary until they or the URL are changed.

    The message is one sentence.
    """


def message(error: BaseException) -> str:
    """Return an error's message, cut to 300 characters."""
    return str(error)[:MAX_MESSAGE]


def refusal(error: BaseException) -> str | None:
    """Return why the server refuses, with a remedy, as one sentence.

    Returns None for a server that is down, slow or busy.
    """
    if isinstance(error, SentinelsRefuse):
        return message(error)
    cause: BaseException | None = error
    # the cluster client reports a wrong password only in its error's cause
    while cause is not None:
        remedy = _remedy(cause)
        if remedy:
            return f"the server refuses ({message(error)}): {remedy}"
        cause = cause.__cause__
    if isinstance(error, exceptions.ResponseError) and not _is_temporary(error):
        return f"the server refuses: {message(error)}"
    return None


def sentinel_refusal(address: str, error: exceptions.RedisError) -> str | None:
    """Return why a Sentinel refuses, with a remedy, as one sentence.

    Returns None for a Sentinel that is down, slow or busy.
    """
    if isinstance(error, exceptions.AuthenticationError):
        return f"the Sentinel at {address} {_SENTINEL_ACCESS}"
    if isinstance(error, exceptions.NoPermissionError):
        return f"the Sentinel at {address} refuses ({message(error)}): {_SENTINEL_RIGHTS}"
    if "unknown command" in str(error):
        return f"the server at {address} {_NO_SENTINEL}"
    if isinstance(error, exceptions.ResponseError) and not _is_temporary(error):
        return f"the Sentinel at {address} refuses: {message(error)}"
    return None


def _remedy(error: BaseException) -> str | None:
    for kind, remedy in _BY_TYPE:
        if isinstance(error, kind):
            return remedy
    return next((remedy for word, remedy in _BY_WORD if word in str(error)), None)


def _is_temporary(error: exceptions.ResponseError) -> bool:
    kinds = (exceptions.ClusterDownError, exceptions.TryAgainError)
    return isinstance(error, kinds) or str(error).startswith(_TEMPORARY)
