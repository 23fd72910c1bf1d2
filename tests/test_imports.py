"""What each entry imports, by name: a slow import is noticed, and no test measures a time.

A name that appears here without need costs every start of the command, or every program that uses the package.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robots_guard

#: Modules of the standard library that take long to import, or that show that a client or a server is imported.
HEAVY = {
    "asyncio", "concurrent", "difflib", "email", "http", "importlib.metadata", "logging",
    "multiprocessing", "rich.console", "sqlite3", "ssl", "subprocess", "tomllib", "unittest", "xml", "zipfile",
}  # fmt: skip
CLI = {"click", "msgspec", "typing_extensions"}
JUDGING = CLI | {"cachetools", "idna", "platformdirs", "publicsuffixlist"}

ROBOTS = "robots.txt"
URL = "https://a.test/x"
IMPORTED = {
    (): set(),
    ("--help",): CLI,
    ("--version",): CLI,
    ("check", "--agent", "bot", "--robots", ROBOTS, URL): JUDGING,
    ("config", "show"): JUDGING - {"cachetools"},
}


@pytest.fixture
def place(tmp_path):
    """A directory with a robots.txt, and a file to write the imported names to."""
    (tmp_path / ROBOTS).write_text("User-agent: *\nDisallow: /private\n")
    return tmp_path


def imported(place, code):
    """Return the modules that code imports in a new process."""
    names = place / "names"
    program = f"import sys\n{code}\nopen({str(names)!r}, 'w').write('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}\n{program}"],
        cwd=place, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(names.read_text().split("\n"))


def notable(modules):
    """Return the third-party packages among modules, and what is listed as heavy."""
    tops = {name.partition(".")[0] for name in modules}
    ours = {"robots_guard", "__main__"}
    third = {name for name in tops if name not in sys.stdlib_module_names and name not in ours}
    return {name for name in third if not name.startswith("_")} | (modules & HEAVY)


@pytest.mark.parametrize("args", IMPORTED, ids=" ".join)
def test_what_a_command_line_imports(place, args):
    code = f"from robots_guard.app.cli.main import run\nrun({list(args)!r})"
    if not args:
        code = "import robots_guard"

    assert notable(imported(place, code)) == IMPORTED[args]


def test_every_public_name_has_a_module_for_type_checkers_and_one_at_run_time():
    tree = ast.parse(Path(robots_guard.__file__).read_text())
    stated = {
        name.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("robots_guard.")
        for name in node.names
    }

    assert set(stated) == {*robots_guard.__all__, "open"} - {"__version__"}
    assert {name: vars(robots_guard)["_HOMES"][name] for name in stated} == stated
    assert set(stated) <= set(dir(robots_guard))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'robots_guard' has no attribute 'Gaurd'"):
        _ = robots_guard.Gaurd


def test_a_star_import_keeps_the_built_in_open(place):
    code = "from robots_guard import *\nassert open is __builtins__.open and Guard and open_sync"

    assert "robots_guard.guard.guard" in imported(place, code)
