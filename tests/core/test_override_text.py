"""Overrides files as text: a pin is added and removed, and everything else stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.core.override_text import Pin, text_with_pin, text_without_pin
from robots_guard.core.overrides import parse
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.origin import origin_of
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching

BASE = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
A = origin_of("https://a.test")
PIN = Pin(A, "a.txt", "jane", "their file is broken", "2030-01-31")
OTHER = """# Ours, reviewed each month.

[[override]]
id = "b"            # the shop
origin = "https://b.test"
owner = "jane"
reason = '''
[[override]] is the header
'''
expires = 2030-01-01
max_delay = 1

# The next one is for the archive.
"""
LAST = '[[override]]\nid = "c"\nsuffix = "c.test"\nowner = "x"\nreason = "y"\nexpires = 2030-01-01\naction = "drop"\n'
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)


def test_a_pin_is_appended():
    text = text_with_pin(OTHER, PIN, BASE)
    assert text.startswith(OTHER.rstrip() + "\n\n[[override]]\n")
    added = parse(text, BASE).by_place[A]
    assert (added.robots_file, added.exemption.id, added.expiry) == (
        "a.txt",
        "pin-a.test",
        "2030-01-31",
    )


@given(TEXTS, TEXTS, TEXTS.filter(lambda text: "\0" not in text), TEXTS)
def test_any_text_can_be_quoted(owner, reason, file, identity):
    pin = PIN._replace(owner=owner, reason=reason, file=file, id=identity)
    added = parse(text_with_pin("", pin, BASE), BASE).by_place[A]
    assert (added.exemption.owner, added.exemption.reason) == (owner, reason)
    assert (added.robots_file, added.exemption.id) == (file, identity)


@pytest.mark.parametrize("text", ["", OTHER, OTHER + LAST, LAST])
def test_what_was_added_is_removed_again(text):
    without, removed = text_without_pin(text_with_pin(text, PIN, BASE), A, BASE)
    assert removed.exemption.id == "pin-a.test"
    assert without.rstrip() == text.rstrip()


def test_a_comment_before_the_next_override_is_kept():
    text = text_with_pin("", PIN, BASE) + "\n# The archive.\n" + LAST
    without, _ = text_without_pin(text, A, BASE)
    assert without == "# The archive.\n" + LAST


def test_ids_differ():
    taken = LAST.replace('"c"', '"pin-a.test"')
    assert parse(text_with_pin(taken, PIN, BASE), BASE).by_place[A].exemption.id == "pin-a.test-2"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"until": "next year"}, "'next year' is not a date"),
        ({"until": "2030-01-01\nmax_delay = 0"}, "is not a date"),
        ({"until": "2030-13-01"}, "TOML"),
        ({"owner": " "}, "owner is empty"),
        ({"file": ""}, "robots_file names no file"),
        ({"file": "\udcff"}, "not valid text"),
        ({"id": "c"}, "already used"),
        ({"origin": origin_of("https://b.test")}, "has the override 'b' already"),
    ],
)
def test_a_pin_that_would_not_work_is_refused(changes, why):
    with pytest.raises(SettingsError, match=why):
        text_with_pin(OTHER + LAST, PIN._replace(**changes), BASE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no robots.txt is pinned for https://a.test"),
        (OTHER.replace("b.test", "a.test"), "no robots.txt is pinned"),
        (text_with_pin("", PIN, BASE) + "max_delay = 1\n", "also sets max_delay"),
        (
            'override = [{id = "i", origin = "https://a.test", owner = "x", reason = "y",'
            ' expires = 2030-01-01, robots_file = "a.txt"}]',
            "by hand",
        ),
    ],
)
def test_what_is_no_simple_pin_is_not_removed(text, why):
    with pytest.raises(SettingsError, match=why):
        text_without_pin(text, A, BASE)
