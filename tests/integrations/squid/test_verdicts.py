"""A real Squid refuses what robots.txt forbids, in plain HTTP and inside TLS."""

from __future__ import annotations

import json

from integrations.squid.conftest import get


def test_a_forbidden_page(integration, site):
    answer = get(integration, site, "/private/x")
    assert (answer.status, "disallowed" in answer.guard) == (403, True)
    assert json.loads(answer.body)["url"] == f"{site.url}/private/x"
    assert site.origin.targets == []


def test_an_allowed_page(integration, site):
    assert get(integration, site, "/open").status == 200
    assert site.origin.targets == ["/open"]
