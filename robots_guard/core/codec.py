"""Policies as bytes: a version, a checksum, then MessagePack. Data, never code.

A document's body is packed by itself, so that a store keeps it once, under its SHA-256, however many origins
serve it. What a store returns may be anybody's bytes. Whatever does not decode to a policy of the origin asked
for (another version, damage, another origin's policy, a bomb, a body of another digest) is None: a miss.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from robots_guard.core.access import MAX_BODY
from robots_guard.core.policy import Document, Policy, Trouble
from robots_guard.origin import Origin

_VERSION = b"RG2\n"
_CHECKSUM = 16  # octets of BLAKE2b: what zlib's Adler-32 lets through, this does not
_MAX_PLAIN = MAX_BODY + 64 * 1024
MAX_VALUE = 600 * 1024  # octets of anything a store hands us, looked at before it is parsed


class _Kept(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A policy as it is kept: what stands in almost every one is left out, names altogether."""

    origin: Origin
    trouble: Trouble | None
    status: int = 0  # 0: there is no document
    sha256: bytes = b""
    fetched_at: float = 0.0
    via: str = ""
    tls_verified: bool = False
    stated_lifetime: float | None = None
    url: str = ""  # empty: the origin's own /robots.txt
    content_type: str = ""
    etag: str = ""
    last_modified: str = ""
    truncated: bool = False
    redirects: tuple[str, ...] = ()


EMPTY = hashlib.sha256(b"").hexdigest()  # the body of whatever is no 2xx

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Kept)


def encode(policy: Policy) -> bytes:
    """The policy's bytes, without the body of its document."""
    plain = _encoder.encode(_kept(policy))
    return _VERSION + _checksum(plain) + plain


def decode(value: bytes, origin: Origin) -> Policy | None:
    """The policy that the bytes hold for the origin, or None. Its body is yet to be `filled` in."""
    if len(value) > MAX_VALUE:
        return None
    try:
        policy = _opened(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return policy if policy and policy.origin == origin and (policy.document or policy.trouble) else None


def pack(body: bytes) -> bytes:
    """A body's bytes."""
    return zlib.compress(body, 6)


def unpack(packed: bytes, sha256: str) -> bytes | None:
    """The body of that digest, or None if the bytes are not its."""
    if len(packed) > MAX_VALUE:
        return None
    try:
        body = _inflated(packed)
    except zlib.error:
        return None
    return body if body is not None and hashlib.sha256(body).hexdigest() == sha256 else None


def filled(policy: Policy, packed: bytes | None) -> Policy | None:
    """A decoded policy with its document's body put in, or None if the bytes are not that body's."""
    document = policy.document
    if document is None or document.sha256 == EMPTY:
        return policy
    body = None if packed is None else unpack(packed, document.sha256)
    if body is None:
        return None
    return msgspec.structs.replace(policy, document=msgspec.structs.replace(document, body=body))


def _opened(value: bytes) -> Policy | None:
    start = len(_VERSION) + _CHECKSUM
    plain = value[start:]
    if value[:start] != _VERSION + _checksum(plain):
        return None
    return _policy(_decoder.decode(plain))


def _inflated(packed: bytes) -> bytes | None:
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(packed, _MAX_PLAIN)
    return plain if unpacker.eof and not unpacker.unused_data else None


def _checksum(plain: bytes) -> bytes:
    return hashlib.blake2b(plain, digest_size=_CHECKSUM).digest()


def _kept(policy: Policy) -> _Kept:
    document = policy.document
    if document is None:
        return _Kept(policy.origin, policy.trouble)
    return _Kept(
        policy.origin,
        policy.trouble,
        status=document.status,
        sha256=bytes.fromhex(document.sha256),
        fetched_at=document.fetched_at,
        via=document.via,
        tls_verified=document.tls_verified,
        stated_lifetime=document.stated_lifetime,
        url="" if document.url == policy.origin.robots_url else document.url,
        content_type=document.content_type,
        etag=document.etag,
        last_modified=document.last_modified,
        truncated=document.truncated,
        redirects=document.redirects,
    )


def _policy(kept: _Kept) -> Policy:
    if not kept.status:
        return Policy(origin=kept.origin, trouble=kept.trouble)
    document = Document(
        status=kept.status,
        url=kept.url or kept.origin.robots_url,
        sha256=kept.sha256.hex(),
        fetched_at=kept.fetched_at,
        via=kept.via,
        tls_verified=kept.tls_verified,
        stated_lifetime=kept.stated_lifetime,
        content_type=kept.content_type,
        etag=kept.etag,
        last_modified=kept.last_modified,
        truncated=kept.truncated,
        redirects=kept.redirects,
    )
    return Policy(origin=kept.origin, document=document, trouble=kept.trouble)
