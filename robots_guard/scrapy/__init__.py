"""The Scrapy integration judges each request of a crawl before it is made, and once more before it is
sent. A request enters in `middleware`, which names the modules that it passes.

Set `ADDONS = {"robots_guard.scrapy.Addon": 500}` and `ROBOTS_GUARD_AGENT = "mybot"`.
"""

from __future__ import annotations

from robots_guard.errors import MissingExtra

try:
    import scrapy  # noqa: F401  (imported here so that a missing Scrapy gives one clear error)
except ImportError as error:
    raise MissingExtra("scrapy", "the Scrapy add-on") from error

from robots_guard.scrapy.addon import Addon
from robots_guard.scrapy.deferral.queue import GuardPriorityQueue
from robots_guard.scrapy.deferral.scheduler import GuardScheduler
from robots_guard.scrapy.errors import (
    RobotsDeferred,
    RobotsDisallowed,
    RobotsRefused,
    RobotsSignalled,
)
from robots_guard.scrapy.links import RobotsGuardLinks
from robots_guard.scrapy.middleware import RobotsGuardMiddleware, RobotsGuardSeal
from robots_guard.scrapy.robot_parser import RobotParser

__all__ = [
    "Addon",
    "GuardPriorityQueue",
    "GuardScheduler",
    "RobotParser",
    "RobotsDeferred",
    "RobotsDisallowed",
    "RobotsGuardLinks",
    "RobotsGuardMiddleware",
    "RobotsGuardSeal",
    "RobotsRefused",
    "RobotsSignalled",
]
