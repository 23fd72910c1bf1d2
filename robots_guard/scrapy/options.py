"""The guard's settings, read from Scrapy's and from the configuration.

Every setting of `robots_guard.configuration.settings` is named `ROBOTS_GUARD_` and its name in capitals; a few
more exist only here. What a project does not set comes from the configuration: files and the
environment. An invalid or unknown setting raises SettingsError; none is ignored.
"""

from __future__ import annotations

import re
import weakref
from typing import Any, Literal, NamedTuple

import scrapy.settings.default_settings
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from robots_guard.configuration import (
    Configuration,
    ScrapySection,
    own_options,
    read_configuration,
    section_from,
    settings_from,
)
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.component import Component
from robots_guard.errors import SettingsError
from robots_guard.protocol.robots import NAME

PREFIX = "ROBOTS_GUARD_"
ENABLED = PREFIX + "ENABLED"
FALLBACK_SCHEDULER = PREFIX + "FALLBACK_SCHEDULER"
CONFIG = PREFIX + "CONFIG"
_SPELLING = PREFIX + "{}"
# seconds; long, because downloads that bypass the scheduler (media) delay no other request
HOLD_MAX = 60.0

# a token, with an optional version and comment
_PRODUCT = re.compile(rf"({NAME})(/\S+)?(\s+\(.*\))?\s*")
_SCRAPY_HANDLERS = "scrapy.core.downloader.handlers."


class ScrapyOptions(NamedTuple):
    """The options of one crawl: the guard's settings, and those that only Scrapy has."""

    settings: Settings
    meta_bypass: Literal["audit", "deny"]
    max_idle: float
    tls_verified: bool


def is_enabled(settings: BaseSettings) -> bool:
    """The value of ROBOTS_GUARD_ENABLED. Raises SettingsError if it is not a boolean.

    If a project sets it, nothing else is read, so that an unusable file can be switched off, too.
    """
    if settings.get(ENABLED) is None:
        return section_from(_configuration(settings), {}, _SPELLING, ScrapySection).enabled
    try:
        return settings.getbool(ENABLED, True)
    except ValueError as error:
        raise SettingsError(
            f"{ENABLED} = {settings[ENABLED]!r} is not a boolean: use True or False"
        ) from error


def place_of_switch(settings: BaseSettings) -> str | None:
    """Where the configuration says whether the add-on is enabled; None if a project does, or
    nothing."""
    found = _configuration(settings).values.get("enabled")
    if found is None or settings.get(ENABLED) is not None:
        return None
    return found.source.spell("enabled")


def options_of(settings: BaseSettings) -> ScrapyOptions:
    """The validated options of a crawl. Raises SettingsError."""
    values = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in settings.items()
        if isinstance(name, str)
        and name.startswith(PREFIX)
        and name not in (ENABLED, FALLBACK_SCHEDULER, CONFIG)
        and value is not None
    }
    own = {name: values.pop(name) for name in own_options(Component.SCRAPY) if name in values}
    configuration = _configuration(settings)
    defaults: dict[str, Any] = {"hold_max": HOLD_MAX}
    if not values.get("agent"):
        values.pop("agent", None)
        if "agent" not in configuration.values:
            defaults["agent"] = _product(settings.get("ROBOTSTXT_USER_AGENT"))
    section = section_from(configuration, own, _SPELLING, ScrapySection)
    return ScrapyOptions(
        settings=settings_from(configuration, values, _SPELLING, defaults=defaults),
        meta_bypass=section.meta_bypass,
        max_idle=section.max_idle,
        tls_verified=verifies_tls(settings),
    )


def _configuration(settings: BaseSettings) -> Configuration:
    """What files and the environment say. ROBOTS_GUARD_CONFIG among the settings names the file.

    They are read once for a crawl: its parts must not disagree, for example on whether the guard is
    on, because the working directory or a file has changed meanwhile.
    """
    config = settings.get(CONFIG)
    key = id(settings)
    read = _READ.get(key)
    if read is None or read[0] != config:
        if read is None:
            weakref.finalize(settings, _READ.pop, key, None)
        _READ[key] = read = config, read_configuration(Component.SCRAPY, config=config)
    return read[1]


#: What was read for each settings object that is in use, and the name of the file to read.
_READ: dict[int, tuple[str | None, Configuration]] = {}


def can_enforce_signals(settings: Settings) -> bool:
    """Whether the signals of some site may be enforced. An override can declare purposes, too."""
    return settings.enforces_signals or bool(settings.overrides)


def _product(user_agent: Any) -> str:
    """The product token of ROBOTSTXT_USER_AGENT; "" if it is not set."""
    if not user_agent:
        return ""
    found = _PRODUCT.fullmatch(str(user_agent))
    # every browser sends that, so it identifies no crawler
    if found is None or found[1].lower() == "mozilla":
        raise SettingsError(
            f"ROBOTSTXT_USER_AGENT = {user_agent!r} contains no product token:"
            f" set {PREFIX}AGENT to the crawler's own, such as 'mybot'"
        )
    return found[1]


def is_explicit(settings: BaseSettings, name: str) -> bool:
    """Whether a project, a spider or the command line has set a setting."""
    return (settings.getpriority(name) or 0) >= SETTINGS_PRIORITIES["project"]


def verifies_tls(settings: BaseSettings) -> bool:
    """Whether this crawl certainly verifies certificates.

    Scrapy does not by default, and a handler that is not Scrapy's own is assumed not to.
    """
    handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
    path = handler if isinstance(handler, str) else f"{getattr(handler, '__module__', '')}."
    if not path.startswith(_SCRAPY_HANDLERS):
        return False
    if is_explicit(settings, "DOWNLOADER_CLIENTCONTEXTFACTORY"):
        return settings["DOWNLOADER_CLIENTCONTEXTFACTORY"] == _BROWSER_LIKE and "._" not in path
    # since Scrapy 2.15
    has_setting = hasattr(scrapy.settings.default_settings, "DOWNLOAD_VERIFY_CERTIFICATES")
    return has_setting and settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES")


_BROWSER_LIKE = "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
