"""Writers under load that are killed, and the count of what they had said was written. See also benchmarks/journal.py.

python killed.py DIRECTORY: writes as fast as it can, and says on standard output how far it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from audit.decisions import decision, journal_in

from robots_guard.audit.query import Filter, Trouble, entries
from robots_guard.audit.record import Record

TESTS = Path(__file__).parents[1]


class Killed(NamedTuple):
    """What one kill left: records acknowledged, found, lost, and lines torn."""

    acknowledged: int
    found: int
    torn: int


def kill_one(directory: Path, after: float) -> Killed:
    """Start a writer, kill it so many seconds after its first record, and count."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(Path(__file__)), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        said = os.read(child.stdout.fileno(), 8)
        time.sleep(after)  # when it is killed is chance, and meant to be
        child.kill()
        said += child.stdout.read()
    trouble = Trouble()
    found = {entry.client for entry in entries(directory, Filter(), trouble) if isinstance(entry, Record)}
    whole = said[: len(said) - len(said) % 8]
    acknowledged = {str(int(whole[place : place + 8])) for place in range(0, len(whole), 8)}
    assert acknowledged <= found, sorted(acknowledged - found)[:5]
    assert not trouble.lines
    assert not trouble.files
    return Killed(len(acknowledged), len(found), sum(trouble.torn.values()))


def work(directory: Path) -> None:
    """Record, then say so, for ever. Files are short, so that some are killed while they turn to the next."""
    journal = journal_in(directory, rotate_bytes=65536, chain=True)
    number = 10_000_000
    while True:
        journal.write(decision(client=str(number), user_agent="x" * (number % 250)))
        os.write(1, str(number).encode())
        number += 1


if __name__ == "__main__":
    work(Path(sys.argv[1]))
