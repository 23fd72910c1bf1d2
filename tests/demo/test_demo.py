"""The README's first command, as a process; and that it would notice a broken promise."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.programs import program

from robots_guard.app.demo.command import SITES, DemoRequest, _result

# A test judges requests by the private `_result`: a demo whose checks fail has no public face.

DEMO = [
    sys.executable,
    "-W",
    "error::DeprecationWarning:robots_guard",
    "-m",
    "robots_guard.app.cli",
    "demo",
]


@pytest.fixture(scope="module")
def shown() -> dict:
    program("curl")
    out = subprocess.run(
        [*DEMO, "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def is_deferred(site) -> bool:
    """Whether the site's robots.txt cannot be had, so that it is tried again while the demo goes on."""
    return any(action == "defer" for _, action in site.expected)


def test_every_promise_is_kept(shown):
    assert shown["ok"]
    assert all(shown["promises"].values())


def test_each_url_is_decided_in_both_integrations(shown):
    rows = shown["verdicts"]
    dropped = [row for row in rows if row["reason"] == "disallowed"]

    assert len(rows) == 2 * sum(len(site.expected) for site in SITES)
    assert {row["component"] for row in rows} == {"scrapy", "proxy"}
    assert all(row["rule"] and row["line"] for row in dropped)
    assert {row["action"] for row in rows} == {"pass", "drop", "defer"}


def test_counts_are_as_expected(shown):
    assert shown["counts"]["requests the sites received that their robots.txt forbids"] == 0
    fetches = shown["counts"]["robots.txt fetches per origin"]
    sent = [count for site, count in zip(SITES, fetches, strict=True) if not is_deferred(site)]
    assert sent == [1, 1, 1]
    assert all(fetches)


def test_table_output():
    program("curl")
    out = subprocess.run(DEMO, capture_output=True, text=True, timeout=120, check=False)

    assert out.returncode == 0, out.stderr
    assert "requests the sites received that their robots.txt forbids: 0" in out.stdout
    assert "robots.txt fetches per origin: 1" in out.stdout
    assert "Disallow: /private/" in out.stdout
    assert "allowed pages received, per integration: Scrapy 6, curl+proxy 6" in out.stdout
    assert all(site.name in out.stdout for site in SITES)
    assert "BROKEN" not in out.stdout
    assert out.stderr.count("\n") == 2


@pytest.mark.parametrize(
    ("targets", "fetches", "broken"),
    [
        (["/secret"], 1, "no forbidden request reached a site"),
        ([], 2, "each robots.txt that a site sent was fetched once, for both integrations"),
        ([], 1, "every verdict is the one its robots.txt asks for"),
    ],
)
def test_broken_promise_is_detected(targets, fetches, broken):
    site = SimpleNamespace(targets=targets, robots_fetches=[None] * fetches, received=[])
    result = _result([DemoRequest("http://127.0.0.1/secret", site, "/secret", "drop", "rules")], [])

    assert not result["ok"]
    assert not result["promises"][broken]


def test_a_second_try_of_a_robots_txt_that_did_not_come_breaks_no_promise():
    site = SimpleNamespace(targets=[], robots_fetches=[None] * 3, received=[])
    result = _result([DemoRequest("http://127.0.0.1/", site, "/", "defer", "busy (503)")], [])

    assert all(kept for promise, kept in result["promises"].items() if "fetched once" in promise)
