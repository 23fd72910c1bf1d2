"""DuckDB over lines, compressed and compacted files: the same answers, and nothing to be reached but the journal."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from audit.decisions import AT, DEFER, DROP, PASS, decision, journal_in

from robots_guard.audit import compact as compacting
from robots_guard.audit.compact import compact, finish
from robots_guard.audit.keeping import compress
from robots_guard.audit.query import Filter, Follower, Trouble, entries
from robots_guard.audit.search import Search
from robots_guard.audit.segments import segments
from robots_guard.audit.verify import verify
from robots_guard.errors import SettingsError

DAY = 86400
LATER = "99999999"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Three files: compacted, compressed, and as they were written."""
    directory = tmp_path_factory.mktemp("made") / "jour[nal]*'s"  # no name of a directory is too odd
    for number, step in enumerate((lambda: compact(directory, LATER), lambda: compress(directory), lambda: None)):
        at = AT + number * DAY
        made = journal_in(directory, door="scrapy", chain=True, passes=1, now=at + 3)
        made.write(decision(f"https://a.test/private/{number}", at=at))
        made.write(decision(f"https://b.test/{number}", verdict=PASS, at=at + 1, door="mitmproxy", agent="OtherBot"))
        made.write(decision(f"https://c.test/{number}", verdict=DEFER, at=at + 2))
        made.close()
        step()
    return directory


@pytest.fixture
def journal(made_once, tmp_path):
    """A journal of three forms, to be spoilt."""
    return Path(shutil.copytree(made_once, tmp_path / made_once.name))


def in_order(found):
    return sorted(found, key=lambda entry: (entry.at, entry.writer, entry.seq))


def found(directory, **wanted):
    with Search(directory, Filter(**wanted)) as search:
        return list(search.records())


def test_all_forms_are_read_as_one(journal):
    assert [segment.form for segment in segments(journal)] == [".parquet", ".jsonl.zst", ".jsonl"]
    assert [entry.url[-1] for entry in found(journal)] == list("000111222")


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
        {"action": "pass", "door": "mitmproxy"},
        {"agent": "OTHERBOT"},
        {"rule": "Disallow: /private/"},
        {"override": "any"},
        {"id": "w-1"},
    ],
    ids=str,
)
def test_python_and_duckdb_agree(journal, wanted):
    """Two readers of the same files, written apart: the same records, field by field, in the same order."""
    assert found(journal, **wanted) == in_order(entries(journal, Filter(**wanted)))


def test_what_is_compacted_is_the_lines_as_they_were(tmp_path):
    made = journal_in(tmp_path, chain=True)
    for number in range(50):
        made.write(decision(f"https://a.test/{number}?q=\x1b[31m\u202e", user_agent="\udc80\n", at=AT + number))
    made.close()
    before = in_order(entries(tmp_path, Filter(kind=None)))
    (done,) = compact(tmp_path, LATER)

    assert (done.files, done.records, done.unreadable) == (1, len(before), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".compacting", done.path.name]
    assert list(entries(tmp_path, Filter(kind=None))) == before
    (checked,) = verify(tmp_path, Trouble())
    assert (checked.chain, checked.problems) == ("whole", [])
    assert done.path.stat().st_mode & 0o137 == 0


def test_today_is_not_compacted_and_neither_is_what_is_being_written(tmp_path):
    made = journal_in(tmp_path)
    made.write(decision())

    assert compact(tmp_path, LATER) == []
    made.close()
    assert compact(tmp_path, "20270115") == []
    assert len(compact(tmp_path, "20270116")) == 1


@pytest.mark.parametrize("step", ["put_in_place", "finish"])
def test_being_killed_while_compacting_neither_loses_nor_doubles(journal, monkeypatch, step):
    """At each step that can be the last: before each renaming, and before what is replaced goes."""
    before = found(journal, kind=None)
    steps = {"put_in_place": 2, "finish": 1}[step]
    for dies_at in range(1, steps + 1):
        real, calls = getattr(compacting, step), iter(range(1, 10))

        def dies(*args, real=real, calls=calls, dies_at=dies_at):
            if next(calls) == dies_at + (step == "finish"):
                raise KeyboardInterrupt
            return real(*args)

        with monkeypatch.context() as patched:
            patched.setattr(compacting, step, dies)
            with pytest.raises(KeyboardInterrupt):
                compact(journal, LATER)
        assert found(journal, kind=None) == before
        assert in_order(entries(journal, Filter(kind=None))) == before
    finish(journal)
    assert found(journal, kind=None) == before
    compact(journal, LATER)
    assert found(journal, kind=None) == before
    assert {segment.form for segment in segments(journal)} == {".parquet"}


def test_following_goes_on_where_a_file_was_compressed(tmp_path):
    made = journal_in(tmp_path)
    made.write(decision("https://a.test/1"))
    follower = Follower(tmp_path, Trouble())
    assert len(list(follower.new(Filter()))) == 1
    made.write(decision("https://a.test/2"))
    made.close()
    compress(tmp_path)

    assert [entry.url[-1] for entry in follower.new(Filter())] == ["2"]
    assert list(follower.new(Filter())) == []


def test_the_latest_records_do_not_need_the_days_before(journal):
    trouble = Trouble()
    (journal / "20260101-h-1-ab-0001.jsonl").symlink_to("/nowhere")
    follower = Follower(journal, trouble)

    assert [entry.url for entry in follower.latest(Filter(), 2)] == ["https://b.test/2", "https://c.test/2"]
    assert not trouble
    assert list(follower.new(Filter())) == []


def test_a_compressed_file_that_is_damaged_is_told_and_hides_nothing_else(journal):
    (packed,) = journal.glob("*.zst")
    octets = bytearray(packed.read_bytes())
    octets[len(octets) // 2] ^= 0xFF
    packed.write_bytes(octets)
    trouble = Trouble()

    assert len([entry for entry in entries(journal, Filter(), trouble) if entry.url[-1] != "1"]) == 6
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
    b'{"kind":"decision","schema":2,"at":"2027-01-15T08:00:00.000Z"}\n',
    b"x" * 300_000 + b"\n",
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=range(len(FOREIGN)))
def test_foreign_lines_are_counted_and_passed_over(tmp_path, foreign):
    made = journal_in(tmp_path)
    made.write(decision())
    with made.path.open("ab") as file:
        file.write(foreign)
    made.write(decision())
    made.close()
    with Search(tmp_path, Filter()) as search:
        assert len(list(search.records())) == 2
        assert sum(search.unreadable().lines.values()) == 1
    (done,) = compact(tmp_path, LATER)
    assert (done.records, done.unreadable) == (4, 0 if b"\xff" in foreign else 1)


def test_what_is_no_plain_file_is_told_and_not_read(journal):
    (journal / "link.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(journal / "pipe.jsonl")
    with Search(journal) as search:
        assert len(list(search.records())) == 3 * 6
        assert set(search.unreadable().files) == {"link.jsonl", "pipe.jsonl"}


# -- a person's own SQL -----------------------------------------------------------------------------------------------


def asked(directory, sql):
    with Search(directory) as search:
        return list(search.ask(sql)[1])


def test_one_select_over_the_tables(journal):
    assert asked(journal, "SELECT action, count(*) FROM decisions GROUP BY 1 ORDER BY 1") == [
        ("defer", 3),
        ("drop", 3),
        ("pass", 3),
    ]
    assert asked(journal, "FROM records SELECT count(*) WHERE kind = 'start'") == [(3,)]
    assert asked(journal, "SELECT date_trunc('day', time) AS day FROM decisions ORDER BY 1 LIMIT 1")[0][0].day == 15


SECRET = "the secret of another file"

ATTACKS = [
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_csv_auto('{secret}', header = false)",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM read_text('{journal}/../secret.txt')",
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
    "EXPORT DATABASE '{journal}/out'",
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
def test_no_sql_reaches_another_file_or_changes_anything(journal, tmp_path, attack):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    (lines,) = journal.glob("*.jsonl")
    before = {path: path.read_bytes() for path in journal.iterdir()}
    quoted = {
        name: str(path).replace("'", "''")
        for name, path in {"secret": secret, "journal": journal, "lines": lines}.items()
    }
    with pytest.raises(SettingsError) as refused:
        asked(journal, attack.format(**quoted))
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in journal.iterdir()} == before
    assert secret.read_text() == SECRET


def test_a_fault_in_sql_is_one_sentence(journal):
    with pytest.raises(SettingsError, match=r"^--sql: .*nosuch"):
        asked(journal, "SELECT nosuch FROM decisions")


def test_values_of_a_filter_are_never_sql(journal):
    assert found(journal, rule="' OR 1=1 --") == []
    assert found(journal, agent="'; DROP VIEW records; --") == []


def test_overrides_are_found_by_their_id(tmp_path):
    from robots_guard.core.verdict import Exemption

    made = journal_in(tmp_path)
    used = Exemption(id="shop", owner="ann", reason="contract", expires=AT + DAY)
    made.write(decision(verdict=DROP, override=used))
    made.write(decision(verdict=DROP))
    made.close()

    assert [entry.override_owner for entry in found(tmp_path, override="shop")] == ["ann"]
    assert len(found(tmp_path, override="any")) == 1
    assert found(tmp_path, override="other") == []
