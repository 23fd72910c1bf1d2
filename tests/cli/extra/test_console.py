"""`robots-guard console` as a process: the address it prints, what it refuses to listen on, what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import contextmanager

import httpx
import pytest
from cli.command import COMMAND

from robots_guard.app.cli.console import hosts_of


@contextmanager
def running(*options):
    """A console on a free port: its address with the token, and the process."""
    command = [COMMAND, "console", "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        yield found[0], process
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (out, err) == ("", "")


def test_printed_address_logs_in_and_refresh_fetches(variables, net, tmp_path):
    (tmp_path / "audit_log").mkdir()
    site = net.origin("User-agent: *\nDisallow: /private/\n")
    with (
        running("--agent", "mybot") as (address, _),
        httpx.Client(follow_redirects=True) as browser,
    ):
        base, _, token = address.partition("/?token=")
        assert len(token) >= 32
        assert httpx.get(base).status_code == 403
        assert 'url=/"' in browser.get(address).text
        assert browser.get(base).status_code == 200
        origin = browser.get(f"{base}/origin", params={"name": site.url})
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', origin.text))
        assert not list((tmp_path / "audit_log").glob("*"))
        refreshed = browser.post(f"{base}/origins/refresh", data=fields, headers={"origin": base})
        again = browser.get(f"{base}/try", params={"url": f"{site.url}/private/x"})

    assert "Disallow: /private/" in refreshed.text
    assert "fetched just now" in refreshed.text
    assert '<h2 class="verdict drop">' in again.text
    assert [request.target for request in site.received] == ["/robots.txt"]
    assert token not in "".join(
        path.read_text() for path in (tmp_path / "audit_log").glob("*.jsonl")
    )


def test_without_agent_nothing_is_fetched(variables, tmp_path):
    variables.delenv("ROBOTS_GUARD_AGENT")
    (tmp_path / "audit_log").mkdir()
    with running() as (address, _), httpx.Client(follow_redirects=True) as browser:
        assert browser.get(address).status_code == 200
        assert (
            "Ask for"
            not in browser.get(address.partition("?")[0] + "origin?name=https://a.test").text
        )
    assert not list((tmp_path / "audit_log").iterdir())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--listen", "0.0.0.0:0"], "--host NAME"),
        (["--listen", "[::]:0"], "--host NAME"),
        (["--listen", "192.0.2.1:80"], "--host NAME"),
        (["--listen", "example.com:80"], "IP address"),
        (["--listen", "127.0.0.1"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "has a port that is too large"),
        (
            ["--listen", "192.0.2.1:80", "--host", "console.example"],
            "cannot listen on 192.0.2.1:80",
        ),
        (["--host", "https://console.example/"], "is not a host name"),
        (["--store", "nowhere"], "is not a store"),
        (["--agent", "my bot"], "--agent"),
        (["--listen", "127.0.0.1:0"], "there is no audit log in"),
    ],
    ids=str,
)
def test_invalid_options_are_reported_in_one_sentence(here, options, says):
    done = here("console", *options)

    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1


def test_accepted_host_values():
    assert hosts_of("127.0.0.1", 8099, ()) == ["127.0.0.1:8099", "localhost:8099"]
    assert hosts_of("::1", 80, ()) == ["[::1]:80", "localhost:80"]
    assert hosts_of("0.0.0.0", 80, ("console.example",)) == [
        "0.0.0.0:80",
        "console.example:80",
        "console.example",
    ]


def test_help_works_without_the_extra():
    code = (
        "import sys\nfor name in ('starlette', 'uvicorn', 'jinja2', 'duckdb'): sys.modules[name] = None\n"
        "from robots_guard.app.cli.main import run\nassert run(['console', '--help']) == 0\n"
        "raise SystemExit(run(['console', '--listen', '127.0.0.1:0']))"
    )
    done = subprocess.run(
        [os.sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert "pip install 'robots_guard[console]'" in done.stderr
