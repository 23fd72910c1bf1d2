"""A journal's directory into which others have put things, and files that were changed: told, never obeyed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import duckdb
import msgspec
import pytest
import zstandard
from audit.decisions import AT, DEFER, DROP, PASS, decision, journal_in

from robots_guard.audit.compact import compact
from robots_guard.audit.keeping import compress, retain
from robots_guard.audit.query import Filter, Trouble
from robots_guard.audit.report import page
from robots_guard.audit.retention import Look, Retention
from robots_guard.audit.search import Search
from robots_guard.audit.summary import summary
from robots_guard.audit.verify import verify
from robots_guard.core.verdict import reported
from robots_guard.errors import SettingsError

LATER = "20270201"
NOW = "2027-01-16T00:00:00.000Z"
OLD = "20200101-h-1-ab-0001.jsonl"


@pytest.fixture
def journal(tmp_path):
    made = journal_in(tmp_path, retention=None)  # nobody keeps house beside the test
    made.write(decision())
    made.close()
    return tmp_path


def _pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize("lay", [_pipe, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()])
def test_what_is_no_file_holds_nobody_up(journal, lay):
    lay(journal / OLD)
    trouble = Trouble()
    verify(journal, trouble)

    assert set(trouble.files) == {OLD}
    older = journal / "20200102-h-1-ab-0001.jsonl"
    older.touch()
    days = (Look("boot", day * 86400.0, AT) for day in (0, 1, 92, 93))
    assert next(path for day in days for path in retain(journal, Retention(days=90), day)) == older


@pytest.mark.parametrize("lay", [_pipe, lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff\xfe")])
def test_a_listing_that_is_none_hides_nothing(journal, lay):
    (journal / "20200101.1.parquet").write_bytes(b"")
    lay(journal / "20200101.1.sources")
    with Search(journal, Filter()) as search:
        assert len(list(search.records())) == 1
        assert set(search.unreadable().files) == {"20200101.1.parquet"}
    compact(journal, LATER)


@pytest.mark.parametrize(
    "sql", ["SELECT 1 AS a", "SELECT 'x' AS seq, 'y' AS raw", "SELECT 'x' AS raw, now() AS time", None]
)
def test_a_table_of_something_else_is_told_and_hides_nothing(journal, sql):
    strange = journal / "20200101.1.parquet"
    if sql:
        duckdb.connect().execute(f"COPY ({sql}) TO '{strange}' (FORMAT parquet)")
    else:
        strange.write_bytes(b"PAR1 nothing PAR1")
    with Search(journal, Filter()) as search:
        assert len(list(search.records())) == 1
        assert set(search.unreadable().files) == {strange.name}


@pytest.mark.parametrize("form", [".jsonl", ".jsonl.zst", ".parquet"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(journal, monkeypatch, form):
    if form == ".jsonl.zst":
        compress(journal)
    elif form == ".parquet":
        compact(journal, LATER)
    (closed,) = journal.glob(f"*{form}")
    opened = Path.open

    def refuses(path, *args, **options):
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", refuses)  # as root one may read everything
    with Search(journal, Filter()) as search:
        assert not list(search.records())
        assert str(search.unreadable()) == f"{closed.name} cannot be read (Permission denied)"
    if form != ".jsonl":  # which is read by its descriptor
        verify(journal, trouble := Trouble())
        assert trouble.files == {closed.name: "Permission denied"}


def test_a_name_that_is_no_text_is_told(journal):
    strange = os.fsdecode(b"\xff.jsonl")
    (journal / strange).touch()
    with Search(journal, Filter()) as search:
        assert len(list(search.records())) == 1
        assert set(search.unreadable().files) == {strange}


@pytest.mark.parametrize("damage", [lambda octets: octets[:-20], lambda octets: b"nothing" + octets])
def test_a_damaged_compressed_file_is_told_and_not_compacted_away(journal, damage):
    compress(journal)
    (packed,) = journal.glob("*.zst")
    packed.write_bytes(damage(packed.read_bytes()))

    assert compact(journal, LATER) == []
    assert packed.exists()
    trouble = Trouble()
    verify(journal, trouble)
    assert "damaged" in trouble.files[packed.name]


def test_what_is_cut_at_a_block_is_not_whole(journal):
    """Where nothing but the end is missing, zstd itself has nothing to complain of."""
    whole = zstandard.ZstdCompressor(level=1).compress(os.urandom(400_000))
    (journal / (OLD + ".zst")).write_bytes(whole[:200_000])
    trouble = Trouble()
    verify(journal, trouble)

    assert "only" in trouble.files[OLD + ".zst"]


def test_nothing_is_written_through_a_link(journal, tmp_path_factory):
    precious = tmp_path_factory.mktemp("other") / "precious"
    precious.write_text("precious")
    (plain,) = journal.glob("*.jsonl")
    (journal / f"{plain.name}.zst.part").symlink_to(precious)
    compress(journal)
    (journal / ".compacting").symlink_to(precious)

    with pytest.raises(SettingsError, match="cannot be used as a lock"):
        compact(journal, LATER)
    assert precious.read_text() == "precious"
    assert len(list(journal.glob("*.zst"))) == 1


def test_rows_that_do_not_say_what_their_lines_say_are_found(journal):
    (made,) = compact(journal, LATER)
    verify(journal, sound := Trouble())
    assert not sound.files
    forged = journal / "forged"
    duckdb.connect().execute(
        f"COPY (SELECT * REPLACE ('https://other.test/' AS url) FROM '{made.path}') TO '{forged}' (FORMAT parquet)"
    )
    forged.rename(made.path)
    verify(journal, trouble := Trouble())

    assert "3 of its rows do not say what their lines say" in trouble.files[made.path.name]


def test_a_chain_whose_start_was_changed_is_not_taken_for_none(tmp_path):
    journal = journal_in(tmp_path, chain=True)
    journal.write(decision())
    journal.close()
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"chain":"sha256",', b"").replace(b"drop", b"pass"))
    (found,) = verify(tmp_path, Trouble())

    assert found.chain == "broken"
    assert found.problems == ["a checkpoint stands where no chain begins: a start record was changed"]


def test_a_line_under_another_name_is_found(tmp_path):
    journal = journal_in(tmp_path, chain=True)
    journal.write(decision())
    journal.close()
    first, second, *rest = journal.path.read_bytes().splitlines(keepends=True)
    ghost = second.replace(b'"seq":2', b'"seq":1').replace(journal.writer.encode(), b"ghost")
    journal.path.write_bytes(b"".join([first, second, ghost, *rest]))
    found = {each.writer: each.problems for each in verify(tmp_path, Trouble())}

    assert found[journal.writer] == []
    assert found["ghost"] == [
        "begins with a decision at 1, not with a start",
        f"has lines in {journal.path.name}, which is not its own",
    ]


def test_the_last_lines_of_a_killed_writer_are_vouched_for_by_nothing(tmp_path):
    journal = journal_in(tmp_path, chain=True)
    journal.write(decision())
    octets = journal.path.read_bytes()
    journal.close()
    journal.path.write_bytes(octets.replace(b"private", b"another"))
    (found,) = verify(tmp_path, Trouble())

    assert found.notes == ["ends without a stop: killed, or an I/O error", "no checkpoint vouches for 1 to 2"]


def test_figures_that_cannot_be_do_not_end_the_report(journal):
    (path,) = journal.glob("*.jsonl")
    line = next(line for line in path.read_bytes().splitlines() if b'"decision"' in line)
    odd = [
        line.replace(b"2027-01-15T", b"9999-99-99T"),
        line[:-1] + b',"sampled":9223372036854775807}',
        line[:-1] + b',"sampled":9223372036854775807}',
        line[:-1] + b',"sampled":-5}',
    ]
    path.write_bytes(path.read_bytes() + b"\n".join(odd) + b"\n")
    with Search(journal, Filter()) as search:
        figures = summary(search, NOW)

    assert figures.totals["drop"] == 1 + 1 + 2 * (2**63 - 1)
    assert "2027-01-15" in page(figures, NOW, "All")


# -- what would be ---------------------------------------------------------------------------------------------------


@pytest.fixture
def lenient(tmp_path):
    """Reported only: 3 drops at a.test (two as repeats), 1 deferral at c.test; and 1 plain PASS, 1 plain DROP."""
    journal = journal_in(tmp_path, passes=1, aggregate=3600.0)
    for number in range(3):
        journal.write(decision(f"https://a.test/private/{number}", verdict=reported(DROP)))
    journal.write(decision("https://c.test/", verdict=reported(DEFER)))
    journal.write(decision("https://d.test/", verdict=PASS))
    journal.write(decision("https://e.test/private/"))
    journal.close()
    return tmp_path


def told(directory, *, what_if):
    with Search(directory, Filter()) as search:
        figures = summary(search, NOW, what_if=what_if)
    return figures, {table.title: table.rows for table in figures.tables}


def test_what_was_is_compared_with_what_would_be(lenient):
    figures, tables = told(lenient, what_if=True)

    assert figures.totals == {"drop": 4, "defer": 1, "pass": 1}
    assert tables["Was and would be"] == [("defer", 0, 1, 1), ("drop", 1, 4, 3), ("pass", 5, 1, -4)]
    assert tables["Origins that would differ"] == [("https://a.test", 3, 0, 3), ("https://c.test", 0, 1, 1)]
    assert tables["Rules and reasons that would differ"] == [
        ("https://a.test", "drop", "disallowed", "Disallow: /private/", 2, 3),
        ("https://c.test", "defer", "unreachable", None, None, 1),
    ]
    assert "Was and would be" in page(figures, NOW, "All")


def test_without_it_the_report_says_what_was(lenient):
    figures, tables = told(lenient, what_if=False)

    assert figures.totals == {"drop": 1, "defer": 0, "pass": 5}
    assert "Was and would be" not in tables


def test_an_empty_journal_has_nothing_that_would_differ(tmp_path):
    _, tables = told(tmp_path, what_if=True)

    assert tables["Origins that would differ"] == []
    assert msgspec.json.encode(tables["Was and would be"]) == b'[["defer",0,0,0],["drop",0,0,0],["pass",0,0,0]]'
