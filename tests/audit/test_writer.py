"""The writer's files: rotation, hash chain, maintenance, and full disks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from audit.decisions import AT, audit_log_in, decision, policy
from support.waiting import eventually

from robots_guard.audit.read.reader import Filter, Unreadable, entries, kind_of, records
from robots_guard.audit.read.verify import verify
from robots_guard.audit.segments import segments
from robots_guard.audit.write.maintenance import retain, tidy, try_lock
from robots_guard.audit.write.retention import Inspection, Retention
from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.decisions.events import FailedOpen, FetchMade, OverridesLoaded, StoreWasReset
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.errors import AuditLogError, SettingsError

DAY = 86400


def kinds(directory):
    return [kind_of(entry) for entry in entries(directory, Filter(kind=None))]


def lines(directory):
    """Every line of every file, in order of the files' names."""
    return [
        json.loads(line)
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if line
    ]


# -- the ends of a writer -----------------------------------------------------------------------------------


def test_a_file_begins_with_a_start_and_ends_with_a_stop(tmp_path):
    audit_log = audit_log_in(tmp_path, component="scrapy", job="nightly")
    audit_log.write(decision())
    audit_log.close()
    start, made, stop = lines(tmp_path)

    assert (start["kind"], start["seq"], start["segment"], start["pid"]) == (
        "start",
        1,
        1,
        os.getpid(),
    )
    assert start["settings"] == {"agent": "mybot"}
    assert (stop["kind"], stop["seq"], stop.get("lost", 0)) == ("stop", 3, 0)
    assert {line["job"] for line in (start, made, stop)} == {"nightly"}
    assert (start["component"], stop["component"], made["mono"]) == ("scrapy", "scrapy", 7.0)


def test_each_event_is_a_record_of_its_kind(tmp_path):
    audit_log = audit_log_in(tmp_path)
    get = Get(url="https://a.test/robots.txt?token=abc", headers=(("If-None-Match", '"x"'),))
    hop = {"at": AT, "origin": policy().origin, "get": get, "via": "direct", "elapsed": 0.25}
    audit_log.note(
        FetchMade(
            outcome=Fetched(status=302, headers={"location": "https://me:secret@b.test/"}), **hop
        )
    )
    audit_log.note(FetchMade(outcome=Failed(failure=Failure.DNS, detail="no such host"), **hop))
    audit_log.note(StoreWasReset(at=AT, detail="was damaged"))
    audit_log.note(FailedOpen(at=AT, setting="audit_required", count=3))
    audit_log.note(
        OverridesLoaded(at=AT, source="overrides.toml", count=2, problems=("third: expired",))
    )
    audit_log.close()
    found = {line["kind"]: line for line in lines(tmp_path)}
    redirect = lines(tmp_path)[1]

    assert kinds(tmp_path) == [
        "start",
        "fetch",
        "fetch",
        "store-reset",
        "fail-open",
        "overrides",
        "stop",
    ]
    assert (redirect["status"], redirect["location"], redirect["conditional"]) == (
        302,
        "https://b.test/",
        True,
    )
    assert redirect["url"] == "https://a.test/robots.txt?token=REDACTED"
    assert (found["fetch"]["failure"], found["fetch"]["detail"], found["fetch"]["elapsed_us"]) == (
        "dns",
        "no such host",
        250_000,
    )
    assert (found["fail-open"]["relaxed"], found["fail-open"]["count"]) == ("audit_required", 3)
    assert found["overrides"]["problems"] == ["third: expired"]


def test_after_its_file_is_removed_the_writer_continues_in_another(tmp_path, caplog):
    directory = tmp_path / "audit_log"
    audit_log = audit_log_in(directory)
    audit_log.write(decision())
    shutil.rmtree(directory)
    audit_log.write(decision())
    audit_log.close()

    assert [line["kind"] for line in lines(directory)] == ["start", "decision", "stop"]
    assert [line["seq"] for line in lines(directory)] == [3, 4, 5]
    assert "removed or changed by another process" in caplog.text


@pytest.mark.parametrize("moved", ["file", "directory"])
def test_after_its_file_is_renamed_the_writer_uses_a_name_that_readers_list(tmp_path, moved):
    directory = tmp_path / "audit_log"
    audit_log = audit_log_in(directory)
    audit_log.write(decision())
    renamed = audit_log.path if moved == "file" else directory
    renamed.rename(f"{renamed}.1")
    audit_log.write(decision())
    audit_log.close()

    assert [(line["seq"], line["kind"]) for line in lines(directory)] == [
        (3, "start"),
        (4, "decision"),
        (5, "stop"),
    ]


def test_a_change_of_the_working_directory_does_not_affect_the_writer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    audit_log = audit_log_in(Path("audit_log"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    audit_log.write(decision())
    audit_log.close()

    assert kinds(tmp_path / "audit_log") == ["start", "decision", "stop"]


def test_records_are_refused_while_no_file_can_be_created(tmp_path):
    directory = tmp_path / "audit_log"
    audit_log = audit_log_in(directory)
    audit_log.write(decision())
    shutil.rmtree(directory)
    directory.write_text("in the way")
    for _ in range(2):
        with pytest.raises(AuditLogError, match=r"was removed .* and no other file can be begun"):
            audit_log.write(decision())
    directory.unlink()
    audit_log.write(decision())
    audit_log.close()

    assert [line["seq"] for line in lines(directory)] == [5, 6, 7]
    assert lines(directory)[-1]["lost"] == 2


# -- files ----------------------------------------------------------------------------------------------------


def test_midnight_begins_a_new_file(tmp_path):
    audit_log = audit_log_in(tmp_path)
    midnight = AT - AT % DAY + DAY
    for at in (midnight - 0.001, midnight, midnight + 1):
        audit_log.write(decision(at=at))
    audit_log.close()
    days = [path.name[:8] for path in sorted(tmp_path.iterdir())]

    assert days == ["20270115", "20270116"]
    assert [line.get("segment") for line in lines(tmp_path) if line["kind"] == "start"] == [1, 2]
    assert [line["seq"] for line in lines(tmp_path)] == list(range(1, 7))


def test_a_clock_that_is_set_back_begins_a_new_file(tmp_path):
    """Otherwise today's records would be in a file of a future day, which a query for today skips."""
    audit_log = audit_log_in(tmp_path)
    for at in (AT, AT + 120 * DAY, AT + 1, AT, AT - DAY / 2):
        audit_log.write(decision(at=at))
    audit_log.close()

    assert [path.name[:8] for path in sorted(tmp_path.iterdir())] == [
        "20270115",
        "20270115",
        "20270515",
    ]
    assert len(list(records(tmp_path))) == 5


def test_a_large_file_is_rotated(tmp_path):
    audit_log = audit_log_in(tmp_path, rotate_bytes=4096)
    for number in range(40):
        audit_log.write(decision(f"https://a.test/private/{number}"))
    audit_log.close()
    sizes = [path.stat().st_size for path in tmp_path.glob("*.jsonl")]

    assert len(sizes) > 3
    assert max(sizes) < 4096 + 1024
    assert [record.url.rpartition("/")[2] for record in records(tmp_path)] == [
        str(number) for number in range(40)
    ]


def test_if_no_new_file_can_be_created_the_old_one_is_used(tmp_path, monkeypatch):
    audit_log = audit_log_in(tmp_path, rotate_bytes=4096)
    audit_log.write(decision())

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        for _ in range(40):
            audit_log.write(decision())
    audit_log.close()

    assert len(list(records(tmp_path))) == 41


def test_all_writers_share_the_key_of_hashed_values_which_others_cannot_read(tmp_path):
    from robots_guard.audit.privacy import Privacy

    urls = []
    for _ in range(2):
        audit_log = audit_log_in(tmp_path, privacy=Privacy(query="hash"))
        audit_log.write(decision("https://a.test/x?q=hello&r=hello"))
        audit_log.close()
    urls = {record.url for record in records(tmp_path)}

    assert len(urls) == 1
    assert "hello" not in urls.pop()
    assert (tmp_path / ".key").stat().st_mode & 0o177 == 0
    assert [path.name for path in tmp_path.glob(".key*")] == [".key"]


def test_a_key_is_created_on_a_file_system_without_hard_links(tmp_path, monkeypatch):
    from robots_guard.audit.privacy import Privacy

    def link(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    for _ in range(2):
        audit_log = audit_log_in(tmp_path, privacy=Privacy(query="hash"))
        audit_log.write(decision("https://a.test/x?q=hello"))
        audit_log.close()

    assert len({record.url for record in records(tmp_path)}) == 1
    assert [path.name for path in tmp_path.glob(".key*")] == [".key"]


@pytest.mark.parametrize("data", [b"", b"k" * 31, b"k" * 33])
def test_a_damaged_key_is_refused(tmp_path, data):
    """A power failure may leave an empty key, under which hashed values could be found by trial."""
    from robots_guard.audit.privacy import Privacy

    (tmp_path / ".key").write_bytes(data)
    with pytest.raises(
        SettingsError, match=r"\.key' is not a key of 32 bytes: put it back .* or remove it"
    ):
        audit_log_in(tmp_path, privacy=Privacy(query="hash"))


# -- keeping ----------------------------------------------------------------------------------------------------


def test_maintenance_leaves_open_files_alone(tmp_path):
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision())
    for day in (1, 2, 100, 101):
        tidy(tmp_path, Retention(days=1), Inspection("boot", day * DAY, AT + day * DAY))

    assert [segment.path for segment in segments(tmp_path)] == [audit_log.path]
    with try_lock(audit_log.path) as descriptor:
        assert descriptor is None
    audit_log.close()
    with try_lock(segments(tmp_path)[0].path) as descriptor:
        assert descriptor is not None


def test_only_old_files_of_the_audit_log_are_removed(tmp_path):
    for name in (
        "20270101-h-1-ab-0001.jsonl",
        "20270102-h-1-ab-0001.warc.gz",
    ):
        (tmp_path / name).write_bytes(b"x")
    for name in ("notes.jsonl", "20260101.txt"):
        (tmp_path / name).write_bytes(b"x")
    gone = []
    for day in (0, 1, 11, 12):
        gone += retain(tmp_path, Retention(days=10), Inspection("boot", day * DAY, AT))

    assert [path.name for path in gone] == [
        "20270101-h-1-ab-0001.jsonl",
        "20270102-h-1-ab-0001.warc.gz",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".retention",
        "20260101.txt",
        "notes.jsonl",
    ]


def test_the_oldest_files_are_removed_until_the_rest_fits(tmp_path):
    for day in range(10, 15):
        (tmp_path / f"202701{day}-h-1-ab-0001.jsonl").write_bytes(b"x" * 100)
    gone = retain(tmp_path, Retention(days=0, size=250), Inspection("boot", 1.0, AT))

    assert [path.name[:8] for path in gone] == ["20270110", "20270111", "20270112"]


# -- full disks ----------------------------------------------------------------------------------------------


def no_space(descriptor, data):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("short", [0, 1, 40, -1])
def test_a_full_disk_at_every_nth_write(tmp_path, monkeypatch, short):
    """Only acknowledged records are read back, whichever write fails, and the next write succeeds."""
    real_write = os.write
    for nth in range(1, 201):
        directory = tmp_path / str(nth)
        audit_log = audit_log_in(directory, chain=True)
        calls = iter(range(1, 10_000))

        def fails_once(descriptor, data, nth=nth, calls=calls):
            if next(calls) != nth:
                return real_write(descriptor, data)
            return real_write(descriptor, data[:short]) if short else no_space(descriptor, data)

        monkeypatch.setattr(os, "write", fails_once)
        acknowledged = []
        for number in range(nth // 2 + 3 if nth > 20 else 25):
            try:
                audit_log.write(decision(f"https://a.test/private/{number}"))
                acknowledged.append(f"https://a.test/private/{number}")
            except AuditLogError:
                pass
        monkeypatch.setattr(os, "write", real_write)
        audit_log.close()
        trouble = Unreadable()

        assert [record.url for record in records(directory, trouble=trouble)] == acknowledged
        assert sum(trouble.torn.values()) <= 1
        assert not trouble.lines
        (found,) = verify(directory, Unreadable())
        assert found.chain == "whole"


def test_a_failed_write_is_an_error_and_keeps_the_chain_intact(tmp_path, monkeypatch):
    audit_log = audit_log_in(tmp_path, fsync=True, chain=True)
    audit_log.write(decision("https://a.test/1"))

    def fails(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(AuditLogError, match="Input/output error"):
            audit_log.write(decision("https://a.test/2"))
    audit_log.write(decision("https://a.test/3"))
    audit_log.close()
    (found,) = verify(tmp_path, Unreadable())

    assert [record.url[-1] for record in records(tmp_path)] == ["1", "2", "3"]
    assert (found.chain, found.problems) == ("whole", [])


# -- chains and verifying ----------------------------------------------------------------------------------------


@pytest.fixture
def chained(tmp_path):
    audit_log = audit_log_in(tmp_path, chain=True, rotate_bytes=200_000)
    for number in range(1200):
        audit_log.write(decision(f"https://a.test/private/{number}"))
    audit_log.close()
    return tmp_path


def test_the_chain_can_be_followed_by_the_digests_of_its_lines(chained):
    lines = b"".join(path.read_bytes() for path in sorted(chained.iterdir())).splitlines(True)
    records = [json.loads(line) for line in lines]
    head = hashlib.sha256(records[0]["writer"].encode()).digest()

    for digest, record in zip(map(hashlib.sha256, lines), records, strict=True):
        if record["kind"] in ("start", "checkpoint"):
            assert record.get("head", record.get("previous")) == head.hex()
        head = hashlib.sha256(head + digest.digest()).digest()

    (found,) = verify(chained, Unreadable())
    assert found.head == head.hex()


def test_a_checkpoint_follows_the_first_record_after_its_time(tmp_path):
    times = [0.0]
    audit_log = audit_log_in(tmp_path, chain=True, monotonic=lambda: times[0])
    for times[0] in (0.0, 299.9, 300.0, 599.9, 1000.0, 1001.0):
        audit_log.write(decision())
    kinds_then = kinds(tmp_path)
    audit_log.close()

    d, c = "decision", "checkpoint"
    assert kinds_then == ["start", d, d, d, c, d, d, c, d]
    assert kinds(tmp_path)[-2:] == ["stop", "checkpoint"]
    assert verify(tmp_path, Unreadable())[0].chain == "whole"


def test_the_last_record_of_an_idle_process_is_covered(tmp_path, monkeypatch):
    """A URL that was refused in the night is signed in the morning, without another request."""
    for module in ("log", "writer"):
        monkeypatch.setattr(f"robots_guard.audit.write.{module}.CHECKPOINT_SECONDS", 0.05)
    audit_log = audit_log_in(tmp_path, chain=True, monotonic=time.monotonic, writes_idle=True)
    audit_log.write(decision())
    eventually(lambda: kinds(tmp_path) == ["start", "decision", "checkpoint"])
    time.sleep(0.2)
    assert kinds(tmp_path) == ["start", "decision", "checkpoint"]

    audit_log.write(decision())
    eventually(lambda: kinds(tmp_path)[3:] == ["decision", "checkpoint"])
    audit_log.close()

    assert kinds(tmp_path)[5:] == ["stop", "checkpoint"]
    assert verify(tmp_path, Unreadable())[0].chain == "whole"


def test_an_untouched_audit_log_is_whole(chained):
    (found,) = verify(chained, Unreadable())

    assert len(list(chained.iterdir())) == 3, [path.stat().st_size for path in chained.iterdir()]
    assert (found.chain, found.problems, found.notes, found.stopped) == ("whole", [], [], True)
    assert found.records == found.last == 1200 + 3 + 1 + 2  # starts, a stop, checkpoints


@pytest.mark.parametrize("line", [1, 2, 500, 700, 1204])
def test_an_edited_line_is_found_between_two_checkpoints(chained, line):
    number = f'"seq":{line},'.encode()
    (path,) = (path for path in chained.iterdir() if number in path.read_bytes())
    data = path.read_bytes()
    place = data.index(number)
    path.write_bytes(
        data[:place] + data[place:].replace(b'"component":"cli"', b'"component":"CLI"', 1)
    )
    (found,) = verify(chained, Unreadable())

    assert found.chain == "broken"
    (problem,) = found.problems
    first, last = (int(word) for word in problem.split() if word.isdigit())
    assert first <= line <= last


def test_a_removed_line_is_a_gap_and_breaks_the_chain(chained):
    path = min(chained.iterdir())
    data = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(data[:10] + data[11:]))
    (found,) = verify(chained, Unreadable())

    assert found.problems[0] == "11 is missing: not written (full disk, I/O error), or removed"
    assert found.chain == "broken"


def test_a_removed_file_is_a_gap(chained):
    sorted(chained.iterdir())[1].unlink()
    (found,) = verify(chained, Unreadable())

    assert "are missing" in found.problems[0]


def test_if_earlier_files_are_missing_the_rest_is_checked(chained):
    min(chained.iterdir()).unlink()
    (found,) = verify(chained, Unreadable())

    assert (found.chain, found.problems) == ("whole", [])
    assert found.notes[0].startswith("begins at ")


def test_without_a_chain_gaps_are_found_but_edits_are_not(tmp_path):
    audit_log = audit_log_in(tmp_path)
    for _ in range(5):
        audit_log.write(decision())
    audit_log.close()
    data = audit_log.path.read_bytes().replace(b"mybot", b"MYBOT").splitlines(keepends=True)
    audit_log.path.write_bytes(b"".join(data[:2] + data[3:]))
    (found,) = verify(tmp_path, Unreadable())

    assert (found.chain, found.problems) == (
        "none",
        ["3 is missing: not written (full disk, I/O error), or removed"],
    )


def test_a_killed_writer_is_a_note_and_not_a_problem(tmp_path):
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision())
    data = audit_log.path.read_bytes()
    audit_log.close()
    audit_log.path.write_bytes(data + b'{"kind":"decision","sch')
    trouble = Unreadable()
    (found,) = verify(tmp_path, trouble)

    assert (found.problems, found.notes) == ([], ["ends without a stop: killed, or an I/O error"])
    assert (trouble.torn, trouble.lines) == ({audit_log.path.name: 1}, {})


def test_a_writer_that_was_killed_before_its_first_record_is_noted(tmp_path):
    """Its file is empty: it may have been fetching its first robots.txt."""
    audit_log = audit_log_in(tmp_path)
    (alive,) = verify(tmp_path, Unreadable())
    (left,) = tmp_path.glob("*.jsonl")
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(left, tmp_path / "elsewhere" / left.name)
    (killed,) = verify(tmp_path / "elsewhere", Unreadable())
    audit_log.close()

    assert verify(tmp_path, Unreadable()) == []  # one that ends leaves no empty file
    assert (alive.records, alive.problems, alive.notes) == (
        0,
        [],
        ["has written no record", "is being written"],
    )
    assert killed.writer == alive.writer != ""
    assert (killed.problems, killed.notes) == (
        [],
        ["has written no record", "ends without a stop: killed, or an I/O error"],
    )


@pytest.mark.parametrize("level", ["refusals", "summary"])
def test_relaxed_passes_are_recorded_at_every_level(tmp_path, level):
    audit_log = audit_log_in(tmp_path, audit=level)
    relaxed = Verdict(action=Action.PASS, reason=Reason.RESTRICTED, relaxed="on_restricted=allow")
    for _ in range(5):
        audit_log.write(decision(verdict=relaxed))
    audit_log.close()

    assert len(list(records(tmp_path))) == 5
