"""A plugin of pytest that installs the patches of the mitmproxy addon, and a gate that permits all.

Without a gate, the patches of the writers do nothing.
"""

from __future__ import annotations

from mitmproxy import ctx

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import ADDON_PATCHES, write_check

# It replaces the private `_gates`: the tests of mitmproxy make their masters themselves.


class _Permissive:
    """A gate that writes each request as it is."""

    def objection(self, request, client):
        return None

    def outgoing(self, request, client, server, *, has_body, is_http1):
        return request


class _OfAll:
    """The gates of all masters, of which each is the same."""

    def __init__(self) -> None:
        self._gate = _Permissive()

    def get(self, master):
        return self._gate


def pytest_configure(config):
    if not hasattr(ctx, "master"):
        ctx.master = None  # tests of single layers have none
    install_patches(ADDON_PATCHES)
    write_check._gates = _OfAll()
