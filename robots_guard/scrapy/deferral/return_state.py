"""The state that a request carries while it is back in the scheduler.

It consists of plain values in the request's meta, so that JOBDIR and Redis preserve it. The values
are removed when the request comes out again: no response's meta has any of them, and the
dupefilter, the offsite filter and redirects see the original request.

The request itself goes back, not a copy: a project's own class of requests may have attributes that
`Request.copy` loses, or a constructor that it cannot call, and a spider may look requests up by
their identity.
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
