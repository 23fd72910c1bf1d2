"""`audit_durability = fsync`: at whatever call the power fails, every acknowledged record is on the disk, once."""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import time
from collections import Counter
from contextlib import suppress

import pytest
from audit.decisions import AT, decision, journal_in, policy
from audit.disk import ROOT, Disk

from robots_guard.audit.keeping import look, tidy
from robots_guard.audit.privacy import Privacy
from robots_guard.audit.query import Filter, Trouble, entries, records
from robots_guard.audit.retention import Retention
from robots_guard.audit.segments import NoDirectory
from robots_guard.core.access import Fetched, Get
from robots_guard.core.events import FetchMade
from robots_guard.errors import JournalError

DAY = 86400
SHARES = (0.0, 1.0, 0.5, 0.5)  # nothing that was not synced, all of it, and some of it
PLACE = ROOT / "var" / "log"


class Cuts:
    """Before each system call: what would a power cut leave now?"""

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
                tidy(self._log, Retention(days=0), look(time.time()))  # as the next process does
                self._count()
            shutil.rmtree(self._place)

    def _count(self):
        found: Counter[str] = Counter()
        with suppress(NoDirectory):
            found = Counter(record.client for record in records(self._log, trouble=Trouble()))
        assert max(found.values(), default=1) == 1, found
        self.lost.update(set(self.acknowledged) - set(found))

    def write(self, journal, number, **values):
        client = str(number)
        try:
            journal.write(decision(client=client, **values))
        except JournalError:
            self.refused.append(client)
        else:
            self.acknowledged.append(client)


@pytest.fixture
def cuts(tmp_path):
    return Cuts(tmp_path)


def journal_on(cuts, **values):
    values = {"fsync": True, "chain": True, "retention": None, "rotate_bytes": 1800} | values
    return journal_in(PLACE, files=cuts.disk, **values)


def test_every_acknowledged_record_survives_a_power_cut_at_any_call(cuts):
    """A new directory, the first record of a file, files that are full, midnight, and the end."""
    journal = journal_on(cuts)
    for number in range(10):
        cuts.write(journal, number, at=AT if number < 7 else AT + DAY)
    journal.close()
    cuts.look()

    assert len(cuts.acknowledged) == 10
    assert cuts.cuts > 200
    assert cuts.lost == set()


def test_the_same_without_fsync_loses_some(cuts):
    """The disk does forget: what the test above finds is what the writer synced."""
    journal = journal_on(cuts, fsync=False)
    for number in range(3):
        cuts.write(journal, number)
    journal.close()
    cuts.look()

    assert cuts.lost == {"0", "1", "2"}


def test_what_is_written_again_survives_too(cuts):
    """After a file was removed, with its directory; what was in it is not counted."""
    journal = journal_on(cuts)
    cuts.write(journal, 0)
    cuts.acknowledged.clear()
    log = cuts.disk.root.names["var"].names["log"]
    for name in list(log.names):
        log.change(name, None)
    cuts.disk.root.names["var"].change("log", None)
    for number in range(1, 5):
        cuts.write(journal, number)
    cuts.look()

    assert cuts.acknowledged == ["1", "2", "3", "4"]
    assert cuts.lost == set()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_record_whose_sync_failed_is_refused_and_the_next_ones_survive(cuts, error):
    """The system drops the data and takes the next sync of that file for good: so there is none."""
    cuts.disk.sync_error = error
    journal = journal_on(cuts)
    cuts.write(journal, 0)
    cuts.disk.fails_to_sync = 1
    for number in range(1, 5):
        cuts.write(journal, number)
    journal.close()
    cuts.look()

    assert (cuts.refused, cuts.acknowledged) == (["1"], ["0", "2", "3", "4"])
    assert cuts.lost == set()


def test_while_no_other_file_may_be_tried_none_is_acknowledged_in_one_whose_sync_failed(cuts):
    """Two files within a second: the second is not left yet, and its next sync would succeed without the data."""
    clock = itertools.count(1, 0)
    journal = journal_on(cuts, monotonic=lambda: next(clock))
    cuts.write(journal, 0)
    cuts.disk.fails_to_sync = 2
    for number in range(1, 5):
        cuts.write(journal, number)
    clock = itertools.count(100)
    for number in range(5, 7):
        cuts.write(journal, number)
    journal.close()
    cuts.look()

    assert (cuts.refused, cuts.acknowledged) == (["1", "2", "3", "4"], ["0", "5", "6"])
    assert cuts.lost == set()


def test_a_full_disk_and_a_power_cut(cuts):
    journal = journal_on(cuts)
    cuts.write(journal, 0)
    cuts.disk.room = 700
    for number in range(1, 4):
        cuts.write(journal, number)
    cuts.disk.room = 10**9
    cuts.write(journal, 4)
    journal.close()
    cuts.look()

    assert cuts.refused
    assert cuts.acknowledged[-1] == "4"
    assert cuts.lost == set()


def test_the_evidence_that_a_record_names_survives(tmp_path):
    """Its file is there, with its records, at every cut after which the record is read."""
    pytest.importorskip("warcio")
    disk, place = Disk(), tmp_path / "left"
    chance = random.Random(12)

    def look():
        for share in SHARES:
            disk.leave(place, chance, share)
            with suppress(NoDirectory):
                for entry in entries(place / "var" / "log", Filter(kind="fetch"), Trouble()):
                    assert _holds(place / "var" / "log" / entry.evidence_file, entry.evidence)
            shutil.rmtree(place)

    disk.before = look
    journal = journal_in(PLACE, files=disk, fsync=True, warc=True, retention=None, rotate_bytes=1800)
    for number in range(6):
        get = Get(url=f"https://a.test/{number}/robots.txt")
        outcome = Fetched(status=200, body=b"User-agent: *\nDisallow: /\n")
        journal.note(FetchMade(at=AT, origin=policy().origin, get=get, via="direct", elapsed=0.1, outcome=outcome))
    journal.close()
    look()


def _holds(path, identity):
    from warcio.archiveiterator import ArchiveIterator

    with path.open("rb") as file:
        for record in ArchiveIterator(file):
            if record.rec_headers.get_header("WARC-Record-ID") == identity:
                return True
    return False


def test_a_power_cut_leaves_a_whole_key_of_hashed_values_or_none(tmp_path):
    chance, place, cuts = random.Random(5), tmp_path / "left", []

    def look():
        for share in SHARES:
            disk.leave(place, chance, share)
            cuts.extend(key.read_bytes() for key in place.rglob(".key"))
            shutil.rmtree(place)

    disk = Disk(look)
    journal_in(PLACE, files=disk, privacy=Privacy(query="hash")).close()

    assert cuts
    assert [len(key) for key in cuts] == [32] * len(cuts)
