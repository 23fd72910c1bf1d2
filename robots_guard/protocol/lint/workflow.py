"""Findings as workflow commands of GitHub Actions, which shows them beside the lines of a pull
request.

Invariant: a command is one line, and a value can neither end it nor begin another one.
"""

from __future__ import annotations

from robots_guard.protocol.lint.finding import Finding, Severity
from robots_guard.protocol.lint.sarif import message_of

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
