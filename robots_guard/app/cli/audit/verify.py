"""`robots-guard audit verify` and `keys`: whether the audit log is whole, and by what that is proven."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import msgspec

from robots_guard.app.cli.audit_log_options import (
    existing_directory,
    read_parsed,
    report_unreadable,
)
from robots_guard.app.cli.options import audit_log_option, documents_in, store_option
from robots_guard.app.cli.terminal import (
    Rows,
    TableColumn,
    print_lines,
    progress,
    safe,
    write_encoded,
    write_line,
)
from robots_guard.audit.anchors import ROOTS, certificates_in, heads_of
from robots_guard.audit.key_files import create_key, read_public_keys
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import AnchorFinding, LogFinding, WarcFinding, verify_log
from robots_guard.audit.read.verify import verify as verify_files
from robots_guard.audit.read.writer_check import Trust
from robots_guard.audit.signing import fingerprint
from robots_guard.errors import SettingsError
from robots_guard.text import counted

COLUMNS = (
    "writer",
    "records",
    "chain",
    TableColumn("detail", folds=True),
)
_UNCHECKED = "not checked (pip install 'robots_guard[audit]')"
_GONE = "is in neither the store nor the evidence: decisions by it cannot be judged again"
MOST_SHOWN = 20  # documents
DAMAGED = 1  # the exit status if the audit log is not as it was written


class LogSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The findings on a whole audit log, in numbers."""

    is_whole: bool
    files: int
    writers: int
    records: int
    since: str
    until: str
    gaps: int
    signatures: dict[str, int]  # the valid ones, by key
    invalid_signatures: int
    unchecked_signatures: int
    timestamps: int
    verified_timestamps: int
    invalid_anchors: int
    warc: WarcFinding
    lacking: dict[str, str]  # the origins of documents, by their SHA-256
    problems: list[str]


@click.command()
@audit_log_option
@store_option
@click.option(
    "--keys",
    "key_files",
    multiple=True,
    metavar="FILE",
    help="Trust only signatures by the keys in this file, and require one of each writer. May be repeated.",
)
@click.option(
    "--expect",
    metavar="FILE",
    help="Compare the log with heads that --heads printed, or with an anchor's file; - for standard input.",
)
@click.option(
    "--tsa-roots",
    metavar="FILE",
    help="Verify timestamps with the root certificates (PEM) in this file.",
)
@click.option(
    "--heads",
    is_flag=True,
    help="Print only the heads of all whole chains, to be kept elsewhere for --expect.",
)
@click.option(
    "--tsa",
    metavar="URL",
    help="Have this time-stamping authority (RFC 3161) confirm the heads, and keep its response in the audit log.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per writer and per anchor, and the summary.",
)
def verify(
    audit_log: str | None,
    store: str | None,
    key_files: tuple[str, ...],
    expect: str | None,
    tsa_roots: str | None,
    tsa: str | None,
    *,
    heads: bool,
    as_json: bool,
) -> int:
    """Check the audit log for gaps, edits, missing parts and invalid signatures.

    A robots.txt that decisions name and that neither the evidence nor the store has is named, too.
    It counts as missing if --store is given.

    Exit status: 0 nothing is missing or changed, 1 something is, 2 there is nothing to verify.
    """
    directory, trouble = existing_directory(audit_log), Unreadable()
    if heads or tsa:
        if key_files or expect or tsa_roots or store or as_json:
            raise click.UsageError(
                "--heads and --tsa only make heads: verify with the other options in a run of its own"
            )
        from robots_guard.app.cli.audit.anchor import print_heads  # it imports an HTTP client

        return DAMAGED if print_heads(directory, tsa) else 0
    trust = Trust(
        keys=frozenset(
            key for file in key_files for key in read_public_keys(Path(file).expanduser())
        ),
        heads=tuple(read_parsed(expect, "--expect", heads_of)),
        roots=tuple(read_parsed(tsa_roots, "--tsa-roots", certificates_in, ROOTS)),
    )
    with progress("verifying"), documents_in(store) as documents:
        if store and documents is None:
            raise SettingsError(
                f"--store: {store!r} cannot be read: name the store of the integrations"
            )
        finding = verify_log(directory, trouble, trust, documents)
    report_unreadable(trouble)
    if not finding.writers:
        raise SettingsError(
            f"there is nothing to verify in {str(directory)!r}:"
            " name the directory that the integrations write to with --audit-log"
        )
    is_whole = finding.is_whole and not (trouble.has_lines or trouble.files)
    is_whole = is_whole and not (store and finding.lacking)
    summary = _summary(finding, is_whole=is_whole)
    if as_json:
        _print_json(finding, summary)
    else:
        _print_rows(finding)
        print_lines([(_sentence(summary), "")])
    if is_whole:
        return 0
    return DAMAGED


def _summary(finding: LogFinding, *, is_whole: bool) -> LogSummary:
    writers, signatures = finding.writers, Counter[str]()
    for found in writers:
        signatures.update(found.signatures)
    return LogSummary(
        is_whole=is_whole,
        files=finding.files,
        writers=sum(found.records > 0 for found in writers),
        records=sum(found.records for found in writers),
        since=min((found.since for found in writers if found.since), default=""),
        until=max((found.until for found in writers), default=""),
        gaps=sum(found.gaps for found in writers),
        signatures=dict(signatures),
        invalid_signatures=sum(found.invalid_signatures for found in writers),
        unchecked_signatures=sum(found.unchecked_signatures for found in writers),
        timestamps=sum(bool(each.stamped_at) for each in finding.anchors),
        verified_timestamps=sum(each.is_verified for each in finding.anchors),
        invalid_anchors=sum(bool(each.problem) for each in finding.anchors),
        warc=finding.warc,
        lacking=finding.lacking,
        problems=finding.problems,
    )


# -- output --------------------------------------------------------------------------------------------------


def _print_json(finding: LogFinding, summary: LogSummary) -> None:
    for found in finding.writers:
        write_encoded(msgspec.json.encode(found))
    for anchor in finding.anchors:
        write_encoded(msgspec.json.encode({"anchor": anchor}))
    write_encoded(msgspec.json.encode({"summary": summary}))


def _print_rows(finding: LogFinding) -> None:
    rows = Rows(*COLUMNS)
    for found in finding.writers:
        detail = "; ".join((*found.problems, *found.notes)) or "nothing is missing"
        rows.add((found.writer, str(found.records), found.chain, detail))
    for anchor in finding.anchors:
        rows.add((f"anchor {anchor.at}", "", "", _detail(anchor)))
    for problem in finding.problems:
        rows.add(("audit log", "", "", problem))
    for sha256, origin in list(finding.lacking.items())[:MOST_SHOWN]:
        rows.add(
            ("document", "", "", f"the robots.txt of {origin} with the SHA-256 {sha256} {_GONE}")
        )
    rows.end()


def _detail(anchor: AnchorFinding) -> str:
    if anchor.problem or anchor.note:
        return anchor.problem or anchor.note
    if not anchor.stamped_at:
        return "no timestamp"
    checked = "its issuer was not checked (--tsa-roots)"
    if anchor.is_verified:
        checked = "verified"
    return f"timestamp of {anchor.stamped_at} by {anchor.tsa}: {checked}"


def _sentence(summary: LogSummary) -> str:
    """The summary on one line."""
    parts = [
        counted(summary.files, "file"),
        counted(summary.writers, "writer"),
        f"{counted(summary.records, 'record')} from {summary.since or '-'} to {summary.until or '-'}",
        counted(summary.gaps, "gap"),
        f"signatures: {_signatures(summary)}",
        f"timestamps: {_timestamps(summary)}",
        f"WARC records: {_warc(summary.warc)}",
    ]
    if summary.lacking:
        parts.append(f"documents: {len(summary.lacking):,} MISSING")
    word = "NOT WHOLE"
    if summary.is_whole:
        word = "whole"
    return f"{word}: {'; '.join(parts)}"


def _signatures(summary: LogSummary) -> str:
    return _parts(
        *((count, f"by {fingerprint(key)}") for key, count in summary.signatures.items()),
        (summary.invalid_signatures, "INVALID"),
        (summary.unchecked_signatures, _UNCHECKED),
    )


def _timestamps(summary: LogSummary) -> str:
    return _parts(
        (summary.verified_timestamps, "verified"),
        (summary.timestamps - summary.verified_timestamps, "present, issuer not checked"),
        (summary.invalid_anchors, "INVALID"),
    )


def _warc(found: WarcFinding) -> str:
    return _parts(
        (found.present, "present"),
        (found.missing, "MISSING"),
        (found.changed, "CHANGED"),
        (found.removed, "removed by housekeeping"),
        (found.unchecked, _UNCHECKED),
    )


def _parts(*counts: tuple[int, str]) -> str:
    """The numbers that are not 0, each with what it counts."""
    return ", ".join(f"{count:,} {what}" for count, what in counts if count) or "none"


# -- the keys that sign it -------------------------------------------------------------------------


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
