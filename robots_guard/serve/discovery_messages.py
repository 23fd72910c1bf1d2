"""The messages of Envoy's delta discovery protocol that secrets need, in the protobuf encoding.

There are two messages, of few fields, and their numbers are fixed (envoy.service.discovery.v3
DeltaDiscoveryRequest and DeltaDiscoveryResponse, envoy.extensions.transport_sockets.tls.v3 Secret):
a generated copy of Envoy's protos would be a hundred modules.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

SECRET_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  no secret
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}
_MAX_SHIFT = 63  # bits; a varint has at most ten bytes


class DeltaRequest(NamedTuple):
    """A request of Envoy: what it wants to hear about from now on, and what it has."""

    type_url: str = ""
    subscribed: tuple[str, ...] = ()
    unsubscribed: tuple[str, ...] = ()
    #: The versions of what Envoy has kept of an earlier connection.
    versions: tuple[tuple[str, str], ...] = ()
    nonce: str = ""
    error: str | None = None  # why it has rejected the response with this nonce


class SecretResource(NamedTuple):
    """A certificate with its key, which Envoy forgets after `ttl` seconds."""

    name: str
    version: str
    chain: bytes
    key: bytes
    ttl: int


def decode_request(data: bytes) -> DeltaRequest:
    """Parse a DeltaDiscoveryRequest. Raises ValueError."""
    fields: dict[int, list[bytes]] = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return DeltaRequest(
        type_url=_last(fields.get(2)),
        subscribed=_texts(fields.get(3)),
        unsubscribed=_texts(fields.get(4)),
        versions=tuple(map(_entry, fields.get(5, ()))),
        nonce=_last(fields.get(6)),
        error=_status_message(fields[7][-1]) if 7 in fields else None,
    )


def encode_response(secrets: Iterable[SecretResource], removed: Iterable[str], nonce: str) -> bytes:
    """Write a DeltaDiscoveryResponse. `removed` are names that have no secret."""
    resources = b"".join(_field(2, _resource(secret)) for secret in secrets)
    names = b"".join(_field(6, name.encode()) for name in removed)
    return resources + _field(4, SECRET_TYPE.encode()) + _field(5, nonce.encode()) + names


def _resource(secret: SecretResource) -> bytes:
    certificate = _field(1, _inline(secret.chain)) + _field(2, _inline(secret.key))
    message = _field(1, secret.name.encode()) + _field(2, certificate)
    any_of_it = _field(1, SECRET_TYPE.encode()) + _field(2, message)
    duration = _tag(1, _VARINT) + _varint(secret.ttl)
    return (
        _field(1, secret.version.encode())
        + _field(2, any_of_it)
        + _field(3, secret.name.encode())
        + _field(6, duration)
    )


def _inline(data: bytes) -> bytes:
    """A DataSource with inline_bytes."""
    return _field(2, data)


def _entry(data: bytes) -> tuple[str, str]:
    """An entry of a map from strings to strings."""
    fields = dict(_fields(data))
    return _text(fields.get(1, b"")), _text(fields.get(2, b""))


def _status_message(data: bytes) -> str:
    """The message of a google.rpc.Status."""
    return dict(_fields(data)).get(2, b"").decode(errors="replace")


def _last(values: list[bytes] | None) -> str:
    return _text(values[-1]) if values else ""


def _texts(values: list[bytes] | None) -> tuple[str, ...]:
    return tuple(map(_text, values or ()))


def _text(value: bytes) -> str:
    return value.decode()


def _field(number: int, value: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(value)) + value


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have bytes as their value; others are skipped. Raises ValueError."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _read_varint(data, at)
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif kind in _FIXED_SIZE:
            size = _FIXED_SIZE[kind]
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        end = at + size
        if end > len(data):
            raise ValueError("a message that is cut short")
        if kind == _BYTES:
            yield tag >> 3, data[at:end]
        at = end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises ValueError."""
    number = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        if at >= len(data):
            raise ValueError("a message that is cut short")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number of more than ten bytes")
