"""The linter of responses: header fields, a page and a tdmrep.json in, findings out.

Invariant: what a line states is read by the engine that judges responses, never assumed. The number
of findings per code is bounded, as for a robots.txt.
"""

from __future__ import annotations

import bisect
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.html.charset import documents
from robots_guard.protocol.html.page import read_page
from robots_guard.protocol.html.tokenizer import Tokenizer
from robots_guard.protocol.lint.finding import Effect, Finding, Severity
from robots_guard.protocol.lint.linter import CHECKS, MOST
from robots_guard.protocol.lint.page import cut
from robots_guard.protocol.lint.statements import (
    SIGNAL,
    USAGE,
    ValueFault,
    agent_faults,
    contradictions,
    form_faults,
    repetitions,
    repetitions_in,
    value_faults,
    word_faults,
)
from robots_guard.protocol.ruleset import compile_rules
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.statement import Flag, Signal, Statement
from robots_guard.text import printable


class FindingKind(NamedTuple):
    """A kind of finding."""

    code: str
    name: str
    severity: Severity
    about: str


RESPONSE_CHECKS = (
    FindingKind(
        "RG701",
        "contradictory-rules",
        Severity.ERROR,
        "Two robots rules of a response contradict each other.",
    ),
    FindingKind(
        "RG702", "repeated-robots-rule", Severity.WARNING, "A robots rule repeats another one."
    ),
    FindingKind(
        "RG703", "dead-robots-rule", Severity.NOTE, "A robots rule has no effect any more."
    ),
    FindingKind("RG704", "unknown-robots-rule", Severity.WARNING, "A word is no robots rule."),
    FindingKind(
        "RG705",
        "doubtful-agent",
        Severity.WARNING,
        "Which crawler a robots rule is for depends on the reader.",
    ),
    FindingKind(
        "RG706",
        "unreadable-robots-rule",
        Severity.ERROR,
        "The value of a robots rule cannot be read, so the rule means nothing.",
    ),
    FindingKind(
        "RG707", "odd-robots-rule", Severity.WARNING, "A robots rule is not in the usual form."
    ),
    FindingKind("RG708", "date-without-zone", Severity.NOTE, "A date names no time zone."),
    FindingKind(
        "RG709",
        "undefined-place",
        Severity.WARNING,
        "No document defines this place for the statement.",
    ),
    FindingKind(
        "RG710",
        "unseen-robots-rule",
        Severity.ERROR,
        "The robots.txt disallows the page, so crawlers do not see its rule.",
    ),
    FindingKind("RG711", "tdm-value", Severity.ERROR, "A TDM reservation is neither 0 nor 1."),
    FindingKind(
        "RG712",
        "tdmrep-form",
        Severity.ERROR,
        "A tdmrep.json is not an array of objects with a location.",
    ),
    FindingKind(
        "RG713", "markup-in-description", Severity.NOTE, "A META description contains tags."
    ),
)
#: Every kind of finding, of a robots.txt and of a response.
KINDS = (
    *(FindingKind(each.code, each.name, each.severity, each.about) for each in CHECKS),
    *RESPONSE_CHECKS,
)
_KINDS = {each.code: each for each in KINDS}

_RULES = frozenset((Signal.X_ROBOTS_TAG, Signal.ROBOTS_TAG, Signal.META_ROBOTS))
_HIDDEN = frozenset(("noindex", "none", "nosnippet", "noarchive", "noai", "unavailable_after"))
_UTF_8 = "text/html; charset=utf-8"
_NOBODY = "a-crawler-that-no-group-names"


class StatedLine(NamedTuple):
    """A header field or a META: its line, its text, its value or content, and what it states."""

    number: int
    text: str
    value: str
    statements: tuple[Statement, ...]


class RobotsOfPage(NamedTuple):
    """The robots.txt of a page's origin, and the page's target, such as `/a?b`."""

    body: bytes
    target: str
    dialects: Sequence[Dialect]


class ResponseFindings(NamedTuple):
    """The findings of a response, by the file that they are in."""

    headers: list[Finding]
    page: list[Finding]


Header = tuple[int, str, str]  # line, name, value
_Fault = tuple[StatedLine, ValueFault]


def lint_response(
    headers: Sequence[Header],
    page: bytes | None,
    *,
    robots: RobotsOfPage | None = None,
    agent: str = "",
) -> ResponseFindings:
    """The findings of the header fields and the page of one response. Never raises.

    `robots` is needed to find rules that no crawler sees. `agent`: report only what concerns a
    crawler of this name.
    """
    stated_headers = [_for_agent(_stated_header(each), agent) for each in headers]
    content_type = next((value for _, name, value in headers if name.lower() == "content-type"), "")
    metas = [] if page is None else _metas(page, content_type)
    stated_metas = [_for_agent(meta.stated, agent) for meta in metas]
    in_headers = [*_line_faults(stated_headers), *_field_faults(headers, stated_headers)]
    in_page = [*_line_faults(stated_metas), *_meta_faults(metas)]
    for line, fault in _across(stated_headers, stated_metas):
        in_page.append((line, fault))
    return ResponseFindings(
        _sorted(_findings(in_headers) + _unseen(stated_headers, robots, agent)),
        _sorted(_findings(in_page) + _unseen(stated_metas, robots, agent)),
    )


def _sorted(found: list[Finding]) -> list[Finding]:
    return sorted(found, key=lambda each: (each.line or 0, each.code))


def _for_agent(line: StatedLine, agent: str) -> StatedLine:
    if not agent:
        return line
    own = ("*", agent.lower())
    return line._replace(statements=tuple(each for each in line.statements if each.agent in own))


def _stated_header(header: Header) -> StatedLine:
    number, name, value = header
    return StatedLine(number, f"{name}: {value}", value, header_statements([(name, value)], 200))


class _Meta(NamedTuple):
    stated: StatedLine
    attributes: dict[str, str]


def _metas(page: bytes, content_type: str) -> list[_Meta]:
    """The METAs of a page, each with what it states by itself."""
    if not _is_html(page, content_type):
        return []
    document = documents(page, content_type)[0]
    ends = [found.start() for found in re.finditer(b"\n", document)]
    found = []
    for tag in Tokenizer(document, frozenset((b"meta",))).tags():
        text = document[tag.start : tag.end]
        attributes = tag.attributes()
        stated = StatedLine(
            number=bisect.bisect(ends, tag.start) + 1,
            text=text.decode("utf-8", "replace"),
            value=attributes.get("content", ""),
            statements=read_page(text, _UTF_8, "").statements,
        )
        found.append(_Meta(stated, attributes))
    return found


def _is_html(page: bytes, content_type: str) -> bool:
    """Whether a body of this type is read as HTML."""
    start = b"" if page.lstrip().startswith(b"<") else b"."
    probe = read_page(start + b'<meta name="robots" content="noindex">', content_type, "")
    return bool(probe.statements)


# --- Faults ---


def _line_faults(lines: Iterable[StatedLine]) -> Iterator[_Fault]:
    """The faults of the robots rules of each place, and of their lines together."""
    lines = list(lines)
    for line in lines:
        rules = [each for each in line.statements if each.signal in _RULES]
        for fault in (*word_faults(rules), *agent_faults(rules), *form_faults(rules)):
            yield line, fault
        for fault in repetitions_in(line.value, rules):
            yield line, fault
        for statement in line.statements:
            if Flag.NONSTANDARD in statement.flags:
                message = f"no document defines {statement.signal.value} here"
                yield line, ValueFault("RG709", f"{message}: it can deny, and permits nothing")
                break
    pairs = [(line, each) for line in lines for each in line.statements if each.signal in _RULES]
    yield from contradictions(pairs)
    yield from repetitions(pairs)


def _across(headers: Sequence[StatedLine], metas: Sequence[StatedLine]) -> Iterator[_Fault]:
    """The contradictions between header fields and METAs, each at its META."""
    first = [(None, each) for line in headers for each in line.statements if each.signal in _RULES]
    second = [(line, each) for line in metas for each in line.statements if each.signal in _RULES]
    of_page_alone = set(contradictions(second))
    for line, fault in contradictions([*first, *second]):
        if line is not None and (line, fault) not in of_page_alone:
            message = f"{fault.message} (one is in the header fields)"
            yield line, ValueFault(fault.code, message)


def _field_faults(headers: Sequence[Header], lines: Sequence[StatedLine]) -> Iterator[_Fault]:
    for (_, name, value), line in zip(headers, lines, strict=True):
        field = name.lower()
        if field in (USAGE, SIGNAL):
            for fault in value_faults(field, value):
                yield line, fault
        yield from ((line, fault) for fault in _tdm_faults(line))
        if field == "robots-tag" and any(Flag.MALFORMED in each.flags for each in line.statements):
            message = "this is not a list of RFC 9651, such as *;noindex, so nothing of it is read"
            yield line, ValueFault("RG706", message)


def _meta_faults(metas: Iterable[_Meta]) -> Iterator[_Fault]:
    for meta in metas:
        name = meta.attributes.get("name", "").strip().lower()
        content = meta.attributes.get("content", "")
        if name in (USAGE, SIGNAL):
            for fault in value_faults(name, content):
                yield meta.stated, fault
        yield from ((meta.stated, fault) for fault in _tdm_faults(meta.stated))
        if name == "description" and any(Tokenizer(content.encode("utf-8", "replace")).tags()):
            message = "a description is text: its tags are shown, or the description is not used"
            yield meta.stated, ValueFault("RG713", message)


def _tdm_faults(line: StatedLine) -> Iterator[ValueFault]:
    for statement in line.statements:
        if statement.signal is Signal.TDM and statement.flags:
            yield ValueFault("RG711", "a reservation is 1 or 0, without anything else")


def _unseen(lines: Iterable[StatedLine], robots: RobotsOfPage | None, agent: str) -> list[Finding]:
    """The rules of a page that the robots.txt disallows."""
    if robots is None:
        return []
    found = []
    kind = _KINDS["RG710"]
    for line in lines:
        rules = [each for each in line.statements if each.signal in _RULES and each.rule in _HIDDEN]
        for statement in rules[:1]:
            effects = _effects(statement, robots, agent)
            if effects:
                message = f"crawlers that obey the robots.txt do not see {statement.rule}: allow {cut(robots.target)}"
                found.append(_finding(kind, message, [line], effects))
    return found[:MOST]


def _effects(statement: Statement, robots: RobotsOfPage, agent: str) -> tuple[Effect, ...]:
    """What hides the page, in the dialects that disallow it."""
    name = agent or (_NOBODY if statement.agent == "*" else statement.agent)
    effects: dict[str, list[str]] = defaultdict(list)
    for dialect in robots.dialects:
        ruling = compile_rules(robots.body, dialect, name).judge(robots.target)
        if not ruling.allowed and ruling.rule is not None:
            does = f"disallowed by line {ruling.rule.line}: {cut(ruling.rule.text)}"
            effects[does].append(dialect.name)
    return tuple(Effect(tuple(names), does) for does, names in effects.items())


# --- tdmrep.json ---


def lint_tdmrep(body: bytes) -> list[Finding]:
    """The findings of a tdmrep.json. Never raises."""
    kind = _KINDS["RG712"]
    return [_finding(kind, message, []) for message in dict.fromkeys(_tdmrep_faults(body))][:MOST]


def _tdmrep_faults(body: bytes) -> Iterator[str]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        yield "the file is not JSON, so it says nothing"
        return
    if isinstance(content, dict):
        yield "the file is an object; it must be an array of objects, also of one"
        content = [content, *(each for each in content.values() if isinstance(each, list))]
    if not isinstance(content, list):
        yield "the file is not an array of objects"
        return
    for place, entry in enumerate(content, 1):
        if not isinstance(entry, dict):
            yield f"entry {place} is not an object"
            continue
        yield from _entry_faults(place, entry)


def _entry_faults(place: int, entry: dict[str, Any]) -> Iterator[str]:
    location = entry.get("location")
    if not isinstance(location, str) or not location.startswith(("/", "*")):
        yield f"entry {place} has no location that is a path, such as /"
    value = entry.get("tdm-reservation")
    if type(value) is not int or value not in (0, 1):
        shown = cut(json.dumps(value))
        yield f"entry {place} has the reservation {shown}; it must be the number 1 or 0"
    if value == 0 and "tdm-policy" in entry:
        yield f"entry {place} has a policy, which says nothing without a reservation of 1"


# --- Findings ---


def _findings(faults: Iterable[_Fault]) -> list[Finding]:
    """The findings of faults. Those with one message are one finding."""
    alike: dict[tuple[str, str], list[StatedLine]] = defaultdict(list)
    for line, fault in faults:
        alike[fault.code, fault.message].append(line)
    by_code: dict[str, list[Finding]] = defaultdict(list)
    for (code, message), lines in alike.items():
        by_code[code].append(_finding(_KINDS[code], message, lines))
    return [each for findings in by_code.values() for each in findings[:MOST]]


def _finding(
    kind: FindingKind, message: str, lines: Sequence[StatedLine], effects: tuple[Effect, ...] = ()
) -> Finding:
    return Finding(
        code=kind.code,
        name=kind.name,
        severity=kind.severity,
        message=message,
        lines=tuple(sorted({line.number for line in lines})),
        text=printable(cut(" ".join(lines[0].text.split()))) if lines else "",
        effects=effects,
    )
