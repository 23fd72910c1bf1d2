"""Completion in the shells themselves: each is asked what it offers for a command line that is being typed."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import time

import pytest
from support.programs import program

from robots_guard.cli.completion import SHELLS
from robots_guard.core.reasons import Reason
from robots_guard.rep.dialect import DIALECTS

TYPED = [
    ("robots-guard au", {"audit"}),
    ("robots-guard audit qu", {"query"}),
    ("robots-guard audit hold ", {"add", "list", "release"}),
    ("robots-guard completion ", set(SHELLS)),
    ("robots-guard check --audit-l", {"--audit-log"}),
    ("robots-guard proxy --rep", {"--report-only"}),
    ("robots-guard proxy --no-rep", {"--no-report-only"}),
    ("robots-guard proxy --agent check c", {"ca"}),  # "check" is the agent
    ("robots-guard audit query --reason disal", {"disallowed"}),
    ("robots-guard check --on-unreachable ", {"allow", "defer", "drop"}),
    ("robots-guard explain --dialect y", {name for name in DIALECTS if name.startswith("y")}),
    ("robots-guard audit query --reason ", {str(reason) for reason in Reason}),
    ("robots-guard lint a_ro", {"a_robots.txt"}),
    ("robots-guard check --robots a_ro", {"a_robots.txt"}),
    ("robots-guard check --audit-log a", {"a_directory"}),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a_robots.txt").write_text("")
    (tmp_path / "a_directory").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(here, folder):
    """Write the script of a shell to a file."""

    def script(shell):
        status, out, err = here("completion", shell)
        assert (status, err) == (0, "")
        place = folder / f".completion.{shell}"
        place.write_text(out)
        return place

    return script


def test_bash(script):
    words = [["robots-guard", *line.split(" ")[1:]] for line, _ in TYPED]
    asked = "\n".join(
        f"COMP_WORDS=({shlex.join(each)}); COMP_CWORD={len(each) - 1}; _robots_guard;"
        ' echo "${COMPREPLY[*]}"'
        for each in words
    )
    done = subprocess.run(
        [program("bash"), "--norc", "-uc", f"source {script('bash')}\n{asked}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stderr == ""
    assert [set(line.split()) for line in done.stdout.splitlines()] == [
        offered for _, offered in TYPED
    ]


def test_bash_completes_a_value_after_an_equals_sign(script):
    asked = (
        "COMP_WORDS=(robots-guard check --dialect = ko); COMP_CWORD=4; _robots_guard;"
        ' echo "${COMPREPLY[*]}"; COMP_WORDS=(robots-guard check --dialect =); COMP_CWORD=3;'
        ' _robots_guard; echo "${COMPREPLY[*]}"'
    )
    done = subprocess.run(
        [program("bash"), "--norc", "-uc", f"source {script('bash')}\n{asked}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    some, every = done.stdout.splitlines()

    assert set(some.split()) == {name for name in DIALECTS if name.startswith("ko")}
    assert set(every.split()) == set(DIALECTS)


def test_fish(script):
    asked = "\n".join(f"complete -C {shlex.quote(line)}; echo '=='" for line, _ in TYPED)
    done = subprocess.run(
        [program("fish"), "--no-config", "-c", f"source {script('fish')}\n{asked}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    offered = [
        {line.split("\t")[0].rstrip("/") for line in block.splitlines()}
        for block in done.stdout.split("==\n")[:-1]
    ]

    assert done.stderr == ""
    assert offered == [expected for _, expected in TYPED]


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self._process, self._terminal = pty.fork()
        if self._process == 0:
            os.execve(command[0], command, {"PATH": os.defpath, "TERM": "dumb", "PS1": "> "})

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read_until(self, text: str) -> str:
        """Everything up to a text."""
        read = ""
        deadline = time.monotonic() + 60
        while text not in read:
            assert time.monotonic() < deadline, read
            if select.select([self._terminal], [], [], 1)[0]:
                read += os.read(self._terminal, 65536).decode(errors="replace")
        return read

    def close(self) -> None:
        os.close(self._terminal)  # the shell gets SIGHUP
        os.waitpid(self._process, 0)


@pytest.mark.parametrize(
    ("shell", "options", "before"),
    [
        ("bash", ("--norc", "--noprofile", "-i"), ""),
        ("zsh", ("-f", "-i"), "autoload -Uz compinit && compinit -u -D;"),
    ],
    ids=["bash", "zsh"],
)
def test_tab_on_a_terminal(script, shell, options, before):
    terminal = Terminal(program(shell), *options)
    try:
        terminal.type(f"{before} source {script(shell)} && echo rea''dy\n")
        terminal.read_until("ready")
        for typed, completed in (
            ("robots-guard aud\t", "audit "),
            ("qu\t", "query "),
            ("--reas\tdisal\t", "disallowed "),
            ("--limit 5 --aud\t", "--audit-log"),
        ):
            terminal.type(typed)
            terminal.read_until(completed)
    finally:
        terminal.close()


def test_zsh_finds_the_function_on_its_path(script, folder):
    functions = folder / "site-functions"
    functions.mkdir()
    script("zsh").rename(functions / "_robots-guard")
    terminal = Terminal(program("zsh"), "-f", "-i")
    try:
        terminal.type(
            f"fpath+=({functions}); autoload -Uz compinit && compinit -u -D; echo rea''dy\n"
        )
        terminal.read_until("ready")
        terminal.type("robots-guard expl\t")
        terminal.read_until("explain ")
        terminal.type("--on-unreachable def\t")
        terminal.read_until("defer ")
    finally:
        terminal.close()


def test_an_unknown_shell_is_a_usage_error(here):
    status, _, err = here("completion", "ksh")

    assert status == 2
    assert "'ksh' is not one of 'bash', 'zsh', 'fish'" in err
