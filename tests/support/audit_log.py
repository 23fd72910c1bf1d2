"""Reads audit logs, for tests of what an integration wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from robots_guard.audit.read.reader import records


def decisions(directory: Path) -> list[dict[str, Any]]:
    """Return the decisions of an audit log in order of time, with all fields; none if it does not
    exist.
    """
    if not directory.exists():
        return []
    return [msgspec.structs.asdict(record) for record in records(directory)]


def signals(directory: Path) -> list[dict[str, Any]]:
    """Return the records on responses of an audit log, as they are written."""
    lines = (line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines())
    found = [record for record in map(json.loads, lines) if record["kind"] == "signals"]
    return sorted(found, key=lambda record: record["at"])
