"""The result of verifying an audit log, for the report. What is verified is in audit/read/verify.py."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import LogFinding, verify_log
from robots_guard.text import counted

MOST = 20  # problems that are shown


class LogVerification(NamedTuple):
    """The findings on an audit log, counted. `problems` are signs of loss or change; `keys` are the
    public keys of the valid signatures."""

    writers: int
    records: int
    chained: int  # writers whose lines are chained by hashes, without a break
    signatures: int
    keys: list[str]
    timestamps: int
    fetches: int  # whose responses are there as they were written
    problems: list[str]

    @property
    def sentence(self) -> str:
        """The result as one sentence."""
        checked = f"The audit log was verified: {counted(self.records, 'record')} of {counted(self.writers, 'writer')}"
        if self.problems:
            return f"{checked}, with {counted(len(self.problems), 'problem')}."
        return f"{checked}, without a gap{self._unchanged}."

    @property
    def _unchanged(self) -> str:
        if not self.chained:
            return "; changes of lines would not be noticed, because they are not chained"
        if self.chained < self.writers:
            return f", and without a change by {self.chained} of them, whose lines are chained"
        return " or a change"


def verification_of(directory: Path) -> LogVerification:
    """Verify an audit log, all of its records. Raises SettingsError."""
    trouble = Unreadable()
    return verification_from(verify_log(directory, trouble), trouble)


def verification_from(finding: LogFinding, trouble: Unreadable) -> LogVerification:
    """Count findings."""
    writers = finding.writers
    problems = [f"{each.writer}: {problem}" for each in writers for problem in each.problems]
    problems += [each.problem for each in finding.anchors if each.problem]
    problems += finding.problems
    if trouble:
        problems += str(trouble).split("; ")
    return LogVerification(
        writers=len(writers),
        records=sum(each.records for each in writers),
        chained=sum(each.chain == "whole" for each in writers),
        signatures=sum(sum(each.signatures.values()) for each in writers),
        keys=sorted({key for each in writers for key in each.signatures}),
        timestamps=sum(bool(each.stamped_at) for each in finding.anchors),
        fetches=finding.warc.present,
        problems=problems,
    )
