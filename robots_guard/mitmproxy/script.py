"""The script for `mitmdump -s`: mitmproxy reads `addons` from it."""

from robots_guard.mitmproxy.addon import RobotsGuard

addons = [RobotsGuard()]
