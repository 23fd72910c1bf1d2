"""Legal holds keep files from housekeeping, and what housekeeping removes is on record."""

from __future__ import annotations

import fcntl
import os
import threading

import pytest
from audit.decisions import AT, audit_log_in, decision

from robots_guard.audit.anchors import Anchor, ChainHead
from robots_guard.audit.holds import Hold, read_holds, write_holds
from robots_guard.audit.read.reader import Filter, Unreadable, entries
from robots_guard.audit.read.verify import verify_log
from robots_guard.audit.read.writer_check import Trust
from robots_guard.audit.write.maintenance import add_hold, release_hold, retain, tidy
from robots_guard.audit.write.retention import Inspection, Retention
from robots_guard.errors import AuditLogError, SettingsError

DAY = 86400.0
TEN = Retention(days=10)
DAYS = ("0101", "0110", "0115", "0120")
FORMS = ("-h-1-ab-0001.jsonl", "-h-2-ab-0001.jsonl.zst", "-h-1-ab-0001.warc.gz")


def hold(**values):
    return Hold(id="7", at="2027-01-20T00:00:00.000Z", owner="jane", reason="case 7", **values)


@pytest.fixture
def directory(tmp_path):
    """A directory with files of each form of four days."""
    for day in DAYS:
        for form in FORMS:
            (tmp_path / f"2027{day}{form}").write_bytes(b"x" * 100)
    return tmp_path


def look(directory, day, retention=TEN):
    return retain(directory, retention, Inspection("boot", day * DAY, AT))


def looks(directory, retention=TEN):
    """Housekeeping for so long that every file is due; the names of the days whose files are left."""
    for day in range(14):
        look(directory, day, retention)
    return sorted({path.name[4:8] for path in directory.glob("2027*")})


@pytest.mark.parametrize(
    ("period", "kept"),
    [
        ({}, list(DAYS)),
        ({"since": "2027-01-15T12:00:00.000Z"}, ["0115", "0120"]),
        ({"until": "2027-01-10T12:00:00.000Z"}, ["0101", "0110"]),
        (
            {"since": "2027-01-12T00:00:00.000Z", "until": "2027-01-13T00:00:00.000Z"},
            ["0110", "0115"],  # a file's day may be two days from its records'
        ),
        ({"since": "2028-01-01T00:00:00.000Z"}, []),
    ],
)
def test_a_hold_keeps_all_files_of_its_period(directory, period, kept):
    write_holds(directory, [hold(**period)])

    assert looks(directory) == kept
    assert len([*directory.glob("2027*")]) == len(kept) * len(FORMS)


def test_after_its_release_the_files_are_removed(directory):
    write_holds(directory, [hold()])
    assert looks(directory) == list(DAYS)
    write_holds(directory, [])

    assert len(look(directory, 15)) == len(DAYS) * len(FORMS)


DEEP = b'{"x":' + b"[" * 100_000  # raises RecursionError


@pytest.mark.parametrize(
    "content", [b"{}", b"", b"{", b"[]", b'{"holds": 1}', b"\xff", b'{"format":"2"}', DEEP]
)
def test_while_the_holds_cannot_be_read_nothing_is_removed(directory, caplog, content):
    (directory / ".holds").write_bytes(content)
    with pytest.raises(SettingsError, match="so no file of the audit log is removed"):
        look(directory, 1)
    for day in range(14):
        tidy(directory, TEN, Inspection("boot", day * DAY, AT + day * DAY))

    assert sorted({path.name[4:8] for path in directory.glob("2027*")}) == list(DAYS)
    assert "cannot be read" in caplog.text


def huge(path):
    with path.open("wb") as file:
        file.truncate(2**40)


@pytest.mark.parametrize(
    "make", [lambda path: path.mkdir(), lambda path: path.symlink_to("x"), huge]
)
def test_what_is_no_file_is_not_read_as_no_holds(directory, make):
    make(directory / ".holds")

    with pytest.raises(SettingsError, match="cannot be read"):
        look(directory, 1)


def test_held_files_do_not_crowd_out_the_latest(directory, caplog):
    write_holds(directory, [hold(until="2027-01-05T00:00:00.000Z")])
    look(directory, 0, Retention(days=0, size=350))

    assert sorted({path.name[4:8] for path in directory.glob("2027*")}) == ["0101", "0120"]
    assert "more than audit_retention_bytes allows, because holds keep" in caplog.text


def test_a_size_limit_that_is_kept_is_not_warned_of(directory, caplog):
    write_holds(directory, [hold(until="2027-01-05T00:00:00.000Z")])
    look(directory, 0, Retention(days=0, size=2000))

    assert caplog.text == ""


def test_the_log_records_a_hold_and_its_release(tmp_path):
    log = audit_log_in(tmp_path)
    log.write(decision())
    add_hold(tmp_path, hold(origins=["https://a.test"]), AT + 1, log.note)
    assert [each.id for each in read_holds(tmp_path)] == ["7"]
    release_hold(tmp_path, "7", "joe", "settled", AT + 2, log.note)
    log.close()
    added, released = entries(tmp_path, Filter(kind="hold"))

    assert read_holds(tmp_path) == []
    assert (added.change, added.owner, added.reason) == ("add", "jane", "case 7")
    assert (released.change, released.owner, released.reason) == ("release", "joe", "settled")
    assert added.origins == released.origins == ["https://a.test"]


def test_what_cannot_be_recorded_stays_on_hold(tmp_path):
    def fail(_):
        raise AuditLogError("full disk")

    with pytest.raises(AuditLogError):
        add_hold(tmp_path, hold(), AT, fail)
    assert [each.id for each in read_holds(tmp_path)] == ["7"]
    with pytest.raises(AuditLogError):
        release_hold(tmp_path, "7", "joe", "settled", AT, fail)
    assert [each.id for each in read_holds(tmp_path)] == ["7"]


def test_a_hold_waits_for_the_housekeeping_of_another_process(directory):
    """Which has decided already what to remove."""
    lock = os.open(directory, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = threading.Thread(target=add_hold, args=(directory, hold(), AT, lambda _: None))
    done.start()
    done.join(0.05)
    assert (done.is_alive(), read_holds(directory)) == (True, [])
    os.close(lock)
    done.join()

    assert len(read_holds(directory)) == 1


def test_two_holds_at_the_same_time_are_both_kept(tmp_path):
    each = [
        threading.Thread(
            target=add_hold,
            args=(tmp_path, Hold(id=str(number), at="", owner="o", reason="r"), AT, lambda _: None),
        )
        for number in range(10)
    ]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()

    assert sorted(found.id for found in read_holds(tmp_path)) == [str(n) for n in range(10)]


# -- removals ----------------------------------------------------------------------------------------------------


def written(directory, at, **values):
    log = audit_log_in(directory, chain=True, now=at, **values)
    log.write(decision(at=at))
    log.close()
    (found,) = verify_log(directory, Unreadable()).writers[-1:]
    return log, found


def housekeeping_of(directory, log):
    for day in range(14):
        tidy(directory, TEN, Inspection("boot", day * DAY, AT + day * DAY), log.announce_removal)


def test_what_housekeeping_removes_is_on_record_and_not_missing(tmp_path):
    old, _ = written(tmp_path, AT)
    (finding,) = verify_log(tmp_path, Unreadable()).writers
    trust = Trust(heads=(ChainHead(finding.writer, finding.last, finding.head),))
    kept = audit_log_in(tmp_path, chain=True, now=AT + 20)
    kept.write(decision(at=AT + 20))
    housekeeping_of(tmp_path, kept)
    assert not old.path.exists()
    gone = {each.writer: each for each in verify_log(tmp_path, Unreadable(), trust).writers}

    (removal,) = entries(tmp_path, Filter(kind="removal"))
    (name,) = removal.files
    assert name.removesuffix(".zst") == old.path.name  # compressed if zstandard is installed
    assert gone[old.writer].problems == []
    assert gone[old.writer].notes == [
        "is gone since the given statement: housekeeping removed its files"
    ]
    kept.close()


def test_what_somebody_else_removes_is_missing(tmp_path):
    old, _ = written(tmp_path, AT)
    (finding,) = verify_log(tmp_path, Unreadable()).writers
    trust = Trust(heads=(ChainHead(finding.writer, finding.last, finding.head),))
    written(tmp_path, AT + 20)
    old.path.unlink()

    assert not verify_log(tmp_path, Unreadable(), trust).is_whole


def test_an_anchor_older_than_the_log_asks_for_nothing(tmp_path):
    """The records of the removals are gone by then, too."""
    written(tmp_path, AT)
    for at, is_whole in (("2027-01-15T07:00:00.000Z", True), ("2027-01-15T09:00:00.000Z", False)):
        for path in tmp_path.glob("anchor*"):
            path.unlink()
        anchor = Anchor(at=at, heads=[ChainHead("w-1", 3, "ab" * 32)])
        (tmp_path / anchor.filename).write_bytes(
            b'{"format":"robots_guard-anchor-1","at":"%s","heads":[{"writer":"w-1","last":3,"head":"%s"}]}'
            % (at.encode(), b"ab" * 32)
        )
        assert verify_log(tmp_path, Unreadable()).is_whole is is_whole


def test_a_closed_log_lets_nothing_be_removed_without_a_record(tmp_path):
    written(tmp_path, AT)
    log, _ = written(tmp_path, AT + 20)
    housekeeping_of(tmp_path, log)

    assert len([*tmp_path.glob("*.jsonl*")]) == 2
    assert verify_log(tmp_path, Unreadable()).is_whole


def test_a_full_disk_is_made_room_on_without_a_record(tmp_path, monkeypatch):
    old, _ = written(tmp_path, AT)
    log = audit_log_in(tmp_path, chain=True, now=AT + 20)
    log.write(decision(at=AT + 20))

    def fail(*_, **__):
        raise AuditLogError("no space")

    monkeypatch.setattr(log, "note", fail)
    housekeeping_of(tmp_path, log)
    assert not [*tmp_path.glob(f"*{old.writer}*")]
    log.close()


def test_anchors_and_holds_are_left_alone_by_housekeeping(directory):
    names = ("anchor-20270101T000000Z.json", ".holds")
    write_holds(directory, [])
    (directory / names[0]).write_text("{}")
    looks(directory)
    looks(directory, Retention(days=1, size=1))

    assert all((directory / name).exists() for name in names)
