"""`robots-guard audit bundle` and `replay`: evidence that can be checked without the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from robots_guard.app.cli.audit.records import filter_of, filters, given_options
from robots_guard.app.cli.audit_log_options import (
    existing_directory,
    read_parsed,
    report_unreadable,
)
from robots_guard.app.cli.options import (
    audit_log_option,
    chosen,
    documents_in,
    invocation_from,
    signing_key_option,
    store_of,
    store_option,
)
from robots_guard.app.cli.terminal import print_lines, progress, write_encoded
from robots_guard.audit.anchors import ROOTS, certificates_in
from robots_guard.audit.bundle.archive import LARGEST_ARCHIVE, bundle_name
from robots_guard.audit.bundle.contents import Completeness
from robots_guard.audit.bundle.trust import BundleTrust
from robots_guard.audit.bundle.verification import (
    NOT_YET,
    NOTHING_COVERED,
    UNSIGNED,
    ClaimState,
    Verification,
    verify_bundle,
)
from robots_guard.audit.key_files import KEYS, LARGEST, read_signer
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.replay import Judgement, Replayed
from robots_guard.audit.read.replay import replay as replay_judgement
from robots_guard.audit.read.search import Search, find_decision, pinned_document
from robots_guard.audit.record import Record, SignalsRecord, Start
from robots_guard.audit.signing import Signer, public_keys_in
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.policy import PINNED
from robots_guard.decisions.verdict import RuleRef, Verdict
from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.stores import look_at
from robots_guard.invocation import EVIDENCE
from robots_guard.protocol.lines import excerpt
from robots_guard.text import counted

DIFFERS = 1  # the exit status of `replay` if a verdict differs, or anything contradicts a bundle
MOST_SHOWN = 20  # decisions
_STYLES = {
    ClaimState.PROVEN: "pass",
    ClaimState.NOT_PROVEN: "yellow",
    ClaimState.CONTRADICTED: "red",
}


@click.command()
@audit_log_option
@signing_key_option
@store_option
@filters
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which must not exist; by default robots-guard-bundle-ID.zip.",
)
def bundle(
    audit_log: str | None,
    store: str | None,
    ids: tuple[str, ...],
    output: Path | None,
    audit_signing_key: str | None,
    **values: Any,
) -> int:
    """Write evidence of decisions, by id or by filters, into one zip file that anyone can check.

    With --since it also accounts for all other lines of the period, without disclosing them.
    With --audit-signing-key, a signature states that nothing that was selected is left out.
    Exit status: 0 written, 1 written, but the audit log contradicts itself.
    """
    from robots_guard.audit.bundle.writer import search_for, write_bundle

    given = given_options(values)
    if bool(ids) == bool(given):
        raise click.UsageError("give either ids of decisions or filters, such as --since 1d")
    directory = existing_directory(audit_log)
    wanted = filter_of(values, directory)
    signer = None if ids else _signer(audit_signing_key)
    path = output or Path(bundle_name("".join(ids[:1])))
    with (
        _new_file(path) as target,
        documents_in(store) as documents,
        progress("searching") as on_progress,
        search_for(directory, wanted, ids, on_progress) as search,
    ):
        summary = write_bundle(
            target,
            search,
            wanted,
            documents=documents or no_document,
            now=CLOCKS.now(),
            ids=ids,
            signer=signer,
        )
    click.echo(
        f"robots-guard: bundle written to {path}: {counted(summary.records, 'record')},"
        f" {counted(summary.documents, 'document')}",
        err=True,
    )
    for sentence in _about_lacking(summary.lacking, store):
        click.echo(f"robots-guard: {sentence}", err=True)
    report_unreadable(summary.trouble)
    result = verify_bundle(path.read_bytes(), now=CLOCKS.now())
    for sentence in _warnings(result):
        click.echo(f"robots-guard: {sentence}", err=True)
    problems = _contradictions(result)
    for problem in problems:
        click.echo(f"robots-guard: the audit log contradicts itself: {problem}", err=True)
    return _status(differs=bool(problems))


def no_document(_sha256: str) -> None:
    """The documents of a store that does not exist: none. They may be in the WARC files."""


def _signer(audit_signing_key: str | None) -> Signer | None:
    """The signer of the bundle: the key of the option, or the configured key if this user may read
    it. Raises SettingsError if the key of the option cannot be used."""
    place = chosen("audit_signing_key", audit_signing_key)
    if not place:
        return None
    try:
        return read_signer(Path(place).expanduser())
    except SettingsError as error:
        if audit_signing_key:
            raise
        click.echo(f"robots-guard: the bundle is not signed: {error}", err=True)
        return None


def _about_lacking(lacking: Mapping[str, str], store: str | None) -> Iterator[str]:
    """What to say about documents that a bundle lacks, given the origin of each."""
    for sha256, origin in list(lacking.items())[:MOST_SHOWN]:
        yield f"the bundle lacks the robots.txt of {origin} with the SHA-256 {sha256}"
    if len(lacking) > MOST_SHOWN:
        yield f"and {counted(len(lacking) - MOST_SHOWN, 'further document')}"
    if lacking:
        origins = sorted(set(lacking.values()))[:MOST_SHOWN]
        refresh = invocation_from(store=store).command(
            "policy", "refresh", *origins, needs=EVIDENCE
        )
        yield (
            "the store does not have what is lacking (name another one with --store). If the files"
            f" have not changed since, run '{refresh}' and make the bundle again;"
            " audit = evidence keeps them in the audit log from now on"
        )


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file, and remove it if what follows fails. Raises SettingsError."""
    try:
        target = path.open("xb")
    except FileExistsError as error:
        raise SettingsError(
            f"{str(path)!r} exists and is not overwritten: name another file with --output"
        ) from error
    except OSError as error:
        raise SettingsError(
            f"{str(path)!r} cannot be written ({error.strerror}): name another file with --output"
        ) from error
    try:
        with target:
            yield target
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


@click.command()
@audit_log_option
@store_option
@click.option(
    "--keys",
    metavar="FILE",
    help="Of a bundle: the public keys that are trusted. Each record must be signed with one.",
)
@click.option(
    "--tsa-roots",
    metavar="FILE",
    help="Of a bundle: the root certificates of the time-stamping authorities that are trusted.",
)
@click.option("--json", "as_json", is_flag=True, help="Of a bundle: print the result as JSON.")
@click.argument("id_or_file", metavar="ID|FILE")
def replay(
    audit_log: str | None,
    store: str | None,
    id_or_file: str,
    *,
    keys: str | None,
    tsa_roots: str | None,
    as_json: bool,
) -> int:
    """Judge a recorded decision again, given its id, or check a bundle, given its file.

    For a bundle it says what is proven, what is not, and what contradicts itself.
    Exit status: 0 nothing differs, 1 the verdict differs or the bundle contradicts itself, 2 not a bundle.
    """
    path = Path(id_or_file)
    if not path.exists() and _is_path(id_or_file):
        raise SettingsError(
            f"there is no file {str(path)!r}: name a bundle, or the id of a decision"
        )
    if path.is_file():
        trust = BundleTrust(
            read_parsed(keys, "--keys", public_keys_in, KEYS, LARGEST),
            read_parsed(tsa_roots, "--tsa-roots", certificates_in, ROOTS),
        )
        result = verify_bundle(_content(path), trust, CLOCKS.now())
        show = _show
        if as_json:
            show = _show_json
        show(result)
        return _status(differs=result.is_contradicted)
    judgement = _find_judgement(audit_log, store, id_or_file)
    replayed = replay_judgement(judgement, CLOCKS.now())
    _print_replay(judgement, replayed)
    return _status(differs=bool(replayed.differences))


def _status(*, differs: bool) -> int:
    if differs:
        return DIFFERS
    return 0


def _is_path(text: str) -> bool:
    """Whether a text can only name a file: ids have letters, digits and hyphens only."""
    return not text.replace("-", "").isalnum()


# -- bundles ---------------------------------------------------------------------------------------


def _content(path: Path) -> bytes:
    """The content of a bundle's file, or its beginning if it is too large for one. Raises
    SettingsError."""
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_ARCHIVE + 1)
    except OSError as error:
        raise SettingsError(
            f"{str(path)!r} cannot be read ({error.strerror}): name another file"
        ) from error


def _contradictions(result: Verification) -> list[str]:
    return [each.sentence for each in result.claims if each.state is ClaimState.CONTRADICTED]


def _warnings(result: Verification) -> Iterator[str]:
    """The warnings about a bundle that has been made: what it does not cover, and what a later
    bundle, or one by the holder of the key, could prove."""
    is_signed = any(run.signed_until for run in result.completeness.runs)
    for claim in result.claims:
        sentence = claim.sentence
        if sentence == UNSIGNED and is_signed:
            yield f"not proven: {sentence}"
        elif NOT_YET in sentence:
            yield sentence
        elif sentence.startswith(NOTHING_COVERED):
            yield f"not proven: {sentence}"


def _show_json(result: Verification) -> None:
    value = {
        "verified": not result.is_contradicted,
        "claims": [each._asdict() for each in result.claims],
        "completeness": result.completeness,
    }
    write_encoded(msgspec.json.encode(value))


def _show(result: Verification) -> None:
    lines: list[tuple[str, str]] = []
    for judgement, replayed in result.replayed[:MOST_SHOWN]:
        lines += _recorded_lines(judgement, replayed)
    if len(result.replayed) > MOST_SHOWN:
        lines.append((f"and {counted(len(result.replayed) - MOST_SHOWN, 'further decision')}", ""))
    lines += _accounted_for(result.completeness)
    for state in ClaimState:
        mine = [each.sentence for each in result.claims if each.state is state]
        if mine:
            lines.append((f"{state}:", _STYLES[state]))
            lines += [(f"  {sentence}", "") for sentence in mine]
    print_lines([*lines, (_conclusion(result), "")])


def _accounted_for(found: Completeness) -> Iterator[tuple[str, str]]:
    """The period, and the lines of each writer that are accounted for."""
    yield f"period    {found.period}", ""
    for run in found.runs:
        signed = f"signed until {run.signed_until}" if run.signed_until else "not signed"
        yield (
            f"writer    {run.writer}: lines {run.first} ({run.since}) to {run.last} ({run.until}),"
            f" {run.disclosed} here, {run.lines - run.disclosed} hidden, {run.missing} missing, {signed}",
            "",
        )
    for writer, count in found.without_chain.items():
        yield f"writer    {writer}: {counted(count, 'line')} here, in no chain", ""


def _conclusion(result: Verification) -> str:
    problems = len(_contradictions(result))
    if problems:
        return f"not verified: {counted(problems, 'claim')} contradicted, as stated above"
    if not result.completeness.runs:
        return "the record is consistent, but nothing ties it to a time or a writer"
    return "verified: nothing contradicts the bundle; what it does not prove is listed above"


# -- the audit log ---------------------------------------------------------------------------------


def _find_judgement(audit_log: str | None, store: str | None, identity: str) -> Judgement:
    """Return a record with its document and settings. Raises SettingsError if there is no such record."""
    directory = existing_directory(audit_log)
    record = find_recorded(directory, identity)
    if record is None:
        raise SettingsError(
            f"there is no decision {identity!r} in {str(directory)!r}:"
            " check the id, or name the audit log's directory with --audit-log"
        )
    document, settings = None, {}
    if isinstance(record, Record):
        document = document_of(record, directory, store)
    start = _start_of(directory, record)
    if start is not None:
        settings = start.settings
    return Judgement(record=record, settings=settings, document=document)


def find_recorded(directory: Path, identity: str) -> Record | SignalsRecord | None:
    """Return the decision with this id: on a request, or on a response, whether it passed or not."""
    with progress("searching") as on_progress:
        return find_decision(directory, identity, on_progress)


def _start_of(directory: Path, record: Record | SignalsRecord) -> Start | None:
    """Return the start record of a record's writer."""
    wanted = Filter(kind="start", writer=record.writer)
    with progress("searching") as on_progress, Search(directory, wanted, on_progress) as search:
        found = next(search.records(limit=1), None)
    if isinstance(found, Start):
        return found
    return None


def document_of(record: Record, directory: Path, store: str | None) -> bytes | None:
    """Return the robots.txt that decided: the store has it, and the audit log one that an override
    pinned. Raises SettingsError."""
    sha256 = record.sha256
    if sha256 is None or sha256 == EMPTY:
        return None
    if record.via == PINNED:
        with progress("searching") as on_progress, Search(directory, None, on_progress) as search:
            return pinned_document(search, sha256)
    policies = look_at(store_of(store))
    if policies is None:
        return None
    try:
        return policies.document(sha256)
    except StoreError as error:
        raise SettingsError(f"the store {error}") from error
    finally:
        policies.close()


def _print_replay(judgement: Judgement, result: Replayed) -> None:
    conclusion = "the same verdict"
    if result.differences:
        conclusion = "the verdict differs"
    print_lines(
        [
            *_recorded_lines(judgement, result),
            *((f"differs: {difference}", "red") for difference in result.differences),
            *((f"note: {caveat}", "yellow") for caveat in result.caveats),
            (conclusion, ""),
        ]
    )


def _recorded_lines(judgement: Judgement, result: Replayed) -> list[tuple[str, str]]:
    """What was recorded and what was judged now, with the deciding line."""
    record, verdict = judgement.record, result.verdict
    return [
        (
            f"recorded  {_outcome(record)}  {record.at}  {record.url}",
            record.action,
        ),
        (f"replayed  {_outcome(verdict)}", verdict.action),
        *((f"  {line}", "") for line in _context(judgement.document, verdict.rule)),
    ]


def _outcome(it: Record | SignalsRecord | Verdict) -> str:
    """Return the action and reason, and what would have been done without an exemption, or if
    report_only were not set."""
    would = ""
    if it.would:
        would = f", otherwise {it.would.upper()}"
    return f"{it.action.upper()} ({it.reason}{would})"


def _context(document: bytes | None, rule: RuleRef | None) -> list[str]:
    """Return the deciding line and the lines around it."""
    if not document or rule is None:
        return []
    marks = {rule.line: ">"}
    return [
        f"{marks.get(number, ' ')} {number:4}  {text}"
        for number, text in excerpt(document, rule.line)
    ]
