"""The public names are complete, sorted, and need no extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

import robots_guard


def test_public_names_are_sorted_and_exist():
    assert sorted(robots_guard.__all__) == robots_guard.__all__
    assert all(hasattr(robots_guard, name) for name in robots_guard.__all__)


@pytest.mark.parametrize(
    ("missing", "package", "extra"),
    [
        ("scrapy", "scrapy", "scrapy"),
        ("mitmproxy", "mitmproxy", "proxy"),
        ("httpx", "httpx", "httpx"),
        ("httptools", "serve.launcher", "serve"),
        ("grpc", "serve.certificates", "serve"),
    ],
)
def test_a_missing_extra_is_reported_in_one_sentence(missing, package, extra):
    code = (
        f"import sys; sys.modules['{missing}'] = None\nfrom robots_guard.errors import MissingExtra\n"
        f"try: import robots_guard.{package}\nexcept MissingExtra as error: print(error)"
    )
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )

    assert f"pip install 'robots_guard[{extra}]'" in out.stdout


def test_importing_the_core_imports_no_framework():
    frameworks = {"httpx", "scrapy", "mitmproxy", "twisted"}
    code = (
        f"import robots_guard, robots_guard.app.cli, sys; print(*{frameworks} & set(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )

    assert out.stdout.strip() == ""
