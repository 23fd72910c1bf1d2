"""`robots-guard audit`: commands that follow, search, verify and export the audit log of all integrations."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from robots_guard.app.cli.audit.bundles import bundle, replay
from robots_guard.app.cli.audit.hold import hold
from robots_guard.app.cli.audit.records import (
    COUNTED,
    asks_for_passes,
    counts_passes,
    filter_of,
    filters,
    given_options,
    note_if_empty,
    note_reach,
    print_records,
    print_table,
)
from robots_guard.app.cli.audit.reports import export, report
from robots_guard.app.cli.audit.verify import keys, verify
from robots_guard.app.cli.audit_log_options import (
    existing_directory,
    report_unreadable,
)
from robots_guard.app.cli.group import CommandGroup
from robots_guard.app.cli.options import audit_log_option
from robots_guard.app.cli.terminal import progress, write_line
from robots_guard.audit.read.reader import Follower, Unreadable
from robots_guard.audit.record import AnyRecord, json_schema

if TYPE_CHECKING:
    from robots_guard.audit.read.search import Search

POLL = 0.25  # seconds between two checks for new records


@click.group(cls=CommandGroup, no_args_is_help=False)
def audit() -> None:
    """Follow, search, verify and export the audit log."""


for _command in (bundle, export, hold, keys, replay, report, verify):
    audit.add_command(_command)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per record, as in the audit log."
)
as_csv = click.option(
    "--csv", "as_csv", is_flag=True, help="Print comma-separated values, with headings."
)


def _print_columns(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001  (click's signature)
    """Print the columns of the SQL tables, and end."""
    if not value or ctx.resilient_parsing:
        return
    from robots_guard.audit.read.search import TABLES

    rows = [(table, name, kind) for table, names in TABLES.items() for name, kind in names.items()]
    print_table(["table", "column", "type"], rows, form="")
    ctx.exit()


def _print_schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001  (click's signature)
    """Print the JSON Schema of the records, and end."""
    if not value or ctx.resilient_parsing:
        return
    write_line(json.dumps(json_schema(), indent=2, sort_keys=True))
    ctx.exit()


_SQL_HELP = (
    "Run one SELECT, instead of filters. Tables: decisions (requests, and responses that were"
    " refused), signals (responses), records (all). Columns: those of a record, such as action,"
    ' reason, url, origin, rule, agent, job, "at", id, and time, a timestamp; see --sql-columns.'
)


@audit.command()
@audit_log_option
@filters
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Show only the newest N records."
)
@click.option("--oldest-first", is_flag=True, help="Show the oldest of them first.")
@click.option("--sql", metavar="SELECT", help=_SQL_HELP)
@click.option(
    "--sql-columns",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_columns,
    help="Print the columns of the SQL tables, with their types.",
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of the records.",
)
@as_json
@as_csv
def query(
    audit_log: str | None,
    limit: int | None,
    sql: str | None,
    *,
    oldest_first: bool,
    as_json: bool,
    as_csv: bool,
    **values: Any,
) -> int:
    """Search the audit log, newest first."""
    from robots_guard.audit.read.search import Search

    form = _form(as_json=as_json, as_csv=as_csv)
    if sql is not None and (given := given_options(values)):
        raise click.UsageError(
            f"--sql cannot be combined with {', '.join(given)}: use its WHERE clause instead"
        )
    directory = existing_directory(audit_log)
    is_empty = note_if_empty(directory)
    wanted = None if sql is not None else filter_of(values, directory)
    with (
        progress("searching") as on_progress,
        Search(directory, wanted, on_progress, makes_copies=limit is None) as search,
    ):
        if sql is not None:
            headings, rows = search.select(sql)
            print_table(headings, rows, form=form)
            found = True
        else:
            entries = _newest(search, limit, oldest_first=oldest_first)
            found = print_records(entries, form=form) > 0
        trouble = search.unreadable()
    if not (found or is_empty or trouble):  # an unreadable part might contain a match
        why = ""
        if wanted is not None and asks_for_passes(wanted) and counts_passes(directory):
            why = COUNTED
        click.echo(f"robots-guard: no record matches{why}", err=True)
    note_reach(directory, wanted)
    return report_unreadable(trouble)


def _form(*, as_json: bool, as_csv: bool) -> str:
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other: give one of them")
    if as_json:
        return "json"
    return "csv" if as_csv else ""


def _newest(search: Search, limit: int | None, *, oldest_first: bool) -> Iterable[AnyRecord]:
    """The newest records of a search, or all, in the order wanted."""
    if oldest_first and limit is None:
        return search.records()
    newest = search.records(limit, newest_first=True)
    return reversed(list(newest)) if oldest_first else newest


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
    directory, trouble = existing_directory(audit_log), Unreadable()
    wanted, form = filter_of(values, directory), "json" if as_json else ""
    if note_if_empty(directory, "; waiting for the first record" if follow else ""):
        sys.stderr.flush()
    follower = Follower(directory, trouble)
    latest = follower.latest(wanted, lines, last=not follow)
    shown = print_records(latest, form=form, streams=True)
    while follow:
        shown += print_records(follower.new(wanted), form=form, streams=True, headings=not shown)
        time.sleep(POLL)
    return report_unreadable(trouble)
