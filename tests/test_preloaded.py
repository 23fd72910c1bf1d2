"""The ends of programs that are forks: what a program leaves behind is what Python would leave."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.preloaded import Preloaded

ENDS = {
    "returns": "print('out')",
    "a status": "import sys; print('out'); sys.exit(3)",
    "a status beyond 255": "import sys; sys.exit(256 + 7)",
    "no status": "import sys; sys.exit()",
    "a message": "import sys; sys.exit('why')",
    "an error": "print('out'); raise ValueError('no')",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "output without a newline": "import sys; sys.stdout.write('x' * 100_000)",
    "a closed output": "import os; print('out'); os.close(1)",
    "functions of atexit": "import atexit; atexit.register(print, 1); atexit.register(print, 2)",
    "a thread": """
import threading, time
def work():
    time.sleep(0.2)
    print("worked")
threading.Thread(target=work).start()
""",
    "a cycle with a finaliser": """
class Node:
    def __del__(self):
        print("collected")
node = Node()
node.itself = node
del node
""",
    "a task that is never awaited": """
import asyncio
loop = asyncio.new_event_loop()
async def wait():
    await asyncio.Event().wait()
task = loop.create_task(wait())
task.itself = task
loop.run_until_complete(asyncio.sleep(0))
del task
loop.close()
""",
}


@pytest.fixture(scope="module")
def forks():
    return Preloaded([], ["asyncio"])


@pytest.mark.parametrize("end", ENDS)
def test_a_fork_ends_as_a_program_does(forks, tmp_path, end):
    script = tmp_path / "script.py"
    script.write_text(ENDS[end])
    fork = forks.run([str(script)], dict(os.environ), 60)
    program = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (fork.returncode, fork.stdout) == (program.returncode, program.stdout)
    assert last_line(fork.stderr) == last_line(program.stderr)


def last_line(text):
    """The last line printed, without an address in memory."""
    return text.strip().rpartition("\n")[2].partition(" at 0x")[0]
