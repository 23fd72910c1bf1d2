"""The audit log: one write per record, one file per writer, and a gap for each lost record."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from audit.decisions import DEFER, DROP, PASS, audit_log_in, decision
from audit.killed import kill_one

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.errors import AuditLogError, SettingsError
from robots_guard.testing import CapturingAuditLog


@pytest.fixture
def audit_log(tmp_path):
    log = audit_log_in(tmp_path / "audit_log")
    yield log
    log.close()


def lines(path):
    """The decisions of a file."""
    return [line for line in every_line(path) if line["kind"] == "decision"]


def every_line(path):
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


def test_records_are_in_the_file_when_write_returns(audit_log):
    audit_log.write(decision(verdict=DROP))
    audit_log.write(decision(verdict=DEFER))

    found = lines(audit_log.path)
    assert [(record["seq"], record["action"]) for record in found] == [(2, "drop"), (3, "defer")]
    assert {record["writer"] for record in found} == {audit_log.writer}


def test_a_record_is_one_write(audit_log, monkeypatch):
    written, real_write = [], os.write
    monkeypatch.setattr(
        os, "write", lambda descriptor, data: written.append(data) or real_write(descriptor, data)
    )
    audit_log.write(decision())

    assert [json.loads(line)["kind"] for line in written] == ["start", "decision"]
    assert all(line.count(b"\n") == 1 for line in written)


def test_passes_are_recorded_by_setting_and_if_an_operators_choice_caused_them(tmp_path):
    relaxed = Verdict(action=Action.PASS, reason=Reason.RESTRICTED, relaxed="on_restricted=allow")
    bypassed = Verdict(action=Action.PASS, reason=Reason.BYPASSED)
    some, every = audit_log_in(tmp_path / "some"), audit_log_in(tmp_path / "every", audit="all")
    for verdict in (PASS, relaxed, bypassed, DROP):
        some.write(decision(verdict=verdict))
        every.write(decision(verdict=verdict))

    assert [record["reason"] for record in lines(some.path)] == [
        "restricted",
        "bypassed",
        "disallowed",
    ]
    assert [record["seq"] for record in lines(some.path)] == [2, 3, 4]
    assert len(lines(every.path)) == 4
    some.close()
    every.close()


def test_each_writer_has_a_file_of_its_own(tmp_path):
    first, second = (audit_log_in(tmp_path) for _ in range(2))
    first.write(decision())
    second.write(decision())

    assert first.path != second.path
    assert len(lines(first.path)) == len(lines(second.path)) == 1
    first.close()
    second.close()


def test_the_file_is_not_readable_by_other_users(audit_log):
    audit_log.write(decision())

    assert audit_log.path.stat().st_mode & 0o137 == 0
    assert audit_log.directory.stat().st_mode & 0o027 == 0


def test_a_file_without_records_is_removed(tmp_path):
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision(verdict=PASS))
    audit_log.close()
    audit_log.close()

    assert list(tmp_path.iterdir()) == []


def test_after_a_short_write_the_next_record_begins_on_a_line_of_its_own(audit_log, monkeypatch):
    """As on a full disk: part of a record is written, and later there is space again."""
    real_write, room = os.write, [50, 0]

    def fills(descriptor, data):
        left = room.pop(0)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:left])

    audit_log.write(decision())
    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(AuditLogError, match="No space left on device"):
        audit_log.write(decision())
    monkeypatch.setattr(os, "write", real_write)
    audit_log.write(decision())

    _, first, torn, last = audit_log.path.read_bytes().splitlines()
    assert (json.loads(first)["seq"], json.loads(last)["seq"]) == (2, 4)
    assert len(torn) == 50


def test_a_full_disk_is_an_audit_log_error_and_leaves_a_gap(audit_log, monkeypatch):
    real_write = os.write

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        with pytest.raises(AuditLogError, match="No space left on device"):
            audit_log.write(decision())
    monkeypatch.setattr(os, "write", real_write)
    audit_log.write(decision())

    assert [(record["kind"], record["seq"]) for record in every_line(audit_log.path)] == [
        ("start", 4),
        ("decision", 5),
    ]


def test_threads_do_not_mix_their_records(audit_log):
    def work():
        for _ in range(200):
            audit_log.write(decision(user_agent="x" * 200))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert [record["seq"] for record in lines(audit_log.path)] == list(range(2, 1602))


FORKS = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import decision, audit_log_in
audit_log = audit_log_in(Path(sys.argv[1]))
audit_log.write(decision(client="parent"))
child = os.fork()
if child == 0:
    for _ in range(2):
        audit_log.write(decision(client="child"))
    audit_log.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
audit_log.write(decision(client="parent"))
audit_log.close()
"""


def test_a_forked_child_begins_a_file_of_its_own(tmp_path):
    tests = str(Path(__file__).parents[1])
    subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKS, str(tmp_path), tests], check=True, timeout=60
    )

    found = sorted(
        [(record["client"], record["seq"]) for record in lines(path)] for path in tmp_path.iterdir()
    )
    assert found == [[("child", 2), ("child", 3)], [("parent", 2), ("parent", 3)]]


def test_records_acknowledged_by_killed_processes_are_in_their_files(tmp_path):
    """A test run kills a few processes; benchmarks/audit_log.py kills 500."""
    outcomes = [kill_one(tmp_path / str(number), after=number * 0.02) for number in range(8)]

    assert all(outcome.torn <= 1 for outcome in outcomes)
    assert sum(outcome.acknowledged for outcome in outcomes) > 1000


# -- directories that cannot be used ------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_file_in_place_of_the_directory_is_reported_with_the_remedy(tmp_path, inside):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SettingsError, match=r"^audit_log: .*name a directory that can be written to$"
    ):
        audit_log_in(tmp_path / "file" / inside)


@pytest.mark.parametrize("directory", ["/proc", "/proc/self/none", "a\0b"])
def test_a_directory_that_cannot_be_written_to_is_refused_at_the_start(directory):
    with pytest.raises(SettingsError, match="name a directory that can be written to"):
        audit_log_in(Path(directory))


def test_the_capturing_audit_log_has_all_records():
    audit_log = CapturingAuditLog()
    audit_log.write(decision(verdict=PASS))
    audit_log.write(decision(verdict=DROP))
    audit_log.close()

    assert [(record.seq, record.action) for record in audit_log.records] == [
        (1, "pass"),
        (2, "drop"),
    ]
