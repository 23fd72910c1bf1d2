"""robots_guard enforces robots.txt, inside Scrapy and as a proxy in front of any other crawler.

These are the public names, sorted. The integrations are in `robots_guard.scrapy` and
`robots_guard.mitmproxy`.
"""

from robots_guard.core.access import Access, Failed, Failure, Fetched, Get, Limits
from robots_guard.core.policy import Document, FetchTrouble, Policy
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Decision, Question, RuleRef, Terms, Verdict
from robots_guard.errors import (
    AuditLogError,
    MalformedURL,
    MissingExtra,
    NotGoverned,
    RobotsGuardError,
    SettingsError,
    StoreError,
)
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.origin import Origin, split_url
from robots_guard.settings import Settings, open_guard, settings_of

# fmt: off
__all__ = [
    "Access", "Action", "AsyncioRuntime", "AuditLogError", "Decision", "Document", "Failed",
    "Failure", "FetchTrouble", "Fetched", "Get", "Guard", "Limits", "MalformedURL", "MissingExtra",
    "NotGoverned", "Origin", "Policy", "Question", "Reason", "RobotsGuardError", "RuleRef",
    "Settings", "SettingsError", "StoreError", "Terms", "Verdict", "open_guard", "settings_of",
    "split_url",
]
