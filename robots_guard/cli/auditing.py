"""What the commands of `robots-guard audit` have in common: which records, from where, shown how."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from robots_guard.audit.query import DECISION, KINDS, Filter, Trouble, kind_of, moment_meant
from robots_guard.audit.record import AnyRecord, Fetch, Record, Repeats, Start
from robots_guard.cli.options import insist_on_known_variables
from robots_guard.cli.terminal import Rows, safe, write_encoded, write_line
from robots_guard.core.verdict import Action, Reason
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url
from robots_guard.plain import encodable
from robots_guard.settings import CLOCKS, default_journal

DOORS = ("scrapy", "mitmproxy", "cli", "console")
ALL = "all"
F = TypeVar("F", bound=Callable[..., Any])

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a cell begins that a spreadsheet would compute


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A moment as records have it, from ISO 8601 (UTC unless it says otherwise) or a span before now such as 2h."""
    if value is None:
        return None
    try:
        return moment_meant(value, CLOCKS.now())
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no time: use a span such as 90s, 30m, 2h, 7d, or 2026-11-20T08:00", ctx, param
        ) from None


def _origin(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An origin as records have it, from itself or any URL of it."""
    try:
        return None if value is None else str(split_url(value)[0])
    except (NotGoverned, MalformedURL) as error:
        raise click.BadParameter(f"{error}: give an origin such as https://example.com", ctx, param) from None


class _Door(click.Choice[str]):
    """A door as records have it, or as its command is called."""

    name = "door"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`proxy` is what people call the door that records know as `mitmproxy`."""
        return super().convert("mitmproxy" if value == "proxy" else value, param, ctx)


def filters(command: F) -> F:
    """Give a command the options that choose records."""
    for option in (
        click.option("--kind", type=click.Choice([*KINDS, ALL]), default=DECISION, metavar="KIND", help=_KINDS),
        click.option("--job", metavar="LABEL", help="Of the writers with this audit_job."),
        click.option("--override", metavar="ID", help="Changed by this override, or by any."),
        click.option("--rule", metavar="TEXT", help="Decided by this rule, as it stands in the file."),
        click.option("--agent", metavar="TOKEN", help="Of this product token."),
        click.option(
            "--door", type=_Door(DOORS), metavar="DOOR", help="Decided at this door: scrapy, mitmproxy (or proxy), cli."
        ),
        click.option("--action", type=click.Choice([each.value for each in Action])),
        click.option("--reason", type=click.Choice([each.value for each in Reason]), metavar="REASON"),
        click.option("--origin", callback=_origin, metavar="ORIGIN", help="Of this origin, or the origin of this URL."),
        click.option("--until", callback=_moment, metavar="TIME", help="Before then."),
        click.option(
            "--since", callback=_moment, metavar="TIME", help="From then on: 2h, 7d, or 2026-11-20T08:00 (UTC)."
        ),
    ):
        command = option(command)
    return command


_KINDS = "Records of this kind: decision (the default), fetch, start, ... or all."


def filter_of(values: dict[str, Any]) -> Filter:
    """The filter that a command's options make, their text as records have it."""
    values = {name: encodable(value) if isinstance(value, str) else value for name, value in values.items()}
    kind = values.get("kind")
    return Filter(**values | {"kind": None if kind == ALL else kind})


def chosen_in(values: dict[str, Any]) -> list[str]:
    """The options of `filters`, and the like, that were given a value of their own."""
    return [f"--{name}" for name, value in values.items() if value is not None and (name, value) != ("kind", DECISION)]


def directory_of(journal: str | None) -> Path:
    """The journal's directory."""
    insist_on_known_variables()
    return Path(journal or default_journal()).expanduser()


def told(trouble: Trouble) -> int:
    """Say on standard error what could not be read."""
    if trouble:
        click.echo(f"robots-guard: {safe(str(trouble))}", err=True)
    return 0


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, where that is a terminal, for what takes long; it hears per cent."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)  # it moves, and fills once somebody knows how far it is
        yield lambda done: bar.update(task, total=100 if done > 0 else None, completed=max(0.0, done))


# -- showing ------------------------------------------------------------------------------------------------


def print_records(found: Iterable[AnyRecord], *, form: str, streams: bool = False) -> int:
    """Records as a table, as `json` lines or as `csv`; how many."""
    passing = _Passing(found)
    match form:
        case "json":
            for entry in passing:
                write_line(entry.line_of_json().decode().rstrip("\n"))
        case "csv":
            print_csv(HEADINGS, (row_of(entry) for entry in passing))
        case _:
            rows = Rows("verdict", *HEADINGS[1:], streams=streams)
            for entry in passing:
                rows.add(row_of(entry))
            rows.end()
    sys.stdout.flush()
    return passing.count


class _Passing:
    """Records that pass, counted."""

    def __init__(self, found: Iterable[AnyRecord]) -> None:
        self.count = 0
        self._found = found

    def __iter__(self) -> Iterator[AnyRecord]:
        for entry in self._found:
            self.count += 1
            yield entry


HEADINGS = ("action", "at", "door", "agent", "reason", "url", "rule", "line")


def row_of(entry: AnyRecord) -> tuple[str, ...]:
    """A record in brief: a decision's verdict, or what else happened."""
    at, door = entry.at or "", entry.door
    match entry:
        case Record():
            return (entry.action, at, door, entry.agent, entry.reason, entry.url, _why(entry), _shown(entry.line))
        case Repeats():
            times = f"{entry.count} more like {entry.id}"
            return (entry.action, at, door, entry.agent, entry.reason, entry.origin, times, _shown(entry.line))
        case Fetch():
            outcome = entry.failure or _shown(entry.status)
            return ("fetch", at, door, "", outcome, entry.url, entry.detail or "", "")
        case Start():
            return ("start", at, door, "", "", "", f"robots_guard {entry.version}, writer {entry.writer}", "")
        case _:
            return (kind_of(entry), at, door, "", "", "", _rest(entry), "")


def _why(entry: Record) -> str:
    """The rule or detail of a decision, and the override it was made under, with who made it and why."""
    made = ": ".join(filter(None, (entry.override_owner, entry.override_reason)))
    override = entry.override and f"override {entry.override}" + (f" ({made})" if made else "")
    return "; ".join(filter(None, (entry.rule or entry.detail, override)))


def _rest(entry: AnyRecord) -> str:
    rest = msgspec.to_builtins(entry)
    return ", ".join(f"{name}={rest[name]}" for name in rest if name not in _SHARED)


_SHARED = ("kind", "schema", "at", "mono", "seq", "writer", "door", "job")


def print_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Comma-separated values. A cell that a spreadsheet would compute is text, by a quote before it."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> str:
    text = safe(_shown(value))
    return f"'{text}" if text.startswith(_FORMULA) and not isinstance(value, int | float) else text


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def print_table(headings: list[str], rows: Iterable[tuple[Any, ...]], *, form: str) -> None:
    """The answer to SQL as a table, as `json` lines or as `csv`."""
    match form:
        case "json":
            for row in rows:
                values = dict(zip(headings, row, strict=True))
                write_encoded(msgspec.json.encode(values, enc_hook=str))
        case "csv":
            print_csv(headings, rows)
        case _:
            shown = Rows(*headings)
            for row in rows:
                shown.add([_shown(value) for value in row])
            shown.end()
