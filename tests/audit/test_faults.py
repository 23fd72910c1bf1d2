"""The writer continues after errors of its file, and after another process changed the file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from audit.decisions import AT, audit_log_in, decision, policy

from robots_guard.audit.files import Files
from robots_guard.audit.read.reader import Filter, Unreadable, entries, records
from robots_guard.audit.read.verify import verify
from robots_guard.decisions.access import Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.errors import AuditLogError, UnconfirmedRecord

TESTS = str(Path(__file__).parents[1])


def clients(directory, trouble=None):
    return [record.client for record in records(directory, trouble=trouble)]


class Clock:
    """A monotonic clock that the test sets."""

    def __init__(self):
        self.now = 7.0

    def __call__(self):
        return self.now


class Failing(Files):
    """Calls whose names are in `failing` raise `error`; `opened` counts the created files."""

    def __init__(self, error=errno.EIO):
        self.error = error
        self.failing = set()
        self.opened = 0

    def _call(self, name):
        if name in self.failing:
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path, flags, mode=0o640):
        self.opened += bool(flags & os.O_CREAT)
        return super().open(path, flags, mode)

    def write(self, descriptor, data):
        self._call("write")
        return super().write(descriptor, data)

    def fdatasync(self, descriptor):
        self._call("fdatasync")
        super().fdatasync(descriptor)


# -- errors -----------------------------------------------------------------------------------------------------

LIMITED = """
import itertools, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
from audit.decisions import AT, decision, audit_log_in, policy
audit_log = audit_log_in(Path(sys.argv[1]), chain=True, monotonic=itertools.count().__next__, retention=None)
for number in range(100):
    audit_log.write(decision(client=str(number)))
audit_log.close()
"""


def test_at_the_file_size_limit_the_writer_continues_in_another_file(tmp_path):
    """With a real limit (EFBIG): the write that reaches it is short, and the record is written again to the next
    file."""
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path), TESTS], check=True, timeout=60)
    trouble = Unreadable()

    assert clients(tmp_path, trouble) == [str(number) for number in range(100)]
    assert len(list(tmp_path.iterdir())) >= 4
    assert not trouble.lines
    (found,) = verify(tmp_path, Unreadable())
    assert (found.problems, found.chain, found.stopped) == ([], "whole", True)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EBADF, errno.EFBIG])
def test_after_an_error_another_file_is_tried_at_most_once_a_second(tmp_path, error):
    clock, files = Clock(), Failing(error)
    audit_log = audit_log_in(tmp_path, files=files, monotonic=clock, retention=None)
    audit_log.write(decision(client="before"))
    files.failing = {"write"}
    for number in range(50):  # 5 seconds
        clock.now = 100 + number / 10
        with pytest.raises(AuditLogError, match=r"-\d{4}\.jsonl: "):
            audit_log.write(decision(client="refused"))
    assert files.opened == 1 + 5
    files.failing = set()
    audit_log.write(decision(client="after"))
    audit_log.close()

    assert clients(tmp_path) == ["before", "after"]
    assert len(list(tmp_path.iterdir())) == 2  # those without a record are gone
    assert verify(tmp_path, Unreadable())[0].notes == [
        "reports that 50 records could not be written"
    ]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_no_other_file_is_tried(tmp_path, error):
    clock, files = Clock(), Failing(error)
    audit_log = audit_log_in(tmp_path, files=files, monotonic=clock, retention=None)
    files.failing = {"write"}
    for clock.now in range(10, 20):
        with pytest.raises(AuditLogError):
            audit_log.write(decision())
    files.failing = set()
    audit_log.write(decision(client="after"))
    audit_log.close()

    assert files.opened == 1
    assert clients(tmp_path) == ["after"]


def test_after_a_failed_sync_the_writer_leaves_the_file(tmp_path):
    """The system may have dropped the data, and report success for the next sync."""
    clock, files = Clock(), Failing(errno.EIO)
    audit_log = audit_log_in(tmp_path, files=files, monotonic=clock, fsync=True, retention=None)
    audit_log.write(decision(client="1"))
    files.failing = {"fdatasync"}
    with pytest.raises(AuditLogError, match="Input/output error"):
        audit_log.write(decision(client="2"))
    files.failing = set()
    audit_log.write(decision(client="3"))
    audit_log.close()

    assert files.opened == 2
    assert "3" in clients(tmp_path)
    assert audit_log.path.name.endswith("-0002.jsonl")


DAEMON = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import AT, decision, audit_log_in, policy
audit_log = audit_log_in(Path(sys.argv[1]), retention=None)
audit_log.write(decision(client="before"))
os.closerange(3, 100)
audit_log.write(decision(client="after"))
os.closerange(3, 100)
other = [os.open(sys.argv[3], os.O_RDWR | os.O_CREAT) for _ in range(20)]
audit_log.close()
[os.fstat(descriptor) for descriptor in other]  # none was closed
"""


def test_a_daemon_that_closes_all_descriptors_can_still_record(tmp_path):
    command = [sys.executable, "-c", DAEMON, str(tmp_path / "log"), TESTS, str(tmp_path / "other")]
    subprocess.run(command, check=True, timeout=60)

    assert clients(tmp_path / "log") == ["before", "after"]


def test_if_no_thread_can_be_started_the_record_is_written(tmp_path, monkeypatch):
    """As in an exiting process, in which Python starts no more threads."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision(client="1"))
    audit_log.close()

    assert clients(tmp_path) == ["1"]


@pytest.mark.parametrize("room", [0, 50])
def test_after_failed_evidence_the_fetch_is_recorded_and_another_evidence_file_begun(
    tmp_path, room
):
    """Readers stop at a torn record of a WARC file."""
    pytest.importorskip("warcio")

    class Small(Failing):
        def write(self, descriptor, data):
            if "evidence" in self.failing and data.startswith(b"\x1f\x8b"):
                if not room:
                    raise OSError(errno.EIO, "Input/output error")
                return super().write(descriptor, data[:room])
            return super().write(descriptor, data)

    from warcio.archiveiterator import ArchiveIterator

    files = Small()
    audit_log = audit_log_in(tmp_path, files=files, audit="evidence", retention=None)
    values = {"at": AT, "origin": policy().origin, "via": "direct", "elapsed": 0.1}
    fetches = [
        FetchMade(
            get=Get(url=f"https://a.test/{number}"),
            outcome=Fetched(status=200, body=b"x"),
            **values,
        )
        for number in range(4)
    ]
    audit_log.note(fetches[0])
    files.failing = {"evidence"}
    for fetch in fetches[1:3]:
        with pytest.raises(AuditLogError, match=r"^evidence: "):
            audit_log.note(fetch)
    files.failing = set()
    audit_log.note(fetches[3])
    audit_log.close()
    found = list(entries(tmp_path, Filter(kind="fetch")))
    (last,) = (record for record in found if record.url.endswith("/3"))
    with (tmp_path / last.warc_file).open("rb") as file:
        kept = [record.rec_headers.get_header("WARC-Record-ID") for record in ArchiveIterator(file)]

    assert [bool(record.warc_id) for record in found] == [True, False, False, True]
    assert last.warc_id in kept


def test_a_failed_checkpoint_does_not_refuse_a_record(tmp_path):
    class Small(Failing):
        def write(self, descriptor, data):
            if b'"kind":"checkpoint"' in data and "checkpoint" in self.failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(descriptor, data)

    files = Small()
    audit_log = audit_log_in(tmp_path, files=files, chain=True, retention=None)
    files.failing = {"checkpoint"}
    for _ in range(1100):
        audit_log.write(decision())
    files.failing = set()
    audit_log.close()

    assert len(clients(tmp_path)) == 1100
    assert verify(tmp_path, Unreadable())[0].chain == "whole"


# -- renaming -----------------------------------------------------------------------------------------------------


class Renaming(Files):
    """Another process renames the file before or after the next write of `wanted`."""

    def __init__(self, path, new, wanted, when):
        self.path, self.new, self.wanted, self.when = path, new, wanted, when

    def write(self, descriptor, data):
        if self.wanted not in data:
            return super().write(descriptor, data)
        self.wanted = b"nothing"
        if self.when == "before":
            self.path().rename(self.new)
        written = super().write(descriptor, data)
        if self.when == "after":
            self.path().rename(self.new)
        return written


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("wanted", [b'"start"', b'"second"', b'"stop"'])
@pytest.mark.parametrize(
    "name", ["moved.jsonl", "20270115-a-1-b-0001-20270115.jsonl", "moved.jsonl.1", "moved.log"]
)
def test_a_renamed_file_has_each_record_once(tmp_path, name, wanted, when):
    """Readers read each `*.jsonl` in the directory, and no other file."""
    files = Renaming(lambda: audit_log.path, tmp_path / name, wanted, when)
    audit_log = audit_log_in(tmp_path, files=files, chain=True, retention=None)
    written = ["first", "second", "third", "fourth"]
    for client in written:
        audit_log.write(decision(client=client))
    audit_log.close()

    found = clients(tmp_path)
    lost = [] if name.endswith(".jsonl") or wanted == b'"start"' else ["first"]
    if wanted == b'"stop"' and not name.endswith(".jsonl"):
        lost = written
    assert found == [client for client in written if client not in lost]
    numbers = sorted(entry.seq for entry in entries(tmp_path, Filter(kind=None)))
    assert len(numbers) == len(set(numbers))
    if name == "moved.jsonl":
        (finding,) = verify(tmp_path, Unreadable())
        assert (finding.problems, finding.notes, finding.chain) == ([], [], "whole")


def test_after_a_rename_the_next_record_begins_another_file(tmp_path, caplog):
    audit_log = audit_log_in(tmp_path, retention=None)
    audit_log.write(decision(client="1"))
    audit_log.path.rename(tmp_path / "moved.jsonl")
    audit_log.write(decision(client="2"))
    assert audit_log.path == tmp_path / "moved.jsonl"
    audit_log.write(decision(client="3"))
    audit_log.close()

    assert audit_log.path.name.endswith("-0002.jsonl")
    assert b'"client":"3"' not in (tmp_path / "moved.jsonl").read_bytes()
    assert "renamed a file to" in caplog.text


def test_a_renamed_file_in_a_directory_that_cannot_be_listed_is_not_written_again(
    tmp_path, monkeypatch
):
    """It is unknown whether readers find the record: it counts as not recorded, and is not written again."""
    audit_log = audit_log_in(tmp_path, retention=None)
    audit_log.write(decision(client="1"))
    audit_log.path.rename(tmp_path / "moved.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", denied)
        with pytest.raises(UnconfirmedRecord, match="renamed"):
            audit_log.write(decision(client="2"))
    audit_log.write(decision(client="3"))
    audit_log.close()

    assert clients(tmp_path) == ["1", "2", "3"]


def denied(*arguments):
    raise PermissionError(errno.EACCES, "Permission denied")


# -- truncation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["between", "while"])
@pytest.mark.parametrize("size", [0, 100, -7, -1, +1000])
def test_a_file_that_another_process_truncates_loses_no_later_record(
    tmp_path, size, moment, monkeypatch
):
    """After truncation within a line, the next record must still begin on a line of its own."""
    audit_log = audit_log_in(tmp_path, retention=None)
    for client in ("1", "2"):
        audit_log.write(decision(client=client))
    path, whole = audit_log.path, os.write

    def truncate():
        os.truncate(path, size if size in (0, 100) else path.stat().st_size + size)

    def write(descriptor, data):
        monkeypatch.setattr(os, "write", whole)
        truncate()
        return whole(descriptor, data)

    if moment == "between":
        truncate()
    else:
        monkeypatch.setattr(os, "write", write)
    for client in ("3", "4"):
        audit_log.write(decision(client=client))
    audit_log.close()

    found = clients(tmp_path)
    assert found[-2:] == ["3", "4"]
    assert len(found) == len(set(found))


def test_after_copytruncate_the_writer_begins_another_file(tmp_path):
    audit_log = audit_log_in(tmp_path, retention=None)
    for client in ("1", "2"):
        audit_log.write(decision(client=client))
    path = audit_log.path
    (tmp_path / "copy").write_bytes(path.read_bytes())
    os.truncate(path, 0)
    for client in ("3", "4", "5"):
        audit_log.write(decision(client=client))
    audit_log.close()

    assert clients(tmp_path) == ["3", "4", "5"]
    assert audit_log.path != path
    assert b'"kind":"start"' in audit_log.path.read_bytes()
