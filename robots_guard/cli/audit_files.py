"""`robots-guard audit verify`, `compact` and `schema`: the journal as files."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click
import msgspec

from robots_guard.audit.compact import compact as compacted
from robots_guard.audit.keeping import compress
from robots_guard.audit.query import Trouble
from robots_guard.audit.record import json_schema
from robots_guard.audit.segments import segments
from robots_guard.audit.verify import Finding
from robots_guard.audit.verify import verify as verified
from robots_guard.cli.auditing import directory_of, progress, told
from robots_guard.cli.options import journal_option
from robots_guard.cli.terminal import Rows, safe, write_encoded, write_line
from robots_guard.settings import CLOCKS

FOUND = 1  # the exit status of `verify` and `compact` for a journal that is not as it was written


@click.command()
@journal_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a writer, with the head of its chain.")
def verify(journal: str | None, as_json: bool) -> int:
    """Look for gaps, edits and torn lines. Exit status 1 if there are gaps or edits, or lines that are no records."""
    trouble = Trouble()
    with progress("verifying"):
        findings = verified(directory_of(journal), trouble)
    if as_json:
        for found in findings:
            write_encoded(msgspec.json.encode(found))
    else:
        _show(findings)
    told(trouble)
    return FOUND if trouble.lines or trouble.files or any(found.problems for found in findings) else 0


def _show(findings: list[Finding]) -> None:
    rows = Rows("writer", "records", "chain", "detail")
    for found in findings:
        detail = "; ".join((*found.problems, *found.notes)) or "nothing is missing"
        rows.add((found.writer, str(found.records), found.chain, detail))
    rows.end()


@click.command()
@journal_option
@click.option("--today", is_flag=True, help="Closed files of today, too.")
def compact(journal: str | None, today: bool) -> int:
    """Compress closed files, and put those of past days into one Parquet file a day.

    Exit status 1 if a file cannot be read; it stays where it is.
    """
    directory, trouble = directory_of(journal), Trouble()
    segments(directory)  # says what to do if there is no such directory
    compress(directory)
    before = "99999999" if today else f"{datetime.fromtimestamp(CLOCKS.now(), UTC):%Y%m%d}"
    with progress("compacting"):
        made = compacted(directory, before, trouble)
    for each in made:
        left = f", {each.unreadable} lines left out that are no records" if each.unreadable else ""
        write_line(f"{safe(each.path.name)}\t{each.records} records of {each.files} files{left}")
    if not made and not trouble:
        click.echo("robots-guard: there is nothing to compact", err=True)
    told(trouble)
    return FOUND if trouble else 0


@click.command()
def schema() -> None:
    """Print the JSON Schema of a record."""
    write_line(json.dumps(json_schema(), indent=2, sort_keys=True))
