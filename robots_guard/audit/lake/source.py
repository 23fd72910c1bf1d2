"""Sources: the names by which exports of several audit logs to one place are distinguished."""

from __future__ import annotations

import re

from robots_guard.errors import SettingsError

SOURCE = "records"  # the name if there is only one source
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")


def check_source(source: str) -> None:
    """Raise SettingsError unless this can be the name of a file."""
    if not _NAME.fullmatch(source):
        raise SettingsError(
            f"--source {source[:40]!r} is not a name: use letters, digits, dots and hyphens"
        )
