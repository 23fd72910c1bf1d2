"""The configuration: files and the environment, read in the same way by every command and
integration.

`read_configuration` reads them for one component. `settings_from` builds settings from them and
from what that component itself was given, such as options, which win.
"""

from __future__ import annotations

from robots_guard.configuration.configuration import (
    Configuration,
    read_configuration,
    section_from,
    settings_from,
    shown,
    value_from,
)
from robots_guard.configuration.sections import (
    SECTIONS,
    ConsoleSection,
    ProxySection,
    ScrapySection,
    ServeSection,
    own_options,
)
from robots_guard.configuration.source import Source, Value

__all__ = [
    "SECTIONS",
    "Configuration",
    "ConsoleSection",
    "ProxySection",
    "ScrapySection",
    "ServeSection",
    "Source",
    "Value",
    "own_options",
    "read_configuration",
    "section_from",
    "settings_from",
    "shown",
    "value_from",
]
