"""Files of a writer: rotated, chained, tidied; and what becomes of a full disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, DROP, PASS, decision, journal_in, policy

from robots_guard.audit.keeping import retain, tidy, unheld
from robots_guard.audit.query import Filter, Trouble, entries, kind_of, records
from robots_guard.audit.retention import Look, Retention
from robots_guard.audit.segments import segments
from robots_guard.audit.verify import verify
from robots_guard.core.access import Failed, Failure, Fetched, Get
from robots_guard.core.events import FailedOpen, FetchMade, OverridesLoaded, StoreBegunAnew
from robots_guard.core.verdict import Action, Reason, Verdict
from robots_guard.errors import JournalError, SettingsError

DAY = 86400


def kinds(directory):
    return [kind_of(entry) for entry in entries(directory, Filter(kind=None))]


def lines(directory):
    """Every line of every file, in order of the files' names."""
    return [
        json.loads(line)
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if line
    ]


# -- the ends of a writer -----------------------------------------------------------------------------------


def test_a_writer_says_who_it_is_and_that_it_ended(tmp_path):
    journal = journal_in(tmp_path, door="scrapy", job="nightly")
    journal.write(decision())
    journal.close()
    start, made, stop = lines(tmp_path)

    assert (start["kind"], start["seq"], start["segment"], start["pid"]) == ("start", 1, 1, os.getpid())
    assert start["settings"] == {"agent": "mybot"}
    assert (stop["kind"], stop["seq"], stop.get("lost", 0)) == ("stop", 3, 0)
    assert {line["job"] for line in (start, made, stop)} == {"nightly"}
    assert (start["door"], stop["door"], made["mono"]) == ("scrapy", "scrapy", 7.0)


def test_each_event_is_a_record_of_its_kind(tmp_path):
    journal = journal_in(tmp_path)
    get = Get(url="https://a.test/robots.txt?token=abc", headers=(("If-None-Match", '"x"'),))
    hop = {"at": AT, "origin": policy().origin, "get": get, "via": "direct", "elapsed": 0.25}
    journal.note(FetchMade(outcome=Fetched(status=302, headers={"location": "https://me:secret@b.test/"}), **hop))
    journal.note(FetchMade(outcome=Failed(failure=Failure.DNS, detail="no such host"), **hop))
    journal.note(StoreBegunAnew(at=AT, detail="was damaged"))
    journal.note(FailedOpen(at=AT, setting="audit_required", count=3))
    journal.note(OverridesLoaded(at=AT, source="overrides.toml", count=2, problems=("third: expired",)))
    journal.close()
    found = {line["kind"]: line for line in lines(tmp_path)}
    redirect = lines(tmp_path)[1]

    assert kinds(tmp_path) == ["start", "fetch", "fetch", "store-reset", "fail-open", "overrides", "stop"]
    assert (redirect["status"], redirect["location"], redirect["conditional"]) == (302, "https://b.test/", True)
    assert redirect["url"] == "https://a.test/robots.txt?token=REDACTED"
    assert (found["fetch"]["failure"], found["fetch"]["detail"], found["fetch"]["elapsed_us"]) == (
        "dns",
        "no such host",
        250_000,
    )
    assert (found["fail-open"]["relaxed"], found["fail-open"]["count"]) == ("audit_required", 3)
    assert found["overrides"]["problems"] == ["third: expired"]


def test_a_file_that_was_removed_is_gone_on_with_in_another(tmp_path, caplog):
    directory = tmp_path / "journal"
    journal = journal_in(directory)
    journal.write(decision())
    shutil.rmtree(directory)
    journal.write(decision())
    journal.close()

    assert [line["kind"] for line in lines(directory)] == ["start", "decision", "stop"]
    assert [line["seq"] for line in lines(directory)] == [3, 4, 5]
    assert "removed or changed by another process" in caplog.text


@pytest.mark.parametrize("moved", ["file", "directory"])
def test_after_its_file_is_renamed_the_log_goes_on_under_the_names_that_readers_list(tmp_path, moved):
    directory = tmp_path / "journal"
    journal = journal_in(directory)
    journal.write(decision())
    renamed = journal.path if moved == "file" else directory
    renamed.rename(f"{renamed}.1")
    journal.write(decision())
    journal.close()

    assert [(line["seq"], line["kind"]) for line in lines(directory)] == [(3, "start"), (4, "decision"), (5, "stop")]


def test_a_writer_whose_process_goes_to_another_directory_keeps_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = journal_in(Path("journal"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    journal.write(decision())
    journal.close()

    assert kinds(tmp_path / "journal") == ["start", "decision", "stop"]


def test_where_none_can_be_begun_the_record_is_refused_until_there_can(tmp_path):
    directory = tmp_path / "journal"
    journal = journal_in(directory)
    journal.write(decision())
    shutil.rmtree(directory)
    directory.write_text("in the way")
    for _ in range(2):
        with pytest.raises(JournalError, match=r"was removed .* and no other file can be begun"):
            journal.write(decision())
    directory.unlink()
    journal.write(decision())
    journal.close()

    assert [line["seq"] for line in lines(directory)] == [5, 6, 7]
    assert lines(directory)[-1]["lost"] == 2


# -- what is recorded of passes, and of repeats ---------------------------------------------------------------


def test_of_many_passes_one_stands_for_n(tmp_path):
    journal = journal_in(tmp_path, passes=10)
    for number in range(25):
        journal.write(decision(f"https://a.test/{number}", verdict=PASS))
    journal.write(decision(verdict=DROP))
    journal.close()
    found = list(records(tmp_path))

    assert [(record.action, record.sampled) for record in found] == [("pass", 10)] * 3 + [("drop", None)]


def test_repeats_are_counted_and_the_first_is_written(tmp_path):
    journal = journal_in(tmp_path, aggregate=60.0)
    for second in range(50):
        journal.write(decision(f"https://a.test/private/{second}", at=AT + second))
    journal.write(decision("https://b.test/private/", at=AT + 50))
    journal.write(decision("https://a.test/private/late", at=AT + 61))
    journal.write(decision("https://a.test/private/later", at=AT + 62))
    journal.close()
    found = [line for line in lines(tmp_path) if line["kind"] not in ("start", "stop")]

    assert [(line["kind"], line.get("url"), line.get("count")) for line in found] == [
        ("decision", "https://a.test/private/0", None),
        ("decision", "https://b.test/private/", None),
        ("decision", "https://a.test/private/late", None),
        ("repeats", None, 49),
        ("repeats", None, 1),
    ]
    assert (found[3]["since"], found[3]["until"]) == ("2027-01-15T08:00:00.000Z", "2027-01-15T08:00:49.000Z")
    assert (found[3]["origin"], found[3]["rule"], found[3]["line"]) == ("https://a.test", "Disallow: /private/", 2)


def test_what_has_escaped_is_not_counted_among_what_has_not(tmp_path):
    journal = journal_in(tmp_path, aggregate=60.0)
    refused = decision()
    sent = msgspec.structs.replace(refused.question, sent=True, led_by="https://a.test/open?token=secret")
    escaped = msgspec.structs.replace(refused, question=sent)
    for made in (refused, refused, escaped, escaped):
        journal.write(made)
    journal.close()
    found = [line for line in lines(tmp_path) if line["kind"] == "decision"]

    assert [(line.get("escaped"), line.get("led_by")) for line in found] == [
        (None, None),
        (True, "https://a.test/open?token=REDACTED"),
    ]


def test_a_first_that_could_not_be_written_is_not_counted_away(tmp_path, monkeypatch):
    journal = journal_in(tmp_path, aggregate=60.0)
    whole = os.write
    monkeypatch.setattr(os, "write", no_space)
    with pytest.raises(JournalError):
        journal.write(decision())
    monkeypatch.setattr(os, "write", whole)
    journal.write(decision())
    journal.close()

    assert kinds(tmp_path) == ["start", "decision", "stop"]


# -- files ----------------------------------------------------------------------------------------------------


def test_midnight_begins_a_new_file(tmp_path):
    journal = journal_in(tmp_path)
    midnight = AT - AT % DAY + DAY
    for at in (midnight - 0.001, midnight, midnight + 1):
        journal.write(decision(at=at))
    journal.close()
    days = [path.name[:8] for path in sorted(tmp_path.iterdir())]

    assert days == ["20270115", "20270116"]
    assert [line.get("segment") for line in lines(tmp_path) if line["kind"] == "start"] == [1, 2]
    assert [line["seq"] for line in lines(tmp_path)] == list(range(1, 7))


def test_a_clock_that_is_set_back_begins_a_new_file_too(tmp_path):
    """Else a file of a day to come goes on with records of today, and a question for today leaves it aside."""
    journal = journal_in(tmp_path)
    for at in (AT, AT + 120 * DAY, AT + 1, AT, AT - DAY / 2):
        journal.write(decision(at=at))
    journal.close()

    assert [path.name[:8] for path in sorted(tmp_path.iterdir())] == ["20270115", "20270115", "20270515"]
    assert len(list(records(tmp_path))) == 5


def test_a_large_file_makes_room_for_the_next(tmp_path):
    journal = journal_in(tmp_path, rotate_bytes=4096)
    for number in range(40):
        journal.write(decision(f"https://a.test/private/{number}"))
    journal.close()
    sizes = [path.stat().st_size for path in tmp_path.glob("*.jsonl")]

    assert len(sizes) > 3
    assert max(sizes) < 4096 + 1024
    assert [record.url.rpartition("/")[2] for record in records(tmp_path)] == [str(number) for number in range(40)]


def test_where_no_new_file_can_be_had_the_old_one_goes_on(tmp_path, monkeypatch):
    journal = journal_in(tmp_path, rotate_bytes=4096)
    journal.write(decision())

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        for _ in range(40):
            journal.write(decision())
    journal.close()

    assert len(list(records(tmp_path))) == 41


def test_the_key_of_hashed_values_is_one_for_all_writers_and_for_nobody_else(tmp_path):
    from robots_guard.audit.privacy import Privacy

    urls = []
    for _ in range(2):
        journal = journal_in(tmp_path, privacy=Privacy(query="hash"))
        journal.write(decision("https://a.test/x?q=hello&r=hello"))
        journal.close()
    urls = {record.url for record in records(tmp_path)}

    assert len(urls) == 1
    assert "hello" not in urls.pop()
    assert (tmp_path / ".key").stat().st_mode & 0o177 == 0
    assert [path.name for path in tmp_path.glob(".key*")] == [".key"]


def test_on_a_file_system_without_hard_links_there_is_a_key_too(tmp_path, monkeypatch):
    from robots_guard.audit.privacy import Privacy

    def link(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    for _ in range(2):
        journal = journal_in(tmp_path, privacy=Privacy(query="hash"))
        journal.write(decision("https://a.test/x?q=hello"))
        journal.close()

    assert len({record.url for record in records(tmp_path)}) == 1
    assert [path.name for path in tmp_path.glob(".key*")] == [".key"]


@pytest.mark.parametrize("octets", [b"", b"k" * 31, b"k" * 33])
def test_what_is_no_key_is_refused(tmp_path, octets):
    """Under an empty key, what a power failure may leave, values can be found by trying them out."""
    from robots_guard.audit.privacy import Privacy

    (tmp_path / ".key").write_bytes(octets)
    with pytest.raises(SettingsError, match=r"\.key' is not a key of 32 octets: put it back .* or remove it"):
        journal_in(tmp_path, privacy=Privacy(query="hash"))


# -- keeping ----------------------------------------------------------------------------------------------------


def test_what_a_writer_holds_is_left_alone(tmp_path):
    journal = journal_in(tmp_path)
    journal.write(decision())
    for day in (1, 2, 100, 101):
        tidy(tmp_path, Retention(days=1), Look("boot", day * DAY, AT + day * DAY))

    assert [segment.path for segment in segments(tmp_path)] == [journal.path]
    with unheld(journal.path) as descriptor:
        assert descriptor is None
    journal.close()
    with unheld(segments(tmp_path)[0].path) as descriptor:
        assert descriptor is not None


def test_old_files_go_and_nobody_elses(tmp_path):
    for name in ("20270101-h-1-ab-0001.jsonl", "20270102-h-1-ab-0001.warc.gz", "20270103.1.parquet"):
        (tmp_path / name).write_bytes(b"x")
    for name in ("notes.jsonl", "20260101.txt"):
        (tmp_path / name).write_bytes(b"x")
    gone = []
    for day in (0, 1, 11, 12):
        gone += retain(tmp_path, Retention(days=10), Look("boot", day * DAY, AT))

    assert [path.name for path in gone] == [
        "20270101-h-1-ab-0001.jsonl",
        "20270102-h-1-ab-0001.warc.gz",
        "20270103.1.parquet",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".retention", "20260101.txt", "notes.jsonl"]


def test_the_oldest_go_until_the_rest_fits(tmp_path):
    for day in range(10, 15):
        (tmp_path / f"202701{day}-h-1-ab-0001.jsonl").write_bytes(b"x" * 100)
    gone = retain(tmp_path, Retention(days=0, octets=250), Look("boot", 1.0, AT))

    assert [path.name[:8] for path in gone] == ["20270110", "20270111", "20270112"]


# -- full disks ----------------------------------------------------------------------------------------------


def no_space(descriptor, octets):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("short", [0, 1, 40, -1])
def test_a_full_disk_at_every_nth_write(tmp_path, monkeypatch, short):
    """Whatever the n-th write does, what was acknowledged is read back, nothing else is, and the next one succeeds."""
    whole = os.write
    for nth in range(1, 201):
        directory = tmp_path / str(nth)
        journal = journal_in(directory, chain=True)
        calls = iter(range(1, 10_000))

        def fails_once(descriptor, octets, nth=nth, calls=calls):
            if next(calls) != nth:
                return whole(descriptor, octets)
            return whole(descriptor, octets[:short]) if short else no_space(descriptor, octets)

        monkeypatch.setattr(os, "write", fails_once)
        acknowledged = []
        for number in range(nth // 2 + 3 if nth > 20 else 25):
            try:
                journal.write(decision(f"https://a.test/private/{number}"))
                acknowledged.append(f"https://a.test/private/{number}")
            except JournalError:
                pass
        monkeypatch.setattr(os, "write", whole)
        journal.close()
        trouble = Trouble()

        assert [record.url for record in records(directory, trouble=trouble)] == acknowledged
        assert sum(trouble.torn.values()) <= 1
        assert not trouble.lines
        (found,) = verify(directory, Trouble())
        assert found.chain == "whole"


def test_a_disk_that_does_not_take_a_record_is_an_error_and_the_chain_holds(tmp_path, monkeypatch):
    journal = journal_in(tmp_path, fsync=True, chain=True)
    journal.write(decision("https://a.test/1"))

    def fails(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(JournalError, match="Input/output error"):
            journal.write(decision("https://a.test/2"))
    journal.write(decision("https://a.test/3"))
    journal.close()
    (found,) = verify(tmp_path, Trouble())

    assert [record.url[-1] for record in records(tmp_path)] == ["1", "2", "3"]
    assert (found.chain, found.problems) == ("whole", [])


# -- chains and verifying ----------------------------------------------------------------------------------------


@pytest.fixture
def chained(tmp_path):
    journal = journal_in(tmp_path, chain=True, rotate_bytes=200_000)
    for number in range(1200):
        journal.write(decision(f"https://a.test/private/{number}"))
    journal.close()
    return tmp_path


def test_an_untouched_journal_is_whole(chained):
    (found,) = verify(chained, Trouble())

    assert len(list(chained.iterdir())) == 3, [path.stat().st_size for path in chained.iterdir()]
    assert (found.chain, found.problems, found.notes, found.stopped) == ("whole", [], [], True)
    assert found.records == found.last == 1200 + 3 + 1 + 2  # starts, a stop, checkpoints


@pytest.mark.parametrize("line", [1, 2, 500, 700, 1204])
def test_an_edited_line_is_found_between_two_checkpoints(chained, line):
    number = f'"seq":{line},'.encode()
    (path,) = (path for path in chained.iterdir() if number in path.read_bytes())
    octets = path.read_bytes()
    place = octets.index(number)
    path.write_bytes(octets[:place] + octets[place:].replace(b'"door":"cli"', b'"door":"CLI"', 1))
    (found,) = verify(chained, Trouble())

    assert found.chain == "broken"
    (problem,) = found.problems
    first, last = (int(word) for word in problem.split() if word.isdigit())
    assert first <= line <= last


def test_a_removed_line_is_a_gap_and_breaks_the_chain(chained):
    path = min(chained.iterdir())
    octets = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(octets[:10] + octets[11:]))
    (found,) = verify(chained, Trouble())

    assert found.problems[0] == "11 is missing: not written (full disk, I/O error), or removed"
    assert found.chain == "broken"


def test_a_removed_file_is_a_gap(chained):
    sorted(chained.iterdir())[1].unlink()
    (found,) = verify(chained, Trouble())

    assert "are missing" in found.problems[0]


def test_a_missing_beginning_is_noted_and_the_rest_is_checked(chained):
    min(chained.iterdir()).unlink()
    (found,) = verify(chained, Trouble())

    assert (found.chain, found.problems) == ("whole", [])
    assert found.notes[0].startswith("begins at ")


def test_without_a_chain_an_edit_is_not_found_but_a_gap_is(tmp_path):
    journal = journal_in(tmp_path)
    for _ in range(5):
        journal.write(decision())
    journal.close()
    octets = journal.path.read_bytes().replace(b"mybot", b"MYBOT").splitlines(keepends=True)
    journal.path.write_bytes(b"".join(octets[:2] + octets[3:]))
    (found,) = verify(tmp_path, Trouble())

    assert (found.chain, found.problems) == ("none", ["3 is missing: not written (full disk, I/O error), or removed"])


def test_a_killed_writer_is_noted_not_blamed(tmp_path):
    journal = journal_in(tmp_path)
    journal.write(decision())
    octets = journal.path.read_bytes()
    journal.close()
    journal.path.write_bytes(octets + b'{"kind":"decision","sch')
    trouble = Trouble()
    (found,) = verify(tmp_path, trouble)

    assert (found.problems, found.notes) == ([], ["ends without a stop: killed, or an I/O error"])
    assert (trouble.torn, trouble.lines) == ({journal.path.name: 1}, {})


def test_a_writer_that_was_killed_before_its_first_record_is_noted(tmp_path):
    """It may have been fetching its first robots.txt: its file is empty."""
    journal = journal_in(tmp_path)
    (alive,) = verify(tmp_path, Trouble())
    (left,) = tmp_path.glob("*.jsonl")
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(left, tmp_path / "elsewhere" / left.name)
    (killed,) = verify(tmp_path / "elsewhere", Trouble())
    journal.close()

    assert verify(tmp_path, Trouble()) == []  # one that ends leaves no empty file
    assert (alive.records, alive.problems, alive.notes) == (0, [], ["has written no record", "is being written"])
    assert killed.writer == alive.writer != ""
    assert (killed.problems, killed.notes) == (
        [],
        ["has written no record", "ends without a stop: killed, or an I/O error"],
    )


def test_a_sampled_relaxation_is_always_there(tmp_path):
    journal = journal_in(tmp_path, passes=100)
    relaxed = Verdict(action=Action.PASS, reason=Reason.RESTRICTED, relaxed="on_restricted=allow")
    for _ in range(5):
        journal.write(decision(verdict=relaxed))
    journal.close()

    assert len(list(records(tmp_path))) == 5
