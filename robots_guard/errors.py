"""What can go wrong by somebody's fault, as one small tree.

    RobotsGuardError
      x SettingsError    a setting cannot be used: the operator's to mend
          x MissingExtra     an optional part of the package is not installed
      x NotGoverned      the URL is of another scheme than http(s): no robots.txt governs it
      x MalformedURL     an http(s) URL whose authority cannot be read: refused, never guessed at
      x StoreError       a policy store failed: a miss, counted and shown
          x OutOfTime        it did not answer in the time its caller had
          x StoreReset       it was damaged, and an empty one stands in its place
          x DamagedValue     it works, but what it holds for an origin is damaged, forged or another's
      x JournalError     a record could not be written
          x UnconfirmedRecord  it was written, but an error leaves open whether it lasts

A network failure, a 503 or a robots.txt full of garbage are not errors: they are fetch outcomes.
"""

from __future__ import annotations


class RobotsGuardError(Exception):
    """The root: catch this to catch all of ours."""


class SettingsError(RobotsGuardError):
    """A setting cannot be used. The message is one sentence that names the setting and the remedy."""


class MissingExtra(SettingsError):
    """An optional part of the package is needed and not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs an extra that is not installed: pip install 'robots_guard[{extra}]'")


class NotGoverned(RobotsGuardError):
    """The URL is of another scheme than http and https, so no robots.txt governs it (RFC 9309 section 2.3)."""


class MalformedURL(RobotsGuardError):
    """An http(s) URL whose authority cannot be read. Whoever asks is refused: two readers may differ on it."""


class StoreError(RobotsGuardError):
    """A policy store failed. A guard treats it as a miss."""


class OutOfTime(StoreError):
    """A policy store did not answer in the time its caller had. It may yet, so this says nothing of the store."""


class StoreReset(StoreError):
    """A policy store was damaged and has been begun anew. What it held is lost, and fetched again."""


class DamagedValue(StoreError):
    """What a store holds for an origin is damaged, forged or another origin's. A miss; somebody should look."""


class JournalError(RobotsGuardError):
    """A record could not be written to the journal."""


class UnconfirmedRecord(JournalError):
    """A record was written to the journal, but an error leaves open whether it lasts. It counts as not recorded, and
    is not written again: it would stand there twice."""
