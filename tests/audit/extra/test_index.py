"""The index of finished files: a cache that says what the files say, and that can be removed at any time."""

from __future__ import annotations

import os
import shutil
import stat

import pytest
from audit.decisions import AT, PASS, audit_log_in, decision

from robots_guard.audit.read import index
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import LoadedSearch, Search, find_decision
from robots_guard.audit.segments import INDEX, segments
from robots_guard.audit.write.maintenance import compress, inspect, tidy
from robots_guard.audit.write.retention import Retention

# A test replaces the private `_identity`, because it cannot create files of another user.

DAY = 86400
ALL = 'SELECT * FROM records ORDER BY "at", writer, seq, id'


@pytest.fixture(autouse=True)
def _index_small_files(monkeypatch):
    monkeypatch.setattr(index, "WORTHWHILE", 1)


@pytest.fixture
def directory(tmp_path):
    """A log of two days, whose files are closed."""
    for day in range(2):
        made = audit_log_in(tmp_path / "log", audit="all")
        for number in range(30):
            url = f"https://site-{number % 4}.test/private/{number}"
            values = {"at": AT + day * DAY + number, "client": 'a"\u2028\x7f'}
            made.write(decision(url, *([PASS] if number % 3 else []), **values))
        made.close()
    return tmp_path / "log"


def rows(directory, kind=LoadedSearch):
    with kind(directory) as search:
        return [*search.rows(ALL)], str(search.unreadable())


def copies(directory):
    folder = directory / INDEX
    return sorted(folder.iterdir()) if folder.exists() else []


def lines(directory):
    return [segment.path for segment in segments(directory)]


def test_the_index_says_what_the_files_say(directory):
    expected = rows(directory, Search)
    assert len(expected[0]) == 2 * 32

    assert rows(directory) == expected
    first = copies(directory)
    assert len(first) == 2
    assert rows(directory) == expected
    assert copies(directory) == first


@pytest.mark.parametrize("kinds", [(Search, LoadedSearch), (LoadedSearch, Search)])
def test_commands_and_the_console_share_the_copies(directory, kinds):
    first = rows(directory, kinds[0])
    made = [(copy, copy.stat().st_mtime_ns) for copy in copies(directory)]

    assert rows(directory, kinds[1]) == first
    assert [(copy, copy.stat().st_mtime_ns) for copy in copies(directory)] == made
    assert len(made) == 2


def test_a_query_for_a_period_copies_its_days_and_leaves_others_alone(directory):
    day = {"since": "2027-01-17T12:00:00.000Z", "until": "2027-01-18T00:00:00.000Z"}
    for path in lines(directory):  # as if it was closed at the end of its day
        end = AT + 16 * 3600 + DAY * (path.name[:8] == "20270116")
        os.utime(path, (end, end))
    with Search(directory, Filter(kind=None, **day)) as search:
        assert [*search.records()] == []
    (copy,) = copies(directory)
    assert copy.name.startswith("20270116.")

    rows(directory, Search)
    both = copies(directory)
    with Search(directory, Filter(kind=None, **day)) as search:
        assert [*search.records()] == []
    assert copies(directory) == both
    assert len(both) == 2


def test_a_search_for_few_records_copies_nothing(directory):
    """To copy all days would take longer than to read the one in which they are."""
    with Search(directory, makes_copies=False) as search:
        assert len([*search.records(limit=3)]) == 3
    assert find_decision(directory, "w-1") is not None
    assert not (directory / INDEX).exists()

    expected = rows(directory)
    with Search(directory, makes_copies=False) as search:
        assert [*search.rows(ALL)] == expected[0]


def test_copies_of_days_whose_files_are_gone_are_removed(directory):
    rows(directory)
    min(lines(directory)).unlink()
    with Search(directory, Filter(since="2027-01-17T00:00:00.000Z")):
        pass

    assert [copy.name[:8] for copy in copies(directory)] == ["20270116"]


def test_what_another_process_writes_is_left_alone_until_it_is_old(directory):
    rows(directory)
    part = copies(directory)[0].with_suffix(".parquet.0123abcd.part")
    part.write_bytes(b"being written")
    rows(directory)
    assert part.exists()

    os.utime(part, (0, 0))
    rows(directory)
    assert not part.exists()


def test_nothing_is_copied_without_room_for_all_lines(directory, monkeypatch):
    """A writer may need the space."""
    size = max(path.stat().st_size for path in lines(directory))
    usage = shutil.disk_usage(directory)
    monkeypatch.setattr(index.shutil, "disk_usage", lambda _: usage._replace(free=size - 1))
    assert len(rows(directory)[0]) == 2 * 32
    assert len(copies(directory)) < 2

    monkeypatch.setattr(index.shutil, "disk_usage", lambda _: usage._replace(free=size))
    rows(directory)
    assert len(copies(directory)) == 2


def test_lines_that_are_no_records_are_reported_from_the_index_too(directory):
    with lines(directory)[0].open("ab") as file:
        file.write(b'{"kind":"decision","schema":9,"at":"2027-01-15T08:00:00.000Z"}\n')
        file.write(b'\xff\x00garbage\n[]\n{"kind":"decision","schema":1,"at":"x"}\n{"kind":"dec')
    expected = rows(directory, Search)
    assert "unreadable lines" in expected[1]
    assert "newer" in expected[1]

    assert rows(directory) == expected
    assert rows(directory) == expected
    assert len(copies(directory)) == 2


def test_a_file_that_is_written_is_not_copied(directory):
    open_log = audit_log_in(directory)
    open_log.write(decision(at=AT + DAY + 50))
    with LoadedSearch(directory) as search:
        before = len([*search.rows(ALL)])
    copied = copies(directory)

    open_log.write(decision(at=AT + DAY + 51))

    assert len(rows(directory)[0]) == before + 1
    assert copies(directory) == copied
    open_log.close()


@pytest.mark.parametrize("change", ["append", "edit", "replace", "remove"])
def test_a_changed_file_is_noticed(directory, change):
    rows(directory)
    changed = lines(directory)[0]
    content, state = changed.read_bytes(), changed.stat()
    if change == "append":
        changed.write_bytes(content + content.splitlines(keepends=True)[1])
    elif change == "edit":  # of the same length, and with the time set back
        changed.write_bytes(content.replace(b"site-1.test", b"site-9.test"))
        os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    elif change == "replace":
        other = directory / "other"
        other.write_bytes(content.replace(b"site-1.test", b"site-9.test"))
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.rename(changed)
    else:
        changed.unlink()

    assert rows(directory) == rows(directory, Search)
    assert len(copies(directory)) == len({path.name[:8] for path in lines(directory)})


def test_a_compressed_file_is_copied_anew(directory):
    expected = rows(directory)
    compress(directory)
    assert rows(directory) == expected
    assert len(copies(directory)) == 2


def test_lines_are_counted_in_the_copies_that_are_read_now(directory):
    """Another reader has replaced the copy of a file that has changed."""
    search = LoadedSearch(directory)
    with lines(directory)[0].open("ab") as file:
        file.write(b"garbage\n")
    expected = rows(directory)

    assert str(search.unreadable()) == expected[1] != ""
    search.close()


def test_a_removed_index_loses_nothing(directory):
    expected = rows(directory)
    search = LoadedSearch(directory)
    for copy in copies(directory):
        copy.unlink()

    assert not search.is_whole()
    assert [*search.rows(ALL)] == expected[0]
    search.close()
    (directory / INDEX).rename(directory / "elsewhere")
    assert rows(directory) == expected


@pytest.mark.parametrize("content", [b"", b"PAR1garbagePAR1", "truncated", "foreign"])
def test_a_damaged_copy_is_made_anew(directory, content):
    expected = rows(directory)
    copy = copies(directory)[0]
    whole = copy.read_bytes()
    if content == "truncated":
        content = whole[: len(whole) // 2]
    elif content == "foreign":
        content = _foreign_table(directory)
    copy.write_bytes(content)

    assert rows(directory) == expected
    assert len(copies(directory)) == 2


def _foreign_table(directory):
    import duckdb

    path = directory / "foreign"
    duckdb.connect().execute(f"COPY (SELECT 1 AS other) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


def test_only_the_owner_can_read_the_index(directory):
    rows(directory)

    assert stat.S_IMODE((directory / INDEX).stat().st_mode) == 0o700
    assert {stat.S_IMODE(copy.stat().st_mode) for copy in copies(directory)} == {0o600}


@pytest.mark.parametrize("planted", ["link", "open", "file"])
def test_a_folder_that_others_can_write_to_is_not_used(directory, tmp_path, planted):
    folder, elsewhere = directory / INDEX, tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (elsewhere / "20270115.x.parquet").write_text("of another program")
    if planted == "link":
        folder.symlink_to(elsewhere)
    elif planted == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("no folder")

    assert rows(directory) == rows(directory, Search)
    assert [path.name for path in elsewhere.iterdir()] == ["20270115.x.parquet"]
    assert planted != "open" or copies(directory) == []


def test_files_of_another_user_are_not_copied(directory, monkeypatch):
    """Retention, which runs as that user, could not remove the copies."""
    identity = index._identity
    monkeypatch.setattr(index, "_identity", lambda path: identity(path)._replace(owner=2**30))

    assert rows(directory) == rows(directory, Search)
    assert copies(directory) == []


def test_a_log_that_cannot_be_written_to_is_read_without_index(directory, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(directory), "mkdir", refuse)
    assert rows(directory) == rows(directory, Search)
    assert copies(directory) == []


def test_small_files_are_not_copied(directory, monkeypatch):
    monkeypatch.setattr(index, "WORTHWHILE", 2**30)
    rows(directory)
    assert not (directory / INDEX).exists()


def test_retention_removes_the_copies_with_the_records(directory):
    rows(directory)
    assert len(copies(directory)) == 2

    tidy(directory, Retention(days=0, size=1), inspect(AT + 3 * DAY))

    assert lines(directory) == []
    assert copies(directory) == []
