"""The commands and options in the README and the docs exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = [
    (page, line)
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    for line in re.findall(r"^\$ (robots-guard .*)$", block, re.MULTILINE)
]


GROUPS = (["audit", "hold"], ["audit", "keys"], ["audit"], ["config"], ["policy"])


def _help(words: list[str]) -> str:
    command = [sys.executable, "-m", "robots_guard.cli", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("page", "line"), TYPED, ids=lambda value: str(value)[-60:])
def test_every_command_shown_exists_with_its_options(page, line):
    pytest.importorskip("mitmproxy") if " proxy" in line else None
    words = shlex.split(line, comments=True)[1:]
    groups = next((deep for deep in GROUPS if words[: len(deep)] == deep), [])
    commands = words[: len(groups) + 1]
    shown = _help(commands)

    for option in (word.partition("=")[0] for word in words if word.startswith("-")):
        assert option in shown, f"{page.name}: {option}"


def test_the_readme_shows_its_two_commands_and_the_four_uses():
    text = (ROOT / "README.md").read_text()

    assert "robots-guard demo" in text
    assert ".venv/bin/tox" in text
    for use in ("## Scrapy", "## Any crawler", "## Audit", "## Ask it", "## What it does not do"):
        assert use in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
