"""What verification finds: every kind of forgery, by the lines alone, by signatures, and by heads kept elsewhere."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import zstandard
from audit.decisions import AT, audit_log_in, decision
from msgspec.json import encode

from robots_guard.audit.anchors import Anchor, ChainHead
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import WarcFinding, verify_log
from robots_guard.audit.read.writer_check import Trust
from robots_guard.audit.signing import Signer, new_signer, signer_of, statement_of
from robots_guard.audit.write.maintenance import compress
from robots_guard.audit.write.writer import first_hash, line_digest, next_hash
from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.origin import split_url


class Made(NamedTuple):
    """An audit log as it was written, its key, and the heads that were kept elsewhere."""

    directory: Path
    signer: Signer
    heads: tuple[ChainHead, ...]


def fetch(number, status=200, at=AT):
    url = f"https://s{number}.test/robots.txt"
    body = b"User-agent: *\nDisallow: /%d\n" % number
    outcome = Fetched(status=status, body=body, tls_verified=True, headers={"etag": '"1"'})
    if not status:
        outcome = Failed(failure=Failure.DNS, detail="no such host")
    return FetchMade(
        at=at,
        origin=split_url(url)[0],
        get=Get(url=url),
        outcome=outcome,
        via="direct",
        elapsed=0.1,
    )


def write_log(directory, signer, *, writers=2):
    """Some writers, one after the other, each with a few files, checkpoints and fetches. A checkpoint follows each
    fourth record, because its monotonic clock counts the calls."""
    for number in range(writers):
        ticks = itertools.count(0.0, 30.0)
        log = audit_log_in(
            directory,
            signer=signer,
            chain=True,
            audit="evidence",
            rotate_bytes=2500,
            monotonic=ticks.__next__,
        )
        log.note(fetch(number))
        log.note(fetch(number + 10, 404, AT + 1))
        log.note(fetch(number + 20, 0, AT + 2))
        for step in range(12):
            log.write(decision(f"https://a.test/private/{step}?writer={number}", at=AT + 3 + step))
        log.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory, signer = tmp_path_factory.mktemp("made") / "log", new_signer()
    write_log(directory, signer)
    finding = verify_log(directory, Unreadable())
    heads = tuple(ChainHead(each.writer, each.last, each.head) for each in finding.writers)
    assert len([*directory.glob("*.jsonl")]) > 4
    return Made(directory, signer, heads)


@pytest.fixture
def forged(made, tmp_path):
    """A copy of the log, to be changed."""
    return Path(shutil.copytree(made.directory, tmp_path / "log"))


def is_whole(directory, trust=None):
    trouble = Unreadable()
    finding = verify_log(directory, trouble, trust)
    return finding.is_whole and not (trouble.lines or trouble.files)


def by_keys(made):
    return Trust(keys=frozenset((made.signer.key,)))


def by_heads(made):
    return Trust(heads=made.heads)


def files(directory):
    return sorted(directory.glob("*.jsonl"))


def test_an_untouched_log_is_whole_by_every_proof(made):
    trust = Trust(keys=frozenset((made.signer.key,)), heads=made.heads)
    finding = verify_log(made.directory, Unreadable(), trust)

    assert finding.is_whole
    assert [each.notes for each in finding.writers] == [[], []]
    assert all(each.signatures[made.signer.key] > 3 for each in finding.writers)
    assert finding.warc == WarcFinding(present=4)


def test_so_it_is_when_it_has_been_compressed(made, forged):
    trust = Trust(keys=frozenset((made.signer.key,)), heads=made.heads)
    compress(forged)
    finding = verify_log(forged, Unreadable(), trust)

    assert (finding.is_whole, finding.warc.present) == (True, 4)


# -- forgeries: (what was done, whether lines alone, a signature or heads reveal it) ---------------------------


def edit(directory, old, new, count=1):
    """Replace bytes in the first file that has them."""
    for path in files(directory):
        if old in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(old, new, count))
            return
    raise AssertionError(old)


def remove_middle_file(log, _):
    files(log)[1].unlink()


def remove_first_file(log, _):
    files(log)[0].unlink()


def remove_writer(log, _):
    writer = json.loads(files(log)[0].read_bytes().splitlines()[0])["writer"]
    for path in log.glob(f"*{writer}*"):
        path.unlink()


def drop_line(log, _):
    path = files(log)[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))


def swap_lines(log, _):
    path = files(log)[0]
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[2] = lines[2], lines[1]
    path.write_bytes(b"".join(lines))


def double_line(log, _):
    path = files(log)[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[2], *lines[3:]]))


def cut_tail(log, _):
    """All of the last file, so that the rest ends at a line's end."""
    writer_files = [path for path in files(log) if json.loads(first_line(path))["segment"] > 1]
    writer_files[-1].unlink()


def first_line(path):
    return path.read_bytes().splitlines()[0]


def rechain(log, sign=None, change=lambda record: record):
    """Write the whole log anew, with valid chains, but without the key."""
    heads: dict[str, bytes] = {}
    for path in sorted(files(log), key=lambda path: path.name):
        out = []
        for line in path.read_bytes().splitlines():
            record = change(json.loads(line))
            writer = record["writer"]
            head = heads.setdefault(writer, first_hash(writer))
            if "previous" in record:
                record["previous"] = head.hex()
            if record["kind"] == "checkpoint":
                record["head"] = head.hex()
                if sign:
                    statement = statement_of(writer, record["seq"] - 1, record["at"], head.hex())
                    record |= {"key": sign.key, "signature": sign.sign(statement)}
            out.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            heads[writer] = next_hash(head, line_digest(out[-1]))
        path.write_bytes(b"".join(out))


def turned(record):
    return record | {"action": "pass"} if record.get("action") == "drop" else record


def rechain_with_old_signatures(log, _):
    rechain(log, change=turned)


def rechain_without_signatures(log, _):
    def unsigned(record):
        return {name: turned(record)[name] for name in record if name not in ("key", "signature")}

    rechain(log, change=unsigned)


def sign_with_another_key(log, _):
    rechain(log, sign=new_signer(), change=turned)


def sign_one_with_another_key(log, _):
    other, count = new_signer(), iter(range(1000))

    def one(record):
        if record["kind"] == "checkpoint" and next(count) == 1:
            statement = statement_of(
                record["writer"], record["seq"] - 1, record["at"], record["head"]
            )
            return record | {"key": other.key, "signature": other.sign(statement)}
        return record

    rechain(log, change=one)


def change_the_last_checkpoint(log, **values):
    path = max(files(log), key=lambda path: json.loads(path.read_bytes().splitlines()[-1])["seq"])
    *rest, last = path.read_bytes().splitlines(keepends=True)
    record = json.loads(last)
    assert record["kind"] == "checkpoint"
    record |= values
    path.write_bytes(b"".join([*rest, encode(record) + b"\n"]))


def replace_time(log, _):
    change_the_last_checkpoint(log, at="2027-01-15T09:00:00.000Z")


def replace_head(log, _):
    change_the_last_checkpoint(log, head="ab" * 32)


def replace_signature(log, made):
    change_the_last_checkpoint(log, signature=made.signer.sign(b"something else"))


def change_time_and_sign_again(log, _):
    other = new_signer()

    def dated(record):
        return record | {"at": record["at"].replace("2027-01", "2026-12")}

    rechain(log, sign=other, change=dated)


def no_chain(log, _):
    for path in files(log):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        kept = [each for each in lines if each["kind"] != "checkpoint"]
        for each in kept:
            each.pop("chain", None)
        path.write_bytes(b"".join(encode(turned(each)) + b"\n" for each in kept))


def renumber(log, _):
    """Without its last three records and with numbers that are right: the checkpoints too."""
    numbers: dict[str, int] = {}

    def numbered(record):
        numbers[record["writer"]] = numbers.get(record["writer"], 0) + 1
        return record | {"seq": numbers[record["writer"]]}

    drop_line(log, _)
    rechain(log, change=numbered)


def chained(path, *records):
    """Append records to a file, chained but not signed."""
    lines = path.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    head = bytes.fromhex(last["head"])  # of a checkpoint: the head before it
    head = next_hash(head, line_digest(lines[-1]))
    for number, record in enumerate(records, 1):
        common = {name: last[name] for name in ("schema", "at", "mono", "writer", "component")}
        line = encode(common | record | {"seq": last["seq"] + number}) + b"\n"
        if record["kind"] == "checkpoint":
            line = encode(msgspec.json.decode(line) | {"head": head.hex()}) + b"\n"
        lines.append(line)
        head = next_hash(head, line_digest(line))
    path.write_bytes(b"".join(lines))


def append_after_the_stop(log, _):
    decided = next(
        json.loads(line)
        for line in files(log)[0].read_bytes().splitlines()
        if b'"decision"' in line
    )
    forged = {"kind": "decision"} | {
        name: decided[name]
        for name in decided
        if name not in ("schema", "at", "mono", "writer", "component")
    }
    chained(last_file(log), forged)


def last_file(log):
    return max(files(log), key=lambda path: json.loads(path.read_bytes().splitlines()[-1])["seq"])


def replace_the_end(log, _):
    """Replace the last lines before a stop, and the stop, without the key."""
    path = last_file(log)
    lines = path.read_bytes().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if b'"checkpoint"' in line]
    assert len(ends) > 1
    path.write_bytes(b"".join(lines[: ends[-2] + 1]))
    chained(path, {"kind": "stop"})


def remove_writer_and_state_a_removal(log, _):
    """The removal is stated in lines that no signature covers yet, of a writer that was killed."""
    path, others = last_file(log), files(log)
    lines = path.read_bytes().splitlines(keepends=True)
    end = [number for number, line in enumerate(lines) if b'"checkpoint"' in line][-2]
    path.write_bytes(b"".join(lines[: end + 1]))
    writer = json.loads(lines[0])["writer"]
    gone = [each.name for each in others if writer not in each.name]
    chained(path, {"kind": "removal", "files": gone})
    for name in gone:
        (log / name).unlink()


def remove_evidence_and_state_a_removal(log, _):
    path = last_file(log)
    lines = path.read_bytes().splitlines(keepends=True)
    end = [number for number, line in enumerate(lines) if b'"checkpoint"' in line][-2]
    path.write_bytes(b"".join(lines[: end + 1]))
    gone = next(log.glob("*.warc.gz"))
    chained(path, {"kind": "removal", "files": [gone.name]})
    gone.unlink()


def of_one_writer(log):
    """The files of the writer of the last lines, in order."""
    writer = json.loads(first_line(last_file(log)))["writer"]
    return [path for path in files(log) if writer in path.name]


def rename_to_another_day(log, _):
    path = files(log)[0]
    path.rename(path.with_name(f"20200101{path.name[8:]}"))


def rename_to_a_later_day(log, _):
    path = files(log)[0]
    path.rename(path.with_name(f"20270120{path.name[8:]}"))


def renumber_a_file(log, _):
    path = files(log)[0]
    path.rename(path.with_name(path.name.replace("-0001.", "-0042.")))


def exchange_names(log, _):
    first, second, *_ = of_one_writer(log)
    moved = first.rename(log / "moved")
    second.rename(first)
    moved.rename(second)


def join_files(log, _):
    first, second, *_ = of_one_writer(log)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()


def move_a_line_to_the_next_file(log, _):
    first, second, *_ = of_one_writer(log)
    *rest, last = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(rest))
    second.write_bytes(last + second.read_bytes())


def add_a_line_that_only_others_read(log, _):
    """It is no record, because its line is not a number."""
    path = files(log)[0]
    lines = path.read_bytes().splitlines(keepends=True)
    decided = next(json.loads(line) for line in lines if b'"decision"' in line)
    forged = encode(decided | {"action": "pass", "line": "x"}) + b"\n"
    path.write_bytes(b"".join([lines[0], forged, *lines[1:]]))


def add_behind_what_is_compressed(log, _):
    line = files(log)[0].read_bytes().splitlines(keepends=True)[1]
    compress(log)
    packed = min(log.glob("*.zst"))
    packed.write_bytes(packed.read_bytes() + zstandard.compress(line))


def leave_an_edited_file_beside_the_compressed_one(log, _):
    path = files(log)[0]
    content = path.read_bytes()
    compress(log)
    path.write_bytes(content.replace(b"private", b"another"))


FORGERIES = [
    # done, found by the lines, by signatures, by heads
    (remove_middle_file, True, True, True),
    (remove_first_file, False, True, True),
    (remove_writer, False, False, True),
    (cut_tail, False, False, True),
    (drop_line, True, True, True),
    (swap_lines, True, True, True),
    (double_line, True, True, True),
    (rechain_with_old_signatures, True, True, True),
    (rechain_without_signatures, False, True, True),
    (sign_with_another_key, False, True, True),
    (sign_one_with_another_key, True, True, True),
    (replace_time, True, True, True),
    (replace_head, True, True, True),
    (replace_signature, True, True, True),
    (change_time_and_sign_again, True, True, True),  # by the dates of the WARC records
    (no_chain, True, True, True),
    (renumber, True, True, True),
    (append_after_the_stop, True, True, True),
    (replace_the_end, False, True, True),
    (remove_evidence_and_state_a_removal, False, True, True),
    (rename_to_another_day, True, True, True),
    (rename_to_a_later_day, True, True, True),
    (renumber_a_file, True, True, True),
    (exchange_names, True, True, True),
    (join_files, True, True, True),
    (move_a_line_to_the_next_file, True, True, True),
    (add_a_line_that_only_others_read, True, True, True),
    (add_behind_what_is_compressed, True, True, True),
    (leave_an_edited_file_beside_the_compressed_one, True, True, True),
]


@pytest.mark.parametrize(
    ("forge", "by_lines", "by_signatures", "by_kept_heads"),
    FORGERIES,
    ids=[each[0].__name__ for each in FORGERIES],
)
def test_a_forgery_is_found(
    made, forged, forge: Callable[..., None], by_lines, by_signatures, by_kept_heads
):
    forge(forged, made)
    found = (
        not is_whole(forged),
        not is_whole(forged, by_keys(made)),
        not is_whole(forged, by_heads(made)),
    )

    assert found == (by_lines, by_signatures, by_kept_heads)


def test_a_tail_cut_off_at_any_record_is_found_by_heads(made, forged):
    """And without them it looks like a writer that was killed."""
    path = files(forged)[-1]
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))

        assert not is_whole(forged, by_heads(made)), kept
        assert is_whole(forged), kept


def fields_of(record):
    """The fields whose change is a change of the line's meaning, each with another value."""
    for name, value in record.items():
        match value:
            case bool():
                yield name, not value
            case int() | float():
                yield name, value + 1
            case str() if name == "kind":
                yield name, "signals"  # which it has not the fields of
            case str():
                yield name, ("y" if value.startswith("x") else "x") + value[1:]
            case list() | dict():
                yield name, {} if isinstance(value, list) else {"x": "y"}


@pytest.mark.parametrize("kind", ["start", "decision", "fetch", "checkpoint", "stop"])
def test_each_edited_field_is_found(made, forged, kind):
    path = next(p for p in reversed(files(forged)) if f'"kind":"{kind}"'.encode() in p.read_bytes())
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line)
    record = json.loads(lines[place])
    assert len(dict(fields_of(record))) >= 7
    for name, value in fields_of(record):
        changed = encode(record | {name: value}) + b"\n"
        path.write_bytes(b"".join([*lines[:place], changed, *lines[place + 1 :]]))

        assert not is_whole(forged), name
        assert not is_whole(forged, by_keys(made)), name


def test_an_older_copy_is_found_by_heads_only(made, tmp_path):
    """Rolled back to what it was when the second writer had not begun, and when the first had just begun."""
    second = made.heads[1].writer
    older = Path(shutil.copytree(made.directory, tmp_path / "older"))
    for path in older.glob(f"*{second}*"):
        path.unlink()

    assert is_whole(older, by_keys(made))
    finding = verify_log(older, Unreadable(), by_heads(made))
    missing = finding.writers[1]
    assert (missing.writer, missing.chain) == (second, "missing")
    assert missing.problems == [
        f"is missing, but the given statement names its lines up to {made.heads[1].last}"
    ]


def test_heads_of_a_chain_that_is_being_written_stay_right(tmp_path):
    log = audit_log_in(tmp_path, chain=True)
    log.write(decision())
    (early,) = verify_log(tmp_path, Unreadable()).writers
    heads = (ChainHead(early.writer, early.last, early.head),)
    log.write(decision(at=AT + 1))
    log.close()

    assert is_whole(tmp_path, Trust(heads=heads))
    edit(tmp_path, b'"kind":"decision"', b'"kind":"decision" ')
    assert not is_whole(tmp_path, Trust(heads=heads))


def test_anchors_in_the_directory_are_compared_without_being_asked_for(made, forged):
    anchor = Anchor(at="2027-01-15T08:10:00.000Z", heads=list(made.heads))
    (forged / anchor.filename).write_bytes(encode(anchor))
    assert is_whole(forged)
    cut_tail(forged, made)
    finding = verify_log(forged, Unreadable())

    problems = [problem for each in finding.writers for problem in each.problems]
    assert [re.sub(r"\d+", "N", each) for each in problems] == [
        "ends at N, but the anchor of N-N-NTN:N:N.NZ names its lines up to N"
    ]


def test_an_anchor_older_than_the_log_is_not_compared_with_it(forged):
    anchor = Anchor(at="2027-01-14T23:59:59.000Z", heads=[ChainHead("gone", 7, "ab" * 32)])
    (forged / anchor.filename).write_bytes(encode(anchor))
    finding = verify_log(forged, Unreadable())

    assert (finding.is_whole, len(finding.writers)) == (True, 2)
    assert finding.anchors[0].note == "older than the log, and so not compared with it"


def test_what_a_crash_left_beside_a_compressed_file_is_no_problem(made, forged):
    for path in files(made.directory):
        compress(forged)
        shutil.copy(path, forged)

    assert is_whole(forged, by_keys(made))


@pytest.mark.parametrize("content", ["{", '{"x":' + "[" * 100_000])
def test_a_damaged_anchor_is_a_problem(forged, content):
    (forged / "anchor-20270115T081000Z.json").write_text(content)

    assert not is_whole(forged)


# -- evidence ---------------------------------------------------------------------------------------------------


def warc_in(directory):
    """The file with the evidence of the first writer's fetches."""
    paths = directory.glob("*.warc.gz")
    (found,) = (path for path in paths if any(b"s0.test" in text for text in members(path)))
    return found


def test_a_deleted_warc_file_is_found(made, forged):
    warc_in(forged).unlink()
    finding = verify_log(forged, Unreadable())

    assert (finding.is_whole, finding.warc.missing, finding.warc.present) == (False, 2, 2)


def members(path):
    """The gzip members of a WARC file: one for each record."""
    data, found = path.read_bytes(), []
    while data:
        unpacker = zlib.decompressobj(31)
        found.append(unpacker.decompress(data))
        data = unpacker.unused_data
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Disallow: /0\n", b"Disallow: /9\n"),
        (b"HTTP/1.1 200 OK", b"HTTP/1.1 404 OK"),
        (b"WARC-Target-URI: https://s0.test", b"WARC-Target-URI: https://s9.test"),
        (b"WARC-Date: 2027-01-15T08:00:00", b"WARC-Date: 2027-01-15T07:00:00"),
    ],
    ids=["payload", "status", "url", "date"],
)
def test_a_changed_warc_record_is_found(forged, old, new):
    path = warc_in(forged)
    changed = [
        text.replace(old, new) if b"WARC-Type: response" in text else text for text in members(path)
    ]
    path.write_bytes(b"".join(map(gzip.compress, changed)))
    finding = verify_log(forged, Unreadable())

    assert not finding.is_whole
    assert finding.warc.changed == 1


def test_evidence_that_housekeeping_removed_is_not_missing(tmp_path):
    log = audit_log_in(tmp_path, audit="evidence", chain=True)
    log.note(fetch(1))
    (evidence,) = tmp_path.glob("*.warc.gz")
    log.announce_removal(evidence.name)
    evidence.unlink()
    log.close()
    finding = verify_log(tmp_path, Unreadable())

    assert (finding.is_whole, finding.warc) == (True, WarcFinding(removed=1))


def test_a_removed_warc_record_is_found(forged):
    path = warc_in(forged)
    path.write_bytes(
        b"".join(gzip.compress(text) for text in members(path) if b"s0.test" not in text)
    )
    finding = verify_log(forged, Unreadable())

    assert (finding.warc.missing, finding.warc.present) == (1, 3)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x1f\x8b" + b"\0" * 40])
def test_a_damaged_warc_file_is_found(forged, content):
    warc_in(forged).write_bytes(content)
    finding = verify_log(forged, Unreadable())

    assert finding.warc.missing == 2
    assert not finding.is_whole


def test_a_record_may_not_name_a_file_outside(forged):
    name = warc_in(forged).name.encode()
    edit(forged, b'"warc_file":"' + name, b'"warc_file":"../../etc/' + name)
    finding = verify_log(forged, Unreadable())

    assert finding.warc.changed == 1


def test_the_private_key_is_in_no_file(made):
    secret = made.signer.to_pem().splitlines()[1]
    raw = signer_of(made.signer.to_pem())

    assert raw.key == made.signer.key
    assert all(secret not in path.read_bytes() for path in made.directory.iterdir())


@pytest.mark.parametrize("how", ["as it is", "compressed"])
def test_an_unsigned_removal_excuses_no_missing_writer(made, forged, how):
    kept = json.loads(first_line(last_file(forged)))["writer"]
    gone = tuple(head for head in made.heads if head.writer != kept)
    remove_writer_and_state_a_removal(forged, made)
    if how != "as it is":
        compress(forged)
    trust = Trust(keys=frozenset((made.signer.key,)), heads=gone)

    assert not is_whole(forged, trust)
