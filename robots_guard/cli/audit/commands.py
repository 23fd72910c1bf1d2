"""`robots-guard audit`: commands that follow, search, verify and export the audit log of all integrations."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from robots_guard.audit.read.reader import Follower, Unreadable
from robots_guard.audit.segments import segments
from robots_guard.cli.audit.anchor import anchor
from robots_guard.cli.audit.files import compact, schema
from robots_guard.cli.audit.hold import hold
from robots_guard.cli.audit.keys import keys
from robots_guard.cli.audit.records import (
    directory_of,
    filter_of,
    filters,
    given_options,
    print_records,
    print_table,
    report_unreadable,
)
from robots_guard.cli.audit.reports import bundle, export, replay, report
from robots_guard.cli.audit.verify import verify
from robots_guard.cli.group import CommandGroup
from robots_guard.cli.options import audit_log_option
from robots_guard.cli.terminal import progress

POLL = 0.25  # seconds between two checks for new records


@click.group(cls=CommandGroup, no_args_is_help=False)
def audit() -> None:
    """Follow, search, verify and export the audit log."""


for _command in (anchor, bundle, compact, export, hold, keys, replay, report, schema, verify):
    audit.add_command(_command)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per record, as in the audit log."
)
as_csv = click.option(
    "--csv", "as_csv", is_flag=True, help="Print comma-separated values, with headings."
)


@audit.command()
@audit_log_option
@filters
@click.option("--id", metavar="ID", help="Show the record with this id, as given in a refusal.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Show only the first N records.")
@click.option(
    "--sql",
    metavar="SELECT",
    help="Run one SELECT over the tables decisions and records, instead of filters.",
)
@as_json
@as_csv
def query(
    audit_log: str | None,
    limit: int | None,
    sql: str | None,
    *,
    as_json: bool,
    as_csv: bool,
    **values: Any,
) -> int:
    """Search the audit log, oldest first."""
    from robots_guard.audit.read.search import Search

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other: give one of them")
    form = ""
    if as_json:
        form = "json"
    elif as_csv:
        form = "csv"
    if sql is not None and (given := given_options(values)):
        raise click.UsageError(
            f"--sql cannot be combined with {', '.join(given)}: use its WHERE clause instead"
        )
    directory = directory_of(audit_log)
    is_empty = not segments(directory)
    if is_empty:
        click.echo(f"robots-guard: nothing has been recorded yet in {directory}", err=True)
    wanted = None if sql is not None else filter_of(values)
    with (
        progress("searching") as on_progress,
        Search(directory, wanted, on_progress) as search,
    ):
        if sql is not None:
            headings, rows = search.select(sql)
            print_table(headings, rows, form=form)
            found = True
        else:
            found = print_records(search.records(limit), form=form) > 0
        trouble = search.unreadable()
    if not (found or is_empty or trouble):  # an unreadable part might contain a match
        click.echo("robots-guard: no record matches", err=True)
    return report_unreadable(trouble)


@audit.command()
@audit_log_option
@filters
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Number of latest records to show first.",
)
@click.option(
    "-f", "--follow/--no-follow", default=True, show_default=True, help="Wait for further records."
)
@as_json
def tail(audit_log: str | None, lines: int, follow: bool, *, as_json: bool, **values: Any) -> int:
    """Show the latest records, and new ones as they are written."""
    trouble, wanted, directory = Unreadable(), filter_of(values), directory_of(audit_log)
    form = "json" if as_json else ""
    if follow:
        _wait_for_directory(directory)
    follower = Follower(directory, trouble)
    latest = follower.latest(wanted, lines, last=not follow)
    shown = print_records(latest, form=form, streams=True)
    while follow:
        shown += print_records(follower.new(wanted), form=form, streams=True, headings=not shown)
        time.sleep(POLL)
    return report_unreadable(trouble)


def _wait_for_directory(directory: Path) -> None:
    """Wait until the audit log's directory exists: the first integration that records something creates it."""
    if directory.exists() and segments(directory):
        return
    click.echo(
        f"robots-guard: nothing has been recorded yet in {directory}; waiting for the first record",
        err=True,
    )
    sys.stderr.flush()
    while not directory.exists():
        time.sleep(POLL)
