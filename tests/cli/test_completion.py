"""Completion in the shells themselves: each is asked what it offers for a command line that is being typed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import program

from robots_guard.decisions.reasons import Reason
from robots_guard.protocol.dialect import DIALECTS

COMMAND = Path(sys.executable).with_name("robots-guard")
TYPED = [
    ("robots-guard au", {"audit"}),
    ("robots-guard audit qu", {"query"}),
    ("robots-guard check --audit-l", {"--audit-log"}),
    ("robots-guard proxy --rep", {"--report-only"}),
    ("robots-guard audit query --reason disal", {"disallowed"}),
    ("robots-guard check --on-unreachable ", {"allow", "defer", "drop"}),
    ("robots-guard explain --dialect y", {name for name in DIALECTS if name.startswith("y")}),
    ("robots-guard audit query --reason ", {str(reason) for reason in Reason}),
]


def asked(shell, lines):
    """Run a shell that has read the line of docs/cli.md, and return what it prints for more lines."""
    done = subprocess.run(
        [*shell, "\n".join(lines)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
    )
    assert done.stderr == ""
    return done.stdout


def test_bash():
    lines = ['eval "$(_ROBOTS_GUARD_COMPLETE=bash_source robots-guard)"']
    for line, _ in TYPED:
        words = shlex.join(line.split(" "))
        lines += [
            f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()",
            '_robots_guard_completion robots-guard; echo "${COMPREPLY[*]}"',
        ]
    printed = asked([program("bash"), "--norc", "-c"], lines)

    assert [set(each.split()) for each in printed.splitlines()] == [names for _, names in TYPED]


def test_fish():
    lines = ["_ROBOTS_GUARD_COMPLETE=fish_source robots-guard | source"]
    lines += [f"complete -C {shlex.quote(line)}; echo '=='" for line, _ in TYPED]
    blocks = asked([program("fish"), "--no-config", "-c"], lines).split("==\n")[:-1]
    offered = [{each.split("\t")[0] for each in block.splitlines()} for block in blocks]

    assert offered == [names for _, names in TYPED]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(shell):
    options = {"bash": ("--norc",), "zsh": ("-f",), "fish": ("--no-config",)}[shell]
    script = subprocess.run(
        [COMMAND],
        env=os.environ | {"_ROBOTS_GUARD_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    assert asked([program(shell), *options, "-n", "-c"], [script]) == ""
    assert "robots-guard" in script


def test_no_command_is_imported_to_list_them():
    code = (
        "import sys; from robots_guard.app.cli.main import Commands, commands\n"
        "context = commands.make_context('robots-guard', [], resilient_parsing=True)\n"
        "print(*(item.value for item in commands.shell_complete(context, 'c')))\n"
        "assert not [name for name in sys.modules if name.startswith('robots_guard.app.cli.ask')]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.split() == ["check", "config", "console"], done.stderr
