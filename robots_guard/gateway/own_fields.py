"""The fields of a response that only the guard sets, so that clients can trust them.

The proxy and Envoy remove them from the responses of sites, also from interim responses and
trailers. Squid cannot tell a site's `Robots-Guard` from the guard's, and removes the other one only.

`Robots-Guard-Signals` states what the signals of a response come to, for the client of a proxy. It
is a dictionary of RFC 9651. A use that is denied has the token `n`, one that is allowed
`y`; nothing is said of the others. See docs/signals.md.

    Robots-Guard-Signals: search=n;s="x-robots-tag", ai-train=y;s="content-usage";p="robots.txt"
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import http_sf
from http_sf import Token
from http_sf.types import BareItemType, DictionaryType

from robots_guard.decisions.page_dialects import UNION
from robots_guard.decisions.uses import Uses, UseState
from robots_guard.protocol.signals.statement import Place, Statement

VERDICT = "Robots-Guard"  # of a refusal
SIGNALS = "Robots-Guard-Signals"
OWN_FIELDS = (VERDICT, SIGNALS)

_TOKENS = {UseState.DENY: Token("n"), UseState.ALLOW: Token("y")}
#: The uses that end with `unavailable_after`.
_ENDING = UNION.denies["unavailable_after"]
_IS_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")  # RFC 9651 section 3.3.4
_LARGEST = 10**15 - 1  # of an Integer (RFC 9651 section 3.3.1)
_LAST_DATE = 253_402_300_799.0  # the end of the year 9999

Parameters = dict[str, BareItemType]


def signals_field(uses: Uses) -> str:
    """The value of the field; empty if there is nothing to say."""
    until = _date(uses.unavailable_after)
    members: DictionaryType = {}
    for use, state in uses.states.items():
        if state in _TOKENS:
            members[use] = _TOKENS[state], _parameters(uses, use, state, until)
    for use in uses.images:
        members[f"images.{use}"] = _TOKENS[UseState.DENY], _source(uses.denial_of(f"images.{use}"))
    members |= _limits(uses)
    if until is not None:
        members["unavailable-after"] = until, {}
    if uses.is_incomplete:
        members["incomplete"] = True, {}
    return http_sf.ser(members) if members else ""


def _parameters(uses: Uses, use: str, state: UseState, until: datetime | None) -> Parameters:
    if state is UseState.DENY:
        return _source(uses.denial_of(use))
    found = _source(uses.permission_of(use))
    if until is not None and use in _ENDING:
        found["until"] = until
    return found


def _source(statement: Statement | None) -> Parameters:
    """The signal of the deciding statement, and its place unless that is the header."""
    if statement is None:
        return {}
    found: Parameters = {"s": statement.signal.value}
    if statement.place is not Place.HEADER:
        found["p"] = statement.place.value
    return found


def _limits(uses: Uses) -> DictionaryType:
    """The conditions for showing the content."""
    members: DictionaryType = {}
    for name, value in uses.limits.items():
        if isinstance(value, str) and _IS_TOKEN.fullmatch(value):
            members[name] = Token(value), {}
        elif isinstance(value, int) and abs(value) <= _LARGEST:
            members[name] = value, {}
    return members


def _date(seconds: float | None) -> datetime | None:
    if seconds is None or not 0 <= seconds <= _LAST_DATE:
        return None
    return datetime.fromtimestamp(int(seconds), UTC)
