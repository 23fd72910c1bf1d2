"""Robots-Tag: the field that draft-illyes-repext-03 proposes in place of X-Robots-Tag.

It is an RFC 9651 list such as `*;noindex, examplebot;max-snippet=20`: each member is the name of a
crawler, and its parameters are the rules. Field lines are joined. By RFC 9651 section 4.2, a field
with a syntax error states nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import http_sf

from robots_guard.protocol.signals.dates import match_date
from robots_guard.protocol.signals.rules import (
    DATE_RULE,
    NUMBER_RULES,
    RULES,
    WORD_CAP,
    WORD_RULES,
    agent_name,
)
from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement, bounded

#: The most characters of a list. A longer field is only searched for rules without values, which
#: then bind every crawler.
LIST_CAP = 65_536

_RULE = re.compile(r";\s*+([a-z][a-z0-9_-]*+)(?![a-z0-9_*.-]|=\?0)")


class _Parameter(NamedTuple):
    agent: str
    rule: str
    value: str | int | bool
    flags: tuple[Flag, ...] = ()


def read(lines: Iterable[str], raw: str | None = None) -> tuple[Statement, ...]:
    """The statements of all Robots-Tag lines of one response. Never raises."""
    text = ", ".join(line for line in lines if line.strip())
    if not text:
        return ()
    shown = (text if raw is None else raw).strip()[:RAW_CAP]
    return bounded(
        Statement(
            signal=Signal.ROBOTS_TAG,
            place=Place.HEADER,
            rule=each.rule,
            value=each.value,
            raw=shown,
            agent=each.agent,
            flags=each.flags,
        )
        for each in _parameters(text)
    )


def _parameters(text: str) -> Iterator[_Parameter]:
    if len(text) > LIST_CAP:
        yield from _scanned(text)
        return
    try:
        members = http_sf.parse(text.encode("utf-8", "replace"), tltype="list")
    except (ValueError, ArithmeticError):  # StructuredFieldError is a ValueError
        yield _Parameter("*", "", "", (Flag.MALFORMED,))
        return
    assert isinstance(members, list)
    for member in members:
        assert isinstance(member, tuple)
        value: Any = member[0]
        parameters = member[1]
        names = [item for item, _ in value] if isinstance(value, list) else [value]
        for name in names:
            yield from _of_agent(name, parameters)


def _of_agent(name: object, parameters: Mapping[str, Any]) -> Iterator[_Parameter]:
    agent = agent_name(str(name))
    flags = () if isinstance(name, http_sf.Token) else (Flag.LENIENT,)
    for rule, value in parameters.items():
        # ?0 means that the parameter is not set.
        if value is not False:
            found = _read(agent, rule[:WORD_CAP], value)
            yield found._replace(flags=(*flags, *found.flags))


def _read(agent: str, rule: str, value: object) -> _Parameter:
    if rule == DATE_RULE:
        return _date(agent, value)
    if rule in NUMBER_RULES:
        if type(value) is int and value >= -1:
            return _Parameter(agent, rule, value)
        return _Parameter(agent, rule, "", (Flag.MALFORMED,))
    if rule in WORD_RULES:
        word = str(value).lower()
        if word in WORD_RULES[rule]:
            return _Parameter(agent, rule, word)
        return _Parameter(agent, rule, "", (Flag.MALFORMED,))
    flags: tuple[Flag, ...] = ()
    if rule == "indexifembedded":
        flags = (Flag.INDEXIFEMBEDDED,)
    if rule not in RULES:
        flags = (Flag.UNKNOWN_RULE,)
    elif value is not True:
        flags = (*flags, Flag.MALFORMED)
    return _Parameter(agent, rule, True, flags)


def _date(agent: str, value: object) -> _Parameter:
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return _Parameter(agent, DATE_RULE, int(at.timestamp()))
    text = str(value).strip()
    found = match_date(text)
    if found is None:
        return _Parameter(agent, DATE_RULE, "", (Flag.UNREADABLE_DATE,))
    flags = (Flag.ASSUMED_UTC,) if found.assumed_utc else ()
    return _Parameter(agent, DATE_RULE, found.seconds, flags)


def _scanned(text: str) -> Iterator[_Parameter]:
    """The rules without values in a text that is too long, for every crawler."""
    yield _Parameter("*", "", "", (Flag.MALFORMED,))
    for rule in _RULE.findall(text):
        if rule in RULES and rule not in WORD_RULES and rule not in NUMBER_RULES:
            value = "" if rule == DATE_RULE else True
            yield _Parameter("*", rule, value, (Flag.MALFORMED,))
