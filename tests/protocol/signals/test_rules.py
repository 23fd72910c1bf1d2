"""The rules of X-Robots-Tag and META ROBOTS: each word is looked up before the text after it is
read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.signals.rules import RULES, read_rules
from robots_guard.protocol.signals.statement import (
    RAW_CAP,
    STATEMENTS,
    Flag,
    Place,
    Signal,
    Statement,
    is_restrictive,
)


def read(text: str, agent: str = "*") -> tuple[Statement, ...]:
    return read_rules(text, signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, agent=agent)


def found(text: str) -> list[tuple[object, ...]]:
    """Agent, rule and value of each statement, and its flags if it has any."""
    return [
        (each.agent, each.rule, each.value, *([set(each.flags)] if each.flags else []))
        for each in read(text)
    ]


LENIENT, MALFORMED, UNKNOWN = {Flag.LENIENT}, {Flag.MALFORMED}, {Flag.UNKNOWN_RULE}
UNREADABLE = {Flag.UNREADABLE_DATE}
DATE = 1277478000  # 25 Jun 2010 15:00:00 GMT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ,\t, ", []),
        ("noindex", [("*", "noindex", True)]),
        ("NOINDEX ,\tNoFollow", [("*", "noindex", True), ("*", "nofollow", True)]),
        ("all", [("*", "all", True)]),
        ("noodp", [("*", "noodp", True)]),
        ("DisallowAITraining", [("*", "disallowaitraining", True)]),
        ("indexifembedded", [("*", "indexifembedded", True, {Flag.INDEXIFEMBEDDED})]),
        # Words are compared whole.
        ("no-index", [("*", "no-index", True, UNKNOWN)]),
        ("noindex/nofollow", [("*", "noindex/nofollow", True, UNKNOWN)]),
        ("nonexistent", [("*", "nonexistent", True, UNKNOWN)]),
        # Values.
        ("max-snippet : 20", [("*", "max-snippet", 20)]),
        ("max-snippet:-1", [("*", "max-snippet", -1)]),
        ("max-snippet:-2", [("*", "max-snippet", "", MALFORMED)]),
        ("max-snippet:2x", [("*", "max-snippet", "", MALFORMED)]),
        ("max-snippet", [("*", "max-snippet", "", MALFORMED)]),
        ("max-snippet=20", [("*", "max-snippet", 20, LENIENT)]),
        ("max-snippet 20", [("*", "max-snippet", 20, LENIENT)]),
        ("max-snippet:\u0662", [("*", "max-snippet", "", MALFORMED)]),
        ("max-image-preview: LARGE", [("*", "max-image-preview", "large")]),
        ("max-image-preview: huge", [("*", "max-image-preview", "", MALFORMED)]),
        ("max-video-preview:0", [("*", "max-video-preview", 0)]),
        # A rule in the place of a value or of an agent.
        ("noindex: yes", [("*", "noindex", True, MALFORMED)]),
        ("noindex=0", [("*", "noindex", True, MALFORMED)]),
        ("noindex: nofollow", [("*", "noindex", True, MALFORMED), ("*", "nofollow", True)]),
        (
            "all: noindex",
            [("*", "all", True, MALFORMED), ("*", "noindex", True)],
        ),
        (
            "max-snippet: noindex",
            [("*", "max-snippet", "", MALFORMED), ("*", "noindex", True, LENIENT)],
        ),
        (
            "max-image-preview: noindex",
            [("*", "max-image-preview", "", MALFORMED), ("*", "noindex", True, LENIENT)],
        ),
    ],
)
def test_rules_and_values(text, expected):
    assert _without_lenience(found(text)) == _without_lenience(expected)


def _without_lenience(rows):
    """The rows without the flag LENIENT, which test_lenience is about."""
    return [
        row[:3] if row[3:] and not row[3] - LENIENT else (*row[:3], *[f - LENIENT for f in row[3:]])
        for row in rows
    ]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("noindex nofollow", ["noindex", "nofollow"]),
        ("noindex; nofollow", ["noindex", "nofollow"]),
        ("noindex;", ["noindex"]),
        ('"noindex"', ["noindex"]),
        ("\u201cnoindex\u201d", ["noindex"]),
        ("'noindex, nofollow'", ["noindex", "nofollow"]),
        ("noindex\u00a0nofollow", ["noindex", "nofollow"]),
        ("\ufeffnoindex", ["noindex"]),
        (": noindex", ["noindex"]),
        ("max-snippet=20", ["max-snippet"]),
    ],
)
def test_lenience(text, rules):
    statements = read(text)

    assert [each.rule for each in statements] == rules
    assert any(Flag.LENIENT in each.flags for each in statements)


@pytest.mark.parametrize(
    "text", ["noindex,nofollow", ",, noindex,,", "a: noindex", "noindex\n,all"]
)
def test_no_lenience(text):
    assert all(Flag.LENIENT not in each.flags for each in read(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("googlebot: noindex, nofollow", ["googlebot noindex", "googlebot nofollow"]),
        ("noindex, otherbot: nofollow", ["* noindex", "otherbot nofollow"]),
        ("a: noindex, b: nofollow", ["a noindex", "b nofollow"]),
        ("a: b: nofollow", ["b nofollow"]),
        ("a: noindex, *: nofollow", ["a noindex", "* nofollow"]),
        ("GoogleBot : noindex", ["googlebot noindex"]),
        ("mybot/2.1: noindex", ["mybot noindex"]),
        ("noindex: otherbot: nofollow", ["* noindex", "otherbot nofollow"]),
        ("max-snippet: otherbot: nofollow", ["* max-snippet", "otherbot nofollow"]),
        ("max-image-preview: none: nofollow", ["* max-image-preview", "* none", "* nofollow"]),
        ("a: max-snippet: 20, noai", ["a max-snippet", "a noai"]),
        # Neither an address nor a time of day is a crawler.
        ("see https://x.example/y, noindex", ["* see", "* https", "* //x.example/y", "* noindex"]),
        ("00:00:00, noindex", ["* 00", "* 00", "* noindex"]),
        ("n\u00f6: noindex", ["* n\u00f6", "* noindex"]),
        ("foo=bar, noindex", ["* foo", "* noindex"]),
        ("foo=noindex", ["* foo", "* noindex"]),
    ],
)
def test_scopes(text, expected):
    names = dict.fromkeys(f"{each.agent} {each.rule}" for each in read(text))

    assert list(names) == list(dict.fromkeys(expected))


def test_the_agent_of_a_meta_element_lasts_until_another_is_named():
    scopes = [(each.agent, each.rule) for each in read("noindex, b: noai", agent="A/1.0")]

    assert scopes == [("a", "noindex"), ("b", "noai")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "noindex, unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, nofollow",
            [("*", "noindex", True), ("*", "unavailable_after", DATE), ("*", "nofollow", True)],
        ),
        (
            "unavailable_after: 25 Jun 2010 15:00:00 GMT, b: noindex",
            [("*", "unavailable_after", DATE), ("b", "noindex", True)],
        ),
        ("b: unavailable_after: 2010-06-25T15:00:00Z", [("b", "unavailable_after", DATE)]),
        (
            "unavailable_after: 25 Jun 2010 15:00:00 XYZ, noindex",
            [("*", "unavailable_after", DATE, {Flag.ASSUMED_UTC}), ("*", "noindex", True)],
        ),
        (
            "unavailable_after: 2010-06-25T15:00:00 noindex",
            [
                ("*", "unavailable_after", DATE, {Flag.ASSUMED_UTC, Flag.LENIENT}),
                ("*", "noindex", True, LENIENT),
            ],
        ),
        (
            "unavailable_after: 2010-06-25T15:00:00 b: noindex",
            [
                ("*", "unavailable_after", DATE, {Flag.ASSUMED_UTC, Flag.LENIENT}),
                ("b", "noindex", True, LENIENT),
            ],
        ),
        ("unavailable_after 2010-06-25T15:00:00Z", [("*", "unavailable_after", DATE, LENIENT)]),
        ('unavailable_after: "2010-06-25T15:00:00Z"', [("*", "unavailable_after", DATE, LENIENT)]),
        ("unavailable_after:", [("*", "unavailable_after", "", UNREADABLE)]),
        (
            "unavailable_after: soon, noindex",
            [("*", "unavailable_after", "", UNREADABLE), ("*", "noindex", True)],
        ),
        (
            "unavailable_after: Fri, 31 Feb 2010 00:00:00 GMT, noindex",
            [("*", "unavailable_after", "", UNREADABLE), ("*", "noindex", True)],
        ),
        (
            "unavailable_after: 06/05/2010 noindex",
            [
                ("*", "unavailable_after", "", {Flag.UNREADABLE_DATE, Flag.LENIENT}),
                ("*", "noindex", True, LENIENT),
            ],
        ),
        (
            "unavailable_after: later b: noindex",
            [
                ("*", "unavailable_after", "", {Flag.UNREADABLE_DATE, Flag.LENIENT}),
                ("b", "noindex", True, LENIENT),
            ],
        ),
    ],
)
def test_dates(text, expected):
    assert found(text) == expected


def test_the_text_is_kept_up_to_a_limit():
    (statement,) = read(" noindex " + " " * RAW_CAP)
    (long,) = read("x" * 2 * RAW_CAP)

    assert statement.raw == "noindex"
    assert len(long.raw) == RAW_CAP
    assert len(long.rule) < RAW_CAP


# --- Invariants ---

WORDS = (
    *sorted(RULES),
    *("googlebot", "*", "mybot/2", "max-snippet", "20", "-1", "0", "none", "large", "soon", "x"),
    *("unavailable_after", "25 Jun 2010 15:00 GMT", "2020-01-01", "Fri", "31 Feb 2010", "\u00e9"),
)
MARKS = (", ", ",", " ", ": ", ":", "=", ";", '"', "\t", "\n", "\x00", "\u00a0", "//", "/")
LINES = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(MARKS)), max_size=12).map(
    lambda pairs: "".join(word + mark for word, mark in pairs)
)


@given(st.one_of(st.text(), LINES))
def test_no_text_raises(text):
    for each in read(text):
        assert each.rule
        assert isinstance(each.value, str | int)


@given(LINES, st.sampled_from(sorted(RULES - {"unavailable_after"})))
def test_a_line_never_hides_the_rule_after_its_end(line, rule):
    """A rule that is for every crawler is found after any text that names no crawler."""
    scopes = {each.agent for each in read(f"{line}, {rule}")}

    assert any(each.rule == rule for each in read(f"{line}, {rule}"))
    if scopes == {"*"}:
        assert any(each.rule == rule and each.agent == "*" for each in read(f"{line}, {rule}"))


@given(LINES, LINES)
def test_a_line_of_rules_keeps_what_was_denied_before_it(first, second):
    denied = {_meaning(each) for each in read(first) if is_restrictive(each)}

    assert denied <= {_meaning(each) for each in read(f"{first}, {second}")}


def _meaning(each):
    return each.agent, each.rule, each.value


# --- Limits ---


def test_beyond_the_limit_a_rule_counts_for_every_crawler():
    text = ", ".join(f"bot{number}: noindex" for number in range(3 * STATEMENTS))

    statements = read(f"{text}, last: max-snippet: 9, last: max-snippet: 5, last: nofollow, x: y")

    assert len(statements) < STATEMENTS + 10
    assert Flag.MALFORMED in statements[-1].flags
    assert statements[-1].rule == ""
    late = {(each.agent, each.rule, each.value) for each in statements[STATEMENTS:]}
    assert late >= {("*", "noindex", True), ("*", "nofollow", True), ("*", "max-snippet", 5)}


def test_unknown_words_do_not_crowd_out_a_rule():
    text = ",".join(f"word{number}" for number in range(10_000))

    statements = read(f"{text}, noindex")

    assert len(statements) < STATEMENTS + 10
    assert any(each.rule == "noindex" and each.agent == "*" for each in statements)


def test_repetitions_are_one_statement():
    assert len(read("noindex, " * 5_000)) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "noindex," * n,
        lambda n: ",".join(f"w{i}" for i in range(n)),
        lambda n: "a:" * n,
        lambda n: "noindex: " * n,
        lambda n: "unavailable_after: " * n,
        lambda n: "unavailable_after: soon " * n,
        lambda n: "unavailable_after: Fri, 31 Feb" + " " * n + "2010" * n,
        lambda n: "max-snippet: " * n,
        lambda n: "max-image-preview:" * n,
        lambda n: " " * 8 * n + "noindex",
        lambda n: '"' * 8 * n,
        lambda n: "x" * 8 * n,
        lambda n: ("x" + " " * 50) * n,
        lambda n: ":=" * 4 * n,
    ],
)
def test_the_time_is_linear(make):
    assert growth(read, make, 2_000) < LINEAR
