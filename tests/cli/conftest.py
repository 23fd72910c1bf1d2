"""The command line, in this process and in one of its own, with a store and a journal of its own."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

import pytest
from cli.command import COMMAND

from robots_guard import cli


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def variables(tmp_path, monkeypatch):
    """The environment: nothing of the person's own, an agent, a store and a journal."""
    for name in list(os.environ):
        if name.startswith("ROBOTS_GUARD_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ROBOTS_GUARD_AGENT", "mybot")
    monkeypatch.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/policies.sqlite")
    monkeypatch.setenv("ROBOTS_GUARD_JOURNAL", str(tmp_path / "journal"))
    return monkeypatch


@pytest.fixture
def here(variables, capsys):
    """Run a command line in this process."""

    def here(*args):
        status = cli.run([str(arg) for arg in args])
        return Ran(status, *capsys.readouterr())

    return here


@pytest.fixture
def apart(variables):
    """Run the installed console script."""

    def apart(*args, stdin=None, **options):
        done = subprocess.run(
            [COMMAND, *map(str, args)], check=False, input=stdin, capture_output=True, text=True, timeout=60, **options
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return apart
