"""`robots-guard audit`: follow and search the journal that all doors write."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from robots_guard.audit.query import Filter, Follower, Trouble, files, records
from robots_guard.audit.record import Record, moment
from robots_guard.cli import Group
from robots_guard.cli.options import insist_on_known_variables, journal_option
from robots_guard.cli.terminal import Rows, write_line
from robots_guard.core.verdict import Action, Reason
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import split_url
from robots_guard.settings import CLOCKS, default_journal

DOORS = ("scrapy", "mitmproxy", "cli")
POLL = 0.25  # seconds between two looks at the files
F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d{1,9})\s*(s|min|m|h|d|w)")


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A moment as records have it, from ISO 8601 (UTC unless it says otherwise) or a span before now such as 2h."""
    if value is None:
        return None
    span = _SPAN.fullmatch(value.strip())
    try:
        if span:
            return moment(CLOCKS.now() - int(span[1]) * _UNITS[span[2]])
        then = datetime.fromisoformat(value.strip())
        return moment((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp())
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


@click.group(cls=Group, no_args_is_help=False)
def audit() -> None:
    """Follow and search the journal."""


@audit.command()
@journal_option
@filters
@click.option("--id", metavar="ID", help="The record that a refusal names.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record, as it is in the journal.")
def query(journal: str | None, limit: int | None, as_json: bool, **values: Any) -> int:
    """Search the journal, oldest first."""
    trouble, directory = Trouble(), _directory(journal)
    if not files(directory):
        click.echo(f"robots-guard: nothing has been recorded yet in {directory}", err=True)
    found = records(directory, Filter(**values), trouble)
    _print(islice(found, limit), as_json=as_json, streams=False)
    return _told(trouble)


@audit.command()
@journal_option
@filters
@click.option("-n", "--lines", type=click.IntRange(0), default=10, show_default=True, help="How many to begin with.")
@click.option("-f", "--follow/--no-follow", default=True, show_default=True, help="Wait for more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record, as it is in the journal.")
def tail(journal: str | None, lines: int, follow: bool, as_json: bool, **values: Any) -> int:
    """Show the latest records, and further ones as they are written."""
    trouble, wanted, directory = Trouble(), Filter(**values), _directory(journal)
    if follow:
        _await(directory)
    follower = Follower(directory, trouble)
    latest = deque(follower.new(wanted, last=not follow), maxlen=lines)
    _print(latest, as_json=as_json, streams=True, flush=True)
    while follow:
        _print(follower.new(wanted), as_json=as_json, streams=True, flush=True)
        time.sleep(POLL)
    return _told(trouble)


def _directory(journal: str | None) -> Path:
    insist_on_known_variables()
    return Path(journal or default_journal()).expanduser()


def _await(directory: Path) -> None:
    """Until there is a journal: the first door that records makes it."""
    if directory.exists() and files(directory):
        return
    click.echo(f"robots-guard: nothing has been recorded yet in {directory}; waiting for the first record", err=True)
    while not directory.exists():
        time.sleep(POLL)


def _told(trouble: Trouble) -> int:
    if trouble:
        click.echo(f"robots-guard: {trouble}", err=True)
    return 0


def _print(found: Iterator[Record] | deque[Record], *, as_json: bool, streams: bool, flush: bool = False) -> None:
    rows = Rows("verdict", "at", "door", "agent", "reason", "url", "rule", "line", streams=streams)
    for record in found:
        if as_json:
            write_line(record.line_of_json().decode().rstrip("\n"))
        else:
            rows.add(_row(record))
    rows.end()
    if flush:
        sys.stdout.flush()


def _row(record: Record) -> tuple[str, ...]:
    line = "" if record.line is None else str(record.line)
    return (
        record.action,
        record.at or "",
        record.door,
        record.agent,
        record.reason,
        record.url,
        record.rule or record.detail or "",
        line,
    )
