"""`robots-guard audit keys`: the keys that sign the checkpoints of the audit log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from robots_guard.app.cli.audit_log_options import existing_directory, report_unreadable
from robots_guard.app.cli.group import CommandGroup
from robots_guard.app.cli.options import audit_log_option
from robots_guard.app.cli.terminal import Rows, progress, safe, write_line
from robots_guard.audit.key_files import create_key, read_public_keys
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import verify as verify_files
from robots_guard.audit.signing import fingerprint


@click.group(cls=CommandGroup, no_args_is_help=False)
def keys() -> None:
    """Make and show the keys that sign the audit log."""


@keys.command()
@click.argument("file", type=click.Path(path_type=Path))
def create(file: Path) -> None:
    """Create FILE with a new private key, and print its public key.

    The file is readable for its owner only. An existing file is never overwritten.
    """
    signer = create_key(file.expanduser())
    write_line(_line(signer.key))
    click.echo(
        f"robots-guard: set audit_signing_key to {safe(str(file))}, and keep the line above where the"
        " log's writers cannot change it, for audit verify --keys",
        err=True,
    )


@keys.command()
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> None:
    """Print the public keys in FILE, each with its fingerprint: lines for audit verify --keys.

    FILE has a private key, public keys (PEM), or such lines.
    """
    for key in read_public_keys(file.expanduser()):
        write_line(_line(key))


@keys.command(name="list")
@audit_log_option
def list_(audit_log: str | None) -> int:
    """List the keys whose valid signatures are in the audit log, and how many there are."""
    trouble, writers, signatures = Unreadable(), Counter[str](), Counter[str]()
    with progress("verifying"):
        for found in verify_files(existing_directory(audit_log), trouble):
            signatures.update(found.signatures)
            writers.update(found.signatures.keys())
    rows = Rows("key", "fingerprint", "writers", "signatures")
    for key, count in sorted(signatures.items()):
        rows.add((key, fingerprint(key), str(writers[key]), str(count)))
    rows.end()
    if not signatures:
        click.echo("robots-guard: the audit log has no valid signature", err=True)
    return report_unreadable(trouble)


def _line(key: str) -> str:
    return f"{key} {fingerprint(key)}"
