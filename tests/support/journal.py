"""What is in a journal, for tests that look at what a door wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from robots_guard.audit.query import records


def decisions(directory: Path) -> list[dict[str, Any]]:
    """The decisions of a journal in order of time, each with all its fields; none if there is no journal yet."""
    return [msgspec.structs.asdict(record) for record in records(directory)] if directory.exists() else []
