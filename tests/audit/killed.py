"""Writers that are killed under load, and a comparison of the acknowledged with the written records. See also
benchmarks/audit_log.py.

python killed.py DIRECTORY: writes as fast as it can, and acknowledges each record on standard output.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from audit.decisions import audit_log_in, decision

from robots_guard.audit.read.reader import Filter, Unreadable, entries
from robots_guard.audit.record import Record

TESTS = Path(__file__).parents[1]


class Killed(NamedTuple):
    """The result of one kill: the numbers of acknowledged and found records, and of torn lines."""

    acknowledged: int
    found: int
    torn: int


def kill_one(directory: Path, after: float) -> Killed:
    """Start a writer, kill it `after` seconds after its first record, and count."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, str(Path(__file__)), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        said = os.read(child.stdout.fileno(), 8)
        time.sleep(after)  # the moment of the kill is random on purpose
        child.kill()
        said += child.stdout.read()
    trouble = Unreadable()
    found = {
        entry.client for entry in entries(directory, Filter(), trouble) if isinstance(entry, Record)
    }
    whole = said[: len(said) - len(said) % 8]
    acknowledged = {str(int(whole[place : place + 8])) for place in range(0, len(whole), 8)}
    assert acknowledged <= found, sorted(acknowledged - found)[:5]
    assert not trouble.lines
    assert not trouble.files
    return Killed(len(acknowledged), len(found), sum(trouble.torn.values()))


def work(directory: Path) -> None:
    """Record and acknowledge forever. Files are short, so that some writers are killed during rotation."""
    audit_log = audit_log_in(directory, rotate_bytes=65536, chain=True)
    number = 10_000_000
    while True:
        audit_log.write(decision(client=str(number), user_agent="x" * (number % 250)))
        os.write(1, str(number).encode())
        number += 1


if __name__ == "__main__":
    work(Path(sys.argv[1]))
