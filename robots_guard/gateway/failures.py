"""Failures: the responses to requests on which there is no decision.

Invariant: deny first. Whatever was raised, the request is refused.
"""

from __future__ import annotations

import logging

from robots_guard.errors import SettingsError
from robots_guard.gateway.destinations import NoAddress
from robots_guard.gateway.refusal import ProxyReply, not_ready, shutting_down, too_many_held
from robots_guard.gateway.waits import NoRoomToWait, ShuttingDown

log = logging.getLogger("robots_guard")

NO_VERDICT = "The guard could not reach a verdict."


def reply_to_failure(error: Exception, method: str) -> ProxyReply:
    """Return the response to a request whose judgement has raised this error, and log an
    unexpected one."""
    if isinstance(error, ShuttingDown):
        return shutting_down(method=method)
    if isinstance(error, NoRoomToWait):
        return too_many_held(method=method)
    if isinstance(error, NoAddress):
        return not_ready(str(error), method=method)
    if isinstance(error, SettingsError):
        return not_ready(f"The guard is not ready: {error}", method=method)
    log.error("robots_guard failed; the request is refused", exc_info=error)
    return not_ready(NO_VERDICT, method=method)
