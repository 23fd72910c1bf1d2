"""A project's own download handler, derived from Scrapy's for httpx."""

from __future__ import annotations

from scrapy.core.downloader.handlers._httpx import HttpxDownloadHandler


class DerivedHandler(HttpxDownloadHandler):
    """Downloads as Scrapy's own handler does."""
