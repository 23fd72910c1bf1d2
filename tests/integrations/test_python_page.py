"""The examples of docs/python.md and of the docstrings, run against a scripted origin."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import re
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
    names: dict[str, object] = {}
    exec(compile(block.replace("https://example.com", site.url), str(PAGE), "exec"), names)
    if inspect.iscoroutinefunction(names.get("main")):
        asyncio.run(names["main"]())

    assert capsys.readouterr().out == printed
    assert site.pages_matching("private") == []


@pytest.mark.parametrize("module", [async_guard, sync_guard])
def test_the_docstrings(site, module):
    names = {"robots_guard": robots_guard, "asyncio": asyncio, "site": site.url}
    found = doctest.testmod(module, extraglobs=names)

    assert found.attempted > 0
    assert found.failed == 0
