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
WANDERER = """
import os

class Wanderer:
    @classmethod
    def from_crawler(cls, crawler):
        os.chdir(crawler.settings["ELSEWHERE"])
        return cls()
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


def run(project, tmp_path, *options):
    """Run the spider of a project without variables of this program. Returns standard error."""
    (project / "pages.py").write_text(SPIDER + WANDERER)
    environment = {name: value for name, value in os.environ.items() if "ROBOTS_GUARD" not in name}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [str(Path(sys.executable).parent / "scrapy"), "runspider", "pages.py"]
    done = subprocess.run(
        [*command, "-s", f"ADDONS={ADDONS}", *options],
        check=False,
        cwd=project,
        env=environment | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_crawl_reads_the_configuration_once(net, tmp_path):
    site = net.origin("User-agent: mybot\nDisallow: /private\n")
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "robots_guard.toml").write_text(
        'agent = "mybot"\nstore = "memory:"\naudit_log = "log"\n'
    )
    (elsewhere / "robots_guard.toml").write_text("[scrapy]\nenabled = false\n")

    extension = 'EXTENSIONS={"pages.Wanderer": 0}'
    log = run(
        project,
        tmp_path,
        *("-a", f"url={site.url}", "-s", extension, "-s", f"ELSEWHERE={elsewhere}"),
    )

    assert site.targets == ["/a"], log
    assert list((project / "log").glob("*.jsonl"))


def test_a_file_that_switches_the_guard_off_is_named(net, tmp_path):
    site = net.origin()
    file = tmp_path / "robots_guard.toml"
    file.write_text("[scrapy]\nenabled = false\n")

    log = run(tmp_path, tmp_path, "-a", f"url={site.url}", "-s", "LOG_LEVEL=WARNING")

    assert f"{file}:2: enabled is false: robots_guard is off, ROBOTSTXT_OBEY decides" in log
