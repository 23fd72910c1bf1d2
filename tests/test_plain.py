"""Untrusted text made printable, and durations and counts for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.text import counted, printable, span

#: Default_Ignorable_Code_Point of Unicode 15, less what Python calls unprintable.
HIDDEN = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0",
    *map(chr, [0x180B, 0x180C, 0x180D, 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]),
}


@given(st.text(st.characters(codec=None)))
def test_any_text_becomes_printable(text):
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable() or HIDDEN & set(text)


@pytest.mark.parametrize("char", sorted(HIDDEN))
def test_what_is_shown_as_nothing_shows_its_number(char):
    """Otherwise two agents or URLs look alike, and a table has an empty column."""
    number = ord(char)
    assert printable(f"a{char}") == (f"a\\u{number:04x}" if number < 65536 else f"a\\U{number:08x}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("\u202ea", "\\u202ea"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
    ],
)
def test_unprintable_character_shows_its_number(text, shown):
    assert printable(text) == shown


def test_kept_characters_are_unchanged():
    assert printable("a\nb\tc", keep="\n") == "a\nb\\x09c"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (7500, "2 h 5 min"),
        (90061, "1 d 1 h"),
        (-5, "0 s"),
        (math.nan, "?"),
        (1e999, "?"),
    ],
)
def test_a_span_in_two_units(seconds, text):
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (1200, "file", "1,200 files"),
        (1, "try/tries", "1 try"),
        (3, "try/tries", "3 tries"),
    ],
)
def test_noun_is_in_the_number_of_its_count(count, noun, text):
    assert counted(count, noun) == text
