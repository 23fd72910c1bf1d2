"""The journal of a door: what is recorded of what it decides, and how much of it.

DROP and DEFER always are, and so is a PASS that some relaxation or exemption made; any other PASS as `passes`
says. Everything is written by audit/writer.py, in a directory that all doors share.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import re
import secrets
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from robots_guard.audit.files import FILES, Files, make_directory, remove
from robots_guard.audit.keeping import look, tidy
from robots_guard.audit.privacy import DEFAULT, Privacy
from robots_guard.audit.record import AnyRecord, Entry, Fetch, Record, Writer, record_of, record_of_event
from robots_guard.audit.repeats import Counter, Run, repeats_of
from robots_guard.audit.retention import Retention
from robots_guard.audit.segments import put_if_new
from robots_guard.audit.writer import PAUSE, Head, JournalWriter, Writing
from robots_guard.core.events import Event, FetchMade
from robots_guard.core.verdict import Action, Decision, Reason
from robots_guard.errors import JournalError, SettingsError, UnconfirmedRecord
from robots_guard.ports import Clocks

if TYPE_CHECKING:
    from robots_guard.audit.evidence import Evidence

KEY = ".key"  # of hashed query values: one for all writers, so that equal values look equal
KEY_OCTETS = 32
_SAMPLE = re.compile(r"sample:([1-9][0-9]{0,8})")


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal records, and for how long. `passes`: every how many-th ordinary PASS, 0 for none.

    `aggregate` is the seconds within which repeats are only counted, 0 for never. With `retention` None it keeps no
    house: it compresses and removes nothing.
    """

    passes: int = 0
    aggregate: float = 0.0
    privacy: Privacy = DEFAULT
    retention: Retention | None = Retention()
    warc: bool = False


class FileJournal:
    """A Journal in a directory, which is created if need be.

    May be called from any thread; after a fork, the child begins a file of its own. Raises SettingsError if no
    file can be made there.
    """

    def __init__(
        self,
        directory: Path,
        clocks: Clocks,
        keeping: Keeping | None = None,
        writing: Writing | None = None,
        files: Files = FILES,
        tokens: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self.directory = directory
        self._clocks = clocks
        self._keeping = keeping or Keeping()
        self._writing = writing or Writing()
        self._files = files
        self._tokens = tokens
        self._passed = itertools.count()
        try:
            make_directory(directory, files)
            self._privacy = _with_key(self._keeping.privacy, directory, files)
            self._begin()
            self._own()
        except (OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            raise SettingsError(
                f"journal: no file can be written in {str(directory)!r} ({why}):"
                " name a directory that can be written to"
            ) from error
        _journals.add(self)

    @property
    def path(self) -> Path:
        """The file that is being written. Raises OSError in a forked child that cannot begin one."""
        return self._own().path

    @property
    def writer(self) -> str:
        """The name of this writer. Raises OSError in a forked child that cannot begin a file."""
        return self._own().identity.writer

    def write(self, decision: Decision) -> None:
        """Record a decision, if it is one to be recorded. Raises JournalError when it could not be."""
        weight = self._weight(decision)
        if not weight:
            return
        repeats = self._repeats
        if repeats is None:
            self._append(decision.at, lambda head: self._record(decision, head, weight))
            return
        if not repeats.counts(decision, weight):
            self._append(decision.at, lambda head: self._record(decision, head, weight))
            repeats.begin(decision)
        self._tell(repeats)

    def note(self, event: Event) -> None:
        """Record something that is no decision. Raises JournalError when it could not be."""
        try:
            kept = self._kept(event) if isinstance(event, FetchMade) else {}
        except JournalError:  # reported, but the fetch is recorded without its evidence
            self._append(event.at, lambda head: record_of_event(event, head, self._privacy))
            raise
        self._append(event.at, lambda head: _evident(record_of_event(event, head, self._privacy), kept))

    def close(self) -> None:
        """Tell what has been counted, close the file, and remove it if nothing was ever written."""
        _journals.discard(self)
        if self._repeats:
            self._tell_all(self._repeats)
        if self._writer:
            self._writer.close()
        if self._evidence:
            self._evidence.close()

    # -- what is recorded -------------------------------------------------------------------------------------

    def _weight(self, decision: Decision) -> int:
        """How many decisions a record of this stands for; 0 if there is to be none."""
        if is_always_recorded(decision):
            return 1
        every = self._keeping.passes
        return every if every and next(self._passed) % every == 0 else 0

    def _record(self, decision: Decision, head: Head, weight: int) -> Record:
        assert self._writer is not None  # it is what asks for the record
        return record_of(
            decision,
            self._writer.identity,
            seq=head["seq"],
            mono=head["mono"],
            privacy=self._privacy,
            sampled=weight if weight > 1 else None,
        )

    def _tell(self, repeats: Counter) -> None:
        """Write the runs that have ended. After one that cannot be written, all others are written later: no decision
        waits for them, and none is refused for them."""
        now = self._clocks.monotonic()
        while (run := repeats.next_ended(now)) is not None:
            try:
                self._append_run(run, is_tried_again=True)
            except UnconfirmedRecord:
                continue  # written again, it would be counted twice
            except JournalError:
                repeats.put_off(run, now + PAUSE)
                return

    def _tell_all(self, repeats: Counter) -> None:
        """Write every run, for the last time. One that cannot be written is lost."""
        repeats.end_all()
        while (run := repeats.next_ended(math.inf)) is not None:
            with contextlib.suppress(JournalError):
                self._append_run(run)

    def _append_run(self, run: Run, *, is_tried_again: bool = False) -> None:
        now = self._clocks.now()
        self._append(now, partial(repeats_of, run, now, privacy=self._privacy), is_tried_again=is_tried_again)

    def _kept(self, event: FetchMade) -> dict[str, str]:
        """The evidence of a fetch, written first: the journal names what is there."""
        if self._evidence is None:
            return {}
        try:
            return self._evidence.keep(event, self._privacy, self.path.name)
        except OSError as error:
            raise JournalError(f"evidence: {error.strerror or error}") from error

    # -- how it is written ------------------------------------------------------------------------------------

    def _append(self, at: float, made: Callable[[Head], Entry], *, is_tried_again: bool = False) -> None:
        try:
            (self._writer or self._own()).append(at, made, is_tried_again=is_tried_again)
        except OSError as error:
            raise JournalError(f"{self._place()}: {error.strerror or error}") from error

    def _place(self) -> Path:
        return self._writer.path if self._writer else self.directory

    def _begin(self) -> None:
        """What a process has of its own: locks, counts, and a file, which is begun by the first record."""
        self._beginning = threading.Lock()
        self._writer: JournalWriter | None = None
        self._repeats = Counter(self._keeping.aggregate) if self._keeping.aggregate else None
        self._evidence = self._evidence_of() if self._keeping.warc else None

    def begin_in_child(self) -> None:
        """In a forked child, before anything else runs: a lock may be held by a thread that is not here."""
        if self._writer:
            self._writer.abandon()
        if self._evidence:
            self._evidence.close()
        self._begin()

    def _evidence_of(self) -> Evidence:
        """Raises MissingExtra."""
        from robots_guard.audit.evidence import Evidence

        return Evidence(self.directory, self._files, sync=self._writing.fsync)

    def _own(self) -> JournalWriter:
        """This process's writer. Raises OSError."""
        with self._beginning:
            if self._writer is None:
                writer = JournalWriter(self.directory, self._writing, self._clocks, self._files, self._tokens)
                writer.rotated = self._tidy
                self._writer = writer
            return self._writer

    def _tidy(self) -> None:
        """Compress what is closed and remove what is old, beside the crawl: nobody waits for it."""
        if self._keeping.retention is None:
            return
        work = (self.directory, self._keeping.retention, look(self._clocks.now()))
        with contextlib.suppress(RuntimeError):  # no thread can be had, as in a process that ends: the next file's
            threading.Thread(target=tidy, args=work, name="robots_guard-tidy", daemon=True).start()


_journals: weakref.WeakSet[FileJournal] = weakref.WeakSet()  # the open ones of this process


def _begin_in_child() -> None:
    for journal in list(_journals):
        journal.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


class CapturingJournal:
    """A Journal in memory, for tests: every record in `records`, every PASS included."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.events: list[AnyRecord] = []

    def write(self, decision: Decision) -> None:
        """Keep the record."""
        self.records.append(record_of(decision, Writer(writer="captured"), seq=len(self.records) + 1))

    def note(self, event: Event) -> None:
        """Keep the record of an event."""
        self.events.append(record_of_event(event, {}))

    def close(self) -> None:
        """Nothing to release."""


def is_always_recorded(decision: Decision) -> bool:
    """Whether a decision is written down in any case: what was refused, and what somebody's choice let through."""
    verdict = decision.verdict
    return (
        verdict.action is not Action.PASS
        or verdict.relaxed is not None
        or verdict.reason is Reason.BYPASSED
        or decision.question.deferral is not None  # the end of what is written down
    )


def passes_of(text: str) -> int:
    """Every how many-th PASS is recorded, from `none`, `all` or `sample:N`. Raises SettingsError."""
    if text in ("none", "all"):
        return int(text == "all")
    found = _SAMPLE.fullmatch(text)
    if found is None:
        raise SettingsError(f"audit_passes {text!r} is not known: use none, all or sample:N, such as sample:100")
    return int(found[1])


def _with_key(privacy: Privacy, directory: Path, files: Files) -> Privacy:
    """With the directory's key, made by the process that needs it first. Raises OSError, and SettingsError for what
    is no key."""
    if privacy.query != "hash" or privacy.key:
        return privacy
    path = directory / KEY
    try:
        key = _key_in(path, files)
    except FileNotFoundError:
        _make_key(path, files)
        key = _key_in(path, files)
    if len(key) != KEY_OCTETS:
        raise SettingsError(
            f"audit_query = hash: {str(path)!r} is not a key of {KEY_OCTETS} octets:"
            " put it back from a backup, or remove it, and values are hashed by a new key from then on"
        )
    return msgspec.structs.replace(privacy, key=key)


def _key_in(path: Path, files: Files) -> bytes:
    """What the file of a key holds, and no more than tells that it is too long. Raises OSError."""
    descriptor = files.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return files.pread(descriptor, KEY_OCTETS + 1, 0)
    finally:
        files.close(descriptor)


def _make_key(path: Path, files: Files) -> None:
    """Make a key, which is whole on the disk before it has its name, unless another process has. Raises OSError."""
    part = path.with_name(f"{KEY}.{secrets.token_hex(4)}")
    descriptor = files.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if files.write(descriptor, secrets.token_bytes(KEY_OCTETS)) != KEY_OCTETS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        remove(part, files)
        raise
    finally:
        files.close(descriptor)
    put_if_new(part, path, files)


def _evident(record: AnyRecord, kept: dict[str, str]) -> AnyRecord:
    return msgspec.structs.replace(record, **kept) if kept and isinstance(record, Fetch) else record
