"""Housekeeping during a compaction, after a killed compaction, and with files that fail."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from audit.decisions import AT, audit_log_in, decision

from robots_guard.audit import compaction as compacting
from robots_guard.audit.read.reader import Filter, entries
from robots_guard.audit.write import maintenance
from robots_guard.audit.write.maintenance import clear, compress, inspect, retain, tidy
from robots_guard.audit.write.retention import DAY, Inspection, Retention

# These tests replace private steps of compaction and housekeeping, to run or fail something at that
# step.

LATER = "99999999"
NINETY = Retention(days=90)
SMALL = Retention(days=90, size=1000)


def after(days):
    return Inspection(boot="b", up=1e6 + days * DAY, wall=AT + days * DAY)


def audit_log_of(directory, writers=2, records=50):
    for _ in range(writers):
        audit_log = audit_log_in(directory)
        for number in range(records):
            audit_log.write(decision(f"https://a.test/private/{number}"))
        audit_log.close()


def found(directory):
    return len(list(entries(directory, Filter())))


def names_of(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def beside(monkeypatch, step, work):
    """Do the work of another process after each call of this step of compaction."""
    real = getattr(compacting, step)

    def with_another(*args):
        done = real(*args)
        work()
        return done

    monkeypatch.setattr(compacting, step, with_another)


def compact_until_killed(directory, monkeypatch, step, call):
    """Compact in a process that is killed at this call of the step."""
    real, calls = getattr(compacting, step), iter(range(1, 100))

    def dies(*args):
        if next(calls) == call:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(compacting, step, dies)
        with pytest.raises(KeyboardInterrupt):
            compacting.compact(directory, LATER)


def test_records_compacted_during_housekeeping_keep_their_age(tmp_path, monkeypatch):
    audit_log_of(tmp_path)
    for day in range(89):
        retain(tmp_path, NINETY, after(day))
    beside(monkeypatch, "_copy_records", lambda: retain(tmp_path, NINETY, after(89)))
    (done,) = compacting.compact(tmp_path, LATER)
    for day in range(90, 93):
        retain(tmp_path, NINETY, after(day))

    assert not done.path.exists()


@pytest.mark.parametrize("step", ["_copy_records", "put_in_place"])
@pytest.mark.parametrize("keep", [retain, tidy])
def test_the_size_limit_leaves_files_being_compacted_alone(tmp_path, monkeypatch, step, keep):
    """At every step: before and after the renaming of the listing, and of the compacted file."""
    audit_log_of(tmp_path)
    beside(monkeypatch, step, lambda: keep(tmp_path, SMALL, inspect(AT)))
    (done,) = compacting.compact(tmp_path, LATER)

    assert names_of(tmp_path) == [done.path.name]
    assert found(tmp_path) == 100


def test_the_size_limit_does_not_count_files_being_compacted(tmp_path, monkeypatch):
    """Their records are temporarily on the disk twice, which must not cause other files to be removed."""
    older = tmp_path / "20270101-h-1-ab-0001.warc.gz"
    older.write_bytes(b"x")
    retain(tmp_path, NINETY, after(0))
    audit_log_of(tmp_path)
    limit = Retention(days=90, size=sum(path.stat().st_size for path in tmp_path.glob("2*")))
    beside(monkeypatch, "put_in_place", lambda: retain(tmp_path, limit, after(1)))
    compacting.compact(tmp_path, LATER)

    assert older.exists()


@pytest.mark.parametrize(
    ("step", "call"), [("put_in_place", 1), ("put_in_place", 2), ("finish", 2)]
)
def test_housekeeping_removes_what_a_killed_compaction_left(tmp_path, monkeypatch, step, call):
    audit_log_of(tmp_path)
    compact_until_killed(tmp_path, monkeypatch, step, call)
    retain(tmp_path, SMALL, after(0))
    assert found(tmp_path) in (0, 100)  # each record once, or gone for the limit
    tidy(tmp_path, NINETY, after(0))

    assert [name for name in names_of(tmp_path) if name.endswith((".part", ".sources"))] == []
    assert found(tmp_path) in (0, 100)


def test_a_listing_is_removed_before_its_records_could_be_duplicated(tmp_path, monkeypatch):
    audit_log_of(tmp_path)
    compact_until_killed(tmp_path, monkeypatch, "finish", 2)
    for limit in (1, 10**9):
        retain(tmp_path, Retention(days=0, size=limit), after(0))
        assert found(tmp_path) == 100
    clear(tmp_path)

    assert len(names_of(tmp_path)) == 1
    assert found(tmp_path) == 100


def test_a_half_compressed_file_is_removed_if_its_original_is_gone(tmp_path):
    part = tmp_path / "20270101-h-1-ab-0001.jsonl.zst.part"
    original = tmp_path / "20270101-h-1-ab-0001.jsonl"
    part.touch()
    original.write_bytes(b"x")
    clear(tmp_path)
    assert part.exists()
    original.unlink()
    clear(tmp_path)

    assert not part.exists()


def test_foreign_files_and_directories_are_left_alone(tmp_path):
    (tmp_path / "mine.parquet.part").touch()
    (tmp_path / "20270101.1.parquet.part").mkdir()
    clear(tmp_path)

    assert names_of(tmp_path) == ["20270101.1.parquet.part", "mine.parquet.part"]


def test_the_account_lists_only_finished_files(tmp_path):
    audit_log_of(tmp_path, writers=1, records=1)
    compress(tmp_path)
    for name in (
        "20270115.1.parquet.part",
        "20270115.1.sources",
        "20270115-h-1-ab-0001.jsonl.zst.part",
    ):
        (tmp_path / name).touch()
    retain(tmp_path, NINETY, after(0))

    (name,) = tmp_path.glob("*.zst")
    assert [*json.loads((tmp_path / ".retention").read_bytes())["seen"]] == [
        name.name.removesuffix(".jsonl.zst")
    ]


# -- a file that fails ------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_compressed_does_not_stop_others(tmp_path, monkeypatch, caplog):
    audit_log_of(tmp_path, writers=3, records=1)
    bad = sorted(tmp_path.glob("*.jsonl"))[1]
    real = maintenance._compress

    def fails(path, descriptor):
        if path == bad:
            raise OSError(errno.EIO, "Input/output error")
        return real(path, descriptor)

    monkeypatch.setattr(maintenance, "_compress", fails)

    assert compress(tmp_path) == 2
    assert [*tmp_path.glob("*.jsonl")] == [bad]
    assert f"{bad.name} could not be compressed" in caplog.text


def test_a_full_disk_stops_compression(tmp_path, monkeypatch):
    def fails(path, descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    audit_log_of(tmp_path, writers=1, records=1)
    monkeypatch.setattr(maintenance, "_compress", fails)
    with pytest.raises(OSError, match="No space left"):
        compress(tmp_path)


def test_a_file_that_cannot_be_removed_does_not_stop_others(tmp_path, monkeypatch, caplog):
    audit_log_of(tmp_path, writers=3, records=1)
    bad = min(tmp_path.glob("*.jsonl"))
    real = Path.unlink

    def fails(path, missing_ok=False):
        if path == bad:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", fails)
    gone = retain(tmp_path, Retention(days=0, size=1), after(0))

    assert len(gone) == 2
    assert [*tmp_path.glob("*.jsonl")] == [bad]
    assert (tmp_path / ".retention").exists()
    assert f"{bad.name} could not be removed" in caplog.text
