"""What `robots-guard explain` says of a response: what its site states of each use, by which
statement, and what the integrations do with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from robots_guard.app.cli.ask.judged_page import JudgedPage
from robots_guard.decisions.reasons import meaning_of
from robots_guard.decisions.signal_settings import Use
from robots_guard.decisions.uses import StatementEffect, Uses, plain_of, shown_time
from robots_guard.decisions.verdict import Action, Terms
from robots_guard.protocol.signals.statement import Place, Statement

Lines = Iterator[tuple[str, str]]

MOST = 10  # statements shown of one use
QUOTED = 100  # characters of a statement that are shown

_SCRAPY = {
    "pass": "hands the page to the spider",
    "annotate": "hands the page to the spider, with what is stated in response.meta",
    "stop": "stops the download at the header fields; the request ends in its errback",
    "drop": "does not hand the page to the spider; the request ends in its errback",
}
_PROXY = {
    "pass": "passes the response on",
    "annotate": "passes the page on, with what is stated in Robots-Guard-Signals",
    "drop": "answers 403 in place of the page",
}
_NO_REQUEST = {
    "scrapy": "makes no request; the request ends in its errback",
    "proxy": "makes no request, and answers 403",
}
_DEFERRED = {
    "scrapy": "makes no request yet; it is scheduled again",
    "proxy": "makes no request yet, and answers 429 or 503 with Retry-After",
}


def as_data(judged: JudgedPage, terms: Terms) -> dict[str, Any]:
    """The statements and their effect as values of JSON."""
    result = judged.result
    return plain_of(result.uses) | {
        "denied": result.uses.denied,
        "page_dialect": terms.page_dialect,
        "purposes": list(terms.declared),
        "status": judged.status,
        "follow": judged.links,
        "action": judged.action,
        "verdict": result.verdict.action.value,
        "reason": result.verdict.reason.value,
        "detail": result.verdict.detail,
    }


def text_lines(judged: JudgedPage, terms: Terms) -> Lines:
    """Yield the statements and their effect as text."""
    purposes = ", ".join(terms.declared) or "none, so no use is refused"
    yield "What the site states of the use of the page:", ""
    yield from _use_lines(judged.result.uses)
    yield from _further_lines(judged)
    yield "", ""
    yield f"purposes   {purposes}; page dialect {terms.page_dialect}; status {judged.status}", ""
    yield from _outcome_lines(judged)


def _use_lines(uses: Uses) -> Lines:
    states = {use: state for use, state in uses.states.items() if use != Use.CRAWL}
    images = {f"images.{use}": state for use, state in uses.images.items()}
    width = max(map(len, (*states, *images)))
    for use, state in (*states.items(), *images.items()):
        grounds = _grounds(uses, use)
        style = Action.DROP.value if state == "deny" else ""
        yield f"  {use:{width}}  {state:7}  {grounds[0] if grounds else ''}".rstrip(), style
        for more in grounds[1:MOST]:
            yield f"  {'':{width}}  {'':7}  {more}", ""
        if len(grounds) > MOST:
            yield f"  {'':{width}}  {'':7}  and {len(grounds) - MOST} more", ""


def _grounds(uses: Uses, use: str) -> list[str]:
    """The statements that decide a use: those that deny it, or else those that allow it."""
    denials = [_shown(each) for each in uses.evidence if use in each.denies]
    return denials or [_shown(each) for each in uses.evidence if use in each.allows]


def _shown(effect: StatementEffect) -> str:
    statement = effect.statement
    flags = f" ({', '.join(statement.flags)})" if statement.flags else ""
    return f"{_place(statement)}: {_cut(statement.raw)}{flags}"


def _place(statement: Statement) -> str:
    where = statement.place.value
    if statement.line is not None:
        where = f"line {statement.line} of {where}"
    for_agent = "" if statement.agent == "*" else f", for {statement.agent}"
    if statement.place is Place.HEADER or statement.place is Place.PAGE:
        return f"{statement.signal.value} in the {where}{for_agent}"
    return f"{where}{for_agent}"


def _cut(text: str) -> str:
    if len(text) > QUOTED:
        return text[:QUOTED] + "..."
    return text


def _further_lines(judged: JudgedPage) -> Lines:
    uses = judged.result.uses
    facts = [f"{name} {value}" for name, value in uses.limits.items()]
    if uses.unavailable_after is not None:
        facts.append(f"not to be used after {shown_time(uses.unavailable_after)}")
    if uses.content_use is not None:
        facts.append(f"use={uses.content_use}")
    facts += [f"licence {url}" for url in (*uses.license, *uses.license_other)]
    if uses.price is not None:
        facts.append(f"price {uses.price}")
    if uses.tdm_policy is not None:
        facts.append(f"TDM policy {uses.tdm_policy}")
    if uses.is_incomplete:
        facts.append("a part of the page was not read")
    for fact in facts:
        yield f"  {_cut(fact)}", ""
    barred = sum(not may for may in judged.links.values())
    if barred:
        yield f"  {barred} of {len(judged.links)} links may not be followed", ""
    for effect in [each for each in uses.evidence if _is_doubtful(each)][:MOST]:
        yield f"  means nothing: {_shown(effect)}", ""


def _is_doubtful(effect: StatementEffect) -> bool:
    return bool(effect.statement.flags) and not effect.denies and not effect.allows


def _outcome_lines(judged: JudgedPage) -> Lines:
    verdict, action = judged.result.verdict, judged.action
    yield f"{verdict.action.upper():5}      {_why(judged)}", verdict.action.value
    if action["phase"] == "request":
        words = _DEFERRED if verdict.action is Action.DEFER else _NO_REQUEST
    else:
        words = {"scrapy": _SCRAPY[str(action["scrapy"])], "proxy": _PROXY[str(action["proxy"])]}
    yield f"Scrapy     {words['scrapy']}", ""
    yield f"proxy      {words['proxy']}", ""


def _why(judged: JudgedPage) -> str:
    verdict = judged.result.verdict
    sentence = verdict.detail or meaning_of(verdict.reason).sentence
    if verdict.action is Action.PASS and verdict.relaxed:
        sentence = f"it would not pass without the setting {verdict.relaxed}"
    return f"{_cut(sentence)} (reason: {verdict.reason})"
