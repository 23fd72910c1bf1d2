"""Options of the commands that read the audit log: its directory, and a period."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from robots_guard.app.cli.options import chosen
from robots_guard.app.cli.terminal import safe
from robots_guard.audit.anchors import InvalidAnchor
from robots_guard.audit.read.reader import Period, Unreadable, moment_meant, period_meant
from robots_guard.audit.segments import NoDirectory
from robots_guard.audit.signing import InvalidKey
from robots_guard.configuration.settings import CLOCKS, default_audit_log
from robots_guard.errors import SettingsError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Convert a time to the form of records."""
    try:
        found = value and moment_meant(value, CLOCKS.now())
    except SettingsError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    since = ctx.params.get("since")
    if isinstance(since, Period):
        _check_period(since, found)
    return found


def _period(ctx: click.Context, param: click.Parameter, value: str | None) -> Period | None:
    """Convert a time, or a named period such as "last night", to moments in the form of records."""
    try:
        found = None if value is None else period_meant(value, CLOCKS.now())
    except SettingsError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    _check_period(found, ctx.params.get("until"))
    return found


def _check_period(since: Period | None, until: str | None) -> None:
    """Raise UsageError if a period ends before it begins. The callback of the option that is
    processed last calls this with both."""
    if since and until and until <= since.begins:
        raise click.UsageError(
            f"--until {until} is not after --since {since.begins}: exchange them, or leave one out"
        )


def period_options(command: F) -> F:
    """Add the options for a period. The value of `since` is a Period."""
    until = click.option(
        "--until", callback=_moment, metavar="TIME", help="Only records before this time."
    )
    since = click.option(
        "--since",
        callback=_period,
        metavar="TIME",
        help="Only records from this time on: 2h, 7d, 2026-11-20T08:00 (UTC), or of this period:"
        ' "last night", yesterday, today, "this morning" (local time).',
    )
    return since(until(command))


def directory_of(audit_log: str | None) -> Path:
    """Return the audit log's directory: an option's, the configured or the default one."""
    return Path(chosen("audit_log", audit_log) or default_audit_log()).expanduser()


def existing_directory(audit_log: str | None) -> Path:
    """Return the audit log's directory. Raises NoDirectory, a SettingsError, if it does not exist."""
    directory = directory_of(audit_log)
    if not os.path.lexists(directory):
        raise NoDirectory(
            f"there is no audit log in {str(directory)!r}: name the directory that the integrations"
            " write to with --audit-log"
        )
    return directory


def read_parsed(
    name: str | None,
    option: str,
    parse: Callable[[bytes], list[T]],
    remedy: str = "name another file",
    largest: int = 16 * 2**20,  # bytes; of heads, those of 100,000 writers
) -> list[T]:
    """Return what the file of an option contains, or standard input for `-`; nothing without a
    file. Raises SettingsError, with the remedy if the content is not that."""
    if name is None:
        return []
    try:
        if name == "-":
            content = sys.stdin.buffer.read(largest + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                content = file.read(largest + 1)
        if len(content) > largest:
            raise ValueError(f"larger than {largest // 2**20} MiB")
        return parse(content)
    except (InvalidAnchor, InvalidKey) as error:
        raise SettingsError(f"{option}: {name!r} cannot be used ({error}): {remedy}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{option}: {name!r} cannot be read ({why}): name another file"
        ) from error


def report_unreadable(trouble: Unreadable) -> int:
    """Report on standard error what could not be read. Returns exit status 0."""
    if trouble:
        click.echo(f"robots-guard: {safe(str(trouble))}", err=True)
    return 0
