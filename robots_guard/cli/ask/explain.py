"""`robots-guard explain`: says why a URL may or may not be requested.

It shows the group and why it applies, its delays, the deciding rule and its line, the rules that it overrides, the
verdicts of other dialects, and the age of the policy. It never takes a turn, because it sends no request to the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from robots_guard.audit.record import moment, shown_url
from robots_guard.cli.ask.answers import (
    FILE,
    LARGEST,
    STATUS,
    Answer,
    Judge,
    absolute,
    ask_guard,
    guard_of,
    record_of_answer,
)
from robots_guard.cli.options import settings_from, settings_options
from robots_guard.cli.terminal import print_lines, write_json
from robots_guard.core.access import Access
from robots_guard.core.pacing import Demand
from robots_guard.core.policy import Document, Policy
from robots_guard.core.reasons import Reason, meaning_of
from robots_guard.core.verdict import Action, Decision, Terms, Verdict
from robots_guard.rep.dialect import DIALECTS, Dialect
from robots_guard.rep.lines import Line, clean, shown
from robots_guard.rep.pace import Pace
from robots_guard.rep.robots import parse
from robots_guard.rep.ruleset import Rule
from robots_guard.settings import CLOCKS, Settings
from robots_guard.text import span

AROUND = 3  # lines shown on each side of the deciding one
OTHERS = 10  # further matching rules shown
GROUP_LINES = 8  # User-agent lines whose numbers are listed


@click.command()
@click.argument("url")
@click.option("--robots", type=click.File("rb"), metavar="FILE", help="Judge by this robots.txt and fetch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as one JSON object.")
@settings_options
def explain(url: str, robots: BinaryIO | None, as_json: bool, **values: Any) -> int:
    """Explain why a URL may or may not be requested.

    Exit status, as for check: 0 it may be requested, 1 it may not, 3 it is deferred, 2 the arguments are wrong.
    """
    absolute((url,))
    settings = settings_from(values)
    judge = Judge(settings.terms())
    if robots is not None:
        answer = judge.by_text(robots.read(LARGEST), url, settings.agent, CLOCKS.now())
    else:
        answer = asyncio.run(_ask(url, settings))
    explanation = build_explanation(answer, judge, settings.agent, "" if robots is None else robots.name)
    if as_json:
        write_json(as_data(explanation))
    else:
        print_lines(text_lines(explanation))
    return STATUS[answer.verdict.action]


async def _ask(url: str, settings: Settings) -> Answer:
    with guard_of(settings) as guard:
        return await ask_guard(guard, url, settings.agent)


class Chosen(NamedTuple):
    """The groups that a dialect selects, why it does, and the numbers of their User-agent lines."""

    dialect: str
    title: str | None
    why: str
    lines: list[int]


class DialectVerdict(NamedTuple):
    """The verdict of another dialect on the same question, under the same policy."""

    dialect: str
    verdict: Verdict
    differs: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer and its grounds. `document` is set if its rules were applied; `policy` if it comes from the store."""

    answer: Answer
    agent: str
    terms: Terms
    document: Document | None
    chosen: list[Chosen]
    pace: Pace | None
    matches: list[Rule]
    others: list[DialectVerdict]
    policy: Policy | None
    file: str  # the name of the file given with --robots, or empty

    @property
    def time(self) -> list[tuple[Line, str]]:
        """The group's lines on delays and visiting hours, in order, each with its effect: `binds`, `odd` (invalid)
        or empty."""
        if self.pace is None:
            return []
        lines = {*self.pace.lines, *self.pace.odd}
        return [(line, self._effect(line)) for line in sorted(lines, key=lambda line: line.number)]

    def _effect(self, line: Line) -> str:
        assert self.pace is not None
        if line in self.pace.odd:
            return "odd"
        required = self.answer.verdict.pace
        return "binds" if required and required.line == line.number else ""

    @property
    def context(self) -> list[tuple[int, str]]:
        """The deciding line and the lines around it, with their numbers."""
        rule = self.answer.verdict.rule
        if self.document is None or rule is None:
            return []
        lines = clean(self.document.body).splitlines()
        first, last = max(1, rule.line - AROUND), min(len(lines), rule.line + AROUND)
        return [(number, shown(lines[number - 1])) for number in range(first, last + 1)]


def build_explanation(answer: Answer, judge: Judge, agent: str, file: str = "") -> Explanation:
    """Collect the grounds of an answer."""
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
        chosen=list(_chosen_groups(document, judge.terms.dialect, decision.question.agent)) if document else [],
        pace=judge.rules(document, agent).pace if document else None,
        matches=judge.rules(document, agent).matches(decision.question.target) if document else [],
        others=list(_other_verdicts(decision, decision.policy, judge.terms)),
        policy=decision.policy if decision.source != FILE else None,
        file=file,
    )


def _chosen_groups(document: Document, dialect: Dialect, agent: str) -> Iterator[Chosen]:
    for part in dialect.parts or (dialect,):
        selection = parse(document.body, part).select(agent)
        lines = [line for group in selection.groups for line, _, _ in group.agents]
        yield Chosen(part.name, selection.title, selection.why, lines)


def _other_verdicts(decision: Decision, policy: Policy, terms: Terms) -> Iterator[DialectVerdict]:
    """Yield the other dialects' verdicts under the same policy, even if such a dialect would have refetched it."""
    for name, dialect in DIALECTS.items():
        if name != terms.dialect.name:
            judge = Judge(msgspec.structs.replace(terms, dialect=dialect))
            verdict = judge.by_policy(policy, decision.question, decision.at)
            yield DialectVerdict(name, verdict, _outcome(verdict) != _outcome(decision.verdict))


def _outcome(verdict: Verdict) -> tuple[str, float]:
    """Return the action and the required delay in seconds."""
    return verdict.action, verdict.pace.seconds if verdict.pace else 0.0


def as_data(it: Explanation) -> dict[str, Any]:
    """Return the fields of the audit record, extended by those of the explanation."""
    data: dict[str, Any] = msgspec.to_builtins(record_of_answer(it.answer))
    return data | {
        "agent": it.agent,
        "means": meaning_of(it.answer.verdict.reason).sentence,
        "matches": [{"line": rule.line, "text": rule.text, "allow": rule.allow} for rule in it.matches],
        "context": [{"line": number, "text": text} for number, text in it.context],
        "chosen": [each._asdict() for each in it.chosen],
        "time": [{"line": line.number, "text": line.text, "means": effect or None} for line, effect in it.time],
        "dialects": [_other_as_data(other) for other in it.others],
        "file": it.file or None,
        "document": _document_as_data(it),
        "expires_at": moment(it.policy.expires_at(it.terms.dialect)) if it.policy else None,
    }


def _other_as_data(other: DialectVerdict) -> dict[str, Any]:
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
    """Return where the document came from. Its times, status and digest are in the record's fields."""
    document = it.policy.document if it.policy else None
    if document is None:
        return None
    return {"url": shown_url(document.url), "octets": len(document.body), "truncated": document.truncated}


# -- text output: lines, each with its style ----------------------------------------------------------------

Lines = Iterator[tuple[str, str]]


def text_lines(it: Explanation) -> Lines:
    """Yield the whole explanation as text."""
    verdict = it.answer.verdict
    yield f"{verdict.action.upper()}  {shown_url(it.answer.url)}", verdict.action
    yield f"{meaning_of(verdict.reason).sentence} (reason: {verdict.reason})", ""
    yield from (("  " + note, "") for note in _notes(verdict))
    yield "", ""
    yield f"agent      {it.agent}, dialect {it.terms.dialect.name}, matching {it.terms.matching.name}", ""
    if it.document is not None:
        yield from ((f"group      {line}", "") for line in _group_lines(it))
    yield from ((f"timing     {line}", "") for line in _timing_lines(it))
    if it.document is not None:
        yield from _rule_lines(it)
    if it.others:
        yield "", ""
        yield from _dialect_lines(it)
    if it.policy is not None and it.answer.decision is not None:
        yield "", ""
        yield from (
            (f"{name:10} {value}", "") for name, value in facts(it.policy, it.answer.decision.at, it.terms.dialect)
        )
    elif it.file and it.document is not None:
        yield "", ""
        yield f"source     {it.file}, {len(it.document.body)} bytes{_truncation_note(it.document)}", ""


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict.detail:
        yield verdict.detail
    if verdict.form not in (None, "spec"):
        yield f"The rule does not match the URL as written, but an equivalent spelling of it ({verdict.form})."
    if verdict.stale:
        yield "The site's robots.txt cannot be fetched at present: the verdict is based on the last good copy."
    if verdict.relaxed and not (verdict.pace and verdict.pace.bounded):  # the delay lines mention a bounded delay
        yield f"It would not pass without the setting {verdict.relaxed}."
    if verdict.until is not None:
        yield f"Try again at {moment(verdict.until)}."


def _group_lines(it: Explanation) -> Iterator[str]:
    for each in it.chosen:
        prefix = f"{each.dialect}: " if len(it.chosen) > 1 else ""
        if each.title is None:
            yield f"{prefix}none applies: no group names {it.agent} or *"
        else:
            yield f"{prefix}{each.title} ({_line_numbers(each.lines)}): {_why_chosen(each, it.agent)}"


def _timing_lines(it: Explanation) -> Iterator[str]:
    required = it.answer.verdict.pace
    notes = {
        "": "",
        "odd": " (invalid, ignored)",
        "binds": f" ({_delay(required)})" if required else "",
    }
    for line, effect in it.time:
        yield f"line {line.number}: {line.text}{notes[effect]}"
    if required is not None and required.line is None:
        yield f"{required.by}: {_delay(required)}"


def _delay(required: Demand) -> str:
    limit = ", limited by max_delay" if required.bounded else ""
    return f"{required.seconds:g} s between two requests{limit}"


def _line_numbers(lines: list[int]) -> str:
    if len(lines) == 1:
        return f"line {lines[0]}"
    more = ", ..." if len(lines) > GROUP_LINES else ""
    return f"lines {', '.join(map(str, lines[:GROUP_LINES]))}{more}"


def _why_chosen(each: Chosen, agent: str) -> str:
    if each.why == "named *":
        return f"no group names {agent}, so the one for * applies"
    return f"it names {each.why.removeprefix('named ')}"


def _dialect_lines(it: Explanation) -> Lines:
    yield "Verdicts of other dialects (! marks a different one):", ""
    width = max(len(other.dialect) for other in it.others)
    for other in it.others:
        rule, verdict = other.verdict.rule, other.verdict
        grounds = f"line {rule.line}: {rule.text}" if rule else _no_rule(verdict)
        if verdict.pace != it.answer.verdict.pace and it.answer.verdict.action is verdict.action is Action.PASS:
            grounds += f"; {_delay(verdict.pace)}" if verdict.pace else "; no delay between requests"
        mark = "!" if other.differs else " "
        style = verdict.action if other.differs else ""
        yield f"  {mark} {other.dialect:{width}}  {verdict.action:5}  {grounds}", style


def _no_rule(verdict: Verdict) -> str:
    return "no rule matches" if verdict.reason is Reason.ALLOWED else verdict.reason


def _rule_lines(it: Explanation) -> Lines:
    rule = it.answer.verdict.rule
    if rule is None:
        yield f"rule       {_why_no_rule(it.answer.verdict)}", ""
        return
    yield f"rule       line {rule.line}: {rule.text}", ""
    yield "", ""
    for number, text in it.context:
        if number == rule.line:
            yield f"  > {number:>5} | {text}", it.answer.verdict.action
        else:
            yield f"    {number:>5} | {text}", ""
    others = [match for match in it.matches if match.line != rule.line]
    if others:
        yield "", ""
        yield f"{_why_overruled(it)}:", ""
    for match in others[:OTHERS]:
        yield f"    {match.line:>5} | {match.text}", ""
    if len(others) > OTHERS:
        yield f"          | and {len(others) - OTHERS} more", ""


def _why_no_rule(verdict: Verdict) -> str:
    if verdict.reason is Reason.ROBOTS_TXT:
        return "none applies to /robots.txt"
    if verdict.action is Action.DROP:
        return "none is named: finding out which of so many rules decides would take too long"
    return "none matches, and a URL that no rule forbids is allowed"


def _why_overruled(it: Explanation) -> str:
    if it.answer.verdict.reason is Reason.MIRROR:
        return "These rules match too, but a mirror is closed entirely"
    if it.answer.verdict.form not in (None, "spec") or it.terms.dialect.parts:
        return "Rules that match the URL as written"
    if it.terms.dialect.precedence == "first":
        return "These rules match too, but are further down, and the first match decides"
    return "These rules match too, but are not longer (the longest match decides; on a tie, Allow)"


def facts(policy: Policy, now: float, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Yield what is known about a stored policy, as names and values."""
    document, trouble = policy.document, policy.trouble
    if document is not None:
        size = f"{len(document.body)} bytes{_truncation_note(document)}"
        yield "source", f"{shown_url(document.url)}, status {document.status}, {size}"
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
    remaining = f", in {span(until - now)}" if until > now else ", which is past"
    if trouble is None:
        yield "fresh", f"until {moment(until)}{remaining}"
    else:
        yield "next try", f"{moment(until)}{remaining}"


def _truncation_note(document: Document) -> str:
    return ", truncated at the size cap" if document.truncated else ""


_VERIFIED = {True: ", TLS verified", False: ", TLS not verified"}
