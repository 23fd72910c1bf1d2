"""A robots.txt as an object: bytes in, answers out. It needs no guard, no network and no clock.

It is for programs that have a robots.txt already and used protego, reppy or urllib.robotparser to
read it. Invariant: its answers are the guard's own for a site that has just sent this file with
status 200, under the same dialect and matching.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import cached_property, lru_cache
from typing import NamedTuple

from cachetools import LRUCache

from robots_guard.decisions.check import compiled, judge_offline, read_url
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import policy_of_text
from robots_guard.decisions.verdict import Action, Question, Terms, Verdict, needs_no_policy
from robots_guard.errors import MalformedURL
from robots_guard.origin import Origin, as_uri, wire_text
from robots_guard.protocol.dialect import dialect as dialect_of
from robots_guard.protocol.directives import (
    Pace,
    Rate,
    Window,
    crawl_delay_of,
    request_rate_of,
    valid_hosts,
)
from robots_guard.protocol.lines import Line, kind_of_binary
from robots_guard.protocol.paths import matching as matching_of
from robots_guard.protocol.robots import NAME, Robots, parse
from robots_guard.protocol.ruleset import Ruleset

KEPT_RULES = 64  # rulesets of one file, by agent: a caller may ask for any number of agents

#: A product token, as it is or at the beginning of a User-Agent.
_AGENT = re.compile(rf"({NAME})(?:[/\s].*)?", re.DOTALL)
_EVERY_AGENT = "*"
#: The origin of a target that is given without one. The Host directive does not apply to it.
_NO_ORIGIN = Origin("http", "", 80)


class RequestRate(NamedTuple):
    """The slowest Request-rate of a group: so many requests in so many seconds.

    It applies from `start_time` to `end_time` (UTC) only, or all day if these are None.
    """

    requests: int
    seconds: int
    start_time: dt.time | None
    end_time: dt.time | None


class VisitTime(NamedTuple):
    """A time of day at which requests are welcome, from `start_time` to `end_time` (UTC).

    It may extend past midnight. If both are equal, it is the whole day.
    """

    start_time: dt.time
    end_time: dt.time


class RobotsFile:
    """One robots.txt, and what it says to each crawler.

    >>> robots = RobotsFile.parse(b"User-agent: *\\nDisallow: /private/\\nCrawl-delay: 2\\n")
    >>> robots.can_fetch("mybot", "https://example.com/private/a")
    False
    >>> robots.match("mybot", "https://example.com/private/a").rule.line
    2
    >>> robots.crawl_delay("mybot")
    2.0
    """

    def __init__(self, body: bytes, terms: Terms) -> None:
        self._terms = terms
        self._document = Document(
            status=200, url="", sha256="", body=body, fetched_at=0.0, via="given"
        )
        self._has_rules = kind_of_binary(body) is None
        self._rules: LRUCache[str, Ruleset] = LRUCache(KEPT_RULES)

    def __reduce__(self) -> tuple[type[RobotsFile], tuple[bytes, Terms]]:
        """Copies and pickles have no compiled rules: those of a compiled core cannot be copied."""
        return RobotsFile, (self._document.body, self._terms)

    @classmethod
    def parse(
        cls, content: bytes | str, *, dialect: str = "rfc9309", matching: str = "standard"
    ) -> RobotsFile:
        """Read the content of a robots.txt. Any content is accepted; if it is binary (an archive, an
        image), it is unreadable, and nothing may be requested.

        `dialect` and `matching` are the settings of the same names, with the same defaults. Raises
        SettingsError if one of them is not known. The rules for an agent are compiled at the first
        question about it.
        """
        body = content
        if isinstance(body, str):
            body = body.encode("utf-8", "replace")
        return cls(body, _terms(dialect, matching))

    # -- may this be requested? --------------------------------------------------------------------

    def can_fetch(self, agent: str, url: str) -> bool:
        """Whether a crawler may request a URL.

        `agent` is its product token, `mybot` or `mybot/1.0`, or `*` for crawlers without a group of
        their own; ValueError is raised for anything else. `url` is absolute, or a request target
        that begins with `/`. A URL that the guard would refuse because its host is ambiguous may
        not be requested, and one that no robots.txt governs (`ftp:`) may.
        """
        rules = self._rules_for(_token(agent))
        question = self._question(agent, url)
        if isinstance(question, Verdict):
            return question.action is Action.PASS
        verdict = needs_no_policy(question, self._terms)
        if verdict is not None:
            return verdict.action is Action.PASS
        if not self._has_rules:
            return False
        origin = question.origin
        return rules.judge(question.target, origin.host, origin.port, origin.scheme).allowed

    def match(self, agent: str, url: str) -> Verdict:
        """The guard's verdict on a URL: `action`, `reason`, and the deciding `rule` with its line.

        The arguments are those of `can_fetch`. Visiting times are not considered.
        """
        token = _token(agent)
        question = self._question(agent, url)
        if isinstance(question, Verdict):
            return question
        policy = Policy(origin=question.origin, document=self._document)
        if not self._has_rules:
            policy = policy_of_text(question.origin, self._document.body, "given", 0.0)
        return judge_offline(
            question,
            self._terms,
            policy,
            0.0,
            rules_of=lambda _: self._rules_for(token),
            at_any_time=True,
        )

    def _question(self, agent: str, url: str) -> Question | Verdict:
        """The question for a URL or target; the verdict if the URL has no readable origin."""
        if url.startswith("/"):
            return self._question_for_target(url.partition("#")[0], agent)
        read = read_url(url, escapes=self._terms.dialect.escapes_urls)
        if isinstance(read, Verdict):
            return read
        origin, target = read
        return Question(origin=origin, target=target, agent=agent)

    def _question_for_target(self, target: str, agent: str) -> Question | Verdict:
        try:
            wire = wire_text(target)
        except MalformedURL as error:
            return Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=str(error))
        if self._terms.dialect.escapes_urls:
            wire = as_uri(wire, target)
        return Question(origin=_NO_ORIGIN, target=wire, agent=agent)

    # -- what else the file says -------------------------------------------------------------------

    def names(self, agent: str) -> bool:
        """Whether the file has a group for this crawler, and not only one for every crawler."""
        token = _token(agent)
        return any(robots.names(token) for robots in self._parsed)

    def crawl_delay(self, agent: str) -> float | None:
        """The longest Crawl-delay for a crawler in seconds, or None. It is infinite if the file
        asks for no visits; the guard limits it to `max_delay`."""
        pace = self._pace(agent)
        return crawl_delay_of(pace) if pace else None

    def request_rate(self, agent: str) -> RequestRate | None:
        """The slowest Request-rate for a crawler, or None."""
        pace = self._pace(agent)
        rate = request_rate_of(pace) if pace else None
        if rate is None:
            return None
        return _with_times(rate)

    def visit_times(self, agent: str) -> tuple[VisitTime, ...]:
        """The Visit-times for a crawler. Requests are welcome during each of them; if there are
        none, at any time."""
        pace = self._pace(agent)
        if pace is None:
            return ()
        return tuple(VisitTime(*_times(visit.window)) for visit in pace.visits)

    @cached_property
    def sitemaps(self) -> tuple[str, ...]:
        """The URLs of the Sitemap lines as written, each once. They are for every crawler."""
        values = dict.fromkeys(value for _, value in self._site_lines("sitemap"))
        return tuple(values)

    @cached_property
    def preferred_host(self) -> str | None:
        """The first valid argument of a Host line, or None."""
        lines = [Line(number, "host", value, value) for number, value in self._site_lines("host")]
        hosts = valid_hosts(lines)
        return hosts[0].shown if hosts else None

    def _site_lines(self, field: str) -> list[tuple[int, str]]:
        """Numbers and values of the lines with a field that is for every crawler."""
        name = field.encode()
        found = (record for record in self._parsed[0].others if record[1] == name)
        return [(number, value.decode("utf-8", "replace")) for number, _, value in found if value]

    @cached_property
    def _parsed(self) -> tuple[Robots, ...]:
        """The file as each part of the dialect reads it."""
        parts = self._terms.dialect.parts or (self._terms.dialect,)
        return tuple(parse(self._document.body, part) for part in parts)

    def _pace(self, agent: str) -> Pace | None:
        return self._rules_for(_token(agent)).pace

    def _rules_for(self, token: str) -> Ruleset:
        rules = self._rules.get(token)
        if rules is None:
            rules = compiled(self._document, self._terms, token)
            self._rules[token] = rules
        return rules


@lru_cache(maxsize=64)
def _terms(dialect: str, matching: str) -> Terms:
    """The terms of a dialect and a matching profile, which are the same for many files."""
    return Terms(dialect=dialect_of(dialect), matching=matching_of(matching))


@lru_cache(maxsize=256)
def _token(agent: str) -> str:
    """The product token that an agent begins with. Raises ValueError if there is none."""
    if agent == _EVERY_AGENT:
        return agent
    found = _AGENT.fullmatch(agent)
    # every browser sends that, so it identifies no crawler
    if found is None or found[1].lower() == "mozilla":
        raise ValueError(
            f"{agent[:80]!r} does not begin with a crawler's product token, such as 'mybot', of"
            " letters, digits, '_', '-' and '.'. The agent comes before the URL"
        )
    return found[1]


def _with_times(rate: Rate) -> RequestRate:
    if rate.window is None:
        return RequestRate(rate.requests, rate.seconds, None, None)
    return RequestRate(rate.requests, rate.seconds, *_times(rate.window))


def _times(window: Window) -> tuple[dt.time, dt.time]:
    """Beginning and end of a time of day."""
    return _time(window.begins), _time(window.ends)


def _time(minute: int) -> dt.time:
    return dt.time(minute // 60, minute % 60, tzinfo=dt.UTC)
