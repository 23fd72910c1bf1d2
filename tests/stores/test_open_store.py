"""Stores are chosen by URL; a URL that names none is answered with the forms there are."""

from __future__ import annotations

import pytest

from robots_guard.errors import SettingsError
from robots_guard.stores import open_store
from robots_guard.stores.sqlite import SqliteStore


def opened(url):
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    store.close()
    return store.path


def test_memory_is_no_store_beside_the_guards_own():
    assert open_store("memory:") is None


def test_paths_are_absolute_relative_or_of_ones_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    opened(f"sqlite:///{tmp_path}/absolute.sqlite")
    opened("sqlite:///relative.sqlite")
    opened("sqlite:///~/of-mine.sqlite")

    assert (tmp_path / "absolute.sqlite").exists()
    assert (tmp_path / "relative.sqlite").exists()
    assert (tmp_path / "home" / "of-mine.sqlite").exists()


def test_characters_that_mean_something_in_urls_mean_nothing_in_a_path(tmp_path):
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
def test_what_names_no_store_is_answered_with_the_forms(url):
    with pytest.raises(SettingsError, match=r"use memory:, sqlite:///relative/path or sqlite:////absolute/path$"):
        open_store(url)


def test_redis_is_not_available_yet_and_its_password_is_not_shown():
    with pytest.raises(SettingsError, match="not available in this version") as caught:
        open_store("redis://me:secret@cache.test:6379/0")
    assert "secret" not in str(caught.value)
