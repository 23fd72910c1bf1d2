"""One SQLite file, three programs: a policy that one has fetched is available to the others at
once.

Real processes: a Scrapy crawl, a mitmdump with the guard's addon, the command line. The tests count
an origin's requests for robots.txt.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cli.command import COMMAND
from integrations.mitmproxy.process import mitmdump, upstream_ca
from integrations.mitmproxy.wire import inside, plain
from integrations.scrapy.crawl import crawl

from robots_guard.testing import Loopback, RecordingOrigin

RULES = "User-agent: *\nDisallow: /private/\n"
VIA = {"scrapy": "scrapy", "mitmproxy": "mitmproxy", "cli": "direct"}
INTEGRATIONS = list(VIA)

Ask = Callable[[str], str]  # requests a URL; returns the reason and the fetcher of the policy


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def authority(folder) -> trustme.CA:
    certifier = trustme.CA()
    certifier.cert_pem.write_to_path(str(folder / "ca.pem"))
    return certifier


@pytest.fixture(scope="module")
def store(folder) -> str:
    return f"sqlite:///{folder}/policies.sqlite"


@pytest.fixture(scope="module")
def asks(folder, store, authority) -> dict[str, Ask]:
    """A function for each integration.

    The proxy runs all the time; each crawl and command is a new process.
    """
    with mitmdump(
        folder, upstream_ca("mitmdump", folder / "ca.pem"), store=store, audit="all"
    ) as integration:

        def by_proxy(url: str) -> str:
            if url.startswith("http:"):
                plain(integration, url)
            else:
                authority, slash, target = url.removeprefix("https://").partition("/")
                inside(integration, authority, slash + target)
            return _reason_and_fetcher(
                next(record for record in reversed(integration.records()) if record["url"] == url)
            )

        yield {
            "scrapy": _by_scrapy(folder, store),
            "mitmproxy": by_proxy,
            "cli": _by_cli(folder, store),
        }


def _by_scrapy(folder: Path, store: str) -> Ask:
    def ask(url: str) -> str:
        settings = {"ROBOTS_GUARD_STORE": store, "ROBOTS_GUARD_AUDIT": "all"}
        return _reason_and_fetcher(crawl([url], settings, folder=folder / "scrapy").record(url))

    return ask


def _by_cli(folder: Path, store: str) -> Ask:
    def ask(url: str) -> str:
        return _reason_and_fetcher(
            json.loads(_command(folder, store, "check", "--agent=mybot", "--json", url))
        )

    return ask


def _command(folder: Path, store: str, *arguments: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ROBOTS_GUARD_")
    }
    environment |= {"ROBOTS_GUARD_STORE": store, "ROBOTS_GUARD_AUDIT_LOG": str(folder / "cli")}
    environment["SSL_CERT_FILE"] = str(folder / "ca.pem")
    environment["ROBOTS_GUARD_CONFIG"] = ""
    done = subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def _reason_and_fetcher(record) -> str:
    return f"{record['reason']} via {record['via']}"


def _secure(net: Loopback, authority: trustme.CA, address: str) -> RecordingOrigin:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(address).configure_cert(context)
    return net.origin(RULES, tls=context, address=address)


@pytest.mark.parametrize("first", INTEGRATIONS)
def test_a_policy_of_one_integration_is_a_hit_for_the_others(asks, net, first):
    site = net.origin(RULES)
    others = [integration for integration in INTEGRATIONS if integration != first]
    via = f"disallowed via {VIA[first]}"

    assert asks[first](f"{site.url}/private/1") == via
    assert [asks[integration](f"{site.url}/private/{integration}") for integration in others] == [
        via
    ] * 2
    assert len(site.robots_fetches) == 1
    assert site.targets == []


def test_a_warmed_store_serves_all_integrations(asks, net, folder, store):
    sites = [net.origin(RULES), net.origin(404)]
    _command(folder, store, "policy", "refresh", "--agent=mybot", *(site.url for site in sites))

    assert [
        asks[integration](f"{sites[0].url}/private/{integration}") for integration in INTEGRATIONS
    ] == ["disallowed via direct"] * 3
    assert [asks[integration](f"{sites[1].url}/{integration}") for integration in INTEGRATIONS] == [
        "unrestricted via direct"
    ] * 3
    assert [len(site.robots_fetches) for site in sites] == [1, 1]


def test_a_forgotten_policy_is_fetched_by_the_next_integration(asks, net, folder, store):
    site = net.origin(RULES)
    asks["cli"](f"{site.url}/private/1")
    _command(folder, store, "policy", "forget", site.url)

    assert asks["scrapy"](f"{site.url}/private/2") == "disallowed via scrapy"
    assert asks["mitmproxy"](f"{site.url}/private/3") == "disallowed via scrapy"
    assert len(site.robots_fetches) == 2


def test_a_policy_of_an_unverified_crawl_is_a_miss_for_the_others(asks, net, authority):
    """Scrapy does not verify by default: an attacker on the path could have written what it
    fetched."""
    site = _secure(net, authority, "127.3.0.1")

    assert asks["scrapy"](f"{site.url}/private/1") == "disallowed via scrapy"
    assert asks["mitmproxy"](f"{site.url}/private/2") == "disallowed via mitmproxy"
    assert asks["cli"](f"{site.url}/private/3") == "disallowed via mitmproxy"
    assert asks["scrapy"](f"{site.url}/private/4") == "disallowed via mitmproxy"
    assert len(site.robots_fetches) == 2


def test_a_direct_fetch_verifies_tls_whatever_the_crawl_does(asks, net, authority, folder, store):
    site = _secure(net, authority, "127.3.0.2")
    settings = {"ROBOTS_GUARD_STORE": store, "ROBOTS_GUARD_FETCH": "direct"}
    done = crawl(
        [f"{site.url}/private/1"],
        settings,
        folder=folder / "direct",
        env={"SSL_CERT_FILE": str(folder / "ca.pem")},
    )

    assert done.record(f"{site.url}/private/1")["via"] == "direct"
    assert asks["mitmproxy"](f"{site.url}/private/2") == "disallowed via direct"
    assert len(site.robots_fetches) == 1
