"""The linter: a body in, its findings out.

Invariant: one pass over the file runs all checks, and the number of findings per code is bounded,
however hostile the file. Findings beyond the limit are merged into the last one, with their lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from robots_guard.protocol.dialect import DIALECTS, Dialect
from robots_guard.protocol.lint import groups, lines, records, rules, statements
from robots_guard.protocol.lint.finding import Ask, Check, Effect, Finding, Note
from robots_guard.protocol.lint.page import LintedFile

CHECKS: tuple[Check, ...] = tuple(
    check for module in (lines, groups, rules, records, statements) for check in module.TABLE.checks
)
MOST = 100  # findings per code

_FILE = [check for check in CHECKS if check.listens == "file"]
_LINE = [check for check in CHECKS if check.listens == "line"]
_GROUP = [check for check in CHECKS if check.listens == "group"]


def lint(
    body: bytes,
    dialects: Sequence[Dialect] = tuple(DIALECTS.values()),
    *,
    agent: str = "",
    truncated: bool = False,
) -> list[Finding]:
    """The findings of a robots.txt, by line.

    `dialects`: those to report on; one made of several counts as its parts. `agent`: report only
    what concerns a crawler of this name. `truncated`: the body is the beginning of a longer one.
    Never raises on any bytes.
    """
    page = LintedFile(body, _flatten(dialects), truncated=truncated)
    concerned = page.concerns(agent) if agent else None
    notes: dict[str, list[Note]] = defaultdict(list)
    for check, note in _notes(page):
        if concerned is None or note.line in concerned:
            notes[check.code].append(note)
    found = [finding for check in CHECKS for finding in _findings(check, notes[check.code], page)]
    return sorted(found, key=lambda finding: (finding.line or 0, finding.code))


def _flatten(dialects: Iterable[Dialect]) -> list[Dialect]:
    return list(dict.fromkeys(part for dialect in dialects for part in dialect.parts or (dialect,)))


def _notes(page: LintedFile) -> Iterator[tuple[Check, Note]]:
    for check in _FILE:
        yield from ((check, note) for note in check.find(page, page))
    checks_by_field = _ChecksByField()
    for item in page.items:
        for check in checks_by_field[item.field]:
            yield from ((check, note) for note in check.find(item, page))
    for group in page.robots.groups:
        for check in _GROUP:
            yield from ((check, note) for note in check.find(group, page))


class _ChecksByField(dict[bytes, list[Check]]):
    """The checks of lines, by field."""

    def __missing__(self, field: bytes) -> list[Check]:
        self[field] = [check for check in _LINE if not check.fields or field in check.fields]
        return self[field]


def _findings(check: Check, notes: list[Note], page: LintedFile) -> Iterator[Finding]:
    for same in _merge(check, notes):
        first = same[0]
        yield Finding(
            code=check.code,
            name=check.name,
            severity=check.severity,
            message=first.message,
            lines=tuple(sorted({note.line for note in same if note.line})),
            text=page.line(first.line),
            effects=_effects(first, page),
        )


def _merge(check: Check, notes: list[Note]) -> list[list[Note]]:
    """Group the notes that form one finding: the same message with `once`, and all beyond the
    limit."""
    if check.once:
        alike: dict[str, list[Note]] = defaultdict(list)
        for note in notes:
            alike[note.message].append(note)
        found = list(alike.values())
    else:
        found = [[note] for note in notes]
    return [
        *found[: MOST - 1],
        *([[note for same in found[MOST - 1 :] for note in same]] if len(found) >= MOST else []),
    ]


def _effects(note: Note, page: LintedFile) -> tuple[Effect, ...]:
    ask = note.ask or _ask_reading(note.line, page)
    effects: dict[str, list[str]] = defaultdict(list)
    for dialect in page.dialects:
        does = ask(dialect)
        if does is not None:
            effects[does].append(dialect.name)
    return tuple(Effect(tuple(names), does) for does, names in effects.items())


def _ask_reading(line: int, page: LintedFile) -> Ask:
    return lambda dialect: page.readings[dialect.name].does(line) if line else None
