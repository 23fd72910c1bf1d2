"""`robots-guard audit anchor`: the heads of all chains, printed or timestamped by an authority."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click
import msgspec

from robots_guard.app.cli.audit_log_options import existing_directory, report_unreadable
from robots_guard.app.cli.options import audit_log_option
from robots_guard.app.cli.terminal import progress, safe, write_line
from robots_guard.audit.anchors import (
    Anchor,
    ChainHead,
    InvalidAnchor,
    heads_statement,
    is_well_formed,
    timestamp_request,
    token_of,
    verify_anchor,
)
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import verify as verify_files
from robots_guard.audit.read.writer_check import WriterFinding
from robots_guard.audit.record import moment
from robots_guard.audit.segments import PART, put_if_new
from robots_guard.configuration.settings import CLOCKS
from robots_guard.errors import SettingsError
from robots_guard.text import counted

DAMAGED = 1  # the exit status if a writer's chain is broken


@click.command()
@audit_log_option
@click.option(
    "--tsa",
    metavar="URL",
    help="Have this time-stamping authority (RFC 3161) confirm the heads, and keep its response in the audit log.",
)
def anchor(audit_log: str | None, tsa: str | None) -> int:
    """Print the heads of all chains, to be kept elsewhere for audit verify --expect.

    Exit status: 0 done, 1 a chain is broken, and its head is left out.
    """
    directory, trouble = existing_directory(audit_log), Unreadable()
    with progress("verifying"):
        findings = verify_files(directory, trouble)
    report_unreadable(trouble)
    chained = [found for found in findings if found.chain in ("whole", "broken")]
    heads = [
        ChainHead(found.writer, found.last, found.head) for found in chained if _is_usable(found)
    ]
    broken = [found.writer for found in chained if not _is_usable(found)]
    for writer in broken:
        click.echo(f"robots-guard: the chain of {safe(writer)} is broken: left out", err=True)
    if not heads:
        raise SettingsError(
            f"no writer in {str(directory)!r} has a whole chain:"
            " set audit to evidence, or audit_signing_key"
        )
    if tsa is None:
        write_line(heads_statement(heads).decode().rstrip("\n"))
    else:
        _keep(directory, tsa, heads)
    return DAMAGED if broken else 0


def _is_usable(found: WriterFinding) -> bool:
    """Whether a writer's chain is whole, and its name is one that a writer can have."""
    head = ChainHead(found.writer, found.last, found.head)
    return found.chain == "whole" and is_well_formed(head)


def _keep(directory: Path, tsa: str, heads: list[ChainHead]) -> None:
    """Get a timestamp of the heads, and keep it in the directory. Raises SettingsError."""
    from robots_guard.app.cli.audit.authority import response_of  # it imports an HTTP client

    request = timestamp_request(heads)
    with progress("asking the authority"):
        response = response_of(tsa, request.body)
    try:
        token = token_of(response, request)
        anchor = Anchor(at=moment(CLOCKS.now()) or "", heads=sorted(heads), tsa=tsa, token=token)
        confirmed = verify_anchor(anchor).at
    except InvalidAnchor as error:
        raise SettingsError(
            f"--tsa {tsa!r} cannot be used ({error}): name another authority"
        ) from error
    path = directory / anchor.filename
    _write(path, msgspec.json.format(msgspec.json.encode(anchor)) + b"\n")
    write_line(safe(path.name))
    click.echo(
        f"robots-guard: {counted(len(heads), 'head')} at {confirmed}, confirmed by {safe(tsa)}:"
        " keep a copy of the file elsewhere, too",
        err=True,
    )


def _write(path: Path, content: bytes) -> None:
    """Create an anchor's file. Raises OSError, and SettingsError if it exists."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    with part.open("xb") as file:
        os.fchmod(file.fileno(), 0o640)
        file.write(content)
    put_if_new(part, path)
    if path.read_bytes() != content:
        raise SettingsError(f"{path.name} exists already: run the command again")
