"""Stores are chosen by URL; an invalid URL is answered with the list of valid forms."""

from __future__ import annotations

import re
import sys

import pytest

from robots_guard.errors import MissingExtra, SettingsError, StoreError
from robots_guard.guard.stores import open_store
from robots_guard.guard.stores.redis import RedisStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of


def opened(url):
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    store.close()
    return store.path


def test_memory_opens_no_shared_store():
    assert open_store("memory:") is None


def test_paths_may_be_absolute_relative_or_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    opened(f"sqlite:///{tmp_path}/absolute.sqlite")
    opened("sqlite:///relative.sqlite")
    opened("sqlite:///~/of-mine.sqlite")

    assert (tmp_path / "absolute.sqlite").exists()
    assert (tmp_path / "relative.sqlite").exists()
    assert (tmp_path / "home" / "of-mine.sqlite").exists()


def test_url_syntax_has_no_meaning_in_a_path(tmp_path):
    assert opened(f"sqlite:///{tmp_path}/a?mode=ro#b%20c.sqlite").name == "a?mode=ro#b%20c.sqlite"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "sqlite",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/p",
        "sqlite:///:memory:",
        "file:///x",
        "/x",
    ],
)
def test_an_unknown_url_lists_the_valid_forms(url):
    with pytest.raises(
        SettingsError,
        match=r"use memory:, sqlite:///relative/path, sqlite:////absolute/path, redis://host",
    ):
        open_store(url)


def test_a_password_is_not_shown():
    with pytest.raises(SettingsError) as caught:
        open_store("rediss//me:secret@cache.test:6379/0")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1/0",
        "rediss://127.0.0.1:1/0",
        "unix:///run/redis.sock?db=2",
        "redis+cluster://127.0.0.1:1,[::1]:1/",
        "rediss+cluster://me:secret@127.0.0.1:1/",
        "redis+sentinel://127.0.0.1:1,127.0.0.1:2/main/0",
        "rediss+sentinel://me:secret@127.0.0.1:1/main",
    ],
)
def test_a_server_is_not_needed_at_startup(url):
    store = open_store(url)
    assert isinstance(store, RedisStore)
    with pytest.raises(StoreError, match="cannot be reached"):
        store.get(origin_of("https://a.test"))
    store.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://h:port/0", "not the URL of a Redis server"),
        ("redis://h/0?prefix=a{b", "prefix = 'a{b': use no braces"),
        (
            "redis+cluster://h:port,i/",
            "not the URL of a Redis server ('h:port' is not a host:port)",
        ),
        ("redis+cluster://h,,i/", "not the URL of a Redis server ('' is not a host:port)"),
        ("redis+cluster://me:secr@et@h/", "not the URL of a Redis server ('h' is not a host:port)"),
        ("redis+cluster://h/1", "a Redis Cluster has one database, 0"),
        ("redis+sentinel://h:26379/", "it names no SERVICE"),
        ("redis+sentinel://h:26379/main/one", "it names no SERVICE"),
        ("redis+sentinel://h/main?sentinel_password_env=NOT_SET", "the environment has no NOT_SET"),
        (
            "redis+cluster://h/?sentinel_password_env=X",
            "'sentinel_password_env' is not an option of a Redis URL",
        ),
        ("redis+other://h/", "'redis+other://h/' is not a store"),
        (
            "redis://h/one",
            "not the URL of a Redis server (its path is not the number of a database)",
        ),
        (
            "redis://user:pass/word@h/0",
            "not the URL of a Redis server (its path is not the number of a database)",
        ),
        (
            "redis://h/0?prefx=x",
            "'prefx' is not an option of a Redis URL: use prefix, hmac_env, hmac_file",
        ),
        ("redis://h/0?socket_timeout=60", "'socket_timeout' is not an option"),
        ("redis://h/0?hmac_env=NOT_SET", "the environment has no NOT_SET"),
        ("redis://h/0?hmac_file=/none/such", "hmac_file = '/none/such' cannot be read"),
        ("redis://h/0?hmac_env=SHORT", "the key in SHORT is too short"),
    ],
)
def test_an_invalid_server_url_is_explained(url, sentence, monkeypatch):
    monkeypatch.setenv("SHORT", "secret")
    with pytest.raises(SettingsError, match=re.escape(sentence)) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)
    assert "'secret'" not in str(caught.value)


def test_the_missing_extra_is_named(monkeypatch):
    for name in ("redis", "refusals", "servers"):
        monkeypatch.delitem(sys.modules, f"robots_guard.guard.stores.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"pip install 'robots_guard\[redis\]'"):
        open_store("redis://127.0.0.1/0")
