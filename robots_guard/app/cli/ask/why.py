"""`robots-guard why`: says why a URL was, or was not, requested, by what the audit log has recorded.

It judges nothing but the stored robots.txt of today, fetches nothing, and records nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from robots_guard.app.cli.audit_log_options import (
    existing_directory,
    period_options,
    report_unreadable,
)
from robots_guard.app.cli.options import audit_log_option, invocation_from, store_of, store_option
from robots_guard.app.cli.terminal import print_lines, progress, safe, write_encoded, write_line
from robots_guard.audit.privacy import key_in
from robots_guard.audit.read.reader import Filter, Period, Unreadable
from robots_guard.audit.read.replay import is_replayable, judge_by
from robots_guard.audit.read.resource import UrlPlace, place_of
from robots_guard.audit.read.search import find_decision
from robots_guard.audit.read.why import DecisionGroup, LogAnswer
from robots_guard.audit.read.why import why as answer_to
from robots_guard.audit.record import Record, SignalsRecord, moment
from robots_guard.audit.segments import segments
from robots_guard.audit.show.sentence import sentence_of, time_of
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.policy import PINNED, Document, Policy
from robots_guard.decisions.reasons import Comparison, meaning_of
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.stores import look_at
from robots_guard.invocation import EVIDENCE
from robots_guard.origin import origin_of
from robots_guard.text import counted, encodable

NOTHING = 1  # the exit status if nothing is recorded of the URL
AGENTS = 5  # crawlers that are named
OTHERS = 5  # groups of other decisions that are named
LONGEST_PATH = 100  # characters shown of the path of another decision's URL
_WIDTH = 10

Line = tuple[str, str]


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """What the stored robots.txt says of the question now. `sentence` says it; the rest is empty if
    it is not known."""

    sentence: str
    action: str | None = None
    reason: str | None = None
    rule: str | None = None
    line: int | None = None
    fetched_at: str | None = None
    sha256: str | None = None


class Places(NamedTuple):
    """Where the log and the store are, as the user named them."""

    audit_log: str | None
    store: str | None


@click.command()
@click.argument("url", metavar="URL|ID")
@audit_log_option
@store_option
@period_options
@click.option("--agent", metavar="TOKEN", help="Only decisions for this product token.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")
def why(
    url: str,
    audit_log: str | None,
    store: str | None,
    since: Period | None,
    until: str | None,
    agent: str | None,
    *,
    as_json: bool,
) -> int:
    """Say why a URL was, or was not, requested, as the audit log has recorded it.

    The URL may be in any spelling. Instead of it, the beginning of URLs (https://h/a/*), a host, or
    the id of a decision may be given.

    Exit status: 0 there is an answer, 1 nothing is recorded of the URL, 2 the arguments are wrong.
    """
    if _is_url(url):
        place_of(encodable(url))  # raises for one without a host
    directory = existing_directory(audit_log)
    places, trouble, period = Places(audit_log, store), Unreadable(), since or Period("")
    with progress("searching") as on_progress:
        asked = _asked(directory, encodable(url), on_progress)
        place = place_of(encodable(url)) if asked is None else UrlPlace(url=asked.url)
        wanted = Filter(
            **place._asdict(),
            since=period.begins or None,
            until=until or period.ends,
            agent=encodable(agent or "") or None,
            key=key_in(directory),
        )
        answer = answer_to(directory, wanted, trouble, on_progress, asked)
    today = _today(answer, places)
    if as_json:
        write_encoded(msgspec.json.encode(_as_data(answer, today, places)))
    else:
        print_lines(_text(answer, today, directory))
        for name, command in _named_commands(answer, places):
            write_line(safe(f"{name:{_WIDTH}}  {command}"))  # unbroken, to be copied
    report_unreadable(trouble)
    if answer.record is None:
        return NOTHING
    return 0


def _is_url(text: str) -> bool:
    """Whether a text is, or should be, a URL: ids have letters, digits and hyphens only."""
    return not text.replace("-", "").isalnum()


def _asked(directory: Path, text: str, on_progress: Any) -> Record | SignalsRecord | None:
    """The decision with this id; None if the text is a URL."""
    if _is_url(text):
        return None
    found = None
    if segments(directory):
        found = find_decision(directory, text, on_progress)
    if found is None:
        raise SettingsError(
            f"there is no decision {text!r} in {str(directory)!r}:"
            " give a URL that begins with http:// or https://, or an id"
        )
    return found


# -- today -----------------------------------------------------------------------------------------


def _today(answer: LogAnswer, places: Places) -> Today | None:
    """What the stored robots.txt says now; None if there is no decision on a request."""
    record = answer.record
    if not isinstance(record, Record):
        return None
    try:
        policy = _stored(record, places)
        if policy is None:
            return Today(sentence="The store has no robots.txt of the site.")
        now = CLOCKS.now()
        return _compared(record, policy, judge_by(record, answer.settings, policy, now))
    except (SettingsError, StoreError) as error:
        return Today(sentence=f"It is not known: {error}.")


def _stored(record: Record, places: Places) -> Policy | None:
    policies = look_at(store_of(places.store))
    if policies is None:
        return None
    try:
        return policies.get(origin_of(record.origin))
    finally:
        policies.close()


def _compared(record: Record, policy: Policy, verdict: Verdict) -> Today:
    """How the verdict now differs from the recorded one. An exempted request is compared by what
    its robots.txt says."""
    document = policy.document
    rule, line, fetched, sha256 = None, None, None, None
    if verdict.rule is not None:
        rule, line = verdict.rule.text, verdict.rule.line
    if document is not None:
        fetched, sha256 = moment(document.fetched_at), document.sha256
    return Today(
        sentence=f"{_subject(document)} {_predicate(record, document, verdict)}.",
        action=verdict.action.value,
        reason=verdict.reason.value,
        rule=rule,
        line=line,
        fetched_at=fetched,
        sha256=sha256,
    )


def _subject(document: Document | None) -> str:
    """What the sentence about today is about: the stored file, or the store if it has none."""
    if document is None:
        return "The store"
    return f"The stored robots.txt, fetched at {time_of(moment(document.fetched_at))},"


def _predicate(record: Record, document: Document | None, verdict: Verdict) -> str:
    """What the stored file says now, as the rest of the sentence. It says that the file has changed
    only if the decision was based on another version of it."""
    action = verdict.would or verdict.action
    grounds = verdict.reason.value
    if verdict.rule is not None:
        grounds = f"line {verdict.rule.line}: {verdict.rule.text}"
    says = f"says {action} ({grounds})"
    if record.via == PINNED:
        return f"{says}, but a pinned one decided"
    if not is_replayable(record):
        return f"{says}. The decision did not depend on a robots.txt"
    if meaning_of(record.reason).replay is Comparison.DELAY and action is Action.PASS:
        return _allows_with_delay(verdict, grounds)
    was, rule = record.would or record.action, verdict.rule and verdict.rule.text
    if (action.value, rule) == (was, record.rule):
        return f"says the same ({grounds})"
    if action is Action.PASS and was != Action.PASS:
        return f"allows it now ({grounds})"
    if record.sha256 is None or document is None or record.sha256 == document.sha256:
        return f"says {action} now ({grounds})"
    if action.value == was:
        return f"has changed, but not the action, which is {action} ({grounds})"
    return f"has changed: the action is now {action} ({grounds})"


def _allows_with_delay(verdict: Verdict, grounds: str) -> str:
    delay = verdict.delay
    if delay is None:
        return f"allows it ({grounds})"
    return f"allows it, with {delay.seconds:g} s between two requests ({delay.by})"


# -- output ----------------------------------------------------------------------------------------


def _commands(answer: LogAnswer, places: Places) -> list[str]:
    """The command lines that go on from the answer."""
    invocation = invocation_from(audit_log=places.audit_log, store=places.store)
    if answer.record is None:
        narrower = ("--agent", answer.agent) if answer.agent else ()
        place = ("--origin", answer.origin) if answer.origin else ("--url", answer.url)
        return [invocation.command("audit", "query", *place, *narrower)]
    identity = answer.record.id
    bundle = ("audit", "bundle", identity, "-o", f"{identity}.zip")
    return [
        invocation.command(*bundle, needs=EVIDENCE),
        invocation.command(
            "audit", "query", "--url", answer.url if answer.is_of_several else answer.record.url
        ),
    ]


def _as_data(answer: LogAnswer, today: Today | None, places: Places) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(answer)
    sentence, _ = _headline(answer)
    return data | {
        "sentence": sentence,
        "count": answer.count,
        "nearest": [msgspec.to_builtins(each) for each in answer.nearest],
        "today": msgspec.to_builtins(today),
        "commands": _commands(answer, places),
    }


def _named_commands(answer: LogAnswer, places: Places) -> Iterator[tuple[str, str]]:
    names = ["search"]
    if answer.record:
        names = ["evidence", "all"]
    yield from zip(names, _commands(answer, places), strict=True)


def _text(answer: LogAnswer, today: Today | None, directory: Path) -> Iterator[Line]:
    record = answer.record
    yield _headline(answer)
    yield "", ""
    facts = _nothing_facts(answer, directory)
    if record is not None:
        facts = _facts(answer, record, today)
    for name, text in facts:
        yield f"{name:{_WIDTH}}  {text}", ""


def _headline(answer: LogAnswer) -> Line:
    """The answer as one sentence, with the action that colours it."""
    record = answer.record
    if record is None:
        return f"Nothing is recorded of {answer.url}{_for_agent(answer)}.", ""
    return sentence_of(record), record.action


def _for_agent(answer: LogAnswer) -> str:
    """The end of a phrase that names the agent, if the answer is about one agent only."""
    if answer.agent is None:
        return ""
    return f" for {answer.agent}"


def _facts(
    answer: LogAnswer, record: Record | SignalsRecord, today: Today | None
) -> Iterator[tuple[str, str]]:
    """What is known beside the sentence, as names and texts."""
    alike = [
        each
        for each in answer.groups
        if (each.action, each.reason) == (record.action, record.reason)
    ]
    others = [each for each in answer.groups if each not in alike]
    yield "how often", _how_often(answer, alike)
    crawlers = _counts_by_crawler(alike)
    for crawler, count in crawlers[:AGENTS]:
        yield "by", f"{crawler}: {_times(count)}"
    if len(crawlers) > AGENTS:
        yield "", f"and {len(crawlers) - AGENTS} more"
    for each in others[:OTHERS]:
        yield "also", _other(each)
    if len(others) > OTHERS:
        yield "", f"and {len(others) - OTHERS} more"
    for text in _counted_passes(answer):
        yield "passes", text
    if answer.hides_values:
        yield (
            "note",
            (
                "Values in the query are hidden in the log, so that these decisions may be on"
                " URLs with other values."
            ),
        )
    if today is not None:
        yield "today", today.sentence
    yield "period", _period(answer)
    if answer.agent is not None:
        yield "agent", f"{answer.agent}: decisions for others are not shown"
    yield "id", record.id


def _counts_by_crawler(groups: list[DecisionGroup]) -> list[tuple[str, int]]:
    """The number of decisions of each crawler, the latest first."""
    counts: Counter[str] = Counter()
    for each in groups:
        counts[_who(each)] += each.count
    return list(counts.items())


def _how_often(answer: LogAnswer, alike: list[DecisionGroup]) -> str:
    if not alike:
        return "no decision like it in this period, by this agent"
    first, last = min(each.first for each in alike), max(each.last for each in alike)
    text = f"{_times(answer.count)}, at {time_of(last)}"
    if answer.count > 1:
        text = f"{_times(answer.count)} since {time_of(first)}, the last at {time_of(last)}"
    return text


def _who(group: DecisionGroup) -> str:
    where = group.component or "unknown"
    if group.job:
        where += f", job {group.job}"
    return f"{group.agent or 'a client'} ({where})"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _other(group: DecisionGroup) -> str:
    action, reason = group.action, group.reason
    if group.kind == "signals":
        action += " (response)"
    if group.rule:
        reason += f": line {group.line}, {group.rule}"
    return (
        f"{action} for {_who(group)}, {reason}, {_times(group.count)},"
        f" the last at {time_of(group.last)} ({group.id})"
    )


def _counted_passes(answer: LogAnswer) -> Iterator[str]:
    for each in answer.passes:
        requests = counted(each.count, "request")
        yield (
            f"{requests} of {each.agent} to {answer.site} passed"
            f" ({each.component or 'unknown'}), which the log counts without their URLs"
        )


def _period(answer: LogAnswer) -> str:
    if answer.since is None and answer.until is None:
        return "all that is recorded"
    begins, ends = "from the first record", " on"
    if answer.since:
        begins = f"from {time_of(answer.since)}"
    if answer.until:
        ends = f" to {time_of(answer.until)}"
    return begins + ends


def _nothing_facts(answer: LogAnswer, directory: Path) -> Iterator[tuple[str, str]]:
    """What was searched, and what is recorded that is nearest."""
    searched = answer.searched
    days = ""
    if searched.days:
        days = f" of {_span_of(searched.days)}"
    files, records = counted(searched.files, "file"), counted(searched.records or 0, "record")
    yield "searched", f"{files}{days} in {directory}, {records}"
    yield "period", _period(answer)
    if searched.files:
        yield "passes", _passes_recorded(searched.passes)
    for each in _counted_passes(answer):
        yield "", each
    if answer.of_origin:
        decisions = counted(answer.of_origin, "decision")
        yield "nearest", f"{decisions} on other URLs of {answer.site}{_for_agent(answer)}"
    else:
        nearest = f"no decision on any URL of {answer.site}{_for_agent(answer)}"
        if answer.since or answer.until:
            nearest += " in this period"
        yield "nearest", nearest
    for entry in answer.nearest:
        short = msgspec.structs.replace(entry, url=_shortened(entry.url, answer.origin))
        yield "", f"{sentence_of(short)} ({entry.id})"


def _shortened(url: str, origin: str) -> str:
    """Return a URL with the middle of its path left out if it is long."""
    path = url.removeprefix(origin)
    if len(path) <= LONGEST_PATH:
        return url
    return f"{origin}{path[: LONGEST_PATH // 2]}...{path[-LONGEST_PATH // 2 :]}"


def _span_of(days: list[str]) -> str:
    first, last = (f"{day[:4]}-{day[4:6]}-{day[6:]}" for day in (days[0], days[-1]))
    return " to ".join(dict.fromkeys((first, last)))


def _passes_recorded(settings: dict[str, int]) -> str:
    """Whether a request that was allowed has left a record, by the settings of the writers."""
    if not settings:
        return "the writers' settings are not recorded, so whether passes were is not known"
    ways = "; ".join(
        f"{_way(setting)} ({counted(count, 'writer')})" for setting, count in settings.items()
    )
    if set(settings) <= {"all", "evidence"}:
        return f"{ways}: a request would have left a record"
    return f"{ways}: a request that was allowed may have left no record of its own"


def _way(setting: str) -> str:
    if setting in ("all", "evidence"):
        return "each pass was recorded"
    if setting == "summary":
        return "passes were counted without their URLs"
    return "ordinary passes were not recorded"
