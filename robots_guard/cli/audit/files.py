"""`robots-guard audit compact` and `schema`: commands about the audit log's files."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from robots_guard.audit.compaction import compact as compact_files
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.record import json_schema
from robots_guard.audit.segments import segments
from robots_guard.audit.write.maintenance import compress
from robots_guard.cli.audit_log_options import existing_directory, report_unreadable
from robots_guard.cli.options import audit_log_option
from robots_guard.cli.terminal import progress, safe, write_line
from robots_guard.settings import CLOCKS

DAMAGED = 1  # the exit status of `compact` if a file cannot be read


@click.command()
@audit_log_option
@click.option("--today", is_flag=True, help="Include today's closed files.")
def compact(audit_log: str | None, today: bool) -> int:
    """Compress closed files, and merge those of past days into one Parquet file per day.

    Exit status: 0 done, 1 a file cannot be read and was left as it is.
    """
    directory, trouble = existing_directory(audit_log), Unreadable()
    segments(directory)  # raises SettingsError with a remedy if there is no such directory
    compress(directory)
    before = "99999999" if today else f"{datetime.fromtimestamp(CLOCKS.now(), UTC):%Y%m%d}"
    with progress("compacting"):
        results = compact_files(directory, before, trouble)
    for each in results:
        skipped = (
            f", {each.unreadable} lines skipped that are not records" if each.unreadable else ""
        )
        write_line(
            f"{safe(each.path.name)}\t{each.records} records from {each.files} files{skipped}"
        )
    if not results and not trouble:
        click.echo("robots-guard: there is nothing to compact", err=True)
    report_unreadable(trouble)
    if trouble:
        return DAMAGED
    return 0


@click.command()
def schema() -> None:
    """Print the JSON Schema of the records."""
    write_line(json.dumps(json_schema(), indent=2, sort_keys=True))
