"""What a program writes to a terminal."""

from __future__ import annotations

import os


def read_terminal(ours: int) -> bytes:
    """Return all that was written to the other end of a pty, until no program has it open; close ours.

    One call of `os.read` may return a part: the kernel hands over what was written in its own time.
    """
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while read := _read(terminal.fileno()):
            shown += read
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the other end is closed
        return b""
