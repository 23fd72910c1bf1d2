"""Refusals: the HTTP responses to requests that are refused or deferred, and to those on which there is
no decision.

These are pure functions, and they make no decisions. A refusal is a 403 (400 if malformed, 503 if
it must wait, 429 if the site wants fewer requests) with `Robots-Guard` (`gateway.own_fields`) and
`Proxy-Status` (RFC 9209). Its body names the URL, the reason, the rule and the contact:
problem+json (RFC 9457), or a page if the client prefers HTML. Rule text is untrusted and always
escaped. For a part of a page, it can be a placeholder instead (`gateway.placeholders`), with the
same fields.

Invariant: deny first. Whatever was raised while a request was judged, the request is refused.
"""

from __future__ import annotations

import logging
import math
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from robots_guard.decisions.reasons import Party, Reason, meaning_of
from robots_guard.decisions.verdict import Action, Decision, Subresource
from robots_guard.errors import SettingsError
from robots_guard.gateway.destinations import NoAddress
from robots_guard.gateway.own_fields import SIGNALS, VERDICT, signals_field
from robots_guard.gateway.placeholders import PLACEHOLDERS, placeholder_fields
from robots_guard.gateway.waits import NoRoomToWait, ShuttingDown
from robots_guard.invocation import BARE, EVIDENCE, Invocation

if TYPE_CHECKING:
    import jinja2


MAX_QUOTED = 256  # characters of untrusted text in a header field
MAX_URL = 2048  # characters of a URL in a body
OPERATOR = "the operator of this crawler, who runs this proxy"  # the contact if none is set
RETRY_AFTER = 10  # seconds that a restart, or the uploads of other clients, may take
_MAX_CACHED = 256  # characters of an Accept field; a browser's has about 140
_NOT_PRINTABLE = re.compile(r"[^ -~]")


class ProxyReply(NamedTuple):
    """A response of the proxy: status, header fields and body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def reply_to(
    decision: Decision,
    *,
    method: str = "GET",
    accept: str = "",
    contact: str = "",
    invocation: Invocation = BARE,
) -> ProxyReply:
    """The response to a request that is refused or deferred, or whose response is refused.

    `contact` is a URL or a mail address of the operator. `invocation` says what a command must name
    that looks for the decision in this proxy's audit log.
    """
    verdict = decision.verdict
    status, error = meaning_of(verdict.reason).response(verdict.action)
    fields = [
        (VERDICT, _robots_guard(decision)),
        ("Proxy-Status", f"robots-guard; error={error}; details={quoted(verdict.reason)}"),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if verdict.uses is not None and (signals := signals_field(verdict.uses)):
        fields.append((SIGNALS, signals))
    if verdict.action is Action.DEFER:
        fields.append(("Retry-After", str(_seconds_to_wait(decision))))
    if decision.question.subresource is not None:
        return _placeholder(decision.question.subresource, fields, method)
    if prefers_html(accept):
        fields += [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
        ]
        body = _page(decision, status, contact, invocation)
    else:
        fields.append(("Content-Type", "application/problem+json"))
        body = _json(_problem(decision, status, contact, invocation))
    return ProxyReply(status, tuple(fields), b"" if method == "HEAD" else body)


def _placeholder(
    subresource: Subresource, fields: list[tuple[str, str]], method: str
) -> ProxyReply:
    """A harmless response instead of an error, with the same fields that say why."""
    placeholder = PLACEHOLDERS[subresource.destination]
    body = b"" if method == "HEAD" else placeholder.body
    return ProxyReply(placeholder.status, (*fields, *placeholder_fields(subresource)), body)


def not_ready(reason: str, *, method: str = "GET") -> ProxyReply:
    """The response if there is no decision: the guard is not configured, or has failed."""
    fields = (
        (VERDICT, f"drop; reason={Reason.INTERNAL_ERROR}"),
        ("Proxy-Status", "robots-guard; error=proxy_internal_error"),
    )
    problem: dict[str, object] = {"detail": reason, "reason": Reason.INTERNAL_ERROR}
    return _unavailable(fields, problem, method)


def shutting_down(*, method: str = "GET") -> ProxyReply:
    """The response during a shutdown. It is to be retried, because the proxy may be restarted soon."""
    reply = _retry_later("The proxy is shutting down.", method)
    return reply._replace(headers=(*reply.headers, ("Connection", "close")))


def too_many_held(*, method: str = "GET") -> ProxyReply:
    """The response while so many requests are held that no further one may wait."""
    return _retry_later("Too many requests wait for their turn.", method)


def no_room(*, method: str = "GET") -> ProxyReply:
    """The response to an upload while other uploads take all the memory for bodies."""
    return _retry_later("Other uploads take all the memory for bodies (body_memory).", method)


def too_large(*, method: str = "GET") -> ProxyReply:
    """The response to an upload that is larger than the memory for all bodies (RFC 9110 section 15.5.14)."""
    fields = (
        ("Proxy-Status", "robots-guard; error=http_request_error"),
        ("Cache-Control", "no-store"),
        ("Content-Type", "application/problem+json"),
    )
    detail = "The body is larger than all the memory for bodies (body_memory)."
    problem = {"title": "Content Too Large", "status": 413, "detail": detail}
    return ProxyReply(413, fields, b"" if method == "HEAD" else _json(problem))


def _retry_later(reason: str, method: str) -> ProxyReply:
    """A 503 to be retried: nothing is wrong with the request, and it was not judged."""
    fields = (
        ("Proxy-Status", "robots-guard; error=proxy_internal_response"),
        ("Retry-After", str(RETRY_AFTER)),
    )
    return _unavailable(fields, {"detail": reason}, method)


def _unavailable(
    fields: tuple[tuple[str, str], ...], members: dict[str, object], method: str
) -> ProxyReply:
    more = (("Cache-Control", "no-store"), ("Content-Type", "application/problem+json"))
    problem = {"title": "Service Unavailable", "status": 503, **members}
    return ProxyReply(503, (*fields, *more), b"" if method == "HEAD" else _json(problem))


def _json(members: dict[str, object]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(members), indent=1)


def prefers_html(accept: str) -> bool:
    """Whether an Accept field names text/html, with a weight that is not below that of JSON."""
    if len(accept) > _MAX_CACHED:
        return _prefers_html.__wrapped__(accept)
    return _prefers_html(accept)


@lru_cache(maxsize=256)
def _prefers_html(accept: str) -> bool:
    weights = {"text/html": 0.0, "application/problem+json": 0.0, "application/json": 0.0}
    for item in accept.lower().split(","):
        name, _, parameters = item.partition(";")
        if name.strip() in weights:
            weights[name.strip()] = _weight(parameters)
    html, *others = weights.values()
    return html > 0 and html >= max(others)


def _weight(parameters: str) -> float:
    found = re.search(r"q\s*=\s*([01](?:\.[0-9]*)?)", parameters)
    if found:
        return float(found[1])
    return 1.0


def quoted(text: str) -> str:
    """A string in the syntax of RFC 8941 section 3.3.3: printable ASCII, quotes and backslashes escaped."""
    text = _NOT_PRINTABLE.sub("?", text[:MAX_QUOTED])
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _robots_guard(decision: Decision) -> str:
    verdict = decision.verdict
    parts = [str(verdict.action), f"reason={verdict.reason}"]
    if verdict.until is not None:
        parts.append(f"until={math.ceil(verdict.until)}")
    if verdict.rule:
        parts += [f"rule={quoted(verdict.rule.text)}", f"line={verdict.rule.line}"]
    return "; ".join([*parts, f"id={quoted(decision.id)}"])


def _seconds_to_wait(decision: Decision) -> int:
    """The whole seconds after which the request should be repeated."""
    until = decision.verdict.until
    if until is None:
        return 60
    return max(1, math.ceil(until - decision.at))


def _why(decision: Decision) -> str:
    sentence = meaning_of(decision.verdict.reason).sentence
    if _is_pinned(decision) and decision.verdict.rule is not None:
        sentence += (
            " The robots.txt is not the site's own: the operator of this crawler has pinned it."
        )
    if decision.verdict.action is not Action.DEFER:
        return sentence
    return f"{sentence} Try again in {_seconds_to_wait(decision)} s: it may be allowed then."


def _outcome(decision: Decision) -> str:
    if decision.response is None:
        return "This request did not leave the proxy."
    return "The site has answered, and the proxy has not passed its answer on."


def _url(decision: Decision) -> str:
    return f"{decision.question.origin}{decision.question.target}"[:MAX_URL]


def _is_pinned(decision: Decision) -> bool:
    """Whether a robots.txt decides that is the operator's."""
    return decision.policy is not None and decision.policy.is_pinned


def _robots_url(decision: Decision) -> str | None:
    """Where the robots.txt is that decides; None if the operator has pinned it."""
    if _is_pinned(decision):
        return None
    return decision.question.origin.robots_url


def _fetched_at(decision: Decision) -> datetime | None:
    """The second in which the robots.txt was fetched. A pinned one is not fetched."""
    document = decision.policy.document if decision.policy else None
    if document is None or _is_pinned(decision):
        return None
    return datetime.fromtimestamp(int(document.fetched_at), UTC)


def _until(decision: Decision) -> datetime | None:
    """The second from which the request may be repeated."""
    until = decision.verdict.until
    if until is None:
        return None
    return datetime.fromtimestamp(math.ceil(until), UTC)


def _command(decision: Decision, invocation: Invocation) -> str:
    """The command that says why, on the machine of the proxy."""
    return invocation.command("why", decision.id, needs=EVIDENCE)


def _problem(
    decision: Decision, status: int, contact: str, invocation: Invocation
) -> dict[str, object]:
    verdict = decision.verdict
    members = {
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _why(decision),
        "action": verdict.action,
        "reason": verdict.reason,
        "url": _url(decision),
        "rule": verdict.rule and verdict.rule.text,
        "line": verdict.rule and verdict.rule.line,
        "group": verdict.group,
        "because": verdict.detail,
        "purposes": list(decision.purposes) or None,
        "denied": (verdict.uses and verdict.uses.denied) or None,
        "delay": (verdict.delay and verdict.delay.seconds) or None,
        "until": _until(decision),
        "robots_url": _robots_url(decision),
        "fetched_at": _fetched_at(decision),
        "agent": decision.question.agent,
        "id": decision.id,
        "command": _command(decision, invocation),
        "contact": contact or OPERATOR,
    }
    return {name: value for name, value in members.items() if value is not None}


def _page(decision: Decision, status: int, contact: str, invocation: Invocation) -> bytes:
    verdict = decision.verdict
    is_by_site = meaning_of(verdict.reason).fault is Party.SITE and decision.response is None
    is_deferred = verdict.action is Action.DEFER
    return render(
        "refusal.html",
        status=status,
        verdict=verdict,
        why=_why(decision),
        outcome=_outcome(decision),
        url=_url(decision),
        robots_url=_robots_url(decision) if is_by_site else None,
        fetched_at=_fetched_at(decision),
        wait=_seconds_to_wait(decision) if is_deferred else None,
        agent=decision.question.agent,
        id=decision.id,
        command=_command(decision, invocation),
        header=_robots_guard(decision),
        operator=OPERATOR,
        contact=contact,
        contact_url=contact if contact.startswith(("http://", "https://")) else f"mailto:{contact}",
    )


def render(name: str, **values: object) -> bytes:
    """The page of the template with this name: one style sheet, no scripts, no external resources.

    All values are escaped, because clients and sites control some of them.
    """
    return _template(name).render(values).encode()


@cache
def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("robots_guard.gateway"),
        autoescape=True,
        auto_reload=False,  # it would check the files of the templates for each page
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


log = logging.getLogger("robots_guard")

NO_VERDICT = "The guard could not reach a verdict."


def reply_to_failure(error: Exception, method: str) -> ProxyReply:
    """Return the response to a request whose judgement has raised this error, and log an
    unexpected one."""
    if isinstance(error, ShuttingDown):
        return shutting_down(method=method)
    if isinstance(error, NoRoomToWait):
        return too_many_held(method=method)
    if isinstance(error, NoAddress):
        return not_ready(str(error), method=method)
    if isinstance(error, SettingsError):
        return not_ready(f"The guard is not ready: {error}", method=method)
    log.error("robots_guard failed; the request is refused", exc_info=error)
    return not_ready(NO_VERDICT, method=method)
