"""The mitmproxy integration: judges every request of any crawler before it reaches an origin. A
flow enters in `enforcer`, which names the gates that it passes.

`RobotsGuard` is the addon for `mitmdump -s` and for custom masters; `robots-guard proxy` is the
ready-made command. docs/proxy.md is the user documentation.
"""

from robots_guard.errors import MissingExtra

try:
    import mitmproxy  # noqa: F401  (imported here, so that its absence is reported in one clear sentence)
except ImportError as error:
    raise MissingExtra("proxy", "the proxy") from error

from robots_guard.mitmproxy.addon import RobotsGuard

__all__ = ["RobotsGuard"]
