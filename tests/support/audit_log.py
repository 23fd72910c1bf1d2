"""Reads audit logs, for tests of what an integration wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from robots_guard.audit.read.reader import Filter, entries, records


def decisions(directory: Path) -> list[dict[str, Any]]:
    """Return the decisions of an audit log in order of time, with all fields; none if it does not
    exist.
    """
    if not directory.exists():
        return []
    return [msgspec.structs.asdict(record) for record in records(directory)]


def signals(directory: Path) -> list[dict[str, Any]]:
    """Return what the log says of signals in responses, in order of time, with all fields."""
    if not directory.exists():
        return []
    found = entries(directory, Filter(kind="signals"))
    return [msgspec.structs.asdict(record) | msgspec.to_builtins(record) for record in found]
