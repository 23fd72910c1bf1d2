"""A rule reported as shadowed never decides: tested with all short targets in every dialect."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robots_guard.protocol.dialect import DIALECTS
from robots_guard.protocol.lint.linter import lint
from robots_guard.protocol.ruleset import compile_rules

TARGETS = [
    "/" + "".join(each) for size in range(5) for each in itertools.product("ab$/", repeat=size)
]

paths = st.lists(st.sampled_from(["a", "b", "/", "*", "$", "%61"]), max_size=3).map(
    lambda parts: "/" + "".join(parts)
)
rules = st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), paths), min_size=2, max_size=4)


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=60)
@given(rules)
def test_a_shadowed_rule_decides_no_target(name, rules):
    body = b"User-agent: *\n" + "".join(f"{field}: {path}\n" for field, path in rules).encode()
    found = [
        each for each in lint(body, [DIALECTS[name]]) if each.code in ("RG401", "RG402", "RG403")
    ]
    compiled = compile_rules(body, DIALECTS[name], "x", "spec")
    deciding = {
        ruling.rule.line
        for target in TARGETS
        if (ruling := compiled.judge(target)).rule is not None
    }

    assert not deciding & {line for each in found for line in each.lines}, body
