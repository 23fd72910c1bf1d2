"""The guard's engine as a parser for Scrapy, behind Scrapy's own interface.

    ROBOTSTXT_PARSER = "robots_guard.scrapy.RobotParser"

makes Scrapy's own RobotsTxtMiddleware judge by it, without the add-on. With the add-on, such an
object is what handlers of the signal `robots_parsed` receive.

Scrapy asks with a whole User-Agent, and the engine compares product tokens. So the tokens in the
User-Agent are found, and the groups for all of them apply. Tokens of browsers identify no crawler.
Where none of these has a group, any other word may still be the crawler's name: the groups for such
words apply in addition to the one for every crawler.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cachetools import LRUCache
from scrapy.robotstxt import RobotParser as ScrapyRobotParser

from robots_guard.decisions.robots_file import RobotsFile
from robots_guard.decisions.site_settings import SiteSettings
from robots_guard.protocol.robots import NAME
from robots_guard.scrapy.options import PREFIX

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

DEFAULTS = SiteSettings()
KEPT_AGENTS = 64  # of one file: requests may have any number of User-Agent headers

#: Product tokens: at the beginning of a User-Agent, before a slash (RFC 9110 section 10.1.5), and
#: after `compatible;`, as in the User-Agent of most search engines.
_PRODUCT = re.compile(
    rf"(?:\A\s*|(?<=compatible;)\s*|(?<=[\s(;,])(?={NAME}/))({NAME})", re.IGNORECASE
)
_PARTS = re.compile(r"[\s;,()]+")  # what separates the parts of a User-Agent
_WORD = re.compile(NAME)
_ADDRESS = re.compile(r"://|@|www\.")  # a part with one of these is an address
_BROWSERS = frozenset(
    (
        "mozilla",
        "applewebkit",
        "chrome",
        "edg",
        "firefox",
        "gecko",
        "headlesschrome",
        "mobile",
        "opr",
        "safari",
        "version",
    )
)
_EVERY_AGENT = ("*",)


class RobotParser(ScrapyRobotParser):
    """One robots.txt, behind Scrapy's parser interface. It is parsed when it is first needed.

    `max_delay` limits the delay that is returned, as it limits the guard's.
    """

    def __init__(
        self,
        robotstxt_body: bytes,
        *,
        dialect: str = DEFAULTS.dialect,
        matching: str = DEFAULTS.matching,
        max_delay: float = DEFAULTS.max_delay,
    ) -> None:
        self._file = RobotsFile.parse(robotstxt_body, dialect=dialect, matching=matching)
        self._max_delay = max_delay
        self._groups: LRUCache[str, tuple[str, ...]] = LRUCache(KEPT_AGENTS)

    @classmethod
    def from_crawler(cls, crawler: Crawler | None, robotstxt_body: bytes) -> RobotParser:
        """Create the parser of a file, by ROBOTS_GUARD_DIALECT and ROBOTS_GUARD_MATCHING.

        Raises SettingsError if one of them is not known.
        """
        if crawler is None:
            return cls(robotstxt_body)
        settings = crawler.settings
        return cls(
            robotstxt_body,
            dialect=settings.get(f"{PREFIX}DIALECT", DEFAULTS.dialect),
            matching=settings.get(f"{PREFIX}MATCHING", DEFAULTS.matching),
            max_delay=settings.getfloat(f"{PREFIX}MAX_DELAY", DEFAULTS.max_delay),
        )

    @property
    def file(self) -> RobotsFile:
        """The file with all that can be asked of it: sitemaps, rates, the rule that decides."""
        return self._file

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Whether a crawler with this User-Agent may request a URL."""
        wanted = _text(url)
        return all(self._file.can_fetch(token, wanted) for token in self._tokens(user_agent))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """The longest Crawl-delay for this User-Agent in seconds, at most `max_delay`; None if
        there is none."""
        delays = [self._file.crawl_delay(token) for token in self._tokens(user_agent)]
        known = [delay for delay in delays if delay is not None]
        if not known or not self._max_delay:
            return None
        return min(max(known), self._max_delay)

    def _tokens(self, user_agent: str | bytes) -> tuple[str, ...]:
        """The product tokens in a User-Agent that the file names; if it names none, `*` and the
        other words that it names."""
        text = _text(user_agent)
        found = self._groups.get(text)
        if found is None:
            found = self._named(product_tokens(text)) or _EVERY_AGENT + self._named(words(text))
            self._groups[text] = found
        return found

    def _named(self, tokens: list[str]) -> tuple[str, ...]:
        return tuple(token for token in tokens if self._file.names(token))


def product_tokens(user_agent: str) -> list[str]:
    """The product tokens in a User-Agent, each once, without those of browsers."""
    return _without_browsers(_PRODUCT.findall(user_agent))


def words(user_agent: str) -> list[str]:
    """The words in a User-Agent that could be product tokens, each once, without those in
    addresses and those of browsers."""
    parts = [part for part in _PARTS.split(user_agent) if not _ADDRESS.search(part)]
    return _without_browsers(_WORD.findall(" ".join(parts)))


def _without_browsers(tokens: list[str]) -> list[str]:
    return [token for token in dict.fromkeys(tokens) if token.lower() not in _BROWSERS]


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # RobotsFile restores the bytes
    return value
