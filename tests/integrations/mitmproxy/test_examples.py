"""The files of examples/ that start a proxy use existing options."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys

import pytest
from integrations.mitmproxy.process import ROOT, refused_start

from robots_guard.testing import Reply


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


@pytest.mark.parametrize(("ready", "status"), [("1.0", 0), ("0.0", 1)])
def test_container_is_healthy_only_while_it_judges_requests(net, ready, status):
    text = (ROOT / "examples" / "Containerfile").read_text()
    _, option, code = json.loads(re.search(r"^HEALTHCHECK CMD (.*)$", text, re.MULTILINE)[1])
    metrics = f"# TYPE robots_guard_ready gauge\nrobots_guard_ready {ready}\n"
    site = net.origin("", {"/metrics": Reply(body=metrics)})
    done = subprocess.run(
        [sys.executable, option, code.replace("http://127.0.0.1:9180", site.url)],
        check=False,
        capture_output=True,
        timeout=30,
    )

    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize("page", ["README.md", "docs/proxy.md"])
def test_script_in_the_pages_is_the_example(page):
    (line,) = re.findall(
        r"^\$ printf '(.*)' > robots_guard_addon.py$", (ROOT / page).read_text(), re.MULTILINE
    )
    written = line.replace("\\n", "\n")
    example = (ROOT / "examples" / "mitmproxy_addon.py").read_text()

    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(example))
