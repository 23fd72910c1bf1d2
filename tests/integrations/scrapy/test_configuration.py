"""A Scrapy project without any setting of robots_guard: a file and the environment have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SPIDER = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    custom_settings = {"TELNETCONSOLE_ENABLED": False}

    async def start(self):
        for path in ("/a", "/private"):
            yield scrapy.Request(self.url + path)

    def parse(self, response):
        pass
"""
ADDONS = '{"robots_guard.scrapy.Addon": 500}'


def test_a_crawl_reads_the_nearest_file_and_the_environment(net, tmp_path):
    site = net.origin("User-agent: mybot\nDisallow: /private\n")
    project = tmp_path / "project" / "spiders"
    project.mkdir(parents=True)
    (project / "pages.py").write_text(SPIDER)
    (project.parent / "robots_guard.toml").write_text(
        'agent = "filebot"\nstore = "memory:"\naudit_log = "log"\naudit = "all"\n'
        'user_agent = "env:SPELLED"\n[scrapy]\nfetch = "direct"\n'
    )
    environment = {name: value for name, value in os.environ.items() if "ROBOTS_GUARD" not in name}
    environment |= {"ROBOTS_GUARD_AGENT": "mybot", "SPELLED": "mybot/9 (swordfish)"}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}

    command = [str(Path(sys.executable).parent / "scrapy"), "runspider", "pages.py"]
    done = subprocess.run(
        [*command, "-a", f"url={site.url}", "-s", f"ADDONS={ADDONS}"],
        check=False,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert site.targets == ["/a"], done.stderr
    assert [each.headers["user-agent"] for each in site.robots_fetches] == ["mybot/9 (swordfish)"]
    (log,) = (project.parent / "log").glob("*.jsonl")
    start, *_ = map(json.loads, log.read_text().splitlines())
    assert start["settings"]["agent"] == "mybot"
    assert start["settings"]["hold_max"] == "60.0"
    assert start["settings"]["user_agent"] == "env:SPELLED"
    assert "swordfish" not in done.stderr + log.read_text()
