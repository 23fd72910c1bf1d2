"""Switches: settings by which a project had robots.txt switched off, or chose another parser.

They have no effect while the add-on is on, so each is reported with its remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from robots_guard.scrapy.options import ENABLED, PREFIX, is_explicit
from robots_guard.scrapy.robot_parser import RobotParser

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_OBEY = "ROBOTSTXT_OBEY"
_PARSER = "ROBOTSTXT_PARSER"
_MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
_PLACES = {
    SETTINGS_PRIORITIES["project"]: "the project",
    SETTINGS_PRIORITIES["spider"]: "the spider (custom_settings)",
    SETTINGS_PRIORITIES["cmdline"]: "the command line",
}
_REMEDY = f"robots_guard judges its requests anyway: set {ENABLED} = False to switch it off"


def find_switches(settings: BaseSettings) -> Iterator[str]:
    """Find the settings that have no effect any more, each as a sentence with its remedy.

    The settings must be those of the project: the add-on has not changed them yet.
    """
    if is_explicit(settings, _OBEY) and not settings.getbool(_OBEY):
        yield f"{_OBEY} is False in the settings of {_place(settings, _OBEY)}, but {_REMEDY}"
    for name in (_MIDDLEWARES, f"{_MIDDLEWARES}_BASE"):
        if is_explicit(settings, name) and _lacks_builtin(settings, name):
            yield (
                f"{name} switches RobotsTxtMiddleware off in the settings of"
                f" {_place(settings, name)}, but {_REMEDY}"
            )
    if is_explicit(settings, _PARSER) and not _is_ours(settings[_PARSER]):
        yield (
            f"{_PARSER} = {_name(settings[_PARSER])} in the settings of {_place(settings, _PARSER)} has no"
            " effect, because robots_guard reads each robots.txt by its own engine: remove it."
            f" {PREFIX}DIALECT and {PREFIX}MATCHING say how files are read"
        )


def _lacks_builtin(settings: BaseSettings, name: str) -> bool:
    """Whether a setting of middlewares switches the built-in off, or replaces Scrapy's list by one
    without it."""
    places = [
        place
        for component, place in settings.getdict(name).items()
        if load_object(component) is RobotsTxtMiddleware
    ]
    if not places:
        return name.endswith("_BASE")
    return None in places


def _is_ours(parser: Any) -> bool:
    loaded = load_object(parser)
    return isinstance(loaded, type) and issubclass(loaded, RobotParser)


def _name(parser: Any) -> str:
    if isinstance(parser, str):
        return repr(parser)
    return global_object_name(parser)


def _place(settings: BaseSettings, name: str) -> str:
    """The settings that a value is from, in words."""
    return _PLACES.get(settings.getpriority(name) or 0, "the crawl")
