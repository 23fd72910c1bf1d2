"""The replaced methods of Scrapy and Twisted have known sources: a change of one fails here."""

from __future__ import annotations

import inspect

from support.digests import changed_methods
from twisted.web.client import HTTPConnectionPool

from robots_guard.scrapy import patches


def test_replaced_methods_have_known_sources():
    """If one differs: read what has changed, see whether the patch is still right and still needed, and add the digest
    to it."""
    assert changed_methods(patches.PATCHES) == {}


def test_a_pool_still_makes_its_connections_by_its_factory():
    assert "self._factory(" in inspect.getsource(HTTPConnectionPool._newConnection)
