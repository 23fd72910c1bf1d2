"""Policies as bytes: a version, then compressed MessagePack. Data, never code.

What a store returns may be anybody's bytes. Whatever does not decode to a policy of the origin asked for
(another version, damage, another origin's policy, a bomb) is None: a miss.
"""

from __future__ import annotations

import zlib

import msgspec

from robots_guard.core.access import MAX_BODY
from robots_guard.core.policy import Policy
from robots_guard.origin import Origin

_VERSION = b"RG1\n"
_MAX_PLAIN = MAX_BODY + 64 * 1024
MAX_VALUE = 600 * 1024

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Policy)


def encode(policy: Policy) -> bytes:
    """The policy's bytes."""
    return _VERSION + zlib.compress(_encoder.encode(policy), 6)


def decode(value: bytes, origin: Origin) -> Policy | None:
    """The policy that the bytes hold for the origin, or None."""
    if not value.startswith(_VERSION) or len(value) > MAX_VALUE:
        return None
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(value[len(_VERSION) :], _MAX_PLAIN)
        if not unpacker.eof:
            return None
        policy = _decoder.decode(plain)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return policy if policy.origin == origin and (policy.document or policy.trouble) else None
