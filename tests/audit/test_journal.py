"""The journal: one write a record, one file a writer, and a gap where one was lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from audit.decisions import DEFER, DROP, PASS, decision, journal_in
from audit.killed import kill_one

from robots_guard.audit.journal import CapturingJournal
from robots_guard.core.verdict import Action, Reason, Verdict
from robots_guard.errors import JournalError, SettingsError


@pytest.fixture
def journal(tmp_path):
    made = journal_in(tmp_path / "journal")
    yield made
    made.close()


def lines(path):
    """The decisions of a file."""
    return [line for line in every_line(path) if line["kind"] == "decision"]


def every_line(path):
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


def test_records_are_there_when_write_returns(journal):
    journal.write(decision(verdict=DROP))
    journal.write(decision(verdict=DEFER))

    found = lines(journal.path)
    assert [(record["seq"], record["action"]) for record in found] == [(2, "drop"), (3, "defer")]
    assert {record["writer"] for record in found} == {journal.writer}


def test_a_record_is_one_write(journal, monkeypatch):
    written, whole = [], os.write
    monkeypatch.setattr(os, "write", lambda descriptor, octets: written.append(octets) or whole(descriptor, octets))
    journal.write(decision())

    assert [json.loads(line)["kind"] for line in written] == ["start", "decision"]
    assert all(line.count(b"\n") == 1 for line in written)


def test_passes_are_recorded_when_asked_for_and_when_somebody_chose_them(tmp_path):
    relaxed = Verdict(action=Action.PASS, reason=Reason.RESTRICTED, relaxed="on_restricted=allow")
    bypassed = Verdict(action=Action.PASS, reason=Reason.BYPASSED)
    some, every = journal_in(tmp_path / "some"), journal_in(tmp_path / "every", passes=1)
    for verdict in (PASS, relaxed, bypassed, DROP):
        some.write(decision(verdict=verdict))
        every.write(decision(verdict=verdict))

    assert [record["reason"] for record in lines(some.path)] == ["restricted", "bypassed", "disallowed"]
    assert [record["seq"] for record in lines(some.path)] == [2, 3, 4]
    assert len(lines(every.path)) == 4
    some.close()
    every.close()


def test_each_writer_has_a_file_of_its_own(tmp_path):
    first, second = (journal_in(tmp_path) for _ in range(2))
    first.write(decision())
    second.write(decision())

    assert first.path != second.path
    assert len(lines(first.path)) == len(lines(second.path)) == 1
    first.close()
    second.close()


def test_the_file_is_not_for_everybody(journal):
    journal.write(decision())

    assert journal.path.stat().st_mode & 0o137 == 0
    assert journal.directory.stat().st_mode & 0o027 == 0


def test_a_file_without_records_is_not_left_behind(tmp_path):
    journal = journal_in(tmp_path)
    journal.write(decision(verdict=PASS))
    journal.close()
    journal.close()

    assert list(tmp_path.iterdir()) == []


def test_after_a_short_write_the_next_record_begins_on_a_line_of_its_own(journal, monkeypatch):
    """As on a full disk: part of a record goes in, and later there is room again."""
    whole, room = os.write, [50, 0]

    def fills(descriptor, octets):
        left = room.pop(0)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(descriptor, octets[:left])

    journal.write(decision())
    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(JournalError, match="No space left on device"):
        journal.write(decision())
    monkeypatch.setattr(os, "write", whole)
    journal.write(decision())

    _, first, torn, last = journal.path.read_bytes().splitlines()
    assert (json.loads(first)["seq"], json.loads(last)["seq"]) == (2, 4)
    assert len(torn) == 50


def test_a_full_disk_is_a_journal_error_and_leaves_a_gap(journal, monkeypatch):
    whole = os.write

    def full(descriptor, octets):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        with pytest.raises(JournalError, match="No space left on device"):
            journal.write(decision())
    monkeypatch.setattr(os, "write", whole)
    journal.write(decision())

    assert [(record["kind"], record["seq"]) for record in every_line(journal.path)] == [("start", 4), ("decision", 5)]


def test_threads_do_not_mix_their_records(journal):
    def work():
        for _ in range(200):
            journal.write(decision(user_agent="x" * 200))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert [record["seq"] for record in lines(journal.path)] == list(range(2, 1602))


FORKS = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import decision, journal_in
journal = journal_in(Path(sys.argv[1]))
journal.write(decision(client="parent"))
child = os.fork()
if child == 0:
    for _ in range(2):
        journal.write(decision(client="child"))
    journal.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
journal.write(decision(client="parent"))
journal.close()
"""


def test_a_forked_child_begins_a_file_of_its_own(tmp_path):
    tests = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-W", "error", "-c", FORKS, str(tmp_path), tests], check=True, timeout=60)

    found = sorted([(record["client"], record["seq"]) for record in lines(path)] for path in tmp_path.iterdir())
    assert found == [[("child", 2), ("child", 3)], [("parent", 2), ("parent", 3)]]


def test_what_killed_processes_acknowledged_is_in_their_files(tmp_path):
    """A few, for each run of the tests; benchmarks/journal.py kills 500."""
    outcomes = [kill_one(tmp_path / str(number), after=number * 0.02) for number in range(8)]

    assert all(outcome.torn <= 1 for outcome in outcomes)
    assert sum(outcome.acknowledged for outcome in outcomes) > 1000


# -- directories that cannot be used ------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_file_in_the_way_is_one_sentence_with_the_remedy(tmp_path, inside):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"^journal: .*name a directory that can be written to$"):
        journal_in(tmp_path / "file" / inside)


@pytest.mark.parametrize("directory", ["/proc", "/proc/self/none", "a\0b"])
def test_a_directory_that_cannot_be_written_to_is_refused_at_the_start(directory):
    with pytest.raises(SettingsError, match="name a directory that can be written to"):
        journal_in(Path(directory))


def test_the_capturing_journal_keeps_everything_for_tests():
    journal = CapturingJournal()
    journal.write(decision(verdict=PASS))
    journal.write(decision(verdict=DROP))
    journal.close()

    assert [(record.seq, record.action) for record in journal.records] == [(1, "pass"), (2, "drop")]
