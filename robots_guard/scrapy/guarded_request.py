"""A guarded request: what the guard knows of one Scrapy request, from the queue to its response.

    NEW      -> PASSED     it was judged from memory, and sealed
    NEW      -> REFUSED    it is being judged: it is refused until it passes
    NEW      -> WAITING    its policy is fetched first
    REFUSED  -> PASSED     it was judged, and sealed as it was when that began
    REFUSED  -> WAITING    it may not be made yet
    PASSED   -> REFUSED    it was changed and is judged again, or is refused when its turn has come
    PASSED   -> WAITING    its turn has not come
    WAITING  -> NEW        it has come out of the scheduler again
    PASSED   -> SENT       it is handed to its download handler, as it was sealed, with its turn
    SENT     -> ANSWERED   its response has begun, or the download has failed

The copies that a retry or a redirect makes are other requests, and so is what comes out of a queue
on disk. A request is NEW again, whatever its state, if a project sends the same object again.

Invariant: a request is SENT only as it was judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import ParseResult
from weakref import WeakKeyDictionary

import msgspec
from scrapy.utils.httpobj import urlparse_cached

from robots_guard.decisions.verdict import Decision, Deferral, Verdict
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_cached
from robots_guard.scrapy.pages import Fields, PageLinks
from robots_guard.scrapy.written import parsed_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

#: The parts of a request that its verdict depends on: method, URL, the URL as Scrapy has parsed it
#: (None if it cannot), and Host fields. A download handler reads one of the URLs.
Seal = tuple[str, str, ParseResult | None, Sequence[bytes]]
State = Literal["NEW", "WAITING", "PASSED", "SENT", "ANSWERED", "REFUSED"]

TRANSITIONS: dict[State, tuple[State, ...]] = {
    "NEW": ("PASSED", "REFUSED", "WAITING"),
    "REFUSED": ("PASSED", "WAITING"),
    "PASSED": ("REFUSED", "WAITING", "SENT"),
    "SENT": ("ANSWERED",),
    "ANSWERED": (),
    "WAITING": ("NEW",),
}
#: The meta key of the URLs that have led to a request by redirects, as Scrapy's RedirectMiddleware
#: writes it.
HISTORY = "redirect_urls"
#: Schemes that Scrapy's own handlers serve over https, with the https URL in the response.
SERVED_BY_HTTP = ("s3",)
#: The Host fields of a request that has none.
NO_HOSTS: tuple[bytes, ...] = ()
_HOST = frozenset((b"Host",))


class GuardedRequest(msgspec.Struct, eq=False):
    """One request, and its last download.

    `is_scheduled`: it came out of the queue, and so can go back to it. `seal` and `decision` are
    those by which it has last passed; no robots.txt governs it if it has no decision. `deferral` is
    the earlier one of a request that has waited. `turn_by` is the decision that requires a turn,
    taken or not; `sent_by` is the one by which it was sent in its turn.

    A download handler may follow redirects by itself, as a browser does; so may a middleware that
    makes its own requests. Such URLs appear as the URL of the response, and in the `redirect_urls`
    that the component adds to the request's meta. A URL in neither place cannot be detected. What is
    in `redirect_urls` when the request is sent (`history` and its length) belongs to earlier
    requests. `reached` has the URLs of this download that have passed since.

    The rest is what was found in the response: the fields of a 304 (`validated`), the verdict by
    which the download was stopped, the decision on a redirect (`hop`), and what applies to its
    links.
    """

    state: State = "NEW"
    is_scheduled: bool = False
    seal: Seal | None = None
    decision: Decision | None = None
    deferral: Deferral | None = None
    turn_by: Decision | None = None
    sent_by: Decision | None = None
    history: tuple[Any, int] = (None, 0)
    reached: AbstractSet[str] = frozenset()
    validated: Fields | None = None
    stopped: Verdict | None = None
    hop: Decision | None = None
    links: PageLinks | None = None

    # -- transitions -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a download, without what is known of an earlier response to the same object."""
        self.state, self.deferral = "NEW", None
        self.history, self.reached = (None, 0), frozenset()
        self.validated = self.stopped = self.hop = self.links = None

    def refuse(self) -> None:
        """Refuse the request, at least until it passes."""
        self._become("REFUSED")
        self.seal = self.decision = None  # it may have passed, and been sent back

    def wait(self) -> None:
        """Let the request wait in the scheduler, or in the turn queue if it bypasses that."""
        self._become("WAITING")
        self.is_scheduled = False  # a project may send the same object once more, without it

    def let_pass(self, seal: Seal, decision: Decision | None, history: Any = None) -> None:
        """Let the request be sent as it was when it was judged. `history` is its `redirect_urls`."""
        self._become("PASSED")
        self.seal, self.decision = seal, decision
        if history is not None and isinstance(history, list | tuple):
            self.history = history, len(history)

    def send(self) -> None:
        """Note that the request is handed to its download handler."""
        self._become("SENT")

    def answer(self) -> Decision | None:
        """Note that the response has begun. Returns the decision by which the request was sent in
        its turn, once."""
        if self.state == "SENT":
            self.state = "ANSWERED"
        sent_by, self.sent_by = self.sent_by, None
        return sent_by

    def _become(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:  # the project has the same object out twice
            assert state in TRANSITIONS["NEW"], f"a request that is {self.state} cannot be {state}"
        self.state = state

    # -- questions ---------------------------------------------------------------------------------

    def is_sealed(self, request: Request) -> bool:
        """Whether the request has passed, and has not been changed since it was judged."""
        return self.state == "PASSED" and self.seal == seal_of(request)

    @property
    def is_refused(self) -> bool:
        """Whether the request was judged and has not passed."""
        return self.state in ("REFUSED", "WAITING")

    @property
    def judged_url(self) -> str | None:
        """The URL that was judged before the request was sent; None if it was not judged."""
        return self.seal[1] if self.seal is not None else None

    def unjudged_urls(self, request: Request, response: Response) -> list[str]:
        """The URLs that were reached but not judged, in the order of the visits."""
        if urlparse_cached(request).scheme in SERVED_BY_HTTP:
            return []
        judged = self.judged_url
        reached = dict.fromkeys((*self._new_history(request), response.url))
        return [
            url
            for url in reached
            if url not in self.reached and (judged is None or not are_same(url, judged))
        ]

    def _new_history(self, request: Request) -> list[str]:
        """The URLs that this download has added to `redirect_urls`."""
        history = request.meta.get(HISTORY)
        if not isinstance(history, list | tuple):
            return []
        earlier, length = self.history
        start = length if history is earlier else 0
        return [url for url in history[start:] if isinstance(url, str)]


class GuardedRequests:
    """The requests of one crawl.

    Invariant: each is known as long as it exists, and nothing here keeps it alive.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Request, GuardedRequest] = WeakKeyDictionary()

    def of(self, request: Request) -> GuardedRequest:
        """What is known of a request."""
        known = self._known.get(request)
        return known if known is not None else self.begin(request)

    def begin(self, request: Request) -> GuardedRequest:
        """A request that is to be judged and downloaded, perhaps again."""
        known = self._known.get(request)
        if known is None:
            known = self._known[request] = GuardedRequest()
        else:
            known.begin()
        return known


def seal_of(request: Request) -> Seal:
    """The request's seal as it is now."""
    return request.method, request.url, parsed_url(request), hosts_of(request)


def hosts_of(request: Request) -> Sequence[bytes]:
    """The request's Host fields."""
    headers = request.headers
    # Most requests have none, and `getlist` takes as long as matching a rule.
    if _HOST.isdisjoint(headers):
        return NO_HOSTS
    hosts: list[bytes] = headers.getlist("Host")
    return hosts


def are_same(one: str, other: str) -> bool:
    """Whether two URLs have the same origin and target, on which verdicts depend."""
    if one == other:
        return True
    try:
        return split_cached(one) == split_cached(other)
    except (NotGoverned, MalformedURL):
        return False


# -- in the scheduler ------------------------------------------------------------------------------
#
# A WAITING request carries plain values in its meta, so that JOBDIR and Redis preserve them. They
# are removed when it comes out again: no response's meta has any of them, and the dupefilter, the
# offsite filter and redirects see the original request.
#
# The request itself goes back, not a copy: a project's own class of requests may have attributes
# that `Request.copy` loses, or a constructor that it cannot call, and a spider may look requests up
# by their identity.

RETURNED = "_robots_guard_df"  # the request's own dont_filter
DEFERRAL = "_robots_guard_deferral"  # id and time of the first decision that deferred it
# the group of deferred requests that it belongs to: part of a bucket's name
GROUP = "_robots_guard_aside"
PRIORITY = "_robots_guard_priority"  # its own priority, while it has another
FIRST = 1_000_000_000  # what is added to the priority of a request that goes to the front


def is_returned(request: Request) -> bool:
    """Whether the request is on its way back to the scheduler, or has come from there with its
    return state."""
    return RETURNED in request.meta


def give_back(request: Request, decision: Decision | None = None, group: str = "") -> Request:
    """Prepare a request to go back to the scheduler. Returns it.

    `decision` is the one that defers it, if there is one. It left before the other requests of its
    bucket, so it goes to their front. One in a group, which a rule forbids for now, keeps its place.
    """
    meta = request.meta
    request.priority = meta.setdefault(PRIORITY, request.priority)
    if not group:
        request.priority += FIRST
    meta.setdefault(RETURNED, request.dont_filter)
    request.dont_filter = True  # the dupefilter has seen it
    meta.pop(GROUP, None)
    if group:
        meta[GROUP] = group
    if decision is not None:
        first = decision.question.deferral or Deferral(decision.id, decision.at)
        meta[DEFERRAL] = [first.id, first.since]
    return request


def demote(request: Request) -> Request:
    """Prepare a request to go back behind all others of its priority. Returns it."""
    priority = request.priority
    give_back(request, group=request.meta.get(GROUP, ""))
    request.priority = min(priority, request.meta[PRIORITY]) - 1
    return request


def unpark(request: Request) -> Request:
    """Prepare a parked request to go back when a crawl ends, with its own priority. Returns it."""
    give_back(request, group=request.meta.get(GROUP, ""))
    request.priority = request.meta.pop(PRIORITY)
    return request


def restore(request: Request) -> Deferral | None:
    """Restore a request that has come out again. Returns its earlier deferral, if there was one."""
    meta = request.meta
    if RETURNED not in meta:
        return None
    request.dont_filter = meta.pop(RETURNED)
    request.priority = meta.pop(PRIORITY, request.priority)
    meta.pop(GROUP, None)
    deferral = meta.pop(DEFERRAL, None)
    if deferral:
        return Deferral(*deferral)
    return None
