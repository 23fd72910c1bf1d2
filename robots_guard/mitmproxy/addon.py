"""The addon for users: it only installs the enforcer at the end of the addon chain, once.

A script of `mitmdump -s` is reloaded when its file changes and unloaded when its file is removed,
and it is in the middle of the chain, before addons that rewrite requests. None of this may happen
to the enforcer.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from mitmproxy import addonmanager, ctx, exceptions

from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.options import apply_safe_defaults
from robots_guard.mitmproxy.patches import install_in
from robots_guard.mitmproxy.patches.write_check import set_gate


class RobotsGuard:
    """Makes mitmproxy obey robots.txt.

    `mitmdump -s examples/mitmproxy_addon.py --set robots_guard_agent=mybot`, where the file says
    `addons = [RobotsGuard()]`; or `master.addons.add(RobotsGuard())`. Options are `robots_guard_`
    and a name from docs/settings.md. A refused request gets a response with the reason; nothing of
    it reaches an origin. The enforcer outlives the script that installed it: to remove it, restart
    the proxy.
    """

    name = "robots_guard"

    def load(self, loader: addonmanager.Loader) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Install the enforcer, unless an earlier load did."""
        if ctx.master.addons.get(Enforcer.name) is None:
            install(Enforcer())

    def configure(self, updated: AbstractSet[str]) -> None:
        """Pass the hook on: an addon that a script loads gets its options only through the script."""
        self._enforcer().configure(updated)

    def running(self) -> None:
        """Pass the hook on, if the script is loaded after the start."""
        self._enforcer().running()

    def _enforcer(self) -> Enforcer:
        found = ctx.master.addons.get(Enforcer.name)
        assert isinstance(found, Enforcer)
        return found


def install(enforcer: Enforcer) -> None:
    """Install an enforcer in the addon chain first, so that a fault in its options makes it refuse everything."""
    addons = ctx.master.addons
    addons.chain.append(enforcer)
    apply_safe_defaults(ctx.options)
    install_in(ctx.master)
    set_gate(ctx.master, enforcer.write_gate)
    try:
        addons.register(enforcer)
    except exceptions.OptionsError as error:
        addons.lookup.setdefault(enforcer.name, enforcer)
        for name in set(ctx.options.deferred) & ctx.options.keys():
            del ctx.options.deferred[name]  # otherwise registering the next addon would fail on it
        enforcer.refuse_everything(f"an option of robots_guard cannot be read: {error}")
