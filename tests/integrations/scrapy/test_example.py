"""The project in examples/ does what its README says."""

from __future__ import annotations

import json
from pathlib import Path

from integrations.scrapy.crawl import run_python

from robots_guard.testing import Reply

PROJECT = Path(__file__).parents[3] / "examples" / "scrapy_project"


def test_the_example_lists_pages_and_refusals(net, tmp_path):
    html = (("Content-Type", "text/html"),)
    start = Reply(headers=html, body="<title>Start</title><a href=/a>a</a><a href=/private/b>b</a>")
    site = net.origin("User-agent: mybot\nDisallow: /private/\n", {"/": start})
    settings = [
        f"ROBOTS_GUARD_STORE=sqlite:///{tmp_path}/policies.sqlite",
        f"ROBOTS_GUARD_AUDIT_LOG={tmp_path}/audit_log",
    ]
    options = [word for setting in settings for word in ("-s", setting)]

    child = run_python(
        *(
            "-m",
            "scrapy",
            "crawl",
            "titles",
            "-a",
            f"start={site.url}/",
            "-O",
            f"{tmp_path}/pages.jsonl",
            *options,
        ),
        cwd=PROJECT,
        timeout=60,
    )

    assert child.returncode == 0, child.stderr
    found = {
        page["url"]: page
        for page in map(json.loads, (tmp_path / "pages.jsonl").read_text().splitlines())
    }
    assert found[f"{site.url}/"]["title"] == "Start"
    assert found[f"{site.url}/a"]["title"] == "page"
    refusal = {"refused": "disallowed", "rule": "Disallow: /private/", "line": 2}
    assert found[f"{site.url}/private/b"] == {"url": f"{site.url}/private/b", **refusal}
    assert sorted(site.targets) == ["/", "/a"]
    assert site.received[0].headers["user-agent"] == "mybot/1.0 (+https://example.com/mybot)"
