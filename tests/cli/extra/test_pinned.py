"""Commands that look at decisions by a pinned robots.txt."""

from __future__ import annotations

import json

import pytest

RULES = "User-agent: *\nDisallow: /private/\nAllow: /\n"
WHO = ("--owner", "jane", "--reason", "their file is broken", "--until", "2999-12-31")
SITE = "http://127.0.0.1:9"  # nothing answers there, and nothing needs to


@pytest.fixture
def pinned(here, variables, tmp_path):
    """An overrides file that pins RULES for SITE."""
    rules, overrides = tmp_path / "shop.txt", tmp_path / "overrides.toml"
    rules.write_text(RULES)
    variables.setenv("ROBOTS_GUARD_OVERRIDES", str(overrides))
    variables.setenv("ROBOTS_GUARD_AUDIT", "all")
    assert here("overrides", "add", SITE, f"robots_file={rules}", *WHO).status == 0
    return rules


def test_check_judges_by_the_pinned_file(here, pinned):
    assert here("check", f"{SITE}/open").status == 0
    refused = here("check", f"{SITE}/private/x")
    assert refused.status == 1
    assert "Disallow: /private/" in refused.out


def test_explain_shows_the_pinned_file(here, pinned):
    ran = here("explain", f"{SITE}/private/x")
    assert ran.status == 1
    assert "Disallow: /private/" in ran.out
    assert "pinned" in ran.out


def test_why_and_replay_find_the_pinned_text(here, pinned):
    here("check", f"{SITE}/private/x")
    pinned.unlink()

    why = here("why", f"{SITE}/private/x")
    assert "the robots.txt that the operator had pinned for it says Disallow: /private/" in why.out
    (record,) = [json.loads(line) for line in here("audit", "query", "--json").out.splitlines()]
    assert (record["via"], record["override"]) == ("pinned", "127.0.0.1-9")

    replayed = here("audit", "replay", record["id"])
    assert replayed.status == 0
    assert "the same verdict" in replayed.out
    assert "Disallow: /private/" in replayed.out


def test_a_report_shows_the_pinned_text(here, pinned, tmp_path):
    here("check", f"{SITE}/private/x")

    assert here("audit", "report", "-o", tmp_path / "report.html").status == 0
    page = (tmp_path / "report.html").read_text()
    assert "One refusal in full" in page
    assert "<span>Disallow: /private/</span>" in page
