"""The rows of signals.jsonl about header fields and pages, as a spider finds them in its meta."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from integrations.scrapy.crawl import crawl
from integrations.scrapy.test_signals import OPEN, declared

from robots_guard.origin import TDMREP_JSON
from robots_guard.testing import Reply

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "signals.jsonl").read_text().splitlines()
]
_DEFAULTS = {"agent": "mybot", "purposes": [], "dialect": "union", "content_use": "full"}


def _is_about_one_response(row) -> bool:
    if not set(row["input"]) <= {"headers", "html", "html_b64"} or "denied" not in row["expect"]:
        return False
    if row.get("status", 200) in range(300, 400) or "at" in row:
        return False
    return all(row.get(name, value) == value for name, value in _DEFAULTS.items())


def _reply(row) -> Reply:
    given = row["input"]
    body = base64.b64decode(given.get("html_b64", "")) or given.get("html", "").encode()
    fields = tuple((name, value) for name, value in given.get("headers", ()))
    if not any(name.lower() == "content-type" for name, _ in fields):
        fields += (("Content-Type", "text/html; charset=utf-8"),)
    return Reply(status=row.get("status", 200), headers=fields, body=body)


def _denied(annotation) -> list[str]:
    uses = (annotation or {}).get("uses", {})
    return sorted(use for use, state in uses.items() if state == "deny")


def test_a_spider_finds_what_the_rows_expect(net):
    rows = {f"/{row['id']}": row for row in ROWS if _is_about_one_response(row)}
    site = net.origin(OPEN, {path: _reply(row) for path, row in rows.items()})

    done = crawl(
        [f"{site.url}{path}" for path in rows],
        {"ROBOTS_GUARD_SIGNALS": "record", "HTTPERROR_ALLOW_ALL": True},
    )

    found = {path: _denied(done[f"{site.url}{path}"].get("signals")) for path in rows}
    expected = {path: sorted(row["expect"]["denied"]) for path, row in rows.items()}
    assert {
        path: (found[path], expected[path]) for path in rows if found[path] != expected[path]
    } == {}
    assert len(rows) > 150


def _terms(row) -> tuple[str, str]:
    return ",".join(row["purposes"]), row.get("content_use", "full")


def _has_action(row) -> bool:
    return "action" in row["expect"] and set(row["input"]) <= {"headers", "html", "robots_txt"}


@pytest.mark.parametrize("terms", sorted({_terms(row) for row in ROWS if _has_action(row)}))
def test_scrapy_acts_as_the_rows_expect(net, terms):
    """Each row has a site of its own, because some are about its robots.txt."""
    purposes, content_use = terms
    rows = [row for row in ROWS if _has_action(row) and _terms(row) == terms]
    sites = [
        net.origin(row["input"].get("robots_txt", OPEN), {"/page": _reply(row)}) for row in rows
    ]

    done = crawl(
        [f"{site.url}/page" for site in sites],
        declared(purposes, content_use=content_use) | {"HTTPERROR_ALLOW_ALL": True},
    )

    for row, site in zip(rows, sites, strict=True):
        result, expected = done[f"{site.url}/page"], row["expect"]["action"]
        action = "drop" if expected["scrapy"] in ("drop", "stop") else "pass"
        assert (row["id"], result["action"]) == (row["id"], action)
        is_requested = expected["phase"] != "request"
        pages = [target for target in site.targets if target != TDMREP_JSON]
        assert (row["id"], pages) == (row["id"], ["/page"] * is_requested)
        # a link with rel=nofollow is judged when the spider follows it
        if expected["scrapy"] == "annotate" and row["signal"] != "rel-nofollow":
            assert result["signals"], row["id"]
