"""Signals of responses: what a site states with a response is judged, recorded and enforced.

    header fields have arrived   the download of what they refuse is stopped: no byte of the body is
                                 needed. `admit` refuses the response, as it does when the
                                 download was not stopped: if the handler does not send
                                 `headers_received`, or its status is unknown
    before other middlewares     `receive` keeps the fields of a 304, and prevents retries of a
                                 response that asks for payment
    for Scrapy's HTTP cache      `may_store`: it stores a response earlier than `admit`, and while it
                                 is still compressed
    after them                   `admit` judges the response and its page. It is sufficient alone:
                                 cached responses, and those of other download handlers, only pass
                                 here

Invariant: each response is recorded at most once, and never reaches the spider without a record if
its site states something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from scrapy import signals
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.exceptions import StopDownload
from scrapy.utils.httpobj import urlparse_cached

from robots_guard.configuration.settings import Settings
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead, reads_page
from robots_guard.decisions.signal_settings import Use
from robots_guard.decisions.uses import UseState, plain_of
from robots_guard.decisions.verdict import (
    Action,
    Decision,
    Question,
    Terms,
    Verdict,
    as_report_only,
)
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.guard.guard import Guard
from robots_guard.protocol.html.page import Page
from robots_guard.scrapy.errors import RobotsSignalled
from robots_guard.scrapy.guarded_request import (
    SERVED_BY_HTTP,
    GuardedRequest,
    GuardedRequests,
    are_same,
)
from robots_guard.scrapy.options import can_enforce_signals
from robots_guard.scrapy.pages import (
    PageLinks,
    fields_of,
    has_signals,
    head_of,
    is_encoded,
    page_of,
    validated_fields,
)
from robots_guard.scrapy.patches.response_status import note_statuses, status_of
from robots_guard.scrapy.questions import BYPASS, Questions
from robots_guard.scrapy.refusals import RefusalLog

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.http.headers import Headers

#: The meta key under which a spider finds what the site states about a response.
META = "robots_guard_signals"
_NOT_MODIFIED = 304


class _Case(NamedTuple):
    """A response to be judged: the question that its request answers, and what it was judged by."""

    question: Question
    policy: Policy | None
    request_id: str
    is_exempt: bool


class ResponseSignals:
    """Judges the responses of one crawl by the signals of their sites.

    `can_drop_items` is set by the spider middleware; without it, a page that may be used for its
    links only is refused.
    """

    def __init__(
        self,
        settings: Settings,
        guard: Guard,
        questions: Questions,
        refusals: RefusalLog,
        requests: GuardedRequests,
    ) -> None:
        self._can_enforce = can_enforce_signals(settings)
        self._reads_pages = self._can_enforce or settings.signals == "record"
        self._is_off = settings.signals == "off" and not settings.overrides
        self._guard = guard
        self._questions = questions
        self._refusals = refusals
        self._requests = requests
        self.can_drop_items = False

    def open(self, crawler: Crawler) -> None:
        """Enforce signals also where Scrapy downloads and stores responses. The crawl has begun."""
        if not self._can_enforce:
            return
        note_statuses()
        crawler.signals.connect(self._stop_refused, signals.headers_received)
        engine: Any = crawler.engine
        # A project may have its own downloader.
        manager = getattr(engine.downloader, "middleware", None)
        for middleware in getattr(manager, "middlewares", ()):
            if isinstance(middleware, HttpCacheMiddleware):
                middleware.policy = _RestrictedPolicy(middleware.policy, self.may_store)

    def _decision(self, guarded: GuardedRequest) -> Decision | None:
        """The decision by which a request has passed; None if there is none, or signals are off."""
        return None if self._is_off else guarded.decision

    # -- the header fields, as soon as they have arrived -------------------------------------------

    def _stop_refused(self, headers: Headers, body_length: int | None, request: Request) -> None:
        """Stop the download of a response that its header fields refuse."""
        status = status_of(request)
        if body_length == 0 or status is None or status == _NOT_MODIFIED:
            return
        guarded = self._requests.of(request)
        decision = self._decision(guarded)
        if decision is None or not has_signals(headers) or self._questions.is_exempt(request):
            return
        head = ResponseHead(status=status, headers=fields_of(headers), method=request.method)
        verdict = self._guard.responses.judge(
            decision.question,
            head,
            policy=decision.policy,
            is_final=False,
            can_use_links_only=self._can_use_links_only(guarded),
        )
        if verdict is not None and verdict.action is not Action.PASS:
            guarded.stopped = verdict
            raise StopDownload(fail=False)

    # -- a response, before other middlewares ------------------------------------------------------

    def receive(self, request: Request, guarded: GuardedRequest, response: Response) -> None:
        """Take from a response what another middleware would hide."""
        decision = self._decision(guarded)
        if decision is None:
            return
        if response.status == _NOT_MODIFIED:
            guarded.validated = validated_fields(request, response)
        elif not has_signals(response.headers):
            return
        elif response.status < 400:
            self._record_hop(request, guarded, response)
        elif self._asks_for_payment(request, response, decision):
            request.meta["dont_retry"] = True

    def _record_hop(self, request: Request, guarded: GuardedRequest, response: Response) -> None:
        """Record what a redirect states: it is about the redirect, and not about its target."""
        case = self._case(request, guarded, response)
        if case is None:
            return
        head = head_of(request, response, [])
        verdict = self._guard.responses.judge(case.question, head, policy=case.policy)
        if verdict is not None:
            guarded.hop = self._guard.responses.record(
                case.question, head, verdict, case.request_id
            )

    def _asks_for_payment(self, request: Request, response: Response, decision: Decision) -> bool:
        if self._questions.is_exempt(request):
            return False
        head = head_of(request, response, [])
        verdict = self._guard.responses.judge(decision.question, head, policy=decision.policy)
        return (
            verdict is not None
            and verdict.action is Action.DROP
            and verdict.reason is Reason.PAYMENT_REQUIRED
        )

    # -- a response, for the HTTP cache ------------------------------------------------------------

    def may_store(self, request: Request, response: Response) -> bool:
        """Whether the HTTP cache may keep a response.

        It keeps none that is refused, nor one of which the site denies an archive. Where other
        middlewares may decode more of a page than is read here, it is not known to be either.
        """
        guarded = self._requests.of(request)
        case = self._case(request, guarded, response)
        if case is None or self._guard.report_only:
            return True
        terms = self._guard.terms(case.question.origin)
        if not _is_enforced(case, terms):
            return True
        head = head_of(request, response, guarded.validated or [])
        page = _page(response, head, terms)
        if page is not None and page.is_incomplete and is_encoded(response):
            return False
        verdict = self._judge(guarded, response, case, head, page)
        if verdict is None:
            return True
        if verdict.action is not Action.PASS or verdict.uses is None:
            return False
        return verdict.uses.states[Use.ARCHIVE] is not UseState.DENY

    # -- a response, after other middlewares -------------------------------------------------------

    def admit(self, request: Request, guarded: GuardedRequest, response: Response) -> Response:
        """Hand on a response that may be used. Raises RobotsSignalled for any other."""
        request.meta.pop(META, None)  # of an earlier page, if a spider has copied its meta
        if self._is_off or self._is_silent(request, guarded, response):
            return response
        case = self._case(request, guarded, response)
        if case is None:
            return response
        terms = self._guard.terms(case.question.origin)
        head = self._head(request, guarded, response, terms)
        page = _page(response, head, terms)
        verdict = self._judge(guarded, response, case, head, page)
        if verdict is not None:
            self._enforce(request, guarded, case, head, verdict)
        if _is_enforced(case, terms):
            guarded.links = PageLinks(response.url, page, verdict)
        return response

    def _is_silent(self, request: Request, guarded: GuardedRequest, response: Response) -> bool:
        """Whether nothing is stated that would have to be recorded: a fast check."""
        if self._reads_pages or has_signals(response.headers) or response.url != request.url:
            return False
        decision = self._decision(guarded)
        if decision is None or guarded.validated is not None:
            return False
        return self._guard.responses.is_policy_silent(decision.question, decision.policy)

    def _head(
        self, request: Request, guarded: GuardedRequest, response: Response, terms: Terms
    ) -> ResponseHead:
        """The head of a response, without its fields if none of them matters."""
        validated = guarded.validated or []
        if (
            validated
            or terms.purposes
            or terms.signals == "record"
            or has_signals(response.headers)
        ):
            return head_of(request, response, validated)
        return ResponseHead(status=response.status, method=request.method)

    def _enforce(
        self,
        request: Request,
        guarded: GuardedRequest,
        case: _Case,
        head: ResponseHead,
        verdict: Verdict,
    ) -> None:
        decision = None
        if 300 <= head.status < 400:
            decision = guarded.hop  # recorded already
        if decision is None:
            decision = self._guard.responses.record(case.question, head, verdict, case.request_id)
        request.meta[META] = annotation(decision)
        if decision.verdict.action is not Action.PASS:
            self._refusals.report(decision)
            raise RobotsSignalled(decision)

    def links_of(self, response: Response) -> PageLinks | None:
        """What applies to the links of a response that was handed to a spider; None if nothing
        does."""
        request = response.request
        return self._requests.of(request).links if request is not None else None

    def may_follow(self, request: Request, links: PageLinks, objection: str) -> bool:
        """Record that a link of a page is not to be followed; return whether the request is made
        all the same, because the operator has exempted it, or nothing is refused."""
        if self._questions.is_exempt(request):
            return True
        verdict = Verdict(action=Action.DROP, reason=Reason.LINK_NOFOLLOW, detail=objection)
        if self._guard.report_only:
            verdict = as_report_only(verdict)
        question = self._questions.question(request)
        decision = self._guard.decide(msgspec.structs.replace(question, led_by=links.url), verdict)
        if decision.verdict.action is Action.PASS:
            return True
        self._refusals.report(decision)
        return False

    # -- the judgement -----------------------------------------------------------------------------

    def _case(self, request: Request, guarded: GuardedRequest, response: Response) -> _Case | None:
        """The response as a case, or None if the guard does not govern it."""
        decision = self._decision(guarded)
        if decision is not None and response.url == request.url:
            is_exempt = self._questions.is_exempt(request)
            return _Case(decision.question, decision.policy, decision.id, is_exempt)
        if decision is None and urlparse_cached(request).scheme in SERVED_BY_HTTP:
            return None
        try:
            question = self._questions.reached_question(response.url, request, sent=False)
        except (NotGoverned, MalformedURL):
            return None
        is_exempt = self._questions.exemption(request, response.url) is not None
        if decision is not None and are_same(request.url, response.url):
            return _Case(decision.question, decision.policy, decision.id, is_exempt)
        return _Case(question, None, decision.id if decision is not None else "", is_exempt)

    def _judge(
        self,
        guarded: GuardedRequest,
        response: Response,
        case: _Case,
        head: ResponseHead,
        page: Page | None,
    ) -> Verdict | None:
        if "download_stopped" in response.flags and guarded.stopped is not None:
            return guarded.stopped
        verdict = self._guard.responses.judge(
            case.question,
            head,
            page,
            policy=case.policy,
            can_use_links_only=self._can_use_links_only(guarded),
        )
        if verdict is not None and case.is_exempt:
            return _exempted(verdict)
        return verdict

    def _can_use_links_only(self, guarded: GuardedRequest) -> bool:
        """Whether the response goes to a spider, whose items from it can be dropped."""
        return self.can_drop_items and guarded.is_scheduled


class _RestrictedPolicy:
    """A cache policy of a project, `HTTPCACHE_POLICY`, that `may_store` restricts."""

    def __init__(self, policy: Any, may_store: Callable[[Request, Response], bool]) -> None:
        self._policy = policy
        self._may_store = may_store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def should_cache_response(self, response: Response, request: Request) -> bool:
        """Whether the response is stored."""
        is_stored = self._policy.should_cache_response(response, request)
        return bool(is_stored and self._may_store(request, response))


def _is_enforced(case: _Case, terms: Terms) -> bool:
    """Whether signals are enforced, and neither the request nor its site is exempt."""
    return terms.enforces_signals and terms.action != "pass" and not case.is_exempt


def _page(response: Response, head: ResponseHead, terms: Terms) -> Page | None:
    return page_of(response, head.content_type) if reads_page(head, terms) else None


def annotation(decision: Decision) -> dict[str, Any]:
    """What a site states about a response and what follows from it, as values of JSON."""
    verdict = decision.verdict
    values: dict[str, Any] = {
        "id": decision.id,
        "agent": decision.question.agent,
        "purposes": list(decision.purposes),
        "action": verdict.action.value,
        "reason": verdict.reason.value,
    }
    if verdict.would is not None:
        values["would"] = verdict.would.value
    if verdict.detail:
        values["detail"] = verdict.detail
    if verdict.is_follow_only:
        values["follow_only"] = True
    if verdict.uses is not None:
        values.update(plain_of(verdict.uses))
    return values


def _exempted(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        action=Action.PASS,
        reason=Reason.BYPASSED,
        relaxed=BYPASS,
        rule=None,
        would=None,
        is_follow_only=False,
    )
