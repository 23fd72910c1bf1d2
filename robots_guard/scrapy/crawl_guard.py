"""The guard of one crawl: it decides on Scrapy's requests, and fetches as the crawl does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from robots_guard.audit.record import shown_url
from robots_guard.configuration.settings import CLOCKS, direct_fetcher, open_guard
from robots_guard.decisions.component import Component
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Deferral, Question
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import ROBOTS_TXT, Origin, split_cached
from robots_guard.ports import Fetcher
from robots_guard.scrapy.announcements import Announcements
from robots_guard.scrapy.bypasses import find_bypasses
from robots_guard.scrapy.deferral.gate import KnownOrigins, OriginGate
from robots_guard.scrapy.fetch.connections import handler_of
from robots_guard.scrapy.fetch.direct import DirectFetcher
from robots_guard.scrapy.fetch.fetcher import ScrapyFetcher
from robots_guard.scrapy.options import ScrapyOptions
from robots_guard.scrapy.questions import BYPASS, Questions
from robots_guard.scrapy.robots_responses import can_share, response_from
from robots_guard.scrapy.runtime import ScrapyRuntime
from robots_guard.scrapy.written import parsed_url, written_target

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

log = logging.getLogger("robots_guard")

_BYPASS_RECORDED = (
    "%s in a request's meta exempts %s, and each other request that has it, from robots.txt: they are"
    " made, and recorded as bypassed. Remove it, or set ROBOTS_GUARD_META_BYPASS = 'deny' to have them"
    " judged"
)
_BYPASS_WITHOUT_EFFECT = (
    "%s in a request's meta has no effect on %s, nor on any other request:"
    " ROBOTS_GUARD_META_BYPASS is 'deny'. Exempt a site by an override instead"
)


class CrawlGuard:
    """Decides on the requests of one crawl, and on the URLs to which they lead.

    `fetcher` is the one that downloads robots.txt through the crawl; it is not used with
    ROBOTS_GUARD_FETCH = "direct".
    """

    def __init__(
        self, crawler: Crawler, options: ScrapyOptions, runtime: ScrapyRuntime, gate: OriginGate
    ) -> None:
        settings = options.settings
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self.runtime = runtime
        self.gate = gate
        self._denies_bypass = options.meta_bypass == "deny"
        self.questions = Questions(crawler, settings.agent, denies_bypass=self._denies_bypass)
        self._announcements = Announcements(crawler, runtime)
        self.fetcher = ScrapyFetcher(
            crawler, runtime, user_agent=settings.user_agent, tls_verified=options.tls_verified
        )
        self._direct = None
        if settings.fetch == "direct":
            self._direct = DirectFetcher(direct_fetcher(settings, trusts_caller=True))
        self._default_fetcher: Fetcher = self._direct or self.fetcher
        self.guard = open_guard(
            settings,
            component=Component.SCRAPY,
            runtime=runtime,
            fetcher=self._default_fetcher,
            # Without verification, the guard would not trust the policies that it has fetched
            # itself.
            demands_verified=options.tls_verified or self._direct is not None,
        )
        self._known = KnownOrigins(self.guard.fresh_for, CLOCKS.monotonic)
        # by scheme, as Scrapy keeps each handler for the whole crawl
        self._handlers: dict[str, Any] = {}
        self._has_warned_of_bypass = False
        gate.lacks_policy = self._lacks_policy
        gate.is_exempt = self.questions.is_exempt

    # -- a request ---------------------------------------------------------------------------------

    def peek(self, request: Request) -> Decision | None:
        """The decision on an ordinary request (`Questions.plain_question`) if it can be made from
        memory; otherwise None.

        Invariant: it is the decision that `decide` would return.
        """
        question = self.questions.plain_question(request)
        if question is None or self._written_target(request) != question.target:
            return None
        return self.guard.peek(question, self._default_fetcher)

    async def decide(self, request: Request, deferral: Deferral | None) -> Decision | None:
        """The decision on a request; None if no robots.txt governs it."""
        self._warn_of_bypass(request)
        try:
            target = written_target(request, self._handler_of(request))
            question = self.questions.question(request, deferral)
        except NotGoverned:
            self.guard.counts[f"{Action.PASS}/{Reason.NOT_GOVERNED}"] += 1
            return None
        except MalformedURL as error:
            return self.guard.decide(*self.questions.malformed(request, request.url, error))
        verdict = self.questions.verdict_without_rules(request, question)
        if verdict is not None:
            return self.guard.decide(question, verdict)
        decision = await self._check(request, question)
        if target == question.target or decision.verdict.action is not Action.PASS:
            return decision
        return await self._check(request, msgspec.structs.replace(question, target=target))

    async def decide_on_url(self, request: Request, url: str, *, sent: bool) -> Decision | None:
        """The decision on a URL that a download has led to; None if no robots.txt governs it.
        `sent`: whether it has reached the site."""
        try:
            question = self.questions.reached_question(url, request, sent=sent)
        except NotGoverned:
            return None
        except MalformedURL as error:
            return self.guard.decide(*self.questions.malformed(request, url, error, sent=sent))
        exempt = self.questions.exemption(request, url)
        if exempt is not None:
            return self.guard.decide(question, exempt)
        fetcher = self._fetcher_for(request)
        decision = self.guard.peek(question, fetcher)
        if decision is not None:
            return decision
        # The download is over, but the fetch of robots.txt may hang.
        with self.gate.outside_concurrency_limit(request):
            return await self.guard.check(question, fetcher)

    async def _check(self, request: Request, question: Question) -> Decision:
        # for `peek`, too: a refresh in the background uses the same proxy
        fetcher = self._fetcher_for(request)
        decision = self.guard.peek(question, fetcher) or await self.guard.check(question, fetcher)
        await self.announce(request, decision.policy)
        return decision

    def _fetcher_for(self, request: Request) -> Fetcher:
        return self._direct or self.fetcher.bound(request)

    def _written_target(self, request: Request) -> str | None:
        """The target that the download handler will write; None if it will write none."""
        try:
            return written_target(request, self._handler_of(request))
        except (NotGoverned, MalformedURL):
            return None

    def _handler_of(self, request: Request) -> Any:
        """The handler that Scrapy chooses for a request; None if there is none."""
        parsed = parsed_url(request)
        return self._handler(parsed.scheme if parsed is not None else "")

    def _handler(self, scheme: str) -> Any:
        if scheme not in self._handlers:
            self._handlers[scheme] = handler_of(self._crawler.engine.downloader, scheme)
        return self._handlers[scheme]

    def _warn_of_bypass(self, request: Request) -> None:
        """Say once in a crawl what `dont_obey_robotstxt` does."""
        if self._has_warned_of_bypass or not request.meta.get(BYPASS):
            return
        if not self._denies_bypass and not self.questions.is_exempt(request):
            return
        self._has_warned_of_bypass = True
        sentence = _BYPASS_WITHOUT_EFFECT if self._denies_bypass else _BYPASS_RECORDED
        log.warning(sentence, BYPASS, shown_url(request.url))

    # -- a robots.txt ------------------------------------------------------------------------------

    def is_announced(self, decision: Decision) -> bool:
        """Whether the decision's robots.txt has been announced, if it has any."""
        return decision.policy is None or not self._announcements.is_due(decision.policy)

    async def announce(self, request: Request, policy: Policy | None) -> None:
        """Announce a policy's robots.txt to the handlers of `robots_parsed`, unless that has been
        done."""
        if policy is not None and self._announcements.is_due(policy):
            terms = self.guard.terms(policy.origin)
            await self._announcements.send(request, policy, terms, CLOCKS.now())

    async def shared_response(self, request: Request) -> Response | None:
        """The response to a spider's own request for a robots.txt, made of a fresh policy; None if
        the request has to be made.

        If the guard has no fresh policy, its own fetch is the only request that the site receives.
        """
        if not can_share(request) or self.questions.is_exempt(request):
            return None
        origin, target = split_cached(request.url)
        if target != ROBOTS_TXT:
            return None
        with self.gate.outside_concurrency_limit(request):
            policy = await self.guard.fresh_policy(origin, self._fetcher_for(request))
        if policy is None:
            return None
        terms = self.guard.terms(origin)
        if terms.pinned is None:
            await self.announce(request, policy)
        response = response_from(request, policy, terms.dialect, CLOCKS.now())
        if response is not None:
            self._crawler.stats.inc_value("robots_guard/fetch/shared")
        return response

    def _lacks_policy(self, origin: Origin) -> bool:
        """Whether a request to the origin will have to wait for a policy in the scheduler."""
        return origin not in self._known and self._handler(origin.scheme) is not None

    def defer_for_policy(self, request: Request) -> Request:
        """Return the request to the scheduler while its policy is fetched.

        A request is sent back only once for this. If the policy is still unknown then (it may have
        expired, or be too large for the cache), the request waits in the middleware.
        """
        origin, returned = self.gate.defer_for_policy(request)
        self.runtime.spawn(self._prefetch_policy(request, origin))
        return returned

    async def _prefetch_policy(self, request: Request, origin: str) -> None:
        try:
            await self.guard.prefetch(self.questions.question(request), self._fetcher_for(request))
        finally:
            self.gate.policy_ready(origin)

    # -- a crawl -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Watch the crawl's downloads, and say what of it the guard cannot see."""
        self.fetcher.open()
        for bypass in find_bypasses(self._crawler.settings):
            log.log(logging.INFO if bypass.proxy else logging.WARNING, "%s", bypass.sentence)

    def count(self) -> None:
        """Add the guard's counts to the statistics of the crawl."""
        for name, count in self.guard.counts.items():
            self._crawler.stats.set_value(f"robots_guard/{name}", count)

    async def close(self) -> None:
        """Close the guard, once its policies are on disk."""
        await self.guard.drain()
        self.guard.close()
        if self._direct is not None:
            self._direct.close()
