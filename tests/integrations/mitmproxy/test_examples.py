"""The files of examples/ that start a proxy use existing options."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from integrations.mitmproxy.process import ROOT, refused_start


def unit():
    text = (ROOT / "examples" / "robots-guard-proxy.service").read_text()
    return shlex.split(
        re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.MULTILINE)[1].replace("\\\n", " ")
    )


def container():
    lines = dict(
        line.split(" ", 1)
        for line in (ROOT / "examples" / "Containerfile").read_text().splitlines()
        if line
    )
    return json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"])


@pytest.mark.parametrize("command", [unit, container])
def test_options_in_examples_exist(command, tmp_path):
    """All of them are read before a mode that does not exist ends the start."""
    words = command()
    assert words[0].endswith("robots-guard")
    assert words[1] == "proxy"
    users = tmp_path / "users"
    users.write_text("a:{SHA}x\n")
    options = [
        word.replace("@/users", f"@{users}").replace("/data", str(tmp_path)) for word in words[2:]
    ]
    options = [re.sub(r"\$\{\w+\}", str(tmp_path), word) for word in options]
    status, printed = refused_start("proxy", tmp_path, [*options, "--mode", "telepathy"])
    assert status == 2
    assert "telepathy" in printed, printed
