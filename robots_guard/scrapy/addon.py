"""The add-on: one line in a project's settings replaces Scrapy's RobotsTxtMiddleware by the guard.

    ADDONS = {"robots_guard.scrapy.Addon": 500}
    ROBOTS_GUARD_AGENT = "mybot"

Unusable settings end the process here, before any part of the crawl exists.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

# While this is imported, Scrapy examines each frame of the stack. Where our modules need it, the
# stack is deeper: that took 0.2 s longer.
import scrapy.core.downloader.handlers.http11  # noqa: F401
from scrapy.core.scheduler import BaseScheduler, Scheduler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.misc import load_object

from robots_guard.configuration.settings import CLOCKS, Settings, open_guard, signals_note
from robots_guard.decisions.component import Component
from robots_guard.errors import SettingsError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.overrides import read
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.scrapy.deferral.queue import GuardPriorityQueue
from robots_guard.scrapy.deferral.scheduler import GuardScheduler
from robots_guard.scrapy.errors import abort
from robots_guard.scrapy.links import RobotsGuardLinks
from robots_guard.scrapy.middleware import RobotsGuardMiddleware, RobotsGuardSeal
from robots_guard.scrapy.options import (
    ENABLED,
    FALLBACK_SCHEDULER,
    is_enabled,
    options_of,
    place_of_switch,
)
from robots_guard.scrapy.switches import find_switches

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

log = logging.getLogger("robots_guard")

PRIORITY = 100  # the same as RobotsTxtMiddleware
LAST = sys.maxsize
NEAREST_TO_SPIDER = 910  # behind DepthMiddleware, which would count dropped requests
_MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
_SCHEDULER = "SCHEDULER"
_QUEUE = "SCHEDULER_PRIORITY_QUEUE"
_ENFORCES = "enforces robots.txt"
_REPORTS = "refuses nothing, and records what robots.txt forbids (ROBOTS_GUARD_REPORT_ONLY = True)"
_BUILTIN = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"


class Addon:
    """Switches RobotsTxtMiddleware off and the guard on.

    ROBOTS_GUARD_ENABLED = False changes nothing.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy's hook. Ends the process if a setting is invalid."""
        try:
            if not is_enabled(settings):
                _report_off(settings)
                return
            guard_settings = options_of(settings).settings
            _check_resources(guard_settings)
            _install(settings, report_only=guard_settings.report_only)
            if note := signals_note(guard_settings):
                log.info("robots_guard: %s", note)
        except SettingsError as error:
            abort(error)


def _report_off(settings: BaseSettings) -> None:
    """Log where the guard was switched off: a WARNING if that is outside the project."""
    place = place_of_switch(settings)
    if place is None:
        log.info("%s is False: robots_guard is off, ROBOTSTXT_OBEY decides", ENABLED)
    else:
        log.warning("%s is false: robots_guard is off, ROBOTSTXT_OBEY decides", place)


def _check_resources(settings: Settings) -> None:
    """Open and close everything the guard needs while a failure can still be reported simply.

    Raises SettingsError.
    """
    if settings.overrides:  # only read here; the crawl's own guard reports faulty entries
        read(Path(settings.overrides).expanduser(), settings.terms(), CLOCKS.now())
    rest = msgspec.structs.replace(settings, overrides="")
    guard = open_guard(
        rest,
        component=Component.SCRAPY,
        runtime=AsyncioRuntime(),
        fetcher=ScriptedFetcher({}),
    )
    guard.close()


def _install(settings: BaseSettings, *, report_only: bool) -> None:
    switches = [] if _is_installed(settings) else list(find_switches(settings))
    _disable_builtin(settings)
    settings.setdefault_in_component_priority_dict(_MIDDLEWARES, RobotsGuardMiddleware, PRIORITY)
    settings.setdefault_in_component_priority_dict(_MIDDLEWARES, RobotsGuardSeal, LAST)
    settings.setdefault_in_component_priority_dict(
        "SPIDER_MIDDLEWARES", RobotsGuardLinks, NEAREST_TO_SPIDER
    )
    _require_enabled_middlewares(settings)
    _gate_scheduler(settings)
    effect = _REPORTS if report_only else _ENFORCES
    log.info("robots_guard %s; it replaces Scrapy's RobotsTxtMiddleware, which is off", effect)
    for sentence in switches:
        log.warning("%s", sentence)
    for name in _builtin_subclasses(settings):
        log.warning(
            "%s, a subclass of RobotsTxtMiddleware, stays on and fetches each robots.txt again: set it to None in %s",
            name,
            _MIDDLEWARES,
        )


def _is_installed(settings: BaseSettings) -> bool:
    """Whether the add-on has changed these settings already."""
    return RobotsGuardSeal in settings.getdict(_MIDDLEWARES)


def _gate_scheduler(settings: BaseSettings) -> None:
    """Replace Scrapy's own queue by GuardPriorityQueue, or wrap any other queue or scheduler in
    GuardScheduler."""
    scheduler, queue = load_object(settings[_SCHEDULER]), load_object(settings[_QUEUE])
    if scheduler is GuardScheduler or not issubclass(scheduler, BaseScheduler):
        return  # the latter is no scheduler, which Scrapy reports
    if scheduler is Scheduler and queue in (DownloaderAwarePriorityQueue, GuardPriorityQueue):
        _set(settings, _QUEUE, GuardPriorityQueue)
        return
    _set(settings, FALLBACK_SCHEDULER, settings[_SCHEDULER])
    _set(settings, _SCHEDULER, GuardScheduler)
    log.info("requests that may not be made yet are parked before %s", settings[FALLBACK_SCHEDULER])


def _set(settings: BaseSettings, name: str, value: Any) -> None:
    """Set a value, whatever the priority of the present one."""
    settings.set(name, value, max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES["addon"]))


def _disable_builtin(settings: BaseSettings) -> None:
    """Disable the built-in under the exact name that Scrapy's defaults use.

    Scrapy 2.14 does not recognise that a class and its import path name the same component.
    """
    middlewares = settings.getdict(_MIDDLEWARES)
    builtin = [
        component for component in middlewares if load_object(component) is RobotsTxtMiddleware
    ]
    for component in builtin:
        del middlewares[component]
    middlewares[_BUILTIN] = None
    settings.set(_MIDDLEWARES, middlewares, settings.getpriority(_MIDDLEWARES) or 0)


def _require_enabled_middlewares(settings: BaseSettings) -> None:
    """Raise SettingsError if a project disables the guard's middlewares: the built-in is already
    off."""
    for component, priority in settings.getdict(_MIDDLEWARES).items():
        if priority is None and load_object(component) in (RobotsGuardMiddleware, RobotsGuardSeal):
            raise SettingsError(
                f"{_MIDDLEWARES} switches the guard off: remove that line, or set {ENABLED} = False"
            )


def _builtin_subclasses(settings: BaseSettings) -> list[str]:
    """The import paths of the project's own enabled versions of the built-in."""
    return [
        f"{loaded.__module__}.{loaded.__qualname__}"
        for component, priority in settings.getdict(_MIDDLEWARES).items()
        if priority is not None
        and isinstance(loaded := load_object(component), type)
        and issubclass(loaded, RobotsTxtMiddleware)
    ]
