"""Refreshing an origin: a local user may refresh any, a remote user only public ones."""

from __future__ import annotations

import pytest

from robots_guard.app.console import Refresher
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.access import Failure
from robots_guard.origin import origin_of


@pytest.mark.parametrize("trusts_caller", [True, False])
async def test_private_origin_is_fetched_for_local_users_only(net, tmp_path, trusts_caller):
    site = net.origin("User-agent: *\nDisallow: /x\n")
    settings = Settings(
        agent="mybot",
        store=f"sqlite:///{tmp_path / 'policies.sqlite'}",
        audit_log=str(tmp_path / "audit_log"),
    )
    refresher = Refresher(settings, trusts_caller=trusts_caller)

    policy = await refresher(origin_of(site.url))
    refresher.close()

    assert len(site.robots_fetches) == trusts_caller
    assert (policy.trouble.failure if policy.trouble else None) == (
        None if trusts_caller else Failure.REFUSED
    )
