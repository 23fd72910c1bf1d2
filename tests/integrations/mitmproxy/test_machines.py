"""Modes without proxy settings in the client, each in network namespaces of its own (`machines.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from integrations.mitmproxy.machines import UPLOAD
from support.programs import lacking, program

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("mode", ["transparent", "wireguard"])
def test_a_client_is_redirected_to_the_proxy(mode, tmp_path):
    _skip_without_kernel_support_for(mode)
    inside = [
        program("unshare"),
        "--net",
        "--mount",
        sys.executable,
        "-m",
        "integrations.mitmproxy.machines",
    ]
    done = subprocess.run(
        [*inside, mode, tmp_path],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    refused = '403 drop; reason=disallowed; rule="Disallow: /private/"; line=2; id='
    answers = seen["answers"]
    assert answers["http://site.test/open"] == answers["https://site.test/open"] == "200 "
    for url in (
        "http://site.test/private/x",
        "https://site.test/private/x",
        "http://10.9.0.1/private/x",
    ):
        assert answers[url].startswith(refused)
    assert answers["another name"].split()[0] in ("502", "503")
    assert (
        answers["itself"].split()[0] in {"transparent": ("502", "503"), "wireguard": ("000",)}[mode]
    )
    assert len(seen["recorded"]) < 20, "it did not ask itself again and again"
    assert answers["an upload"] == "200 "
    assert (seen["plain"], seen["secure"]) == (["/open"], ["/open", "/upload"])
    assert seen["uploads"] == [UPLOAD]


def _skip_without_kernel_support_for(mode):
    """Skip the test where network namespaces cannot be created."""
    if os.geteuid():
        lacking("network namespaces with users of their own need root")
    if mode == "wireguard" and not Path("/dev/net/tun").exists():
        lacking("a tunnel needs /dev/net/tun")
    probe = [program("unshare"), "--net", "--mount", program("iptables"), "-t", "nat", "-L", "-n"]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    if tried.returncode:
        lacking(f"no network namespaces with iptables here: {tried.stderr.strip()}")
