"""The contents of a bundle: which files it has, and what is in them.

    records.jsonl           lines of the audit log, as they stand there, by writer and number
    chain/WRITER.json       where these lines stand in the chain of their writer
    anchors/NAME.json       timestamps of chains, as they stand beside the audit log
    documents/SHA256.txt    files that were fetched, such as robots.txt
    warc/UUID.warc.gz       their responses and requests, as they stand in a WARC file
    settings.json           the settings of each writer                  (derived)
    overrides/SHA256.toml   the overrides that were in force             (derived)
    completeness.json       what was selected, and which numbers of each writer are accounted for
    index.html              all of it for people                         (derived)
    MANIFEST.sha256         the digests of the other files               (derived)
    signature.json          the maker's signature: nothing that was selected is left out

Invariant: a file that is derived follows from the others, so that a reader can make it again and
compare it. Each JSON file has one spelling.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from robots_guard.audit.bundle.archive import MANIFEST, SIGNATURE, NoBundle
from robots_guard.audit.read.reader import Filter, read_line
from robots_guard.audit.record import AnyRecord

FORMAT = "robots_guard-bundle-1"
RECORDS = "records.jsonl"
SETTINGS = "settings.json"
COMPLETENESS = "completeness.json"
PAGE = "index.html"
CHAIN = "chain/"
ANCHORS = "anchors/"
DOCUMENTS = "documents/"
OVERRIDES = "overrides/"
WARC = "warc/"

END_OF_TIME = "9999"  # after any time in a record
WRITER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ANCHOR = re.compile(r"anchors/anchor-\d{8}T\d{6}Z(-\d+)?\.json")
_DOCUMENT = re.compile(r"documents/[0-9a-f]{64}\.txt")
_OVERRIDES = re.compile(r"overrides/[0-9a-f]{64}\.toml")
_WARC = re.compile(r"warc/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.warc\.gz")
_PRINTABLE = re.compile(rb"[ -~]*\n")
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
T = TypeVar("T")


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed checkpoint: the head of a chain after the number `last`, and who signed it when."""

    last: int
    at: str
    head: str
    key: str
    signature: str


class BundleSignature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signature of a bundle's manifest, by its maker."""

    key: str
    signature: str


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a chain without a gap: the head before it, the digests of its lines, and the head
    after it. A line that is not disclosed is a digest only."""

    previous: Digest
    links: Annotated[list[Digest], Meta(min_length=1)]
    head: Digest
    seal: Seal | None = None


class Chain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of a writer's chain that a bundle has, in order."""

    writer: str
    spans: list[Span]


class BundleSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked for: decisions by their ids, or all that a filter selects."""

    ids: list[str] = []
    where: dict[str, str] = {}

    @property
    def wanted(self) -> Filter:
        """The filter. Raises NoBundle."""
        unknown = self.where.keys() - set(Filter.__struct_fields__)
        if unknown or bool(self.ids) == bool(self.where):
            raise NoBundle("its selection cannot be read")
        try:
            return msgspec.convert({"kind": None} | self.where, Filter)
        except msgspec.ValidationError as error:
            raise NoBundle(f"its selection cannot be read: {error}") from error

    @property
    def has_period(self) -> bool:
        """Whether all lines of a period are to be accounted for."""
        return "since" in self.where

    @property
    def period(self) -> tuple[str, str]:
        """The beginning and the end of the period."""
        return self.where.get("since", ""), self.where.get("until", END_OF_TIME)


class NumberRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consecutive lines of a writer: disclosed, or accounted for by their digests."""

    writer: str
    first: int
    last: int
    lines: int
    disclosed: int
    missing: int  # numbers without a line: not written, as on a full disk, or removed
    since: str  # the time of its first line
    until: str  # the time of its last line, or of the checkpoint after it
    signed_until: str  # the time of its last signed checkpoint; empty if it has none
    begins: str
    ends: str


class Completeness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle accounts for, and what it does not say."""

    format: str = FORMAT
    selection: BundleSelection
    period: str
    uncovered: list[str]  # the parts of the period that no run of lines covers
    runs: list[NumberRun]
    without_chain: dict[str, int]  # disclosed lines, by writer
    missing: list[str]
    does_not_say: list[str]


class DisclosedLine(NamedTuple):
    """A disclosed line, with its newline, and its record."""

    raw: bytes
    entry: AnyRecord

    @property
    def digest(self) -> str:
        """The digest of the line in its chain."""
        return hashlib.sha256(self.raw).hexdigest()


class Parts(NamedTuple):
    """The files of a bundle from which the others are derived."""

    lines: list[DisclosedLine]
    selection: BundleSelection
    chains: dict[str, Chain]
    anchors: dict[str, bytes]
    documents: dict[str, bytes]  # by their SHA-256
    warc: dict[str, bytes]  # by the UUID of the response


def files_of(parts: Parts) -> dict[str, bytes]:
    """The files of a bundle that are not derived."""
    files = {RECORDS: b"".join(line.raw for line in parts.lines)}
    files |= {f"{CHAIN}{name}.json": encoded(chain) for name, chain in parts.chains.items()}
    files |= {ANCHORS + name: content for name, content in parts.anchors.items()}
    files |= {f"{DOCUMENTS}{name}.txt": content for name, content in parts.documents.items()}
    files |= {f"{WARC}{name}.warc.gz": content for name, content in parts.warc.items()}
    return files


def parts_of(files: dict[str, bytes]) -> Parts:
    """The parts of a bundle. Raises NoBundle."""
    if RECORDS not in files or COMPLETENESS not in files:
        raise NoBundle(f"it has no {RECORDS} and {COMPLETENESS}")
    _check_names(files)
    stated = decoded(files[COMPLETENESS], Completeness, COMPLETENESS)
    if stated.format != FORMAT:
        raise NoBundle(f"its format is {stated.format[:40]!r}, and not {FORMAT}")
    chains = [decoded(files[name], Chain, name) for name in _under(files, CHAIN)]
    for name, chain in zip(_under(files, CHAIN), chains, strict=True):
        _check_chain(name, chain)
    return Parts(
        lines=_lines(files[RECORDS]),
        selection=stated.selection,
        chains={chain.writer: chain for chain in chains},
        anchors={name.removeprefix(ANCHORS): files[name] for name in _under(files, ANCHORS)},
        documents={name[len(DOCUMENTS) : -4]: files[name] for name in _under(files, DOCUMENTS)},
        warc={name[len(WARC) : -8]: files[name] for name in _under(files, WARC)},
    )


def encoded(value: Any) -> bytes:
    """A value as JSON, in the spelling of a bundle: printable ASCII, sorted and indented."""
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=1) + b"\n"


def decoded(data: bytes, kind: type[T], name: str) -> T:
    """The value in a JSON file. Raises NoBundle, also for another spelling."""
    try:
        value = msgspec.json.decode(data, type=kind)
        if encoded(value) == data:
            return value
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NoBundle(f"{name}: {str(error)[:100]}") from error
    raise NoBundle(f"{name} is not written as bundles write it")


def _under(files: dict[str, bytes], folder: str) -> list[str]:
    return sorted(name for name in files if name.startswith(folder))


def _check_names(files: dict[str, bytes]) -> None:
    known = {RECORDS, SETTINGS, COMPLETENESS, PAGE, MANIFEST, SIGNATURE}
    for name in files.keys() - known:
        is_chain = name.startswith(CHAIN) and name.endswith(".json")
        patterns = (_ANCHOR, _DOCUMENT, _OVERRIDES, _WARC)
        if not is_chain and not any(pattern.fullmatch(name) for pattern in patterns):
            raise NoBundle(f"a bundle has no file {name[:60]!r}")


def _check_chain(name: str, chain: Chain) -> None:
    if name != f"{CHAIN}{chain.writer}.json" or not WRITER_NAME.fullmatch(chain.writer):
        raise NoBundle(f"{name} names another writer")


def _lines(data: bytes) -> list[DisclosedLine]:
    if data and not data.endswith(b"\n"):
        raise NoBundle(f"{RECORDS} is cut off")
    found = []
    for raw in io.BytesIO(data):
        entry = read_line(raw.removesuffix(b"\n"))
        if entry is None:
            raise NoBundle(f"{RECORDS} has a line that is no record of this version")
        if not _says_no_more(raw, entry):
            raise NoBundle(
                f"{RECORDS} has a line that says more than the record that is read from it"
            )
        found.append(DisclosedLine(raw, entry))
    return found


def _says_no_more(raw: bytes, entry: AnyRecord) -> bool:
    """Whether a line, read by anyone, has the values of its record and no others.

    A member that is there twice has another value for some readers, and one that is not known is
    shown by none of the other files.
    """
    if not _PRINTABLE.fullmatch(raw):
        return False
    try:
        return bool(_members(raw) == _members(entry.line_of_json()))
    except (ValueError, RecursionError):
        return False


def _members(line: bytes) -> Any:
    """The values of a line. Raises ValueError if a member is there twice."""
    return json.loads(line, object_pairs_hook=_each_once)


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(members)
    if len(values) != len(members):
        raise ValueError("a member is there twice")
    return values
