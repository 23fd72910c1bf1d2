"""What a request carries while it is back in the scheduler.

Plain values in its meta, so that JOBDIR and Redis keep them. They are removed when it comes out again: no response's
meta has any of them, and the dupefilter, the offsite filter and redirects see the request as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robots_guard.core.verdict import Decision, Deferral

if TYPE_CHECKING:
    from scrapy import Request

RETURNED = "_robots_guard_df"  # the request's own dont_filter
DEFERRAL = "_robots_guard_deferral"  # id of the first decision that put it off, and when that was
ASIDE = "_robots_guard_aside"  # what it was set aside for: the name of a bucket
PRIORITY = "_robots_guard_priority"  # its own priority, while it has a lower one


def is_returned(request: Request) -> bool:
    """Whether the request is on its way back to the scheduler, or from there."""
    return RETURNED in request.meta


def returned(request: Request, decision: Decision | None = None, aside: str = "") -> Request:
    """The copy that goes back. `decision` is what defers it, if anything has been decided."""
    copy = request.copy()
    meta = copy.meta
    meta.setdefault(RETURNED, request.dont_filter)
    copy.dont_filter = True  # the dupefilter has seen it
    meta.pop(ASIDE, None)
    if aside:
        meta[ASIDE] = aside
    if decision is not None:
        first = decision.question.deferral or Deferral(decision.id, decision.at)
        meta[DEFERRAL] = [first.id, first.since]
    return copy


def demoted(request: Request) -> Request:
    """The copy that goes back behind all others of its priority."""
    copy = returned(request, aside=request.meta.get(ASIDE, ""))
    copy.meta.setdefault(PRIORITY, request.priority)
    copy.priority -= 1
    return copy


def kept(request: Request) -> Request:
    """The copy of a request that was held ready, to be put back when a crawl ends."""
    copy = returned(request, aside=request.meta.get(ASIDE, ""))
    copy.priority = copy.meta.pop(PRIORITY, copy.priority)
    return copy


def restore(request: Request) -> Deferral | None:
    """Restore a request that came out again. Returns how it was deferred before, if it was."""
    meta = request.meta
    if RETURNED not in meta:
        return None
    request.dont_filter = meta.pop(RETURNED)
    request.priority = meta.pop(PRIORITY, request.priority)
    meta.pop(ASIDE, None)
    deferral = meta.pop(DEFERRAL, None)
    return Deferral(*deferral) if deferral else None
