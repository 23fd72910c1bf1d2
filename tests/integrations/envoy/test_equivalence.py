"""The equivalence table inside TLS behind Envoy: the same verdicts as all integrations give."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import trustme
from integrations.envoy.inspection import NamedSites, inspecting
from integrations.mitmproxy.wire import inside
from integrations.table import PAGES, PASS, ROBOTS_TXT, ROWS

from robots_guard.testing import Loopback

BRIEF = {
    "fetch_timeout": "10",
    "audit": "all",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The site of each row, and the first record of each URL."""
    folder = tmp_path_factory.mktemp("envoy")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "origins.pem"))
    with Loopback() as net:
        sites = NamedSites(net, authority)
        started = {row.name: sites.start("https", row.robots, PAGES) for row in ROWS}
        # The control comes first: a deferral of the target would hold it back.
        asked = [
            (started[row.name], target)
            for row in ROWS
            for target in dict.fromkeys((row.control, row.target))
        ]
        with (
            inspecting(folder, folder / "origins.pem", **BRIEF) as integration,
            ThreadPoolExecutor(4) as pool,
        ):
            list(pool.map(lambda each: inside(integration, each[0].authority, each[1]), asked))
            records = {record["url"]: record for record in reversed(integration.records())}
        sites.close()
        yield started, records


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_the_verdict_matches_the_table(run, row):
    sites, records = run
    site = sites[row.name]
    record = records[f"{site.url}{row.target}"]
    assert (record["action"], record["reason"]) == (row.action, row.reason)
    assert records[f"{site.url}{row.control}"]["action"] == PASS
    allowed = {row.control, *([row.target] if row.action == PASS else [])}
    assert set(site.origin.targets) - set(PAGES) == allowed - {ROBOTS_TXT}
