"""The factory of gates: configuration in, a gate with an open guard out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robots_guard.client.gate import Gate
from robots_guard.configuration import read_configuration, settings_from
from robots_guard.core.component import Component
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.settings import CLOCKS, Settings, direct_fetcher, open_guard


def open_gate(
    component: Component, agent: str | None, config: str | None, given: Mapping[str, Any]
) -> Gate:
    """Open the guard of one component. `given` are settings, which win over the configuration.

    The caller is trusted with its addresses, as on the command line. Raises SettingsError.
    """
    settings = _settings(component, agent, config, given)
    guard = open_guard(
        settings,
        component=component,
        runtime=AsyncioRuntime(),
        fetcher=direct_fetcher(settings, trusts_caller=True),
    )
    return Gate(guard, settings, CLOCKS)


def _settings(
    component: Component, agent: str | None, config: str | None, given: Mapping[str, Any]
) -> Settings:
    values = dict(given)
    if agent is not None:
        values["agent"] = agent
    return settings_from(read_configuration(component, config=config), values)
