"""The export format of policies: JSON Lines, each line a version and a policy.

The input is untrusted. A line that is too long, has another version, is not a policy or is an impossible one
(decisions/policy.py) yields an error message, and reading continues with the next line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from robots_guard.decisions.policy import Policy, objection

VERSION = 1
#: bytes; in base64 a body of 512,000 bytes is 683,000, and reservations of 256 KiB are 350,000
MAX_LINE = 2 * 1024 * 1024


class _PolicyLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    policy: Policy


class _Version(msgspec.Struct, frozen=True):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_PolicyLine)
_versions = msgspec.json.Decoder(_Version)


def encode_policy(policy: Policy) -> bytes:
    """Return a policy as a line."""
    return _encoder.encode(_PolicyLine(VERSION, policy)) + b"\n"


def read_policy(file: BinaryIO, now: Callable[[], float]) -> Iterator[Policy | str]:
    """Yield each line's policy, or what is wrong with the line."""
    while line := file.readline(MAX_LINE):
        if not line.endswith(b"\n") and len(line) == MAX_LINE:
            _skip_line(file)
            yield f"it is longer than {MAX_LINE} bytes"
        else:
            yield _read(line, now())


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
        pass


def _read(line: bytes, now: float) -> Policy | str:
    try:
        version = _versions.decode(line).version
        if version != VERSION:
            return f"it has version {version}, and this robots_guard reads version {VERSION}"
        policy = _decoder.decode(line).policy
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not a policy: {error}"
    return objection(policy, now) or policy
