"""Creating files while housekeeping runs and processes are killed loses no record."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from audit.decisions import audit_log_in, decision

from robots_guard.audit.files import Files
from robots_guard.audit.read.reader import Unreadable, records
from robots_guard.audit.read.verify import verify
from robots_guard.audit.write import maintenance
from robots_guard.audit.write.maintenance import compress, tidy
from robots_guard.audit.write.retention import Retention
from robots_guard.errors import SettingsError

TESTS = Path(__file__).parents[1]
LONG_AGO = 1_000_000_000


def clients(directory):
    return [record.client for record in records(directory)]


def verified(directory):
    """The problems of all writers that `verify` finds."""
    return [problem for found in verify(directory, Unreadable()) for problem in found.problems]


def test_a_compressor_that_opens_a_file_before_its_lock_loses_nothing(tmp_path, monkeypatch):
    """It has opened the new file when the writer locks it, and removes it once the record is written."""
    flock, unlink = fcntl.flock, Path.unlink
    main, reached, go_on = threading.current_thread(), threading.Event(), threading.Event()
    compressors = []

    def flock_later(descriptor, operation):
        if threading.current_thread() is main and not compressors:
            compressors.append(threading.Thread(target=compress, args=(tmp_path,)))
            compressors[0].start()
            while compressors[0].is_alive() and not reached.wait(0.01):
                pass
        flock(descriptor, operation)

    def unlink_later(path, **values):
        if threading.current_thread() is not main:
            reached.set()
            go_on.wait(60)
        unlink(path, **values)

    monkeypatch.setattr(fcntl, "flock", flock_later)
    monkeypatch.setattr(Path, "unlink", unlink_later)
    audit_log = audit_log_in(tmp_path, retention=None)
    audit_log.write(decision(client="first"))
    go_on.set()
    compressors[0].join(60)
    audit_log.write(decision(client="second"))
    audit_log.close()

    assert clients(tmp_path) == ["first", "second"]


def test_a_record_written_to_a_removed_file_is_written_again(tmp_path, monkeypatch, caplog):
    """It counts once: numbers and chain continue as if it had never been in the removed file."""
    write = os.write
    audit_log = audit_log_in(tmp_path, chain=True)
    audit_log.write(decision(client="removed with its file"))

    def removed_before(descriptor, data):
        monkeypatch.setattr(os, "write", write)
        audit_log.path.unlink()
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", removed_before)
    audit_log.write(decision(client="1"))
    audit_log.write(decision(client="2"))
    audit_log.close()
    (found,) = verify(tmp_path, Unreadable())

    assert clients(tmp_path) == ["1", "2"]
    assert (found.problems, found.chain, found.first, found.last) == ([], "whole", 3, 7)
    assert "removed or changed by another process" in caplog.text


# -- locks ------------------------------------------------------------------------------------------------------


class Locking(Files):
    """File locks that fail with the given errors, one after the other, and then work."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def flock(self, descriptor, operation):
        if operation != fcntl.LOCK_UN and self.errors and (error := self.errors.pop(0)):
            raise OSError(error, os.strerror(error))
        super().flock(descriptor, operation)


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_can_be_used(tmp_path, error):
    audit_log = audit_log_in(tmp_path, files=Locking(error))
    audit_log.write(decision(client="1"))
    audit_log.close()

    assert clients(tmp_path) == ["1"]


def test_a_file_that_another_process_has_locked_is_not_used(tmp_path):
    audit_log = audit_log_in(tmp_path, files=Locking(errno.EWOULDBLOCK, errno.EWOULDBLOCK))
    with maintenance.try_lock(audit_log.path) as descriptor:
        assert descriptor is None
    assert [path.name for path in tmp_path.iterdir()] == [audit_log.path.name]
    audit_log.close()


@pytest.mark.parametrize("errors", [[errno.EIO], [errno.EWOULDBLOCK] * 20])
def test_a_failing_lock_is_reported_at_the_start(tmp_path, errors):
    with pytest.raises(
        SettingsError, match=r"Input/output error|another process locks each new file"
    ):
        audit_log_in(tmp_path, files=Locking(*errors))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links_can_be_used(tmp_path):
    class Linkless(Files):
        def link(self, old, new):
            raise OSError(errno.EPERM, "Operation not permitted")

    audit_log = audit_log_in(tmp_path, files=Linkless())
    audit_log.write(decision(client="1"))
    assert [path.name for path in tmp_path.iterdir()] == [audit_log.path.name]
    audit_log.close()

    assert clients(tmp_path) == ["1"]


# -- what a killed process leaves -----------------------------------------------------------------------------------


class Killed(BaseException):
    """Raised where the process is killed."""


class Dying(Files):
    """A process killed before its n-th system call: no later call has any effect."""

    def __init__(self, calls):
        self.left = calls
        self.open_descriptors = set()

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name in ("left", "open_descriptors", "die", "count") or name.startswith("__"):
            return found
        self.count()
        return found

    def count(self):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def open(self, path, flags, mode=0o640):
        descriptor = super().open(path, flags, mode)
        self.open_descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor):
        self.open_descriptors.discard(descriptor)
        super().close(descriptor)

    def die(self):
        for descriptor in self.open_descriptors:
            os.close(descriptor)


@pytest.mark.parametrize("calls", range(30))
def test_a_kill_at_any_call_leaves_no_garbage_and_loses_nothing(tmp_path, calls):
    files, acknowledged = Dying(calls), []
    try:
        audit_log = audit_log_in(tmp_path, files=files, retention=None, rotate_bytes=600)
        for number in range(3):
            audit_log.write(decision(client=str(number)))
            acknowledged.append(str(number))
    except Killed:
        pass
    files.die()
    for left in tmp_path.glob(".*.new"):
        os.utime(left, (LONG_AGO, LONG_AGO))
    tidy(tmp_path, Retention(days=0), maintenance.inspect(time.time()))

    found = clients(tmp_path)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1  # written, and killed before that was said
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")]


def test_only_empty_old_and_unlocked_files_are_cleared(tmp_path):
    made = {
        name: tmp_path / f".20270115-h-1-{name}-0001.new"
        for name in ("void", "held", "full", "second", "young")
    }
    for path in made.values():
        path.touch()
    made["full"].write_text('{"kind":"start"}\n')
    made["second"].write_text('{"kind":"start"}\n')
    os.link(made["second"], tmp_path / "20270115-h-1-second-0001.jsonl")
    (tmp_path / ".notes.new").touch()
    (tmp_path / ".20270115-h-1-link-0001.new").symlink_to(made["full"])
    for name in ("void", "held", "full", "second"):
        os.utime(made[name], (LONG_AGO, LONG_AGO))
    with made["held"].open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        maintenance.clear(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".20270115-h-1-full-0001.new",
        ".20270115-h-1-held-0001.new",
        ".20270115-h-1-link-0001.new",
        ".20270115-h-1-young-0001.new",
        ".notes.new",
        "20270115-h-1-second-0001.jsonl",
    ]


# -- real processes -------------------------------------------------------------------------------------------------

WRITES = """
import fcntl, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
flock = fcntl.flock
def later(*arguments):
    time.sleep(0.003)  # a compressor runs in between
    flock(*arguments)
fcntl.flock = later
from audit.decisions import decision, audit_log_in
for number in range(int(sys.argv[4])):
    audit_log = audit_log_in(Path(sys.argv[1]), retention=None)
    audit_log.write(decision(client=f"{sys.argv[3]}-{number}"))
    if number % 2:
        audit_log.close()
    else:
        audit_log._writer._file.abandon() if hasattr(audit_log._writer, "_file") else audit_log._writer.abandon()
"""
COMPRESSES = """
import contextlib, itertools, sys, time
from pathlib import Path
from robots_guard.audit.write.maintenance import clear, compress
unlink = Path.unlink
def later(path, **values):
    time.sleep(0.003)  # a writer runs in between
    unlink(path, **values)
Path.unlink = later
for number in itertools.count():
    with contextlib.suppress(OSError):
        compress(Path(sys.argv[1]), lambda path: number % 20 == 0 or path.stat().st_size == 0)
    clear(Path(sys.argv[1]))
"""
WRITERS, FILES_EACH = 2, 55


def test_processes_create_files_while_others_compress_them(tmp_path):
    pytest.importorskip("zstandard")
    write = [
        [sys.executable, "-c", WRITES, str(tmp_path), str(TESTS), f"w{n}", str(FILES_EACH)]
        for n in range(WRITERS)
    ]
    compressors = [
        subprocess.Popen([sys.executable, "-c", COMPRESSES, str(tmp_path)]) for _ in range(2)
    ]
    try:
        writers = [subprocess.Popen(command) for command in write]
        assert [writer.wait(180) for writer in writers] == [0] * WRITERS
        assert [compressor.poll() for compressor in compressors] == [None, None]
    finally:
        for compressor in compressors:
            compressor.kill()
            compressor.wait()
    compress(tmp_path)

    assert sorted(clients(tmp_path)) == sorted(
        f"w{n}-{number}" for n in range(WRITERS) for number in range(FILES_EACH)
    )
    assert verified(tmp_path) == []
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith((".new", ".part"))]
