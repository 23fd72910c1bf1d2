"""The files and tests that the project's texts name exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from docs.page import File, steps

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "robots_guard"
FOLDERS = ("robots_guard", "tests", "benchmarks", "docs", "examples")
NAMES = {
    path.relative_to(ROOT).as_posix()
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.py"),
        *(file for name in FOLDERS for file in ROOT.joinpath(name).rglob("*.*")),
    ]
}
UPSTREAM = {"mitmproxy/proxy/server.py", "tests/test_crawl.py"}  # of mitmproxy, and of Scrapy
NAMED = re.compile(r"(?<![\w/.*{}<>-])(?:\.\./)*((?:[\w-]+/)*[\w-]+\.(?:md|py))(?![\w/-])")
ENDINGS = (".md", ".py")  # one of them is in every text that NAMED matches
#: A file that a command of a page writes: the reader then has it.
WRITTEN = re.compile(r"^\$ .* > ([\w./-]+)$", re.MULTILINE)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MODULES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
MUTMUT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_files_that_exist(page):
    written = [step.name for step in steps(page) if isinstance(step, File)]

    assert [name for name in missing(page.read_text("utf-8")) if name not in written] == []


def test_comments_and_docstrings_name_files_that_exist():
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in MODULES
        if (names := missing("\n".join(prose_of(path))))
    }

    assert found == {}


def test_the_mutation_tests_name_files_that_exist():
    patterns = [*MUTMUT["source_paths"], *MUTMUT["only_mutate"], *MUTMUT["also_copy"]]
    selected = [name.partition("::")[0] for name in selected_tests()]

    assert [name for name in [*patterns, *selected] if not [*ROOT.glob(name)]] == []


def test_the_mutation_tests_name_tests_that_exist():
    named = [name.split("::") for name in selected_tests() if "::" in name]

    assert [test for file, test in named if f"def {test}(" not in (ROOT / file).read_text()] == []


def test_the_mutation_tests_leave_out_lines_that_exist():
    lines = [
        line
        for pattern in MUTMUT["only_mutate"]
        for path in ROOT.glob(pattern)
        for line in path.read_text("utf-8").splitlines()
    ]
    patterns = MUTMUT["do_not_mutate_patterns"]

    assert [each for each in patterns if not any(re.search(each, line) for line in lines)] == []


def selected_tests() -> list[str]:
    arguments = MUTMUT["pytest_add_cli_args"]
    left_out = [name for option, name in pairwise(arguments) if option == "--deselect"]
    return [*MUTMUT["pytest_add_cli_args_test_selection"], *left_out]


def missing(text: str) -> list[str]:
    """Return the names of files in a text that are not the end of a file's path, and that no
    command in it writes."""
    known = {*NAMES, *UPSTREAM, *WRITTEN.findall(text)}
    return [
        name
        for name in NAMED.findall(text)
        if not any(f"/{path}".endswith(f"/{name}") for path in known)
    ]


def prose_of(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a module, unless they cannot name a file."""
    source = path.read_text("utf-8")
    if not any(ending in source for ending in ENDINGS):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
