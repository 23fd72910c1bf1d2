"""Validation of policies that are read from a file.

A policy that this process has settled on is valid by construction. One from a file may contain
anything that fits its fields: a body with another digest, a time in the future, a retry in a
hundred years.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import isfinite

from robots_guard.decisions.access import MAX_BODY, MAX_RESERVATIONS
from robots_guard.decisions.freshness import CLOCK_SKEW, RETRY_MAX
from robots_guard.decisions.policy import Document, FetchTrouble, Policy, Reservations
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import Origin, origin_of, split_url

MAX_TEXT = 8192  # characters per field
MAX_HOPS = 20
MAX_LIFETIME = 2.0**31  # RFC 9111 section 1.2.2
MAX_ATTEMPTS = 2**31


def objection(policy: Policy, now: float) -> str | None:
    """Why the policy must not be used, or None."""
    return next(_objections(policy, now), None)


def _objections(policy: Policy, now: float) -> Iterator[str]:
    if not _is_canonical(policy.origin):
        yield "its origin is not in canonical form"
    if policy.document is None and policy.trouble is None:
        yield "it contains neither a document nor trouble"
    if policy.document is not None:
        yield from _of_document(policy.document, now)
    if policy.trouble is not None:
        yield from _of_trouble(policy.trouble, now)
    if policy.reservations is not None:
        yield from _of_reservations(policy.reservations, now)


def _is_canonical(origin: Origin) -> bool:
    try:
        return origin_of(str(origin)) == origin
    except (MalformedURL, NotGoverned, KeyError):
        return False


def _of_document(document: Document, now: float) -> Iterator[str]:
    if len(document.body) > MAX_BODY:
        yield f"its body is longer than {MAX_BODY} bytes"
    elif hashlib.sha256(document.body).hexdigest() != document.sha256:
        yield "its body does not match its sha256"
    if not 200 <= document.status < 500 or (document.body and document.status >= 300):
        yield f"status {document.status} does not fit this document"
    if not 0 <= document.fetched_at <= now + CLOCK_SKEW:
        yield "its time of fetching is invalid or in the future"
    if document.stated_lifetime is not None and not 0 <= document.stated_lifetime <= MAX_LIFETIME:
        yield "its lifetime is out of range"
    texts = (
        document.url,
        document.content_type,
        document.etag,
        document.last_modified,
        document.via,
    )
    if len(document.redirects) > MAX_HOPS or any(
        len(text) > MAX_TEXT for text in (*texts, *document.redirects)
    ):
        yield "one of its fields is too long"
    if not all(map(_is_url, (document.url, *document.redirects))):
        yield "one of its URLs is not an http(s) URL"


def _of_trouble(trouble: FetchTrouble, now: float) -> Iterator[str]:
    if not all(map(isfinite, (trouble.since, trouble.at, trouble.retry_at))):
        yield "a time of its trouble is not a number"
    elif not 0 <= trouble.since <= trouble.at <= now + CLOCK_SKEW:
        yield "a time of its trouble is invalid or in the future"
    elif not 0 <= trouble.retry_at - trouble.at <= 2 * RETRY_MAX:
        yield "the time of its next try is out of range"
    if not 1 <= trouble.attempts <= MAX_ATTEMPTS or len(trouble.detail) > MAX_TEXT:
        yield "its number of attempts or its detail is out of range"
    if trouble.status is not None and not 100 <= trouble.status <= 999:
        yield f"status {trouble.status} is not an HTTP status"


def _of_reservations(reservations: Reservations, now: float) -> Iterator[str]:
    if len(reservations.body) > MAX_RESERVATIONS:
        yield f"its reservations are longer than {MAX_RESERVATIONS} bytes"
    status = reservations.status
    if reservations.body and (status is None or status >= 300):
        yield "its reservations have a body without a status of success"
    if status is not None and not 200 <= status < 500:
        yield f"status {status} does not fit these reservations"
    times = (reservations.fetched_at, reservations.attempted_at)
    if not all(0 <= at <= now + CLOCK_SKEW for at in times):
        yield "a time of its reservations is invalid or in the future"
    texts = (
        reservations.failure,
        reservations.failed_for or "",
        reservations.etag,
        reservations.last_modified,
    )
    if any(len(text) > MAX_TEXT for text in texts):
        yield "a field of its reservations is too long"


def _is_url(text: str) -> bool:
    try:
        split_url(text)
    except (MalformedURL, NotGoverned):
        return False
    return True
