"""The Parquet export of the audit log: complete, once, typed, and with the same answers."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path

import duckdb
import msgspec
import pytest
from audit.decisions import AT, DROP, audit_log_in, decision
from console.material import plant, scene
from support.lake import column_table

from robots_guard.audit.compaction import compact
from robots_guard.audit.lake.export import export, first_day_not_exported
from robots_guard.audit.lake.places import Folder, place_at
from robots_guard.audit.partitions import files_of, is_lake
from robots_guard.audit.read.reader import KINDS, Filter, Unreadable, entries, kind_of
from robots_guard.audit.read.search import Search, record_of_row
from robots_guard.audit.read.why import why
from robots_guard.audit.record import LONGEST, Passes, Repeats, moment
from robots_guard.audit.schema import COLUMNS
from robots_guard.audit.segments import segments
from robots_guard.audit.show.figures import summary
from robots_guard.audit.show.overview import overview
from robots_guard.audit.tables import LAKE_TABLES
from robots_guard.audit.write.maintenance import compress
from robots_guard.core.events import FailedOpen, HoldChanged, OverridesLoaded
from robots_guard.errors import SettingsError

LATER = "2027-01-16"  # the day after the records of the scene
NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


def exported(audit_log, lake, until=LATER, **options):
    trouble = Unreadable()
    written = [*export(audit_log, place_at(str(lake)), until, trouble, **options)]
    return written, trouble


def rows(directory):
    """All records, as rows of all columns in a fixed order."""
    with Search(directory) as search:
        return sorted(search.select(f"SELECT {NAMES} FROM records")[1], key=repr)


def table(lake, name, columns="*", more=""):
    where = lake / name / "*" / "*.parquet"
    sql = f"SELECT {columns} FROM read_parquet('{where}', hive_partitioning = true) {more}"
    return duckdb.sql(sql).fetchall()


def content(lake):
    return {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def append(audit_log, *lines, day="20270114", writer="planted"):
    path = audit_log / f"{day}-{writer}-0001.jsonl"
    with path.open("ab") as file:
        for line in lines:
            file.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
    return path


HEAD = {"kind": "decision", "schema": 1, "at": "2027-01-14T08:00:00.000Z", "seq": 1, "writer": "p"}
LINE = HEAD | {
    "id": "p-1", "agent": "mybot", "url": "https://a.test/x", "origin": "https://a.test",
    "action": "drop", "reason": "disallowed",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A log with records of all kinds of events, and its export."""
    place = scene(tmp_path_factory.mktemp("made"))
    log = audit_log_in(place.audit_log, component="proxy", summary=True, chain=True)
    log.note(FailedOpen(at=AT - 5, setting="audit_required = false", count=3, detail="full"))
    log.note(OverridesLoaded(at=AT - 4, source="o.toml", count=1, sha256="a" * 64, text="x = 1"))
    log.note(
        HoldChanged(
            at=AT - 3, hold="h", change="added", owner="jane", reason="case 7",
            origins=("https://shop.example",), since="2027-01-01T00:00:00.000Z", until=None,
        )
    )  # fmt: skip
    for number in range(30):
        log.write(decision(f"https://shop.example/private/{number}", DROP, at=AT - 2))
    log.close()
    plant(place.audit_log)
    append(place.audit_log, LINE)
    common = {"schema": 1, "at": moment(AT), "agent": "mybot", "origin": "https://a.test"}
    counted = {"since": moment(AT - 60), "until": moment(AT), "count": 7, "writer": "counts"}
    for number, kind in enumerate((Passes, Repeats), 1):
        more = {"id": "dropped"} if kind is Repeats else {}
        action = {"action": "pass", "reason": "allowed", "seq": number}
        made = kind(**common, **counted, **more, **action)
        append(place.audit_log, msgspec.to_builtins(made), day="20270115", writer="counts")
    place.store.close()
    lake = place.audit_log.parent / "lake"
    exported(place.audit_log, lake)
    return place.audit_log, lake


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A log of three files, with records of two days."""
    audit_log = tmp_path_factory.mktemp("small") / "audit_log"
    for writer in range(2):
        log = audit_log_in(audit_log, component="scrapy", job=f"job-{writer}")
        for number in range(20):
            url = f"https://a.test/private/{number}"
            log.write(decision(url, DROP, at=AT - 86400 + number))
            log.write(decision(url, DROP, at=AT + number))
        log.close()
    append(audit_log, LINE)
    return audit_log


@pytest.fixture
def copy(small, tmp_path):
    """A copy of the small log, and a place for its export."""
    shutil.copytree(small, tmp_path / "audit_log")
    return tmp_path / "audit_log", tmp_path / "lake"


# -- what is exported --------------------------------------------------------------------------------


def test_every_record_is_exported_once(made):
    audit_log, lake = made
    before = rows(audit_log)
    assert len(before) > 500
    assert rows(lake) == before
    assert sum(len(table(lake, name)) for name in LAKE_TABLES) == len(before)


def test_the_strict_reader_finds_the_same_records(made):
    audit_log, lake = made
    read = [entry.json() for entry in entries(audit_log, Filter(kind=None))]
    with Search(lake) as search:
        found = search.select(f"SELECT {NAMES} FROM records")[1]
        records = [record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in found]
    assert set(read) <= {entry.json() for entry in records if entry}


@pytest.mark.parametrize("form", ["compressed", "compacted"])
def test_from_compressed_and_compacted_files_too(copy, form):
    audit_log, lake = copy
    before = rows(audit_log)
    compress(audit_log)
    if form == "compacted":
        assert compact(audit_log, "99999999")
    exported(audit_log, lake)
    assert rows(lake) == before


def test_rows_are_typed_sorted_and_in_partitions_of_their_day(made):
    lake = made[1]
    types = dict(
        duckdb.sql(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet('{lake}"
            "/decisions/*/*.parquet', hive_partitioning = false))"
        ).fetchall()
    )
    assert types == LAKE_TABLES["decisions"].stored
    assert (types["at"], types["fetched_at"], types["until"]) == ("TIMESTAMP",) * 3
    assert (types["line"], types["age"], types["stale"]) == ("BIGINT", "DOUBLE", "BOOLEAN")
    assert types["redirects"] == "VARCHAR[]"
    for path in lake.glob("*/*/*.parquet"):
        found = duckdb.read_parquet(str(path), hive_partitioning=False)
        order = found.project("writer, seq").fetchall()
        assert order == sorted(order)
        days = {at.strftime("day=%Y-%m-%d") for (at,) in found.project('"at"').fetchall()}
        assert days == {path.parent.name}
        codecs = duckdb.sql(f"SELECT DISTINCT compression FROM parquet_metadata('{path}')")
        assert codecs.fetchall() == [("ZSTD",)]


def test_a_timestamp_is_the_moment_of_the_record(made):
    (found,) = table(made[1], "decisions", '"at", day', "WHERE id = 'by-override'")
    assert found[0] == datetime(2027, 1, 15, 7, 59, 20)
    assert str(found[1]) == "2027-01-15"


def test_each_kind_of_record_has_one_table(made):
    assert sorted(kind for each in LAKE_TABLES.values() for kind in each.kinds) == sorted(KINDS)
    for name, each in LAKE_TABLES.items():
        found = {kind for (kind,) in table(made[1], name, "DISTINCT kind")}
        assert found <= set(each.kinds)
        assert found, name


# -- the same answers --------------------------------------------------------------------------------


def test_the_report_and_the_overview_have_the_same_figures(made):
    figures = []
    for directory in made:
        with Search(directory) as search:
            now = moment(AT) or ""
            counted = summary(search, now)
            shown = overview(search, None, now)
            figures.append((counted, shown))
    assert repr(figures[0]) == repr(figures[1])


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(kind="fetch", origin="https://shop.example"),
        Filter(since="2027-01-15T00:00:00.000Z", action="drop"),
        Filter(until="2027-01-14T12:00:00.000Z"),
        Filter(url="https://shop.example/item/%37"),
        Filter(host="shop.example", reason="disallowed"),
        Filter(id="put-off"),
        Filter(kind="start"),
    ],
)
def test_a_search_finds_the_same_records(made, wanted):
    found = []
    for directory in made:
        with Search(directory, wanted) as search:
            found.append([*search.records(newest_first=True)])
    assert found[0] == found[1]


def test_why_gives_the_same_answer(made):
    answers = []
    for directory in made:
        wanted = Filter(url="https://shop.example/private/diary?day=1")
        answers.append(why(directory, wanted, Unreadable()))
    log, lake = (msgspec.to_builtins(answer) for answer in answers)
    assert log["record"] == lake["record"]
    assert log["record"]["id"] == "dropped"
    assert {**log, "searched": None} == {**lake, "searched": None}
    assert log["searched"]["passes"] == lake["searched"]["passes"]


# -- repeated ----------------------------------------------------------------------------------------


def test_a_second_export_writes_nothing(copy):
    audit_log, lake = copy
    written, _ = exported(audit_log, lake)
    before = content(lake)
    assert written
    assert exported(audit_log, lake)[0] == []
    assert content(lake) == before


def test_without_the_list_of_what_is_exported_nothing_is_written_either(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    before = content(lake)
    (lake / "_exports/records.json").write_bytes(b"{ \xff")
    assert exported(audit_log, lake)[0] == []
    assert content(lake).keys() == before.keys()
    assert all(content(lake)[path] == before[path] for path in lake.glob("*/*/*.parquet"))


def test_what_is_compacted_later_is_not_exported_again(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    before = rows(lake)
    compress(audit_log)
    compact(audit_log, "99999999")
    assert exported(audit_log, lake)[0] == []
    assert rows(lake) == before


def test_new_records_are_added(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    append(audit_log, LINE | {"seq": 2, "id": "p-2"})
    (written,), _ = exported(audit_log, lake)
    assert (written.name, written.added) == ("decisions/day=2027-01-14/records.parquet", 1)
    assert rows(lake) == rows(audit_log)


def test_a_day_that_is_not_over_is_left_for_later(copy):
    audit_log, lake = copy
    append(audit_log, LINE | {"seq": 3, "at": "2027-01-15T00:00:01.000Z"})
    written, _ = exported(audit_log, lake, until="2027-01-15")
    assert written
    assert {each.name.split("/")[1] for each in written} == {"day=2027-01-14"}
    assert all(row[2] < "2027-01-15" for row in rows(lake))
    written, _ = exported(audit_log, lake)
    assert {each.name.split("/")[1] for each in written} >= {"day=2027-01-15"}
    assert rows(lake) == rows(audit_log)


def test_a_day_that_is_still_written_can_be_exported_again(tmp_path):
    log = audit_log_in(tmp_path / "audit_log")
    log.write(decision())
    exported(log.directory, tmp_path / "lake")
    log.write(decision(at=AT + 1))
    (written,), trouble = exported(log.directory, tmp_path / "lake")
    log.close()
    assert (written.records, written.added) == (2, 1)
    assert not trouble


def test_the_default_is_today():
    assert first_day_not_exported(AT) == "2027-01-15"
    assert first_day_not_exported(AT, "2027-01-14T23:59:59.000Z") == "2027-01-14"


def test_what_retention_removed_stays_in_the_export(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    before = rows(lake)
    for segment in segments(audit_log)[1:]:
        segment.path.unlink()
    append(audit_log, LINE | {"seq": 9, "id": "p-9"}, writer="other")
    exported(audit_log, lake)
    assert len(rows(lake)) == len(before) + 1
    assert set(map(repr, before)) < set(map(repr, rows(lake)))


def test_a_copied_file_adds_nothing(copy):
    audit_log, lake = copy
    before = rows(audit_log)
    source = audit_log / "20270114-planted-0001.jsonl"
    shutil.copy(source, audit_log / "20270114-again-0001.jsonl")
    exported(audit_log, lake)
    assert rows(lake) == before


def test_two_records_with_the_same_number_are_both_kept(copy):
    audit_log, lake = copy
    append(audit_log, LINE | {"id": "forged"})
    exported(audit_log, lake)
    assert sorted(table(lake, "decisions", "id", "WHERE writer = 'p'")) == [("forged",), ("p-1",)]


def test_two_sources_lie_side_by_side(copy, tmp_path):
    audit_log, lake = copy
    other = audit_log_in(tmp_path / "other")
    other.write(decision())
    other.close()
    exported(audit_log, lake, source="crawler-1")
    exported(other.directory, lake, source="crawler-2")
    assert len(rows(lake)) == len(rows(audit_log)) + len(rows(other.directory))
    with pytest.raises(SettingsError, match="--source"):
        exported(audit_log, lake, source="../x")


# -- faults ------------------------------------------------------------------------------------------


class _Failing(Folder):
    """A directory whose disk fills after some files."""

    def __init__(self, directory, left):
        super().__init__(directory)
        self.left = left

    def put(self, part, name):
        if not self.left:
            raise OSError(28, "No space left on device")
        self.left -= 1
        super().put(part, name)


@pytest.mark.parametrize("left", range(6))
def test_an_export_that_fails_is_completed_by_the_next_one(copy, left):
    audit_log, lake = copy
    with pytest.raises(SettingsError, match="No space left"):
        list(export(audit_log, _Failing(lake, left), LATER, Unreadable()))
    assert len([*lake.glob("*/*/*.parquet")]) <= left
    exported(audit_log, lake)
    assert rows(lake) == rows(audit_log)
    assert not [*lake.rglob("*.part")]


def test_files_that_are_compressed_meanwhile_are_read_under_their_new_names(copy, monkeypatch):
    audit_log, lake = copy
    put, rest = Folder.put, [True]

    def compress_once(self, part, name):
        if rest:
            rest.clear()
            compress(audit_log)
        put(self, part, name)

    monkeypatch.setattr(Folder, "put", compress_once)
    exported(audit_log, lake)
    assert rows(lake) == rows(audit_log)


def test_two_exports_at_once_are_refused(copy):
    audit_log, lake = copy
    place = Folder(lake)
    with place.locked("_exports"), pytest.raises(SettingsError, match="another export"):
        exported(audit_log, lake)


def test_a_damaged_file_of_the_export_is_not_replaced(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    damaged = lake / "decisions/day=2027-01-14/records.parquet"
    damaged.write_bytes(b"PAR1 not")
    append(audit_log, LINE | {"seq": 2})
    with pytest.raises(SettingsError, match="cannot be added to"):
        exported(audit_log, lake)
    with Search(lake) as search:
        assert [*search.unreadable().files] == ["decisions/day=2027-01-14/records.parquet"]


def test_a_file_of_a_newer_version_is_not_changed(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    path = lake / "events/day=2027-01-15/records.parquet"
    rows_read = f"SELECT *, 1 AS later FROM read_parquet('{path}', hive_partitioning = false)"
    sql = f"COPY ({rows_read}) TO '{path}.2' (FORMAT parquet, KV_METADATA {{robots_guard: '1'}})"
    duckdb.sql(sql)
    Path(f"{path}.2").rename(path)
    (lake / "_exports/records.json").unlink()
    with pytest.raises(SettingsError, match="newer robots_guard has written its column 'later'"):
        exported(audit_log, lake)


def test_a_file_of_an_earlier_version_gets_the_new_columns(copy):
    """A version without the column `delay` kept the line; this one fills the column."""
    audit_log, lake = copy
    line = LINE | {"seq": 7, "id": "p-7", "delay": 5.5}
    append(audit_log, line)
    exported(audit_log, lake)
    before = rows(lake)
    path = lake / "decisions/day=2027-01-14/records.parquet"
    raw = json.dumps(line)
    duckdb.sql(
        f"COPY (SELECT * EXCLUDE (delay) REPLACE (CASE WHEN id = 'p-7' THEN '{raw}' ELSE raw END AS raw)"
        f" FROM read_parquet('{path}', hive_partitioning = false) WHERE delay IS NULL OR id = 'p-7')"
        f" TO '{path}.2' (FORMAT parquet, KV_METADATA {{robots_guard: '1'}})"
    )
    Path(f"{path}.2").rename(path)
    (lake / "_exports/records.json").unlink()
    exported(audit_log, lake)
    assert rows(lake) == before
    assert table(lake, "decisions", "delay, raw", "WHERE id = 'p-7'") == [(5.5, None)]


# -- hostile and later lines -------------------------------------------------------------------------

#: Lines whose columns do not say all that they say.
KEPT = {
    "a field of a later version": {"later": {"x": [1, None]}},
    "a field that is null": {"rule": None},
    "a number as text": {"line": "12"},
    "a text as number": {"rule": 12},
    "a fraction as count": {"line": 1.7},
    "a number beyond 64 bits": {"line": 2**70},
    "a text as list": {"redirects": "x"},
    "a time in another form": {"fetched_at": "2027-01-14 08:00"},
    "a time that is none": {"fetched_at": "<b>now</b>"},
    "a truth as number": {"stale": 1},
    "a field of another kind": {"warc_id": "<urn:uuid:1>"},
    "an object as text": {"agent": {"a": 1}},
}


@pytest.mark.parametrize("named", KEPT)
def test_what_the_columns_do_not_say_is_kept_as_a_line(tmp_path, named):
    audit_log, lake = tmp_path / "audit_log", tmp_path / "lake"
    audit_log.mkdir()
    line = LINE | KEPT[named]
    append(audit_log, LINE | {"seq": 2}, line)
    exported(audit_log, lake)
    kept = [json.loads(raw) for (raw,) in table(lake, "decisions", "raw", "WHERE raw IS NOT NULL")]
    assert kept == [line]
    assert rows(lake) == rows(audit_log)
    assert exported(audit_log, lake)[0] == []
    (lake / "_exports/records.json").unlink()
    assert exported(audit_log, lake)[0] == []


def test_a_name_that_is_there_twice_is_kept_as_a_line(tmp_path):
    audit_log, lake = tmp_path / "audit_log", tmp_path / "lake"
    audit_log.mkdir()
    twice = json.dumps(LINE)[:-1].encode() + b',"action":"pass"}'
    append(audit_log, twice)
    exported(audit_log, lake)
    assert table(lake, "decisions", "raw") == [(twice.decode(),)]


def test_a_record_of_an_unknown_kind_is_an_event(tmp_path):
    audit_log, lake = tmp_path / "audit_log", tmp_path / "lake"
    audit_log.mkdir()
    line = HEAD | {"kind": "later", "what": "x"}
    append(audit_log, line)
    exported(audit_log, lake)
    ((kind, raw),) = table(lake, "events", "kind, raw")
    assert (kind, json.loads(raw)) == ("later", line)
    assert rows(lake) == rows(audit_log)


def test_a_record_whose_time_is_none_has_a_partition(tmp_path):
    audit_log, lake = tmp_path / "audit_log", tmp_path / "lake"
    audit_log.mkdir()
    append(audit_log, LINE | {"at": "2027-99-99T08:00:00.000Z"})
    exported(audit_log, lake)
    assert (lake / "decisions/day=__HIVE_DEFAULT_PARTITION__/records.parquet").exists()
    assert rows(lake) == rows(audit_log)
    assert exported(audit_log, lake)[0] == []


def test_records_of_a_newer_schema_are_named_and_exported_when_they_are_known(tmp_path):
    audit_log, lake = tmp_path / "audit_log", tmp_path / "lake"
    audit_log.mkdir()
    append(audit_log, LINE, LINE | {"schema": 2, "seq": 2})
    written, trouble = exported(audit_log, lake)
    assert [each.records for each in written] == [1]
    assert "written by a newer robots_guard (schema 2)" in str(trouble)
    assert exported(audit_log, lake)[1].newer == trouble.newer  # still to be done


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00\x01\xff\xfe garbage",
        b"[" * 100_000,
        b'{"kind":"decision","schema":1,"at":"2027-01-14T08:00',
        b'{"kind":"decision","schema":1,"at":5,"id":"x"}',
        b'"a string"',
        b"null",
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b'{"kind":"decision","schema":1,"at":"2027-01-14T08:00:00.000Z","url":"\\ud800"}',
        b'{"kind":"decision","schema":1,"at":"2027-01-14T08:00:00.000Z","url":"\\u0000"}',
        b'{"kind":"decision","schema":1,"at":"2027-01-14T08:00:00.000Z","url":"x' + b"y" * 10**6,
        b"\r\n\r" + b"\x1b[2J',); DROP TABLE staged; --",
    ],
)
def test_a_hostile_line_harms_no_other(tmp_path, line):
    audit_log, lake = tmp_path / "audit_log", tmp_path / "lake"
    audit_log.mkdir()
    append(audit_log, LINE, line, LINE | {"seq": 2, "id": "p-2"})
    exported(audit_log, lake)
    assert {"p-1", "p-2"} <= {identity for (identity,) in table(lake, "decisions", "id")}
    known = rows(audit_log)
    assert rows(lake) == known


def test_a_folder_with_a_hostile_name(made, tmp_path):
    lake = tmp_path / "it's a [lake]*?; 'x"
    exported(made[0], lake)
    assert rows(lake) == rows(made[0])


def test_a_pipe_or_link_in_the_export_is_not_read(copy, tmp_path):
    audit_log, lake = copy
    exported(audit_log, lake)
    path = lake / "events/day=2027-01-15/records.parquet"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with Search(lake) as search:
        name = "events/day=2027-01-15/records.parquet"
        assert search.unreadable().files == {name: "not a regular file"}


def test_a_forged_row_harms_no_other(copy):
    audit_log, lake = copy
    exported(audit_log, lake)
    path = lake / "decisions/day=2027-01-14/records.parquet"
    rows_read = f"SELECT * FROM read_parquet('{path}', hive_partitioning = false)"
    forged = (
        "REPLACE ('{' AS uses, '[' AS evidence, '{\"kind\":' AS raw, TIMESTAMP 'infinity' AS until)"
    )
    for number, changes in enumerate((forged, forged.replace("""'{"kind":' AS raw, """, ""))):
        duckdb.sql(
            f"COPY (SELECT * {changes} FROM ({rows_read}))"
            f" TO '{path.parent}/{number}.parquet' (FORMAT parquet, KV_METADATA {{robots_guard: '1'}})"
        )
    known = rows(audit_log)
    assert set(map(repr, known)) <= set(map(repr, rows(lake)))
    with Search(lake) as search:
        assert len([*search.records()]) >= len(known)


def test_a_day_that_does_not_fit_into_memory_is_exported_whole(tmp_path, monkeypatch):
    """The records of the day, as they are staged, take 240 MB, and are sorted in pieces."""
    monkeypatch.setattr("robots_guard.audit.lake.export.MEMORY", "300MB")
    monkeypatch.setattr("robots_guard.audit.lake.export.THREADS", 1)
    monkeypatch.setattr("robots_guard.audit.lake.export.PIECE", 32 * 1024 * 1024)
    audit_log = tmp_path / "audit_log"
    audit_log.mkdir()
    line = json.dumps(LINE | {"url": "https://a.test/" + "x" * 1900})[:-1].encode()
    with append(audit_log).open("ab") as file:
        for number in range(60_000, 0, -1):
            file.write(line.replace(b'"seq": 1,', b'"seq": %d,' % number) + b"}\n")
    exported(audit_log, tmp_path / "lake")
    counted = "count(*), count(DISTINCT seq), min(seq), max(seq), count(raw)"
    assert table(tmp_path / "lake", "decisions", counted) == [(60_000, 60_000, 1, 60_000, 0)]
    (path,) = (tmp_path / "lake/decisions").glob("*/*")
    order = (
        f"SELECT seq FROM read_parquet('{path}', file_row_number = true) ORDER BY file_row_number"
    )
    assert duckdb.sql(order).fetchall() == [(number,) for number in range(1, 60_001)]
    assert {each.name for each in path.parent.iterdir()} == {"records.parquet"}


# -- an export is no audit log -----------------------------------------------------------------------


def test_an_export_cannot_be_written_to_by_an_integration(made):
    with pytest.raises(SettingsError, match="is a Parquet export"):
        audit_log_in(made[1])


def test_an_export_is_told_from_a_log(made):
    assert [*map(is_lake, made)] == [False, True]
    assert {each.form for each in files_of(made[1])} == {"lake"}


def test_the_longest_values_are_exported_whole(tmp_path):
    log = audit_log_in(tmp_path / "audit_log")
    log.write(decision("https://a.test/private/" + "x" * LONGEST))
    log.close()
    exported(log.directory, tmp_path / "lake")
    assert rows(tmp_path / "lake") == rows(log.directory)
    assert {kind_of(each) for each in entries(log.directory, Filter(kind=None))} >= {"decision"}


def test_the_page_has_all_columns_with_their_types():
    page = Path(__file__).parents[3] / "docs/operations/lake.md"
    assert f"\n{column_table()}\n" in page.read_text()
