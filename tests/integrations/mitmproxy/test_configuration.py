"""Proxies that are configured by a file alone, with workers and secrets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from integrations.mitmproxy.process import proxy, refused_start, running

FILE = """
# the crawler
audit = "all"
allow_private = "127.0.0.0/8"
connect_ports = "1-65535"
user_agent = "file:secret"
fetch_proxy = "file:secret-proxy"
fetch = "engine"

[proxy]
proxyauth = "file:secret-users"
workers = 2
drain = 1
report_only = true
mode = "regular"

[console]
listen = "127.0.0.1:1"
"""
SECRETS = {
    "secret": "mybot/2 (swordfish)",
    "secret-proxy": "http://jane:tr0ub4dor@127.0.0.1:1",
    "secret-users": "jane:hunter2",
}


@pytest.fixture
def file(tmp_path):
    for name, text in SECRETS.items():
        (tmp_path / name).write_text(f"{text}\n")
    path = tmp_path / "robots_guard.toml"
    path.write_text(FILE)
    return path


def ask(integration, url, user=""):
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-x", integration.url, url]
    if user:
        command += ["--proxy-user", user]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def test_a_proxy_and_its_workers_have_the_files_values_and_print_no_secret(net, tmp_path, file):
    site = net.origin("User-agent: *\nDisallow: /private\n")
    with proxy(tmp_path, ["--config", str(file)], store=f"sqlite:///{tmp_path}/p.sqlite") as guard:
        assert ask(guard, f"{site.url}/private") == "407"
        assert ask(guard, f"{site.url}/private", "jane:hunter2") == "200"

    starts = [
        record
        for path in (tmp_path / "audit_log").glob("*.jsonl")
        for record in map(json.loads, path.read_text().splitlines())
        if record["kind"] == "start"
    ]
    assert starts  # of each worker that had a request
    for start in starts:
        settings = start["settings"]
        assert (settings["audit"], settings["report_only"]) == ("all", "True")
        assert settings["user_agent"] == f"file:{tmp_path}/secret"
        assert settings["fetch_proxy"] == f"file:{tmp_path}/secret-proxy"
    (record,) = guard.records()
    assert (record["would"], record["origin"]) == ("drop", site.url)
    assert "mybot/2 (swordfish)" in {each.headers["user-agent"] for each in site.robots_fetches}
    recorded = [path.read_text() for path in (tmp_path / "audit_log").glob("*.jsonl")]
    for text in ("".join(guard.output), *recorded):
        assert not [secret for secret in ("swordfish", "tr0ub4dor", "hunter2") if secret in text]


def test_a_plain_mitmdump_reads_the_file_once(net, tmp_path, file):
    site = net.origin("User-agent: *\nDisallow: /private\n")
    options = ["--set", f"robots_guard_config={file}", "--set", "robots_guard_report_only=false"]
    with running("mitmdump", tmp_path, options) as guard:
        file.write_text("agent = 5")
        assert ask(guard, f"{site.url}/private") == "403"
    assert "swordfish" not in "".join(guard.output)


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("proxy", "workers = 99", ":2: workers 99 is out of range: use 1 to 64"),
        ("proxy", 'proxyauth = "jane"', ":2: proxyauth names no user: write USER:PASSWORD"),
        ("proxy", 'mode = "sock5"', ":2: mode sock5: "),
        ("mitmdump", "hold_max = -1", ":2: hold_max -1 is out of range"),
    ],
)
def test_a_faulty_value_is_named_by_its_place(tmp_path, kind, text, sentence):
    file = tmp_path / "robots_guard.toml"
    file.write_text(f"[proxy]\n{text}\n")
    options = {
        "proxy": ["--config", str(file)],
        "mitmdump": ["--set", f"robots_guard_config={file}"],
    }
    status, output = refused_start(kind, tmp_path, options[kind])

    assert status != 0
    assert f"{file}{sentence}" in output


@pytest.mark.parametrize("place", ["file", "option"])
def test_the_password_in_a_mode_is_not_quoted(tmp_path, place):
    mode = "upstream:http://jane:s3cret@127.0.0.1:3128"
    file = tmp_path / "robots_guard.toml"
    file.write_text(f'[proxy]\nmode = "{mode}"\n')
    options = {"file": ["--config", str(file)], "option": ["--mode", mode]}
    status, output = refused_start("proxy", tmp_path, options[place])

    assert status != 0
    assert "mode upstream:http://127.0.0.1:3128: a mode has no credentials: give" in output
    assert "s3cret" not in output


HOMELESS = """
import platformdirs
from pathlib import Path

def fail(*_):
    raise RuntimeError("could not determine the home directory")

for name in ("user_config_path", "user_cache_path", "user_state_path"):
    setattr(platformdirs, name, fail)
Path.expanduser = fail
import robots_guard.mitmproxy
from robots_guard.app.cli.main import main
main(["proxy", "--agent=mybot", "--listen=127.0.0.1:0", "--store=memory:", "--audit-log=/none"])
"""


def test_a_user_without_a_home_directory_is_told_what_is_missing():
    """A container's user may be a number without an account."""
    command = [sys.executable, "-W", "ignore", "-c", HOMELESS]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2, done.stderr
    assert "there is no home directory for the proxy's CA: name a folder with --confdir" in (
        done.stderr
    )
    assert "Traceback" not in done.stderr
