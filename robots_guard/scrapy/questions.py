"""Questions: the guard's input for a Scrapy request, and the verdicts that need no robots.txt.

Some requests are refused whatever a robots.txt says, because their destination is ambiguous: a
malformed URL, or a Host field that names another authority than the URL. Some pass because the
operator has exempted them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Deferral, Question, Verdict
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import ROBOTS_TXT, Origin, parse_authority, split_cached
from robots_guard.scrapy.fetch.fetcher import DOWNLOAD, ON_ROUTE
from robots_guard.scrapy.guarded_request import HISTORY, RETURNED, hosts_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

BYPASS = "dont_obey_robotstxt"
#: Meta keys and header fields (as Scrapy spells names) that an ordinary request does not have.
_SPECIAL_META = ON_ROUTE | {BYPASS, DOWNLOAD, RETURNED, HISTORY}
_USER_AGENT = frozenset((b"User-Agent",))
_SPECIAL_FIELDS = _USER_AGENT | {b"Host"}


class Questions:
    """The questions of one crawl, for one product token.

    With `denies_bypass`, nothing is exempt.
    """

    def __init__(self, crawler: Crawler, agent: str, *, denies_bypass: bool) -> None:
        self._crawler = crawler
        self._agent = agent
        self._denies_bypass = denies_bypass
        self._user_agent = _default_user_agent(crawler)

    def question(self, request: Request, deferral: Deferral | None = None) -> Question:
        """The question for a request. Raises NotGoverned or MalformedURL."""
        origin, target = split_cached(request.url)
        return self._question(request, origin, target, deferral)

    def plain_question(self, request: Request) -> Question | None:
        """The question for an ordinary request; None for any other. Most requests are ordinary.

        Invariant: if this returns a question, `question` returns the same, and
        `verdict_without_rules` returns None. The request has not been deferred, is not one of the
        guard's fetches, is not for a robots.txt, and takes the crawl's default route. It has neither
        a Host nor a User-Agent field, and nothing has redirected to it.
        """
        if not _SPECIAL_META.isdisjoint(request.meta):
            return None
        if not _SPECIAL_FIELDS.isdisjoint(request.headers):
            return None
        url = request.url
        if url.endswith(ROBOTS_TXT):
            return None
        try:
            origin, target = split_cached(url)
        except (NotGoverned, MalformedURL):
            return None
        return self._question(request, origin, target)

    def reached_question(self, url: str, request: Request, *, sent: bool) -> Question:
        """The question for a URL that a request has led to. `sent`: whether it has reached the
        site.

        Raises NotGoverned or MalformedURL.
        """
        origin, target = split_cached(url)
        return _with_visit(self._question(request, origin, target), url, request, sent)

    def malformed(
        self, request: Request, url: str, error: MalformedURL, *, sent: bool = False
    ) -> tuple[Question, Verdict]:
        """The refusal of a URL without an origin, recorded under a host that cannot exist (RFC 2606
        section 2).

        `url` is the request's, or one that it has led to.
        """
        placeholder = Origin("http", "malformed.invalid", 80)
        head, at, rest = url.rpartition("@")
        shown, detail = rest, str(error)
        if at:  # all of the userinfo is left out: it is unclear where a password in it ends
            shown = f"{head.partition(':')[0]}://{rest}"
            detail = "a malformed URL with userinfo"
        verdict = Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=detail)
        question = self._question(request, placeholder, f"/{shown}")
        return _with_visit(question, url, request, sent), verdict

    def verdict_without_rules(self, request: Request, question: Question) -> Verdict | None:
        """The verdict that no robots.txt can change, or None."""
        fault = _authority_fault(request, question.origin)
        if fault:
            return Verdict(action=Action.DROP, reason=Reason.AMBIGUOUS_AUTHORITY, detail=fault)
        if self.is_exempt(request):
            return Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed=BYPASS)
        return None

    def exemption(self, request: Request, url: str) -> Verdict | None:
        """The verdict on a URL that an exempt request has led to; None if the URL itself is not
        exempt.

        An exemption does not extend to another origin.
        """
        if self.is_exempt(request) and _has_same_origin(url, request):
            return Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed=BYPASS)
        return None

    def is_exempt(self, request: Request) -> bool:
        """Whether the operator has exempted the request."""
        meta = request.meta
        if self._denies_bypass or not meta.get(BYPASS):
            return False
        # a copy of one of the guard's fetches, which the operator has not exempted
        if DOWNLOAD in meta:
            return False
        # An exemption does not extend to another origin.
        history = meta.get(HISTORY)
        if history is None:
            return True
        return isinstance(history, list | tuple) and all(
            _has_same_origin(url, request) for url in history
        )

    def _question(
        self, request: Request, origin: Origin, target: str, deferral: Deferral | None = None
    ) -> Question:
        spider = self._crawler.spider
        return Question(
            origin=origin,
            target=target,
            agent=self._agent,
            method=request.method,
            user_agent=self._user_agent_of(request),
            client=spider.name if spider else "",
            deferral=deferral,
        )

    def _user_agent_of(self, request: Request) -> str:
        """The User-Agent with which the request will be sent."""
        if _USER_AGENT.isdisjoint(request.headers):  # as for most
            return self._user_agent
        given = request.headers.get("User-Agent")
        return given.decode("latin-1") if given else self._user_agent


def _with_visit(question: Question, url: str, request: Request, sent: bool) -> Question:
    led_by = request.url if url != request.url else ""
    return msgspec.structs.replace(question, led_by=led_by, sent=sent)


def _has_same_origin(url: Any, request: Request) -> bool:
    """Whether a URL has the same origin as the request's. A project may put anything in its place."""
    if not isinstance(url, str):
        return False
    try:
        return split_cached(url)[0] == split_cached(request.url)[0]
    except (NotGoverned, MalformedURL):
        return False


def _authority_fault(request: Request, origin: Origin) -> str | None:
    """Why the Host fields do not name the judged origin; None if they do, or if there are none."""
    hosts = hosts_of(request)
    if not hosts:
        return None
    if len(hosts) > 1:
        return f"{len(hosts)} Host fields"
    text = hosts[0].decode("latin-1")
    try:
        named = parse_authority(origin.scheme, text.strip())
    except MalformedURL as error:
        return f"Host: {error}"
    if named == origin:
        return None
    return f"Host: {named.authority} in a request to {origin}"


def _default_user_agent(crawler: Crawler) -> str:
    """The User-Agent of a request that has no such field."""
    headers: dict[str, Any] = crawler.settings.getdict("DEFAULT_REQUEST_HEADERS")
    for name, value in headers.items():
        if name.lower() == "user-agent" and value:
            return str(value)
    return str(crawler.settings["USER_AGENT"] or "")
