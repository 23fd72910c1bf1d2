"""Conformance: each violation is found on its line, and no other is reported."""

from __future__ import annotations

import pytest

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.lint.groups import violations
from robots_guard.protocol.robots import parse

TWO_STARS = "more than one * record"
NO_RULE = "record without Disallow"
NO_RULE_IN_GROUP = "group without Disallow"
TWO_AGENT_LINES = "grammar has exactly one User-Agent line per record"
TWO_NAMES = "more than one robot in a User-agent line"
TWICE_NAMED = "robot named in more than one User-agent line"
NAMES_THE_FILE = "/robots.txt must not appear in rules"
NOT_FROM_THE_ROOT = "Allow path must start with /"


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("koster1994", "User-agent: *\nDisallow: /a\n\nUser-agent: b\nDisallow: /b\n", []),
        (
            "koster1994",
            "User-agent: *\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\n",
            [(4, TWO_STARS)],
        ),
        (
            "koster1994",
            "User-agent: *\n\nUser-agent: *\nDisallow: /b\n",
            [(1, NO_RULE), (3, TWO_STARS)],
        ),
        ("koster1994", "User-agent: a\nDisallow: /a\n\nUser-agent: b\n\n", [(4, NO_RULE)]),
        ("kollar1996", "User-agent: a b\nDisallow: /a /b\n", []),
        (
            "kollar1996",
            "User-agent: a\nUser-agent: b\nUser-agent: c\nDisallow: /\n",
            [(2, TWO_AGENT_LINES), (3, TWO_AGENT_LINES)],
        ),
        ("kollar1996", "User-agent: a\nUser-agent: b\n\n", [(1, NO_RULE), (2, TWO_AGENT_LINES)]),
        ("koster1996", "User-agent: a\nDisallow: /x\nAllow: /y\n", []),
        ("koster1996", "User-agent: a\nDisallow: /x\nAllow: /robots.txt\n", [(3, NAMES_THE_FILE)]),
        ("koster1996", "User-agent: a\nDisallow: x\nAllow: y\n", [(3, NOT_FROM_THE_ROOT)]),
        ("rambler2003", "User-agent: a\nDisallow: /\n\nUser-agent: b\nDisallow: /x\n", []),
        (
            "rambler2003",
            "User-agent: a\nUser-agent: b\nUser-agent: c\nDisallow: /\n",
            [(1, NO_RULE_IN_GROUP), (2, NO_RULE_IN_GROUP)],
        ),
        ("rambler2003", "User-agent: a b\nDisallow: /\n", [(1, TWO_NAMES)]),
        (
            "rambler2003",
            "User-agent: a\nDisallow: /\nUser-agent: b\nDisallow: /\nUser-agent: A\nDisallow: /x\n",
            [(5, TWICE_NAMED)],
        ),
        ("yandex2003", "User-agent: a\nUser-agent: b\nDisallow: /\n", []),
        ("rfc9309", "User-agent: *\nUser-agent: *\nAllow: robots.txt\n", []),
    ],
)
def test_each_violation_has_its_line(name, body, expected):
    assert [tuple(each) for each in violations(parse(body.encode(), dialect(name)))] == expected
