"""robots_guard: asks robots.txt before a crawler does, in Scrapy and in front of any other.

The public names, sorted. The hosts are imported from where they live: `robots_guard.scrapy`,
`robots_guard.mitmproxy`.
"""

from robots_guard.core.access import Access, Failed, Failure, Fetched, Get, Limits
from robots_guard.core.policy import Document, Policy, Trouble
from robots_guard.core.verdict import Action, Decision, Question, Reason, RuleRef, Terms, Verdict
from robots_guard.errors import (
    JournalError,
    MalformedURL,
    MissingExtra,
    NotGoverned,
    RobotsGuardError,
    SettingsError,
    StoreError,
)
from robots_guard.guard import Guard
from robots_guard.origin import Origin, split_url
from robots_guard.runtime import AsyncioRuntime
from robots_guard.settings import Settings, open_guard, settings_of

__all__ = [
    "Access",
    "Action",
    "AsyncioRuntime",
    "Decision",
    "Document",
    "Failed",
    "Failure",
    "Fetched",
    "Get",
    "Guard",
    "JournalError",
    "Limits",
    "MalformedURL",
    "MissingExtra",
    "NotGoverned",
    "Origin",
    "Policy",
    "Question",
    "Reason",
    "RobotsGuardError",
    "RuleRef",
    "Settings",
    "SettingsError",
    "StoreError",
    "Terms",
    "Trouble",
    "Verdict",
    "open_guard",
    "settings_of",
    "split_url",
]
