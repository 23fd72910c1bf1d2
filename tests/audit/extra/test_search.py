"""Searching plain and compressed files and their index with DuckDB: equal answers, and no access to other files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision

from robots_guard.audit.read import index
from robots_guard.audit.read.reader import Filter, Follower, Unreadable, entries
from robots_guard.audit.read.search import Search
from robots_guard.audit.read.verify import verify
from robots_guard.audit.segments import INDEX, segments
from robots_guard.audit.write.maintenance import compress
from robots_guard.errors import SettingsError

DAY = 86400


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Three files: two compressed, one plain."""
    # No name of a directory is too odd.
    directory = tmp_path_factory.mktemp("made") / "jour[nal]*'s"
    for number, step in enumerate((lambda: None, lambda: compress(directory), lambda: None)):
        at = AT + number * DAY
        log = audit_log_in(directory, component="scrapy", chain=True, audit="all", now=at + 3)
        log.write(decision(f"https://a.test/private/{number}", at=at))
        log.write(
            decision(
                f"https://b.test/{number}",
                verdict=PASS,
                at=at + 1,
                component="proxy",
                agent="OtherBot",
            )
        )
        log.write(decision(f"https://c.test/{number}", verdict=DEFER, at=at + 2))
        log.close()
        step()
    return directory


@pytest.fixture
def audit_log(made_once, tmp_path):
    """A copy of an audit log with files of both forms, which a test may damage."""
    return Path(shutil.copytree(made_once, tmp_path / made_once.name))


def in_order(found):
    return sorted(found, key=lambda entry: (entry.at, entry.writer, entry.seq))


def found(directory, **wanted):
    with Search(directory, Filter(**wanted)) as search:
        return list(search.records())


@pytest.fixture(params=["files", "index"])
def read_from(request, monkeypatch):
    """Whether the records are read from the files, or from their copies in the index."""
    if request.param == "index":
        monkeypatch.setattr(index, "WORTHWHILE", 1)
    return request.param


def test_all_forms_are_read_together(audit_log, read_from):
    assert [segment.form for segment in segments(audit_log)] == [
        ".jsonl.zst",
        ".jsonl.zst",
        ".jsonl",
    ]
    assert [entry.url[-1] for entry in found(audit_log)] == list("000111222")
    assert (audit_log / INDEX).exists() == (read_from == "index")


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"kind": None},
        {"kind": "start"},
        {"since": "2027-01-16T08:00:00.000Z"},
        {"until": "2027-01-16T08:00:01.000Z"},
        {"since": "2027-01-16T08:00:00.000Z", "until": "2027-01-16T08:00:01.000Z"},
        {"origin": "https://c.test"},
        {"reason": "unreachable"},
        {"action": "pass", "component": "proxy"},
        {"agent": "OTHERBOT"},
        {"rule": "Disallow: /private/"},
        {"override": "any"},
        {"id": "w-1"},
        {"url": "https://A.test/private/../%70rivate/1"},
        {"url_prefix": "https://b.test/"},
        {"host": "c.test:443"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("read_from")
def test_python_and_duckdb_agree(audit_log, wanted):
    """Both independent readers return the same records, field by field, in the same order."""
    assert found(audit_log, **wanted) == in_order(entries(audit_log, Filter(**wanted)))


def test_following_continues_in_a_compressed_file(tmp_path):
    log = audit_log_in(tmp_path)
    log.write(decision("https://a.test/1"))
    follower = Follower(tmp_path, Unreadable())
    assert len(list(follower.new(Filter()))) == 1
    log.write(decision("https://a.test/2"))
    log.close()
    compress(tmp_path)

    assert [entry.url[-1] for entry in follower.new(Filter())] == ["2"]
    assert list(follower.new(Filter())) == []


def test_the_latest_records_are_found_without_reading_earlier_days(audit_log):
    trouble = Unreadable()
    (audit_log / "20260101-h-1-ab-0001.jsonl").symlink_to("/nowhere")
    follower = Follower(audit_log, trouble)

    assert [entry.url for entry in follower.latest(Filter(), 2)] == [
        "https://b.test/2",
        "https://c.test/2",
    ]
    assert not trouble
    assert list(follower.new(Filter())) == []


def test_a_damaged_compressed_file_hides_no_other_file(audit_log):
    packed = max(audit_log.glob("*.zst"))
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 0xFF
    packed.write_bytes(data)
    trouble = Unreadable()

    assert (
        len([entry for entry in entries(audit_log, Filter(), trouble) if entry.url[-1] != "1"]) == 6
    )
    assert "damaged" in str(trouble)


# -- foreign lines --------------------------------------------------------------------------------------------------


FOREIGN = [
    b"nonsense\n",
    b"{}\n",
    b"[1, 2]\n",
    b"null\n",
    b"\xff\xfe\x00\n",
    b"\x1b]0;title\x07\n",
    b"[" * 50_000 + b"\n",
    b'{"kind":"decision","schema":1,"at":"2027-01-15T08:00:00.000Z","se\n',
    b"x" * 300_000 + b"\n",
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=range(len(FOREIGN)))
def test_foreign_lines_are_counted_and_skipped(tmp_path, foreign):
    log = audit_log_in(tmp_path)
    log.write(decision())
    with log.path.open("ab") as file:
        file.write(foreign)
    log.write(decision())
    log.close()
    with Search(tmp_path, Filter()) as search:
        assert len(list(search.records())) == 2
        assert sum(search.unreadable().lines.values()) == 1


def test_records_of_a_newer_version_are_named(tmp_path):
    log = audit_log_in(tmp_path)
    log.write(decision())
    with log.path.open("ab") as file:
        file.write(b'{"kind":"new","schema":99,"at":"2027-01-15T08:00:00.000Z","seq":3}\n')
    log.close()
    newer = {log.path.name: (1, 99)}
    with Search(tmp_path, Filter()) as search:
        assert len(list(search.records())) == 1
        assert (search.unreadable().newer, search.trouble.lines) == (newer, {})
    verify(tmp_path, verified := Unreadable())
    assert verified.newer == newer


def test_irregular_files_are_reported_and_not_read(audit_log):
    (audit_log / "link.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(audit_log / "pipe.jsonl")
    with Search(audit_log) as search:
        assert len(list(search.records())) == 3 * 6
        assert set(search.unreadable().files) == {"link.jsonl", "pipe.jsonl"}


# -- a person's own SQL -----------------------------------------------------------------------------------------------


def query(directory, sql):
    with Search(directory) as search:
        return list(search.select(sql)[1])


def test_sql_may_select_from_the_tables(audit_log):
    assert query(audit_log, "SELECT action, count(*) FROM decisions GROUP BY 1 ORDER BY 1") == [
        ("defer", 3),
        ("drop", 3),
        ("pass", 3),
    ]
    assert query(audit_log, "FROM records SELECT count(*) WHERE kind = 'start'") == [(3,)]
    assert (
        query(audit_log, "SELECT date_trunc('day', time) AS day FROM decisions ORDER BY 1 LIMIT 1")[
            0
        ][0].day
        == 15
    )


SECRET = "the secret of another file"

ATTACKS = [
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_csv_auto('{secret}', header = false)",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM read_text('{audit_log}/../secret.txt')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
    "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "SELECT * FROM query_table(['{secret}'])",
    "SELECT getenv('HOME')",
    "SELECT * FROM os",
    "SELECT * FROM environ",
    "COPY (SELECT 1) TO '{secret}'",
    "COPY (SELECT 1) TO '{lines}'",
    "COPY decisions FROM '{secret}'",
    "EXPORT DATABASE '{audit_log}/out'",
    "ATTACH '{secret}' AS other",
    "ATTACH '{lines}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET allowed_paths",
    "PRAGMA enable_external_access = true",
    "CALL pragma_version()",
    "CREATE TABLE x AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "DROP VIEW decisions",
    "DELETE FROM decisions",
    "UPDATE decisions SET rule = ''",
    "INSERT INTO decisions SELECT * FROM decisions",
    "SELECT 1; COPY (SELECT 1) TO '{lines}'",
    "WITH x AS (SELECT 1) INSERT INTO decisions SELECT * FROM x",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{lines}'",
    "PREPARE p AS COPY (SELECT 1) TO '{lines}'",
    "EXECUTE p",
    "CHECKPOINT",
    "VACUUM",
    "",
    "SELECT",
    "nonsense",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_sql_reaches_another_file_or_changes_anything(audit_log, tmp_path, attack):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    (lines,) = audit_log.glob("*.jsonl")
    before = {path: path.read_bytes() for path in audit_log.iterdir()}
    quoted = {
        name: str(path).replace("'", "''")
        for name, path in {"secret": secret, "audit_log": audit_log, "lines": lines}.items()
    }
    with pytest.raises(SettingsError) as refused:
        query(audit_log, attack.format(**quoted))
    assert SECRET not in str(refused.value)
    assert str(refused.value).replace("\n", "").isprintable()
    assert {path: path.read_bytes() for path in audit_log.iterdir()} == before
    assert secret.read_text() == SECRET


def test_an_sql_error_is_reported_in_one_sentence(audit_log):
    with pytest.raises(SettingsError, match=r"^--sql: .*nosuch"):
        query(audit_log, "SELECT nosuch FROM decisions")


def test_values_of_a_filter_are_never_sql(audit_log):
    assert found(audit_log, rule="' OR 1=1 --") == []
    assert found(audit_log, agent="'; DROP VIEW records; --") == []


def test_overrides_are_found_by_their_id(tmp_path):
    from robots_guard.decisions.verdict import Exemption

    log = audit_log_in(tmp_path)
    used = Exemption(id="shop", owner="ann", reason="contract", expires=AT + DAY)
    log.write(decision(verdict=DROP, override=used))
    log.write(decision(verdict=DROP))
    log.close()

    assert [entry.override_owner for entry in found(tmp_path, override="shop")] == ["ann"]
    assert len(found(tmp_path, override="any")) == 1
    assert found(tmp_path, override="other") == []
