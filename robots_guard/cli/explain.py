"""`robots-guard explain`: why a URL may or may not be requested.

The group and why it, what it says of time, the rule, its line, what it beat, what other dialects would say, and how
old it all is. Nothing here takes a turn: an answer is no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from robots_guard.audit.record import moment, shown_url
from robots_guard.cli.asking import FILE, LARGEST, Answer, Judge, ask_guard, record_of_answer
from robots_guard.cli.check import STATUS, absolute, guard_of
from robots_guard.cli.options import settings_from, settings_options
from robots_guard.cli.terminal import print_lines, write_json
from robots_guard.core.access import Access
from robots_guard.core.pacing import Demand
from robots_guard.core.policy import Document, Policy
from robots_guard.core.verdict import Action, Decision, Reason, Terms, Verdict
from robots_guard.plain import span
from robots_guard.rep.dialect import DIALECTS, Dialect
from robots_guard.rep.lines import Line, clean, shown
from robots_guard.rep.pace import Pace
from robots_guard.rep.robots import parse
from robots_guard.rep.ruleset import Rule
from robots_guard.settings import CLOCKS, Settings

AROUND = 3  # lines shown on each side of the deciding one
OTHERS = 10  # further rules shown
GROUP_LINES = 8  # lines of User-agent lines named

MEANINGS = {
    Reason.ALLOWED: "It may be requested: no rule that applies forbids it.",
    Reason.UNRESTRICTED: "It may be requested: the site has no robots.txt, so nothing is asked of crawlers.",
    Reason.ROBOTS_TXT: "It may be requested: /robots.txt itself is always open.",
    Reason.NOT_GOVERNED: "It may be requested: robots.txt speaks of http and https only.",
    Reason.BYPASSED: "It may be requested: the operator exempted it.",
    Reason.BLOCKED: "It must not be requested: the operator wants nothing of this site.",
    Reason.DISALLOWED: "It must not be requested: a rule of the site forbids it.",
    Reason.MIRROR: "It must not be requested: the site names another host as its main one.",
    Reason.RESTRICTED: "The site answers 401 or 403 for its robots.txt: it wants no crawlers.",
    Reason.UNREACHABLE: "The site's rules cannot be had just now, and what may be forbidden is not requested.",
    Reason.CRAWL_DELAY: "It may be requested, but not yet: the site asks for a pause between two requests.",
    Reason.REQUEST_RATE: "It may be requested, but not yet: the site asks for so many requests in a time and no more.",
    Reason.VISIT_TIME: "It may be requested, but not now: the site asks to be visited at other times of the day.",
    Reason.RETRY_AFTER: "It may be requested, but not yet: the site has asked to be left alone for a while.",
    Reason.MIN_DELAY: "It may be requested, but not yet: the operator wants a pause between two requests.",
    Reason.MALFORMED_TARGET: "It must not be requested: two servers could read this URL as two different ones.",
    Reason.AMBIGUOUS_AUTHORITY: "It must not be requested: it is not certain which host it is meant for.",
    Reason.DESTINATION_REFUSED: "It must not be requested: the operator has not allowed its address or port.",
    Reason.NOT_INTERCEPTED: "It must not be sent: its client lets nobody see what it asks for.",
    Reason.NOT_HTTP: "It must not be sent: it is no HTTP request.",
    Reason.NOT_JUDGED: "It was not sent: it had been changed after it was let pass, or was never judged.",
    Reason.UNRECORDED: "It may be requested, but the journal that must tell of it cannot be written.",
    Reason.INTERNAL_ERROR: "It must not be requested: robots_guard failed, and refuses when it does.",
}


@click.command()
@click.argument("url")
@click.option("--robots", type=click.File("rb"), metavar="FILE", help="Judge by this robots.txt; nothing is fetched.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON object.")
@settings_options
def explain(url: str, robots: BinaryIO | None, as_json: bool, **values: Any) -> int:
    """Say why a URL may or may not be requested.

    Exit status as that of check: 0 it may, 1 it may not, 3 not now, 2 the question could not be put.
    """
    absolute((url,))
    settings = settings_from(values)
    judge = Judge(settings.terms())
    if robots is not None:
        answer = judge.by_text(robots.read(LARGEST), url, settings.agent, CLOCKS.now())
    else:
        answer = asyncio.run(_ask(url, settings))
    explanation = explained(answer, judge, settings.agent, "" if robots is None else robots.name)
    if as_json:
        write_json(as_data(explanation))
    else:
        print_lines(told(explanation))
    return STATUS[answer.verdict.action]


async def _ask(url: str, settings: Settings) -> Answer:
    with guard_of(settings) as guard:
        return await ask_guard(guard, url, settings.agent)


class Chosen(NamedTuple):
    """The groups that a dialect chose: why these, and the lines that name them."""

    dialect: str
    title: str | None
    why: str
    lines: list[int]


class Other(NamedTuple):
    """What another dialect says of the same question, by the same policy."""

    dialect: str
    verdict: Verdict
    differs: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer and what led to it. `document` is there if its rules were read; `policy` if one is really held."""

    answer: Answer
    agent: str
    terms: Terms
    document: Document | None
    chosen: list[Chosen]
    pace: Pace | None
    matches: list[Rule]
    others: list[Other]
    policy: Policy | None
    file: str  # the name of the file judged by, if it was one

    @property
    def time(self) -> list[tuple[Line, str]]:
        """The group's lines that speak of time, in the file's order, each with what comes of it."""
        if self.pace is None:
            return []
        asked, odd = self.answer.verdict.pace, set(self.pace.odd)
        found = {*self.pace.lines, *odd}
        return [
            (line, "odd" if line in odd else "binds" if asked and asked.line == line.number else "")
            for line in sorted(found, key=lambda line: line.number)
        ]

    @property
    def context(self) -> list[tuple[int, str]]:
        """The deciding line and its neighbours, with their numbers."""
        rule = self.answer.verdict.rule
        if self.document is None or rule is None:
            return []
        lines = clean(self.document.body).splitlines()
        first, last = max(1, rule.line - AROUND), min(len(lines), rule.line + AROUND)
        return [(number, shown(lines[number - 1])) for number in range(first, last + 1)]


def explained(answer: Answer, judge: Judge, agent: str, file: str = "") -> Explanation:
    """Look up what an answer rests on."""
    decision = answer.decision
    if decision is None or decision.policy is None:
        return Explanation(answer, agent, judge.terms, None, [], None, [], [], None, file)
    access, document = decision.policy.access(decision.at, judge.terms.dialect)
    document = document if access is Access.RULES else None
    return Explanation(
        answer=answer,
        agent=agent,
        terms=judge.terms,
        document=document,
        chosen=list(_chosen(document, judge.terms.dialect, decision.question.agent)) if document else [],
        pace=judge.rules(document, agent).pace if document else None,
        matches=judge.rules(document, agent).matches(decision.question.target) if document else [],
        others=list(_others(decision, decision.policy, judge.terms)),
        policy=decision.policy if decision.source != FILE else None,
        file=file,
    )


def _chosen(document: Document, dialect: Dialect, agent: str) -> Iterator[Chosen]:
    for part in dialect.parts or (dialect,):
        selection = parse(document.body, part).select(agent)
        lines = [line for group in selection.groups for line, _, _ in group.agents]
        yield Chosen(part.name, selection.title, selection.why, lines)


def _others(decision: Decision, policy: Policy, terms: Terms) -> Iterator[Other]:
    """By the policy in hand: what a dialect would have fetched again, it might have found changed."""
    for name, dialect in DIALECTS.items():
        if name != terms.dialect.name:
            judge = Judge(msgspec.structs.replace(terms, dialect=dialect))
            verdict = judge.by_policy(policy, decision.question, decision.at)
            yield Other(name, verdict, _in_short(verdict) != _in_short(decision.verdict))


def _in_short(verdict: Verdict) -> tuple[str, float]:
    """Whether, and at what intervals."""
    return verdict.action, verdict.pace.seconds if verdict.pace else 0.0


def as_data(it: Explanation) -> dict[str, Any]:
    """The record's fields, and beside them what an Explanation has."""
    data: dict[str, Any] = msgspec.to_builtins(record_of_answer(it.answer))
    return data | {
        "agent": it.agent,
        "means": MEANINGS[it.answer.verdict.reason],
        "matches": [{"line": rule.line, "text": rule.text, "allow": rule.allow} for rule in it.matches],
        "context": [{"line": number, "text": text} for number, text in it.context],
        "chosen": [each._asdict() for each in it.chosen],
        "time": [{"line": line.number, "text": line.text, "means": means or None} for line, means in it.time],
        "dialects": [_other_as_data(other) for other in it.others],
        "file": it.file or None,
        "document": _document_as_data(it),
        "expires_at": moment(it.policy.expires_at(it.terms.dialect)) if it.policy else None,
    }


def _other_as_data(other: Other) -> dict[str, Any]:
    verdict = other.verdict
    return {
        "dialect": other.dialect,
        "action": verdict.action,
        "reason": verdict.reason,
        "rule": verdict.rule.text if verdict.rule else None,
        "line": verdict.rule.line if verdict.rule else None,
        "group": verdict.group,
        "pace": verdict.pace.by if verdict.pace else None,
        "delay": verdict.pace.seconds if verdict.pace else None,
        "differs": other.differs,
    }


def _document_as_data(it: Explanation) -> dict[str, Any] | None:
    """Where the document came from. Its times, status and digest stand in the record's fields."""
    document = it.policy.document if it.policy else None
    if document is None:
        return None
    return {"url": shown_url(document.url), "octets": len(document.body), "truncated": document.truncated}


# -- for people: lines, each with its style -----------------------------------------------------------------

Lines = Iterator[tuple[str, str]]


def told(it: Explanation) -> Lines:
    """The whole page."""
    verdict = it.answer.verdict
    yield f"{verdict.action.upper()}  {shown_url(it.answer.url)}", verdict.action
    yield f"{MEANINGS[verdict.reason]} (reason: {verdict.reason})", ""
    yield from (("  " + note, "") for note in _notes(verdict))
    yield "", ""
    yield f"asked      for {it.agent}, dialect {it.terms.dialect.name}, matching {it.terms.matching.name}", ""
    if it.document is not None:
        yield from ((f"group      {line}", "") for line in _groups(it))
    yield from ((f"time       {line}", "") for line in _times(it))
    if it.document is not None:
        yield from _rules(it)
    if it.others:
        yield "", ""
        yield from _dialects(it)
    if it.policy is not None and it.answer.decision is not None:
        yield "", ""
        yield from (
            (f"{name:10} {value}", "") for name, value in facts(it.policy, it.answer.decision.at, it.terms.dialect)
        )
    elif it.file and it.document is not None:
        yield "", ""
        yield f"source     {it.file}, {len(it.document.body)} octets{_cut(it.document)}", ""


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict.detail:
        yield verdict.detail
    if verdict.form not in (None, "spec"):
        yield f"The rule does not match the URL as it is written, but another spelling of it ({verdict.form})."
    if verdict.stale:
        yield "The site cannot be asked just now: this is by the last good copy of its robots.txt."
    if verdict.relaxed and not (verdict.pace and verdict.pace.bounded):  # of that, the lines on time speak
        yield f"It would not pass without the setting {verdict.relaxed}."
    if verdict.until is not None:
        yield f"Ask again at {moment(verdict.until)}."


def _groups(it: Explanation) -> Iterator[str]:
    for each in it.chosen:
        by = f"{each.dialect}: " if len(it.chosen) > 1 else ""
        if each.title is None:
            yield f"{by}none applies: no group names {it.agent} or *"
        else:
            yield f"{by}{each.title} ({_place(each.lines)}): {_why_chosen(each, it.agent)}"


def _times(it: Explanation) -> Iterator[str]:
    asked = it.answer.verdict.pace
    comes = {"": "", "odd": " (cannot be read, is not kept)", "binds": f" ({_pause(asked)})" if asked else ""}
    for line, means in it.time:
        yield f"line {line.number}: {line.text}{comes[means]}"
    if asked is not None and asked.line is None:
        yield f"{asked.by}: {_pause(asked)}"


def _pause(asked: Demand) -> str:
    most = ", the most that is kept" if asked.bounded else ""
    return f"{asked.seconds:g} s between two requests{most}"


def _place(lines: list[int]) -> str:
    named = ", ".join(map(str, lines[:GROUP_LINES])) + (", ..." if len(lines) > GROUP_LINES else "")
    return f"line {named}" if len(lines) == 1 else f"lines {named}"


def _why_chosen(each: Chosen, agent: str) -> str:
    if each.why == "named *":
        return f"no group names {agent}, so the one for all applies"
    return f"it names {each.why.removeprefix('named ')}"


def _dialects(it: Explanation) -> Lines:
    yield "Other dialects would say (! where it is something else):", ""
    width = max(len(other.dialect) for other in it.others)
    for other in it.others:
        rule, verdict = other.verdict.rule, other.verdict
        by = f"line {rule.line}: {rule.text}" if rule else _no_rule(verdict)
        if verdict.pace != it.answer.verdict.pace and it.answer.verdict.action is verdict.action is Action.PASS:
            by += f"; {_pause(verdict.pace)}" if verdict.pace else "; no pause between requests"
        mark = "!" if other.differs else " "
        yield f"  {mark} {other.dialect:{width}}  {verdict.action:5}  {by}", verdict.action if other.differs else ""


def _no_rule(verdict: Verdict) -> str:
    return "no rule matches" if verdict.reason is Reason.ALLOWED else verdict.reason


def _rules(it: Explanation) -> Lines:
    rule = it.answer.verdict.rule
    if rule is None:
        yield f"rule       {_why_no_rule(it.answer.verdict)}", ""
        return
    yield f"rule       line {rule.line}: {rule.text}", ""
    yield "", ""
    for number, text in it.context:
        deciding = number == rule.line
        yield f"  {'>' if deciding else ' '} {number:>5} | {text}", it.answer.verdict.action if deciding else ""
    others = [match for match in it.matches if match.line != rule.line]
    if others:
        yield "", ""
        yield f"{_why_beaten(it)}:", ""
    for match in others[:OTHERS]:
        yield f"    {match.line:>5} | {match.text}", ""
    if len(others) > OTHERS:
        yield f"          | and {len(others) - OTHERS} more", ""


def _why_no_rule(verdict: Verdict) -> str:
    if verdict.reason is Reason.ROBOTS_TXT:
        return "none is asked"
    if verdict.action is Action.DROP:
        return "none is named: to tell which of so many decides would take too long"
    return "none matches, and what no rule forbids is allowed"


def _why_beaten(it: Explanation) -> str:
    if it.answer.verdict.reason is Reason.MIRROR:
        return "These match too, but on a mirror everything is closed"
    if it.answer.verdict.form not in (None, "spec") or it.terms.dialect.parts:
        return "Rules that match the URL as it is written"
    if it.terms.dialect.precedence == "first":
        return "These match too, but stand further down, and the first one counts"
    return "These match too, but are no longer than it (the longest counts, and Allow where two are as long)"


def facts(policy: Policy, now: float, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """What is held, as names and values."""
    document, trouble = policy.document, policy.trouble
    if document is not None:
        octets = f"{len(document.body)} octets{_cut(document)}"
        yield "source", f"{shown_url(document.url)}, status {document.status}, {octets}"
        yield from (("redirect", f"from {shown_url(url)}") for url in document.redirects)
        verified = "" if not document.url.startswith("https:") else _VERIFIED[document.tls_verified]
        yield (
            "fetched",
            f"{moment(document.fetched_at)}, {span(now - document.fetched_at)} ago, via {document.via}{verified}",
        )
        yield "sha256", document.sha256
    if trouble is not None:
        tries = "1 try" if trouble.attempts == 1 else f"{trouble.attempts} tries"
        yield "trouble", f"{trouble.says}, {tries} since {moment(trouble.since)}"
    until = policy.expires_at(dialect)
    word = "asked next" if trouble is not None else "fresh"
    left = f", in {span(until - now)}" if until > now else ", that is over"
    yield word, f"{'' if trouble is not None else 'until '}{moment(until)}{left}"


def _cut(document: Document) -> str:
    return ", cut at the cap" if document.truncated else ""


_VERIFIED = {True: ", TLS verified", False: ", TLS not verified"}
