"""`robots-guard lint`: finds lines of a robots.txt, and statements of a response, that may not do
what the author meant."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from robots_guard import __version__
from robots_guard.app.cli.ask.answers import LARGEST
from robots_guard.app.cli.ask.header_file import read_header_file
from robots_guard.app.cli.group import SectionedCommand
from robots_guard.app.cli.options import fetch_options, settings_from
from robots_guard.app.cli.terminal import print_lines, safe, write_json, write_line
from robots_guard.audit.record import shown_url
from robots_guard.configuration.settings import Settings
from robots_guard.errors import MalformedURL, NotGoverned, RobotsGuardError
from robots_guard.origin import split_url
from robots_guard.protocol.dialect import DIALECTS, Dialect, dialect
from robots_guard.protocol.lint.finding import Effect, Finding, Severity
from robots_guard.protocol.lint.formats import LintedFileFindings, command, sarif
from robots_guard.protocol.lint.linter import lint as findings_of
from robots_guard.protocol.lint.response import RobotsOfPage, lint_response, lint_tdmrep
from robots_guard.text import counted, line_numbers

#: More dialects than this are shown as "all dialects" if the effect is the same in all.
SHOWN_DIALECTS = 3
FAILED = 1  # the exit status if there are findings as severe as --fail-on

STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


class NothingToLint(RobotsGuardError):
    """There is no file to lint."""


class Subject(NamedTuple):
    """A file to lint: its name for people, its URI reference, and its bytes."""

    name: str
    uri: str
    body: bytes
    truncated: bool = False


class LintReport(NamedTuple):
    """A file and its findings."""

    subject: Subject
    found: Sequence[Finding]


@click.command("lint", cls=SectionedCommand)
@click.argument("places", metavar="[FILE|URL|-]...", nargs=-1)
@click.option(
    "--headers",
    metavar="FILE",
    help="Check the header fields of a response, as curl -sD FILE writes them.",
)
@click.option("--html", metavar="FILE", help="Check the META elements of a page.")
@click.option("--tdmrep", metavar="FILE", help="Check a /.well-known/tdmrep.json.")
@click.option(
    "--url",
    metavar="URL",
    help="Of the response: with a robots.txt, find rules that crawlers do not see.",
)
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    metavar="NAME",
    help="Report the effects in this dialect only. May be repeated.",
)
@click.option("--agent", metavar="TOKEN", help="Report only findings that affect this crawler.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*(each.value for each in Severity), "never"]),
    default="error",
    show_default=True,
    help="Lowest severity that makes the exit status 1.",
)
@fetch_options
def lint(
    places: tuple[str, ...],
    headers: str | None,
    html: str | None,
    tdmrep: str | None,
    url: str | None,
    dialects: tuple[str, ...],
    agent: str | None,
    form: str,
    fail_on: str,
    **values: Any,
) -> int:
    """Find lines of a robots.txt, or statements of a response, that may not do what was meant.

    For a URL, the robots.txt of its origin is fetched.

    Exit status: 0 nothing as severe as --fail-on was found, 1 something was, 2 there is no file to lint.
    """
    if not (places or headers or html or tdmrep):
        raise click.UsageError("no file is given: give a robots.txt, --headers, --html or --tdmrep")
    chosen = [dialect(name) for name in dialects] or list(DIALECTS.values())
    reports: list[LintReport] = []
    for place in places:
        # The file is fetched under the crawler's name; without one, under robots_guard's.
        subject = _subject(place, settings_from({**values, "agent": agent}, agent="robots_guard"))
        found = findings_of(subject.body, chosen, agent=agent or "", truncated=subject.truncated)
        reports.append(LintReport(subject, found))
    reports += _response_reports(headers, html, _robots_of_page(reports, url, chosen), agent or "")
    if tdmrep:
        subject = _file(tdmrep)
        reports.append(LintReport(subject, lint_tdmrep(subject.body)))
    _FORMATS[form](reports, chosen)
    if fail_on == "never":
        return 0
    rank = Severity(fail_on).rank
    if any(each.severity.rank <= rank for report in reports for each in report.found):
        return FAILED
    return 0


def _robots_of_page(
    reports: Sequence[LintReport], url: str | None, chosen: Sequence[Dialect]
) -> RobotsOfPage | None:
    if url is None:
        return None
    if len(reports) != 1:
        raise click.UsageError("--url needs the robots.txt of its origin: give that file, too")
    try:
        _, target = split_url(url)
    except (NotGoverned, MalformedURL) as error:
        raise click.UsageError(f"--url: {error}") from None
    parts = [part for each in chosen for part in each.parts or (each,)]
    return RobotsOfPage(reports[0].subject.body, target, list(dict.fromkeys(parts)))


def _response_reports(
    headers: str | None, html: str | None, robots: RobotsOfPage | None, agent: str
) -> list[LintReport]:
    """Check a response, given by its header fields, its page or both. A page alone is HTML."""
    fields = [(0, "Content-Type", "text/html")]
    of_headers, of_page = _file(headers) if headers else None, _file(html) if html else None
    if of_headers is not None:
        file = read_header_file(of_headers.body, safe(of_headers.name))
        fields = [(each.number, each.name, each.value) for each in file.fields]
    body = of_page.body if of_page else None
    found = lint_response(fields, body, robots=robots, agent=agent)
    pairs = ((of_headers, found.headers), (of_page, found.page))
    return [LintReport(subject, findings) for subject, findings in pairs if subject is not None]


# -- the file -----------------------------------------------------------------------------------------------


def _subject(place: str, settings: Settings) -> Subject:
    if "://" in place:
        return _fetch(place, settings)
    if place == "-":
        return Subject("stdin", "stdin", sys.stdin.buffer.read(LARGEST))
    return _file(place)


def _file(place: str) -> Subject:
    try:
        with Path(place).open("rb") as file:
            return Subject(place, _uri(place), file.read(LARGEST))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise NothingToLint(
            f"{safe(place)!r} cannot be read ({why}): give a file, a URL, or - for standard input"
        ) from None


def _uri(place: str) -> str:
    """Return a file's URI reference. A relative path stays relative, so that it is found in a checkout."""
    if Path(place).is_absolute():
        return Path(place).as_uri()
    return quote(os.fsencode(Path(place)))


def _fetch(url: str, settings: Settings) -> Subject:
    try:
        origin, _ = split_url(url)
    except (NotGoverned, MalformedURL) as error:
        raise NothingToLint(f"{error}: give a file, or a URL such as https://example.com") from None
    from robots_guard.app.cli.ask.guard_answers import fetched_policy

    # Even if a fresh one is stored: lint reports on the file as it is now.
    policy = fetched_policy(origin, settings)
    document, trouble = policy.document, policy.trouble
    if trouble is not None:
        raise NothingToLint(
            f"{origin}/robots.txt cannot be fetched ({trouble.says}): try again later"
        )
    if document is None:
        raise NothingToLint(f"{origin}/robots.txt was not answered: there is no file to lint")
    if not 200 <= document.status < 300:
        raise NothingToLint(
            f"{origin}/robots.txt answers {document.status}: there is no file to lint"
        )
    shown = shown_url(document.url)
    return Subject(
        shown, quote(shown, safe=":/?#[]@!$&'()*+,;=%-._~"), document.body, document.truncated
    )


# -- the output formats -------------------------------------------------------------------------------------


def _write_text(reports: Sequence[LintReport], _: Sequence[Dialect]) -> None:
    for report in reports:
        print_lines(_text_lines(report.found, report.subject.name))


def _text_lines(found: Sequence[Finding], name: str) -> Iterator[tuple[str, str]]:
    for finding in found:
        place = f"{name}:{finding.line}" if finding.line else name
        yield (
            f"{place}: {finding.severity} {finding.code} {finding.name}: {finding.message}",
            STYLES[finding.severity],
        )
        if finding.line:
            yield f"    {finding.line:>5} | {finding.text}", ""
        for effect in finding.effects:
            yield f"            {_dialects_of(effect, finding)}: {effect.does}", ""
        if len(finding.lines) > 1:
            yield f"          and {line_numbers(finding.lines[1:])}", ""
    yield f"{name}: {summary(found)}", ""


def _dialects_of(effect: Effect, finding: Finding) -> str:
    if len(finding.effects) == 1 and len(effect.dialects) > SHOWN_DIALECTS:
        return "all dialects"
    return ", ".join(effect.dialects)


def summary(found: Sequence[Finding]) -> str:
    """Return the number of findings of each severity, as text."""
    counts = [(severity, sum(each.severity is severity for each in found)) for severity in Severity]
    return ", ".join(counted(count, name) for name, count in counts if count) or "no findings"


def _write_json(reports: Sequence[LintReport], chosen: Sequence[Dialect]) -> None:
    files = [_report_as_data(report, chosen) for report in reports]
    write_json(files[0] if len(files) == 1 else {"files": files}, indent=2)


def _report_as_data(report: LintReport, chosen: Sequence[Dialect]) -> dict[str, Any]:
    counts = {
        severity.value: sum(each.severity is severity for each in report.found)
        for severity in Severity
    }
    return {
        "file": report.subject.name,
        "size": len(report.subject.body),
        "dialects": [each.name for each in chosen],
        "counts": counts,
        "findings": [_as_data(finding) for finding in report.found],
    }


def _as_data(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "line": finding.line,
        "lines": list(finding.lines),
        "message": finding.message,
        "text": finding.text,
        "effects": {name: effect.does for effect in finding.effects for name in effect.dialects},
    }


def _write_sarif(reports: Sequence[LintReport], _: Sequence[Dialect]) -> None:
    files = [LintedFileFindings(each.subject.uri, each.found) for each in reports]
    write_json(sarif(files, __version__), indent=2)


def _write_commands(reports: Sequence[LintReport], _: Sequence[Dialect]) -> None:
    for report in reports:
        for finding in report.found:
            # Escape last: `command` has encoded the message's own line ends, and the file's text contains none.
            write_line(safe(command(finding, report.subject.name)))


_FORMATS = {
    "text": _write_text,
    "json": _write_json,
    "sarif": _write_sarif,
    "github": _write_commands,
}
