"""`audit_durability = fsync`: every acknowledged record is on the disk, once, at whatever call the power fails."""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import time
from collections import Counter
from contextlib import suppress

import pytest
from audit.decisions import AT, audit_log_in, decision, policy
from audit.disk import ROOT, Disk

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.read.reader import Filter, Unreadable, entries, records
from robots_guard.audit.segments import NoDirectory
from robots_guard.audit.write.maintenance import inspect, tidy
from robots_guard.audit.write.retention import Retention
from robots_guard.decisions.access import Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.errors import AuditLogError

DAY = 86400
SHARES = (0.0, 1.0, 0.5, 0.5)  # nothing that was not synced, all of it, and some of it
PLACE = ROOT / "var" / "log"


class Cuts:
    """Checks before each system call what a power cut would leave."""

    def __init__(self, directory):
        self.disk = Disk(self.look)
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.cuts = 0
        self.lost: set[str] = set()
        self._place = directory / "left"
        self._log = self._place / "var" / "log"
        self._chance = random.Random(12)

    def look(self):
        for share in SHARES:
            self.cuts += 1
            self.disk.leave(self._place, self._chance, share)
            self._count()
            if self._log.exists():
                tidy(self._log, Retention(days=0), inspect(time.time()))  # as the next process does
                self._count()
            shutil.rmtree(self._place)

    def _count(self):
        found: Counter[str] = Counter()
        with suppress(NoDirectory):
            found = Counter(record.client for record in records(self._log, trouble=Unreadable()))
        assert max(found.values(), default=1) == 1, found
        self.lost.update(set(self.acknowledged) - set(found))

    def write(self, audit_log, number, **values):
        client = str(number)
        try:
            audit_log.write(decision(client=client, **values))
        except AuditLogError:
            self.refused.append(client)
        else:
            self.acknowledged.append(client)


@pytest.fixture
def cuts(tmp_path):
    return Cuts(tmp_path)


def audit_log_on(cuts, **values):
    values = {"fsync": True, "chain": True, "retention": None, "rotate_bytes": 1800} | values
    return audit_log_in(PLACE, files=cuts.disk, **values)


def test_every_acknowledged_record_survives_a_power_cut_at_any_call(cuts):
    """With a new directory, the first record of a file, rotation by size and at midnight, and closing."""
    audit_log = audit_log_on(cuts)
    for number in range(10):
        cuts.write(audit_log, number, at=AT if number < 7 else AT + DAY)
    audit_log.close()
    cuts.look()

    assert len(cuts.acknowledged) == 10
    assert cuts.cuts > 200
    assert cuts.lost == set()


def test_without_fsync_some_records_are_lost(cuts):
    """The simulated disk does lose data, so the test above shows what the writer synced."""
    audit_log = audit_log_on(cuts, fsync=False)
    for number in range(3):
        cuts.write(audit_log, number)
    audit_log.close()
    cuts.look()

    assert cuts.lost == {"0", "1", "2"}


def test_rewritten_records_survive_a_power_cut(cuts):
    """The file was removed with its directory; the records that it had are not counted."""
    audit_log = audit_log_on(cuts)
    cuts.write(audit_log, 0)
    cuts.acknowledged.clear()
    log = cuts.disk.root.names["var"].names["log"]
    for name in list(log.names):
        log.change(name, None)
    cuts.disk.root.names["var"].change("log", None)
    for number in range(1, 5):
        cuts.write(audit_log, number)
    cuts.look()

    assert cuts.acknowledged == ["1", "2", "3", "4"]
    assert cuts.lost == set()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_record_whose_sync_failed_is_refused_and_the_next_ones_survive(cuts, error):
    """The system drops the data and would report success for the next sync, so the file is not synced again."""
    cuts.disk.sync_error = error
    audit_log = audit_log_on(cuts)
    cuts.write(audit_log, 0)
    cuts.disk.fails_to_sync = 1
    for number in range(1, 5):
        cuts.write(audit_log, number)
    audit_log.close()
    cuts.look()

    assert (cuts.refused, cuts.acknowledged) == (["1"], ["0", "2", "3", "4"])
    assert cuts.lost == set()


def test_no_record_is_acknowledged_in_a_file_whose_sync_failed(cuts):
    """Within a second of the last attempt, the file is not left yet, and its next sync would succeed without the
    data."""
    clock = itertools.count(1, 0)
    audit_log = audit_log_on(cuts, monotonic=lambda: next(clock))
    cuts.write(audit_log, 0)
    cuts.disk.fails_to_sync = 2
    for number in range(1, 5):
        cuts.write(audit_log, number)
    clock = itertools.count(100)
    for number in range(5, 7):
        cuts.write(audit_log, number)
    audit_log.close()
    cuts.look()

    assert (cuts.refused, cuts.acknowledged) == (["1", "2", "3", "4"], ["0", "5", "6"])
    assert cuts.lost == set()


def test_a_full_disk_and_a_power_cut(cuts):
    audit_log = audit_log_on(cuts)
    cuts.write(audit_log, 0)
    cuts.disk.room = 700
    for number in range(1, 4):
        cuts.write(audit_log, number)
    cuts.disk.room = 10**9
    cuts.write(audit_log, 4)
    audit_log.close()
    cuts.look()

    assert cuts.refused
    assert cuts.acknowledged[-1] == "4"
    assert cuts.lost == set()


def test_the_evidence_that_a_record_names_survives(tmp_path):
    """After every power cut that leaves the record, the evidence file is there with its records."""
    pytest.importorskip("warcio")
    disk, place = Disk(), tmp_path / "left"
    chance = random.Random(12)

    def look():
        for share in SHARES:
            disk.leave(place, chance, share)
            with suppress(NoDirectory):
                for entry in entries(place / "var" / "log", Filter(kind="fetch"), Unreadable()):
                    assert _holds(place / "var" / "log" / entry.warc_file, entry.warc_id)
            shutil.rmtree(place)

    disk.before = look
    audit_log = audit_log_in(
        PLACE, files=disk, fsync=True, audit="evidence", retention=None, rotate_bytes=1800
    )
    for number in range(6):
        get = Get(url=f"https://a.test/{number}/robots.txt")
        outcome = Fetched(status=200, body=b"User-agent: *\nDisallow: /\n")
        audit_log.note(
            FetchMade(
                at=AT, origin=policy().origin, get=get, via="direct", elapsed=0.1, outcome=outcome
            )
        )
    audit_log.close()
    look()


def _holds(path, identity):
    from warcio.archiveiterator import ArchiveIterator

    with path.open("rb") as file:
        for record in ArchiveIterator(file):
            if record.rec_headers.get_header("WARC-Record-ID") == identity:
                return True
    return False


def test_a_power_cut_leaves_a_complete_key_or_none(tmp_path):
    chance, place, cuts = random.Random(5), tmp_path / "left", []

    def look():
        for share in SHARES:
            disk.leave(place, chance, share)
            cuts.extend(key.read_bytes() for key in place.rglob(".key"))
            shutil.rmtree(place)

    disk = Disk(look)
    audit_log_in(PLACE, files=disk, privacy=Privacy(query="hash")).close()

    assert cuts
    assert [len(key) for key in cuts] == [32] * len(cuts)
