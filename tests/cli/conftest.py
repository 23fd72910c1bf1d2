"""The command line, in this process and in one of its own, with a store and an audit log of its own."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

import pytest
from cli.command import COMMAND
from support.preloaded import Preloaded
from support.programs import LOCALES as DEFINITION
from support.programs import program

from robots_guard.app.cli import main as cli


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def variables(tmp_path, monkeypatch):
    """The environment: nothing of the person's own, an agent, a store and an audit log."""
    for name in list(os.environ):
        if name.startswith("ROBOTS_GUARD_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ROBOTS_GUARD_CONFIG", "")
    monkeypatch.setenv("ROBOTS_GUARD_AGENT", "mybot")
    monkeypatch.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/policies.sqlite")
    monkeypatch.setenv("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path / "audit_log"))
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
            [COMMAND, *map(str, args)],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return apart


# What the commands that run in each locale import.
IMPORTED = ["aiohttp", "duckdb", "robots_guard.app.cli.main", "robots_guard.configuration.settings"]
# Each environment to try.
BARE = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN_1 = {"PYTHONUTF8": "0", "LC_ALL": "de_DE.ISO-8859-1"}
LOCALES = {
    "C": {**BARE, "LC_ALL": "C"},
    "POSIX": {**BARE, "LC_ALL": "POSIX"},
    "LANG=C": {**BARE, "LANG": "C"},
    "C, coerced": {"LC_ALL": "C"},
    "UTF-8": {"LC_ALL": "C.UTF-8"},
    "Latin-1 output": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1:strict"},
    "Latin-1": LATIN_1,
}


@pytest.fixture(scope="session")
def latin_1(tmp_path_factory):
    """The folder of a locale in ISO 8859-1, made from the system's own definition."""
    program(DEFINITION)
    folder = tmp_path_factory.mktemp("locales")
    command = [
        program("localedef"),
        "-i",
        "de_DE",
        "-f",
        "ISO-8859-1",
        str(folder / "de_DE.ISO-8859-1"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module", params=LOCALES)
def locale(request, latin_1):
    """The name of a locale, its environment, and a process in it that forks into commands."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHON", "ROBOTS_GUARD_"))
    }
    environment = kept | {"LOCPATH": str(latin_1)} | LOCALES[request.param]
    if request.param != "Latin-1":
        del environment["LOCPATH"]
    return request.param, environment, Preloaded([], IMPORTED)


@pytest.fixture
def ran(variables, locale):
    """Run the command with arguments in bytes, in one locale; what it writes is bytes too."""
    name, environment, forks = locale

    def ran(*args, stdin=b""):
        command = [
            COMMAND,
            *(os.fsdecode(arg) if isinstance(arg, bytes) else str(arg) for arg in args),
        ]
        own = {each: os.environ[each] for each in os.environ if each.startswith("ROBOTS_GUARD_")}
        return forks.run_in_bytes(command, environment | own, 120, stdin)

    ran.latin_1 = name == "Latin-1"
    return ran
