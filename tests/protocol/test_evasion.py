"""Spellings of one resource: what 17 servers serve as `/private/x`, and what must not be treated as it."""

from __future__ import annotations

import pytest
from protocol.rows import rows

from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.paths import MATCHINGS, malformed, matching
from robots_guard.protocol.ruleset import compile_rules

ROWS = [
    row
    for row in rows("evasion.jsonl")
    if row["form"] == "origin-form" and "expected_by_profile" in row
]


def verdict(row, profile, name="rfc9309"):
    """Judge like an integration: a malformed target is refused before it is judged."""
    target = row["url_or_request_target"]
    if matching(profile).refuses_malformed and malformed(target):
        return "block"
    body = "User-agent: *\n" + row["rule"].replace(" + ", "\n") + "\n"
    ruling = compile_rules(body.encode(), dialect(name), "examplebot", profile).judge(target)
    return "allow" if ruling.allowed else "block"


CASES = [
    (row, name, expected) for row in ROWS for name, expected in row["expected_by_profile"].items()
]


@pytest.mark.parametrize(
    ("row", "profile", "expected"),
    [pytest.param(*case, id=f"{case[0]['id']}-{case[1]}") for case in CASES if case[2] != "either"],
)
def test_a_spelling_has_its_verdict(row, profile, expected):
    assert verdict(row, profile) == expected, row["why"]


def test_strict_leaks_none():
    served = [
        row
        for row in ROWS
        if row["same_resource_on"] and row["rule"] in ("Disallow: /private/", "Disallow: /~joe/")
    ]

    assert len(served) > 60
    assert [row["id"] for row in served if verdict(row, "strict") != "block"] == []


@pytest.mark.parametrize("name", [each for each in DIALECTS if DIALECTS[each].percent != "decode"])
def test_every_dialect_blocks_in_standard_what_rfc9309_blocks_there(name):
    blocked = [
        row for row in ROWS if row["rule"] == "Disallow: /private/" and row["expected"] == "block"
    ]

    assert [row["id"] for row in blocked if verdict(row, "standard", name) != "block"] == []


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_a_profile_blocks_at_least_what_the_one_before_it_blocks(row):
    verdicts = [verdict(row, profile) for profile in MATCHINGS]

    assert verdicts == sorted(verdicts)  # "allow" sorts before "block"


def test_an_encoded_slash_passes_in_standard_and_says_so():
    body = b"User-agent: *\nDisallow: /private/\n"
    ruling = compile_rules(body, dialect("rfc9309"), "examplebot", "standard").judge("/private%2Fx")

    assert ruling.allowed
    assert ruling.ambiguous == "pct_slash"


def test_an_encoded_slash_that_changes_nothing_is_not_ambiguous():
    body = b"User-agent: *\nDisallow: /private/\n"
    ruling = compile_rules(body, dialect("rfc9309"), "examplebot", "standard").judge(
        "/@scope%2Fpackage"
    )

    assert ruling.allowed
    assert ruling.ambiguous is None


@pytest.mark.parametrize(
    ("target", "profile", "form"),
    [
        ("/private/x", "standard", "spec"),
        ("/a/../private/x", "standard", "standard:dots"),
        ("//private/x", "standard", "standard:slashes"),
        ("/private;v=1/x", "standard", "standard:parameters"),
        ("//host.example/private/x", "standard", "standard:network-path"),
        ("/#/../private/x", "standard", "standard:fragment-kept+dots"),
        ("/private%2Fx", "strict", "strict:encoded-slash"),
        ("/PRIVATE/x", "strict", "strict:percent-encoding+letter-case"),
        ("/x/..//h/./private/x", "standard", "standard:dots+network-path"),
    ],
)
def test_a_denial_names_the_form_that_was_denied(target, profile, form):
    body = b"User-agent: *\nDisallow: /private/\n"
    ruling = compile_rules(body, dialect("rfc9309"), "examplebot", profile).judge(target)

    assert not ruling.allowed
    assert ruling.form == form
    assert ruling.rule is not None
    assert ruling.rule.line == 2


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("/*2", "/*"),
        ("/*A", "/x*y"),
        ("/a/*22", '/a/"'),
        ("/%*", '/"'),
        ("/*%2", "/a$b"),
        ("/%7Cx", "/|x"),
        ("/%C3%A9*%7", "/\xc3\xa9|"),
        ("/*5C", "/^\\"),
    ],
)
@pytest.mark.parametrize("profile", MATCHINGS)
def test_an_octet_left_unencoded_is_judged_as_its_escape(pattern, target, profile):
    """RFC 9309 section 2.2.2: octets not valid in a URL are encoded before they are compared."""
    rules = compile_rules(
        f"User-agent: *\nDisallow: {pattern}\n".encode(), dialect("rfc9309"), "examplebot", profile
    )

    assert not rules.judge(target).allowed
    assert rules.judge("/unlike").allowed


def test_a_rule_in_capitals_meets_small_letters_in_strict():
    body = b"User-agent: *\nDisallow: /Private/\n"

    assert (
        not compile_rules(body, dialect("rfc9309"), "examplebot", "strict")
        .judge("/pRIVATE/x")
        .allowed
    )
    assert (
        compile_rules(body, dialect("rfc9309"), "examplebot", "standard")
        .judge("/pRIVATE/x")
        .allowed
    )


@pytest.mark.parametrize("name", ["koster1994", "slurp2006"])
def test_a_further_form_is_compared_as_rfc_9309_writes_it_whatever_the_dialect(name):
    rules = compile_rules(
        b"User-agent: *\nDisallow: /%7Ejoe/\n", dialect(name), "examplebot", "standard"
    )

    assert not rules.judge("/~joe/x").allowed
    assert not rules.judge("/a/../~joe/x").allowed
    assert not rules.judge("/a/../%7ejoe/x").allowed
    assert rules.judge("/a/../jane/x").allowed
