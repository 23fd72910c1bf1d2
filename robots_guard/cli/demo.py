"""`robots-guard demo`: both doors, one cache, one journal, shown on a small local site.

Starts five origins on loopback, crawls them with a real Scrapy spider, fetches the same URLs with curl through
a real proxy, and holds what the origins received against what their robots.txt asked for. Exits 1 if any
promise is broken.
"""

from __future__ import annotations

import json
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
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robots_guard.audit.query import records as recorded
from robots_guard.audit.record import Record
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.testing import Loopback, RecordingOrigin, Reply

AGENT = "demobot"
DOORS = {"scrapy": "Scrapy", "mitmproxy": "curl+proxy"}  # as the journal has them, and as people do
PATIENCE = 60.0  # seconds for each half of the demo, far more than it needs

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
    """An origin of the demo: its robots.txt, and what must become of requests for its targets."""

    name: str
    robots: Reply
    asks: tuple[tuple[str, str], ...]  # target, action


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
class Ask:
    """One URL of the demo."""

    url: str
    site: RecordingOrigin
    target: str
    action: str
    name: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(as_json: bool) -> int:
    """Show both doors at work on a small local site; exit 1 if a promise is broken."""
    result = _run(Console(stderr=True, quiet=as_json))
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        _show(result)
    return 0 if result["ok"] else 1


def _run(progress: Console) -> dict[str, Any]:
    curl = _needed()
    with Loopback() as net, tempfile.TemporaryDirectory(prefix="robots-guard-demo-") as folder:
        place = Path(folder)
        asks = _start_sites(net)
        progress.print(f"crawling {len(asks)} URLs of {len(SITES)} origins with Scrapy ...")
        _crawl(asks, place)
        progress.print("fetching the same URLs with curl through the proxy ...")
        with _proxy(place) as address:
            for ask in asks:
                _run_program([curl, "-s", "-o", "/dev/null", "--path-as-is", "-m", "30", "-x", address, ask.url])
        return _result(asks, _records(place))


def _needed() -> str:
    """Where curl is. Raises SettingsError if anything that the demo needs is missing, before anything starts."""
    if not (find_spec("scrapy") and find_spec("mitmproxy")):
        raise MissingExtra("all", "robots-guard demo")
    curl = shutil.which("curl")
    if curl is None:
        raise SettingsError("the demo needs curl: install it with your system's packages (apt-get install curl)")
    return curl


def _start_sites(net: Loopback) -> list[Ask]:
    asks = []
    for site in SITES:
        origin = net.origin(site.robots)
        asks += [Ask(f"{origin.url}{target}", origin, target, action, site.name) for target, action in site.asks]
    return asks


# -- the two doors ----------------------------------------------------------------------------------------


def _settings(place: Path) -> dict[str, str]:
    return {
        "agent": AGENT,
        "store": f"sqlite:///{place / 'policies.sqlite'}",
        "journal": str(place / "journal"),
        "audit_passes": "all",
        "first_byte_timeout": "2",
        "fetch_timeout": "3",
    }


def _crawl(asks: list[Ask], place: Path) -> None:
    """Run the spider until every URL has been decided. Deferred ones would wait on, so it is then told to stop."""
    config = json.dumps({"urls": [ask.url for ask in asks], "settings": _settings(place)})
    command = [sys.executable, "-m", "robots_guard.cli.demo_spider", config]
    with (place / "scrapy.log").open("w", encoding="utf-8") as log, subprocess.Popen(command, stderr=log) as crawl:
        try:
            _wait_for_records(place, "scrapy", len(asks), crawl)
            crawl.send_signal(signal.SIGINT)
            crawl.wait(PATIENCE)
        finally:
            crawl.kill()


def _wait_for_records(place: Path, door: str, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while len({record.url for record in _records(place) if record.door == door}) < count:
        if process.poll() is not None or time.monotonic() > until:
            log = (place / f"{door}.log").read_text("utf-8", errors="replace")
            raise SettingsError(f"the demo's {door} half ended early:\n{log[-2000:]}")
        time.sleep(0.1)


@contextmanager
def _proxy(place: Path) -> Iterator[str]:
    """A running `robots-guard proxy`; gives its address."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in _settings(place).items()]
    options = [option.replace("=true", "") for option in options]
    command = [sys.executable, "-m", "robots_guard.cli", "proxy", "--listen", "127.0.0.1:0", *options]
    command += ["--confdir", str(place / "ca"), "--allow-private", "127.0.0.0/8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            ready = proxy.stdout.readline()
            if "http://" not in ready:
                raise SettingsError("the demo's proxy did not start; see the message above")
            yield "http://" + ready.split("http://")[1].split()[0]
        finally:
            proxy.terminate()
            proxy.wait(PATIENCE)


def _run_program(command: list[str]) -> None:
    subprocess.run(command, check=False, timeout=PATIENCE)


# -- what came of it --------------------------------------------------------------------------------------


def _records(place: Path) -> list[Record]:
    journal = place / "journal"
    return list(recorded(journal)) if journal.exists() else []


def _result(asks: list[Ask], records: list[Record]) -> dict[str, Any]:
    rows = [_row(ask, door, records) for ask in asks for door in DOORS]
    sites = {id(ask.site): ask.site for ask in asks}.values()
    forbidden = sum(ask.site.targets.count(ask.target) for ask in asks if ask.action != "pass")
    counts = {
        "requests the sites received that their robots.txt forbids": forbidden,
        "robots.txt fetches per origin": [len(site.robots_fetches) for site in sites],
        "allowed pages received, per door": _received(asks),
    }
    promises = {
        "no forbidden request reached a site": forbidden == 0,
        "each robots.txt was fetched once, for both doors": all(len(site.robots_fetches) == 1 for site in sites),
        "every verdict is the one its robots.txt asks for": all(row["action"] == row["expected"] for row in rows),
        "both doors gave the same verdict": _agree(rows),
        "every allowed page was fetched through both doors": all(
            ask.site.targets.count(ask.target) == len(DOORS) for ask in asks if ask.action == "pass"
        ),
    }
    return {"ok": all(promises.values()), "verdicts": rows, "counts": counts, "promises": promises}


def _row(ask: Ask, door: str, records: list[Record]) -> dict[str, Any]:
    found = [record for record in records if record.door == door and record.url == ask.url]
    first = found[0] if found else None
    return {
        "site": ask.name,
        "url": ask.url,
        "door": door,
        "action": first.action if first else None,
        "reason": first.reason if first else None,
        "rule": first.rule if first else None,
        "line": first.line if first else None,
        "expected": ask.action,
        "record": first.id if first else None,
    }


def _received(asks: list[Ask]) -> dict[str, int]:
    """Requests that reached the sites, told apart by the crawler's own User-Agent."""
    agents = Counter(
        DOORS["mitmproxy" if request.headers.get("user-agent", "").startswith("curl") else "scrapy"]
        for site in {id(ask.site): ask.site for ask in asks}.values()
        for request in site.received
        if request.target != "/robots.txt"
    )
    return dict(sorted(agents.items()))


def _agree(rows: list[dict[str, Any]]) -> bool:
    said: dict[str, set[tuple[Any, ...]]] = {}
    for row in rows:
        said.setdefault(row["url"], set()).add((row["action"], row["reason"], row["line"]))
    return all(len(verdicts) == 1 for verdicts in said.values())


_STYLES = {"pass": "green", "drop": "red", "defer": "yellow"}


def _show(result: dict[str, Any]) -> None:
    console = Console()
    console.width = max(console.width, 140)  # a wide table can be scrolled, a folded one cannot be read
    table = Table(title="What each door decided", title_justify="left", box=SIMPLE_HEAD)
    for column in ("site", "URL", "door", "verdict", "reason", "rule", "line"):
        table.add_column(column, justify="right" if column == "line" else "left", no_wrap=True)
    for row in result["verdicts"]:
        action = row["action"] or "none"
        table.add_row(
            row["site"],
            Text(row["url"]),
            DOORS[row["door"]],
            Text(action, style=_STYLES.get(action, "bold red")),
            row["reason"] or "",
            Text(row["rule"] or ""),
            str(row["line"] or ""),
        )
    console.print(table)
    for name, count in result["counts"].items():
        console.print(f"{name}: {_plain(count)}", markup=False, highlight=False)
    console.print()
    for promise, kept in result["promises"].items():
        console.print(Text("kept    " if kept else "BROKEN  ", style="green" if kept else "bold red") + Text(promise))


def _plain(count: Any) -> str:
    if isinstance(count, dict):
        return ", ".join(f"{name} {number}" for name, number in count.items())
    if isinstance(count, list):
        return str(count[0]) if len(set(count)) == 1 else ", ".join(map(str, count))
    return str(count)
