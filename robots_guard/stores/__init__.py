"""Policy stores, chosen by URL: this file knows the forms, each store its own file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from robots_guard.errors import SettingsError
from robots_guard.ports import SharedStore
from robots_guard.stores.database import Look
from robots_guard.stores.sqlite import SqliteStore

FORMS = "memory:, sqlite:///relative/path, sqlite:////absolute/path or redis://host:port/db"


def open_store(url: str) -> SharedStore | None:
    """The store a URL names, open; None for ``memory:``, where the guard's own memory is all there is.

    ``sqlite:///`` is followed by a path, which may be relative, absolute or begin with ``~``. Raises
    SettingsError, naming the remedy, for any other form and for a file that cannot be used; MissingExtra for
    ``redis:``, ``rediss:`` and ``unix:`` where redis-py is not installed.
    """
    return _store(url, SqliteStore)


def look_at(url: str, *, insist: bool = True) -> SharedStore | None:
    """The same, only to be looked at: no file is created, set aside or written.

    A file that is missing, damaged or none of ours raises SettingsError now; unless we `insist`, each question to it
    raises StoreError, until it can be read.
    """
    return _store(url, lambda path: SqliteStore(path, Look(path, insist=insist)))


def _store(url: str, in_file: Callable[[Path], SqliteStore]) -> SharedStore | None:
    if url == "memory:":
        return None
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and path != ":memory:":
        return in_file(_expanded(path))
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
