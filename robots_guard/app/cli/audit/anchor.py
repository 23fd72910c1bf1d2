"""The heads of all chains, printed or timestamped by an authority, for `robots-guard audit verify`."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

import aiohttp
import click
import msgspec

from robots_guard.app.cli.audit_log_options import report_unreadable
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

TIMEOUT = 30.0  # seconds for the response of an authority
LARGEST = 1024 * 1024  # bytes of a response
_HEADERS = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}


def print_heads(directory: Path, tsa: str | None) -> bool:
    """Print the heads of all whole chains, or the name of the file with their timestamp. Return whether
    a chain is broken: its head is left out."""
    trouble = Unreadable()
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
    return bool(broken)


def _is_usable(found: WriterFinding) -> bool:
    """Whether a writer's chain is whole, and its name is one that a writer can have."""
    head = ChainHead(found.writer, found.last, found.head)
    return found.chain == "whole" and is_well_formed(head)


def _keep(directory: Path, tsa: str, heads: list[ChainHead]) -> None:
    """Get a timestamp of the heads, and keep it in the directory. Raises SettingsError."""
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


# -- the authority --------------------------------------------------------------------------------


def response_of(url: str, query: bytes) -> bytes:
    """Return the response of an authority to a query (RFC 3161 section 3.4). Raises SettingsError."""
    return asyncio.run(_ask(url, query))


async def _ask(url: str, query: bytes) -> bytes:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            # RFC 3161 has no redirects, and a client would turn the query into a GET
            session.post(url, data=query, headers=_HEADERS, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise SettingsError(
                    f"--tsa {url!r} answers {response.status}: name the URL of a time-stamping authority"
                )
            return await _whole_of(response)
    except TimeoutError as error:
        raise SettingsError(
            f"--tsa {url!r} does not answer within {TIMEOUT:.0f} s: try again later"
        ) from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        why = str(error) or type(error).__name__
        raise SettingsError(
            f"--tsa {url!r} cannot be used ({why}): name the URL of a time-stamping authority"
        ) from error


async def _whole_of(response: aiohttp.ClientResponse) -> bytes:
    """The body of a response, which may come in parts. Raises ValueError if it is too long."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > LARGEST:
            raise ValueError(f"its response is larger than {LARGEST // 1024} KiB")
    return bytes(body)
