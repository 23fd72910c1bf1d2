"""The statements of a robots.txt: Content-Usage, Content-Signal, DisallowAITraining and
AllowAITraining, Noindex and License lines.

The dialect decides which groups apply to a crawler, as it does for Allow and Disallow. Documents
disagree about one question: whether such a line ends a run of User-agent lines. By
draft-ietf-aipref-attach-05 it is a rule, so it does. A parser of RFC 9309 skips the line, so the
User-agent lines before and after it name one group. Both groupings are read, but the second one
only for denials.

These lines count for a target:

    Content-Usage           the longest pattern that matches, or else the lines without a pattern
    Content-Signal          every line that matches
    (Dis)AllowAITraining    the longest pattern that matches; of two equal ones the prohibition,
                            although RFC 9309 section 2.2.2 would prefer the permission
    Noindex                 every line that matches
    License                 the lines of the group, otherwise those before the first group

Invariant: a line before the first group, an unreadable line and another form of the target can only
add denials. A line is read as a whole, even if a rule of this length would be truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from robots_guard.protocol.dialect import DIALECTS
from robots_guard.protocol.lines import LINE_CAP, Record, shown_line
from robots_guard.protocol.paths import Matching
from robots_guard.protocol.paths import matching as matching_of
from robots_guard.protocol.robots import Group, Robots, parse_clean
from robots_guard.protocol.signals.link_header import license_statement
from robots_guard.protocol.signals.patterns import (
    NO_RULE,
    TOO_COMPLEX,
    Form,
    PathPatterns,
    normal,
    other_forms,
    written_form,
)
from robots_guard.protocol.signals.statement import (
    RAW_CAP,
    STATEMENTS,
    Flag,
    Place,
    Signal,
    Statement,
    bounded,
    is_restrictive,
)
from robots_guard.protocol.signals.usage import read_signal, read_usage

_USAGE = b"content-usage"
_SIGNAL = b"content-signal"
_BAN, _PERMISSION = b"disallowaitraining", b"allowaitraining"
_NOINDEX = b"noindex"
_LICENSE = b"license"

FIELDS = frozenset((_USAGE, _SIGNAL, _BAN, _PERMISSION, _NOINDEX, _LICENSE))
#: Families of fields, each defined by one document. The lines of one family end a run of User-agent
#: lines in the grouping of that family only.
_FAMILIES = (
    frozenset((_USAGE,)),
    frozenset((_SIGNAL,)),
    frozenset((_BAN, _PERMISSION)),
    frozenset((_NOINDEX,)),
)

_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")
_PATH = re.compile(rb"(/[^ \t]*+|\*[^ \t=]*+)(?:[ \t]++|\Z)")


def states_something(robots: Robots) -> bool:
    """Whether a document has a line that this module reads. Most documents have none."""
    return not FIELDS.isdisjoint(robots.fields)


class RobotsStatements:
    """The statements of one document for one crawler, compiled to be looked up by target."""

    def __init__(self, robots: Robots, token: str, matching: Matching) -> None:
        self._matching = matching
        reader = _LineReader(robots)
        self._ruled: list[_Section] = []  # by the grouping in which these lines are rules
        self._loose: list[_Section] = []  # outside the groups
        self._skipped: list[_Section] = []  # by the grouping of RFC 9309, if that differs
        for family in _FAMILIES:
            if _has(robots, family):
                self._compile(reader, robots, token, family)
        self._licenses = bounded(_licenses(reader, robots, token))

    def _compile(
        self, reader: _LineReader, robots: Robots, token: str, family: frozenset[bytes]
    ) -> None:
        skipped = _records(robots.select(token).groups, family)
        ruled = _records(_regrouped(robots, family).select(token).groups, family)
        loose = _records([robots.loose], family)
        self._ruled += _sections(map(reader.line, ruled))
        self._loose += _sections(map(reader.loose_line, loose))
        if skipped != ruled:
            self._skipped += _sections(map(reader.line, skipped))

    def statements(self, target: str) -> tuple[Statement, ...]:
        """The statements for a target, such as `/a?b`. Never raises."""
        if not self._ruled and not self._loose and not self._skipped:
            return self._licenses
        return bounded((*self._licenses, *self._found(target)))

    def _found(self, target: str) -> Iterator[Statement]:
        written = written_form(target)
        for section in (*self._ruled, *self._loose):
            yield from section.statements(written)
        for section in self._skipped:
            yield from filter(is_restrictive, section.statements(written))
        for form in other_forms(target, self._matching):
            if form != written:
                for section in (*self._ruled, *self._loose, *self._skipped):
                    yield from filter(is_restrictive, section.statements(form))


# --- Lines ---


class _TextLine(NamedTuple):
    """A line of the document. `doubts` are flags for a problem with its place or its bytes."""

    number: int
    field: bytes
    value: bytes
    raw: str
    doubts: tuple[Flag, ...]


class _LineReader:
    """Returns the lines of a document without truncation."""

    def __init__(self, robots: Robots) -> None:
        self._raws = robots.text.splitlines()
        self._has_split_lines = robots.has_split_lines

    def line(self, record: Record) -> _TextLine:
        """The line of a record, in full."""
        number, field, value = record
        raw = self._raws[number - 1]
        whole = raw.partition(b"#")[0].partition(b":")[2]
        doubts: tuple[Flag, ...] = ()
        if not self._has_split_lines and (len(raw) > LINE_CAP or _CONTROLS.search(whole)):
            value = _CONTROLS.sub(b" ", whole)
            doubts = (Flag.MALFORMED,)
        return _TextLine(number, field, value.strip(), shown_line(raw)[:RAW_CAP], doubts)

    def loose_line(self, record: Record) -> _TextLine:
        """The line of a record outside the groups, in full."""
        line = self.line(record)
        return line._replace(doubts=(Flag.UNGROUPED, *line.doubts))


def _has(robots: Robots, family: frozenset[bytes]) -> bool:
    return bool(_records((robots.loose, *robots.void, *robots.groups), family))


def _records(groups: Iterable[Group], family: frozenset[bytes]) -> list[Record]:
    """The lines of a family in some groups."""
    return [record for group in groups for record in group.others if record[1] in family]


def _regrouped(robots: Robots, family: frozenset[bytes]) -> Robots:
    """The document, with the lines of a family as rules: they end a run of User-agent lines, and a
    group with such a line is valid."""
    dialect = replace(robots.dialect, closing=robots.dialect.closing | family)
    again = parse_clean(robots.text, dialect)
    valid = [group for group in again.void if _records([group], family)]
    if valid:
        again.groups = sorted((*again.groups, *valid), key=lambda group: group.agents[0][0])
    return again


def _licenses(reader: _LineReader, robots: Robots, token: str) -> Iterator[Statement]:
    """The licences of the crawler's groups, otherwise those outside the groups (RSL 1.0)."""
    family = frozenset((_LICENSE,))
    records = _records(robots.select(token).groups, family)
    for record in records or _records([robots.loose], family):
        line = reader.line(record)
        url = line.value.decode("utf-8", "replace")
        yield license_statement(url, Place.ROBOTS_TXT, line.raw, line=line.number)


# --- What a line states ---


class _LineStatements(NamedTuple):
    """The statements of a line for the targets that match its pattern.

    A line that is chosen replaces those with shorter patterns. The others all count.
    """

    pattern: bytes
    statements: tuple[Statement, ...]
    is_chosen: bool = False


def _line_statements(line: _TextLine) -> _LineStatements | None:
    """The statements of a line, or None if it states nothing."""
    if line.field == _USAGE:
        return _usage_line(line)
    if line.field == _SIGNAL:
        return _signal_line(line)
    return _path_line(line)


def _split_pattern(line: _TextLine) -> tuple[bytes, str, tuple[Flag, ...]]:
    """The pattern of a line, the text after it, and flags for doubts.

    A pattern begins with a slash. A pattern that begins with a star is accepted too.
    """
    found = _PATH.match(line.value)
    if found is None:
        return b"", line.value.decode("utf-8", "replace"), line.doubts
    text = line.value[found.end() :].decode("utf-8", "replace")
    if found[1].startswith(b"/"):
        return found[1], text, line.doubts
    return found[1], text, (*line.doubts, Flag.LENIENT)


def _usage_line(line: _TextLine) -> _LineStatements | None:
    pattern, text, doubts = _split_pattern(line)
    statements = read_usage(
        text, place=Place.ROBOTS_TXT, flags=doubts, line=line.number, raw=line.raw
    )
    if not statements:
        return None
    # A text that is not a dictionary replaces no statement.
    is_dictionary = all(each.rule for each in statements)
    return _LineStatements(pattern, statements, is_chosen=is_dictionary and not doubts)


def _signal_line(line: _TextLine) -> _LineStatements | None:
    pattern, text, doubts = _split_pattern(line)
    statements = read_signal(
        text, place=Place.ROBOTS_TXT, flags=doubts, line=line.number, raw=line.raw
    )
    return _LineStatements(pattern, statements) if statements else None


def _path_line(line: _TextLine) -> _LineStatements | None:
    """The statement of a Noindex, DisallowAITraining or AllowAITraining line, or None if it has no
    path."""
    pattern, doubts = line.value, line.doubts
    if not pattern:
        return None
    if not pattern.startswith((b"/", b"*")):
        pattern, doubts = b"/" + pattern, (*doubts, Flag.LENIENT)
    is_permission = line.field == _PERMISSION
    if is_permission and doubts:
        return None
    signal = Signal.AI_TRAINING
    if line.field == _NOINDEX:
        signal, doubts = Signal.NOINDEX, (Flag.ROBOTS_NOINDEX, *doubts)
    statement = Statement(
        signal=signal,
        place=Place.ROBOTS_TXT,
        rule=line.field.decode(),
        raw=line.raw,
        line=line.number,
        flags=doubts,
    )
    is_chosen = signal is Signal.AI_TRAINING and not doubts
    return _LineStatements(pattern, (statement,), is_chosen=is_chosen)


# --- Which lines count for a target ---


class _Section(Protocol):
    """Lines of one family in one grouping."""

    def statements(self, form: Form) -> list[Statement]:
        """The statements for a form of a target."""


def _sections(lines: Iterable[_TextLine]) -> list[_Section]:
    stated = [found for line in lines if (found := _line_statements(line)) is not None]
    chosen = [each for each in stated if each.is_chosen]
    others = [each for each in stated if not each.is_chosen]
    sections: list[_Section] = []
    if chosen:
        sections.append(_LongestPattern(chosen))
    if others:
        sections.append(_EveryPattern(others))
    return sections


class _LongestPattern:
    """Lines of which only the longest matching pattern counts. Lines with equal patterns are
    combined."""

    def __init__(self, stated: Sequence[_LineStatements]) -> None:
        patterns: dict[str, bytes] = {}
        found: dict[str, list[Statement]] = {}
        keys = normal([each.pattern for each in stated]).split("\n")
        for key, each in zip(keys, stated, strict=True):
            patterns.setdefault(key, each.pattern)
            found.setdefault(key, []).extend(each.statements)
        self._patterns = PathPatterns(list(patterns.values()))
        self._statements = [_without_overruled(_once(each)) for each in found.values()]

    def statements(self, form: Form) -> list[Statement]:
        place = self._patterns.choose(form)
        if place == NO_RULE:
            return []
        if place == TOO_COMPLEX:
            every = (each for statements in self._statements for each in statements)
            return list(bounded(filter(is_restrictive, every)))
        return self._statements[place]


def _once(statements: list[Statement]) -> list[Statement]:
    """The statements of lines with equal patterns, without repetitions."""
    first: dict[tuple[object, ...], Statement] = {}
    for each in statements:
        first.setdefault((each.rule, each.value, each.flags), each)
    return list(bounded(first.values()))


def _without_overruled(statements: list[Statement]) -> list[Statement]:
    """The statements of lines with equal patterns, without permissions beside a prohibition."""
    bans = [each for each in statements if each.rule.encode() == _BAN]
    return bans or statements


class _EveryPattern:
    """Lines that all count if they match. Of lines that state the same, one is returned."""

    def __init__(self, stated: Sequence[_LineStatements]) -> None:
        lines: dict[tuple[object, ...], list[tuple[bytes, Statement]]] = {}
        for each in stated:
            for statement in each.statements:
                key = (statement.rule, statement.value, statement.flags)
                # There are few kinds of restrictive statements, but any number of unknown words.
                if key in lines or len(lines) < STATEMENTS or is_restrictive(statement):
                    lines.setdefault(key, []).append((each.pattern, statement))
        self._kinds = [
            ([statement for _, statement in kind], PathPatterns([pattern for pattern, _ in kind]))
            for kind in lines.values()
        ]

    def statements(self, form: Form) -> list[Statement]:
        found: list[Statement] = []
        for statements, patterns in self._kinds:
            place = patterns.choose(form)
            if place == TOO_COMPLEX:
                found += filter(is_restrictive, statements[:1])
            elif place != NO_RULE:
                found.append(statements[place])
        return found


#: The statements of a document that has none.
NO_STATEMENTS = RobotsStatements(parse_clean(b"", DIALECTS["rfc9309"]), "", matching_of("standard"))
