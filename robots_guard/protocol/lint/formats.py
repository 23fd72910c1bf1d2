"""Findings in the formats of code scanning: SARIF 2.1.0, and workflow commands of GitHub Actions, which
shows them beside the lines of a pull request.

Invariant: text of the linted file appears only in JSON strings, and locations are escaped URI
references. A command is one line, and a value can neither end it nor begin another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from robots_guard.protocol.lint.finding import Finding, Severity
from robots_guard.protocol.lint.response import KINDS, FindingKind
from robots_guard.text import counted

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
HELP = "https://www.rfc-editor.org/rfc/rfc9309"

#: Further lines of a finding; code scanning shows no more, and rejects very large logs.
RELATED = 100


class LintedFileFindings(NamedTuple):
    """The location of a file, as a URI reference, and its findings."""

    uri: str
    findings: Sequence[Finding]


class Artifact(NamedTuple):
    """A file in a log: its location, and its place in the list of files."""

    uri: str
    place: int


_PLACES = {check.code: place for place, check in enumerate(KINDS)}


def sarif(files: Sequence[LintedFileFindings], version: str) -> dict[str, Any]:
    """The log of one run over some files."""
    driver = {
        "name": "robots-guard",
        "version": version,
        "rules": [_rule(check) for check in KINDS],
    }
    results = [
        _result(finding, Artifact(file.uri, index))
        for index, file in enumerate(files)
        for finding in file.findings
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "artifacts": [{"location": {"uri": file.uri}} for file in files],
                "results": results,
            }
        ],
    }


def _rule(check: FindingKind) -> dict[str, Any]:
    return {
        "id": check.code,
        "name": "".join(part.capitalize() for part in check.name.split("-")),
        "shortDescription": {"text": check.about},
        "helpUri": HELP,
        "defaultConfiguration": {"level": check.severity.value},
    }


def _result(finding: Finding, file: Artifact) -> dict[str, Any]:
    first, *more = finding.lines or (None,)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": _PLACES[finding.code],
        "level": finding.severity.value,
        "message": {"text": message_of(finding)},
        "locations": [_location(file, first)],
        "properties": {
            "effects": {name: effect.does for effect in finding.effects for name in effect.dialects}
        },
    }
    if more:
        result["relatedLocations"] = [
            _related(number, file, line) for number, line in enumerate(more[:RELATED], 1)
        ]
    return result


def _related(number: int, file: Artifact, line: int) -> dict[str, Any]:
    return {"id": number, "message": {"text": f"and line {line}"}, **_location(file, line)}


def _location(file: Artifact, line: int | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": file.uri, "index": file.place}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


def message_of(finding: Finding) -> str:
    """The message, the number of further lines, and below that one line per effect on dialects."""
    more = len(finding.lines) - 1
    further = ""
    if more > 0:
        further = f" (and on {counted(more, 'more line')})"
    effects = [f"{', '.join(effect.dialects)}: {effect.does}" for effect in finding.effects]
    return "\n".join([finding.message + further, *effects])


_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})


def command(finding: Finding, path: str) -> str:
    """The command for a finding in the file at this path."""
    properties = {
        "file": path,
        "line": str(finding.line or 1),
        "title": f"{finding.code} {finding.name}",
    }
    listed = ",".join(f"{name}={value.translate(_PROPERTY)}" for name, value in properties.items())
    return f"::{_LEVELS[finding.severity]} {listed}::{message_of(finding).translate(_DATA)}"
