"""Foreign files in an audit log's directory, and changed files, are reported and never trusted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
import zstandard
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision

from robots_guard.audit.read.reader import Filter, Follower, Unreadable, entries
from robots_guard.audit.read.search import LoadedSearch, Search, find_decision
from robots_guard.audit.read.verify import verify
from robots_guard.audit.show.chart import chart
from robots_guard.audit.show.figures import summary
from robots_guard.audit.show.overview import overview
from robots_guard.audit.show.report import Cover, page
from robots_guard.audit.write.maintenance import compress, retain
from robots_guard.audit.write.retention import Inspection, Retention
from robots_guard.decisions.verdict import as_report_only
from robots_guard.errors import SettingsError

NOW = "2027-01-16T00:00:00.000Z"
OLD = "20200101-h-1-ab-0001.jsonl"


@pytest.fixture
def audit_log(tmp_path):
    log = audit_log_in(tmp_path, retention=None)  # no housekeeping beside the test
    log.write(decision())
    log.close()
    return tmp_path


def _pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize(
    "lay", [_pipe, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()]
)
def test_irregular_files_block_no_reader(audit_log, lay):
    lay(audit_log / OLD)
    trouble = Unreadable()
    verify(audit_log, trouble)

    assert set(trouble.files) == {OLD}
    older = audit_log / "20200102-h-1-ab-0001.jsonl"
    older.touch()
    days = (Inspection("boot", day * 86400.0, AT) for day in (0, 1, 92, 93))
    assert (
        next(path for day in days for path in retain(audit_log, Retention(days=90), day)) == older
    )


@pytest.mark.parametrize("form", [".jsonl", ".jsonl.zst"])
def test_a_file_without_read_permission_is_not_called_damaged(audit_log, monkeypatch, form):
    if form == ".jsonl.zst":
        compress(audit_log)
    (closed,) = audit_log.glob(f"*{form}")
    opened = Path.open

    def refuses(path, *args, **options):
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", refuses)  # as root one may read everything
    with Search(audit_log, Filter()) as search:
        assert not list(search.records())
        assert str(search.unreadable()) == f"{closed.name} cannot be read (Permission denied)"
    if form != ".jsonl":  # which is read by its descriptor
        verify(audit_log, trouble := Unreadable())
        assert trouble.files == {closed.name: "Permission denied"}


READERS = {
    "search": lambda place: Search(place, Filter()).close(),
    "console": lambda place: LoadedSearch(place).close(),
    "entries": lambda place: [*entries(place)],
    "tail": lambda place: Follower(place, Unreadable()).latest(Filter(), 3),
    "verify": lambda place: verify(place, Unreadable()),
    "decision": lambda place: find_decision(place, "w-1"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_log_with_a_file_that_was_compacted_is_refused(audit_log, read):
    """Its records would be missing from every answer."""
    (audit_log / "20200101.1.parquet").write_bytes(b"PAR1")
    with pytest.raises(SettingsError, match=r"20200101\.1\.parquet' was compacted by .* move it"):
        read(audit_log)

    (audit_log / "20200101.1.parquet").rename(audit_log.parent / "20200101.1.parquet")
    read(audit_log)


def test_a_file_that_was_compacted_stops_no_writer(audit_log):
    (audit_log / "20200101.1.parquet").write_bytes(b"PAR1")
    log = audit_log_in(audit_log)
    log.write(decision())
    log.path.rename(log.path.with_name("20270115-renamed-1-ab-0001.jsonl"))
    log.write(decision())
    log.close()

    assert log.path.read_bytes().count(b"\n") == 4


def test_a_name_that_is_not_utf8_is_reported(audit_log):
    strange = os.fsdecode(b"\xff.jsonl")
    (audit_log / strange).touch()
    with Search(audit_log, Filter()) as search:
        assert len(list(search.records())) == 1
        assert set(search.unreadable().files) == {strange}


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"nothing" + data])
def test_a_damaged_compressed_file_is_reported(audit_log, damage):
    compress(audit_log)
    (packed,) = audit_log.glob("*.zst")
    packed.write_bytes(damage(packed.read_bytes()))

    trouble = Unreadable()
    verify(audit_log, trouble)
    assert "damaged" in trouble.files[packed.name]


def test_a_file_cut_at_a_block_boundary_is_damaged(audit_log):
    """zstd itself reports no error if only the end is missing."""
    whole = zstandard.ZstdCompressor(level=1).compress(os.urandom(400_000))
    (audit_log / (OLD + ".zst")).write_bytes(whole[:200_000])
    trouble = Unreadable()
    verify(audit_log, trouble)

    assert "only" in trouble.files[OLD + ".zst"]


def test_nothing_is_written_through_a_symlink(audit_log, tmp_path_factory):
    precious = tmp_path_factory.mktemp("other") / "precious"
    precious.write_text("precious")
    (plain,) = audit_log.glob("*.jsonl")
    (audit_log / f"{plain.name}.zst.part").symlink_to(precious)
    compress(audit_log)

    assert precious.read_text() == "precious"
    assert len(list(audit_log.glob("*.zst"))) == 1


def test_a_chain_whose_start_was_changed_is_reported_as_broken(tmp_path):
    audit_log = audit_log_in(tmp_path, chain=True)
    audit_log.write(decision())
    audit_log.close()
    audit_log.path.write_bytes(
        audit_log.path.read_bytes().replace(b'"chain":"sha256",', b"").replace(b"drop", b"pass")
    )
    (found,) = verify(tmp_path, Unreadable())

    assert found.chain == "broken"
    assert found.problems == ["has a checkpoint without a chain: a start record was changed"]


def test_a_line_under_another_name_is_found(tmp_path):
    audit_log = audit_log_in(tmp_path, chain=True)
    audit_log.write(decision())
    audit_log.close()
    first, second, *rest = audit_log.path.read_bytes().splitlines(keepends=True)
    ghost = second.replace(b'"seq":2', b'"seq":1').replace(audit_log.writer.encode(), b"ghost")
    audit_log.path.write_bytes(b"".join([first, second, ghost, *rest]))
    found = {each.writer: each.problems for each in verify(tmp_path, Unreadable())}

    assert found[audit_log.writer] == []
    assert found["ghost"] == [
        "begins with a decision at 1, not with a start",
        f"has lines in {audit_log.path.name}, which is not its own",
    ]


def test_the_last_lines_of_a_killed_writer_are_not_confirmed(tmp_path):
    audit_log = audit_log_in(tmp_path, chain=True)
    audit_log.write(decision())
    data = audit_log.path.read_bytes()
    audit_log.close()
    audit_log.path.write_bytes(data.replace(b"private", b"another"))
    (found,) = verify(tmp_path, Unreadable())

    assert found.notes == [
        "ends without a stop: killed, or an I/O error",
        "no checkpoint confirms 1 to 2",
    ]


def test_impossible_figures_do_not_break_the_report(audit_log):
    (path,) = audit_log.glob("*.jsonl")
    line = next(line for line in path.read_bytes().splitlines() if b'"decision"' in line)
    counted = line[:-1].replace(b'"decision"', b'"passes"').replace(b'"drop"', b'"pass"')
    odd = [
        line.replace(b"2027-01-15T", b"9999-99-99T"),
        line[:-1] + b',"count":9223372036854775807}',
        counted + b',"count":9223372036854775807}',
        counted + b',"count":9223372036854775807}',
        counted + b',"count":-5}',
    ]
    path.write_bytes(path.read_bytes() + b"\n".join(odd) + b"\n")
    with Search(audit_log, Filter()) as search:
        figures = summary(search, NOW)

    assert figures.timeline.totals["drop"] == 1 + 1 + 1
    assert figures.timeline.totals["pass"] == 2 * (2**63 - 1)
    assert "2027-01-15" in page(figures, Cover(NOW, "1.0", "All"))


@pytest.mark.parametrize(
    "at",
    [
        "9999-12-31T23:59:59.000Z",
        "0001-01-01T00:00:00.000Z",
        "99999-01-01T00:00:00.00Z",
        "2027-1-15 08:00:00.00000",
        "infinity".rjust(24),
    ],
)
@pytest.mark.parametrize("until", ["infinity", "9999-12-31T23:59:59.000Z"])
def test_forged_times_do_not_break_the_figures(audit_log, at, until):
    """They are counted, but not drawn unless Python can compute with them."""
    (path,) = audit_log.glob("*.jsonl")
    line = next(line for line in path.read_bytes().splitlines() if b'"decision"' in line)
    forged = msgspec.json.decode(line) | {"at": at, "action": "defer", "until": until}
    path.write_bytes(path.read_bytes() + msgspec.json.encode(forged) + b"\n")
    with Search(audit_log, Filter()) as search:
        report = summary(search, NOW)
    with Search(audit_log) as search:
        shown = overview(search, None, NOW)

    assert report.timeline.totals == shown.timeline.totals == {"drop": 1, "defer": 1, "pass": 0}
    assert chart(shown.timeline.bars).columns
    assert "<h2>Waiting times</h2>" in page(report, Cover(NOW, "1.0", "All"))


# -- what would be ---------------------------------------------------------------------------------------------------


@pytest.fixture
def lenient(tmp_path):
    """In report-only mode 3 drops at a.test and 1 deferral at c.test; also 1 PASS and 1 DROP."""
    audit_log = audit_log_in(tmp_path, audit="all")
    for number in range(3):
        audit_log.write(decision(f"https://a.test/private/{number}", verdict=as_report_only(DROP)))
    audit_log.write(decision("https://c.test/", verdict=as_report_only(DEFER)))
    audit_log.write(decision("https://d.test/", verdict=PASS))
    audit_log.write(decision("https://e.test/private/"))
    audit_log.close()
    return tmp_path


def figures_and_tables(directory, *, what_if):
    with Search(directory, Filter()) as search:
        figures = summary(search, NOW, what_if=what_if)
    return figures, {table.title: table.rows for table in figures.tables}


def test_what_if_compares_actual_with_enforced_decisions(lenient):
    figures, tables = figures_and_tables(lenient, what_if=True)

    assert figures.timeline.totals == {"drop": 4, "defer": 1, "pass": 1}
    assert tables["Actual and enforced"] == [
        ("defer", 0, 1, 1),
        ("drop", 1, 4, 3),
        ("pass", 5, 1, -4),
    ]
    assert tables["Sites that would differ"] == [
        ("https://a.test", 3, 0, 3),
        ("https://c.test", 0, 1, 1),
    ]
    assert tables["Rules and reasons that would differ"] == [
        ("https://a.test", "drop", "disallowed", "Disallow: /private/", 2, 3),
        ("https://c.test", "defer", "unreachable", None, None, 1),
    ]
    assert "Actual and enforced" in page(figures, Cover(NOW, "1.0", "All"))


def test_without_what_if_the_report_has_the_actual_decisions(lenient):
    figures, tables = figures_and_tables(lenient, what_if=False)

    assert figures.timeline.totals == {"drop": 1, "defer": 0, "pass": 5}
    assert "Actual and enforced" not in tables


def test_what_if_works_with_an_empty_audit_log(tmp_path):
    _, tables = figures_and_tables(tmp_path, what_if=True)

    assert tables["Sites that would differ"] == []
    assert (
        msgspec.json.encode(tables["Actual and enforced"])
        == b'[["defer",0,0,0],["drop",0,0,0],["pass",0,0,0]]'
    )
