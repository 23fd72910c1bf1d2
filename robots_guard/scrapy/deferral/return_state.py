"""The state that a request carries while it is back in the scheduler.

It consists of plain values in the request's meta, so that JOBDIR and Redis preserve it. The values
are removed when the request comes out again: no response's meta has any of them, and the
dupefilter, the offsite filter and redirects see the original request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robots_guard.decisions.verdict import Decision, Deferral

if TYPE_CHECKING:
    from scrapy import Request

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


def returned_copy(request: Request, decision: Decision | None = None, group: str = "") -> Request:
    """The copy that goes back to the scheduler.

    `decision` is the one that defers it, if there is one. It left before the other requests of its
    bucket, so it goes to their front. One in a group, which a rule forbids for now, keeps its place.
    """
    copy = request.copy()
    meta = copy.meta
    copy.priority = meta.setdefault(PRIORITY, request.priority)
    if not group:
        copy.priority += FIRST
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
    copy.priority = min(request.priority, copy.meta[PRIORITY]) - 1
    return copy


def parked_copy(request: Request) -> Request:
    """The copy of a parked request that goes back when a crawl ends, with its own priority."""
    copy = returned_copy(request, group=request.meta.get(GROUP, ""))
    copy.priority = copy.meta.pop(PRIORITY)
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
