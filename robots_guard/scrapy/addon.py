"""The add-on: one line in a project's settings puts the guard in the place of Scrapy's RobotsTxtMiddleware.

    ADDONS = {"robots_guard.scrapy.Addon": 500}
    ROBOTS_GUARD_AGENT = "mybot"

Whatever cannot be used ends the process here, before anything of the crawl exists.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from scrapy.core.scheduler import Scheduler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.misc import load_object

from robots_guard.errors import SettingsError
from robots_guard.fetch.scripted import ScriptedFetcher
from robots_guard.overriding import read
from robots_guard.runtime import AsyncioRuntime
from robots_guard.scrapy.deferral.queue import GuardPriorityQueue
from robots_guard.scrapy.deferral.scheduler import GuardScheduler
from robots_guard.scrapy.errors import abort
from robots_guard.scrapy.middleware import RobotsGuardMiddleware
from robots_guard.scrapy.options import ENABLED, FALLBACK_SCHEDULER, is_enabled, is_explicit, options_of
from robots_guard.scrapy.sealing import RobotsGuardSeal
from robots_guard.settings import Settings, open_guard

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

log = logging.getLogger("robots_guard")

PLACE = 100  # that of RobotsTxtMiddleware
LAST = sys.maxsize
_MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
_SCHEDULER = "SCHEDULER"
_QUEUE = "SCHEDULER_PRIORITY_QUEUE"
_DOES = {
    "enforce": "enforces robots.txt",
    "report": "refuses nothing, and records what robots.txt forbids (ROBOTS_GUARD_MODE = report)",
}
_BUILTIN = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"


class Addon:
    """Switches RobotsTxtMiddleware off and the guard on. ROBOTS_GUARD_ENABLED = False leaves all as it is."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy's hook. Ends the process if a setting cannot be used."""
        try:
            if not is_enabled(settings):
                log.info("%s is False: robots_guard is off, ROBOTSTXT_OBEY decides", ENABLED)
                return
            ours = options_of(settings).settings
            _try_out(ours)
            _take_over(settings, _DOES[ours.mode])
        except SettingsError as error:
            abort(error)


def _try_out(settings: Settings) -> None:
    """Open and close all that the guard will need, while failing is still simple. Raises SettingsError."""
    if settings.overrides:  # read, and not opened with the rest: what is wrong in them the crawl's own guard tells
        read(Path(settings.overrides).expanduser(), settings.terms())
    rest = msgspec.structs.replace(settings, overrides="")
    open_guard(rest, door="scrapy", runtime=AsyncioRuntime(), fetcher=ScriptedFetcher({})).close()


def _take_over(settings: BaseSettings, does: str) -> None:
    _switch_builtin_off(settings)
    settings.setdefault_in_component_priority_dict(_MIDDLEWARES, RobotsGuardMiddleware, PLACE)
    settings.setdefault_in_component_priority_dict(_MIDDLEWARES, RobotsGuardSeal, LAST)
    _refuse_to_be_off(settings)
    _gate_scheduler(settings)
    log.info("robots_guard %s, in the place of Scrapy's RobotsTxtMiddleware, which is off", does)
    if is_explicit(settings, "ROBOTSTXT_OBEY") and not settings.getbool("ROBOTSTXT_OBEY"):
        log.warning("ROBOTSTXT_OBEY is False, but robots_guard enforces robots.txt: set %s = False to stop it", ENABLED)
    for name in _subclasses(settings):
        log.warning(
            "%s, a subclass of RobotsTxtMiddleware, stays on and fetches each robots.txt again: set it to None in %s",
            name,
            _MIDDLEWARES,
        )


def _gate_scheduler(settings: BaseSettings) -> None:
    """Our queue in the place of Scrapy's own; around any other queue or scheduler, ours."""
    scheduler, queue = load_object(settings[_SCHEDULER]), load_object(settings[_QUEUE])
    if scheduler is GuardScheduler:
        return
    if scheduler is Scheduler and queue in (DownloaderAwarePriorityQueue, GuardPriorityQueue):
        _set(settings, _QUEUE, GuardPriorityQueue)
        return
    _set(settings, FALLBACK_SCHEDULER, settings[_SCHEDULER])
    _set(settings, _SCHEDULER, GuardScheduler)
    log.info("requests that may not be made yet are parked before %s", settings[FALLBACK_SCHEDULER])


def _set(settings: BaseSettings, name: str, value: Any) -> None:
    """Set it, whoever has set it before."""
    settings.set(name, value, max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES["addon"]))


def _switch_builtin_off(settings: BaseSettings) -> None:
    """By the very name Scrapy's defaults give it: 2.14 does not see that a class and its name are the same."""
    middlewares = settings.getdict(_MIDDLEWARES)
    for component in [one for one in middlewares if load_object(one) is RobotsTxtMiddleware]:
        del middlewares[component]
    middlewares[_BUILTIN] = None
    settings.set(_MIDDLEWARES, middlewares, settings.getpriority(_MIDDLEWARES) or 0)


def _refuse_to_be_off(settings: BaseSettings) -> None:
    """Two switches for one thing would be one too many: the built-in is off by now."""
    for component, place in settings.getdict(_MIDDLEWARES).items():
        if place is None and load_object(component) in (RobotsGuardMiddleware, RobotsGuardSeal):
            raise SettingsError(f"{_MIDDLEWARES} switches the guard off: take that line out, or set {ENABLED} = False")


def _subclasses(settings: BaseSettings) -> list[str]:
    """The user's own versions of the built-in."""
    return [
        f"{loaded.__module__}.{loaded.__qualname__}"
        for component, place in settings.getdict(_MIDDLEWARES).items()
        if place is not None
        and isinstance(loaded := load_object(component), type)
        and issubclass(loaded, RobotsTxtMiddleware)
    ]
