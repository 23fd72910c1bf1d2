"""Reading while files are compressed and removed misses no record and reads none twice."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from audit.decisions import AT, DROP, PASS, audit_log_in, decision

from robots_guard.audit import segments
from robots_guard.audit.read import reader, search, verify
from robots_guard.audit.read.reader import Filter, Follower, Unreadable, entries
from robots_guard.audit.read.search import LoadedSearch, Search
from robots_guard.audit.show.export import exported
from robots_guard.audit.show.figures import summary
from robots_guard.audit.write import maintenance
from robots_guard.audit.write.maintenance import compress
from robots_guard.errors import SettingsError

# A test replaces `_list`, because a directory changes between two listings only by chance.

DAY = 86400.0
EVERYTHING = Filter(kind=None)


def packed(directory):
    assert compress(directory)


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Files of two writers and three days, several a day, each read in several pieces."""
    place = tmp_path_factory.mktemp("written")
    for name in ("a", "b"):
        log = audit_log_in(place, chain=True, rotate_bytes=100_000)
        for number in range(600):
            at = AT + number * DAY / 300
            verdict = DROP if number % 3 else PASS
            log.write(
                decision(
                    f"https://{name}.test/private/{number}",
                    verdict=verdict,
                    at=at,
                    user_agent="x" * 200,
                )
            )
        log.close()
    assert len(segments.segments(place)) > 6
    return place


@pytest.fixture
def audit_log(written, tmp_path):
    """A copy of these files, which a test may change."""
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def after_listing(monkeypatch):
    """Do something once, between listing the files and opening the first."""

    def arrange(work):
        real, left = segments.segments, [work]

        def listed(directory):
            found = real(directory)
            if left:
                left.pop()(directory)
            return found

        for module in (search, reader, verify):
            monkeypatch.setattr(module, "segments", listed)
        return left

    return arrange


# -- between listing and opening ------------------------------------------------------------------------------------


def in_python(directory):
    trouble = Unreadable()
    found = list(entries(directory, EVERYTHING, trouble))
    assert not trouble
    return in_order(found)


def in_order(found):
    """Records in order of time. The clock stands still, so the last records of files are earlier than others."""
    return sorted(found, key=lambda entry: (entry.at, entry.writer, entry.seq))


def in_duckdb(directory):
    with Search(directory, EVERYTHING) as query:
        found = list(query.records())
        assert not query.unreadable()
    return found


def in_sql(directory):
    with Search(directory) as query:
        found = sorted(query.select("SELECT writer, seq FROM records")[1])
        assert not query.unreadable()
    return found


def the_report(directory):
    with Search(directory, Filter()) as query:
        return summary(query, "2027-02-01T00:00:00.000Z").timeline.totals


def the_export(directory):
    with Search(directory, Filter()) as query:
        return list(exported(query.records(), "ecs"))


def the_one_of_an_id(directory):
    with Search(directory, Filter(id="w-1")) as query:
        return list(query.records(limit=7))


def the_consoles(directory):
    resident = LoadedSearch(directory)
    found = sorted(resident.rows("SELECT writer, seq FROM records"))
    assert not resident.unreadable()
    resident.close()
    return found


def findings(directory):
    trouble = Unreadable()
    found = verify.verify(directory, trouble)
    assert not trouble
    assert [each.problems for each in found] == [[], []]
    return [
        (each.writer, each.records, each.last, each.head, each.chain)
        for each in sorted(found, key=str)
    ]


READERS = pytest.mark.parametrize(
    "reader",
    [
        in_python,
        in_duckdb,
        in_sql,
        the_report,
        the_export,
        the_one_of_an_id,
        the_consoles,
        findings,
    ],
    ids=lambda reader: reader.__name__,
)


@READERS
def test_files_replaced_between_listing_and_opening_are_read(audit_log, after_listing, reader):
    expected = reader(audit_log)
    left = after_listing(packed)

    assert reader(audit_log) == expected
    assert not left, "it was in between"


@READERS
def test_files_removed_meanwhile_are_not_reported(audit_log, after_listing, reader):
    def remove(directory):
        for path in directory.glob("20270115*"):
            path.unlink()

    left = after_listing(remove)
    reader(audit_log)
    assert not left


def test_a_file_removed_from_the_middle_is_a_gap(audit_log):
    min(audit_log.glob("20270116*")).unlink()

    assert any(each.problems for each in verify.verify(audit_log, Unreadable()))


def test_an_audit_log_that_keeps_changing_is_reported_in_one_sentence(audit_log, monkeypatch):
    monkeypatch.setattr(search, "is_gone", lambda segment: True)
    with pytest.raises(SettingsError, match="changes faster than it can be read"):
        Search(audit_log)


# -- in the middle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [1, 2, 150, 301, 700])
def test_reading_continues_at_the_same_place_in_a_replacement(audit_log, read):
    expected = in_python(audit_log)
    trouble = Unreadable()
    stream = entries(audit_log, EVERYTHING, trouble)
    found = [next(stream) for _ in range(read)]
    packed(audit_log)

    assert in_order([*found, *stream]) == expected
    assert not trouble


def test_following_misses_nothing_when_files_are_replaced(tmp_path):
    log = audit_log_in(tmp_path)
    log.write(decision("https://a.test/1"))
    follower = Follower(tmp_path, trouble := Unreadable())
    assert len(follower.latest(Filter(), 10)) == 1
    log.write(decision("https://a.test/2"))
    log.close()
    unseen = audit_log_in(tmp_path)  # begun and moved between two looks
    unseen.write(decision("https://a.test/3", at=AT + 1))
    unseen.close()
    packed(tmp_path)

    assert [entry.url[-1] for entry in follower.new(Filter())] == ["2", "3"]
    assert list(follower.new(Filter())) == []
    assert not trouble


def test_following_does_not_repeat_earlier_records(audit_log):
    follower = Follower(audit_log, trouble := Unreadable())
    latest = follower.latest(Filter(), 3)
    packed(audit_log)

    assert len(latest) == 3
    assert list(follower.new(Filter())) == []
    assert not trouble


def test_a_killed_writer_whose_file_is_compressed_is_not_reported_as_writing(
    tmp_path, after_listing
):
    log = audit_log_in(tmp_path)
    log.write(decision())
    data = log.path.read_bytes()
    log.close()
    log.path.write_bytes(data)
    after_listing(packed)
    (found,) = verify.verify(tmp_path, Unreadable())

    assert (found.problems, found.notes) == ([], ["ends without a stop: killed, or an I/O error"])


# -- listing ----------------------------------------------------------------------------------------------------------


def test_a_file_renamed_during_listing_is_not_missed(tmp_path, monkeypatch):
    """The listing passes the new name before it exists, and reaches the old one after it is gone."""
    old, new, other = (
        "20270115-h-1-ab-0001.jsonl",
        "20270115-h-1-ab-0001.jsonl.zst",
        "20270115-h-2-ab-0001.jsonl",
    )
    listings = iter([[old, other], [other], [new, other], [new, other]])
    monkeypatch.setattr(segments, "_list", lambda directory: next(listings))

    assert [each.path.name for each in segments.segments(tmp_path)] == [new, other]


def test_a_file_removed_during_compression_stops_nothing(audit_log, monkeypatch):
    real, gone = maintenance.why_not_plain, []

    def goes(path):
        why = real(path)
        if not gone:
            gone.append(path)
            path.unlink()
        return why

    monkeypatch.setattr(maintenance, "why_not_plain", goes)
    maintenance.compress(audit_log, lambda path: path.stat().st_size >= 0)

    assert not list(audit_log.glob("*.jsonl"))


# -- at once ----------------------------------------------------------------------------------------------------------


def test_concurrent_readers_see_each_acknowledged_record_once(tmp_path):
    """Uses threads: flock locks belong to open files, so they exclude each other as in separate processes."""
    acknowledged, over = [], threading.Event()
    first = audit_log_in(tmp_path)
    first.write(decision("https://a.test/first"))
    first.close()

    def write(name):
        for number in range(6):
            log = audit_log_in(tmp_path, chain=True, rotate_bytes=5000)
            for part in range(20):
                url = f"https://{name}.test/{number}/{part}"
                log.write(decision(url))
                acknowledged.append(url)
            log.close()

    def keep():
        while not over.wait(0.01):
            compress(tmp_path)

    def read(reader):
        for _ in range(3):
            before = {*acknowledged}
            found = reader(tmp_path)
            assert len(found) == len({*found}), "none twice"
            assert before <= {*found}, "none missed"

    def urls_in_python(directory):
        trouble = Unreadable()
        found = [entry.url for entry in entries(directory, Filter(), trouble)]
        assert not trouble.files
        return found

    def urls_in_duckdb(directory):
        with Search(directory, Filter()) as query:
            return [entry.url for entry in query.records()]

    def urls_in_sql(directory):
        with Search(directory) as query:
            return [url for (url,) in query.select("SELECT url FROM decisions")[1]]

    def verified(directory):
        assert [
            each.problems for each in verify.verify(directory, Unreadable()) if each.problems
        ] == []
        return acknowledged.copy()

    readers = [urls_in_python, urls_in_duckdb, urls_in_sql, verified]
    with ThreadPoolExecutor() as pool:
        writing = [pool.submit(write, name) for name in ("b", "c")]
        writing.append(pool.submit(keep))
        try:
            reading = [pool.submit(read, reader) for reader in readers]
            for each in reading:
                each.result()
        finally:
            over.set()
        for each in writing:
            each.result()
