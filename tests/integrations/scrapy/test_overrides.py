"""Overrides in a crawl: a refusal names its override and owner, and a faulty override is logged
once."""

from __future__ import annotations

from integrations.scrapy.crawl import crawl

FILE = """
[[override]]
id = "gone"
origin = "{url}"
owner = "jane"
reason = "they asked by letter"
expires = 2099-01-01
action = "drop"

[[override]]
id = "old"
origin = "http://other.test"
owner = "jane"
reason = "trial"
expires = 2020-01-01
action = "pass"
"""


def test_a_refusal_names_its_override_and_a_fault_is_logged_once(net, tmp_path):
    site = net.origin("")
    (tmp_path / "overrides.toml").write_text(FILE.format(url=site.url))

    done = crawl(
        [f"{site.url}/a"],
        {"ROBOTS_GUARD_OVERRIDES": str(tmp_path / "overrides.toml")},
        see_through=True,
    )

    assert done[f"{site.url}/a"]["action"] == "drop"
    assert "drop (blocked)" in done.log
    assert "override gone of jane (they asked by letter)" in done.log
    assert done.log.count("override 'old' has no effect") == 1
    assert done.stats["robots_guard/overrides/invalid"] == 1
    assert site.targets == []
