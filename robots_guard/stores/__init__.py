"""Policy stores, chosen by URL: this file knows the forms, each store its own file."""

from __future__ import annotations

from pathlib import Path

from robots_guard.errors import SettingsError
from robots_guard.ports import SharedStore
from robots_guard.stores.sqlite import SqliteStore

FORMS = "memory:, sqlite:///relative/path, sqlite:////absolute/path or redis://host:port/db"


def open_store(url: str) -> SharedStore | None:
    """The store a URL names, open; None for ``memory:``, where the guard's own memory is all there is.

    ``sqlite:///`` is followed by a path, which may be relative, absolute or begin with ``~``. Raises
    SettingsError, naming the remedy, for any other form and for a file that cannot be used; MissingExtra for
    ``redis:``, ``rediss:`` and ``unix:`` where redis-py is not installed.
    """
    if url == "memory:":
        return None
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and path != ":memory:":
        return SqliteStore(_expanded(path))
    if url.startswith(("redis://", "rediss://", "unix://")):
        from robots_guard.stores.redis import open_redis

        return open_redis(url)
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
