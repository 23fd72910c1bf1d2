"""The components of this project that open a guard, as settings and records name them."""

from __future__ import annotations

from enum import StrEnum


class Component(StrEnum):
    """A component of this project. Another integration gives its guard a name of its own."""

    SCRAPY = "scrapy"
    PROXY = "proxy"
    SERVE = "serve"  # the decision service behind Envoy or Squid
    CLI = "cli"
    CONSOLE = "console"
    PYTHON = "python"  # a program that asks by the Python API
    HTTPX = "httpx"
    AIOHTTP = "aiohttp"


#: The components that only answer: they request no page.
ANSWERING = (Component.CLI, Component.CONSOLE)
#: The components that hand a demand for payment to their client, which can answer it.
PAYING = frozenset(Component) - {Component.SCRAPY, *ANSWERING}
#: The components between clients and sites. Their operator is not their user, so that by default
#: they refuse what they cannot record.
PROXIES = (Component.PROXY, Component.SERVE)
