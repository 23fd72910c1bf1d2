"""Decision services for tests."""

from __future__ import annotations

import pytest

from robots_guard.configuration.settings import ProxySettings
from robots_guard.serve.service import DecisionService


@pytest.fixture
async def serve(tmp_path):
    """A function that opens a service, which is closed after the test."""
    opened = []

    def build(
        listening=tuple, on_decision=lambda _: None, max_held=100, **given
    ) -> DecisionService:
        usual = {
            "agent": "mybot",
            "store": "memory:",
            "audit_log": str(tmp_path / "audit_log"),
            "audit": "all",
            "allow_private": "127.0.0.0/8",
            "connect_ports": "1-65535",
        }
        service = DecisionService(
            ProxySettings(**usual | given),
            listening=listening,
            on_decision=on_decision,
            max_held=max_held,
        )
        opened.append(service)
        return service

    yield build
    for each in opened:
        await each.close()
