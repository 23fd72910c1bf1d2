"""The examples of docs/python.md and of the docstrings, run against a scripted origin."""

from __future__ import annotations

import asyncio
import doctest
import re
import time
from pathlib import Path

import pytest

import robots_guard
from robots_guard.client import async_guard, sync_guard
from robots_guard.testing import RecordingOrigin

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
#: What each block of the page prints.
PRINTED = [
    "False disallowed Disallow: /private/ 2\n",
    "False\n",
    "",
    "a 200\nb 200\n",
    "200\nDisallow: /private/\n",
    "200\n",
]


@pytest.fixture
def site(net, tmp_path, monkeypatch) -> RecordingOrigin:
    monkeypatch.setenv("ROBOTS_GUARD_STORE", "memory:")
    monkeypatch.setenv("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path / "audit_log"))
    return net.origin("User-agent: *\nDisallow: /private/\n")


@pytest.mark.parametrize(("block", "printed"), list(zip(BLOCKS, PRINTED, strict=True)))
def test_the_page(site, capsys, block, printed):
    run(block.replace("https://example.com", site.url))

    assert capsys.readouterr().out == printed
    assert site.pages_matching("private") == []


def test_the_example_of_a_retry_waits_for_a_turn_that_is_deferred(net, site, capsys):
    paced = net.origin("User-agent: *\nCrawl-delay: 1\n")
    [block] = [each for each in BLOCKS if "time.sleep" in each]
    at_once = block.replace("hold_max=30", "hold_max=0")
    assert at_once != block

    began = time.monotonic()
    run(at_once.replace("https://example.com", paced.url))

    assert capsys.readouterr().out == "a 200\nb 200\n"
    assert time.monotonic() - began >= 0.75  # a delay counts from when the response begins


def run(block: str) -> None:
    """Run an example as if it were pasted."""
    exec(compile(block, str(PAGE), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("module", [async_guard, sync_guard])
def test_the_docstrings(site, module):
    names = {"robots_guard": robots_guard, "asyncio": asyncio, "site": site.url}
    found = doctest.testmod(module, extraglobs=names)

    assert found.attempted > 0
    assert found.failed == 0
