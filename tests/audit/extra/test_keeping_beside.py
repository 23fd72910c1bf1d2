"""Housekeeping after a killed compression, and with files that fail."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from audit.decisions import AT, audit_log_in, decision

from robots_guard.audit.write import maintenance
from robots_guard.audit.write.maintenance import clear, compress, retain
from robots_guard.audit.write.retention import DAY, Inspection, Retention

# These tests replace private steps of housekeeping, to fail something at that step.

NINETY = Retention(days=90)


def after(days):
    return Inspection(boot="b", up=1e6 + days * DAY, wall=AT + days * DAY)


def audit_log_of(directory, writers=2, records=50):
    for _ in range(writers):
        audit_log = audit_log_in(directory)
        for number in range(records):
            audit_log.write(decision(f"https://a.test/private/{number}"))
        audit_log.close()


def names_of(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


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
    (tmp_path / "mine.jsonl.zst.part").touch()
    (tmp_path / "20270101.zst.part").mkdir()
    clear(tmp_path)

    assert names_of(tmp_path) == ["20270101.zst.part", "mine.jsonl.zst.part"]


def test_the_account_lists_only_finished_files(tmp_path):
    audit_log_of(tmp_path, writers=1, records=1)
    compress(tmp_path)
    (tmp_path / "20270115-h-1-ab-0001.jsonl.zst.part").touch()
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
