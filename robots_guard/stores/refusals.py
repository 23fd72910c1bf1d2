"""Refusals: why a Redis server that answers does not do what it is asked, and what helps.

A server that is away or slow recovers by itself. One that refuses must be fixed, or its URL changed.
"""

from __future__ import annotations

from redis import exceptions

LONGEST = 300  # characters of an error that are shown

_ACCESS = (
    "it wants a user and password, or other ones: put them into the URL as user:password@,"
    " that of the Sentinels into sentinel_password_env"
)
_RIGHTS = "the user may not do this: give it the commands that docs/stores.md lists, and the keys of the prefix"
_REPLICA = "it is a read-only replica: name the primary, or let Sentinels name it with redis+sentinel://"
_FULL = "it is full: set maxmemory-policy to allkeys-lru or volatile-lru, or give it more memory"
_DISK = "it cannot save to its disk: fix that, or set stop-writes-on-bgsave-error to no"
_ALONE = "it reaches too few replicas: bring them back, or lower min-replicas-to-write"
_NODE = "it is a node of a Redis Cluster: use redis+cluster://"
_NO_NODE = "it is no node of a Redis Cluster: use redis://"
_NO_SENTINEL = "is no Sentinel: name the Sentinels, or use redis://"
_SENTINEL_ACCESS = (
    "wants a password, or another one: name the environment variable that holds it in sentinel_password_env"
)
_SENTINEL_RIGHTS = "give its user the command SENTINEL MASTERS"

_BY_TYPE: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.AuthenticationError, _ACCESS),
    (exceptions.NoPermissionError, _RIGHTS),
    (exceptions.ReadOnlyError, _REPLICA),
    (exceptions.OutOfMemoryError, _FULL),
    (exceptions.MovedError, _NODE),
)
#: Words of a message: of answers that redis-py has no type for, and of those that it or a script has wrapped.
_BY_WORD = (
    ("AuthenticationError", _ACCESS),
    ("NOPERM", _RIGHTS),
    ("READONLY", _REPLICA),
    ("OOM command", _FULL),
    ("MISCONF", _DISK),
    ("NOREPLICAS", _ALONE),
    ("Cluster mode is not enabled", _NO_NODE),
)
#: What a server says that is not to be asked now, though it answers.
_LATER = ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "LOADING")


class SentinelsRefuse(exceptions.RedisError):
    """The Sentinels answer, and name no primary until the URL or they are changed. The message is one sentence."""


def said(error: BaseException) -> str:
    """An error's message, no longer than is read."""
    return str(error)[:LONGEST]


def refusal(error: BaseException) -> str | None:
    """Why the server refuses and what helps, in one sentence; None for one that is away, slow or busy."""
    if isinstance(error, SentinelsRefuse):
        return said(error)
    cause: BaseException | None = error
    while cause is not None:  # a cluster's client tells of a wrong password in what its own error comes from
        meant = _remedy(cause)
        if meant:
            return f"the server refuses ({said(error)}): {meant}"
        cause = cause.__cause__
    if isinstance(error, exceptions.ResponseError) and not _is_later(error):
        return f"the server refuses: {said(error)}"
    return None


def of_sentinel(place: str, error: exceptions.RedisError) -> str | None:
    """Why a Sentinel refuses and what helps, in one sentence; None for one that is away, slow or busy."""
    if isinstance(error, exceptions.AuthenticationError):
        return f"the Sentinel at {place} {_SENTINEL_ACCESS}"
    if isinstance(error, exceptions.NoPermissionError):
        return f"the Sentinel at {place} refuses ({said(error)}): {_SENTINEL_RIGHTS}"
    if "unknown command" in str(error):
        return f"the server at {place} {_NO_SENTINEL}"
    if isinstance(error, exceptions.ResponseError) and not _is_later(error):
        return f"the Sentinel at {place} refuses: {said(error)}"
    return None


def _remedy(error: BaseException) -> str | None:
    for kind, meant in _BY_TYPE:
        if isinstance(error, kind):
            return meant
    return next((meant for word, meant in _BY_WORD if word in str(error)), None)


def _is_later(error: exceptions.ResponseError) -> bool:
    kinds = (exceptions.ClusterDownError, exceptions.TryAgainError)
    return isinstance(error, kinds) or str(error).startswith(_LATER)
