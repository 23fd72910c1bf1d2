"""Equivalence: for the same robots.txt and the same request, all integrations give the same
verdict.

Every row of the table is requested through each integration: by a Scrapy crawl in a separate
process; through a plain mitmdump with the guard's addon, by raw sockets, curl and wget; by httpx
and aiohttp in this process; and through a Squid that asks the decision service; over HTTP and
HTTPS. Each run has its own origins, so each integration fetches every robots.txt itself. The tests
check what the origins received.
"""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trustme
from integrations.libraries import LIBRARIES
from integrations.mitmproxy.process import Integration, mitmdump, upstream_ca
from integrations.mitmproxy.wire import inside, plain
from integrations.scrapy.crawl import crawl
from integrations.table import PAGES, PASS, ROBOTS_TXT, ROWS, Row
from support.audit_log import decisions
from support.programs import program

from robots_guard.testing import Loopback, RecordingOrigin

BRIEF = {
    "fetch_timeout": "10",
    "hold_max": "0.9",  # the first verdict counts: a retry of a robots.txt is not awaited
    "audit": "all",
}
RUNS = [
    *(
        f"{client}-{scheme}"
        for client in (
            *("scrapy", "mitmdump+raw", "mitmdump+curl", "mitmdump+wget", *LIBRARIES),
            "squid+inspected",
        )
        for scheme in ("http", "https")
    ),
    *(f"envoy+{client}-http" for client in ("raw", "curl", "wget") if find_spec("envoy")),
]


@dataclass
class Run:
    """The results of a run: the origin of each row, and the audit log's records by URL."""

    sites: dict[str, RecordingOrigin]
    records: dict[str, list[dict[str, Any]]]

    def verdict(self, row: Row, target: str) -> tuple[str, str]:
        """Action and reason recorded first for a target of the row's origin."""
        record = self.records[f"{self.sites[row.name].url}{target}"][0]
        return record["action"], record["reason"]


@pytest.fixture(scope="session")
def certifier() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def run_named(certifier, tmp_path_factory) -> Iterator[Callable[[str], Run]]:
    """A function that returns a run by its name, and runs it only once."""
    runs: dict[str, Run] = {}
    with Loopback() as net:

        def run(name: str) -> Run:
            if name not in runs:
                runs[name] = _run(
                    name, net, certifier, tmp_path_factory.mktemp(name.replace("+", "-"))
                )
            return runs[name]

        yield run


def _run(name: str, net: Loopback, certifier: trustme.CA, folder: Path) -> Run:
    client, _, scheme = name.rpartition("-")
    rows = _rows(name)
    addresses = [f"127.2.{RUNS.index(name)}.{place}" for place in range(1, len(rows) + 1)]
    tls = _context(certifier, addresses) if scheme == "https" else None
    sites = {
        row.name: net.origin(row.robots, PAGES, tls=tls, address=address)
        for row, address in zip(rows, addresses, strict=True)
    }
    # The control comes first: a deferral of the target would hold it back.
    urls = [
        f"{sites[row.name].url}{target}" for row in rows for target in (row.control, row.target)
    ]
    urls = list(dict.fromkeys(urls))
    if client == "scrapy":
        return Run(sites, _crawl(urls, folder))
    certifier.cert_pem.write_to_path(str(folder / "origins.pem"))
    if client in LIBRARIES:
        log = folder / "audit_log"
        settings = BRIEF | {"store": "memory:", "audit_log": str(log)}
        LIBRARIES[client](urls, settings, folder / "origins.pem")
        return Run(sites, _by_url(decisions(log)))
    integration, _, client = client.partition("+")
    return Run(sites, _ask(integration, client, urls, folder))


def _ask(kind: str, client: str, urls: list[str], folder: Path) -> dict[str, list[dict[str, Any]]]:
    with _proxy(kind, folder) as integration:
        request = CLIENTS[client]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda url: request(integration, url), urls))
        return _by_url(integration.records())


def _proxy(kind: str, folder: Path) -> AbstractContextManager[Any]:
    # Where httpx is tested on Python 3.11, the decision service is not installed.
    if kind == "envoy":
        from integrations.envoy.process import envoy

        return envoy(folder, **BRIEF)
    if kind == "squid":
        from integrations.squid.process import squid

        return squid(folder, upstream_ca=folder / "origins.pem", **BRIEF)
    return mitmdump(folder, upstream_ca("mitmdump", folder / "origins.pem"), **BRIEF)


def _rows(name: str) -> list[Row]:
    return [row for row in ROWS if not (row.as_written and "wget" in name)]


def _context(certifier: trustme.CA, addresses: list[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certifier.issue_cert(*addresses).configure_cert(context)
    return context


def _by_url(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record["url"], []).append(record)
    return found


# -- the clients -----------------------------------------------------------------------------------


def _crawl(urls: list[str], folder: Path) -> dict[str, list[dict[str, Any]]]:
    settings = {f"ROBOTS_GUARD_{name.upper()}": value for name, value in BRIEF.items()}
    # The crawl sends each request once, unchanged, whatever the response, and answers none with
    # the guard's copy of a robots.txt.
    settings |= {"DOWNLOAD_TIMEOUT": 40, "REDIRECT_ENABLED": False, "CONCURRENT_REQUESTS": 32}
    options = {"dont_filter": True, "meta": {"dont_cache": True}}
    # Of two requests for a site that are in the queue, Scrapy takes the later one first.
    requests = [{"url": url, "priority": -place, **options} for place, url in enumerate(urls)]
    return _by_url(crawl(requests, settings, folder=folder).records)


def _raw(integration: Integration, url: str, within_tls: Callable[..., object] = inside) -> None:
    if url.startswith("http:"):
        plain(integration, url)
    else:
        authority, slash, target = url.removeprefix("https://").partition("/")
        within_tls(integration, authority, slash + target)


def _curl(integration: Integration, url: str) -> None:
    command = [
        program("curl"),
        "-s",
        "-o",
        "/dev/null",
        "--path-as-is",
        "-g",
        "-m",
        "40",
        "-x",
        integration.url,
    ]
    subprocess.run([*command, "--cacert", str(integration.ca), url], check=False)


def _wget(integration: Integration, url: str) -> None:
    command = [program("wget"), "-q", "-O", "/dev/null", "-t", "1", "-T", "40", "--max-redirect=0"]
    environment = {
        "http_proxy": integration.url,
        "https_proxy": integration.url,
        "PATH": "/usr/bin:/bin",
    }
    subprocess.run(
        [*command, f"--ca-certificate={integration.ca}", url], env=environment, check=False
    )


def _inspected(integration: Integration, url: str) -> None:
    """Ask as `_raw` does, with the SNI that Squid needs."""
    from integrations.squid.conftest import inside as squid_inside

    _raw(integration, url, squid_inside)


CLIENTS: dict[str, Callable[[Integration, str], None]] = {
    "raw": _raw,
    "curl": _curl,
    "wget": _wget,
    "inspected": _inspected,
}


# -- the tests -------------------------------------------------------------------------------------


def test_the_table_has_at_least_sixty_rows():
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)


# All tests of a run belong to one worker, so that it is run only once.
GROUPS = {name: pytest.mark.xdist_group(f"equivalence-{name}") for name in RUNS}
CASES = [
    pytest.param(name, row, id=f"{name}-{row.name}", marks=GROUPS[name])
    for name in RUNS
    for row in _rows(name)
]


@pytest.mark.parametrize(("name", "row"), CASES)
def test_the_verdict_matches_the_table(run_named, name, row):
    run = run_named(name)

    assert run.verdict(row, row.target) == (row.action, row.reason)
    assert run.verdict(row, row.control)[0] == PASS


@pytest.mark.parametrize(("name", "row"), CASES)
def test_only_allowed_requests_reach_the_origin(run_named, name, row):
    site = run_named(name).sites[row.name]
    allowed = {row.control, *([row.target] if row.action == PASS else [])}

    assert set(site.targets) - set(PAGES) == allowed - {ROBOTS_TXT}
    if row.control == ROBOTS_TXT:  # requested by the crawler, besides the guard
        assert len(site.robots_fetches) >= (1 if row.target == ROBOTS_TXT else 2)
