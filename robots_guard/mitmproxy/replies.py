"""Replies: a decision as the answer its crawler gets. Pure functions; nothing here decides anything.

A refusal looks like no origin's: 403 (400 for what is malformed, 503 for what must wait) with `Robots-Guard` and
`Proxy-Status` (RFC 9209), and a body that says what, why, by which rule and whom to ask: problem+json (RFC 9457),
or a page where the client asks for one. Rule text is a stranger's and is escaped wherever it goes.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from robots_guard.core.verdict import Action, Decision, Reason, Verdict

LONGEST = 256  # characters of a stranger's text in a header field
LONGEST_URL = 2048  # ... and of an address in a body
_NOT_PRINTABLE = re.compile(r"[^ -~]")

_WHY = {
    Reason.DISALLOWED: "The site's robots.txt does not allow {agent} to fetch this.",
    Reason.MIRROR: "The site's robots.txt names another host as its main one; this one is not to be crawled.",
    Reason.RESTRICTED: "The site refuses to show its robots.txt, which means that crawlers are not wanted here.",
    Reason.UNREACHABLE: "The site's robots.txt cannot be fetched, so what it allows is not known.",
    Reason.MALFORMED_TARGET: "The request is malformed: two servers could read it in two ways.",
    Reason.AMBIGUOUS_AUTHORITY: "The request names more than one site, so it is not clear whose robots.txt holds.",
    Reason.INTERNAL_ERROR: "The guard could not reach a verdict, and what is not allowed is refused.",
}


class Reply(NamedTuple):
    """Status, header fields and body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def reply_to(decision: Decision, *, method: str = "GET", accept: str = "") -> Reply:
    """The answer to a request that does not go through."""
    verdict = decision.verdict
    status = _status(verdict)
    fields = [
        ("Robots-Guard", _robots_guard(decision)),
        ("Proxy-Status", f"robots-guard; error={_error(verdict)}; details={quoted(verdict.reason)}"),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if verdict.action is Action.DEFER:
        fields.append(("Retry-After", str(_wait(decision))))
    if prefers_html(accept):
        fields += [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
        ]
        body = _page(decision, status)
    else:
        fields.append(("Content-Type", "application/problem+json"))
        body = json.dumps(_problem(decision, status), indent=1).encode()
    return Reply(status, tuple(fields), b"" if method == "HEAD" else body)


def itself(*, method: str = "GET") -> Reply:
    """The answer to whoever opens the proxy's own address as if it were a site."""
    fields = (
        ("Robots-Guard", f"drop; reason={Reason.MALFORMED_TARGET}"),
        ("Proxy-Status", "robots-guard; error=http_request_error"),
        ("Cache-Control", "no-store"),
        ("Content-Type", "text/plain; charset=utf-8"),
    )
    sentence = "This is a proxy for crawlers, not a site: set it as http_proxy and https_proxy, and ask for a site.\n"
    return Reply(400, fields, b"" if method == "HEAD" else sentence.encode())


def unready(reason: str, *, method: str = "GET") -> Reply:
    """The answer while there is no decision at all: not configured, or our own fault."""
    fields = (
        ("Robots-Guard", f"drop; reason={Reason.INTERNAL_ERROR}"),
        ("Proxy-Status", "robots-guard; error=proxy_internal_error"),
        ("Cache-Control", "no-store"),
        ("Content-Type", "application/problem+json"),
    )
    problem = {"title": "Service Unavailable", "status": 503, "detail": reason, "reason": Reason.INTERNAL_ERROR}
    return Reply(503, fields, b"" if method == "HEAD" else json.dumps(problem, indent=1).encode())


def prefers_html(accept: str) -> bool:
    """Whether text/html is asked for by name, and JSON not more so."""
    weights = {"text/html": 0.0, "application/problem+json": 0.0, "application/json": 0.0}
    for item in accept.lower().split(","):
        name, _, parameters = item.partition(";")
        if name.strip() in weights:
            weights[name.strip()] = _weight(parameters)
    html, *others = weights.values()
    return html > 0 and html >= max(others)


def _weight(parameters: str) -> float:
    found = re.search(r"q\s*=\s*([01](?:\.[0-9]*)?)", parameters)
    return float(found[1]) if found else 1.0


def quoted(text: str) -> str:
    """A string of RFC 8941 section 3.3.3: printable ASCII, quotes and backslashes escaped."""
    text = _NOT_PRINTABLE.sub("?", text[:LONGEST])
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _status(verdict: Verdict) -> int:
    if verdict.action is Action.DEFER or verdict.reason is Reason.INTERNAL_ERROR:
        return 503
    return 400 if verdict.reason is Reason.MALFORMED_TARGET else 403


def _error(verdict: Verdict) -> str:
    """An error type of RFC 9209 section 2.3."""
    if verdict.reason is Reason.INTERNAL_ERROR:
        return "proxy_internal_error"
    if verdict.reason is Reason.MALFORMED_TARGET:
        return "http_request_error"
    return "destination_unavailable" if verdict.action is Action.DEFER else "http_request_denied"


def _robots_guard(decision: Decision) -> str:
    verdict = decision.verdict
    parts = [str(verdict.action), f"reason={verdict.reason}"]
    if verdict.rule:
        parts += [f"rule={quoted(verdict.rule.text)}", f"line={verdict.rule.line}"]
    return "; ".join([*parts, f"id={quoted(decision.id)}"])


def _wait(decision: Decision) -> int:
    """Whole seconds until it is worth asking again."""
    until = decision.verdict.until
    return max(1, math.ceil(until - decision.at)) if until is not None else 60


def _why(decision: Decision) -> str:
    verdict = decision.verdict
    known = _WHY.get(verdict.reason, "The request does not go through.")
    return known.format(agent=decision.question.agent)


def _url(decision: Decision) -> str:
    return f"{decision.question.origin}{decision.question.target}"[:LONGEST_URL]


def _fetched_at(decision: Decision) -> str | None:
    document = decision.policy.document if decision.policy else None
    return datetime.fromtimestamp(document.fetched_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if document else None


def _problem(decision: Decision, status: int) -> dict[str, object]:
    verdict = decision.verdict
    members = {
        "title": _TITLES[status],
        "status": status,
        "detail": _why(decision),
        "action": verdict.action,
        "reason": verdict.reason,
        "url": _url(decision),
        "rule": verdict.rule and verdict.rule.text,
        "line": verdict.rule and verdict.rule.line,
        "group": verdict.group,
        "because": verdict.detail,
        "robots_url": decision.question.origin.robots_url,
        "fetched_at": _fetched_at(decision),
        "agent": decision.question.agent,
        "id": decision.id,
        "contact": "the operator of this crawler, who runs this proxy",
    }
    return {name: value for name, value in members.items() if value is not None}


_TITLES = {400: "Bad Request", 403: "Forbidden", 503: "Service Unavailable"}

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --soft: #5b6675; --line: #dfe4ea; --paper: #fff; --back: #f3f5f8;
  --mark: #b3261e; --tint: #fdf1f0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf2; --soft: #9aa6b5; --line: #333c48; --paper: #1b212a;
  --back: #12161c; --mark: #ff8a80; --tint: #2a1f20; } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 2rem 1rem; background: var(--back);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
main { width: 100%; max-width: 44rem; background: var(--paper); border: 1px solid var(--line);
  border-top: 4px solid var(--mark); border-radius: 10px; padding: 2rem 2.25rem }
.by { margin: 0 0 .5rem; color: var(--mark); font-size: .8rem; font-weight: 600; letter-spacing: .04em }
h1 { margin: 0 0 .75rem; font-size: 1.6rem; line-height: 1.25 }
p { margin: 0 0 1rem }
dl { margin: 1.5rem 0; display: grid; grid-template-columns: max-content 1fr; gap: .6rem 1.25rem;
  border-top: 1px solid var(--line); padding-top: 1.25rem }
dt { color: var(--soft) }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere }
code { font: .92em/1.5 ui-monospace, "SF Mono", Consolas, "DejaVu Sans Mono", monospace }
.rule { display: block; background: var(--tint); border-left: 3px solid var(--mark); border-radius: 4px;
  padding: .45rem .7rem }
.line { display: block; margin-top: .15rem }
.small { color: var(--soft); font-size: .9rem }
a { color: inherit }
.ask { border-top: 1px solid var(--line); padding-top: 1.25rem; margin: 0; color: var(--soft); font-size: .92rem }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: .1rem } dd { margin-bottom: .7rem } }
"""


def _page(decision: Decision, status: int) -> bytes:
    deferred = decision.verdict.action is Action.DEFER
    title = "Not now" if deferred else "Not fetched"
    facts = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in _facts(decision))
    reference = escape(decision.id)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}: {escape(decision.verdict.reason)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">
<style>{_STYLE}</style></head>
<body><main>
<p class="by">robots_guard · {status} · {escape(decision.verdict.reason)}</p>
<h1>{title}</h1>
<p>{escape(_why(decision))} This request did not leave the proxy.</p>
<dl>{facts}</dl>
<p class="ask"><strong>Whom to ask:</strong> the operator of this crawler, who runs this proxy.
Give the reference <code>{reference}</code>. What may be crawled is decided by the site.</p>
</main></body></html>
""".encode()


def _facts(decision: Decision) -> list[tuple[str, str]]:
    verdict, robots_url = decision.verdict, escape(decision.question.origin.robots_url)
    facts = [("Requested", f"<code>{escape(_url(decision))}</code>")]
    if verdict.rule:
        rule = f'<code class="rule">{escape(verdict.rule.text)}</code>'
        group = f", in the group of <code>{escape(verdict.group)}</code>" if verdict.group else ""
        facts.append(("Rule", f'{rule}<span class="small line">line {verdict.rule.line}{group}</span>'))
    if verdict.reason not in (Reason.MALFORMED_TARGET, Reason.AMBIGUOUS_AUTHORITY, Reason.INTERNAL_ERROR):
        fetched = _fetched_at(decision)
        when = (
            f'<span class="small line">as of {fetched.replace("T", " ").replace("Z", " UTC")}</span>' if fetched else ""
        )
        facts.append(("robots.txt", f'<a href="{robots_url}" rel="noreferrer"><code>{robots_url}</code></a>{when}'))
    if verdict.detail:
        facts.append(("Because", f"<code>{escape(verdict.detail)}</code>"))
    if verdict.action is Action.DEFER:
        facts.append(("Again in", f"{_wait(decision)} s"))
    return [*facts, ("Crawler", f"<code>{escape(decision.question.agent)}</code>")]
