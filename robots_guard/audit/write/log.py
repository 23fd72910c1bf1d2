"""The audit log of an integration: it selects which decisions and events are recorded.

DROP and DEFER are always recorded, and so is a PASS that a relaxation or an exemption caused; the
level `audit` says whether all other PASSes are counted or recorded.
audit/write/writer.py writes the records, in a directory that all integrations share.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from robots_guard.audit.files import FILES, Files, make_directory, remove
from robots_guard.audit.privacy import DEFAULT, KEY, KEY_BYTES, Privacy
from robots_guard.audit.record import (
    AnyRecord,
    Entry,
    Fetch,
    record_of_event,
    signals_record_of,
)
from robots_guard.audit.segments import put_if_new
from robots_guard.audit.write.line_encoder import LineEncoder
from robots_guard.audit.write.maintenance import inspect, tidy
from robots_guard.audit.write.retention import Retention
from robots_guard.audit.write.runs import (
    WINDOW,
    Alarm,
    PassFields,
    Run,
    RunCounter,
    pass_fields,
    pass_key,
    passes_record_of,
)
from robots_guard.audit.write.writer import (
    CHECKPOINT_SECONDS,
    PAUSE,
    Encode,
    Head,
    LogWriter,
    WriterOptions,
)
from robots_guard.decisions.events import Event, FetchMade, FilesRemoved
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.errors import AuditLogError, SettingsError, UnconfirmedRecord
from robots_guard.ports import AuditLevel, Clocks
from robots_guard.protocol.signals.statement import Place

if TYPE_CHECKING:
    from robots_guard.audit.write.warc import Evidence

LATEST = 10.0  # seconds between the end of a run and its record in an idle process, at most
# Every request is compared with these. On Python 3.11, naming a member of an enum is a call.
_PASS, _BYPASSED = Action.PASS, Reason.BYPASSED


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit log records, and for how long it is kept.

    `audit` is the level: `refusals` records no ordinary PASS, `summary` counts them, `all` records
    each, and `evidence` also keeps what sites answered. (The hash chain is the writer's.) With
    `writes_idle`, counts and checkpoints are also written if no further record comes. With
    `retention` None, nothing is compressed or removed.
    """

    audit: AuditLevel = "refusals"
    writes_idle: bool = False
    privacy: Privacy = DEFAULT
    retention: Retention | None = Retention()


class FileAuditLog:
    """An audit log in a directory, which is created if it is missing.

    It may be called from any thread; after a fork, the child begins its own file. Raises
    SettingsError if no file can be created there.
    """

    def __init__(
        self,
        directory: Path,
        clocks: Clocks,
        log_options: LogOptions | None = None,
        writing: WriterOptions | None = None,
        files: Files = FILES,
        tokens: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self.directory = directory
        self._clocks = clocks
        self._log_options = log_options or LogOptions()
        self._writing = writing or WriterOptions()
        self._files = files
        self._tokens = tokens
        self._records_passes = self._log_options.audit in ("all", "evidence")
        try:
            make_directory(directory, files)
            self._privacy = _with_key(self._log_options.privacy, directory, files)
            self._lines = LineEncoder(self._privacy)
            self._reset()
            self._open_writer()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise SettingsError(
                f"audit_log: no file can be written in {str(directory)!r} ({why}):"
                " name a directory that can be written to"
            ) from error
        _audit_logs.add(self)

    @property
    def path(self) -> Path:
        """The file that is being written. Raises OSError in a forked child that cannot begin one."""
        return self._open_writer().path

    @property
    def writer(self) -> str:
        """The name of this writer. Raises OSError in a forked child that cannot begin a file."""
        return self._open_writer().identity.writer

    def write(self, decision: Decision) -> None:
        """Record a decision if it is to be recorded. Raises AuditLogError if it could not be
        written."""
        if self._is_recorded(decision):
            if decision.response is not None:
                self._keep_signals(decision)
            self._append(decision.at, partial(self._encode, decision))
            self._write_ended_runs(decision.at)
            return
        passes = self._passes
        if passes is None or decision.response is not None:
            return
        # This is on the path of every request.
        key = pass_key(decision)
        if not passes.count(key, decision.at):
            passes.begin(key, decision.at, pass_fields(decision), count=1)
            self._alarm.set(WINDOW)
        if passes.ended:
            self._write_ended_runs()

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:
        """Record an event. Raises AuditLogError if it could not be written; it then counts as lost,
        unless `is_tried_again` says that the caller will retry."""
        evidence: dict[str, str] = {}
        try:
            if isinstance(event, FetchMade):
                evidence = self._keep_evidence(event)
        except AuditLogError:  # the error is raised, but the fetch is recorded without its evidence
            self._append_entry(event.at, lambda head: record_of_event(event, head, self._privacy))
            raise
        self._append_entry(
            event.at,
            lambda head: _with_evidence(record_of_event(event, head, self._privacy), evidence),
            is_tried_again=is_tried_again,
            # What is done next is only excused by a record that is signed.
            is_confirmed=isinstance(event, FilesRemoved),
        )
        self._write_ended_runs(event.at)

    def close(self) -> None:
        """Write the counts, close the file, and remove it if it has no record."""
        _audit_logs.discard(self)
        self._alarm.cancel()
        self._checkpoint_alarm.cancel()
        if self._passes is not None:
            self._write_all_runs(self._passes)
        if self._writer:
            self._writer.close()
        if self._evidence:
            self._evidence.close()

    # -- what is recorded --------------------------------------------------------------------------

    def _is_recorded(self, decision: Decision) -> bool:
        """Whether a decision has a record of its own."""
        if self._records_passes or is_always_recorded(decision):
            return True
        return decision.response is not None and states_something_itself(decision)

    def _encode(self, decision: Decision, seq: int, mono: float) -> bytes:
        """The line of a decision, which is the record with this number."""
        assert self._writer is not None  # the writer calls this
        identity = self._writer.identity
        if decision.response is not None:
            return signals_record_of(
                decision, identity, seq=seq, mono=mono, privacy=self._privacy
            ).line_of_json()
        return self._lines.line_of(decision, identity, seq=seq, mono=mono)

    # -- what is counted ---------------------------------------------------------------------------

    def _write_ended_runs(self, at: float | None = None) -> None:
        """Write the runs that have ended, by the time `at` if one is given. If one cannot be
        written, it and the remaining ones are retried later, so that they neither delay decisions
        nor cause refusals."""
        runs = self._passes
        if runs is None:
            return
        if at is not None:
            runs.end(at)
        now = self._clocks.monotonic()
        while (run := runs.next_ended(now)) is not None:
            try:
                self._append_run(run, is_tried_again=True)
            except UnconfirmedRecord:
                continue  # written again, it would be counted twice
            except AuditLogError:
                runs.postpone(run, now + PAUSE)
                return

    def _write_all_runs(self, runs: RunCounter[PassFields]) -> None:
        """Write every run before closing. A run that cannot be written is lost."""
        runs.end_all()
        while (run := runs.next_ended(math.inf)) is not None:
            with contextlib.suppress(AuditLogError):
                self._append_run(run)
        if runs.lost and self._writer:
            self._writer.lost += runs.lost

    def _append_run(self, run: Run[PassFields], *, is_tried_again: bool = False) -> None:
        now = self._clocks.now()
        record = partial(passes_record_of, run, now)
        self._append_entry(now, record, is_tried_again=is_tried_again)

    def _write_idle(self) -> None:
        """Write the runs that have ended in a process that records nothing else."""
        self._write_ended_runs(self._clocks.now())
        if self._passes is not None and not self._passes.is_empty:
            self._alarm.set(LATEST)

    def _cover_idle(self) -> None:
        """Write the checkpoint that is due in a process that records nothing else."""
        seconds = self._writer.cover_last_records() if self._writer else None
        if seconds is not None:
            self._checkpoint_alarm.set(seconds)

    def _keep_evidence(self, event: FetchMade) -> dict[str, str]:
        """Write the evidence of a fetch, and return the record fields that refer to it.

        It is written before the record, so that a record never names evidence that does not exist.
        """
        if self._evidence is None:
            return {}
        try:
            return self._evidence.keep(event, self._privacy, self.path.name)
        except OSError as error:
            raise AuditLogError(f"evidence: {error.strerror or error}") from error

    def _keep_signals(self, decision: Decision) -> None:
        """Write the record of a response to the evidence, before it is written to the audit log."""
        if self._evidence is None:
            return
        identity = self._open_writer().identity
        record = signals_record_of(decision, identity, privacy=self._privacy)
        try:
            self._evidence.keep_signals(record, decision.at, self.path.name)
        except OSError as error:
            raise AuditLogError(f"evidence: {error.strerror or error}") from error

    # -- how it is written -------------------------------------------------------------------------

    def _append_entry(
        self,
        at: float,
        build: Callable[[Head], Entry],
        *,
        is_tried_again: bool = False,
        is_confirmed: bool = False,
    ) -> None:
        """Write the record that `build` returns. Raises AuditLogError."""
        encode = partial(self._encode_entry, build)
        self._append(at, encode, is_tried_again=is_tried_again, is_confirmed=is_confirmed)

    def _encode_entry(self, build: Callable[[Head], Entry], seq: int, mono: float) -> bytes:
        assert self._writer is not None  # the writer calls this
        return build(self._writer.head_fields(seq, mono)).line_of_json()

    def _append(
        self,
        at: float,
        encode: Encode,
        *,
        is_tried_again: bool = False,
        is_confirmed: bool = False,
    ) -> None:
        """Write the line that `encode` returns. Raises AuditLogError."""
        try:
            writer = self._writer or self._open_writer()
            writer.append(at, encode, is_tried_again=is_tried_again, is_confirmed=is_confirmed)
        except OSError as error:
            path = self._writer.path if self._writer else self.directory
            raise AuditLogError(f"{path}: {error.strerror or error}") from error
        self._checkpoint_alarm.set(CHECKPOINT_SECONDS)

    def _reset(self) -> None:
        """Create the state that belongs to one process: locks, counts, and no writer yet."""
        self._opening = threading.Lock()
        self._writer: LogWriter | None = None
        level, writes_idle = self._log_options.audit, self._log_options.writes_idle
        self._passes: RunCounter[PassFields] | None = None
        if level == "summary":
            self._passes = RunCounter(WINDOW)
        self._evidence: Evidence | None = None
        if level == "evidence":
            self._evidence = self._open_evidence()
        self._alarm = Alarm(self._write_idle, is_enabled=writes_idle)
        self._checkpoint_alarm = Alarm(
            self._cover_idle, is_enabled=writes_idle and self._writing.chain
        )

    def reset_after_fork(self) -> None:
        """Start afresh in a forked child, before any of its code runs: a lock may have been held by
        a thread of the parent, which the child does not have."""
        if self._writer:
            self._writer.abandon()
        if self._evidence:
            self._evidence.close()
        self._reset()

    def _open_evidence(self) -> Evidence:
        """Open the evidence. Raises MissingExtra."""
        from robots_guard.audit.write.warc import Evidence

        return Evidence(self.directory, self._files, sync=self._writing.fsync)

    def _open_writer(self) -> LogWriter:
        """Return this process's writer, and create it on the first call. Raises OSError."""
        with self._opening:
            if self._writer is None:
                self._writer = LogWriter(
                    self.directory, self._writing, self._clocks, self._files, self._tokens
                )
                self._writer.on_file_begun = self._tidy_in_background
            return self._writer

    def _tidy_in_background(self) -> None:
        """Compress closed files and remove old ones, in a thread of their own."""
        if self._log_options.retention is None:
            return
        now = inspect(self._clocks.now())
        arguments = (self.directory, self._log_options.retention, now, self.announce_removal)
        with contextlib.suppress(RuntimeError):
            # No thread can be started, as at exit: the next file's start retries.
            threading.Thread(
                target=tidy, args=arguments, name="robots_guard-tidy", daemon=True
            ).start()

    def announce_removal(self, filename: str) -> bool:
        """Record that housekeeping is about to remove a file; return whether it may.

        It may even if the record cannot be written, because a full disk needs the space; but not once
        this audit log has been closed.
        """
        with contextlib.suppress(AuditLogError):
            self.note(FilesRemoved(at=self._clocks.now(), files=(filename,)))
        return self in _audit_logs


_audit_logs: weakref.WeakSet[FileAuditLog] = weakref.WeakSet()  # those open in this process


def _reset_all_after_fork() -> None:
    for audit_log in list(_audit_logs):
        audit_log.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)


def states_something_itself(decision: Decision) -> bool:
    """Whether a response, and not only the policy of its origin, states something, or might: part
    of its page was not read."""
    uses = decision.verdict.uses
    if uses is None:
        return False
    places = {each.statement.place for each in uses.evidence}
    return uses.is_incomplete or not places.isdisjoint((Place.HEADER, Place.PAGE))


def is_always_recorded(decision: Decision) -> bool:
    """Whether a decision is recorded at every level: it did not pass, or passed by an operator's
    choice."""
    verdict = decision.verdict
    return (
        verdict.action is not _PASS
        or verdict.relaxed is not None
        or verdict.reason is _BYPASSED
        or decision.question.deferral is not None  # it closes a recorded deferral
    )


def _with_key(privacy: Privacy, directory: Path, files: Files) -> Privacy:
    """The privacy with the directory's key, which the first process to need it creates.

    Raises OSError, and SettingsError for a damaged key.
    """
    if privacy.query != "hash" or privacy.key:
        return privacy
    path = directory / KEY
    try:
        key = _read_key(path, files)
    except FileNotFoundError:
        _create_key(path, files)
        key = _read_key(path, files)
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"audit_query = hash: {str(path)!r} is not a key of {KEY_BYTES} bytes:"
            " put it back from a backup, or remove it to have values hashed with a new key from then on"
        )
    return msgspec.structs.replace(privacy, key=key)


def _read_key(path: Path, files: Files) -> bytes:
    """Read a key file, at most one byte more than a key has. Raises OSError."""
    descriptor = files.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return files.pread(descriptor, KEY_BYTES + 1, 0)
    finally:
        files.close(descriptor)


def _create_key(path: Path, files: Files) -> None:
    """Create a key, unless another process has. It is fully written before it is given its name.
    Raises OSError."""
    part = path.with_name(f"{KEY}.{secrets.token_hex(4)}")
    descriptor = files.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if files.write(descriptor, secrets.token_bytes(KEY_BYTES)) != KEY_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        remove(part, files)
        raise
    finally:
        files.close(descriptor)
    put_if_new(part, path, files)


def _with_evidence(record: AnyRecord, evidence: dict[str, str]) -> AnyRecord:
    if evidence and isinstance(record, Fetch):
        return msgspec.structs.replace(record, **evidence)
    return record
