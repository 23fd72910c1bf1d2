"""Content-Usage: well-formed dictionaries permit and deny, other texts only deny."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.signals.statement import STATEMENTS, Flag, Place, Signal
from robots_guard.protocol.signals.usage import (
    DICTIONARY_CAP,
    LEGACY_LABELS,
    SIGNAL_LABELS,
    USAGE_LABELS,
    read_usage,
)

MALFORMED, LENIENT = Flag.MALFORMED, Flag.LENIENT
LEGACY, CROSS, UNKNOWN = Flag.LEGACY, Flag.CROSS_VOCABULARY, Flag.UNKNOWN_RULE


def read(text, **given):
    return read_usage(text, place=Place.HEADER, **given)


def found(text, **given):
    return [(each.rule, each.value, *each.flags) for each in read(text, **given)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t", []),
        ("train-ai=n", [("train-ai", "n")]),
        ("train-ai=y, search=n", [("train-ai", "y"), ("search", "n")]),
        ("ai-use=n", [("ai-use", "n")]),
        ('train-ai=n;note="x"', [("train-ai", "n")]),
        ("train-ai=n;allow=y", [("train-ai", "n")]),
        # The last member of a name counts.
        ("train-ai=n, train-ai=y", [("train-ai", "y")]),
        ("train-ai=y, train-ai=n", [("train-ai", "n")]),
        ("train-ai=y, train-ai", [("train-ai", "", MALFORMED)]),
        ('search=y, search="n"', [("search", "n", LENIENT)]),
        # No in any form, and yes in one only.
        ("train-ai=N", [("train-ai", "n", LENIENT)]),
        ("train-ai=no", [("train-ai", "n", LENIENT)]),
        ("train-ai=?0", [("train-ai", "n", LENIENT)]),
        ("train-ai=no.", [("train-ai", "n", LENIENT)]),
        ("train-ai=not-only", [("train-ai", "", MALFORMED)]),
        ("train-ai=0", [("train-ai", "n", LENIENT)]),
        ("train-ai=(n)", [("train-ai", "n", LENIENT)]),
        ("train-ai=Y", [("train-ai", "", MALFORMED)]),
        ("train-ai=yes", [("train-ai", "", MALFORMED)]),
        ('train-ai="y"', [("train-ai", "", MALFORMED)]),
        ("train-ai=?1", [("train-ai", "", MALFORMED)]),
        ("train-ai", [("train-ai", "", MALFORMED)]),
        ("train-ai=(y)", [("train-ai", "", MALFORMED)]),
        # Other labels.
        ("foo=n, train-ai=n", [("foo", "", UNKNOWN), ("train-ai", "n")]),
        ("bots=n", [("bots", "n", LEGACY)]),
        ("genai=y", [("genai", "", LEGACY)]),
        ("ai-train=no", [("ai-train", "n", CROSS, LENIENT)]),
        ("ai-input=n", [("ai-input", "n", CROSS)]),
        ("ai-train=y", [("ai-train", "", CROSS)]),
        ("train_ai=n", [("train-ai", "n", LENIENT)]),
        ("train_ai=y", [("train-ai", "", LENIENT)]),
    ],
)
def test_members(text, expected):
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Train-AI=n",
        "TRAIN_AI=N",
        "train-ai=n;",
        "train-ai=n,",
        "train-ai = n",
        "train-ai : n",
        "train-ai=n search=y",
        "train-ai='n'",
        'foo=", train-ai=n',
        "train-ai=\x00n",
        "train-ai=n, \u00e9=y",
    ],
)
def test_a_denial_is_found_in_a_text_that_is_not_a_dictionary(text):
    assert found(text) == [("train-ai", "n", MALFORMED), ("", "", MALFORMED)]


@pytest.mark.parametrize(
    "text",
    [
        "train-ai=y,",
        "Train-AI=y",
        'train-ai;has;parameters="?";',
        "my-train-ai=n,",
        "train-ai-x=n,",
        "train-ai==",
        "\u00e9",
        "train-ai=((((",
    ],
)
def test_a_text_that_is_not_a_dictionary_permits_nothing(text):
    assert found(text) == [("", "", MALFORMED)]


def test_a_doubtful_place_permits_nothing():
    (permission,) = read("train-ai=y", flags=(Flag.NONSTANDARD,))
    (denial,) = read("train-ai=n", flags=(Flag.NONSTANDARD,))

    assert (permission.value, permission.flags) == ("", (Flag.NONSTANDARD,))
    assert denial.value == "n"


def test_a_statement_names_its_place():
    (statement,) = read("train-ai=n", agent="mybot", line=7, raw="Content-Usage: train-ai=n ")

    assert (statement.signal, statement.place) == (Signal.CONTENT_USAGE, Place.HEADER)
    assert (statement.agent, statement.line) == ("mybot", 7)
    assert statement.raw == "Content-Usage: train-ai=n"


LABELS = sorted(USAGE_LABELS | LEGACY_LABELS | SIGNAL_LABELS)
MEMBERS = st.lists(
    st.tuples(
        st.sampled_from([*LABELS, "Train-AI", "foo", "*", "9", "\u00e9"]),
        st.sampled_from(["=", " = ", ";", ":", "", "=("]),
        st.sampled_from(["y", "n", "no", "?0", "?1", '"n"', "1.5", ":bg==:", "@1", '%"n"', ""]),
        st.sampled_from([", ", ",", " ", ";x", "#", '"', "\n"]),
    ).map("".join),
    max_size=6,
).map("".join)


@given(st.one_of(st.text(), MEMBERS))
def test_no_text_raises(text):
    for each in read(text):
        assert each.value in ("y", "n", "")
        assert each.value != "y" or not each.flags


@given(MEMBERS, MEMBERS)
@example('ai=%"n" ', "")
def test_more_text_keeps_each_denial_of_another_label(first, second):
    named = {each.rule for each in read(second)}
    denied = {each.rule for each in read(first) if each.value == "n"}

    # A text that repeats the label, in whatever form, may end it: the last member counts.
    kept = {each.rule for each in read(f"{first}, {second}") if each.value == "n"}
    assert denied - named <= kept or any(label in second for label in denied - kept)


def test_a_text_of_any_size_is_read_for_denials():
    long = "x=" + "y" * DICTIONARY_CAP

    assert ("train-ai", "n", MALFORMED) in found(f"{long}, train-ai=n")
    assert ("train-ai", "y") not in found(f"{long}, train-ai=y")


def test_the_number_of_statements_is_limited():
    text = ",".join(f"label{number}=y" for number in range(5_000))

    statements = read(f"{text}, train-ai=n")

    assert len(statements) < STATEMENTS + 10
    assert any(each.rule == "train-ai" and each.value == "n" for each in statements)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "train-ai=n, " * n,
        lambda n: "train-ai=n; " * n,
        lambda n: "train-ai" * 10 * n,  # both lengths above DICTIONARY_CAP
        lambda n: "train-ai " + " " * 10 * n,
        lambda n: "a:" * n,
        lambda n: 'a="' * n,
        lambda n: "train-ai=(" * n,
        lambda n: ",".join(f"k{i}=n" for i in range(n)),
    ],
)
def test_the_time_is_linear(make):
    assert growth(read, make, 1_500) < LINEAR
