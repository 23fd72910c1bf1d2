"""A stored policy as people see it: what it allows, how old it is, and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from robots_guard.audit.record import moment, shown_url
from robots_guard.decisions.access import Access
from robots_guard.decisions.freshness import Freshness
from robots_guard.decisions.policy import Document, Policy, Reservations
from robots_guard.protocol.dialect import Dialect
from robots_guard.text import counted, span


class PolicyView(NamedTuple):
    """A policy, as a dialect reads it at `now`."""

    policy: Policy
    dialect: Dialect
    now: float

    @property
    def access(self) -> Access:
        """What the policy allows."""
        return self.policy.access(self.now, self.dialect)[0]

    @property
    def rules(self) -> Document | None:
        """The document whose rules apply, or None."""
        access, document = self.policy.access(self.now, self.dialect)
        if access is Access.RULES:
            return document
        return None

    @property
    def freshness(self) -> Freshness:
        """Whether the policy may be used."""
        return self.policy.freshness(self.now, self.dialect)

    @property
    def age(self) -> str:
        """The time since the last fetch, as text."""
        return span(self.now - self.policy.settled_at)

    @property
    def fresh_for(self) -> str:
        """The time until the policy stops being fresh, as text; empty if it has passed."""
        remaining = self.policy.expires_at(self.dialect) - self.now
        if remaining > 0:
            return span(remaining)
        return ""

    @property
    def status(self) -> str:
        """The HTTP status of the last fetch, or its failure."""
        document, trouble = self.policy.document, self.policy.trouble
        if trouble is not None:
            return str(trouble.status or trouble.failure)
        if document:
            return str(document.status)
        return ""

    @property
    def via(self) -> str:
        """The fetcher of the document, or an empty string."""
        if self.policy.document:
            return self.policy.document.via
        return ""

    @property
    def size(self) -> str:
        """The number of bytes of the document, or an empty string."""
        if self.policy.document:
            return str(len(self.policy.document.body))
        return ""


def facts(
    view: PolicyView, when: Callable[[float], str | None] = moment
) -> Iterator[tuple[str, str]]:
    """Yield what is known about a policy, as names and values. `when` writes a time as text."""
    document, trouble = view.policy.document, view.policy.trouble
    if document is not None:
        yield (
            "source",
            f"{shown_url(document.url)}, status {document.status}, {described_size(document)}",
        )
        yield from (("redirect", f"from {shown_url(url)}") for url in document.redirects)
        age = span(view.now - document.fetched_at)
        yield (
            "fetched",
            f"{when(document.fetched_at)}, {age} ago, via {document.via}{_verified(document)}",
        )
        yield "sha256", document.sha256
    if view.policy.reservations is not None:
        yield "tdmrep", _described_reservations(view.policy.reservations, view.now, when)
    if trouble is not None:
        tries = counted(trouble.attempts, "try/tries")
        yield "trouble", f"{trouble.says}, {tries} since {when(trouble.since)}"
    expires = view.policy.expires_at(view.dialect)
    remaining = f", in {span(expires - view.now)}" if expires > view.now else ", which is past"
    if trouble is None:
        yield "fresh", f"until {when(expires)}{remaining}"
    else:
        yield "next try", f"{when(expires)}{remaining}"


def reservations_as_data(reservations: Reservations | None) -> dict[str, Any] | None:
    """Return reservations as JSON values, without their body."""
    if reservations is None:
        return None
    has_answer = reservations.status is not None
    return {
        "status": reservations.status,
        "size": len(reservations.body) if has_answer else None,
        "sha256": reservations.sha256 if has_answer else None,
        "fetched_at": moment(reservations.fetched_at) if has_answer else None,
        "attempted_at": moment(reservations.attempted_at),
        "failure": reservations.failure or None,
    }


def _described_reservations(
    reservations: Reservations, now: float, when: Callable[[float], str | None]
) -> str:
    parts = []
    if reservations.failure:
        parts.append(f"not available at {when(reservations.attempted_at)} ({reservations.failure})")
    if reservations.status is not None:
        age = span(now - reservations.fetched_at)
        parts.append(
            f"status {reservations.status}, {len(reservations.body)} bytes,"
            f" {when(reservations.fetched_at)}, {age} ago"
        )
    return "; the last answer: ".join(parts)


def described_size(document: Document) -> str:
    """Return the size of a document, and whether it is complete."""
    note = ", truncated at the size cap" if document.truncated else ""
    return f"{len(document.body)} bytes{note}"


def _verified(document: Document) -> str:
    if not document.url.startswith("https:"):
        return ""
    if document.tls_verified:
        return ", TLS verified"
    return ", TLS not verified"
