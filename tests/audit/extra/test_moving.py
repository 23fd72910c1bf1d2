"""Reading while files are compressed, compacted and removed: no record is missed, none is read twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from audit.decisions import AT, DROP, PASS, decision, journal_in

from robots_guard.audit import keeping, query, search, segments, verify
from robots_guard.audit.compact import compact
from robots_guard.audit.export import exported
from robots_guard.audit.keeping import compress
from robots_guard.audit.query import Filter, Follower, Trouble, entries
from robots_guard.audit.resident import Resident
from robots_guard.audit.search import Search
from robots_guard.audit.summary import summary
from robots_guard.errors import SettingsError

DAY = 86400.0
LATER = "99999999"
EVERYTHING = Filter(kind=None)


def packed(directory):
    assert compress(directory)


def compacted(directory):
    assert compact(directory, LATER)


def both(directory):
    packed(directory)
    compacted(directory)


MOVES = pytest.mark.parametrize("move", [packed, compacted, both], ids=lambda move: move.__name__)


@pytest.fixture
def journal(tmp_path):
    """Two writers, three days, files of several pieces and several files a day."""
    for name in ("a", "b"):
        made = journal_in(tmp_path, chain=True, rotate_bytes=100_000)
        for number in range(600):
            at = AT + number * DAY / 300
            verdict = DROP if number % 3 else PASS
            made.write(decision(f"https://{name}.test/private/{number}", verdict=verdict, at=at, user_agent="x" * 200))
        made.close()
    assert len(segments.segments(tmp_path)) > 6
    return tmp_path


@pytest.fixture
def after_listing(monkeypatch):
    """Do something once, between the listing of the files and the opening of the first."""

    def arrange(work):
        real, left = segments.segments, [work]

        def listed(directory):
            found = real(directory)
            if left:
                left.pop()(directory)
            return found

        for module in (query, search, verify):
            monkeypatch.setattr(module, "segments", listed)
        return left

    return arrange


# -- between listing and opening ------------------------------------------------------------------------------------


def in_python(directory):
    trouble = Trouble()
    found = list(entries(directory, EVERYTHING, trouble))
    assert not trouble
    return in_order(found)


def in_order(found):
    """The clock that closes these files stands still, so that their last records are earlier than others."""
    return sorted(found, key=lambda entry: (entry.at, entry.writer, entry.seq))


def in_duckdb(directory):
    with Search(directory, EVERYTHING) as asked:
        found = list(asked.records())
        assert not asked.unreadable()
    return found


def in_sql(directory):
    with Search(directory) as asked:
        found = sorted(asked.ask("SELECT writer, seq FROM records")[1])
        assert not asked.unreadable()
    return found


def the_report(directory):
    with Search(directory, Filter()) as asked:
        return summary(asked, "2027-02-01T00:00:00.000Z").totals


def the_export(directory):
    with Search(directory, Filter()) as asked:
        return list(exported(asked.records(), "ecs"))


def the_one_of_an_id(directory):
    with Search(directory, Filter(id="w-1")) as asked:
        return list(asked.records(limit=7))


def the_consoles(directory):
    resident = Resident(directory)
    found = sorted(resident.rows("SELECT writer, seq FROM records"))
    assert not resident.unreadable()
    resident.close()
    return found


def findings(directory):
    trouble = Trouble()
    found = verify.verify(directory, trouble)
    assert not trouble
    assert [each.problems for each in found] == [[], []]
    return [(each.writer, each.records, each.last, each.head, each.chain) for each in sorted(found, key=str)]


READERS = pytest.mark.parametrize(
    "reader",
    [in_python, in_duckdb, in_sql, the_report, the_export, the_one_of_an_id, the_consoles, findings],
    ids=lambda reader: reader.__name__,
)


@MOVES
@READERS
def test_files_that_move_between_listing_and_opening_are_read_all_the_same(journal, after_listing, reader, move):
    expected = reader(journal)
    left = after_listing(move)

    assert reader(journal) == expected
    assert not left, "it was in between"


@READERS
def test_files_that_are_removed_meanwhile_are_no_trouble(journal, after_listing, reader):
    def remove(directory):
        for path in directory.glob("20270115*"):
            path.unlink()

    left = after_listing(remove)
    reader(journal)
    assert not left


def test_a_file_that_is_removed_from_the_middle_for_good_is_a_gap(journal):
    min(journal.glob("20270116*")).unlink()

    assert any(each.problems for each in verify.verify(journal, Trouble()))


def test_a_journal_that_never_rests_is_told_of_in_one_sentence(journal, monkeypatch):
    compacted(journal)
    real = segments.segments

    def never_there(directory):
        return [each._replace(path=each.path.with_name("gone")) for each in real(directory)]

    monkeypatch.setattr(search, "segments", never_there)
    with pytest.raises(SettingsError, match="changes faster than it can be read"):
        Search(journal)


# -- in the middle ----------------------------------------------------------------------------------------------------


@MOVES
@pytest.mark.parametrize("read", [1, 2, 150, 301, 700])
def test_a_file_is_gone_on_with_where_reading_was(journal, move, read):
    expected = in_python(journal)
    trouble = Trouble()
    stream = entries(journal, EVERYTHING, trouble)
    found = [next(stream) for _ in range(read)]
    move(journal)

    assert in_order([*found, *stream]) == expected
    assert not trouble


def test_a_file_may_take_all_its_forms_while_it_is_read(journal):
    expected = in_python(journal)
    stream = entries(journal, EVERYTHING)
    found = [next(stream) for _ in range(100)]
    packed(journal)
    found += [next(stream) for _ in range(300)]
    compacted(journal)

    assert in_order([*found, *stream]) == expected


@MOVES
def test_following_goes_on_and_misses_nothing(tmp_path, move):
    made = journal_in(tmp_path)
    made.write(decision("https://a.test/1"))
    follower = Follower(tmp_path, trouble := Trouble())
    assert len(follower.latest(Filter(), 10)) == 1
    made.write(decision("https://a.test/2"))
    made.close()
    unseen = journal_in(tmp_path)  # begun and moved between two looks
    unseen.write(decision("https://a.test/3", at=AT + 1))
    unseen.close()
    move(tmp_path)

    assert [entry.url[-1] for entry in follower.new(Filter())] == ["2", "3"]
    assert list(follower.new(Filter())) == []
    assert not trouble


@MOVES
def test_following_does_not_tell_anew_what_was_there_before(journal, move):
    follower = Follower(journal, trouble := Trouble())
    latest = follower.latest(Filter(), 3)
    move(journal)

    assert len(latest) == 3
    assert list(follower.new(Filter())) == []
    assert not trouble


def test_a_killed_writer_is_not_said_to_be_writing_because_its_file_was_compressed(tmp_path, after_listing):
    made = journal_in(tmp_path)
    made.write(decision())
    octets = made.path.read_bytes()
    made.close()
    made.path.write_bytes(octets)
    after_listing(packed)
    (found,) = verify.verify(tmp_path, Trouble())

    assert (found.problems, found.notes) == ([], ["ends without a stop: killed, or an I/O error"])


# -- listing ----------------------------------------------------------------------------------------------------------


def test_a_file_renamed_while_the_directory_is_read_is_not_missed(tmp_path, monkeypatch):
    """The new name comes behind what was read already, and the old one is removed before it is reached."""
    old, new, other = "20270115-h-1-ab-0001.jsonl", "20270115-h-1-ab-0001.jsonl.zst", "20270115-h-2-ab-0001.jsonl"
    listings = iter([[old, other], [other], [new, other], [new, other]])
    monkeypatch.setattr(segments, "_names", lambda directory: next(listings))

    assert [each.path.name for each in segments.segments(tmp_path)] == [new, other]


def test_a_file_that_goes_while_files_are_compressed_stops_nothing(journal, monkeypatch):
    real, gone = keeping.why_not_plain, []

    def goes(path):
        why = real(path)
        if not gone:
            gone.append(path)
            path.unlink()
        return why

    monkeypatch.setattr(keeping, "why_not_plain", goes)
    keeping.compress(journal, lambda path: path.stat().st_size >= 0)

    assert not list(journal.glob("*.jsonl"))


# -- at once ----------------------------------------------------------------------------------------------------------


def test_readers_beside_writers_and_housekeeping_see_each_acknowledged_record_once(tmp_path):
    """Threads of one process: locks (flock) are of open files, so they keep each other out as processes do."""
    acknowledged, over = [], threading.Event()
    first = journal_in(tmp_path)
    first.write(decision("https://a.test/first"))
    first.close()

    def write(name):
        for number in range(6):
            made = journal_in(tmp_path, chain=True, rotate_bytes=5000)
            for part in range(20):
                url = f"https://{name}.test/{number}/{part}"
                made.write(decision(url))
                acknowledged.append(url)
            made.close()

    def keep():
        while not over.wait(0.01):
            compress(tmp_path)
            compact(tmp_path, LATER)

    def read(reader):
        for _ in range(3):
            before = {*acknowledged}
            found = reader(tmp_path)
            assert len(found) == len({*found}), "none twice"
            assert before <= {*found}, "none missed"

    def urls_in_python(directory):
        trouble = Trouble()
        found = [entry.url for entry in entries(directory, Filter(), trouble)]
        assert not trouble.files
        return found

    def urls_in_duckdb(directory):
        with Search(directory, Filter()) as asked:
            return [entry.url for entry in asked.records()]

    def urls_in_sql(directory):
        with Search(directory) as asked:
            return [url for (url,) in asked.ask("SELECT url FROM decisions")[1]]

    def verified(directory):
        assert [each.problems for each in verify.verify(directory, Trouble()) if each.problems] == []
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
