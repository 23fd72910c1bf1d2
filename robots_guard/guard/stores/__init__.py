"""Policy stores, chosen by URL, or by one URL for each region.

This module parses the URL; each kind of store has its own module.
"""

from __future__ import annotations

import contextlib
import re
import stat
from functools import partial
from pathlib import Path

from robots_guard.decisions.codec import EMPTY
from robots_guard.errors import MissingExtra, SettingsError, StoreError
from robots_guard.guard.stores.regions import has_regions, open_regions, split_regions
from robots_guard.ports import SharedStore

FORMS = (
    "memory:, sqlite:///relative/path, sqlite:////absolute/path, redis://host:port/db,"
    " redis+cluster://host:port,host:port/, redis+sentinel://host:port,host:port/SERVICE/db or, with"
    " regions, NAME=URL,NAME=URL"
)
_SERVERS = re.compile(r"(rediss?(\+(cluster|sentinel))?|unix)://")


def open_store(url: str) -> SharedStore | None:
    """Open the store that a URL names. Returns None for ``memory:``, where the guard's local cache
    is the only store.

    ``sqlite:///`` is followed by a path, which may be relative, absolute or begin with ``~``.

    Raises SettingsError, with a remedy, for any other form, for an unusable file and for a server
    that refuses access; a server that is down is no error, since it may come up later. Raises
    MissingExtra for a server if redis-py is not installed.
    """
    if _is_on_servers(url):
        return _on_servers(url, read_only=False, must_accept=True)
    path = _path(url)
    if path:
        from robots_guard.guard.stores.sqlite import SqliteStore

        return SqliteStore(path)
    return None


def look_at(url: str, *, insist: bool = True) -> SharedStore | None:
    """Open the store that a URL names for reading only: no file is created, quarantined or written.

    With `insist`, raises SettingsError for a file that is missing, damaged or not a policy store,
    and for a server that refuses access. Without it, every call to the store raises StoreError
    until the store can be read.
    """
    if _is_on_servers(url):
        return _on_servers(url, read_only=True, must_accept=insist)
    path = _path(url)
    if path:
        from robots_guard.guard.stores.database import ReadOnlyDatabase
        from robots_guard.guard.stores.sqlite import SqliteStore

        return SqliteStore(path, ReadOnlyDatabase(path, must_exist=insist))
    return None


def open_existing(url: str) -> SharedStore | None:
    """Open the store that a URL names, as `open_store` does, but create none: raises SettingsError
    for a file that is missing."""
    path = None if _is_on_servers(url) else _path(url)
    if path is not None and not path.exists():
        return look_at(url)  # raises it
    return open_store(url)


def document_in(store: SharedStore | None, sha256: str) -> bytes:
    """Return a document that a store keeps. Raises LookupError, which says in a sentence why there
    is none."""
    if sha256 == EMPTY:
        return b""
    if store is None:
        raise LookupError(
            "No store keeps documents: name the store of the integrations with --store."
        )
    try:
        body = store.document(sha256)
    except (StoreError, ValueError) as error:
        raise LookupError(f"The store {error}.") from error
    if body is None:
        raise LookupError("The store no longer has this document.")
    return body


def find_document(store: SharedStore | None, sha256: str) -> bytes | None:
    """Return a document that a store keeps, or None."""
    try:
        return document_in(store, sha256)
    except LookupError:
        return None


def _is_on_servers(url: str) -> bool:
    return has_regions(url) or bool(_SERVERS.match(url))


def _on_servers(url: str, *, read_only: bool, must_accept: bool) -> SharedStore:
    if has_regions(url):
        open_one = partial(_on_servers, read_only=read_only, must_accept=must_accept)
        return open_regions(url, open_one)
    try:
        from robots_guard.guard.stores.servers import open_redis
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise MissingExtra("redis", "a store on Redis") from None
    return open_redis(url, read_only=read_only, must_accept=must_accept)


def is_store(url: str) -> bool:
    """Whether a text has the form of a store's URL."""
    if has_regions(url):
        with contextlib.suppress(SettingsError):
            return bool(split_regions(url))
        return False
    scheme, _, path = url.partition(":///")
    return url == "memory:" or bool(_SERVERS.match(url)) or (scheme == "sqlite" and bool(path))


def _path(url: str) -> Path | None:
    """Return the path of an SQLite file, or None for ``memory:``."""
    if url == "memory:":
        return None
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and path != ":memory:":
        found = _expand_home(path)
        if _is_special(found):
            raise SettingsError(f"store: {str(found)!r} is not a regular file: name another one")
        return found
    raise SettingsError(f"store = {shown(url)!r} is not a store: use {FORMS}")


def _is_special(path: Path) -> bool:
    """Whether a path is that of a pipe, a device or a socket, of which SQLite would wait for ever for
    what somebody writes into it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _expand_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(
            f"store: there is no home directory for {path!r}: use sqlite:////absolute/path"
        ) from None


def shown(url: str) -> str:
    """Return the URL, or the URL of each region, without its credentials, cut to 200 characters.

    Of a list of regions that cannot be read, it shows nothing.
    """
    if not has_regions(url):
        return _without_credentials(url)[:200]
    with contextlib.suppress(SettingsError):
        parts = split_regions(url).items()
        return ", ".join(f"{name}={_without_credentials(each)}" for name, each in parts)[:200]
    return "..."


def _without_credentials(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    return scheme + slashes + rest.rpartition("@")[2]
