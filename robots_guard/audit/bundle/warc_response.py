"""A response in a WARC file (ISO 28500), read with the standard library only.

Invariant: the records are those that audit/write/warc.py writes: each a gzip member with a header,
a block of the stated length, and two line ends. Any other form is refused. No member is unpacked
beyond a limit.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

LARGEST = 8 * 1024 * 1024  # bytes of a record, unpacked
PIECE = 64 * 1024  # bytes
_GZIP = 31  # zlib's number for the format
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_IDENTITY = re.compile(rb"\r\nWARC-Record-ID: ([^\r\n]+)")
_UUID = re.compile(r"<urn:uuid:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})>")


class BadWarc(ValueError):
    """Raised for records that are not of the expected form."""


class WarcResponse(NamedTuple):
    """A response and what its record states about it."""

    identity: str
    url: str
    date: str
    status: int
    body: bytes


class _Member(NamedTuple):
    packed: bytes
    content: bytes


def uuid_of(identity: str) -> str | None:
    """The UUID in a WARC-Record-ID, or None if there is none."""
    found = _UUID.fullmatch(identity)
    return found and found[1]


def extract(path: Path, identities: Collection[str]) -> dict[str, bytes]:
    """The responses with these WARC-Record-IDs, each with its request, as they are in the file.
    Raises OSError, and BadWarc for a damaged file."""
    found: dict[str, bytes] = {}
    with path.open("rb") as file:
        members = _members(iter(lambda: file.read(PIECE), b""))
        for member in members:
            identity = _identity(member.content)
            if identity in identities:
                following = next(members, None)
                found[identity] = member.packed + (following.packed if following else b"")
                if len(found) == len(identities):
                    break
    return found


def read_response(data: bytes) -> WarcResponse:
    """Read a response record that is followed by its request record. Raises BadWarc."""
    members = list(_members(iter((data,))))
    if len(members) != 2:
        raise BadWarc("it is not a response and its request")
    response, request = (_record(member.content) for member in members)
    identity = response[0].get("warc-record-id", "")
    if response[0].get("warc-type") != "response" or request[0].get("warc-type") != "request":
        raise BadWarc("it is not a response and its request")
    if request[0].get("warc-concurrent-to") != identity:
        raise BadWarc("its request belongs to another response")
    head, _, body = response[1].partition(b"\r\n\r\n")
    found = _STATUS.fullmatch(head.partition(b"\r\n")[0])
    if found is None:
        raise BadWarc("it has no status line")
    fields = response[0]
    return WarcResponse(
        identity=identity,
        url=fields.get("warc-target-uri", ""),
        date=fields.get("warc-date", ""),
        status=int(found[1]),
        body=body,
    )


def _identity(content: bytes) -> str:
    found = _IDENTITY.search(content.partition(b"\r\n\r\n")[0])
    return found[1].decode("ascii", "replace") if found else ""


def _record(content: bytes) -> tuple[dict[str, str], bytes]:
    """The header fields of a record, by their names in lower case, and its block."""
    head, _, rest = content.partition(b"\r\n\r\n")
    version, *lines = head.decode("utf-8", "replace").split("\r\n")
    pairs = [line.partition(": ") for line in lines]
    fields = {name.lower(): value for name, _, value in pairs}
    if version != "WARC/1.1" or len(fields) != len(lines):
        raise BadWarc("it has another version, or a field twice")
    if not rest.endswith(b"\r\n\r\n") or fields.get("content-length") != str(len(rest) - 4):
        raise BadWarc("it has another length than it states")
    return fields, rest[:-4]


def _members(pieces: Iterator[bytes]) -> Iterator[_Member]:
    """The gzip members of a file. Raises BadWarc."""
    rest = b""
    while True:
        rest = rest or next(pieces, b"")
        if not rest:
            return
        unpacker, packed, content = zlib.decompressobj(_GZIP), bytearray(), bytearray()
        while not unpacker.eof:
            if not rest:
                raise BadWarc("it is cut off")
            try:
                content += unpacker.decompress(rest, LARGEST + 1 - len(content))
            except zlib.error as error:
                raise BadWarc(f"it is damaged: {error}") from error
            if len(content) > LARGEST:
                raise BadWarc("a record is too large")
            left = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            packed += rest[: len(rest) - len(left)]
            rest = left or (b"" if unpacker.eof else next(pieces, b""))
        yield _Member(bytes(packed), bytes(content))
