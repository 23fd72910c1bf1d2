"""Bundles: what is in them, what they prove, and that no forgery of one field verifies."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import stat
import struct
import subprocess
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from audit.evidence_log import (
    BODY,
    IDS,
    OVERRIDES,
    EvidenceLog,
    line_of,
    rechained,
    write_evidence_log,
    write_log_of_every_kind,
)
from audit.forgeries import (
    NO_TRUST,
    archive_of,
    forged_line,
    is_archive_refused,
    is_refused,
    line_if_other,
    other_value,
    with_manifest,
    with_other_value,
)
from support.timestamps import authority

from robots_guard.audit.anchors import Anchor, ChainHead, timestamp_request, token_of, verify_anchor
from robots_guard.audit.bundle.archive import (
    LARGEST_CONTENT,
    MANIFEST,
    NoBundle,
    read_archive,
)
from robots_guard.audit.bundle.contents import (
    ANCHORS,
    CHAIN,
    COMPLETENESS,
    RECORDS,
    BundleSelection,
    Chain,
    Completeness,
    NumberRun,
    Parts,
    Seal,
    Span,
    encoded,
    parts_of,
)
from robots_guard.audit.bundle.derivation import completeness_of
from robots_guard.audit.bundle.trust import BundleTrust
from robots_guard.audit.bundle.verification import ClaimState, verify_bundle
from robots_guard.audit.bundle.writer import MOST_RECORDS, all_files, selection_of
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.record import (
    AnyRecord,
    EvidenceItem,
    OverridesRecord,
    Record,
    SignalsRecord,
    moment,
)
from robots_guard.audit.signing import new_signer
from robots_guard.audit.write.maintenance import compress
from robots_guard.errors import SettingsError


class Sample(NamedTuple):
    """A log and a bundle of its decisions."""

    log: EvidenceLog
    data: bytes
    files: dict[str, bytes]
    parts: Parts


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    with authority(folder / "tsa") as tsa:
        log = write_evidence_log(folder / "log", tsa)
    data = log.bundle(*IDS)
    files = read_archive(data)
    return Sample(log, data, files, parts_of(files))


def sentences(
    data: bytes, trust: BundleTrust = NO_TRUST, state: ClaimState = ClaimState.CONTRADICTED
):
    """The sentences of one state."""
    return [each.sentence for each in verify_bundle(data, trust).claims if each.state is state]


def test_a_signed_and_timestamped_bundle_is_proven(sample):
    result = verify_bundle(sample.data, sample.log.trust)
    proven = "\n".join(each.sentence for each in result.claims if each.state is ClaimState.PROVEN)

    assert sentences(sample.data, sample.log.trust) == []
    assert sentences(sample.data, sample.log.trust, ClaimState.NOT_PROVEN) == []
    assert "records of" in proven
    assert "was signed at" in proven
    assert "as an authority of the given certificates confirms" in proven
    assert "override shop-2026 of jane@crawler.example was in force" in proven
    assert "the verdict, judged again, is the recorded one (4 times)" in proven
    assert "what https://b.test/robots/new.txt answered at" in proven
    assert len(result.replayed) == len(IDS)
    assert [replayed.differences for _, replayed in result.replayed] == [[]] * len(IDS)


def test_it_discloses_the_selected_lines_and_no_others(sample):
    disclosed = {line.raw for line in sample.parts.lines}
    (log_file,) = sample.log.directory.glob("*.jsonl")
    lines = log_file.read_bytes().splitlines(keepends=True)
    (chain,) = sample.parts.chains.values()

    assert disclosed <= set(lines)
    assert b"q=" not in b"".join(disclosed)  # of the pages that were not selected
    assert sum(len(span.links) for span in chain.spans) > len(disclosed)
    (run,) = completeness_of(sample.parts).runs
    assert (run.first, run.missing, run.begins) == (1, 0, "the writer's first line")
    assert run.ends == "a signed checkpoint, and 1 more"  # which the timestamp covers
    assert sample.files[f"documents/{hashlib.sha256(BODY).hexdigest()}.txt"] == BODY
    assert [name for name in sample.files if name.startswith("overrides/")] == [
        f"overrides/{hashlib.sha256(OVERRIDES.encode()).hexdigest()}.toml"
    ]


def test_the_same_log_gives_the_same_bytes(sample):
    assert sample.log.bundle(*IDS) == sample.data


def test_sha256sum_reads_the_manifest(sample, tmp_path):
    for name, content in sample.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", MANIFEST],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_page_is_readable_by_itself(sample):
    page = sample.files["index.html"].decode()

    assert "mybot was not allowed to fetch https://a.test/private/x" in page
    assert re.search(r'class="deciding"><span>▶ 2</span>Disallow: /private/', page)
    assert "contract of 12 May &lt;script&gt;" in page
    assert "\u202e" not in page
    assert not re.search(r"<script|<link|<img|src=|href=|url\(", page)
    assert "SHA-256" in page.partition("Glossary")[2]


# -- forgeries -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    log = write_log_of_every_kind(tmp_path_factory.mktemp("kinds") / "log")
    data = log.bundle(kind=None, since=moment(log.began))
    files = read_archive(data)
    return Sample(log, data, files, parts_of(files))


def test_a_bundle_of_every_kind_verifies(every_kind):
    kinds = {type(line.entry) for line in every_kind.parts.lines}

    assert kinds == set(get_args(AnyRecord))
    assert sentences(every_kind.data, every_kind.log.trust) == []


def fields_of(*kinds: Any) -> list[Any]:
    return [
        pytest.param(kind, field, id=f"{kind.__name__}.{field.name}")
        for kind in kinds
        for field in msgspec.structs.fields(kind)
    ]


@pytest.mark.parametrize(("kind", "field"), fields_of(*get_args(AnyRecord)))
def test_no_field_of_a_record_can_be_forged(sample, every_kind, kind, field):
    """The kinds are those of the type `AnyRecord`, so that a new kind is tested, too."""
    base = sample if any(type(line.entry) is kind for line in sample.parts.lines) else every_kind
    index, raw = _line_of_kind(base, kind)
    forged = forged_line(raw, field.name)
    if forged is None:
        assert field.name == "schema"  # another schema is no record of this version
        return
    files = base.files | {RECORDS: base.files[RECORDS].replace(raw, forged)}
    assert is_refused(files)
    assert is_refused(with_manifest(files))
    parts = parts_of(files)
    assert is_refused(all_files(parts, completeness_of(parts)))  # all that follows from it, too
    if field.name in ("previous", "head"):
        return  # a forger who computes the chain again states them rightly
    _assert_no_chain_helps(base, index, forged)


@pytest.mark.parametrize(("kind", "field"), fields_of(EvidenceItem))
def test_no_field_of_a_statement_can_be_forged(sample, kind, field):
    index, raw = _line_of_kind(sample, SignalsRecord)
    entry = line_of(raw).entry
    item = with_other_value(entry.evidence[0], field.name)
    forged = line_if_other(raw, msgspec.structs.replace(entry, evidence=[item]))
    assert forged is not None
    parts = parts_of(sample.files | {RECORDS: sample.files[RECORDS].replace(raw, forged)})
    assert is_refused(all_files(parts, completeness_of(parts)))
    _assert_no_chain_helps(sample, index, forged)


def _line_of_kind(base: Sample, kind: Any) -> tuple[int, bytes]:
    return next(
        (index, line.raw) for index, line in enumerate(base.parts.lines) if type(line.entry) is kind
    )


def _assert_no_chain_helps(base: Sample, index: int, forged: bytes) -> None:
    """Check that a bundle is refused if its chain was computed again for a forged line: with the
    old signatures, and with those of another key."""
    for signer in (None, new_signer()):
        parts = rechained(base.parts, {index: forged}, signer)._replace(anchors={})
        files = all_files(parts, completeness_of(parts), base.log.signer)
        assert is_refused(files, base.log.trust if signer else BundleTrust())


@pytest.mark.parametrize("kind", get_args(AnyRecord))
def test_no_record_can_be_given_to_another_writer(every_kind, kind):
    """Otherwise a reader without keys would take it for a record of a log without a chain."""
    index, raw = _line_of_kind(every_kind, kind)
    entry = msgspec.structs.replace(every_kind.parts.lines[index].entry, writer="zz-other")
    lines = [line for line in every_kind.parts.lines if line.raw != raw]
    parts = every_kind.parts._replace(lines=[*lines, line_of(entry.line_of_json())])

    assert is_refused(all_files(parts, completeness_of(parts)))


def test_with_the_key_a_record_could_be_forged(sample):
    """So the forger's bundles above are refused for the field, and not because they are made wrongly."""
    index, raw = next(
        (index, line.raw)
        for index, line in enumerate(sample.parts.lines)
        if isinstance(line.entry, Record)
    )
    forged = forged_line(raw, "user_agent")
    parts = rechained(sample.parts, {index: forged}, sample.log.signer)._replace(anchors={})
    files = all_files(parts, completeness_of(parts))

    assert not is_refused(files, BundleTrust([sample.log.signer.key]))


@pytest.mark.parametrize(
    "members",
    [
        b'"url":"https://other.test/",',
        b'"user_agent":"one","user_agent":"two",',
        b'"note":"approved by the site",',
        '"user_agent":"a\u202eb",'.encode(),
    ],
    ids=["two of a name", "two with the same reader", "unknown", "not printable"],
)
def test_a_line_says_no_more_than_its_record_even_if_signed(sample, members):
    index, raw = next(
        (index, line.raw)
        for index, line in enumerate(sample.parts.lines)
        if isinstance(line.entry, Record)
    )
    forged = raw.replace(b'"url":', members + b'"url":', 1)
    parts = rechained(sample.parts, {index: forged}, sample.log.signer)._replace(anchors={})
    files = all_files(parts, completeness_of(parts))

    assert is_refused(files, BundleTrust([sample.log.signer.key]))


def test_what_a_timestamp_covers_is_not_what_its_heads_state(tmp_path):
    """Anyone can have an authority confirm a head with another number."""
    with authority(tmp_path / "tsa") as tsa:
        log = write_evidence_log(tmp_path / "log", tsa)
        parts = parts_of(read_archive(log.bundle(*IDS)))
        (content,) = parts.anchors.values()
        heads = [
            ChainHead(each.writer, each.last + 5000, each.head)
            for each in msgspec.json.decode(content, type=Anchor).heads
        ]
        request = timestamp_request(heads)
        call = urllib.request.Request(tsa.url, data=request.body, method="POST")
        with urllib.request.urlopen(call, timeout=30) as response:
            token = token_of(response.read(), request)
    anchor = Anchor(at="", heads=heads, token=token)
    anchor = msgspec.structs.replace(anchor, at=verify_anchor(anchor).at)
    parts = parts._replace(anchors={anchor.filename: encoded(anchor)})
    data = archive_of(all_files(parts, completeness_of(parts)))
    said = [each.sentence for each in verify_bundle(data, log.trust).claims]
    last = max(line.entry.seq for line in parts.lines)

    assert not any("50" + str(last)[-2:] in each for each in said)
    assert any(f"up to {last} existed at" in each for each in said)


def first_struct(value: Any, kind: Any) -> Any:
    """The first value of a kind within a value."""
    if isinstance(value, kind):
        return value
    if isinstance(value, msgspec.Struct):
        inside = [getattr(value, name) for name in value.__struct_fields__]
    else:
        inside = value if isinstance(value, list) else []
    return next((found for each in inside if (found := first_struct(each, kind))), None)


STRUCTURES = [
    *((Chain, field) for field in fields_of(Chain, Span, Seal)),
    *((Anchor, field) for field in fields_of(Anchor, ChainHead)),
    *((Completeness, field) for field in fields_of(Completeness, NumberRun, BundleSelection)),
]


@pytest.mark.parametrize(
    ("whole", "kind", "field"),
    [pytest.param(whole, *field.values, id=field.id) for whole, field in STRUCTURES],
)
def test_no_field_of_a_proof_can_be_forged(sample, whole, kind, field):
    folder = {Chain: CHAIN, Anchor: ANCHORS, Completeness: COMPLETENESS}[whole]
    name = next(each for each in sample.files if each.startswith(folder))
    value = msgspec.json.decode(sample.files[name], type=whole)
    part = first_struct(value, kind)
    present = msgspec.to_builtins(getattr(part, field.name))
    values = msgspec.to_builtins(part) | {field.name: other_value(present, field.name)}
    if isinstance(part, ChainHead):
        other = ChainHead(**values)
        forged = encoded(msgspec.structs.replace(value, heads=[other, *value.heads[1:]]))
    else:
        # Of another type, too: what is not a value of the type is refused when it is read.
        marker = msgspec.json.decode(encoded(part))
        whole_values = _with(msgspec.json.decode(sample.files[name]), marker, values)
        forged = encoded(whole_values)
    assert forged != sample.files[name]
    files = sample.files | {name: forged}
    assert is_refused(files)
    assert is_refused(with_manifest(files))
    try:
        parts = parts_of(files)
        if folder != COMPLETENESS or kind is BundleSelection:
            assert is_refused(all_files(parts, completeness_of(parts)))
    except NoBundle:
        pass


def _with(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    if isinstance(value, list):
        return [_with(each, old, new) for each in value]
    if isinstance(value, dict):
        return {name: _with(each, old, new) for name, each in value.items()}
    return value


def test_no_byte_of_a_response_can_be_forged(sample):
    """Each header line of the WARC records and of HTTP, and the body."""
    for name in sample.files:
        if not name.startswith("warc/"):
            continue
        content = gzip.decompress(sample.files[name])
        for line in filter(None, content.split(b"\r\n")):
            forged = content.replace(line, line[:-1] + (b"x" if line[-1:] != b"x" else b"y"), 1)
            half = forged.index(b"WARC/", 10) if b"WARC/" in forged[10:] else len(forged)
            packed = gzip.compress(forged[:half]) + gzip.compress(forged[half:])
            files = with_manifest(sample.files | {name: packed})
            assert is_refused(files), line


def test_no_file_can_be_changed_removed_or_added(sample):
    for name, content in sample.files.items():
        assert is_refused({each: data for each, data in sample.files.items() if each != name}), name
        for changed_content in (
            content[:-2] + b"x\n",
            content + b"\n",
            content[: len(content) // 2],
        ):
            forged = sample.files | {name: changed_content}
            assert is_refused(forged), name
            if name != MANIFEST:
                assert is_refused(with_manifest(forged)), name
    for name in ("notes.txt", "documents/" + "0" * 64 + ".txt", "overrides/" + "0" * 64 + ".toml"):
        assert is_refused(with_manifest(sample.files | {name: b"x\n"})), name
    assert is_refused(sample.files | {"documents/" + "0" * 64 + ".txt": b"x"})


def test_lines_cannot_be_reordered_repeated_or_respelt(sample):
    lines = sample.files[RECORDS].splitlines(keepends=True)
    respelt = lines[0].replace(b'"kind":', b'"kind": ', 1)
    for forged in (lines[::-1], [*lines, lines[-1]], [respelt, *lines[1:]], lines[1:]):
        files = sample.files | {RECORDS: b"".join(forged)}
        parts = parts_of(files)
        assert is_refused(all_files(parts, completeness_of(parts)), sample.log.trust)


def test_without_signatures_a_bundle_is_refused_by_a_reader_with_keys(sample):
    (chain,) = sample.parts.chains.values()
    spans = [msgspec.structs.replace(span, seal=None) for span in chain.spans]
    unsealed = {chain.writer: msgspec.structs.replace(chain, spans=spans)}
    parts = sample.parts._replace(chains=unsealed)
    for forged in (parts, sample.parts._replace(chains={}, anchors={})):
        assert is_refused(all_files(forged, completeness_of(forged)), sample.log.trust)
    files = all_files(parts, completeness_of(parts))
    claims = sentences(archive_of(files), BundleTrust(), ClaimState.NOT_PROVEN)
    assert any("anyone can compute a chain" in each for each in claims)


# -- hostile archives ------------------------------------------------------------------------------


def zip_of(*entries: tuple[Any, bytes], **options: Any) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return target.getvalue()


def repacked(
    data: bytes, entry: dict[str, Any] | None = None, name: str = "index.html", comment: bytes = b""
) -> bytes:
    """The archive with the same files, of which one has other attributes."""
    target = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        new.comment = comment
        for each in old.infolist():
            made = zipfile.ZipInfo(each.filename, each.date_time)
            made.compress_type, made.create_system = each.compress_type, each.create_system
            made.external_attr = each.external_attr
            for attribute, value in (entry or {}).items() if each.filename == name else ():
                setattr(made, attribute, value)
            new.writestr(made, old.read(each.filename))
    return target.getvalue()


def first_header(data: bytes) -> bytes:
    """The header and the content of the only file in an archive."""
    return data[: data.index(b"PK\x01\x02")]


def with_end(data: bytes, offset: int, value: int) -> bytes:
    """The archive with another byte in its last record, which ends it."""
    at = len(data) - 22 + offset
    return data[:at] + bytes([value]) + data[at + 1 :]


PAGE_OF_A_FORGER = first_header(zip_of(("index.html", b"<h1>The site forbids nothing.</h1>")))
UNICODE_PATH = b"up" + struct.pack("<HBL", 14, 1, zlib.crc32(b"index.html")) + b"other.htm"


@pytest.mark.parametrize(
    "forged",
    [
        lambda data: repacked(data, {"date_time": (2026, 11, 20, 0, 0, 0)}),
        lambda data: repacked(data, {"comment": b"approved by the site"}),
        lambda data: repacked(data, comment=b"approved by the site"),
        lambda data: repacked(data, {"extra": UNICODE_PATH}),
        lambda data: repacked(data, {"external_attr": (stat.S_IFREG | 0o4755) << 16}),
        lambda data: repacked(data, {"create_system": 0}),
        lambda data: repacked(data, {"compress_type": zipfile.ZIP_STORED}),
        lambda data: repacked(data, {"internal_attr": 1}),
        lambda data: b"#!/bin/sh\nexit\n" + data,
        lambda data: PAGE_OF_A_FORGER + data,
        lambda data: first_header(data) + PAGE_OF_A_FORGER + data[len(first_header(data)) :],
        lambda data: data + PAGE_OF_A_FORGER + data[-22:],
        lambda data: data.replace(b"PK\x03\x04\x14", b"PK\x03\x04\x15", 1),
        lambda data: with_end(data, 8, 1),
    ],
    ids=[
        *("date", "comment of a file", "comment", "another name", "mode", "system", "stored"),
        *("text", "program before it", "page before it", "page within it", "page after it"),
        *("header", "number of files"),
    ],
)
def test_an_archive_says_no_more_than_its_files(sample, forged):
    """Programs that read it from its first byte on find the same files as those that read its
    directory."""
    data = forged(sample.data)
    assert data != sample.data
    assert is_archive_refused(data, sample.log.trust)
    assert not is_archive_refused(repacked(sample.data), sample.log.trust)


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def resized(data: bytes) -> bytes:
    """The archive with a smaller size in its directory and its headers than its file has."""
    wrong = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark)
        wrong[at + offset : at + offset + 4] = struct.pack("<I", 1)
    return bytes(wrong)


def refusal_of(data: bytes) -> str:
    try:
        verify_bundle(data)
    except NoBundle as error:
        return str(error)
    return "verified"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_archives_are_refused_in_one_sentence(sample):
    nested = b"[" * 100_000
    bomb = zip_of(("records.jsonl", bytes(300 * 2**20)), compression=zipfile.ZIP_DEFLATED)
    hostile = {
        "empty": b"",
        "no zip": b"PK\x03\x04" + bytes(100),
        "absolute": zip_of(("/etc/passwd", b"x")),
        "parent": zip_of(("../x", b"x")),
        "inner parent": zip_of(("documents/..", b"x")),
        "backslash": zip_of(("documents\\x", b"x")),
        "long": zip_of(("x" * 300, b"x")),
        "control": zip_of(("a\nb", b"x")),
        "folder": zip_of(("documents/", b"")),
        "twice": zip_of((RECORDS, b""), (RECORDS, b"x")),
        "link": zip_of((link(RECORDS), b"/etc/passwd")),
        "bomb": bomb,
        "wrong size": resized(zip_of((RECORDS, b"x" * 1000))),
        "method": zip_of((RECORDS, b"x"), compression=zipfile.ZIP_BZIP2),
        "nothing": zip_of(),
        "deep": zip_of((RECORDS, b""), (COMPLETENESS, nested)),
        "no text": zip_of((RECORDS, b""), (COMPLETENESS, b"\xff")),
        "no record": zip_of((RECORDS, b"\xff\n"), (COMPLETENESS, sample.files[COMPLETENESS])),
        "comment": sample.data[:-2] + b"\x01\x00x",
        "cut": sample.data[: len(sample.data) // 2],
        "changed": sample.data[:100] + bytes(50) + sample.data[150:],
        "other format": archive_of(
            sample.files
            | {COMPLETENESS: sample.files[COMPLETENESS].replace(b"bundle-1", b"bundle-9")}
        ),
    }
    for name, data in hostile.items():
        sentence = refusal_of(data)
        assert re.fullmatch(r"this is not a bundle \([^\n]+\): make one with [^\n]+", sentence), (
            name
        )


def test_an_archive_of_too_many_files_is_refused_before_its_directory_is_read():
    data = zip_of(*((f"f{number}", b"") for number in range(70_000)))
    with pytest.raises(NoBundle, match="more than 20000 files"):
        verify_bundle(data)


def test_deep_overrides_are_no_crash(sample):
    index, line = next(
        (index, line)
        for index, line in enumerate(sample.parts.lines)
        if isinstance(line.entry, OverridesRecord)
    )
    text = "a = " + "[" * 5000 + "]" * 5000
    digest = hashlib.sha256(text.encode()).hexdigest()
    entry = msgspec.structs.replace(line.entry, text=text, sha256=digest)
    parts = rechained(sample.parts, {index: entry.line_of_json()})
    assert is_refused(all_files(parts, completeness_of(parts)))


# -- periods ---------------------------------------------------------------------------------------


def test_a_period_accounts_for_all_its_lines(sample):
    since, until = moment(sample.log.began), moment(sample.log.began + 3600)
    data = sample.log.bundle(kind="decision", since=since, until=until, reason="disallowed")
    result = verify_bundle(data, sample.log.trust)
    (run,) = result.completeness.runs

    assert not result.is_contradicted
    assert [judged.record.id for judged, _ in result.replayed] == ["w-1"]
    assert (run.first, run.missing) == (1, 0)
    (log_file,) = sample.log.directory.glob("*.jsonl")
    assert run.lines == len(log_file.read_bytes().splitlines())


class FilterWithSecrets(Filter, frozen=True, kw_only=True):
    """A filter that has the audit log's key, and a URL as a user gives it."""

    url: str | None = None
    key: str = ""


def test_the_selection_shows_no_secret():
    wanted = FilterWithSecrets(url="https://u:p@a.test/x?token=abcdef", key="00ff")
    selection = selection_of(wanted, (), 0.0)

    assert selection.where == {"kind": "decision", "url": "https://a.test/x?token=REDACTED"}


def test_a_period_without_a_decision_says_so(sample):
    since = moment(sample.log.began)
    data = sample.log.bundle(kind="decision", since=since, origin="https://never.test")
    result = verify_bundle(data, sample.log.trust)
    page = read_archive(data)["index.html"].decode()

    assert not result.is_contradicted
    assert result.replayed == []
    assert "No decision of this selection is in the audit log" in page
    assert "This does not say:" in page
    with pytest.raises(SettingsError, match="there is nothing to bundle"):
        sample.log.bundle(kind="decision", origin="https://never.test")


def test_the_limits_are_those_in_the_page():
    page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    size = LARGEST_CONTENT * 3 // 4 // 2**20

    assert f"at most {MOST_RECORDS:,} selected records and {size} MiB of content" in page


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        (
            "writer.MOST_RECORDS",
            "more than 5 records would be in the bundle: narrow the period",
        ),
        ("chain.MOST_LINKS", "more than 5 links of chains: narrow the period with --since"),
        ("writer.LARGEST_CONTENT", "larger than 0 MiB: narrow the period with --since"),
    ],
)
def test_what_is_too_large_says_how_to_select_less(sample, monkeypatch, limit, sentence):
    monkeypatch.setattr(f"robots_guard.audit.bundle.{limit}", 5)
    with pytest.raises(SettingsError, match=sentence):
        sample.log.bundle(kind="decision", since=moment(sample.log.began))


def test_a_record_that_names_a_file_elsewhere_reads_none(sample, tmp_path):
    """Nor does one that names a link."""
    for name in ("../secret.warc.gz", "20260101-x-0001.warc.gz"):
        copy = tmp_path / name.strip("./")[:8] / "log"
        shutil.copytree(sample.log.directory, copy)
        (kept,) = copy.glob("*.warc.gz")
        (copy.parent / "secret.warc.gz").write_bytes(kept.read_bytes())
        (copy / "20260101-x-0001.warc.gz").symlink_to(copy.parent / "secret.warc.gz")
        (path,) = copy.glob("*.jsonl")
        path.write_bytes(path.read_bytes().replace(kept.name.encode(), name.encode()))
        files = read_archive(sample.log._replace(directory=copy).bundle("w-1"))

        assert not [each for each in files if each.startswith("warc/")], name


def test_a_log_that_was_changed_is_reported(tmp_path):
    log = write_evidence_log(tmp_path / "log")
    (path,) = log.directory.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"id":"h-11"', b'"id":"h-99"'))

    problems = sentences(log.bundle("h-99"))
    assert any("do not lead to its head" in each for each in problems)


def test_a_compressed_log_gives_the_same_bundle(sample, tmp_path):
    copy = tmp_path / "log"
    shutil.copytree(sample.log.directory, copy)
    log = sample.log._replace(directory=copy)
    compress(copy)
    assert not list(copy.glob("*.jsonl"))
    assert log.bundle(*IDS) == sample.data
