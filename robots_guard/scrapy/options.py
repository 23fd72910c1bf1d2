"""Scrapy's settings, read as ours.

Every setting of `robots_guard.settings` is `ROBOTS_GUARD_` and its name in capitals; three more exist only here.
What cannot be used raises SettingsError; nothing is ignored.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import scrapy.settings.default_settings
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from robots_guard.errors import SettingsError
from robots_guard.settings import Settings, settings_of

PREFIX = "ROBOTS_GUARD_"
ENABLED = PREFIX + "ENABLED"
META_BYPASS = PREFIX + "META_BYPASS"
FALLBACK_SCHEDULER = PREFIX + "FALLBACK_SCHEDULER"
HOLD_MAX = 60.0  # seconds: who has downloads past the scheduler (media) wants them, and Scrapy has time

_PRODUCT = re.compile(r"([A-Za-z_-]+)(/\S+)?(\s+\(.*\))?\s*")  # a token, perhaps a version, perhaps a comment
_OWN_HANDLERS = "scrapy.core.downloader.handlers."


class Options(NamedTuple):
    """What a crawl's settings say to us."""

    settings: Settings
    meta_bypass: Literal["audit", "deny"]
    tls_verified: bool


def is_enabled(settings: BaseSettings) -> bool:
    """ROBOTS_GUARD_ENABLED; raises SettingsError for a value that is no switch."""
    try:
        return settings.getbool(ENABLED, True)
    except ValueError as error:
        raise SettingsError(f"{ENABLED} = {settings[ENABLED]!r} is no switch: use True or False") from error


def options_of(settings: BaseSettings) -> Options:
    """All of them, checked. Raises SettingsError."""
    values = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in settings.items()
        if isinstance(name, str)
        and name.startswith(PREFIX)
        and name not in (ENABLED, META_BYPASS, FALLBACK_SCHEDULER)
        and value is not None
    }
    values.setdefault("hold_max", HOLD_MAX)
    if not values.get("agent"):
        values["agent"] = _product(settings.get("ROBOTSTXT_USER_AGENT"))
    return Options(
        settings=settings_of(values, spelling=PREFIX + "{}"),
        meta_bypass=_meta_bypass(settings.get(META_BYPASS)),
        tls_verified=verifies_tls(settings),
    )


def _meta_bypass(value: Any) -> Literal["audit", "deny"]:
    match value:
        case None | "audit":
            return "audit"
        case "deny":
            return "deny"
        case _:
            raise SettingsError(f"{META_BYPASS} = {value!r} is not known: use 'audit' or 'deny'")


def _product(user_agent: Any) -> str:
    """The product token of ROBOTSTXT_USER_AGENT; "" if it is not set."""
    if not user_agent:
        return ""
    found = _PRODUCT.fullmatch(str(user_agent))
    if found is None or found[1].lower() == "mozilla":  # a browser's mask names nobody
        raise SettingsError(
            f"ROBOTSTXT_USER_AGENT = {user_agent!r} names no product token:"
            f" set {PREFIX}AGENT to the crawler's own, such as 'mybot'"
        )
    return found[1]


def is_explicit(settings: BaseSettings, name: str) -> bool:
    """Whether a project, a spider or the command line has set this."""
    return (settings.getpriority(name) or 0) >= SETTINGS_PRIORITIES["project"]


def verifies_tls(settings: BaseSettings) -> bool:
    """Whether this crawl certainly verifies certificates. Scrapy does not by itself; what we do not know does not."""
    handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
    path = handler if isinstance(handler, str) else f"{getattr(handler, '__module__', '')}."
    if not path.startswith(_OWN_HANDLERS):
        return False
    if is_explicit(settings, "DOWNLOADER_CLIENTCONTEXTFACTORY"):
        return settings["DOWNLOADER_CLIENTCONTEXTFACTORY"] == _BROWSER_LIKE and "._" not in path
    known = hasattr(scrapy.settings.default_settings, "DOWNLOAD_VERIFY_CERTIFICATES")  # since Scrapy 2.15
    return known and settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES")


_BROWSER_LIKE = "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
