"""The lines of decisions. What the lines of an origin have in common is encoded once.

A line has two parts: the fields of RecordHead, which differ from one request to the next, and
the remaining ones, in which only the age of the policy and the elapsed time differ while origin,
policy and verdict are the same. The second part is kept, cut where these two numbers stand.

Invariant: a line has exactly the bytes of `record_of(...).line_of_json()`. The key of what is kept
has every value from which `record_of` makes the second part.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import msgspec

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.record import (
    Writer,
    age_of,
    elapsed_us_of,
    head_of,
    printable,
    record_of,
)
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Decision

MOST = 4096  # common parts that are kept
LONGEST_KEY = 2048  # bytes in JSON: a site's texts, such as a rule, may be of any length

_MARK = b"\0"  # the encoder escapes this character wherever it occurs in text
_ELAPSED = b',"elapsed_us":'
_encoder = msgspec.json.Encoder()


class _Common(NamedTuple):
    """The second part of a line: before the age, between it and the elapsed time, and after that.
    Without a policy, nothing is between them."""

    origin: str
    start: bytes
    middle: bytes
    end: bytes


class LineEncoder:
    """The encoder of decisions on requests. Any thread may call it."""

    def __init__(self, privacy: Privacy) -> None:
        self._privacy = privacy
        self._known: dict[Hashable, _Common] = {}

    @property
    def kept(self) -> int:
        """The number of common parts that are kept."""
        return len(self._known)

    def line_of(self, decision: Decision, writer: Writer, *, seq: int, mono: float | None) -> bytes:
        """The line of `record_of` with the same arguments."""
        if _is_common(decision):
            try:  # `suppress` takes a twentieth of the time of a line
                return self._line_of_parts(decision, writer, seq, mono)
            except UnicodeEncodeError:  # a lone surrogate, in a name or a token
                pass
        return record_of(decision, writer, seq=seq, mono=mono, privacy=self._privacy).line_of_json()

    def _line_of_parts(
        self, decision: Decision, writer: Writer, seq: int, mono: float | None
    ) -> bytes:
        """The same for a decision that is common. Raises UnicodeEncodeError."""
        key = _key_of(decision)
        common = self._known.get(key) or self._learn(key, decision)
        head = head_of(decision, common.origin, writer, seq, mono, self._privacy)
        encoded = printable(_encoder.encode(head))[:-1]
        seconds, microseconds = age_of(decision), elapsed_us_of(decision)
        age = b"" if seconds is None else _encoder.encode(seconds)
        # A field with its default value is omitted.
        elapsed = b"%b%d" % (_ELAPSED, microseconds) if microseconds else b""
        parts = (encoded, common.start, age, common.middle, elapsed, common.end)
        return b"".join(parts)

    def _learn(self, key: Hashable, decision: Decision) -> _Common:
        """Encode what the lines with this key have in common, and keep it unless the key is long.
        Raises UnicodeEncodeError."""
        record = record_of(decision, privacy=self._privacy)
        varying: dict[str, Any] = {"url": msgspec.Raw(_MARK), "elapsed_us": msgspec.Raw(_MARK)}
        if record.age is not None:
            varying["age"] = msgspec.Raw(_MARK)
        encoded = _encoder.encode(msgspec.structs.replace(record, **varying))
        _, *parts, end = map(printable, encoded.split(_MARK))
        parts[-1] = parts[-1].removesuffix(_ELAPSED)
        common = _Common(record.origin, parts[0], b"".join(parts[1:]), end + b"\n")
        if len(_encoder.encode(key)) <= LONGEST_KEY:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = common
        return common


def _is_common(decision: Decision) -> bool:
    """Whether the record has none of the rarer values that differ from one request to the next."""
    question, verdict = decision.question, decision.verdict
    return (
        verdict.until is None
        and verdict.uses is None
        and question.deferral is None
        and not question.led_by
        and not question.sent
        and question.robots_txt_of is None
    )


def _key_of(decision: Decision) -> Hashable:
    return (
        decision.question.origin,
        decision.verdict,
        decision.dialect,
        decision.matching,
        decision.source,
        decision.override,
        decision.placeholder,
        _policy_key(decision.policy) if decision.policy else None,
    )


def _policy_key(policy: Policy) -> Hashable:
    """The values of a policy that a record has. The policy itself may be large."""
    document, trouble = policy.document, policy.trouble
    values: list[Hashable] = [policy.origin.scheme]
    if document is not None:
        values += (
            document.sha256,
            document.status,
            document.fetched_at,
            document.redirects,
            document.via,
            document.tls_verified,
        )
    if trouble is not None:
        values += (trouble.failure, trouble.since, trouble.status)
    return tuple(values)
