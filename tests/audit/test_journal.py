"""The journal: one write a record, one file a writer, and a gap where one was lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from audit.decisions import DEFER, DROP, PASS, decision

from robots_guard.audit.journal import CapturingJournal, FileJournal
from robots_guard.core.verdict import Action, Reason, Verdict
from robots_guard.errors import JournalError, SettingsError


@pytest.fixture
def journal(tmp_path):
    made = FileJournal(tmp_path / "journal", passes=False)
    yield made
    made.close()


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


def test_records_are_there_when_write_returns(journal):
    journal.write(decision(verdict=DROP))
    journal.write(decision(verdict=DEFER))

    found = lines(journal.path)
    assert [(record["seq"], record["action"]) for record in found] == [(1, "drop"), (2, "defer")]
    assert {record["writer"] for record in found} == {journal.path.stem}


def test_a_record_is_one_write(journal, monkeypatch):
    written = []
    monkeypatch.setattr(os, "write", lambda descriptor, octets: written.append(octets) or len(octets))
    journal.write(decision())

    assert len(written) == 1
    assert written[0].count(b"\n") == 1


def test_passes_are_recorded_when_asked_for_and_when_somebody_chose_them(tmp_path):
    relaxed = Verdict(action=Action.PASS, reason=Reason.RESTRICTED, relaxed="on_restricted=allow")
    bypassed = Verdict(action=Action.PASS, reason=Reason.BYPASSED)
    some, every = FileJournal(tmp_path / "some", passes=False), FileJournal(tmp_path / "every", passes=True)
    for verdict in (PASS, relaxed, bypassed, DROP):
        some.write(decision(verdict=verdict))
        every.write(decision(verdict=verdict))

    assert [record["reason"] for record in lines(some.path)] == ["restricted", "bypassed", "disallowed"]
    assert [record["seq"] for record in lines(some.path)] == [1, 2, 3]
    assert len(lines(every.path)) == 4
    some.close()
    every.close()


def test_each_writer_has_a_file_of_its_own(tmp_path):
    first, second = (FileJournal(tmp_path, passes=False) for _ in range(2))
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
    journal = FileJournal(tmp_path, passes=False)
    journal.write(decision(verdict=PASS))
    journal.close()
    journal.close()

    assert list(tmp_path.iterdir()) == []


def test_after_a_short_write_the_next_record_begins_on_a_line_of_its_own(journal, monkeypatch):
    """As on a full disk: part of a record goes in, and later there is room again."""
    whole = os.write
    journal.write(decision())
    monkeypatch.setattr(os, "write", lambda descriptor, octets: whole(descriptor, octets[:50]))
    with pytest.raises(JournalError, match="only 50 of"):
        journal.write(decision())
    monkeypatch.setattr(os, "write", whole)
    journal.write(decision())

    first, torn, last = journal.path.read_bytes().splitlines()
    assert (json.loads(first)["seq"], json.loads(last)["seq"]) == (1, 3)
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

    assert [record["seq"] for record in lines(journal.path)] == [4]


def test_threads_do_not_mix_their_records(journal):
    def work():
        for _ in range(200):
            journal.write(decision(user_agent="x" * 200))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert [record["seq"] for record in lines(journal.path)] == list(range(1, 1601))


FORKS = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import decision
from robots_guard.audit.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]), passes=False)
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
    assert found == [[("child", 1), ("child", 2)], [("parent", 1), ("parent", 2)]]


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import decision
from robots_guard.audit.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]), passes=False)
number = 0
while True:
    number += 1
    journal.write(decision())
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_what_a_killed_process_acknowledged_is_in_the_file(tmp_path):
    tests = str(Path(__file__).parents[1])
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), tests], stdout=subprocess.PIPE)
    acknowledged = [child.stdout.readline() for _ in range(500)]
    child.kill()
    acknowledged += child.stdout.readlines()
    child.wait(30)
    child.stdout.close()

    (path,) = tmp_path.iterdir()
    whole = [line for line in acknowledged if line.endswith(b"\n")]
    assert len(lines(path)) >= int(whole[-1]) >= 500


# -- directories that cannot be used ------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_file_in_the_way_is_one_sentence_with_the_remedy(tmp_path, inside):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"^journal: .*name a directory that can be written to$"):
        FileJournal(tmp_path / "file" / inside, passes=False)


@pytest.mark.parametrize("directory", ["/proc", "/proc/self/none", "a\0b"])
def test_a_directory_that_cannot_be_written_to_is_refused_at_the_start(directory):
    with pytest.raises(SettingsError, match="name a directory that can be written to"):
        FileJournal(Path(directory), passes=False)


def test_the_capturing_journal_keeps_everything_for_tests():
    journal = CapturingJournal()
    journal.write(decision(verdict=PASS))
    journal.write(decision(verdict=DROP))
    journal.close()

    assert [(record.seq, record.action) for record in journal.records] == [(1, "pass"), (2, "drop")]
