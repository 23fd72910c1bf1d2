"""Where the console script is installed."""

from __future__ import annotations

import sys
from pathlib import Path

COMMAND = str(Path(sys.executable).parent / "robots-guard")


def quiet(done):
    """The command ended without a traceback."""
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done


def argument(ran, text):
    """Text as a terminal of the locale gives it."""
    return text.encode("latin-1" if ran.latin_1 else "utf-8")
