"""The components of this project that open a guard, as settings and records name them."""

from __future__ import annotations

from enum import StrEnum


class Component(StrEnum):
    """A component of this project. Another integration gives its guard a name of its own."""

    SCRAPY = "scrapy"
    PROXY = "proxy"
    CLI = "cli"
    CONSOLE = "console"
    PYTHON = "python"  # a program that asks by the Python API
    HTTPX = "httpx"
    AIOHTTP = "aiohttp"


#: The components that hand a demand for payment to their client, which can answer it.
PAYING = frozenset((Component.PROXY, Component.PYTHON, Component.HTTPX, Component.AIOHTTP))
