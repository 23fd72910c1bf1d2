"""`robots-guard lint`: what in a robots.txt may not do what its author meant, and what each dialect makes of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from robots_guard.audit.record import shown_url
from robots_guard.cli.asking import LARGEST
from robots_guard.cli.check import guard_of
from robots_guard.cli.options import fetch_options, settings_from
from robots_guard.cli.terminal import print_lines, safe, write_json, write_line
from robots_guard.core.policy import Policy
from robots_guard.errors import MalformedURL, NotGoverned, RobotsGuardError
from robots_guard.lint.finding import Effect, Finding, Severity
from robots_guard.lint.linter import lint as findings_of
from robots_guard.lint.sarif import sarif
from robots_guard.lint.workflow import command
from robots_guard.origin import Origin, split_url
from robots_guard.rep.dialect import DIALECTS, Dialect, dialect
from robots_guard.settings import Settings

SHOWN_LINES = 8  # further lines named in a text
SHOWN_DIALECTS = 3  # more than these are "all" where all do the same
FAILED = 1  # the exit status if something is found

STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


class Nothing(RobotsGuardError):
    """There is no file to look at."""


class Subject(NamedTuple):
    """What is looked at: its name for people, as a URI reference, and its octets."""

    name: str
    uri: str
    body: bytes
    truncated: bool = False


@click.command("lint")
@click.argument("place", metavar="FILE|URL|-")
@click.option("--dialect", "dialects", multiple=True, metavar="NAME", help="Tell of this dialect; may be repeated.")
@click.option("--agent", metavar="TOKEN", help="Only what concerns this crawler.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "sarif", "github"]), default="text", show_default=True
)
@click.option(
    "--fail-on",
    type=click.Choice([*(each.value for each in Severity), "never"]),
    default="error",
    show_default=True,
    help="The least finding that makes the exit status 1.",
)
@fetch_options
def lint(place: str, dialects: tuple[str, ...], agent: str | None, form: str, fail_on: str, **values: Any) -> int:
    """Find what in a robots.txt may not do what its author meant.

    Of a URL, the robots.txt of its origin is fetched. Exit status: 0 nothing as bad as --fail-on, 1 something,
    2 there is nothing to look at.
    """
    asked = [dialect(name) for name in dialects] or list(DIALECTS.values())
    # The file is fetched under the crawler's name; without one, under ours.
    subject = _subject(place, settings_from(values, agent=agent or "robots_guard"))
    found = findings_of(subject.body, asked, agent=agent or "", truncated=subject.truncated)
    _FORMATS[form](found, subject, asked)
    return FAILED if any(fail_on != "never" and each.severity.rank <= Severity(fail_on).rank for each in found) else 0


# -- what is looked at --------------------------------------------------------------------------------------


def _subject(place: str, settings: Settings) -> Subject:
    if "://" in place:
        return _fetched(place, settings)
    if place == "-":
        return Subject("stdin", "stdin", sys.stdin.buffer.read(LARGEST))
    try:
        with Path(place).open("rb") as file:
            return Subject(place, _uri(place), file.read(LARGEST))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Nothing(f"{safe(place)!r} cannot be read ({why}): name a file, a URL, or - for standard input") from None


def _uri(place: str) -> str:
    """A file's URI reference: relative as it was given, so that it is found in a checkout."""
    return Path(place).as_uri() if Path(place).is_absolute() else quote(os.fsencode(Path(place)))


def _fetched(url: str, settings: Settings) -> Subject:
    try:
        origin, _ = split_url(url)
    except (NotGoverned, MalformedURL) as error:
        raise Nothing(f"{error}: name a file, or a URL such as https://example.com") from None
    policy = asyncio.run(_policy(origin, settings))
    document, trouble = policy.document, policy.trouble
    if trouble is not None:
        raise Nothing(f"{origin}/robots.txt cannot be had ({trouble.says}): try again later")
    if document is None or not 200 <= document.status < 300:
        status = document.status if document else "nothing"
        raise Nothing(f"{origin}/robots.txt answers {status}: there is no file to look at")
    shown = shown_url(document.url)
    return Subject(shown, quote(shown, safe=":/?#[]@!$&'()*+,;=%-._~"), document.body, document.truncated)


async def _policy(origin: Origin, settings: Settings) -> Policy:
    """The origin's policy, asked of it anew: who lints wants to see what is there now."""
    with guard_of(settings) as guard:
        return await guard.policy(origin, renew=True)


# -- the formats --------------------------------------------------------------------------------------------


def _as_text(found: Sequence[Finding], subject: Subject, asked: Sequence[Dialect]) -> None:  # noqa: ARG001  all alike
    print_lines(_told(found, subject.name))


def _told(found: Sequence[Finding], name: str) -> Iterator[tuple[str, str]]:
    for finding in found:
        place = f"{name}:{finding.line}" if finding.line else name
        yield f"{place}: {finding.severity} {finding.code} {finding.name}: {finding.message}", STYLES[finding.severity]
        if finding.line:
            yield f"    {finding.line:>5} | {finding.text}", ""
        for effect in finding.effects:
            yield f"            {_who(effect, finding)}: {effect.does}", ""
        if len(finding.lines) > 1:
            yield f"          and {_lines(finding.lines[1:])}", ""
    yield f"{name}: {counted(found)}", ""


def _who(effect: Effect, finding: Finding) -> str:
    together = len(finding.effects) == 1 and len(effect.dialects) > SHOWN_DIALECTS
    return "all dialects" if together else ", ".join(effect.dialects)


def _lines(lines: Sequence[int]) -> str:
    named = ", ".join(map(str, lines[:SHOWN_LINES]))
    more = f" and {len(lines) - SHOWN_LINES} more" if len(lines) > SHOWN_LINES else ""
    return f"line {named}" if len(lines) == 1 else f"lines {named}{more}"


def counted(found: Sequence[Finding]) -> str:
    """How many findings there are of each severity."""
    counts = [(severity, sum(each.severity is severity for each in found)) for severity in Severity]
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts if count) or "no findings"


def _as_json(found: Sequence[Finding], subject: Subject, asked: Sequence[Dialect]) -> None:
    counts = {severity.value: sum(each.severity is severity for each in found) for severity in Severity}
    told = {
        "file": subject.name,
        "octets": len(subject.body),
        "dialects": [each.name for each in asked],
        "counts": counts,
        "findings": [_as_data(finding) for finding in found],
    }
    write_json(told, indent=2)


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


def _as_sarif(found: Sequence[Finding], subject: Subject, asked: Sequence[Dialect]) -> None:  # noqa: ARG001  all alike
    write_json(sarif(found, subject.uri, version("robots_guard")), indent=2)


def _as_commands(found: Sequence[Finding], subject: Subject, asked: Sequence[Dialect]) -> None:  # noqa: ARG001  all alike
    for finding in found:
        # What is not printable is escaped after the line ends of our own, which no text of the file holds.
        write_line(safe(command(finding, subject.name)))


_FORMATS = {"text": _as_text, "json": _as_json, "sarif": _as_sarif, "github": _as_commands}
