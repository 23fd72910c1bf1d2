"""`robots-guard audit keys`: the keys that sign the checkpoints of the audit log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from robots_guard.app.cli.audit_log_options import existing_directory, report_unreadable
from robots_guard.app.cli.options import audit_log_option
from robots_guard.app.cli.terminal import Rows, progress, safe, write_line
from robots_guard.audit.key_files import create_key, read_public_keys
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import verify as verify_files
from robots_guard.audit.signing import fingerprint


@click.command()
@audit_log_option
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--create", is_flag=True, help="Create FILE with a new private key, and print its public key."
)
def keys(audit_log: str | None, file: Path | None, *, create: bool) -> int:
    """Show the keys that sign the audit log, or create one.

    Without FILE, list the keys whose valid signatures are in the audit log, and how many there are.

    With FILE, which has a private key, public keys (PEM) or lines as printed here, print its public keys, each with
    its fingerprint: lines for audit verify --keys. A file that --create makes is readable for its owner only, and an
    existing file is never overwritten.
    """
    if file is None:
        if create:
            raise click.UsageError("--create needs the name of the new FILE")
        return _list(existing_directory(audit_log))
    path = file.expanduser()
    if create:
        write_line(_line(create_key(path).key))
        click.echo(
            f"robots-guard: set audit_signing_key to {safe(str(file))}, and keep the line above where the"
            " log's writers cannot change it, for audit verify --keys",
            err=True,
        )
        return 0
    for key in read_public_keys(path):
        write_line(_line(key))
    return 0


def _list(directory: Path) -> int:
    """List the keys of the valid signatures in an audit log. Return the exit status."""
    trouble, writers, signatures = Unreadable(), Counter[str](), Counter[str]()
    with progress("verifying"):
        for found in verify_files(directory, trouble):
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
