"""`robots-guard demo`: both integrations with one store and one audit log, on a small local site.

The demo starts five origins on loopback, crawls them with a Scrapy spider, fetches the same URLs with curl through the
proxy, and compares the requests that the origins received with their robots.txt. It exits with 1 if a promise is
broken.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from robots_guard.app.cli.terminal import Rows, TableColumn, print_lines
from robots_guard.audit.read.reader import records as recorded
from robots_guard.audit.record import Record
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.testing import Loopback, RecordingOrigin, Reply

AGENT = "demobot"
COMPONENTS = {"scrapy": "Scrapy", "proxy": "curl+proxy"}  # name in the audit log, and for people
TIMEOUT = 60.0  # seconds for each half of the demo, far more than it needs

_RULES = """\
# The demo site's rules.
User-agent: demobot
Disallow: /private/
Allow: /private/press/
Disallow: /*.pdf$

User-agent: *
Disallow: /
"""


@dataclass(frozen=True, slots=True)
class Site:
    """An origin of the demo: its robots.txt, and the expected action for each target."""

    name: str
    robots: Reply
    expected: tuple[tuple[str, str], ...]  # target, action


SITES = (
    Site(
        "rules",
        Reply(body=_RULES),
        (
            ("/", "pass"),
            ("/shop?page=2", "pass"),
            ("/private/diary", "drop"),
            ("/%70rivate/letters", "drop"),
            ("/private/press/2026", "pass"),
            ("/report.pdf", "drop"),
            ("/report.pdf?view=1", "pass"),
        ),
    ),
    Site("no robots.txt", Reply(status=404), (("/", "pass"), ("/private/", "pass"))),
    Site("closed (403)", Reply(status=403), (("/", "drop"),)),
    Site("busy (503)", Reply(status=503), (("/", "defer"),)),
    Site("hanging", Reply(hang=True), (("/", "defer"),)),
)


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """A URL of the demo, and the expected action."""

    url: str
    site: RecordingOrigin
    target: str
    action: str
    name: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(as_json: bool) -> int:
    """Show both integrations at work on a small local site.

    Exit status: 0 all promises are kept, 1 at least one is broken.
    """
    result = _run(Console(stderr=True, quiet=as_json))
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        _show(result)
    if result["ok"]:
        return 0
    return 1


def _run(progress: Console) -> dict[str, Any]:
    curl = _find_requirements()
    with Loopback() as net, tempfile.TemporaryDirectory(prefix="robots-guard-demo-") as directory:
        place = Path(directory)
        requests = _start_sites(net)
        progress.print(f"crawling {len(requests)} URLs of {len(SITES)} origins with Scrapy ...")
        _crawl(requests, place)
        progress.print("fetching the same URLs with curl through the proxy ...")
        curl_options = ["-s", "-o", "/dev/null", "--path-as-is", "-m", "30"]
        with _proxy(place) as address:
            for request in requests:
                _run_program([curl, *curl_options, "-x", address, request.url])
        return _result(requests, _records(place))


def _find_requirements() -> str:
    """Return the path of curl. Raises SettingsError if anything that the demo needs is missing."""
    if not (find_spec("scrapy") and find_spec("mitmproxy")):
        raise MissingExtra("all", "robots-guard demo")
    curl = shutil.which("curl")
    if curl is None:
        raise SettingsError(
            "the demo needs curl: install it with your package manager, such as apt-get install curl"
        )
    return curl


def _start_sites(net: Loopback) -> list[DemoRequest]:
    requests = []
    for site in SITES:
        origin = net.origin(site.robots)
        requests += [
            DemoRequest(f"{origin.url}{target}", origin, target, action, site.name)
            for target, action in site.expected
        ]
    return requests


# -- the two integrations ----------------------------------------------------------------------------------------


def _settings(place: Path) -> dict[str, str]:
    return {
        "agent": AGENT,
        "store": f"sqlite:///{place / 'policies.sqlite'}",
        "audit_log": str(place / "audit_log"),
        "audit": "all",
        "fetch_timeout": "3",
    }


def _environment() -> dict[str, str]:
    """The environment without the user's own configuration, which the demo does not depend on."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("ROBOTS_GUARD_")
    }
    return {**kept, "ROBOTS_GUARD_CONFIG": ""}


def _crawl(requests: list[DemoRequest], place: Path) -> None:
    """Run the spider until every URL has been decided, then stop it: deferred requests would keep it waiting."""
    config = json.dumps(
        {"urls": [request.url for request in requests], "settings": _settings(place)}
    )
    command = [sys.executable, "-m", "robots_guard.app.demo.spider", config]
    with (
        (place / "scrapy.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(command, stderr=log, env=_environment()) as crawl,
    ):
        try:
            _wait_for_records(place, "scrapy", len(requests), crawl)
            crawl.send_signal(signal.SIGINT)
            crawl.wait(TIMEOUT)
        finally:
            crawl.kill()


def _wait_for_records(
    place: Path, component: str, count: int, process: subprocess.Popen[bytes]
) -> None:
    deadline = time.monotonic() + TIMEOUT
    while len({record.url for record in _records(place) if record.component == component}) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            log = (place / f"{component}.log").read_text("utf-8", errors="replace")
            raise SettingsError(
                f"the {component} half of the demo did not finish; its log ends with:\n{log[-2000:]}"
            )
        time.sleep(0.1)


@contextmanager
def _proxy(place: Path) -> Iterator[str]:
    """Run `robots-guard proxy`; yields its address."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in _settings(place).items()]
    options = [option.replace("=true", "") for option in options]
    command = [
        sys.executable,
        "-m",
        "robots_guard.app.cli",
        "proxy",
        "--log=none",  # the table shows the refusals
        "--listen",
        "127.0.0.1:0",
        *options,
    ]
    command += ["--confdir", str(place / "ca"), "--allow-private", "127.0.0.0/8"]
    command += ["--hold-max", "0"]  # the table shows deferrals
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as proxy:
        try:
            assert proxy.stdout is not None
            ready = proxy.stdout.readline()
            if "http://" not in ready:
                raise SettingsError("the proxy of the demo did not start: see the message above")
            yield "http://" + ready.split("http://")[1].split()[0]
        finally:
            proxy.terminate()
            proxy.wait(TIMEOUT)


def _run_program(command: list[str]) -> None:
    subprocess.run(command, check=False, timeout=TIMEOUT)


# -- the result -------------------------------------------------------------------------------------------


def _records(place: Path) -> list[Record]:
    audit_log = place / "audit_log"
    if audit_log.exists():
        return list(recorded(audit_log))
    return []


def _result(requests: list[DemoRequest], records: list[Record]) -> dict[str, Any]:
    rows = [_row(request, component, records) for request in requests for component in COMPONENTS]
    sites = {id(request.site): request.site for request in requests}.values()
    forbidden = sum(
        request.site.targets.count(request.target)
        for request in requests
        if request.action != "pass"
    )
    counts = {
        "requests the sites received that their robots.txt forbids": forbidden,
        "robots.txt fetches per origin": [len(site.robots_fetches) for site in sites],
        "allowed pages received, per integration": _count_received(requests),
    }
    promises = {
        "no forbidden request reached a site": forbidden == 0,
        # A robots.txt that cannot be had is tried again after a second, which a slow machine reaches.
        "each robots.txt that a site sent was fetched once, for both integrations": all(
            len(request.site.robots_fetches) == 1
            for request in requests
            if request.action != "defer"
        ),
        "every verdict is the one its robots.txt asks for": all(
            row["action"] == row["expected"] for row in rows
        ),
        "both integrations gave the same verdict": _do_verdicts_agree(rows),
        "every allowed page was fetched through both integrations": all(
            request.site.targets.count(request.target) == len(COMPONENTS)
            for request in requests
            if request.action == "pass"
        ),
    }
    return {"ok": all(promises.values()), "verdicts": rows, "counts": counts, "promises": promises}


def _row(request: DemoRequest, component: str, records: list[Record]) -> dict[str, Any]:
    found = [
        record for record in records if record.component == component and record.url == request.url
    ]
    first = found[0] if found else None
    return {
        "site": request.name,
        "url": request.url,
        "component": component,
        "action": first.action if first else None,
        "reason": first.reason if first else None,
        "rule": first.rule if first else None,
        "line": first.line if first else None,
        "expected": request.action,
        "record": first.id if first else None,
    }


def _count_received(requests: list[DemoRequest]) -> dict[str, int]:
    """Count the requests that reached the sites, by integration; the User-Agent tells which one sent them."""
    agents = Counter(
        COMPONENTS[
            "proxy" if received.headers.get("user-agent", "").startswith("curl") else "scrapy"
        ]
        for site in {id(request.site): request.site for request in requests}.values()
        for received in site.received
        if received.target != "/robots.txt"
    )
    return dict(sorted(agents.items()))


def _do_verdicts_agree(rows: list[dict[str, Any]]) -> bool:
    by_url: dict[str, set[tuple[Any, ...]]] = {}
    for row in rows:
        by_url.setdefault(row["url"], set()).add((row["action"], row["reason"], row["line"]))
    return all(len(verdicts) == 1 for verdicts in by_url.values())


_COLUMNS = (
    TableColumn("action", kind="action"),
    "site",
    "component",
    "reason",
    TableColumn("url", folds=True),
    TableColumn("rule", folds=True),
    "line",
)


def _show(result: dict[str, Any]) -> None:
    print_lines([("What each integration decided:", "bold"), ("", "")])
    table = Rows(*_COLUMNS)
    for row in result["verdicts"]:
        table.add(
            (
                row["action"] or "none",
                row["site"],
                COMPONENTS[row["component"]],
                row["reason"] or "",
                row["url"],
                row["rule"] or "",
                str(row["line"] or ""),
            )
        )
    table.end()
    counts = [f"{name}: {_as_text(count)}" for name, count in result["counts"].items()]
    print_lines([("", ""), *((count, "") for count in counts), ("", "")])
    for promise, kept in result["promises"].items():
        print_lines(
            [(f"kept    {promise}", "green") if kept else (f"BROKEN  {promise}", "bold red")]
        )


def _as_text(count: Any) -> str:
    if isinstance(count, dict):
        return ", ".join(f"{name} {number}" for name, number in count.items())
    if isinstance(count, list):
        if len(set(count)) == 1:
            return str(count[0])
        return ", ".join(map(str, count))
    return str(count)
