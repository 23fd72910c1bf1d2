"""Overrides files as text: one is added and removed, and everything else stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.override_text import NewOverride, text_with, text_without
from robots_guard.decisions.overrides import parse
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching

BASE = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
A = origin_of("https://a.test")
NEW = NewOverride(A, {"robots_file": "a.txt"}, "jane", "their file is broken", "2030-01-31")
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


def test_an_override_is_appended():
    text = text_with(OTHER, NEW, BASE)
    assert text.startswith(OTHER.rstrip() + "\n\n[[override]]\n")
    added = parse(text, BASE).by_place[A]
    assert (added.robots_file, added.exemption.id, added.expiry) == (
        "a.txt",
        "a.test",
        "2030-01-31",
    )


@given(TEXTS, TEXTS, TEXTS.filter(lambda text: "\0" not in text), TEXTS)
def test_any_text_can_be_quoted(owner, reason, file, identity):
    new = NEW._replace(owner=owner, reason=reason, changes={"robots_file": file}, id=identity)
    added = parse(text_with("", new, BASE), BASE).by_place[A]
    assert (added.exemption.owner, added.exemption.reason) == (owner, reason)
    assert (added.robots_file, added.exemption.id) == (file, identity)


@pytest.mark.parametrize("text", ["", OTHER, OTHER + LAST, LAST])
def test_what_was_added_is_removed_again(text):
    without, removed = text_without(text_with(text, NEW, BASE), A, BASE)
    assert removed.exemption.id == "a.test"
    assert without.rstrip() == text.rstrip()


def test_a_comment_before_the_next_override_is_kept():
    text = text_with("", NEW, BASE) + "\n# The archive.\n" + LAST
    without, _ = text_without(text, A, BASE)
    assert without == "# The archive.\n" + LAST


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({"action": "pass"}, {"action": "pass"}),
        ({"max_delay": "1", "dialect": "google"}, {"max_delay": 1, "dialect": "google"}),
        (
            {"min_delay": "0.5", "purposes": "search, tdm"},
            {"min_delay": 0.5, "purposes": "search, tdm"},
        ),
    ],
)
def test_a_value_is_read_as_it_was_given(changes, read):
    added = parse(text_with(OTHER, NEW._replace(changes=changes), BASE), BASE).by_place[A]

    assert dict(added.changes) == read


def test_an_origin_may_end_with_a_slash():
    (entry,) = parse(LAST.replace('suffix = "c.test"', 'origin = "https://c.test/"'), BASE).entries

    assert entry.place == origin_of("https://c.test")


def test_ids_differ():
    taken = LAST.replace('"c"', '"a.test"')
    assert parse(text_with(taken, NEW, BASE), BASE).by_place[A].exemption.id == "a.test-2"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"until": "next year"}, "'next year' is not a date"),
        ({"until": "2030-01-01\nmax_delay = 0"}, "is not a date"),
        ({"until": "2030-13-01"}, "not a date"),
        ({"owner": " "}, "owner is empty"),
        ({"changes": {"robots_file": ""}}, "robots_file names no file"),
        ({"changes": {"robots_file": "\udcff"}}, "not valid text"),
        ({"id": "c"}, "already used"),
        ({"changes": {"max_delay": "soon"}}, "max_delay = 'soon'"),
        ({"changes": {"max_dealy": "1"}}, "did you mean max_delay"),
        ({"changes": {"max delay": "1"}}, "is not known"),
        ({"changes": {"action": "pass", "max_delay": "1"}}, "remove one of them"),
        ({"place": "test"}, "top-level domain"),
        ({"place": origin_of("https://b.test")}, "has the override 'b' already"),
    ],
)
def test_one_that_would_not_work_is_refused(changes, why):
    with pytest.raises(SettingsError, match=why):
        text_with(OTHER + LAST, NEW._replace(**changes), BASE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "https://a.test has no override"),
        (OTHER, "https://a.test has no override"),
        (
            'override = [{id = "i", origin = "https://a.test", owner = "x", reason = "y",'
            ' expires = 2030-01-01, robots_file = "a.txt"}]',
            "by hand",
        ),
    ],
)
def test_what_cannot_be_removed_safely_stays(text, why):
    with pytest.raises(SettingsError, match=why):
        text_without(text, A, BASE)
