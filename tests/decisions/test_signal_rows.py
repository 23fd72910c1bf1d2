"""The rows of tests/data/signals.jsonl about headers, robots.txt and tdmrep.json, from their bytes
to the uses.

The rows about pages need an HTML reader. Those about RSL documents, trust.txt and assertions inside
files are recorded only (docs/signals.md), and their uses are not tested.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.decisions.uses import plain_of, read_uses
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import compile_rules
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.tdmrep import read_file

NOW = "2026-11-22T00:00:00Z"
TDMREP = "/.well-known/tdmrep.json"
FILES = {"headers", "robots_txt", "wellknown"}

DATA = Path(__file__).parents[1] / "data" / "signals.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
OURS = [
    row
    for row in ROWS
    if set(row["input"]) <= FILES and set(row["input"].get("wellknown", {})) <= {TDMREP}
]


def target_of(row):
    url = urlsplit(row["url"])
    return url.path + (f"?{url.query}" if url.query else "")


def ruleset_of(row):
    body = row["input"].get("robots_txt", "").encode()
    return compile_rules(body, dialect("rfc9309"), row["agent"])


def statements_of(row):
    target = target_of(row)
    headers = [(name, value) for name, value in row["input"].get("headers", ())]
    stated = ruleset_of(row).statements(target)
    if (body := row["input"].get("wellknown", {}).get(TDMREP)) is not None:
        stated += read_file(body.encode()).statements(target)
    return stated + header_statements(headers, row.get("status", 200), row["url"])


def answers(row):
    settings = SignalSettings(page_dialect=row.get("dialect", "union"))
    at = datetime.fromisoformat(row.get("at", NOW)).timestamp()
    statements = statements_of(row)
    uses = read_uses(statements, row["agent"], settings, at)
    plain = plain_of(uses)
    agent = row["agent"].lower()
    ours = [each for each in statements if each.agent in ("*", agent)]
    return {
        **plain,
        "denied": uses.denied,
        "flags": uses.flags,
        "crawl": ruleset_of(row).judge(target_of(row)).allowed,
        "rules": [
            [each.agent, each.rule, each.value] for each in ours if "robots-tag" in each.signal
        ],
    }


@pytest.mark.parametrize("row", OURS, ids=lambda row: row["id"])
def test_row(row):
    found = answers(row)
    for key, expected in row["expect"].items():
        match key:
            case "denied":
                assert found["denied"] == sorted(expected)
            case "flags":
                assert set(expected) <= set(found["flags"])
            case "no_flags":
                assert not set(expected) & set(found["flags"])
            case "uses" | "images" | "limits":
                stated = found.get(key, {})
                assert {name: stated.get(name) for name in expected} == expected
            case "license" | "license_other":
                assert found.get(key, []) == (expected or [])
            case "price" | "tdm_policy" | "content_use" | "unavailable_after":
                assert found.get(key) == expected
            case "crawl" | "rules":
                assert found[key] == expected
            case "spec" | "action":
                pass  # the reading of the letter is not ours; actions are those of the integrations
            case _:
                raise AssertionError(f"unknown key {key}")


def test_all_rows_of_these_parts_are_here():
    parts = ("XRT", "RTG", "CUR", "CSG", "ROB", "PAY")
    missing = [row["id"] for row in ROWS if row["id"].startswith(parts) and row not in OURS]

    assert missing == []
    assert len(OURS) > 270
