"""A proxy whose disk is full: nothing is forwarded without its record, and it recovers by itself."""

from __future__ import annotations

import resource

from integrations.mitmproxy.conftest import get

UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_a_full_disk_stops_requests_until_it_recovers(start, http_site):
    """No file of the process can grow any more (RLIMIT_FSIZE), as on a full disk."""
    with start("mitmdump", audit="all") as integration:
        assert get(integration, http_site, "/open").status == 200
        seen = len(http_site.origin.received)
        before = len(integration.records())
        resource.prlimit(
            integration.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)
        )
        answers = [get(integration, http_site, f"/open-{number}") for number in range(3)]
        refused = get(integration, http_site, "/private/x")
        resource.prlimit(integration.process.pid, resource.RLIMIT_FSIZE, UNLIMITED)

        assert [
            (answer.status, answer.guard.partition(";")[2].partition(";")[0]) for answer in answers
        ] == [(503, " reason=unrecorded")] * 3
        assert refused.status == 403
        assert len(http_site.origin.received) == seen
        assert get(integration, http_site, "/open-again").status == 200
        new = integration.records()[before:]
        assert [record["url"].rpartition("/")[2] for record in new] == ["open-again"]
        assert new[0]["seq"] > before + 4
