"""Run a state machine without I/O: feed it the answers in order and return all its states."""

from __future__ import annotations

from typing import Any


def walk(state: Any, *answers: tuple[Any, ...]) -> list[Any]:
    trail = [state]
    for answer in answers:
        trail.append(trail[-1].next(*answer))
    return trail
