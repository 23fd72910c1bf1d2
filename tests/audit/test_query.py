"""Reading the audit log: in order, across all writers, skipping what is not a record."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robots_guard.audit.read.reader import LONGEST_LINE, Filter, Follower, Unreadable, records
from robots_guard.audit.record import Writer, record_of
from robots_guard.errors import SettingsError


def line(at=AT, seq=1, writer="w", **values):
    return record_of(decision(at=at, **values), Writer(writer=writer), seq=seq).line_of_json()


def ids(found):
    return [(record.writer, record.seq) for record in found]


def test_records_of_all_writers_come_in_order_of_time(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        line(AT, 1, "a") + line(AT + 3, 2, "a") + line(AT + 4, 3, "a")
    )
    (tmp_path / "b.jsonl").write_bytes(line(AT + 1, 1, "b") + line(AT + 3, 2, "b"))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(line(AT, 9, "no"))
    trouble = Unreadable()

    assert ids(records(tmp_path, trouble=trouble)) == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("b", 2),
        ("a", 3),
    ]
    assert not trouble


def test_written_records_are_read_back_unchanged(tmp_path):
    audit_log = audit_log_in(tmp_path, audit="all")
    made = [
        decision(verdict=verdict, user_agent="\x1b[31m\u202e\udc80\n")
        for verdict in (DROP, PASS, DEFER)
    ]
    for each in made:
        audit_log.write(each)
    expected = [
        record_of(each, Writer(writer=audit_log.writer), seq=n, mono=7.0)
        for n, each in enumerate(made, 2)
    ]

    assert list(records(tmp_path)) == expected
    audit_log.close()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [1, 2, 3, 4]),
        ({"since": "2027-01-15T08:00:01.000Z"}, [2, 3, 4]),
        ({"until": "2027-01-15T08:00:02.000Z"}, [1, 2]),
        ({"since": "2027-01-15T08:00:01.000Z", "until": "2027-01-15T08:00:02.000Z"}, [2]),
        ({"origin": "https://b.test"}, [2]),
        ({"reason": "unreachable"}, [3]),
        ({"action": "pass"}, [4]),
        ({"component": "scrapy"}, [4]),
        ({"agent": "OTHERBOT"}, [1]),
        ({"action": "drop", "component": "scrapy"}, []),
        ({"url": "HTTPS://user@B.test:443#x"}, [2]),
        ({"url_prefix": "https://a.test/%70rivate/"}, [1, 3, 4]),
        ({"host": "b.test"}, [2]),
    ],
)
def test_filters(tmp_path, wanted, found):
    (tmp_path / "a.jsonl").write_bytes(
        line(AT, 1, agent="otherbot")
        + line(AT + 1, 2, url="https://b.test/")
        + line(AT + 2, 3, verdict=DEFER)
        + line(AT + 3, 4, verdict=PASS, component="scrapy")
    )

    assert [record.seq for record in records(tmp_path, Filter(**wanted))] == found


FOREIGN = [
    b"\n",
    b"nonsense\n",
    b"{}\n",
    b"[]\n",
    b"null\n",
    b"\xff\xfe\x00\n",
    b"\x1b]0;title\x07\n",
    b"[" * 50_000 + b"\n",
    line()[:-30] + b"\n",
    line()[:100] + line(),
    line().replace(b'"line":2', b'"line":"2"'),
    line().replace(b"2027-01-15T08:00:00.000Z", b"yesterday"),
    b"x" * (3 * LONGEST_LINE) + b"\n",
    b'{"id":"' + b"x" * (2 * LONGEST_LINE) + b'"}\n',
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=range(len(FOREIGN)))
def test_a_foreign_line_is_counted_and_skipped(tmp_path, foreign):
    path = tmp_path / "a.jsonl"
    path.write_bytes(line(seq=1) + foreign + line(seq=2))
    trouble = Unreadable()

    assert [record.seq for record in records(tmp_path, trouble=trouble)] == [1, 2]
    assert trouble.lines | trouble.torn == ({path.name: 1} if foreign.strip() else {})
    assert not trouble.lines or str(trouble) == "1 unreadable line in a.jsonl"


def test_a_record_of_a_newer_version_is_named_so(tmp_path):
    newer = line(seq=2).replace(b'"schema":1', b'"schema":99')
    (tmp_path / "a.jsonl").write_bytes(line(seq=1) + newer + newer.replace(b"99", b"98"))
    trouble = Unreadable()

    assert [record.seq for record in records(tmp_path, trouble=trouble)] == [1]
    assert (trouble.newer, trouble.lines, trouble.torn) == ({"a.jsonl": (2, 99)}, {}, {})
    assert str(trouble) == (
        "2 records in a.jsonl written by a newer robots_guard (schema 99):"
        " update robots_guard to read them"
    )


def test_a_torn_tail_is_counted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line(seq=1) + line(seq=2)[:200])
    trouble = Unreadable()

    assert [record.seq for record in records(tmp_path, trouble=trouble)] == [1]
    assert str(trouble) == "1 torn line in a.jsonl (a write was cut off)"


def test_unknown_fields_of_a_later_version_are_ignored(tmp_path):
    extended = json.dumps(json.loads(line(seq=1)) | {"later": [1]}).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(extended)

    assert [record.seq for record in records(tmp_path)] == [1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_arbitrary_bytes_cause_no_error(tmp_path, pieces):
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(pieces) + b"\n" + line(seq=1))

    assert [record.seq for record in records(tmp_path, trouble=Unreadable())] == [1]


def test_irregular_files_are_reported_and_skipped(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line())
    (tmp_path / "directory.jsonl").mkdir()
    (tmp_path / "link.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "gone.jsonl").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe.jsonl")
    trouble = Unreadable()

    assert len(list(records(tmp_path, trouble=trouble))) == 1
    assert set(trouble.files) == {"directory.jsonl", "link.jsonl", "gone.jsonl", "pipe.jsonl"}
    assert "pipe.jsonl cannot be read (not a regular file)" in str(trouble)


def test_more_files_than_a_process_can_open(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(200):
        (tmp_path / f"{number}.jsonl").write_bytes(line(AT + number, number))
    # The tests of this process may have opened it.
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, hard))
    try:
        found = [record.seq for record in records(tmp_path)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found == list(range(200))


def test_a_missing_directory_is_reported_in_one_sentence(tmp_path):
    with pytest.raises(
        SettingsError, match=r"^nothing has been recorded yet in .*name the directory"
    ):
        list(records(tmp_path / "none"))


# -- following ----------------------------------------------------------------------------------------------


def test_following_sees_what_is_written_and_files_that_appear(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line(AT, 1, "a"))
    follower = Follower(tmp_path, Unreadable())
    wanted = Filter()

    assert ids(follower.new(wanted)) == [("a", 1)]
    assert ids(follower.new(wanted)) == []
    with (tmp_path / "a.jsonl").open("ab") as more:
        more.write(line(AT + 5, 2, "a"))
    (tmp_path / "b.jsonl").write_bytes(line(AT + 4, 1, "b"))
    assert ids(follower.new(wanted)) == [("b", 1), ("a", 2)]
    assert ids(follower.new(wanted)) == []


def test_an_incomplete_line_is_read_once_it_is_complete(tmp_path):
    trouble = Unreadable()
    follower = Follower(tmp_path, trouble)
    whole = line()
    with (tmp_path / "a.jsonl").open("ab", buffering=0) as writer:
        for data in (whole[:1], whole[1:300], whole[300:-1]):
            writer.write(data)
            assert ids(follower.new(Filter())) == []
        writer.write(whole[-1:] + whole[:10])

        assert len(list(follower.new(Filter()))) == 1
    assert not trouble


def test_following_skips_endless_lines(tmp_path):
    trouble = Unreadable()
    follower = Follower(tmp_path, trouble)
    with (tmp_path / "a.jsonl").open("ab", buffering=0) as writer:
        for _ in range(5):
            writer.write(b"x" * LONGEST_LINE)
            assert ids(follower.new(Filter())) == []
        writer.write(b"\n" + line())

        assert len(list(follower.new(Filter()))) == 1
    assert sum(trouble.lines.values()) == 1
