"""Policies carried from one store to another: JSON Lines, each line a version and a policy.

What is read may be anybody's: a line that is too long, of another version, no policy, or a policy that cannot be
(core/vetting.py) is answered by what is wrong with it, and the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from robots_guard.core.policy import Policy
from robots_guard.core.vetting import objection

VERSION = 1
MAX_LINE = 1024 * 1024  # octets; 512,000 of a body are 683,000 in base64


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    policy: Policy


class _Version(msgspec.Struct, frozen=True):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)
_versions = msgspec.json.Decoder(_Version)


def written(policy: Policy) -> bytes:
    """A policy as a line."""
    return _encoder.encode(_Line(VERSION, policy)) + b"\n"


def read_policy(file: BinaryIO, now: Callable[[], float]) -> Iterator[Policy | str]:
    """Each line's policy, or what is wrong with it."""
    while line := file.readline(MAX_LINE):
        if not line.endswith(b"\n") and len(line) == MAX_LINE:
            _skip(file)
            yield f"it is longer than {MAX_LINE} octets"
        else:
            yield _read(line, now())


def _skip(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
        pass


def _read(line: bytes, now: float) -> Policy | str:
    try:
        version = _versions.decode(line).version
        if version != VERSION:
            return f"it is of version {version}, and this robots_guard reads version {VERSION}"
        policy = _decoder.decode(line).policy
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"it is no policy: {error}"
    return objection(policy, now) or policy
