"""Workers: what a worker says when it ends."""

from __future__ import annotations

import subprocess
import sys

CRASHING = """
from robots_guard.gateway.workers import run

def work(number, say):
    raise ZeroDivisionError("this worker is broken")

run(2, work, print)
"""


def test_the_traceback_of_a_worker_that_crashes_is_printed():
    done = subprocess.run(
        [sys.executable, "-c", CRASHING], capture_output=True, text=True, timeout=60, check=False
    )

    assert "ZeroDivisionError: this worker is broken" in done.stderr
    assert "SettingsError: a worker ended with status 1: all workers were stopped" in done.stderr
