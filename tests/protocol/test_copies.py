"""Copies and pickles of what the core returns, also if it is compiled."""

from __future__ import annotations

import copy
import pickle

import pytest

from robots_guard import RobotsFile
from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.ruleset import compile_rules

BODY = b"User-agent: *\nDisallow: /a\nCrawl-delay: 2\n"


def pickled(value):
    return pickle.loads(pickle.dumps(value))


@pytest.fixture(params=[copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickled"])
def copied(request):
    return request.param


@pytest.mark.parametrize("name", [*DIALECTS, "strictest(google, koster1996)"])
def test_a_dialect(name, copied):
    assert copied(dialect(name)) == dialect(name)


def test_a_rule(copied):
    rule = compile_rules(BODY, dialect("rfc9309"), "mybot").judge("/a").rule

    assert copied(rule) == rule


def test_a_robots_file(copied):
    robots = RobotsFile.parse(BODY)
    answered = robots.match("mybot", "https://a.test/a")

    assert answered.rule.line == 2
    assert copied(robots).match("mybot", "https://a.test/a") == answered
    assert copied(robots).crawl_delay("mybot") == 2
