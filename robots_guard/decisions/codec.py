"""The encoding of policies for stores: a version, a checksum, then MessagePack.

Decoding never executes code (no pickle).
A document's body is packed separately, so that a store keeps it once, under its SHA-256, however
many origins serve it. Reservations are short and differ between origins, so their body is packed
inside the policy. The bytes that a store returns are untrusted. Bytes that do not decode to a
policy of the requested origin (another version, damage, another origin's policy, a decompression
bomb, a body with another digest) yield None, like a cache miss.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from robots_guard.decisions.access import MAX_BODY, MAX_RESERVATIONS
from robots_guard.decisions.policy import Document, FetchTrouble, Policy, Reservations
from robots_guard.origin import Origin

_VERSION = b"RG3\n"
_CHECKSUM = 16  # bytes of BLAKE2b, which detects damage that zlib's Adler-32 misses
_MAX_PLAIN = MAX_BODY + 64 * 1024
MAX_VALUE = 600 * 1024  # bytes of any value from a store, checked before it is parsed


class _StoredReservations(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The stored form of reservations."""

    attempted_at: float
    failure: str
    failed_for: str | None
    status: int | None
    fetched_at: float
    body: bytes  # packed; empty if the body is
    etag: str
    last_modified: str


class _StoredPolicy(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The stored form of a policy. Default values and all field names are omitted."""

    origin: Origin
    trouble: FetchTrouble | None
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
    reservations: _StoredReservations | None = None


EMPTY = hashlib.sha256(b"").hexdigest()  # the body of every document whose status is not 2xx

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_StoredPolicy)


def encode(policy: Policy) -> bytes:
    """Encode a policy without the body of its document."""
    plain = _encoder.encode(_to_stored(policy))
    return _VERSION + _checksum(plain) + plain


def decode(value: bytes, origin: Origin) -> Policy | None:
    """Decode the policy of an origin, without the body of its document, which `with_body` adds.

    Returns None if the value is too long or damaged, or is not a policy of this origin.
    """
    if len(value) > MAX_VALUE:
        return None
    try:
        policy = _decode_checked(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, zlib.error):
        return None
    if policy is None or policy.origin != origin:
        return None
    if policy.document or policy.trouble:
        return policy
    return None


def pack(body: bytes) -> bytes:
    """Compress a body."""
    return zlib.compress(body, 6)


def unpack(packed: bytes, sha256: str) -> bytes | None:
    """Decompress a body, or return None if its digest is not the expected one."""
    if len(packed) > MAX_VALUE:
        return None
    try:
        body = _inflate(packed, _MAX_PLAIN)
    except zlib.error:
        return None
    if body is not None and hashlib.sha256(body).hexdigest() == sha256:
        return body
    return None


def body_digest(policy: Policy) -> str:
    """Return the SHA-256 of a policy's body, in hex; `EMPTY` if the policy has no document."""
    if policy.document:
        return policy.document.sha256
    return EMPTY


def with_body(policy: Policy, packed: bytes | None) -> Policy | None:
    """Add the document's body to a decoded policy. Returns None if the bytes are not that body."""
    document = policy.document
    if document is None or document.sha256 == EMPTY:
        return policy
    body = None if packed is None else unpack(packed, document.sha256)
    if body is None:
        return None
    return msgspec.structs.replace(policy, document=msgspec.structs.replace(document, body=body))


def _decode_checked(value: bytes) -> Policy | None:
    start = len(_VERSION) + _CHECKSUM
    plain = value[start:]
    if value[:start] != _VERSION + _checksum(plain):
        return None
    return _from_stored(_decoder.decode(plain))


def _inflate(packed: bytes, most: int) -> bytes | None:
    """Return the plain bytes, or None unless they are a whole stream of at most `most` bytes.
    Raises zlib.error."""
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(packed, most + 1)
    if len(plain) > most:
        return None
    if unpacker.eof and not unpacker.unused_data:
        return plain
    return None


def _checksum(plain: bytes) -> bytes:
    return hashlib.blake2b(plain, digest_size=_CHECKSUM).digest()


def _to_stored(policy: Policy) -> _StoredPolicy:
    document = policy.document
    reservations = _to_stored_reservations(policy.reservations)
    if document is None:
        return _StoredPolicy(policy.origin, policy.trouble, reservations=reservations)
    return _StoredPolicy(
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
        reservations=reservations,
    )


def _to_stored_reservations(reservations: Reservations | None) -> _StoredReservations | None:
    if reservations is None:
        return None
    return _StoredReservations(
        reservations.attempted_at,
        reservations.failure,
        reservations.failed_for,
        reservations.status,
        reservations.fetched_at,
        pack(reservations.body) if reservations.body else b"",
        reservations.etag,
        reservations.last_modified,
    )


def _from_stored(stored: _StoredPolicy) -> Policy | None:
    reservations = None
    if stored.reservations is not None:
        reservations = _from_stored_reservations(stored.reservations)
        if reservations is None:
            return None
    if not stored.status:
        return Policy(origin=stored.origin, trouble=stored.trouble, reservations=reservations)
    document = Document(
        status=stored.status,
        url=stored.url or stored.origin.robots_url,
        sha256=stored.sha256.hex(),
        fetched_at=stored.fetched_at,
        via=stored.via,
        tls_verified=stored.tls_verified,
        stated_lifetime=stored.stated_lifetime,
        content_type=stored.content_type,
        etag=stored.etag,
        last_modified=stored.last_modified,
        truncated=stored.truncated,
        redirects=stored.redirects,
    )
    return Policy(
        origin=stored.origin,
        document=document,
        trouble=stored.trouble,
        reservations=reservations,
    )


def _from_stored_reservations(stored: _StoredReservations) -> Reservations | None:
    """Return reservations, or None if their body cannot be unpacked. Raises zlib.error."""
    body: bytes | None = b""
    if stored.body:
        body = _inflate(stored.body, MAX_RESERVATIONS)
    if body is None:
        return None
    return Reservations(
        attempted_at=stored.attempted_at,
        failure=stored.failure,
        failed_for=stored.failed_for,
        status=stored.status,
        fetched_at=stored.fetched_at,
        body=body,
        etag=stored.etag,
        last_modified=stored.last_modified,
    )
