"""Content-Signal: pairs in the published form permit and deny, other forms only deny."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.signals.statement import Flag, Place, Signal
from robots_guard.protocol.signals.usage import read_signal

MALFORMED, LENIENT = Flag.MALFORMED, Flag.LENIENT
CROSS, UNKNOWN = Flag.CROSS_VOCABULARY, Flag.UNKNOWN_RULE


def read(text, **given):
    return read_signal(text, place=Place.ROBOTS_TXT, **given)


def found(text, **given):
    return [(each.rule, each.value, *each.flags) for each in read(text, **given)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" , ", []),
        ("search=yes, ai-train=no", [("search", "yes"), ("ai-train", "no")]),
        ("ai-input = no ,search=yes", [("ai-input", "no"), ("search", "yes")]),
        ("AI-Train=NO, Search=YES", [("ai-train", "no"), ("search", "yes")]),
        ("ai-train=yes, ai-train=no", [("ai-train", "yes"), ("ai-train", "no")]),
        ("use=reference", [("use", "reference")]),
        ("USE=Immediate", [("use", "immediate")]),
        ("use=forever", [("use", "", MALFORMED)]),
        ("ai-train=maybe", [("ai-train", "", MALFORMED)]),
        ("ai-train", [("ai-train", "", MALFORMED)]),
        ("ai-train=", [("ai-train=", "", MALFORMED)]),
        ("ai-train=n", [("ai-train", "no", LENIENT)]),
        ("ai-train=false", [("ai-train", "no", LENIENT)]),
        ("ai-train=true", [("ai-train", "", MALFORMED)]),
        ("ai_train=no", [("ai-train", "no", LENIENT)]),
        ("ai_train=yes", [("ai-train", "", LENIENT)]),
        ("ai-train: no", [("ai-train", "no", LENIENT)]),
        ('ai-train="no"', [("ai-train", "no", LENIENT)]),
        ('ai-train="yes"', [("ai-train", "", LENIENT)]),
        ("ai-train=no search=yes", [("ai-train", "no", LENIENT), ("search", "", LENIENT)]),
        ("ai-train=no; search=no", [("ai-train", "no", LENIENT), ("search", "no", LENIENT)]),
        ("train-ai=n", [("train-ai", "no", CROSS, LENIENT)]),
        ("train-ai=y", [("train-ai", "", CROSS, MALFORMED)]),
        ("ai-use=no", [("ai-use", "no", CROSS)]),
        ("bots=no", [("bots", "no", CROSS)]),
        ("genai=yes", [("genai", "", CROSS)]),
        ("shopping=no, search=no", [("shopping", "", UNKNOWN), ("search", "no")]),
        ("https://x.example/signals.json", [("https://x.example/signals.json", "", MALFORMED)]),
    ],
)
def test_pairs(text, expected):
    assert found(text) == expected


def test_a_doubtful_place_permits_nothing():
    statements = found("search=yes, ai-train=no, use=full", flags=(Flag.UNGROUPED,))

    assert statements == [
        ("search", "", Flag.UNGROUPED),
        ("ai-train", "no", Flag.UNGROUPED),
        ("use", "full", Flag.UNGROUPED),
    ]


def test_a_statement_names_its_place():
    (statement,) = read("ai-train=no", agent="a", line=3, raw="Content-Signal: ai-train=no")

    assert (statement.signal, statement.place) == (Signal.CONTENT_SIGNAL, Place.ROBOTS_TXT)
    assert (statement.agent, statement.line, statement.raw[:15]) == ("a", 3, "Content-Signal:")


PAIRS = st.lists(
    st.tuples(
        st.sampled_from(["search", "ai-input", "ai-train", "use", "train-ai", "bots", "x", "AI_"]),
        st.sampled_from(["=", " = ", ":", "", "=="]),
        st.sampled_from(["yes", "no", "n", "y", "reference", "full", '"no"', "", "\u00e9"]),
        st.sampled_from([",", ", ", ";", " ", "\t"]),
    ).map("".join),
    max_size=6,
).map("".join)


@given(st.one_of(st.text(), PAIRS))
def test_no_text_raises(text):
    for each in read(text):
        assert each.value != "yes" or not each.flags


@given(PAIRS, PAIRS)
def test_more_pairs_keep_every_denial(first, second):
    denied = {each.rule for each in read(first) if each.value == "no"}

    assert denied <= {each.rule for each in read(f"{first},{second}") if each.value == "no"}


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "search=yes," * n,
        lambda n: "search=yes " * n,
        lambda n: "search = " * n,
        lambda n: " " * 10 * n + "=",
        lambda n: "x" * 10 * n,
        lambda n: ";" * 10 * n,
    ],
)
def test_the_time_is_linear(make):
    assert growth(read, make, 2_000) < LINEAR
