"""`robots-guard explain`: says why a URL may or may not be requested.

It shows the group and why it applies, its delays, the deciding rule and its line, the rules that it overrides, the
verdicts of other dialects, and the age of the policy. Given a response, it also says what the site
states of the use of the page (`page_explanation`). It never takes a turn, because it sends no request to the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from robots_guard.app.cli.ask import page_explanation
from robots_guard.app.cli.ask.answers import (
    FILE,
    LARGEST,
    STATUS,
    Answer,
    Judge,
    absolute,
    record_of_answer,
)
from robots_guard.app.cli.ask.header_file import read_header_file
from robots_guard.app.cli.ask.judged_page import GivenPage, JudgedPage, judge_page
from robots_guard.app.cli.group import SectionedCommand
from robots_guard.app.cli.options import settings_from, settings_options
from robots_guard.app.cli.terminal import print_lines, write_json
from robots_guard.audit.record import moment, shown_url
from robots_guard.audit.show.policy import (
    PolicyView,
    described_size,
    facts,
    reservations_as_data,
)
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions import explanation
from robots_guard.decisions.check import compiled
from robots_guard.decisions.explanation import Chosen, DialectVerdict, Explanation
from robots_guard.decisions.pacing import RequiredDelay
from robots_guard.decisions.reasons import Reason, meaning_of
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Terms, Verdict, policy_statements
from robots_guard.protocol.signals.statement import Statement
from robots_guard.text import line_numbers

OTHERS = 10  # further matching rules shown


@click.command(cls=SectionedCommand)
@click.argument("url")
@click.option(
    "--robots",
    type=click.File("rb"),
    metavar="FILE",
    help="Judge by this robots.txt and fetch nothing.",
)
@click.option(
    "--headers",
    type=click.File("rb"),
    metavar="FILE",
    help="Judge a response with these header fields, as curl -sD FILE writes them.",
)
@click.option(
    "--html", type=click.File("rb"), metavar="FILE", help="Judge a response with this page."
)
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as one JSON object.")
@settings_options
def explain(
    url: str,
    robots: BinaryIO | None,
    headers: BinaryIO | None,
    html: BinaryIO | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Explain why a URL may or may not be requested, and what its response states.

    Exit status, as for check: 0 it may be requested, 1 it may not, 3 it is deferred, 2 the arguments are wrong.
    """
    absolute((url,))
    settings = settings_from(values)
    terms, file = settings.terms(), ""
    if robots is not None:
        file = robots.name
        answer = Judge(terms).by_text(robots.read(LARGEST), url, settings.agent, CLOCKS.now())
    else:
        from robots_guard.app.cli.ask import guard_answers

        answer = guard_answers.answer(url, settings)
    it = explained(answer, terms, settings.agent, file)
    judged = _judged_response(it, headers, html)
    if as_json:
        signals = {"signals": page_explanation.as_data(judged, it.why.terms)} if judged else {}
        write_json(as_data(it) | signals)
    else:
        print_lines(text_lines(it))
        if judged is not None:
            print_lines([("", ""), *page_explanation.text_lines(judged, it.why.terms)])
    verdict = answer.verdict if judged is None else judged.result.verdict
    return STATUS[verdict.action]


def _judged_response(
    it: ExplainedAnswer, headers: BinaryIO | None, html: BinaryIO | None
) -> JudgedPage | None:
    """Judge the response that is given, or return None if none is. A page without header fields is
    HTML."""
    if headers is None and html is None:
        return None
    head = ResponseHead(status=200, headers=(("Content-Type", "text/html"),))
    if headers is not None:
        head = read_header_file(headers.read(LARGEST), headers.name).head
    body = html.read(LARGEST) if html is not None else None
    decision, terms = it.answer.decision, it.why.terms
    stated: tuple[Statement, ...] = ()
    if decision is not None and it.why.policy is not None:
        question, document = decision.question, it.why.document
        rules = None if document is None else compiled(document, terms, question.agent)
        stated = policy_statements(question.target, it.why.policy, rules)
    given = GivenPage(it.answer.url, stated, head, body)
    return judge_page(given, it.answer.verdict, it.agent, terms, CLOCKS.now())


class ExplainedAnswer(NamedTuple):
    """An answer and its explanation. `file` is the name of the file given with --robots, or empty."""

    answer: Answer
    agent: str
    why: Explanation
    file: str

    @property
    def stored(self) -> PolicyView | None:
        """The policy, if it comes from the store."""
        decision, policy = self.answer.decision, self.why.policy
        if decision is None or policy is None or decision.source == FILE:
            return None
        return PolicyView(policy, self.why.terms.dialect, decision.at)


def explained(answer: Answer, terms: Terms, agent: str, file: str = "") -> ExplainedAnswer:
    """Explain an answer."""
    decision = answer.decision
    if decision is None or decision.policy is None:
        why = Explanation(answer.verdict, terms)
    else:
        why = explanation.explain(
            decision.question, decision.verdict, decision.policy, terms, decision.at
        )
    return ExplainedAnswer(answer, agent, why, file)


def as_data(it: ExplainedAnswer) -> dict[str, Any]:
    """Return the fields of the audit record, extended by those of the explanation."""
    data: dict[str, Any] = msgspec.to_builtins(record_of_answer(it.answer))
    return data | {
        "agent": it.agent,
        "means": meaning_of(it.why.verdict.reason).sentence,
        "matches": [
            {"line": rule.line, "text": rule.text, "allow": rule.allow} for rule in it.why.matches
        ],
        "context": [{"line": number, "text": text} for number, text in it.why.context],
        "chosen": [each._asdict() for each in it.why.chosen],
        "time": [
            {"line": line.number, "text": line.text, "means": effect or None}
            for line, effect in it.why.time
        ],
        "dialects": [_other_as_data(other) for other in it.why.others],
        "file": it.file or None,
        "document": _document_as_data(it),
        "reservations": (
            reservations_as_data(it.stored.policy.reservations) if it.stored else None
        ),
        "expires_at": moment(it.stored.policy.expires_at(it.stored.dialect)) if it.stored else None,
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
        "delay_source": verdict.delay.by if verdict.delay else None,
        "delay": verdict.delay.seconds if verdict.delay else None,
        "differs": other.differs,
    }


def _document_as_data(it: ExplainedAnswer) -> dict[str, Any] | None:
    """Return where the document came from. Its times, status and digest are in the record's fields."""
    document = it.stored.policy.document if it.stored else None
    if document is None:
        return None
    return {
        "url": shown_url(document.url),
        "size": len(document.body),
        "truncated": document.truncated,
    }


# -- text output: lines, each with its style ----------------------------------------------------------------

Lines = Iterator[tuple[str, str]]


def text_lines(it: ExplainedAnswer) -> Lines:
    """Yield the whole explanation as text."""
    verdict = it.why.verdict
    yield f"{verdict.action.upper()}  {shown_url(it.answer.url)}", verdict.action
    yield f"{meaning_of(verdict.reason).sentence} (reason: {verdict.reason})", ""
    yield from (("  " + note, "") for note in _notes(verdict))
    yield "", ""
    yield (
        f"agent      {it.agent}, dialect {it.why.terms.dialect.name}, matching {it.why.terms.matching.name}",
        "",
    )
    if it.why.document is not None:
        yield from ((f"group      {line}", "") for line in _group_lines(it))
    yield from ((f"timing     {line}", "") for line in _timing_lines(it))
    if it.why.document is not None:
        yield from _rule_lines(it)
    if it.why.others:
        yield "", ""
        yield from _dialect_lines(it)
    if it.stored is not None:
        yield "", ""
        yield from ((f"{name:10} {value}", "") for name, value in facts(it.stored))
    elif it.file and it.why.document is not None:
        yield "", ""
        yield f"source     {it.file}, {described_size(it.why.document)}", ""


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict.detail:
        yield verdict.detail
    if verdict.form not in (None, "spec"):
        yield f"The rule does not match the URL as written, but an equivalent spelling of it ({verdict.form})."
    if verdict.stale:
        yield "The site's robots.txt cannot be fetched at present: the verdict is based on the last good copy."
    # The delay lines mention a bounded delay.
    if verdict.relaxed and not (verdict.delay and verdict.delay.bounded):
        yield f"It would not pass without the setting {verdict.relaxed}."
    if verdict.until is not None:
        yield f"Try again at {moment(verdict.until)}."


def _group_lines(it: ExplainedAnswer) -> Iterator[str]:
    for each in it.why.chosen:
        prefix = f"{each.dialect}: " if len(it.why.chosen) > 1 else ""
        if each.title is None:
            yield f"{prefix}none applies: no group names {it.agent} or *"
        else:
            yield f"{prefix}{each.title} ({line_numbers(each.lines)}): {_why_chosen(each, it.agent)}"


def _timing_lines(it: ExplainedAnswer) -> Iterator[str]:
    required = it.why.verdict.delay
    notes = {
        "": "",
        "odd": " (invalid, ignored)",
        "binds": f" ({_delay(required)})" if required else "",
    }
    for line, effect in it.why.time:
        yield f"line {line.number}: {line.text}{notes[effect]}"
    if required is not None and required.line is None:
        yield f"{required.by}: {_delay(required)}"


def _delay(required: RequiredDelay) -> str:
    limit = ", limited by max_delay" if required.bounded else ""
    return f"{required.seconds:g} s between two requests{limit}"


def _why_chosen(each: Chosen, agent: str) -> str:
    if each.why == "named *":
        return f"no group names {agent}, so the one for * applies"
    return f"it names {each.why.removeprefix('named ')}"


def _dialect_lines(it: ExplainedAnswer) -> Lines:
    yield "Verdicts of other dialects (! marks a different one):", ""
    width = max(len(other.dialect) for other in it.why.others)
    for other in it.why.others:
        rule, verdict = other.verdict.rule, other.verdict
        grounds = f"line {rule.line}: {rule.text}" if rule else _no_rule(verdict)
        if (
            verdict.delay != it.why.verdict.delay
            and it.why.verdict.action is verdict.action is Action.PASS
        ):
            grounds += (
                f"; {_delay(verdict.delay)}" if verdict.delay else "; no delay between requests"
            )
        mark = "!" if other.differs else " "
        style = verdict.action if other.differs else ""
        yield f"  {mark} {other.dialect:{width}}  {verdict.action:5}  {grounds}", style


def _no_rule(verdict: Verdict) -> str:
    if verdict.reason is Reason.ALLOWED:
        return "no rule matches"
    return verdict.reason


def _rule_lines(it: ExplainedAnswer) -> Lines:
    rule = it.why.verdict.rule
    if rule is None:
        yield f"rule       {_why_no_rule(it.why.verdict)}", ""
        return
    yield f"rule       line {rule.line}: {rule.text}", ""
    yield "", ""
    for number, text in it.why.context:
        if number == rule.line:
            yield f"  > {number:>5} | {text}", it.why.verdict.action
        else:
            yield f"    {number:>5} | {text}", ""
    others = [match for match in it.why.matches if match.line != rule.line]
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
    if verdict.reason is Reason.USAGE_RESERVED:
        return "none forbids the request, but the site reserves the use of the page"
    if verdict.action is Action.DROP:
        return "none is named: finding out which of so many rules decides would take too long"
    return "none matches, and a URL that no rule forbids is allowed"


def _why_overruled(it: ExplainedAnswer) -> str:
    if it.why.verdict.reason is Reason.MIRROR:
        return "These rules match too, but a mirror is closed entirely"
    if it.why.verdict.form not in (None, "spec") or it.why.terms.dialect.parts:
        return "Rules that match the URL as written"
    if it.why.terms.dialect.precedence == "first":
        return "These rules match too, but are further down, and the first match decides"
    return "These rules match too, but are not longer (the longest match decides; on a tie, Allow)"
