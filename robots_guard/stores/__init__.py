"""Policy stores, chosen by URL: this file knows the forms, each store its own file."""

from __future__ import annotations

import re
from pathlib import Path

from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.ports import SharedStore
from robots_guard.stores.database import Look
from robots_guard.stores.sqlite import SqliteStore

FORMS = (
    "memory:, sqlite:///relative/path, sqlite:////absolute/path, redis://host:port/db,"
    " redis+cluster://host:port,host:port/ or redis+sentinel://host:port,host:port/SERVICE/db"
)
_SERVERS = re.compile(r"(rediss?(\+(cluster|sentinel))?|unix)://")


def open_store(url: str) -> SharedStore | None:
    """The store a URL names, open; None for ``memory:``, where the guard's own memory is all there is.

    ``sqlite:///`` is followed by a path, which may be relative, absolute or begin with ``~``. Raises
    SettingsError, naming the remedy, for any other form, for a file that cannot be used and for a server that refuses
    us (a server that is away may come later); MissingExtra for a server where redis-py is not installed.
    """
    if _SERVERS.match(url):
        return _on_servers(url, looks=False, insist=True)
    path = _path(url)
    return SqliteStore(path) if path else None


def look_at(url: str, *, insist: bool = True) -> SharedStore | None:
    """The same, only to be looked at: no file is created, set aside or written.

    A file that is missing, damaged or none of ours, and a server that refuses us, raise SettingsError now; unless we
    `insist`, each question to it raises StoreError, until it can be read.
    """
    if _SERVERS.match(url):
        return _on_servers(url, looks=True, insist=insist)
    path = _path(url)
    return SqliteStore(path, Look(path, insist=insist)) if path else None


def _on_servers(url: str, *, looks: bool, insist: bool) -> SharedStore:
    try:
        from robots_guard.stores.servers import open_redis
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise MissingExtra("redis", "a store on Redis") from None
    return open_redis(url, looks=looks, insist=insist)


def _path(url: str) -> Path | None:
    """The path of a file; None for ``memory:``."""
    if url == "memory:":
        return None
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and path != ":memory:":
        return _expanded(path)
    raise SettingsError(f"store = {shown(url)!r} is not a store: use {FORMS}")


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(f"store: there is no home directory for {path!r}: use sqlite:////absolute/path") from None


def shown(url: str) -> str:
    """The URL without what may be a password."""
    scheme, slashes, rest = url.rpartition("://")
    return (scheme + slashes + rest.rpartition("@")[2])[:200]
