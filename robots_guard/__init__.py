"""robots_guard enforces robots.txt, inside Scrapy and as a proxy in front of any other crawler.

`open` and `open_sync` open a guard for a program of your own (docs/python.md). The other public names
follow, sorted. The integrations are in `robots_guard.scrapy`, `robots_guard.mitmproxy`,
`robots_guard.httpx` and `robots_guard.aiohttp`.

A name is imported when it is first used, so `import robots_guard` itself takes little time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; at run time, _MODULES says the same
    from robots_guard.client.async_guard import AsyncGuard, Permission

    # Not in __all__, because a star import would hide the built-in function.
    from robots_guard.client.async_guard import open as open  # noqa: A004  called as robots_guard.open
    from robots_guard.client.gate import Passage
    from robots_guard.client.sync_guard import SyncGuard, SyncPassage, open_sync
    from robots_guard.configuration.settings import Settings, open_guard, settings_of
    from robots_guard.decisions.access import Access, Failed, Failure, Fetched, Get, Limits
    from robots_guard.decisions.policy import Document, FetchTrouble, Policy
    from robots_guard.decisions.reasons import Reason
    from robots_guard.decisions.robots_file import RobotsFile
    from robots_guard.decisions.verdict import Action, Decision, Question, RuleRef, Terms, Verdict
    from robots_guard.errors import (
        AuditLogError,
        ClosedGuard,
        MalformedURL,
        MissingExtra,
        NotGoverned,
        RobotsGuardError,
        SettingsError,
        StoreError,
    )
    from robots_guard.gateway.errors import (
        RequestDeferred,
        RequestDisallowed,
        RequestRefused,
        ResponseRefused,
    )
    from robots_guard.guard.guard import Guard
    from robots_guard.guard.runtime import AsyncioRuntime
    from robots_guard.origin import Origin, split_url

# fmt: off
__all__ = [
    "Access", "Action", "AsyncGuard", "AsyncioRuntime", "AuditLogError", "ClosedGuard", "Decision",
    "Document", "Failed", "Failure", "FetchTrouble", "Fetched", "Get", "Guard", "Limits",
    "MalformedURL", "MissingExtra", "NotGoverned", "Origin", "Passage", "Permission", "Policy",
    "Question", "Reason", "RequestDeferred", "RequestDisallowed", "RequestRefused",
    "ResponseRefused", "RobotsFile", "RobotsGuardError", "RuleRef", "Settings", "SettingsError", "StoreError",
    "SyncGuard", "SyncPassage", "Terms", "Verdict", "__version__", "open_guard", "open_sync",
    "settings_of", "split_url",
]
# fmt: on

#: The version, which the build reads from here.
__version__ = "0.1.0"

#: The public names of each module.
_MODULES = {
    "robots_guard.client.async_guard": "AsyncGuard Permission open",
    "robots_guard.client.gate": "Passage",
    "robots_guard.client.sync_guard": "SyncGuard SyncPassage open_sync",
    "robots_guard.decisions.access": "Access Failed Failure Fetched Get Limits",
    "robots_guard.decisions.policy": "Document FetchTrouble Policy",
    "robots_guard.decisions.reasons": "Reason",
    "robots_guard.decisions.robots_file": "RobotsFile",
    "robots_guard.decisions.verdict": "Action Decision Question RuleRef Terms Verdict",
    "robots_guard.errors": "AuditLogError ClosedGuard MalformedURL MissingExtra NotGoverned"
    " RobotsGuardError SettingsError StoreError",
    "robots_guard.gateway.errors": "RequestDeferred RequestDisallowed RequestRefused ResponseRefused",
    "robots_guard.guard.guard": "Guard",
    "robots_guard.guard.runtime": "AsyncioRuntime",
    "robots_guard.origin": "Origin split_url",
    "robots_guard.configuration.settings": "Settings open_guard settings_of",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


if not TYPE_CHECKING:  # with this function, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used (PEP 562). Raises AttributeError."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # the next use finds it there
        return value


def __dir__() -> list[str]:
    """Return the names of the package, including those that have not been used yet."""
    return sorted({*globals(), *_HOMES})
