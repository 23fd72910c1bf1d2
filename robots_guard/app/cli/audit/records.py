"""Helpers shared by the commands of `robots-guard audit`: filter options, the directory, and output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from robots_guard.app.cli.audit_log_options import period_options
from robots_guard.app.cli.terminal import Rows, TableColumn, safe, write_encoded, write_line
from robots_guard.audit.privacy import key_in
from robots_guard.audit.read.reader import COMPONENTS, DECISION, KINDS, Filter, kind_of
from robots_guard.audit.read.resource import UrlPlace, place_of
from robots_guard.audit.record import (
    AnyRecord,
    Fetch,
    Passes,
    Record,
    SignalsRecord,
    Start,
    moment,
)
from robots_guard.audit.segments import segments
from robots_guard.audit.show.export import csv_line
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import split_url
from robots_guard.text import encodable

ALL = "all"
_PASSES = "passes"  # the kind of the records that count them
F = TypeVar("F", bound=Callable[..., Any])


def _origin(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Convert an origin, or any URL of it, to the form that records have."""
    try:
        if value is None:
            return None
        origin, target = split_url(value)
    except (NotGoverned, MalformedURL) as error:
        raise click.BadParameter(
            f"{error}: give an origin such as https://example.com", ctx, param
        ) from None
    if target != "/":
        click.echo(
            f"robots-guard: --origin means all of {origin}: use --url for this URL alone", err=True
        )
    return str(origin)


def _place(ctx: click.Context, param: click.Parameter, value: str | None) -> UrlPlace | None:
    """Convert a URL, the beginning of URLs, or a host."""
    try:
        return None if value is None else place_of(encodable(value))
    except SettingsError as error:
        raise click.BadParameter(str(error), ctx, param) from None


_KIND_HELP = (
    "Only records of this kind: decision (the default), fetch, start, ..., or all for every kind."
)

#: The last option comes first in the help.
_FILTERS = (
    click.option(
        "--kind",
        type=click.Choice([*KINDS, ALL]),
        default=DECISION,
        metavar="KIND",
        help=_KIND_HELP,
    ),
    click.option("--job", metavar="LABEL", help="Only records with this audit_job."),
    click.option(
        "--override", metavar="ID", help="Only decisions under this override, or under `any`."
    ),
    click.option(
        "--rule",
        metavar="TEXT",
        help="Only decisions by this rule, written as in the robots.txt.",
    ),
    click.option("--agent", metavar="TOKEN", help="Only decisions for this product token."),
    click.option(
        "--component",
        type=click.Choice(COMPONENTS),
        metavar="COMPONENT",
        help=f"Only records of this component: {', '.join(COMPONENTS)}.",
    ),
    click.option(
        "--action",
        type=click.Choice([each.value for each in Action]),
        help="Only decisions with this action.",
    ),
    click.option(
        "--reason",
        type=click.Choice([each.value for each in Reason]),
        metavar="REASON",
        help="Only decisions with this reason.",
    ),
    click.option(
        "--origin",
        callback=_origin,
        metavar="ORIGIN",
        help="Only records for this origin, or for the origin of this URL.",
    ),
    click.option(
        "--url",
        callback=_place,
        metavar="URL",
        help="Only records of this URL in any spelling, of URLs that begin so (https://h/a/*), or of a"
        " host.",
    ),
    click.option("--id", metavar="ID", help="Only the record with this id, as in a refusal."),
)


def filters(command: F) -> F:
    """Add the options that select records."""
    for option in _FILTERS:
        command = option(command)
    return period_options(command)


def filter_of(values: dict[str, Any], directory: Path | None = None) -> Filter:
    """Return the filter for a command's options, their text encoded as in records. `directory` is
    that of the audit log, whose key is needed if it hashes the values of queries."""
    given: dict[str, Any] = {
        name: encodable(value) if isinstance(value, str) else value
        for name, value in values.items()
    }
    since, place = given.pop("since", None), given.pop("url", None)
    if since is not None:
        given |= {"since": since.begins, "until": given.get("until") or since.ends}
    if since is not None and since.ends:
        click.echo(f"robots-guard: searching {since.begins} to {given['until']}", err=True)
    if place is not None:
        given |= place._asdict() | {"key": key_in(directory) if directory else ""}
    kind = given.get("kind")
    return Filter(**given | {"kind": None if kind == ALL else kind})


def given_options(values: dict[str, Any]) -> list[str]:
    """Return the names of the options that were given and differ from their default."""
    return [
        f"--{name}"
        for name, value in values.items()
        if value is not None and (name, value) != ("kind", DECISION)
    ]


#: Why there may be no record of a PASS yet. A window of a minute is closed at the latest when its
#: writer looks at its counts for the next time.
COUNTED = (
    ": where audit is summary, passes are counted, and the numbers recorded up to 70 s later, by"
    " origin and not by URL (--kind passes --origin ORIGIN)"
)


def asks_for_passes(wanted: Filter) -> bool:
    """Whether a filter selects requests that passed, or may do so."""
    if wanted.kind == _PASSES or wanted.action == Action.PASS:
        return wanted.kind in (_PASSES, DECISION)
    refuses = wanted.action or wanted.reason or wanted.rule or wanted.id
    return wanted.kind == DECISION and not refuses


def counts_passes(directory: Path) -> bool:
    """Whether an audit log has been written to by a program that counts passes only."""
    from robots_guard.audit.read.search import Search

    with Search(directory, Filter(kind="start")) as search:
        starts = (each for each in search.records() if isinstance(each, Start))
        return any(each.settings.get("audit") == "summary" for each in starts)


def note_reach(directory: Path, wanted: Filter | None) -> str:
    """Print on standard error which parts of a period the audit log does not reach; return that
    text."""
    if wanted is None or not (wanted.since or wanted.until):
        return ""
    from robots_guard.audit.read.search import reach_of

    said = str(reach_of(directory, wanted, moment(CLOCKS.now()) or ""))
    if said:
        click.echo(f"robots-guard: {said}", err=True)
    return said


def note_if_empty(directory: Path, more: str = "") -> bool:
    """Say on standard error that nothing has been recorded yet; return whether that is so."""
    is_empty = not segments(directory)
    if is_empty:
        click.echo(f"robots-guard: nothing has been recorded yet in {directory}{more}", err=True)
    return is_empty


# -- output -------------------------------------------------------------------------------------------------


def print_records(
    found: Iterable[AnyRecord], *, form: str, streams: bool = False, headings: bool = True
) -> int:
    """Print records as a table, as `json` lines or as `csv`; return their number."""
    counted = _Counted(found)
    match form:
        case "json":
            for entry in counted:
                write_line(entry.line_of_json().decode().rstrip("\n"))
        case "csv":
            print_csv(HEADINGS, (row_of(entry) for entry in counted))
        case _:
            rows = Rows(*COLUMNS, streams=streams, headings=headings)
            for entry in counted:
                rows.add(row_of(entry))
            rows.end()
    sys.stdout.flush()
    return counted.count


class _Counted:
    """An iterable that counts the records that it yields."""

    def __init__(self, found: Iterable[AnyRecord]) -> None:
        self.count = 0
        self._found = found

    def __iter__(self) -> Iterator[AnyRecord]:
        for entry in self._found:
            self.count += 1
            yield entry


class AuditRow(NamedTuple):
    """A record as a row of the table."""

    action: str
    time: str
    component: str
    agent: str = ""
    reason: str = ""
    url: str = ""
    rule: str = ""
    line: str = ""
    would: str = ""
    id: str = ""


HEADINGS = AuditRow._fields
COLUMNS = (
    TableColumn("action", kind="action", width=5),
    TableColumn("time", kind="time", width=8),
    TableColumn("component", width=6),
    TableColumn("agent", folds=True, width=8),
    TableColumn("reason", width=12),
    TableColumn("url", folds=True, width=40),
    TableColumn("rule", folds=True, width=20),
    "line",
    "would",
    TableColumn("id", width=14),
)


def row_of(entry: AnyRecord) -> AuditRow:
    """Return a record as a row of the table: a decision, or another event."""
    at, component = entry.at or "", entry.component
    match entry:
        case Record() | SignalsRecord() | Passes():
            return _decision_row(entry)
        case Fetch():
            outcome, detail = entry.failure or _text(entry.status), entry.detail or ""
            return AuditRow("fetch", at, component, reason=outcome, url=entry.url, rule=detail)
        case Start():
            started = f"robots_guard {entry.version}, writer {entry.writer}"
            return AuditRow("start", at, component, rule=started)
        case _:
            return AuditRow(kind_of(entry), at, component, rule=_own_fields(entry))


def _decision_row(entry: Record | SignalsRecord | Passes) -> AuditRow:
    """Return a decision, or a count of decisions, as a row."""
    row = AuditRow(entry.action, entry.at or "", entry.component, entry.agent, entry.reason)
    if isinstance(entry, Passes):
        period = f"{entry.count} from {entry.since} to {entry.until}"
        return row._replace(url=entry.origin, rule=period)
    row = row._replace(would=entry.would or "", id=entry.id)
    if isinstance(entry, SignalsRecord):
        return row._replace(url=entry.url, rule=entry.detail or _denials(entry))
    return row._replace(line=_text(entry.line), url=entry.url, rule=_rule_or_detail(entry))


def _rule_or_detail(entry: Record) -> str:
    """Return the rule or detail of a decision, and its override with owner and reason."""
    parts = [entry.rule or entry.detail]
    if entry.override:
        about = ": ".join(filter(None, (entry.override_owner, entry.override_reason)))
        parts.append(
            f"override {entry.override} ({about})" if about else f"override {entry.override}"
        )
    return "; ".join(filter(None, parts))


def _denials(entry: SignalsRecord) -> str:
    """Return the uses that a site denies."""
    denied = sorted(use for use, state in entry.uses.items() if state == "deny")
    return f"denies {', '.join(denied)}" if denied else ""


def _own_fields(entry: AnyRecord) -> str:
    fields = msgspec.to_builtins(entry)
    return ", ".join(f"{name}={fields[name]}" for name in fields if name not in _SHARED_FIELDS)


_SHARED_FIELDS = ("kind", "schema", "at", "mono", "seq", "writer", "component", "job")


def print_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print comma-separated values. No cell is a formula to a spreadsheet."""
    sys.stdout.write(csv_line(headings, safe))
    for row in rows:
        sys.stdout.write(csv_line(row, safe))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value)


def print_table(headings: list[str], rows: Iterable[tuple[Any, ...]], *, form: str) -> None:
    """Print the result of a SELECT as a table, as `json` lines or as `csv`."""
    match form:
        case "json":
            for row in rows:
                values = dict(zip(headings, row, strict=True))
                write_encoded(msgspec.json.encode(values, enc_hook=str))
        case "csv":
            print_csv(headings, rows)
        case _:
            table = Rows(*(_column_of(heading) for heading in headings))
            for row in rows:
                table.add([_text(value) for value in row])
            table.end()


def _column_of(heading: str) -> TableColumn:
    """Return the column for a column of a SELECT, about whose values only its name says something."""
    if heading == "action":
        return TableColumn(heading, kind="action")
    return TableColumn(heading, folds=True)
