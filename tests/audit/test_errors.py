"""One system call fails once: the log is sound, no acknowledged record is lost, and none is duplicated."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections import Counter
from functools import partial

import pytest
from audit.decisions import AT, audit_log_in, decision
from audit.disk import ROOT, Disk

from robots_guard.audit.read.reader import Filter, Unreadable, entries
from robots_guard.audit.read.verify import verify
from robots_guard.audit.record import Record, Stop
from robots_guard.audit.segments import NoDirectory
from robots_guard.errors import AuditLogError, SettingsError

PLACE = ROOT / "var" / "log"
DAY = 86400
RECORDS = 6

# How a call fails: nothing is done; all is done, and the error is reported all the same, as NFS may; a write is done in
# part, and the error is reported by it, by the next write, or not at all, or the next one writes nothing.
WITHOUT_EFFECT = "without effect"
AFTER_EFFECT = "after its effect"
WAYS = (WITHOUT_EFFECT, AFTER_EFFECT)
PARTS = {
    "one byte": slice(1),
    "a part": slice(100),
    "all but the newline": slice(-1),
    "nothing": slice(0),
}
SOME = ("one byte", "a part", "all but the newline")
HOW = ("fails", "next fails", "next writes nothing", "short")
WRITE_WAYS = (*WAYS, *itertools.product(HOW, SOME), ("short", "nothing"))


class Erring:
    """The system calls of a disk, of which the n-th fails in the given way."""

    def __init__(self, nth=0, error=errno.EIO, way=WITHOUT_EFFECT):
        self.disk = Disk()
        self.called = []
        self._nth = nth
        self._error = OSError(error, os.strerror(error))
        self._way = way
        self._next_write = None

    def __getattr__(self, name):
        return partial(self._call, name, getattr(self.disk, name))

    def _call(self, name, call, *arguments):
        self.called.append(name)
        if name == "write" and self._next_write:
            how, self._next_write = self._next_write, None
            if how == "fails":
                raise self._error
            return 0
        if len(self.called) != self._nth:
            return call(*arguments)
        if isinstance(self._way, tuple):
            return self._write_in_part(*arguments)
        if self._way == AFTER_EFFECT:
            call(*arguments)
        raise self._error

    def _write_in_part(self, descriptor, data):
        how, part = self._way
        written = data[PARTS[part]]
        if written:
            self.disk.write(descriptor, written)
        if how == "fails":
            raise self._error
        if how.startswith("next "):
            self._next_write = how.partition(" ")[2]
        return len(written)


class Run:
    """A log with a few records, and rotations by size and at midnight."""

    def __init__(self, place, files, *, seconds, **writing):
        self.files = files
        self.acknowledged = []
        self.refused = []
        self._clock = 100.0
        self._seconds = seconds  # from one record to the next
        self._write(writing)
        files.disk.leave(place, random.Random(1), 1.0)
        self.log = place / "var" / "log"

    def _write(self, writing):
        try:
            audit_log = audit_log_in(
                PLACE, files=self.files, monotonic=lambda: self._clock, rotate_bytes=1200, **writing
            )
        except SettingsError:
            return
        for number in range(RECORDS):
            self._clock += self._seconds
            client = str(number)
            try:
                audit_log.write(
                    decision(client=client, at=AT if number < RECORDS - 2 else AT + DAY)
                )
            except AuditLogError:
                self.refused.append(client)
            else:
                self.acknowledged.append(client)
        audit_log.close()

    def check(self):
        trouble = Unreadable()
        try:
            findings = verify(self.log, trouble)
        except NoDirectory:
            findings = []
        assert not trouble.lines
        assert not trouble.files
        assert sum(trouble.torn.values()) <= 1
        for found in findings:
            self._check_problems(found)
        if findings:
            self._check_records()

    def _check_problems(self, found):
        assert found.chain in ("none", "whole")
        assert len(found.problems) <= len(self.refused)
        assert all(" missing: not written " in problem for problem in found.problems)

    def _check_records(self):
        found = list(entries(self.log, Filter(kind=None)))
        count = Counter(entry.client for entry in found if isinstance(entry, Record))
        assert set(count.values()) <= {1}
        assert set(self.acknowledged) <= set(count)
        assert [entry.lost for entry in found if isinstance(entry, Stop)] in (
            [],
            [len(self.refused)],
        )


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EFBIG])
def test_the_log_is_sound_whichever_call_fails(tmp_path, error, chain, fsync):
    """If time passes between records, an error loses at most one record."""
    scenario = {"fsync": fsync, "chain": chain}
    called = Run(tmp_path / "sound", Erring(), seconds=2, **scenario).files.called
    assert {"open", "flock", "fstat", "link", "unlink", "write", "close"} <= set(called)
    assert ("fdatasync" in called) == fsync
    for nth, name in enumerate(called, start=1):
        for way in WRITE_WAYS if name == "write" else WAYS:
            place = tmp_path / "left"
            run = Run(place, Erring(nth, error, way), seconds=2, **scenario)
            try:
                run.check()
                assert len(run.refused) <= 1
            except AssertionError as wrong:
                wrong.add_note(f"call {nth}, {name}: {os.strerror(error)} {way}")
                raise
            shutil.rmtree(place)


@pytest.mark.parametrize("fsync", [False, True])
def test_the_log_is_sound_if_no_other_file_may_be_tried_yet(tmp_path, fsync):
    scenario = {"fsync": fsync, "chain": True}
    called = Run(tmp_path / "sound", Erring(), seconds=0, **scenario).files.called
    for nth, name in enumerate(called, start=1):
        for way in WRITE_WAYS if name == "write" else WAYS:
            run = Run(tmp_path / "left", Erring(nth, errno.EIO, way), seconds=0, **scenario)
            try:
                run.check()
            except AssertionError as wrong:
                wrong.add_note(f"call {nth}, {name}: {way}")
                raise
            shutil.rmtree(tmp_path / "left")
