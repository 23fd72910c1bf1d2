"""`robots-guard audit hold`: periods whose files housekeeping must not remove."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from robots_guard.app.cli.audit_log_options import existing_directory
from robots_guard.app.cli.options import chain_options, settings_from
from robots_guard.app.cli.terminal import Rows, TableColumn, safe, write_encoded, write_line
from robots_guard.audit.holds import Hold, read_holds
from robots_guard.audit.read.reader import moment_meant
from robots_guard.audit.record import moment
from robots_guard.audit.segments import is_kept, names_in
from robots_guard.audit.write.log import FileAuditLog, LogOptions
from robots_guard.audit.write.maintenance import add_hold, release_hold
from robots_guard.audit.write.writer import WriterOptions
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.component import Component
from robots_guard.errors import AuditLogError, MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import split_url
from robots_guard.text import encodable

COLUMNS = (
    "hold",
    TableColumn("added", kind="time"),
    TableColumn("owner", folds=True),
    TableColumn("origins", folds=True),
    TableColumn("since", kind="time"),
    TableColumn("until", kind="time"),
    "files",
    "size",
    TableColumn("reason", folds=True),
)
UNRECORDED = 1  # the exit status if a hold is in force, but was not recorded
MIB = 1024 * 1024  # bytes


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else moment_meant(value, CLOCKS.now())
    except SettingsError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _origins(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    try:
        return [str(split_url(value)[0]) for value in values]
    except (NotGoverned, MalformedURL) as error:
        raise click.BadParameter(
            f"{error}: give an origin such as https://example.com", ctx, param
        ) from None


def _text(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if not value.strip():
        raise click.BadParameter(
            "it is empty: write a text, which the audit log will record", ctx, param
        )
    return encodable(value.strip())


@click.command()
@chain_options
@click.option("--owner", callback=_text, metavar="NAME", help="The person responsible.")
@click.option("--reason", callback=_text, metavar="TEXT", help="Why, such as a case number.")
@click.option(
    "--origin",
    "origins",
    multiple=True,
    callback=_origins,
    metavar="ORIGIN",
    help="The origin that it is about, or a URL of it. May be repeated.",
)
@click.option("--since", callback=_moment, metavar="TIME", help="Keep files from this time on.")
@click.option("--until", callback=_moment, metavar="TIME", help="Keep files before this time.")
@click.option(
    "--release",
    "released",
    metavar="ID",
    help="End this hold: what is old enough is removed by the next housekeeping.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per hold.")
def hold(
    audit_log: str | None,
    audit_signing_key: str | None,
    owner: str | None,
    reason: str | None,
    origins: list[str],
    since: str | None,
    until: str | None,
    released: str | None,
    *,
    as_json: bool,
) -> int:
    """Keep files of the audit log from being removed (legal hold), or list what is kept.

    With --owner and --reason, all files of a period, or all files, are kept until the hold is released. Its id is
    printed. Without options, the holds in force are listed.

    Exit status: 0 done, 1 the hold is in force, but could not be recorded.
    """
    directory = existing_directory(audit_log)
    if not (owner or reason or origins or since or until or released):
        _list(directory, as_json=as_json)
        return 0
    if not (owner and reason):
        raise click.UsageError("a hold begins and ends with a record: give --owner and --reason")
    if released and (origins or since or until):
        raise click.UsageError("--release ends a whole hold: leave out origins and times")
    if since and until and since >= until:
        raise click.UsageError(
            f"--since {since} is not before --until {until}: give an earlier --since"
        )
    names_in(directory)  # raises SettingsError with a remedy if there is no such directory
    with _writing(directory, audit_signing_key) as log:
        if released:
            found = release_hold(directory, released, owner, reason, CLOCKS.now(), log.note)
            click.echo(
                f"robots-guard: released: {safe(found.reason)} ({safe(found.owner)})", err=True
            )
            return 0
        return _add(
            directory,
            Hold(
                id=secrets.token_hex(4),
                at=moment(CLOCKS.now()) or "",
                owner=owner,
                reason=reason,
                origins=origins,
                since=since,
                until=until,
            ),
            log,
        )


def _add(directory: Path, new: Hold, log: FileAuditLog) -> int:
    """Put a hold in force, record it and print its id. Return the exit status."""
    try:
        add_hold(directory, new, CLOCKS.now(), log.note)
    except AuditLogError as error:
        write_line(new.id)
        click.echo(f"robots-guard: the hold is in force, but was not recorded: {error}", err=True)
        return UNRECORDED
    write_line(new.id)
    names, size = _kept_by(new, directory)
    click.echo(f"robots-guard: {names} files ({size}) are kept", err=True)
    return 0


def _list(directory: Path, *, as_json: bool) -> None:
    """List the holds in force, and what they keep."""
    rows = Rows(*COLUMNS)
    for each in read_holds(directory):
        if as_json:
            write_encoded(msgspec.json.encode(each))
            continue
        count, size = _kept_by(each, directory)
        period = (each.since or "", each.until or "")
        origins = " ".join(each.origins)
        rows.add((each.id, each.at, each.owner, origins, *period, str(count), size, each.reason))
    rows.end()


@contextmanager
def _writing(directory: Path, key: str | None) -> Iterator[FileAuditLog]:
    """The audit log, open for the record of a change."""
    given = {"audit_signing_key": key}
    writing = settings_from(given, agent="robots_guard").writing(Component.CLI)
    options = WriterOptions(
        component=str(Component.CLI), fsync=True, chain=writing.chain, signer=writing.signer
    )
    log = FileAuditLog(directory, CLOCKS, LogOptions(retention=None), options)
    try:
        yield log
    finally:
        log.close()


def _kept_by(hold: Hold, directory: Path) -> tuple[int, str]:
    """The number of files that a hold covers now, and their size."""
    names = [name for name in names_in(directory) if is_kept(name) and hold.covers(name)]
    sizes = [path.lstat().st_size for name in names if (path := directory / name).exists()]
    return len(names), f"{sum(sizes) / MIB:.1f} MiB"
