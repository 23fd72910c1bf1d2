"""Equivalence: for the same page, both integrations do the same with what its site states.

Every page of the table is asked for in three ways: by a Scrapy crawl in a separate process, and
through a real proxy by curl, over plain HTTP/1.1 and over HTTP/2 with TLS. Each way has its own
sites. The tests compare what a client gets, what the audit logs say, and what the sites received.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trustme
from integrations.mitmproxy.process import Integration, running, upstream_ca
from integrations.scrapy.crawl import crawl
from integrations.signals_table import GROUPS, ROBOTS_TXT, TDMREP, Group, Page, Refused
from integrations.stating_sites import StatingSites, stating_sites
from support.audit_log import signals
from support.programs import program

from robots_guard.testing import Loopback, RecordingOrigin, Reply

SCRAPY, PLAIN, HTTP2 = WAYS = ("scrapy", "http/1.1", "http/2")
TIMES = {"fetch_timeout": "10"}
_SAYS = re.compile(r"[a-z-]+: (?P<signal>[a-z-]+) \((?:line \d+ of )?(?P<place>[a-z.]+)\) says ")

Records = dict[str, list[dict[str, Any]]]  # by URL


class Outcome(NamedTuple):
    """What became of a page, and what the audit log says of it."""

    action: str
    reason: str | None  # None if nothing is recorded
    because: str | None
    uses: Any
    evidence: Any
    incomplete: bool | None


@dataclass
class Asked:
    """The results of one way of asking for the pages of a group, by the names of the pages."""

    outcomes: dict[str, Outcome]
    requested: set[str]  # the pages whose sites have received a request for them


class Site(NamedTuple):
    """What a site answers, by path, and the pages among it."""

    replies: dict[str, Reply]
    pages: list[Page]


# -- the runs --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Iterator[Callable[[Group], dict[str, Asked]]]:
    """A function that asks for the pages of a group in all ways, and does so only once."""
    done: dict[str, dict[str, Asked]] = {}
    authority = trustme.CA()
    with Loopback() as net:

        def ask(group: Group) -> dict[str, Asked]:
            if group.name not in done:
                folder = tmp_path_factory.mktemp(group.name)
                crawled = _ask_scrapy(group, net, folder / "scrapy")
                done[group.name] = crawled | _ask_proxy(group, net, authority, folder / "proxy")
            return done[group.name]

        yield ask


def _sites_of(group: Group) -> list[Site]:
    shared = [page for page in group.pages if not page.has_own_site]
    own = [[page] for page in group.pages if page.has_own_site]
    return [
        Site(pages[0].files | {page.path: page.reply for page in pages}, pages)
        for pages in [shared, *own]
        if pages
    ]


def _ask_scrapy(group: Group, net: Loopback, folder: Path) -> dict[str, Asked]:
    folder.mkdir()
    started = _start(group, net)
    urls = _urls(started)
    settings = TIMES | group.settings | _overrides(folder, [urls], group)
    named = {f"ROBOTS_GUARD_{name.upper()}": value for name, value in settings.items()}
    # The crawl sends each request once, and a spider gets the response whatever its status.
    named |= {"REDIRECT_ENABLED": False, "HTTPERROR_ALLOW_ALL": True}
    requests = [{"url": urls[page.name], "method": page.method} for page in group.pages]
    crawled = crawl(requests, named, folder=folder)
    actions = {name: crawled[url]["action"] for name, url in urls.items()}
    outcomes = _outcomes(actions, urls, crawled.records, crawled.signals)
    return {SCRAPY: Asked(outcomes, _requested(started))}


def _ask_proxy(
    group: Group, net: Loopback, authority: trustme.CA, folder: Path
) -> dict[str, Asked]:
    folder.mkdir()
    authority.cert_pem.write_to_path(str(folder / "sites.pem"))
    sites = dict(zip(_addresses(group), _sites_of(group), strict=False))
    started = _start(group, net)
    replies = {address: site.replies for address, site in sites.items()}
    with stating_sites(folder, authority, replies) as over_tls:
        urls = {PLAIN: _urls(started), HTTP2: _urls_over_tls(sites, over_tls)}
        settings = TIMES | group.settings | _overrides(folder, urls.values(), group)
        kind = ("proxy", "mitmdump")[GROUPS.index(group) % 2]
        trust = upstream_ca(kind, folder / "sites.pem")
        with running(kind, folder, trust, **settings) as proxy:
            actions = {way: _curl(proxy, way, group, urls[way]) for way in urls}
    requested = {PLAIN: _requested(started), HTTP2: _requested_over_tls(sites, over_tls)}
    stated = signals(folder / "audit_log")
    outcomes = {
        way: _outcomes(actions[way], urls[way], proxy.records(), stated) for way in (PLAIN, HTTP2)
    }
    return {way: Asked(outcomes[way], requested[way]) for way in (PLAIN, HTTP2)}


def _start(group: Group, net: Loopback) -> list[tuple[Site, RecordingOrigin]]:
    return [(site, net.origin(site.replies[ROBOTS_TXT], site.replies)) for site in _sites_of(group)]


def _addresses(group: Group) -> Iterator[str]:
    return (f"127.4.{GROUPS.index(group)}.{number}" for number in itertools.count(1))


def _urls(started: list[tuple[Site, RecordingOrigin]]) -> dict[str, str]:
    return {page.name: origin.url + page.path for site, origin in started for page in site.pages}


def _urls_over_tls(sites: Mapping[str, Site], over_tls: StatingSites) -> dict[str, str]:
    return {
        page.name: over_tls.url(address) + page.path
        for address, site in sites.items()
        for page in site.pages
    }


def _requested(started: list[tuple[Site, RecordingOrigin]]) -> set[str]:
    return {
        page.name for site, origin in started for page in site.pages if page.path in origin.targets
    }


def _requested_over_tls(sites: Mapping[str, Site], over_tls: StatingSites) -> set[str]:
    received = {(each["address"], each["path"]) for each in over_tls.received}
    pages = [each for each in over_tls.received if each["path"] not in (ROBOTS_TXT, TDMREP)]
    assert {each["version"] for each in pages} == {"2.0"}
    return {
        page.name
        for address, site in sites.items()
        for page in site.pages
        if (address, page.path) in received
    }


def _overrides(folder: Path, urls: Any, group: Group) -> dict[str, str]:
    """The setting `overrides`, of a file with the overrides of all pages that have one."""
    entries = [
        f'[[override]]\nid = "{page.name}-{number}"\n'
        f'origin = "{each[page.name].removesuffix(page.path)}"\n'
        f'owner = "me"\nreason = "a test"\nexpires = 2099-01-01\n{page.override}\n'
        for number, each in enumerate(urls)
        for page in group.pages
        if page.override
    ]
    if not entries:
        return {}
    (folder / "overrides.toml").write_text("\n".join(entries))
    return {"overrides": str(folder / "overrides.toml")}


def _curl(proxy: Integration, way: str, group: Group, urls: Mapping[str, str]) -> dict[str, str]:
    """Ask for all pages with one run of curl. Returns the actions by the names of the pages."""
    folder = proxy.folder / way.replace("/", "")
    folder.mkdir()
    blocks = [_block(proxy, way, page, urls[page.name], folder) for page in group.pages]
    (folder / "curl").write_text("fail-early\n" + "next\n".join(blocks))
    command = [program("curl"), "--config", str(folder / "curl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {way.removeprefix("http/")}
    return {page.name: _action(folder / page.name) for page in group.pages}


def _block(proxy: Integration, way: str, page: Page, url: str, folder: Path) -> str:
    options = {
        "url": url,
        "proxy": proxy.url,
        "cacert": proxy.ca,
        "dump-header": folder / page.name,
        "output": "/dev/null",
        "write-out": r"%{http_version}\n",
        "max-time": 60,
    }
    flags = ["silent", "show-error", "suppress-connect-headers"]
    flags += ["http2" if way == HTTP2 else "http1.1"] + ["head"] * (page.method == "HEAD")
    lines = [f'{name} = "{value}"' for name, value in options.items()] + flags
    return "\n".join([*lines, ""])


def _action(head: Path) -> str:
    status, *fields = head.read_text("latin-1").lower().splitlines()
    is_refused = any(field.startswith("robots-guard: drop") for field in fields)
    assert not is_refused or status.split()[1] == "403"
    return "drop" if is_refused else "pass"


# -- what the audit logs say -----------------------------------------------------------------------


def _outcomes(
    actions: Mapping[str, str],
    urls: Mapping[str, str],
    decisions: list[dict[str, Any]],
    stated: list[dict[str, Any]],
) -> dict[str, Outcome]:
    refusals = [each for each in decisions if each["action"] != "pass"]
    found = {name: [] for name in urls}
    names = {url: name for name, url in urls.items()}
    for record in [*refusals, *stated]:
        if record["url"] in names:
            found[names[record["url"]]].append(record)
    return {name: _outcome(actions[name], found[name]) for name in urls}


def _outcome(action: str, records: list[dict[str, Any]]) -> Outcome:
    if not records:
        return Outcome(action, None, None, None, None, None)
    (record,) = records
    assert record["action"] == action
    detail = record["detail"]
    return Outcome(
        action,
        record["reason"],
        detail and detail.lower(),  # field names are as the protocol, or Scrapy, writes them
        record["uses"],
        [_statement(each) for each in record["evidence"] or ()],
        record.get("incomplete"),
    )


def _statement(item: Any) -> dict[str, Any]:
    plain = msgspec.to_builtins(item)
    return plain | {"raw": plain.get("raw", "").lower()}


# -- the tests -------------------------------------------------------------------------------------

CASES = [
    pytest.param(group, page, id=page.name, marks=pytest.mark.xdist_group(f"stated-{group.name}"))
    for group in GROUPS
    for page in group.pages
]


def _expected(page: Page, way: str) -> Refused | None:
    return page.expected if way == SCRAPY else page.in_proxy


def test_the_table_has_at_least_sixty_pages():
    names = [page.name for group in GROUPS for page in group.pages]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.parametrize(("group", "page"), CASES)
def test_both_integrations_do_as_the_table_says(asked, group, page):
    actions = {way: each.outcomes[page.name].action for way, each in asked(group).items()}
    assert actions == {way: "drop" if _expected(page, way) else "pass" for way in WAYS}


@pytest.mark.parametrize(("group", "page"), CASES)
def test_both_audit_logs_say_the_same(asked, group, page):
    crawled, plain, http2 = (each.outcomes[page.name] for each in asked(group).values())
    assert plain == http2
    if page.is_cut:
        assert (crawled.incomplete, plain.incomplete) == (False, True)
        plain = plain._replace(incomplete=False)
    if page.expected == page.in_proxy:
        assert crawled == plain


@pytest.mark.parametrize(("group", "page"), CASES)
def test_a_refusal_names_the_statement_that_decides(asked, group, page):
    for way, each in asked(group).items():
        outcome, expected = each.outcomes[page.name], _expected(page, way)
        if expected is None:
            continue
        assert outcome.reason == expected.reason
        says = _SAYS.match(outcome.because or "")
        signal, place = says.group("signal", "place") if says else ("", expected.place)
        assert (signal, place) == (expected.signal, expected.place)


@pytest.mark.parametrize(("group", "page"), CASES)
def test_a_site_sees_what_is_not_refused_beforehand(asked, group, page):
    is_refused = page.expected is not None and page.expected.is_request_refused
    seen = {way: page.name in each.requested for way, each in asked(group).items()}
    assert seen == dict.fromkeys(WAYS, not is_refused)
