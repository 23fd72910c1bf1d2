"""`robots-guard audit report` and `export`: reports and exports from the audit log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from robots_guard.app.cli.audit.bundles import document_of, find_recorded
from robots_guard.app.cli.audit.records import (
    filter_of,
    filters,
    note_if_empty,
    note_reach,
)
from robots_guard.app.cli.audit_log_options import (
    existing_directory,
    report_unreadable,
)
from robots_guard.app.cli.options import audit_log_option, invocation_from, store_option
from robots_guard.app.cli.terminal import progress
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import Record, moment
from robots_guard.audit.show.export import FORMATS, exported
from robots_guard.audit.show.sentence import date_and_time
from robots_guard.configuration.settings import CLOCKS
from robots_guard.errors import SettingsError

if TYPE_CHECKING:
    from robots_guard.audit.show.report import ShownRefusal

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
    directory, now = existing_directory(audit_log), moment(CLOCKS.now()) or ""
    from robots_guard.audit.show.figures import summary
    from robots_guard.audit.show.report import TITLE, Cover, page, verification_of

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
    with (
        progress("counting") as on_progress,
        Search(directory, wanted, on_progress, trusts_index=not verifies) as search,
    ):
        figures = summary(search, now, what_if=what_if)
        trouble = search.unreadable()
    content = page(
        figures,
        cover,
        refusal=_refusal(directory, store, figures.refusal),
        verification=verification_of(directory) if verifies else None,
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
        document = document_of(record, directory, store)
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
    required=True,
    help=f"Output format: {', '.join(FORMATS)}.",
)
@as_file
def export(audit_log: str | None, form: str, output: Path | None, **values: Any) -> int:
    """Write records in the format of another program, one line each."""
    directory = existing_directory(audit_log)
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
