"""The downloader middleware: each request becomes a question, each verdict what Scrapy understands.

Stands where Scrapy's RobotsTxtMiddleware stood, at 100: also what passes the scheduler by comes here (media,
`engine.download_async`), and a request that a later component replaces comes round again.

    PASS   goes on
    DROP   RobotsDisallowed, an IgnoreRequest that carries the decision
    DEFER  back to the scheduler, its bucket shut; or, for who is not from there, a short wait and RobotsDeferred
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag
from weakref import WeakKeyDictionary

import msgspec
from scrapy import signals
from scrapy.exceptions import NotConfigured

from robots_guard.core.verdict import Action, Decision, Question, Reason, Verdict
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, parse_authority, split_url
from robots_guard.ports import Fetcher
from robots_guard.scrapy.deferral import Gate, restore
from robots_guard.scrapy.direct import DirectFetcher
from robots_guard.scrapy.errors import RobotsDeferred, RobotsDisallowed, abort, sentence
from robots_guard.scrapy.fetcher import FLIGHT, ScrapyFetcher
from robots_guard.scrapy.options import ENABLED, Options, is_enabled, options_of
from robots_guard.scrapy.runtime import HostRuntime, host_runtime
from robots_guard.settings import direct_fetcher, open_guard

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

log = logging.getLogger("robots_guard")

HOLD = 3.0  # seconds a download past the scheduler waits at most for its turn
BYPASS = "dont_obey_robotstxt"


class RobotsGuardMiddleware:
    """Obeys robots.txt. `dont_obey_robotstxt` in a request's meta exempts it, and that is recorded, unless
    ROBOTS_GUARD_META_BYPASS is "deny"."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RobotsGuardMiddleware:
        """Ends the process if it cannot guard."""
        try:
            if not is_enabled(crawler.settings):
                raise NotConfigured(f"{ENABLED} is False")
            return cls(crawler, options_of(crawler.settings), host_runtime())
        except SettingsError as error:
            abort(error)

    def __init__(self, crawler: Crawler, options: Options, runtime: HostRuntime) -> None:
        self._crawler: Any = crawler  # its parts are there once the crawl has begun
        self._runtime = runtime
        self._agent = options.settings.agent
        self._denies_bypass = options.meta_bypass == "deny"
        self._user_agent = _default_user_agent(crawler)
        self._fetcher = ScrapyFetcher(
            crawler, runtime, user_agent=options.settings.user_agent, tls_verified=options.tls_verified
        )
        self._direct = None
        if options.settings.fetch == "direct":
            self._direct = DirectFetcher(direct_fetcher(options.settings, trusts_asked=True))
        self._guard = open_guard(
            options.settings,
            door="scrapy",
            runtime=runtime,
            fetcher=self._direct or self._fetcher,
            demands_verified=options.tls_verified or self._direct is not None,  # else it would not trust its own
        )
        self._gate = Gate.of(crawler)
        self._gate.unknown = self._is_unknown
        self._sealed: WeakKeyDictionary[Request, tuple[Any, ...]] = WeakKeyDictionary()
        self._refused = False
        self._warned = False
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    # -- a request ----------------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | None:
        """Let it go (None), put it back (a Request), or refuse it (RobotsDisallowed, RobotsDeferred)."""
        try:
            came_back = restore(request)
            if self._fetcher.owns(request):
                return None
            if not came_back and self._gate.needs_learning(request):
                return self._send_to_learn(request)
            return await self._seal(request)
        finally:
            self._gate.release(request)  # success, refusal and cancellation all free the host

    def seal_again(self, request: Request) -> Coroutine[Any, Any, Request | None] | None:
        """For the last middleware: None if the request is still what was judged, else a judgement like the first."""
        return None if self._sealed.get(request) == _seal_of(request) else self._judge_again(request)

    async def _judge_again(self, request: Request) -> Request | None:
        if self._fetcher.owns(request):
            return None
        while self._sealed.get(request) != _seal_of(request):  # it may change while we judge
            back = await self._seal(request)
            if back is not None:
                return back
        return None

    async def _seal(self, request: Request) -> Request | None:
        seal = _seal_of(request)
        back = await self._enforce(request, await self._decide(request))
        if back is None:
            self._sealed[request] = seal
        return back

    def _send_to_learn(self, request: Request) -> Request:
        """Back to the scheduler with it, while its policy is fetched. Should that not be known even then (it may
        have expired, or be too large to be kept) it waits here after all: a request is sent back only once for this.
        """
        bucket, copy = self._gate.send_to_learn(request)
        self._runtime.spawn(self._learn(request, bucket))
        return copy

    async def _learn(self, request: Request, bucket: str) -> None:
        try:
            await self._guard.prepare(self._question(request), self._fetcher_for(request))
        finally:
            self._gate.learned(bucket)

    async def _decide(self, request: Request) -> Decision | None:
        """The decision; None for what no robots.txt governs."""
        try:
            question = self._question(request)
        except NotGoverned:
            self._guard.counts[f"{Action.PASS}/{Reason.NOT_GOVERNED}"] += 1
            return None
        except MalformedURL as error:
            return self._guard.decide(*self._malformed(request, error))
        verdict = self._verdict_without_rules(request, question)
        if verdict is not None:
            return self._guard.decide(question, verdict)
        decision = await self._ask(request, question)
        written = _target_written(request.url, question.target)
        if written == question.target or decision.verdict.action is not Action.PASS:
            return decision
        return await self._ask(request, msgspec.structs.replace(question, target=written))

    async def _ask(self, request: Request, question: Question) -> Decision:
        fetcher = self._fetcher_for(request)  # also for what is renewed behind our back: it goes by the same proxy
        return self._guard.peek(question, fetcher) or await self._guard.check(question, fetcher)

    def _fetcher_for(self, request: Request) -> Fetcher:
        return self._direct or self._fetcher.bound(request)

    def _question(self, request: Request) -> Question:
        origin, target = split_url(request.url)
        return self._question_of(request, origin, target)

    def _question_of(self, request: Request, origin: Origin, target: str) -> Question:
        user_agent = request.headers.get("User-Agent")
        spider = self._crawler.spider
        return Question(
            origin=origin,
            target=target,
            agent=self._agent,
            method=request.method,
            user_agent=user_agent.decode("latin-1") if user_agent else self._user_agent,
            client=spider.name if spider else "",
        )

    def _malformed(self, request: Request, error: MalformedURL) -> tuple[Question, Verdict]:
        """A refusal of what names no origin; it is recorded under a host that cannot exist (RFC 2606 section 2)."""
        nowhere = Origin("http", "malformed.invalid", 80)
        head, at, rest = request.url.rpartition("@")
        shown = f"{head.partition(':')[0]}://{rest}" if at else rest  # where a password ends in it, nobody knows
        detail = "a URL with userinfo that cannot be read" if at else str(error)
        verdict = Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=detail)
        return self._question_of(request, nowhere, f"/{shown}"), verdict

    def _verdict_without_rules(self, request: Request, question: Question) -> Verdict | None:
        fault = _authority_fault(request, question.origin)
        if fault:
            return Verdict(action=Action.DROP, reason=Reason.AMBIGUOUS_AUTHORITY, detail=fault)
        if self._is_exempt(request):
            return Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed=BYPASS)
        return None

    def _is_exempt(self, request: Request) -> bool:
        meta = request.meta
        if self._denies_bypass or not meta.get(BYPASS) or FLIGHT in meta:  # ours is no ticket for a copy of our fetch
            return False
        return all(_is_of(url, request) for url in meta.get("redirect_urls", ()))  # nor is one for another origin

    # -- a verdict ----------------------------------------------------------------------------------------

    async def _enforce(self, request: Request, decision: Decision | None) -> Request | None:
        if decision is None or decision.verdict.action is Action.PASS:
            return None
        self._note(decision)
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        if self._gate.is_scheduled(request):
            return self._gate.send_back(request, _wait(decision))
        await self._hold(request, decision)
        return None

    async def _hold(self, request: Request, decision: Decision) -> None:
        """Who asks past the scheduler cannot be put back: wait a little, ask once more."""
        wait = _wait(decision)
        if wait <= HOLD:
            await self._runtime.sleep(wait)
            again = await self._decide(request)
            if again is None or again.verdict.action is Action.PASS:
                return
            decision = again
        self._warn_of_foreign_queue()
        if decision.verdict.action is Action.DROP:
            raise RobotsDisallowed(decision)
        raise RobotsDeferred(decision)

    def _note(self, decision: Decision) -> None:
        """Say it, and count it where the built-in counted. The first refusal of a crawl is a warning: it is all
        that `scrapy fetch` and `scrapy shell` have to show for it."""
        verdict = decision.verdict
        first = verdict.action is Action.DROP and not self._refused
        self._refused = self._refused or first
        log.log(logging.WARNING if first else logging.INFO, "%s", sentence(decision))
        stats = self._crawler.stats
        stats.inc_value(f"robots_guard/{verdict.action}/{verdict.reason}")
        if verdict.action is Action.DROP:
            stats.inc_value("robotstxt/forbidden")

    # -- the gate's question ------------------------------------------------------------------------------

    def _is_unknown(self, request: Request) -> bool:
        """Whether the request will have to wait for a policy."""
        try:
            origin, _ = split_url(request.url)
        except (NotGoverned, MalformedURL):
            return False
        return not self._is_exempt(request) and not self._guard.knows(origin)

    # -- a crawl ------------------------------------------------------------------------------------------

    def _spider_opened(self) -> None:
        if not self._gate.attached:
            settings = self._crawler.settings
            log.warning(
                "SCHEDULER = %s with SCHEDULER_PRIORITY_QUEUE = %s does not use the queue of robots_guard: requests"
                " are refused, not put off, while a robots.txt is unreachable, and a slow one can hold up other hosts."
                " Use robots_guard.scrapy.GuardPriorityQueue.",
                settings["SCHEDULER"],
                settings["SCHEDULER_PRIORITY_QUEUE"],
            )

    def _warn_of_foreign_queue(self) -> None:
        if not self._gate.attached and not self._warned:
            self._warned = True
            log.warning("A request was refused that could have been put off: see the warning at the start")

    def _spider_closed(self) -> None:
        self._gate.close()
        for name, count in self._guard.counts.items():
            self._crawler.stats.set_value(f"robots_guard/{name}", count)

    async def _engine_stopped(self) -> None:
        await self._guard.settle()  # downloads have ended by now; what they brought may still be on its way to disk
        self._guard.close()
        if self._direct is not None:
            self._direct.close()


def _wait(decision: Decision) -> float:
    """Seconds from the decision until it may be asked again."""
    return max(0.0, (decision.verdict.until or decision.at) - decision.at)


def _seal_of(request: Request) -> tuple[Any, ...]:
    """All of a request that its verdict rests on."""
    return request.method, request.url, request.headers.getlist("Host")


def _target_written(url: str, target: str) -> str:
    """The target that Scrapy's own handler for HTTP/1.1 writes: Twisted takes URLs apart, and does not put those with
    an empty parameter or (on some Pythons) two slashes in front together again as they were."""
    if ";" not in target and not target.startswith("//"):
        return target
    from twisted.web.client import URI

    parsed: Any = URI  # which has no types
    return str(parsed.fromBytes(urldefrag(url)[0].encode()).originForm, "latin-1")


def _is_of(url: str, request: Request) -> bool:
    """Whether a URL is of the request's own origin."""
    try:
        return split_url(url)[0] == split_url(request.url)[0]
    except (NotGoverned, MalformedURL):
        return False


def _authority_fault(request: Request, origin: Origin) -> str | None:
    """What is wrong with a Host field: the origin reached is then another than the one judged."""
    hosts = request.headers.getlist("Host")
    if not hosts:
        return None
    if len(hosts) > 1:
        return f"{len(hosts)} Host fields"
    text = hosts[0].decode("latin-1")
    try:
        named = parse_authority(origin.scheme, text.strip())
    except MalformedURL as error:
        return f"Host: {error}"
    return None if named == origin else f"Host: {named.authority} in a request to {origin}"


def _default_user_agent(crawler: Crawler) -> str:
    """The User-Agent of a request that names none."""
    headers: dict[str, Any] = crawler.settings.getdict("DEFAULT_REQUEST_HEADERS")
    for name, value in headers.items():
        if name.lower() == "user-agent" and value:
            return str(value)
    return str(crawler.settings["USER_AGENT"] or "")
