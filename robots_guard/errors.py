"""The exceptions of robots_guard, as one small tree.

    RobotsGuardError
      x SettingsError    a setting cannot be used: the operator has to correct it
          x MissingExtra     an optional part of the package is not installed
          x ShuttingDown     a proxy ends: see gateway/waits.py
      x NotGoverned      the URL has another scheme than http(s): no robots.txt governs it
      x MalformedURL     an http(s) URL whose authority is ambiguous: refused, never guessed at
      x StoreError       a policy store failed: treated as a miss, counted and logged
          x OutOfTime        it did not answer within the caller's time limit
          x StoreReset       it was damaged and has been replaced by an empty one
          x DamagedValue     it works, but the value of an origin is damaged, forged or another origin's
      x AuditLogError    a record could not be written
          x UnconfirmedRecord  it was written, but after an error it may not be durable
      x ClosedGuard      a guard is used that is closed, or that belongs to the parent of a fork or to
                         another event loop
      x Abandoned        a proxy's client has left: see gateway/waits.py
      x NoRoomToWait     a proxy holds too many requests already: see gateway/waits.py
      x RequestRefused   the guard refused a request: see gateway/errors.py

A network failure, a 503 or a malformed robots.txt is not an error: it is a fetch outcome.
"""

from __future__ import annotations


class RobotsGuardError(Exception):
    """The base class of all exceptions of this package."""


class SettingsError(RobotsGuardError):
    """A setting cannot be used. The message is one sentence that names the setting and the
    remedy."""


class MissingExtra(SettingsError):
    """An optional part of the package is needed but not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs an extra that is not installed: pip install 'robots_guard[{extra}]'"
        )


class NotGoverned(RobotsGuardError):
    """The URL has another scheme than http and https, so no robots.txt governs it (RFC 9309 section
    2.3)."""


class MalformedURL(RobotsGuardError):
    """An http(s) URL whose authority is ambiguous. The request is refused, because parsers may read
    it differently."""


class StoreError(RobotsGuardError):
    """A policy store failed. The guard treats this as a miss."""


class OutOfTime(StoreError):
    """A policy store did not answer within the caller's time limit. It does not count as down: it
    may only be slow."""


class StoreReset(StoreError):
    """A policy store was damaged and has been replaced by an empty one. Lost policies are fetched
    again."""


class DamagedValue(StoreError):
    """A stored value is damaged, forged or another origin's. It counts as a miss; the operator
    should investigate."""


class AuditLogError(RobotsGuardError):
    """A record could not be written to the audit log."""


class UnconfirmedRecord(AuditLogError):
    """A record was written to the audit log, but after an error it may not be durable.

    It counts as not recorded. It is not written again, because the log would then contain it twice.
    """


class ClosedGuard(RobotsGuardError):
    """A guard of the Python API is used after it was closed, in a forked child of the process that
    opened it, or in a second event loop while the first is running. The request was not judged, and
    must not be made."""
