"""The report: one self-contained HTML file, which a reader understands who does not know
robots_guard.

Invariant: the template escapes all values, and the page may neither load nor run anything, because
clients and sites control values in an audit log.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import LogFinding, verify_log
from robots_guard.audit.record import Record
from robots_guard.audit.show.chart import NARROW, chart
from robots_guard.audit.show.figures import Counts, Summary
from robots_guard.audit.show.markup import environment, number
from robots_guard.audit.show.sentence import date_and_time, sentence_of
from robots_guard.decisions.reasons import meaning_of
from robots_guard.invocation import BARE, Invocation
from robots_guard.protocol.lines import excerpt
from robots_guard.text import counted

TITLE = "Report on crawling under robots.txt"
ROWS = 10  # of a table
NAMED = 6  # crawlers on the cover
AROUND = 6  # lines of the file shown on each side of the deciding one

_RESULTS = {"drop": "Refused", "defer": "Deferred", "pass": "Passed"}
#: What a setting that is less strict than the default does, in words.
_SETTINGS = {
    "on_unreachable": "The site's robots.txt could not be fetched, and such requests are permitted",
    "on_restricted": "The site denies access to its robots.txt, and such requests are permitted",
    "visit_time": "The site asks crawlers to come at other hours, which is ignored",
    "max_delay": "The site asks for a longer delay between requests than is kept",
    "signals": "What the site states of the use of its content is not enforced",
    "noindex_action": "The page may not be indexed, and is used for its links only",
    "report_only": "Refusals are only reported",
    "audit_required": "The request could not be recorded, and such requests are permitted",
}


class Cover(NamedTuple):
    """What the report is about: its title and author, when and by which version it was made, the
    records that it covers in words, and what the log does not reach of their period."""

    made: str
    version: str
    about: str
    reach: str = ""
    title: str = TITLE
    author: str = ""


class ShownRefusal(NamedTuple):
    """A refusal that is shown in full, with the lines of the file around the deciding one.
    `no_lines` says why there are none."""

    record: Record
    lines: list[tuple[int, str]]
    no_lines: str

    @property
    def sentence(self) -> str:
        """The refusal as one sentence."""
        return sentence_of(self.record)


def refusal_of(record: Record, document: bytes | None, no_document: str) -> ShownRefusal:
    """Return a refusal with the lines of its document."""
    if document is None or record.line is None:
        reason = no_document if record.line is not None else "No line of a file decided this."
        return ShownRefusal(record, [], reason)
    return ShownRefusal(record, excerpt(document, record.line, AROUND), "")


def page(
    summary: Summary,
    cover: Cover,
    *,
    refusal: ShownRefusal | None = None,
    verification: LogVerification | None = None,
    trouble: str = "",
    invocation: Invocation = BARE,
) -> str:
    """Return the report as HTML. `trouble` says which records could not be read, and `invocation`
    what the commands in the report must name."""
    templates = environment()
    templates.filters |= {
        "result": result,
        "setting": setting,
        "because": meaning_of,
        "day": last_day,
        "date_and_time": date_and_time,
    }
    bars = summary.timeline.bars
    return templates.get_template("report.html").render(
        summary=summary,
        cover=cover,
        sentences=sentences_of(summary, verification),
        charts=[chart(bars), chart(bars, NARROW)] if bars else [],
        refusal=refusal,
        verification=verification,
        trouble=trouble,
        rows=ROWS,
        named=NAMED,
        command=invocation.command,
    )


def sentences_of(summary: Summary, verification: LogVerification | None) -> list[str]:
    """Return the report in a few sentences."""
    found = [_totals(summary.counts)]
    refusals = [(each[1], each[2]) for each in summary.timeline.reasons if each[0] == "drop"]
    if refusals:
        reason, most = refusals[0]
        sentence = meaning_of(reason).sentence
        found.append(f"The most frequent reason, with {number(most)} refusals: {sentence}")
    through = sum(each[5] for each in summary.exceptions)
    if summary.exceptions:
        owners = sorted({str(each[1]) for each in summary.exceptions if each[1]})
        found.append(
            f"{counted(len(summary.exceptions), 'exception')} for single sites let"
            f" {counted(through, 'request')} through; their owners: {', '.join(owners[:NAMED])}."
        )
    else:
        found.append("No exception for a single site was used.")
    if summary.opened:
        found.append(
            f"{counted(summary.opened, 'request')} passed only because a setting is less strict"
            " than the default."
        )
    if summary.would:
        found.append(
            f"{counted(summary.would, 'request')} would have been refused or deferred if refusals"
            " had been enforced."
        )
    if verification is not None:
        found.append(verification.sentence)
    return found


def _totals(counts: Counts) -> str:
    dropped, deferred = counts.totals["drop"], counts.totals["defer"]
    if counts.share is None:
        return (
            f"{counted(dropped, 'request was/requests were')} refused and {number(deferred)}"
            " deferred. How many requests passed is not recorded (setting audit), so the"
            " share of refusals is not known."
        )
    return (
        f"Of {counted(counts.number, 'request')}, {counted(dropped, 'was/were')} refused"
        f" ({100 * counts.share:.1f} %), {counted(deferred, 'was/were')} deferred, and"
        f" {number(counts.totals['pass'])} passed."
    )


def result(action: str | None) -> str:
    """Return an action in words."""
    return _RESULTS.get(action or "", action or "")


def setting(relaxed: str | None) -> str:
    """Return what a setting does in words; an empty string for one that has none."""
    name = re.split(r"[=\s]", relaxed or "", maxsplit=1)[0]
    return _SETTINGS.get(name, "")


def last_day(expires: str | None) -> str:
    """Return an expiry as its last day, or as its moment if it is not the end of a day in UTC."""
    try:
        at = datetime.fromisoformat(expires or "").astimezone(UTC)
        if (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
            return f"{at - timedelta(days=1):%Y-%m-%d}"
    except (ValueError, OverflowError):
        return expires or ""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


# -- the verification of the log -------------------------------------------------------------------


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
