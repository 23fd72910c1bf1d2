"""One table of behaviours, three fetchers: direct in this process, Scrapy's downloader, mitmproxy's
outgoing stack.

Each fetches every row for real, in one run with its own SQLite file; the policies in that file and
the recorded decisions are compared. Scrapy and mitmproxy run where they are installed.
"""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from fetch.asking import ASKING, BRIEF, FETCHERS, Decided
from fetch.behaviours import ROWS, Behaviour, moved

from robots_guard.decisions.access import Failure, Scope, usual_scope
from robots_guard.decisions.freshness import RETRY_MIN
from robots_guard.decisions.policy import Policy
from robots_guard.guard.stores import open_store
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.testing import Loopback, RecordingOrigin

RFC = dialect("rfc9309")


@dataclass
class Run:
    """A fetcher's results for each row."""

    sites: dict[str, RecordingOrigin]
    others: dict[str, RecordingOrigin]
    decided: dict[str, Decided]
    policies: dict[str, Policy | None]
    seconds: float


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Iterator[Callable[[str], Run]]:
    """A run by the fetcher's name, cached."""
    made: dict[str, Run] = {}
    certifiers = {"good": trustme.CA(), "unknown": trustme.CA()}
    with Loopback() as net:

        def run(name: str) -> Run:
            if name not in made:
                made[name] = _run(name, net, certifiers, tmp_path_factory.mktemp(name))
            return made[name]

        yield run


def _run(name: str, net: Loopback, certifiers: dict[str, trustme.CA], folder: Path) -> Run:
    rows = _rows(name)
    others = {row.name: net.origin(*row.other) for row in rows if row.leads_to}
    sites = {
        row.name: _site(net, row, certifiers, FETCHERS.index(name), place, others.get(row.name))
        for place, row in enumerate(rows, 1)
    }
    certifiers["good"].cert_pem.write_to_path(str(folder / "ca.pem"))
    urls = {row.name: f"{sites[row.name].url}{row.target}" for row in rows}
    store = f"sqlite:///{folder}/policies.sqlite"
    began = time.monotonic()
    by_url = ASKING[name](list(urls.values()), BRIEF | {"store": store}, folder)
    seconds = time.monotonic() - began
    opened = open_store(store)
    assert opened is not None
    try:
        policies = {row.name: opened.get(origin_of(sites[row.name].url)) for row in rows}
    finally:
        opened.close()
    return Run(sites, others, {row.name: by_url[urls[row.name]] for row in rows}, policies, seconds)


def _rows(name: str) -> list[Behaviour]:
    return [row for row in ROWS if name in row.only]


def _site(
    net: Loopback,
    row: Behaviour,
    certifiers: dict[str, trustme.CA],
    run: int,
    place: int,
    other: RecordingOrigin | None,
) -> RecordingOrigin:
    hundreds, rest = divmod(place, 100)
    address = f"127.{9 if row.public else 6}.{run * 10 + hundreds}.{rest + 1}"
    tls = None
    if row.tls in ("good", "unknown", "other"):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certifier = certifiers["unknown" if row.tls == "unknown" else "good"]
        certifier.issue_cert("other.test" if row.tls == "other" else address).configure_cert(tls)
    robots = row.robots if other is None else moved(f"{other.url}{row.leads_to}")
    site = net.origin(robots, row.pages, tls=tls, address=address)
    if row.tls == "none":
        site.scheme = "https"
    return site


# -- what is promised -----------------------------------------------------------------------------------------


def test_the_table_has_forty_behaviours_and_more():
    assert len(ROWS) >= 40
    assert len({row.name for row in ROWS}) == len(ROWS)


# Tests of one run belong to one worker, which makes it once.
GROUPS = {name: pytest.mark.xdist_group(f"behaviours-{name}") for name in FETCHERS}
CASES = [
    pytest.param(name, row, id=f"{name}-{row.name}", marks=GROUPS[name])
    for name in FETCHERS
    for row in _rows(name)
]
EACH = [pytest.param(name, marks=GROUPS[name]) for name in FETCHERS]


#: Behaviours after which robots.txt is fetched again after a second, perhaps while the table runs.
TRIED_AGAIN = ("redirect-to-a-site-in-trouble", "redirect-to-a-redirecting-site")


@pytest.mark.parametrize(("name", "row"), CASES)
def test_the_behaviour_means_what_the_table_says(ran, name, row):
    run = ran(name)
    policy, decided = run.policies[row.name], run.decided[row.name]
    detail = decided["detail"]

    reason = row.reason
    if policy is None:  # a failure of this process is not shared
        failure = Failure(detail.partition(":")[0])
        assert failure in row.failure, detail
        assert usual_scope(failure) is Scope.FETCHER, detail
        if failure is not Failure.REDIRECT_DISALLOWED:
            reason = "fetcher-failed"
    assert (decided["action"], decided["reason"]) == (row.action, reason), detail
    if policy is None:
        return
    document, trouble = policy.document, policy.trouble
    assert policy.access(policy.settled_at, RFC)[0].value == row.means
    if row.failure:
        assert trouble.failure in row.failure, trouble
        assert row.status in (None, trouble.status)
    else:
        assert (document.status, document.truncated) == (row.status, row.truncated)
        assert document.via == name
        assert document.tls_verified
    if row.lifetime is not None:
        assert policy.expires_at(RFC) - policy.settled_at == pytest.approx(row.lifetime)


@pytest.mark.parametrize("name", EACH)
def test_nothing_forbidden_reaches_an_origin_and_no_file_is_fetched_too_often(ran, name):
    run = ran(name)
    for row in _rows(name):
        site = run.sites[row.name]
        asked = set(site.targets) - set(row.pages)
        assert asked == ({row.target} if row.action == "pass" and name != "direct" else set()), (
            row.name
        )
        times = [fetch.at for fetch in site.robots_fetches]
        assert bool(times) == (row.tls in ("", "good")), row.name
        # On a busy machine, a crawl outlasts the pause after a failure, and a file is fetched again.
        gaps = [later - before for before, later in itertools.pairwise(times)]
        assert not gaps or (row.failure and min(gaps) >= RETRY_MIN), row.name


@pytest.mark.parametrize("name", EACH)
def test_no_redirect_of_a_robots_txt_reaches_a_page_that_is_closed(ran, name):
    run = ran(name)
    for row in _rows(name):
        if row.leads_to:
            assert tuple(run.others[row.name].targets) == row.may_see, row.name
            fetches = len(run.others[row.name].robots_fetches)
            if row.name in TRIED_AGAIN:
                fetches = min(fetches, 1)
            assert fetches == (0 if row.public else 1), row.name


@pytest.mark.parametrize("name", EACH)
def test_fetches_carry_nothing_personal(ran, name):
    fetches = [fetch for site in ran(name).sites.values() for fetch in site.robots_fetches]

    assert fetches
    assert not [
        fetch for fetch in fetches if {"cookie", "authorization", "referer"} & set(fetch.headers)
    ]


@pytest.mark.parametrize("name", EACH)
def test_a_run_ends_in_time(ran, name):
    assert ran(name).seconds < 120
