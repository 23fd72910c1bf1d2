"""The state that a request carries while it is back in the scheduler.

It consists of plain values in the request's meta, so that JOBDIR and Redis preserve it. The values
are removed when the request comes out again: no response's meta has any of them, and the
dupefilter, the offsite filter and redirects see the original request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robots_guard.core.verdict import Decision, Deferral

if TYPE_CHECKING:
    from scrapy import Request

RETURNED = "_robots_guard_df"  # the request's own dont_filter
DEFERRAL = "_robots_guard_deferral"  # id and time of the first decision that deferred it
# the group of deferred requests that it belongs to: part of a bucket's name
GROUP = "_robots_guard_aside"
PRIORITY = "_robots_guard_priority"  # its own priority, while that is lowered


def is_returned(request: Request) -> bool:
    """Whether the request is on its way back to the scheduler, or has come from there with its
    return state."""
    return RETURNED in request.meta


def returned_copy(request: Request, decision: Decision | None = None, group: str = "") -> Request:
    """The copy that goes back to the scheduler.

    `decision` is the one that defers it, if there is one.
    """
    copy = request.copy()
    meta = copy.meta
    meta.setdefault(RETURNED, request.dont_filter)
    copy.dont_filter = True  # the dupefilter has seen it
    meta.pop(GROUP, None)
    if group:
        meta[GROUP] = group
    if decision is not None:
        first = decision.question.deferral or Deferral(decision.id, decision.at)
        meta[DEFERRAL] = [first.id, first.since]
    return copy


def demoted_copy(request: Request) -> Request:
    """The copy that goes back behind all other requests of its priority."""
    copy = returned_copy(request, group=request.meta.get(GROUP, ""))
    copy.meta.setdefault(PRIORITY, request.priority)
    copy.priority -= 1
    return copy


def parked_copy(request: Request) -> Request:
    """The copy of a parked request that goes back when a crawl ends, with its own priority."""
    copy = returned_copy(request, group=request.meta.get(GROUP, ""))
    copy.priority = copy.meta.pop(PRIORITY, copy.priority)
    return copy


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
