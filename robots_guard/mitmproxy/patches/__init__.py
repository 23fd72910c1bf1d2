"""Patches: replacements of mitmproxy methods that are wrong for a proxy that must not fail open.

Each module has the patches (`robots_guard.gateway.patch`) of one subject. `events` has none: it is
what the others share.
"""

from __future__ import annotations

from mitmproxy.master import Master

from robots_guard.gateway.patch import install_patches
from robots_guard.mitmproxy.patches import (
    addon_dispatch,
    connections,
    crashes,
    http1,
    http2,
    http_requests,
    http_responses,
    shortcuts,
    write_check,
)

#: Installed wherever the addon is, also in a mitmdump. Of two replacements of one method, the later
#: one calls the earlier one.
ADDON_PATCHES = (
    *write_check.PATCHES,
    *http1.PATCHES,
    *http2.PATCHES,
    *http_requests.PATCHES,
    *http_responses.PATCHES,
    *crashes.PATCHES,
    *connections.PATCHES,
    *addon_dispatch.PATCHES,
)
#: Installed by `robots-guard proxy`, too, before those.
COMMAND_PATCHES = shortcuts.PATCHES


def install_in(master: Master) -> None:
    """Install the patches of the addon: in this process, and in the addon manager of this master.

    The resolution of names is replaced in an event loop by its first check.
    """
    install_patches(ADDON_PATCHES)
    addon_dispatch.cache_handlers(master.addons)
