"""3,000 answers of Google's library: dialect google in full, and rfc9309 wherever RFC 9309 has an answer."""

from __future__ import annotations

import pytest
from protocol.rows import rows

from robots_guard.origin import wire_text
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import compile_rules

ROWS = rows("google_oracle.jsonl.xz")


def target_of(url: str) -> str:
    """The path that Google's library extracts from a URL: it begins at the first of / ? and ;."""
    after = url.find("://") + 3
    start = min(
        (at for at in (url.find(mark, after) for mark in "/?;") if at >= 0), default=len(url)
    )
    target = url[start:]
    return wire_text(target if target.startswith("/") else "/" + target)


@pytest.mark.parametrize(
    ("name", "field", "count"),
    [
        pytest.param(
            "google", "allowed", 3_000, id="google answers as Google's library, all 3,000"
        ),
        pytest.param(
            "rfc9309",
            "rfc_allowed",
            2_853,
            id="rfc9309 answers as RFC 9309 wherever that has an answer",
        ),
    ],
)
def test_the_oracle(name, field, count):
    answered = [row for row in ROWS if row[field] is not None]
    wrong = [(row, allowed) for row in answered if (allowed := answer(row, name)) != row[field]]
    under_blocks = [row["id"] for row, allowed in wrong if allowed]
    over_blocks = [row["id"] for row, allowed in wrong if not allowed]

    assert len(answered) == count
    assert (under_blocks, over_blocks) == ([], [])


def answer(row: dict[str, str], name: str) -> bool:
    rules = compile_rules(row["robots_txt"].encode(), dialect(name), row["user_agent"], "spec")
    return rules.judge(target_of(row["url"])).allowed


def test_the_deciding_line_is_the_one_google_names():
    """Except for rules without a value, which decide nothing and so are never named here."""
    for row in ROWS:
        lines = row["robots_txt"].encode().splitlines()
        named = lines[row["matching_line"] - 1] if row["matching_line"] else b""
        if not named.partition(b"#")[0].partition(b":")[2].strip():
            continue
        rules = compile_rules(
            row["robots_txt"].encode(), dialect("google"), row["user_agent"], "spec"
        )
        rule = rules.judge(target_of(row["url"])).rule
        assert rule is not None, row["id"]
        assert rule.line == row["matching_line"] or _equal_rule(
            lines, rule, row["matching_line"]
        ), row["id"]


def _equal_rule(lines, rule, other) -> bool:
    """Two lines of equal length and kind: either may be named."""
    value = lines[other - 1].partition(b"#")[0].partition(b":")[2].strip()
    return len(value) == len(rule.pattern.encode())
