"""The readings of a target; tests/protocol/test_readers.py compares them with real parsers."""

from __future__ import annotations

import pytest

from robots_guard.protocol.paths import behind_authority, joined, readings, undotted


@pytest.mark.parametrize(
    ("target", "others"),
    [
        ("/a/../b", {}),  # every parser sees these dots, so `paths` removes them
        ("/a/.;x/b", {}),
        ("/a/./%2e%2e/b", {"/a/%2e%2e/b": "dots"}),
        ("/b/%2e/..;x?/..", {"/b/%2e/..;x?/..": "dots", "/b/;x?/..": "dots"}),
        ("/a%", {"/a%25": "lone-percent"}),
        ("/a%4g%41%2", {"/a%254g%41%252": "lone-percent"}),
        ("/a\xe9", {"/a\xc3\xa9": "latin-1"}),
        ("/a\xa0", {"/a\xc2\xa0": "latin-1", "/a": "trimmed", "/a\xc2": "latin-1+trimmed"}),
        ("//h/b", {}),
        ("//h;x/b?//c", {"/;x/b?//c": "network-path"}),
        ("//h:80;x/b", {"/;x/b": "network-path"}),
        ("//u:p@h;x/b", {"/;x/b": "network-path"}),
        ("//h:y/b", {"/:y/b": "network-path"}),
        ("//[::1];x/b", {"/;x/b": "network-path"}),
        ("/%2e//h;x/b", {"/;x/b": "network-path"}),
    ],
)
def test_a_target_has_these_readings_besides_itself(target, others):
    assert dict(readings(target)) == {target: "", **others}


def test_a_fragment_is_cut_or_kept_and_either_is_read_further():
    assert readings("/x#/a/./%2e%2e") == [
        ("/x", ""),
        ("/x#/a/./%2e%2e", "fragment-kept"),
        ("/x#/a/%2e%2e", "fragment-kept+dots"),
    ]
    assert readings("//h;x#/c") == [
        ("//h;x", ""),
        ("//h;x#/c", "fragment-kept"),
        ("/;x", "network-path"),
        ("/;x#/c", "fragment-kept+network-path"),
    ]
    assert ("/\xc3\xa9#%25", "fragment-kept+latin-1+lone-percent") in readings("/\xe9#%")


def test_a_target_without_a_first_slash_is_read_from_the_root():
    assert readings("a#b") == [("/a", ""), ("/a#b", "fragment-kept")]


def test_empty_steps_are_omitted():
    assert joined("", "dots") == joined("dots", "") == "dots"
    assert joined("dots", "slashes") == "dots+slashes"


@pytest.mark.parametrize(
    ("path", "bare"),
    [
        ("/a/b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/../b", "/b"),
        ("/a/..", "/"),
        ("/a/.", "/a/"),
    ],
)
def test_dot_segments_are_removed_as_rfc_3986_says(path, bare):
    assert undotted(path) == bare


@pytest.mark.parametrize(
    ("path", "rests"),
    [("//h/b", ["/b"]), ("//h", ["/"]), ("///h/b", ["/h/b", "/b"]), ("////h/b", ["//h/b", "/b"])],
)
def test_an_authority_begins_behind_two_slashes_or_behind_all(path, rests):
    assert behind_authority(path) == rests
