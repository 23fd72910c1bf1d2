"""The addon that users name: it plants the enforcer at the end of the chain, once, and has nothing else to do.

A script of `mitmdump -s` is reloaded when its file changes and dropped when its file goes, and it sits in the
middle of the chain, before addons that rewrite requests. What enforces must do none of this.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from mitmproxy import addonmanager, ctx, exceptions

from robots_guard.mitmproxy.bounds import set_bounds
from robots_guard.mitmproxy.dispatch import quicken
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.options import force
from robots_guard.mitmproxy.patches import clients, crashes, interim, received, resets, streams, trailers
from robots_guard.mitmproxy.uploads import let_go


class RobotsGuard:
    """Makes mitmproxy obey robots.txt.

    `mitmdump -s examples/mitmproxy_addon.py --set robots_guard_agent=mybot`, where the file says
    `addons = [RobotsGuard()]`; or `master.addons.add(RobotsGuard())`. Options are `robots_guard_` and a name of
    docs/settings.md. Requests that are refused get an answer that says why; nothing of them reaches an origin.
    The enforcer outlives the script it came by: taking it away takes a restart of the proxy.
    """

    name = "robots_guard"

    def load(self, loader: addonmanager.Loader) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Plant the enforcer, unless an earlier load did."""
        if ctx.master.addons.get(Enforcer.name) is None:
            plant(Enforcer())

    def configure(self, updated: AbstractSet[str]) -> None:
        """An addon loaded by a script hears of its options only through the script."""
        self._enforcer().configure(updated)

    def running(self) -> None:
        """... and of the start, if it is loaded later."""
        self._enforcer().running()

    def _enforcer(self) -> Enforcer:
        found = ctx.master.addons.get(Enforcer.name)
        assert isinstance(found, Enforcer)
        return found


def plant(enforcer: Enforcer) -> None:
    """Put an enforcer into the chain before anything can go wrong: a fault in its options shuts it, no more."""
    addons = ctx.master.addons
    addons.chain.append(enforcer)
    force(ctx.options)
    let_go()
    set_bounds()
    for patch in (crashes, interim, received, resets, streams, trailers):
        patch.apply()
    quicken(addons)
    clients.set_gate(ctx.master, enforcer.write_gate)
    try:
        addons.register(enforcer)
    except exceptions.OptionsError as error:
        addons.lookup.setdefault(enforcer.name, enforcer)
        for name in set(ctx.options.deferred) & ctx.options.keys():
            del ctx.options.deferred[name]  # or the next addon to be registered fails by it
        enforcer.shut(f"an option of robots_guard cannot be read: {error}")
