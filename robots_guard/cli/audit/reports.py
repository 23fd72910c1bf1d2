"""`robots-guard audit report` and `export`: reports and exports from the audit log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from robots_guard.audit.lake.source import SOURCE
from robots_guard.audit.partitions import NO_CHAIN, is_lake
from robots_guard.audit.read.reader import Filter, Unreadable
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import Record, moment
from robots_guard.audit.show.export import FORMATS, exported
from robots_guard.audit.show.sentence import date_and_time
from robots_guard.cli.audit.bundles import find_recorded, stored_document
from robots_guard.cli.audit.records import (
    filter_of,
    filters,
    given_options,
    note_if_empty,
    note_reach,
)
from robots_guard.cli.audit_log_options import (
    existing_directory,
    readable_directory,
    report_unreadable,
)
from robots_guard.cli.options import audit_log_option, invocation_from, store_option
from robots_guard.cli.terminal import progress, safe, write_line
from robots_guard.errors import SettingsError
from robots_guard.settings import CLOCKS

if TYPE_CHECKING:
    from robots_guard.audit.show.report import ShownRefusal

LEFT_OUT = 1  # the exit status of `export --parquet` if something could not be read
_FILTERS = {"url_prefix": "URLs that begin with", "url": "the URL"}  # as phrases

as_file = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file; one that exists is replaced.",
)


@click.command()
@audit_log_option
@filters
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("robots-guard-report.html"),
    show_default=True,
    help="Write to this file; one that exists is replaced.",
)
@click.option(
    "--what-if",
    is_flag=True,
    help="Count what report_only let pass as refused, and show the difference.",
)
@click.option("--title", metavar="TEXT", help="The title of the report.")
@click.option("--author", metavar="TEXT", help="The name of the person who makes the report.")
@click.option(
    "--verify/--no-verify",
    "verifies",
    default=True,
    show_default=True,
    help="Verify the whole audit log, which reads every line, and show the result.",
)
@store_option
def report(
    audit_log: str | None,
    output: Path,
    title: str | None,
    author: str | None,
    store: str | None,
    *,
    what_if: bool,
    verifies: bool,
    **values: Any,
) -> int:
    """Write an HTML report: a summary in words, exceptions, a refusal in full, and decisions over time and by site."""
    directory, now = readable_directory(audit_log), moment(CLOCKS.now()) or ""
    from robots_guard.audit.show.figures import summary
    from robots_guard.audit.show.report import TITLE, Cover, page
    from robots_guard.audit.show.verification import verification_of

    wanted = filter_of(values, directory)
    note_if_empty(directory)
    reach = note_reach(directory, wanted)
    cover = Cover(
        made=now,
        version=version("robots_guard"),
        about=_subtitle(wanted, what_if=what_if),
        reach=reach,
        title=title or TITLE,
        author=author or "",
    )
    with progress("counting") as on_progress, Search(directory, wanted, on_progress) as search:
        figures = summary(search, now, what_if=what_if)
        trouble = search.unreadable()
    content = page(
        figures,
        cover,
        refusal=_refusal(directory, store, figures.refusal),
        verification=verification_of(directory) if verifies and not is_lake(directory) else None,
        unproved=NO_CHAIN if is_lake(directory) else "",
        trouble=str(trouble),
        invocation=invocation_from(audit_log=audit_log, store=store),
    )
    with _open_output(output) as target:
        target.write(content)
    click.echo(f"robots-guard: report written to {output}", err=True)
    return report_unreadable(trouble)


def _refusal(directory: Path, store: str | None, identity: str | None) -> ShownRefusal | None:
    """Return the refusal with this id as the report shows it. A missing document is no error: the report says why."""
    from robots_guard.audit.show.report import refusal_of

    record = None
    if identity:
        record = find_recorded(directory, identity)
    if not isinstance(record, Record):
        return None
    try:
        document = stored_document(store, record.sha256)
        no_document = "The store does not have this document: name another with --store."
    except SettingsError as error:
        document, no_document = None, f"The document cannot be shown: {error}."
    return refusal_of(record, document, no_document)


def _subtitle(wanted: Filter, *, what_if: bool) -> str:
    """Which decisions the report counts, as a phrase for its cover."""
    selected = [
        f"{_FILTERS.get(name, name)} {value}"
        for name, value in msgspec.structs.asdict(wanted).items()
        if value and name not in ("kind", "key", "since", "until")
    ]
    which = "All decisions in the audit log"
    if selected or wanted.since or wanted.until:
        which = "Decisions"
    if selected:
        which += " with " + ", ".join(selected)
    if wanted.since:
        which += f" from {date_and_time(wanted.since)}"
    if wanted.until:
        which += f" until {date_and_time(wanted.until)}"
    if what_if:
        which += ", counted as if report_only had not been set"
    return which


@click.command()
@audit_log_option
@filters
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help=f"Output format: {', '.join(FORMATS)}.",
)
@as_file
@click.option(
    "--parquet",
    metavar="DIR",
    help="Write all records to Parquet files in this directory, or at a URL such as s3://bucket/prefix,"
    " instead. Records that are there already are not written again. Of the filters, only --until"
    " is accepted: days that are not over by then are left for later (default: today).",
)
@click.option(
    "--by",
    type=click.Choice(["day"]),
    help="With --parquet: a file for each of these (default: day).",
)
@click.option(
    "--source",
    metavar="NAME",
    help="With --parquet: the name of this audit log, if several are exported to the same place"
    f" (default: {SOURCE}).",
)
def export(
    audit_log: str | None,
    form: str | None,
    output: Path | None,
    parquet: str | None,
    by: str | None,
    source: str | None,
    **values: Any,
) -> int:
    """Write records in the format of another program, one line each, or to Parquet files by day.

    Exit status: 0 written, 1 with --parquet, if a file or record could not be read and was left out.
    """
    if (form is None) == (parquet is None):
        raise click.UsageError(f"give either --format ({', '.join(FORMATS)}) or --parquet")
    if parquet is not None:
        return _export_to_lake(audit_log, parquet, source or SOURCE, output, values)
    if by or source:
        raise click.UsageError("--by and --source go with --parquet")
    assert form is not None
    return _export_lines(audit_log, form, output, values)


def _export_to_lake(
    audit_log: str | None, where: str, source: str, output: Path | None, values: dict[str, Any]
) -> int:
    """Export all records to Parquet files."""
    from robots_guard.audit.lake.export import export as export_to
    from robots_guard.audit.lake.export import first_day_not_exported
    from robots_guard.audit.lake.places import place_at

    until = values.pop("until", None)
    refused = given_options(values) + (["--output"] if output else [])
    if refused:
        raise click.UsageError(
            f"--parquet exports all records: {', '.join(refused)} cannot be combined with it"
        )
    directory, trouble = existing_directory(audit_log), Unreadable()
    note_if_empty(directory)
    first = first_day_not_exported(CLOCKS.now(), until)
    found = 0
    with progress("exporting"):
        for each in export_to(directory, place_at(where), first, trouble, source):
            found += 1
            write_line(f"{safe(each.name)}\t{each.records} records, {each.added} new")
    if not found:
        hint = "" if until else f": --until {_day_after(first)} exports the day so far"
        click.echo(f"robots-guard: there is nothing new before {first}{hint}", err=True)
    report_unreadable(trouble)
    return LEFT_OUT if trouble.files or trouble.newer else 0


def _day_after(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def _export_lines(
    audit_log: str | None, form: str, output: Path | None, values: dict[str, Any]
) -> int:
    """Export the records wanted as lines."""
    directory = readable_directory(audit_log)
    wanted = filter_of(values, directory)
    if wanted.kind == "decision":
        wanted = msgspec.structs.replace(wanted, kind=FORMATS[form].kind)
    with (
        _open_output(output) as target,
        progress("exporting") as on_progress,
        Search(directory, wanted, on_progress) as search,
    ):
        for line in exported(search.records(), form):
            target.write(line + "\n")
        return report_unreadable(search.unreadable())


@contextmanager
def _open_output(output: Path | None) -> Iterator[TextIO]:
    """Open the named file, or standard output. Raises SettingsError if the file cannot be written."""
    if output is None:
        yield sys.stdout
        return
    try:
        target = output.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise SettingsError(
            f"{str(output)!r} cannot be written ({error.strerror}): name another file with --output"
        ) from error
    with target:
        yield target
