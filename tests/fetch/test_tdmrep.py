"""The behaviours of origins that serve /.well-known/tdmrep.json, with each of the three fetchers.

Each row has its own origin, and a page of it is requested. As in test_behaviours.py, each fetcher
fetches every row for real, in one run with its own SQLite file.
"""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from fetch.asking import ASKING, BRIEF, FETCHERS, Decided
from fetch.behaviours import DROP, PASS, TEXT, moved, packed, text

from robots_guard.decisions.access import MAX_RESERVATIONS
from robots_guard.decisions.policy import Policy
from robots_guard.guard.stores import open_store
from robots_guard.origin import TDMREP_JSON, origin_of
from robots_guard.testing import Loopback, RecordingOrigin, Reply

FILE = json.dumps([{"location": "/reserved/*", "tdm-reservation": 1}]).encode()
JSON = ("Content-Type", "application/json")
LARGE = FILE[:-1] + b" " * MAX_RESERVATIONS + b"]"
SLOW = b"User-agent: *\nCrawl-delay: 1\n"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A site whose tdmrep.json is `answer`, and the expected results for `target` and the file.

    `failure` is the beginning of the recorded failure. `sees` are the other paths that are requested
    from the site. `leads_away`: the file redirects to another origin. `most` is the number of times
    that the file may be requested.
    """

    name: str
    answer: object = None
    robots: object = field(default_factory=text)
    target: str = "/reserved/x"
    action: str = PASS
    status: int | None = None
    failure: tuple[str, ...] = ("",)
    sees: tuple[str, ...] = (TDMREP_JSON,)
    pages: Mapping[str, object] = field(default_factory=dict)
    tls: bool = False
    leads_away: bool = False
    most: int = 1


def held(name: str, answer: object, **more) -> Row:
    """The file is read, and reserves the target."""
    return Row(name=name, answer=answer, **{"action": DROP, "status": 200, **more})


def silent(name: str, answer: object, status: int) -> Row:
    """There is no file."""
    return Row(name=name, answer=answer, status=status)


def failed(name: str, answer: object, *failure: str, **more) -> Row:
    """The file is not available."""
    return Row(name=name, answer=answer, failure=failure, **more)


ROWS = [
    held("reserved", text(JSON, body=FILE)),
    held("over TLS", text(JSON, body=FILE), tls=True),
    held("packed", packed("gzip", gzip.compress(FILE))),
    held("beside no robots.txt", text(JSON, body=FILE), robots=Reply(status=404)),
    held("at a site with a delay", text(JSON, body=FILE), robots=text(body=SLOW)),
    held(
        "by a redirect",
        moved("/tdm/a.json"),
        pages={"/tdm/a.json": text(body=FILE)},
        sees=(TDMREP_JSON, "/tdm/a.json"),
    ),
    Row(name="another page", answer=text(JSON, body=FILE), target="/open", status=200),
    Row(name="a page instead", answer=text(body=b"<!doctype html>"), status=200),
    silent("404", Reply(status=404), 404),
    silent("410", text(JSON, body=FILE, status=410), 410),
    failed("403", text(JSON, body=FILE, status=403), "status 403"),
    failed("503", Reply(status=503), "status 503"),
    failed("206", text(JSON, body=FILE, status=206), "status 206"),
    # On a connection that has carried the robots.txt: Twisted repeats the GET on another one.
    failed("reset", Reply(reset=True), "reset", "protocol", most=2),
    failed("cut short", Reply(body=FILE, cut=True), "protocol", "reset"),
    failed("too long", text(JSON, body=LARGE), "longer"),
    failed("a bomb", packed("gzip", gzip.compress(bytes(20_000_000))), "longer", "protocol"),
    failed(
        "by a redirect to a closed page",
        moved("/private/a.json"),
        "disallowed",
        pages={"/private/a.json": text(body=FILE)},
    ),
    failed("by a redirect to another site", None, "redirect-refused", leads_away=True),
    failed(
        "closed",
        text(JSON, body=FILE),
        "disallowed",
        robots=text(body=b"User-agent: *\nDisallow: /.well-known/\n"),
        sees=(),
    ),
]


@dataclass
class Run:
    """A fetcher's results for each row."""

    sites: dict[str, RecordingOrigin]
    other: RecordingOrigin
    decided: dict[str, Decided]
    policies: dict[str, Policy | None]


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Iterator[Callable[[str], Run]]:
    """A run by the fetcher's name, cached."""
    made: dict[str, Run] = {}
    certifier = trustme.CA()
    with Loopback() as net:

        def run(name: str) -> Run:
            if name not in made:
                made[name] = _run(name, net, certifier, tmp_path_factory.mktemp(name))
            return made[name]

        yield run


def _run(name: str, net: Loopback, certifier: trustme.CA, folder: Path) -> Run:
    other = net.origin(TEXT.decode(), {"/t.json": text(body=FILE)})
    sites = {
        row.name: _site(net, row, certifier, f"127.7.{FETCHERS.index(name)}.{place}", other)
        for place, row in enumerate(ROWS, 1)
    }
    certifier.cert_pem.write_to_path(str(folder / "ca.pem"))
    urls = {row.name: f"{sites[row.name].url}{row.target}" for row in ROWS}
    store = f"sqlite:///{folder}/policies.sqlite"
    settings = BRIEF | {"store": store, "purposes": "tdm"}
    decided = ASKING[name](list(urls.values()), settings, folder)
    opened = open_store(store)
    assert opened is not None
    try:
        policies = {row.name: opened.get(origin_of(sites[row.name].url)) for row in ROWS}
    finally:
        opened.close()
    return Run(sites, other, {row.name: decided[urls[row.name]] for row in ROWS}, policies)


def _site(
    net: Loopback, row: Row, certifier: trustme.CA, address: str, other: RecordingOrigin
) -> RecordingOrigin:
    tls = None
    if row.tls:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certifier.issue_cert(address).configure_cert(tls)
    answer = moved(f"{other.url}/t.json") if row.leads_away else row.answer
    return net.origin(row.robots, {TDMREP_JSON: answer, **row.pages}, tls=tls, address=address)


# Tests of one run belong to one worker, which makes it once.
GROUPS = {name: pytest.mark.xdist_group(f"tdmrep-{name}") for name in FETCHERS}
CASES = [
    pytest.param(name, row, id=f"{name}-{row.name}", marks=GROUPS[name])
    for name in FETCHERS
    for row in ROWS
]


@pytest.mark.parametrize(("name", "row"), CASES)
def test_the_file_means_what_the_table_says(ran, name, row):
    run = ran(name)
    decided, policy = run.decided[row.name], run.policies[row.name]
    reservations = policy.reservations

    assert reservations.status == row.status, reservations
    assert reservations.failure.startswith(row.failure), reservations
    assert bool(reservations.failure) == (row.failure != ("",))
    assert decided["action"] == row.action, decided
    assert row.action == PASS or decided["reason"] == "usage-reserved"
    assert policy.trouble is None
    assert policy.document.via == name


@pytest.mark.parametrize(("name", "row"), CASES)
def test_the_site_is_asked_for_it_once_and_as_it_permits(ran, name, row):
    run = ran(name)
    site = run.sites[row.name]
    page = (row.target,) if row.action == PASS and name != "direct" else ()

    assert tuple(dict.fromkeys(site.targets)) == row.sees + page
    assert all(site.targets.count(target) <= row.most for target in row.sees)
    assert len(site.robots_fetches) == 1


@pytest.mark.parametrize("name", [pytest.param(name, marks=GROUPS[name]) for name in FETCHERS])
def test_no_redirect_of_it_reaches_another_site(ran, name):
    assert ran(name).other.received == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=GROUPS[name]) for name in FETCHERS])
def test_the_requests_carry_nothing_personal(ran, name):
    for site in ran(name).sites.values():
        for request in site.received:
            if request.target == TDMREP_JSON:
                assert not {"cookie", "authorization", "referer"} & set(request.headers)
