"""Signatures and timestamps of a bundle, verified as far as the libraries for it are installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from robots_guard.audit.anchors import ChainHead, InvalidAnchor, anchor_of, verify_anchor
from robots_guard.audit.bundle.contents import Seal, encoded
from robots_guard.audit.signing import InvalidKey, fingerprint, statement_of, verify_signature
from robots_guard.errors import MissingExtra

CLOCK_SKEW = 300.0  # seconds between the clocks of an operator and of a time-stamping authority


class BundleTrust(NamedTuple):
    """What a verifier trusts: public keys in base64, and root certificates of time-stamping
    authorities. Without keys, each valid signature counts for its key only."""

    keys: Sequence[str] = ()
    roots: Sequence[bytes] = ()


class TimestampCheck(NamedTuple):
    """What an anchor proves. `problem` says what contradicts it, `unchecked` what could not be
    verified."""

    heads: list[ChainHead]
    at: str = ""
    is_trusted: bool = False
    problem: str = ""
    unchecked: str = ""


def is_signed(writer: str, seal: Seal) -> bool:
    """Whether the signature of a checkpoint is valid under its own key. Raises MissingExtra."""
    try:
        statement = statement_of(writer, seal.last, seal.at, seal.head)
    except UnicodeEncodeError:
        return False
    return verify_signature(seal.key, seal.signature, statement)


def key_name(key: str) -> str:
    """The fingerprint of a key, or its text if it is none."""
    try:
        return fingerprint(key)
    except InvalidKey:
        return repr(key[:60])


def check_timestamp(name: str, content: bytes, roots: Sequence[bytes]) -> TimestampCheck:
    """Check an anchor by itself."""
    try:
        anchor = anchor_of(content)
    except InvalidAnchor as error:
        return TimestampCheck([], problem=str(error))
    if anchor.filename != name or anchor.tsa is not None or encoded(anchor) != content:
        return TimestampCheck(anchor.heads, problem="it is not written as bundles write it")
    try:
        stamp = verify_anchor(anchor, roots)
    except InvalidAnchor as error:
        return TimestampCheck(anchor.heads, problem=str(error))
    except MissingExtra as error:
        return TimestampCheck(anchor.heads, unchecked=str(error))
    if anchor.at != stamp.at:
        problem = f"it states {anchor.at}, but its timestamp {stamp.at}"
        return TimestampCheck(anchor.heads, problem=problem)
    return TimestampCheck(anchor.heads, at=stamp.at, is_trusted=stamp.is_trusted)
