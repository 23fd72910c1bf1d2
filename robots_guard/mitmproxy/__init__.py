"""The mitmproxy door: every request of any crawler is judged before an origin hears of it.

`RobotsGuard` is the addon, for `mitmdump -s` and for masters of one's own; `robots-guard proxy` is the ready
command. docs/proxy.md is the page for users.
"""

from robots_guard.errors import MissingExtra

try:
    import mitmproxy  # noqa: F401  (asked for here, so that its absence is one clear sentence)
except ImportError as error:
    raise MissingExtra("proxy", "the proxy") from error

from robots_guard.mitmproxy.addon import RobotsGuard

__all__ = ["RobotsGuard"]
