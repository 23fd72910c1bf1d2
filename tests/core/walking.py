"""Walk a machine without any I/O: give the answers in turn, see every state passed through."""

from __future__ import annotations

from typing import Any


def walk(state: Any, *answers: tuple[Any, ...]) -> list[Any]:
    trail = [state]
    for answer in answers:
        trail.append(trail[-1].next(*answer))
    return trail
