"""`robots-guard audit report`, `export`, `replay` and `bundle`: the journal told to others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec

from robots_guard.audit.export import FORMATS, exported
from robots_guard.audit.query import Filter
from robots_guard.audit.record import Record, Start, moment, printable
from robots_guard.audit.replay import Bundle, Replayed, read_bundle
from robots_guard.audit.replay import replay as replayed
from robots_guard.audit.search import Search
from robots_guard.cli.auditing import directory_of, filter_of, filters, progress, told
from robots_guard.cli.options import journal_option, store_option
from robots_guard.cli.terminal import print_lines
from robots_guard.core.codec import EMPTY
from robots_guard.core.verdict import RuleRef
from robots_guard.errors import SettingsError, StoreError
from robots_guard.rep.lines import clean, shown
from robots_guard.settings import CLOCKS, default_store
from robots_guard.stores import look_at

DIFFERS = 1  # the exit status of `replay` for a verdict that is not the one recorded
AROUND = 3  # lines shown on each side of the deciding one

as_file = click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")


@click.command()
@journal_option
@filters
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("robots-guard-report.html")
)
@click.option("--what-if", is_flag=True, help='As if mode = "report" had refused, and how that differs.')
def report(journal: str | None, output: Path, *, what_if: bool, **values: Any) -> int:
    """Write one HTML file: decisions over time, by origin and rule; deferrals, outages, overrides, what failed open."""
    from robots_guard.audit.report import page
    from robots_guard.audit.summary import summary

    wanted, now = filter_of(values), moment(CLOCKS.now()) or ""
    with progress("counting") as heard, Search(directory_of(journal), wanted, heard) as search:
        figures = summary(search, now, what_if=what_if)
        trouble = search.unreadable()
    with _writing(output) as target:
        target.write(page(figures, now, _about(wanted, what_if=what_if), str(trouble)))
    click.echo(f"robots-guard: written to {output}", err=True)
    return told(trouble)


def _about(wanted: Filter, *, what_if: bool) -> str:
    chosen = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value and name != "kind"}
    which = "All decisions in the journal"
    if chosen:
        which = "Decisions: " + ", ".join(f"{name} {value}" for name, value in chosen.items())
    return which + (', counted as if mode = "report" had not been set' if what_if else "")


@click.command()
@journal_option
@filters
@click.option("--format", "form", type=click.Choice(list(FORMATS)), required=True)
@as_file
def export(journal: str | None, form: str, output: Path | None, **values: Any) -> int:
    """Write records as ecs, otel (one JSON object a line), csv, heritrix or squid (log lines)."""
    wanted = filter_of(values)
    if form == "heritrix" and wanted.kind == "decision":
        wanted = msgspec.structs.replace(wanted, kind=None)  # its log has the fetches of robots.txt, too
    with (
        _writing(output) as target,
        progress("exporting") as heard,
        Search(directory_of(journal), wanted, heard) as search,
    ):
        for line in exported(search.records(), form):
            target.write(line + "\n")
        return told(search.unreadable())


@contextmanager
def _writing(output: Path | None) -> Iterator[TextIO]:
    """The file named, or standard output. Raises SettingsError for a file that cannot be written."""
    if output is None:
        yield sys.stdout
        return
    try:
        target = output.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise SettingsError(
            f"{str(output)!r} cannot be written ({error.strerror}): name a file that can be, with --output"
        ) from error
    with target:
        yield target


@click.command()
@journal_option
@store_option
@click.argument("id_or_file", metavar="ID|FILE")
def replay(journal: str | None, store: str | None, id_or_file: str) -> int:
    """Judge a recorded decision again, by its document and its settings. Exit status 1 if the verdict is another."""
    path = Path(id_or_file)
    bundle = read_bundle(path.read_bytes()) if path.is_file() else _bundled(journal, store, id_or_file)
    result = replayed(bundle)
    _show(bundle, result)
    return DIFFERS if result.differences else 0


@click.command()
@journal_option
@store_option
@click.argument("id")
@as_file
def bundle(journal: str | None, store: str | None, id: str, output: Path | None) -> int:  # noqa: A002  its name
    """Write one file with a record, its document, its settings and the schema: audit replay FILE needs no more."""
    made = msgspec.json.format(printable(msgspec.json.encode(_bundled(journal, store, id))), indent=2).decode()
    with _writing(output) as target:
        target.write(made + "\n")
    return 0


def _bundled(journal: str | None, store: str | None, identity: str) -> Bundle:
    """A record, and what it rests on. Raises SettingsError."""
    directory = directory_of(journal)
    record = _found(directory, Filter(id=identity))
    if not isinstance(record, Record):
        raise SettingsError(f"there is no record {identity!r} in {str(directory)!r}: name another id, or --journal")
    start = _found(directory, Filter(kind="start", writer=record.writer))
    return Bundle(
        version=version("robots_guard"),
        record=record,
        settings=start.settings if isinstance(start, Start) else {},
        document=_document(store, record.sha256),
    )


def _found(directory: Path, wanted: Filter) -> Any:
    with progress("searching") as heard, Search(directory, wanted, heard) as search:
        return next(search.records(limit=1), None)


def _document(store: str | None, sha256: str | None) -> bytes | None:
    if sha256 is None or sha256 == EMPTY:
        return None
    held = look_at(store or default_store())
    try:
        return None if held is None else held.document(sha256)
    except StoreError as error:
        raise SettingsError(f"the store {error}") from error
    finally:
        if held is not None:
            held.close()


def _show(bundle: Bundle, result: Replayed) -> None:
    record, verdict = bundle.record, result.verdict
    print_lines(
        [
            (f"recorded  {record.action.upper()} ({record.reason})  {record.at}  {record.url}", record.action),
            (f"replayed  {verdict.action.upper()} ({verdict.reason})", verdict.action),
            *((f"  {line}", "") for line in _context(bundle.document, verdict.rule)),
            *((f"differs: {difference}", "red") for difference in result.differences),
            *((f"note: {caveat}", "yellow") for caveat in result.caveats),
            ("the verdict differs" if result.differences else "the same verdict", ""),
        ]
    )


def _context(document: bytes | None, rule: RuleRef | None) -> list[str]:
    """The deciding rule among its neighbours in the file."""
    if not document or rule is None:
        return []
    lines = clean(document).splitlines()
    first, last = max(1, rule.line - AROUND), min(len(lines), rule.line + AROUND)
    return [
        f"{'>' if number == rule.line else ' '} {number:4}  {shown(lines[number - 1])}"
        for number in range(first, last + 1)
    ]
