"""Findings as SARIF 2.1.0, the interchange format of code scanning.

Invariant: text of the linted file appears only in JSON strings, and locations are escaped URI
references.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robots_guard.lint.finding import Check, Finding
from robots_guard.lint.linter import CHECKS

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
HELP = "https://www.rfc-editor.org/rfc/rfc9309"

#: Further lines of a finding; code scanning shows no more, and rejects very large logs.
RELATED = 100

_PLACES = {check.code: place for place, check in enumerate(CHECKS)}


def sarif(findings: Sequence[Finding], uri: str, version: str) -> dict[str, Any]:
    """The log of one run over one file. `uri` is the location of the file, as a URI reference."""
    driver = {
        "name": "robots-guard",
        "version": version,
        "rules": [_rule(check) for check in CHECKS],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "artifacts": [{"location": {"uri": uri}}],
                "results": [_result(finding, uri) for finding in findings],
            }
        ],
    }


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.code,
        "name": "".join(part.capitalize() for part in check.name.split("-")),
        "shortDescription": {"text": check.about},
        "helpUri": HELP,
        "defaultConfiguration": {"level": check.severity.value},
    }


def _result(finding: Finding, uri: str) -> dict[str, Any]:
    first, *more = finding.lines or (None,)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": _PLACES[finding.code],
        "level": finding.severity.value,
        "message": {"text": message_of(finding)},
        "locations": [_location(uri, first)],
        "properties": {
            "effects": {name: effect.does for effect in finding.effects for name in effect.dialects}
        },
    }
    if more:
        result["relatedLocations"] = [
            _related(number, uri, line) for number, line in enumerate(more[:RELATED], 1)
        ]
    return result


def _related(number: int, uri: str, line: int) -> dict[str, Any]:
    return {"id": number, "message": {"text": f"and line {line}"}, **_location(uri, line)}


def _location(uri: str, line: int | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": uri, "index": 0}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


def message_of(finding: Finding) -> str:
    """The message, the number of further lines, and below that one line per effect on dialects."""
    more = len(finding.lines) - 1
    further = f" (and on {more} more line{'' if more == 1 else 's'})" if more > 0 else ""
    effects = [f"{', '.join(effect.dialects)}: {effect.does}" for effect in finding.effects]
    return "\n".join([finding.message + further, *effects])
