"""`robots-guard` in a given directory, for a fork of a process that has imported it (`world.py`).

It ends without taking the interpreter apart, which with all modules imported takes longer than most
commands.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

from robots_guard.app.cli.main import main


def run() -> int:
    """Run the command line, and return its status."""
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def wait_for_threads() -> None:
    """Wait for threads as an interpreter does when it ends."""
    own = threading.current_thread()
    for thread in threading.enumerate():
        if thread is not own and not thread.daemon:
            thread.join()


if __name__ == "__main__":
    os.chdir(sys.argv.pop(1))
    sys.argv[0] = "robots-guard"
    status = run()
    wait_for_threads()
    atexit._run_exitfuncs()  # os._exit() does not
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
