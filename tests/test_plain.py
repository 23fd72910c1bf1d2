"""What a stranger wrote shows itself; lengths of time for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.plain import printable, span


@given(st.text(st.characters(codec=None)))
def test_whatever_it_was_it_is_printable_now(text):
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[31mb", "a\\x1b[31mb"), ("\u202ea", "\\u202ea"), ("\U000e0001", "\\U000e0001"), ("\ud800", "\\ud800")],
)
def test_what_is_not_shows_its_number(text, shown):
    assert printable(text) == shown


def test_what_may_stay_stays():
    assert printable("a\nb\tc", keep="\n") == "a\nb\\x09c"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (59, "59 s"), (7500, "2 h 5 min"), (90061, "1 d 1 h"), (-5, "0 s"), (math.nan, "?"), (1e999, "?")],
)
def test_a_span_in_two_units(seconds, told):
    assert span(seconds) == told
