"""Patches: replacements of methods of Scrapy and Twisted: in the objects of one crawler, or in the class
if Scrapy makes its objects anew for each request (`response_status`).

Each module is one patch (`robots_guard.gateway.patch`). Where Scrapy has a setting for a class of
its own, such as its priority queue and its scheduler, a subclass is used instead: `deferral` has
those.
"""

from __future__ import annotations

from robots_guard.scrapy.patches import (
    connection_bytes,
    downloader_fetch,
    fetch_signals,
    handler_hook,
    response_status,
)

#: Each is installed by the module that needs it, most of them when the spider opens.
PATCHES = (
    *downloader_fetch.PATCHES,
    *fetch_signals.PATCHES,
    *handler_hook.PATCHES,
    *connection_bytes.PATCHES,
    *response_status.PATCHES,
)
