"""Files with more than records: all readers find the same records in them."""

from __future__ import annotations

import pytest
from audit.decisions import audit_log_in, decision

from robots_guard.audit.read.reader import Filter, entries
from robots_guard.audit.read.search import LoadedSearch, Search
from robots_guard.audit.write.maintenance import compress

ANY = Filter(kind=None)

JUNK = {
    "a carriage return within a line": lambda lines: lines + b"a\rb\n",
    "a carriage return that tears a record": lambda lines: lines[:-30] + b"\r" + lines[-30:],
    "a file edited on Windows": lambda lines: lines.replace(b"\n", b"\r\n"),
    "a line edited on Windows": lambda lines: lines.replace(b"\n", b"\r\n", 1),
    "the character that divides columns": lambda lines: b"a\x01b\x01c\n" + lines,
    "that and a carriage return": lambda lines: b"a\x01b\rc\n" + lines,
    "what is no UTF-8": lambda lines: b"\xff\xfe\x80\r\n" + lines,
    "a long line": lambda lines: b"\0" * 3_000_000 + b"\n" + lines,
    "a longer line than DuckDB reads": lambda lines: b"\0" * 70_000_000 + b"\n" + lines,
    "a long last line": lambda lines: lines + b"\0" * 20_000_000,
    "a last line longer than DuckDB reads": lambda lines: lines + b"\0" * 70_000_000,
}


@pytest.fixture(params=JUNK)
def log(request, tmp_path):
    """A log of two files, one with junk, and the number of its records."""
    for _ in range(2):
        audit_log = audit_log_in(tmp_path)
        for number in range(3):
            audit_log.write(decision(client=f"c{number}"))
        audit_log.close()
    path = min(tmp_path.glob("*.jsonl"))
    path.write_bytes(JUNK[request.param](path.read_bytes()))
    return tmp_path


def read(log):
    return [entry.client for entry in entries(log, Filter())]


def searched(log, **wanted):
    with Search(log, Filter(**wanted)) as found:
        return [entry.client for entry in found.records()]


def test_every_query_finds_the_records(log):
    there = read(log)

    assert len(there) >= 5
    assert searched(log) == there
    assert searched(log, id="w-1") == there


def test_the_console_finds_the_records(log):
    resident = LoadedSearch(log)
    (row,) = resident.rows("SELECT count(*) FROM decisions")
    resident.close()

    assert row == (len(read(log)),)


def test_compression_keeps_the_records(log):
    there = read(log)
    compress(log)

    assert read(log) == there
    assert searched(log) == there


def test_both_readers_report_a_file_that_duckdb_cannot_read(tmp_path):
    audit_log = audit_log_in(tmp_path)
    audit_log.write(decision())
    audit_log.close()
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(b"\0" * 70_000_000 + b"\n" + path.read_bytes())
    with Search(tmp_path, ANY) as found:
        list(found.records())
        assert found.unreadable().lines == {path.name: 1}
