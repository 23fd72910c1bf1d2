"""Replies to requests for turns."""

from __future__ import annotations

from robots_guard.decisions.pacing import Turn, Wait, as_wait


def wait_of(reply: Turn | Wait) -> float:
    """Return how long to wait: 0 for a granted turn."""
    return as_wait(reply).seconds
