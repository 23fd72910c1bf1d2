"""Anchors: the heads of all chains of an audit log at one time, to be kept where the log's writers
cannot change them.

The heads statement has one line per writer, `WRITER LAST HEAD`, sorted by writer: the number of its
last line, and the chain's hash after that line in hexadecimal digits. A time-stamping authority (TSA,
RFC 3161) can confirm that the statement existed at a time. Its response is kept in a file
`anchor-YYYYMMDDTHHMMSSZ.json` in the audit log's directory. Nothing here uses the network.
"""

from __future__ import annotations

import base64
import hashlib
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from robots_guard.audit.segments import names_in, read_plain
from robots_guard.errors import MissingExtra, RobotsGuardError

_NAME = re.compile(r"anchor-\d{8}T\d{6}Z\.json")
_LINE = re.compile(r"(?P<writer>[A-Za-z0-9.-]+) (?P<last>\d{1,18}) (?P<head>[0-9a-f]{64})")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
ROOTS = "name a file with the root certificates of the authorities"
_GRANTED = 0  # PKIStatus, RFC 3161 section 2.4.2


class InvalidAnchor(RobotsGuardError):
    """Raised for a heads statement or a timestamp that proves nothing. The message says why."""


class ChainHead(msgspec.Struct, frozen=True, order=True):
    """The head of a writer's chain after the line with the number `last`."""

    writer: str
    last: int
    head: str


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """The heads of an audit log at a time. `token` is the response of the authority `tsa` (DER, in
    base64)."""

    format: Literal["robots_guard-anchor-1"] = "robots_guard-anchor-1"
    at: str
    heads: list[ChainHead]
    tsa: str | None = None
    token: str | None = None

    @property
    def day(self) -> str:
        """Its day in the notation of file names."""
        return self.at[:10].replace("-", "")

    @property
    def filename(self) -> str:
        """The name of the anchor's file."""
        return f"anchor-{re.sub(r'[-:]', '', self.at[:19])}Z.json"


class Timestamp(NamedTuple):
    """What an authority confirms: that the heads existed at `at`.

    `is_trusted` says that its signature leads to one of the given root certificates. Otherwise
    anyone may have made it.
    """

    at: str
    is_trusted: bool


def heads_statement(heads: Iterable[ChainHead]) -> bytes:
    """The heads as text: what is printed, and what a timestamp covers."""
    return "".join(f"{each.writer} {each.last} {each.head}\n" for each in sorted(heads)).encode()


def is_well_formed(head: ChainHead) -> bool:
    """Whether a heads statement can state this head: writers give themselves such names only."""
    return _LINE.fullmatch(f"{head.writer} {head.last} {head.head}") is not None


def heads_of(content: bytes) -> list[ChainHead]:
    """The heads in a heads statement or an anchor's file; a mark at its beginning, blank lines and
    those that begin with `#` are skipped. Raises InvalidAnchor."""
    content = content.removeprefix(BOM_UTF8)
    if content.lstrip().startswith(b"{"):
        return anchor_of(content).heads
    heads = []
    for number, line in enumerate(content.decode("ascii", "replace").splitlines(), 1):
        found = _LINE.fullmatch(line.strip())
        if found:
            heads.append(ChainHead(found["writer"], int(found["last"]), found["head"]))
        elif line.strip() and not line.startswith("#"):
            raise InvalidAnchor(f"line {number} is not WRITER LAST HEAD")
    if not heads:
        raise InvalidAnchor("it has no heads")
    return heads


def anchor_of(content: bytes) -> Anchor:
    """The anchor in the content of its file. Raises InvalidAnchor."""
    try:
        anchor = msgspec.json.decode(content, type=Anchor)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidAnchor(f"it is not an anchor: {error}") from error
    if not all(map(is_well_formed, anchor.heads)):
        raise InvalidAnchor("it is not an anchor: one of its heads is malformed")
    return anchor


def is_anchor(filename: str) -> bool:
    """Whether this is the name of an anchor's file."""
    return _NAME.fullmatch(filename) is not None


def read_anchors(directory: Path, problems: dict[str, str] | None = None) -> list[Anchor]:
    """The anchors in an audit log's directory, the oldest first. Why a file cannot be used is added
    to `problems` by its name. Raises SettingsError if the directory cannot be read."""
    found = []
    for name in sorted(filter(is_anchor, names_in(directory))):
        try:
            found.append(anchor_of(read_plain(directory / name)))
        except (OSError, InvalidAnchor) as error:
            if problems is not None:
                problems[name] = getattr(error, "strerror", None) or str(error)
    return found


class TimestampRequest(NamedTuple):
    """A request to an authority (application/timestamp-query), with its nonce and the statement that
    it is about."""

    body: bytes
    nonce: int | None
    statement: bytes


def timestamp_request(heads: Iterable[ChainHead]) -> TimestampRequest:
    """A request for a timestamp of the heads. Raises MissingExtra."""
    client, statement = _client(), heads_statement(heads)
    builder = client.TimestampRequestBuilder().data(statement)
    request = builder.hash_algorithm(client.HashAlgorithm.SHA256).build()
    return TimestampRequest(request.as_bytes(), request.nonce, statement)


def token_of(response: bytes, request: TimestampRequest) -> str:
    """The response of an authority as an anchor keeps it. Raises InvalidAnchor if the response is a
    refusal, or to another request."""
    decoded = _decoded(response, request.statement)
    if decoded.tst_info.nonce != request.nonce:
        raise InvalidAnchor("it answers another request (its nonce differs)")
    return base64.b64encode(response).decode("ascii")


def verify_anchor(anchor: Anchor, roots: Sequence[bytes] = ()) -> Timestamp:
    """The timestamp of an anchor, verified with root certificates (DER or PEM) if there are any.

    Raises InvalidAnchor if there is no timestamp, if it covers other heads, or if it does not lead
    to a root; and MissingExtra.
    """
    if anchor.token is None:
        raise InvalidAnchor("it has no timestamp")
    try:
        response = base64.b64decode(anchor.token, validate=True)
    except ValueError as error:
        raise InvalidAnchor("its timestamp is not base64") from error
    statement = heads_statement(anchor.heads)
    decoded = _decoded(response, statement)
    if roots:
        _verify(decoded, statement, roots)
    at = decoded.tst_info.gen_time.astimezone(UTC)
    return Timestamp(
        at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), is_trusted=bool(roots)
    )


def certificates_in(content: bytes) -> list[bytes]:
    """The certificates in a PEM file's content. Raises InvalidAnchor if there is none, or one that is
    malformed; and MissingExtra."""
    found = _CERTIFICATE.findall(content)
    if not found:
        raise InvalidAnchor("it has no certificate in PEM")
    for each in found:
        _certificate(each)
    return found


def _decoded(response: bytes, statement: bytes) -> Any:
    """A response that grants a timestamp of the statement. Raises InvalidAnchor."""
    try:
        decoded = _client().decode_timestamp_response(response)
        status = decoded.status
        info = decoded.tst_info if status == _GRANTED else None
        imprint = info.message_imprint.message if info else b""
    except ValueError as error:
        raise InvalidAnchor(f"the authority's response is malformed: {str(error)[:200]}") from error
    if info is None:
        why = "; ".join(decoded.status_string) or f"status {status}"
        raise InvalidAnchor(f"the authority refused it ({why[:200]})")
    if imprint != hashlib.sha256(statement).digest():
        raise InvalidAnchor("its timestamp covers other heads")
    return decoded


def _verify(decoded: Any, statement: bytes, roots: Sequence[bytes]) -> None:
    """Verify a response's signature and certificates. Raises InvalidAnchor."""
    client = _client()
    builder = client.VerifierBuilder(roots=[_certificate(root) for root in roots])
    try:
        builder.build().verify_message(decoded, statement)
    except (client.VerificationError, ValueError) as error:
        raise InvalidAnchor(
            f"its timestamp is not verified by the given certificates ({str(error)[:200]})"
        ) from error


def _certificate(data: bytes) -> Any:
    """A certificate from DER or PEM. Raises InvalidAnchor."""
    _client()
    from cryptography import x509

    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            return x509.load_pem_x509_certificate(data)
        return x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise InvalidAnchor("one of the certificates is malformed") from error


def _client() -> Any:
    try:
        import rfc3161_client
    except ImportError as error:
        raise MissingExtra("audit", "timestamps of the audit log") from error
    return rfc3161_client
