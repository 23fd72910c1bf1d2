"""The commands that a proxy prints work when they are pasted into a shell in another directory."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import zipfile

import pytest
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.process import PROGRAMS, environment
from integrations.mitmproxy.wire import plain

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
_CODE = re.compile(r"<code>(robots-guard .*?)</code>", re.DOTALL)


class Shell:
    """A shell of the operator in a directory of its own, without variables of this program."""

    def __init__(self, folder):
        self._folder = folder
        self._environment = environment() | {"HOME": str(folder)}
        del self._environment["ROBOTS_GUARD_CONFIG"]

    def paste(self, command, **variables):
        """Run a command line, and return its exit status and what it prints."""
        path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self._folder,
            env=self._environment | {"PATH": path} | variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def shell(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Shell(folder)


def refused(integration, site, *, page):
    """The response to a refused request: a page, or JSON."""
    fields = "Accept: text/html\r\n" if page else ""
    reply = plain(integration, f"{site.url}/private/x", fields=fields)
    assert reply.status == 403
    return reply.body.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_of_refusals(start, sites, shell, tmp_path, kind):
    pytest.importorskip("duckdb")
    site = sites.start(robots=Reply(body=RULES))
    store = f"sqlite:///{tmp_path}/policies of the proxy.sqlite"
    with start(kind, store=store) as integration:
        problem = json.loads(refused(integration, site, page=False))
        on_page = html.unescape(_CODE.search(refused(integration, site, page=True))[1])
        unknown = plain(integration, "http://robots.guard/why/0-0").body.decode()

    status, shown = shell.paste(problem["command"])
    assert (status, f"{site.url}/private/x" in shown, "says the same" in shown) == (0, True, True)
    assert shell.paste(on_page)[0] == 0
    assert "no record matches" in shell.paste(unknown.partition(": ")[2])[1]

    bundle = re.search(r"^evidence +(.*)$", shown, re.MULTILINE)[1]
    assert shell.paste(bundle)[0] == 0
    (file,) = (tmp_path / "elsewhere").glob("*.zip")
    with zipfile.ZipFile(file) as archive:
        assert any(RULES.encode() in archive.read(name) for name in archive.namelist())
    every = re.search(r"^all +(.*)$", shown, re.MULTILINE)[1]
    assert site.url in shell.paste(every)[1]


def test_the_commands_of_a_proxy_with_a_configuration_file(start, sites, shell, tmp_path):
    pytest.importorskip("duckdb")
    site = sites.start(robots=Reply(body=RULES))
    file = tmp_path / "robots_guard.toml"
    file.write_text('audit_log = "log"\nstore = "env:STORE_OF_THE_PROXY"\n')
    variables = {"STORE_OF_THE_PROXY": f"sqlite:///{tmp_path}/policies.sqlite"}
    os.environ.update(variables)
    try:
        options = ("--config", str(file), "--console")
        with start("proxy", *options, store=None, audit_log=None) as integration:
            problem = json.loads(refused(integration, site, page=False))
            address = f"http://robots.guard/console/decisions/{problem['id']}"
            on_page = plain(integration, address).body.decode()
    finally:
        del os.environ["STORE_OF_THE_PROXY"]

    assert problem["command"] == f"robots-guard why {problem['id']} --config {file}"
    assert shell.paste(problem["command"], **variables)[0] == 0
    bundle = html.unescape(_CODE.search(on_page)[1])
    assert bundle.endswith(f"--config {file}")
    assert shell.paste(bundle, **variables)[0] == 0
