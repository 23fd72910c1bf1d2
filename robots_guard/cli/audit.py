"""`robots-guard audit`: the journal that all doors write, followed, searched, shown, checked and handed on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from robots_guard.audit.query import Follower, Trouble
from robots_guard.audit.segments import segments
from robots_guard.cli import Group
from robots_guard.cli.audit_files import compact, schema, verify
from robots_guard.cli.audit_telling import bundle, export, replay, report
from robots_guard.cli.auditing import (
    chosen_in,
    directory_of,
    filter_of,
    filters,
    print_records,
    print_table,
    progress,
    told,
)
from robots_guard.cli.options import journal_option

POLL = 0.25  # seconds between two looks at the files


@click.group(cls=Group, no_args_is_help=False)
def audit() -> None:
    """Follow, search, show, check and hand on the journal."""


for _command in (bundle, compact, export, replay, report, schema, verify):
    audit.add_command(_command)

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a record, as it is in the journal.")
as_csv = click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with headings.")


@audit.command()
@journal_option
@filters
@click.option("--id", metavar="ID", help="The record that a refusal names.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N only.")
@click.option("--sql", metavar="SELECT", help="One SELECT over the tables decisions and records, instead of filters.")
@as_json
@as_csv
def query(
    journal: str | None, limit: int | None, sql: str | None, *, as_json: bool, as_csv: bool, **values: Any
) -> int:
    """Search the journal, oldest first."""
    from robots_guard.audit.search import Search

    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms of one answer: give one of them")
    form = "json" if as_json else "csv" if as_csv else ""
    if sql is not None and (given := chosen_in(values)):
        raise click.UsageError(f"--sql goes without filters ({', '.join(given)}): put them into its WHERE")
    directory = directory_of(journal)
    is_empty = not segments(directory)
    if is_empty:
        click.echo(f"robots-guard: nothing has been recorded yet in {directory}", err=True)
    with (
        progress("searching") as heard,
        Search(directory, None if sql is not None else filter_of(values), heard) as search,
    ):
        if sql is not None:
            headings, rows = search.ask(sql)
            print_table(headings, rows, form=form)
            found = True
        else:
            found = print_records(search.records(limit), form=form) > 0
        trouble = search.unreadable()
    if not (found or is_empty or trouble):  # where not all can be read, nobody knows
        click.echo("robots-guard: no record matches", err=True)
    return told(trouble)


@audit.command()
@journal_option
@filters
@click.option("-n", "--lines", type=click.IntRange(0), default=10, show_default=True, help="How many to begin with.")
@click.option("-f", "--follow/--no-follow", default=True, show_default=True, help="Wait for more.")
@as_json
def tail(journal: str | None, lines: int, follow: bool, *, as_json: bool, **values: Any) -> int:
    """Show the latest records, and further ones as they are written."""
    trouble, wanted, directory = Trouble(), filter_of(values), directory_of(journal)
    form = "json" if as_json else ""
    if follow:
        _await(directory)
    follower = Follower(directory, trouble)
    print_records(follower.latest(wanted, lines, last=not follow), form=form, streams=True)
    while follow:
        print_records(follower.new(wanted), form=form, streams=True)
        time.sleep(POLL)
    return told(trouble)


def _await(directory: Path) -> None:
    """Until there is a journal: the first door that records makes it."""
    if directory.exists() and segments(directory):
        return
    click.echo(f"robots-guard: nothing has been recorded yet in {directory}; waiting for the first record", err=True)
    sys.stderr.flush()
    while not directory.exists():
        time.sleep(POLL)
