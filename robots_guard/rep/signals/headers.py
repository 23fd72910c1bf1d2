"""The statements of a response's header fields."""

from __future__ import annotations

from collections.abc import Iterable

from robots_guard.rep.signals.rules import read_rules
from robots_guard.rep.signals.statement import Place, Signal, Statement


def header_statements(headers: Iterable[tuple[str, str]], status: int) -> tuple[Statement, ...]:  # noqa: ARG001
    """What the header fields of a response state. Field lines of one name stay apart."""
    stated: tuple[Statement, ...] = ()
    for name, value in headers:
        if name.lower() == "x-robots-tag":
            stated += read_rules(value, signal=Signal.X_ROBOTS_TAG, place=Place.HEADER)
    return stated
