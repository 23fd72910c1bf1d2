"""The public names are complete, sorted, and need no extra."""

from __future__ import annotations

import subprocess
import sys

import robots_guard


def test_the_public_names_are_sorted_and_there():
    assert sorted(robots_guard.__all__) == robots_guard.__all__
    assert all(hasattr(robots_guard, name) for name in robots_guard.__all__)


def test_importing_the_core_imports_no_host():
    code = "import robots_guard, robots_guard.cli, sys; print(*{'scrapy', 'mitmproxy', 'twisted'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == ""
