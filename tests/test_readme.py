"""The commands and options in the README and the docs exist."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from robots_guard.app.cli.main import commands
from robots_guard.text import DOCUMENTATION

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
#: What ends a command in a shell's line.
SHELL = {"|", ">", ">>", "&&", "&", "2>"}
#: The end of a line that the next one continues.
CONTINUED = re.compile(r"\\\n\s*")
TYPED = [
    (page, line)
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    for line in re.findall(r"^\$ (robots-guard .*)$", CONTINUED.sub("", block), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "line"), TYPED, ids=lambda value: str(value)[-60:])
def test_every_command_shown_exists_with_its_options(page, line):
    pytest.importorskip("mitmproxy") if " proxy" in line else None
    words = shlex.split(line, comments=True)[1:]
    end = next((index for index, word in enumerate(words) if word in SHELL), len(words))
    command, arguments = command_of(words[:end])

    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    given = {word.partition("=")[0] for word in arguments if re.match("--?[a-z]", word)}
    assert given - {"--help"} <= options, page.name


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that a command line names, and the words behind its name."""
    command: click.Command = commands
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            break
        command, words = found, words[1:]
    assert command is not commands or words[0].startswith("-"), words
    return command, words


def test_the_readme_shows_its_two_commands_and_the_four_uses():
    text = (ROOT / "README.md").read_text()

    assert "robots-guard demo" in text
    assert ".venv/bin/tox" in text
    for use in ("## Scrapy", "## Any crawler", "## Audit", "## Ask it", "## What it does not do"):
        assert use in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_extras_that_a_page_installs_exist(page):
    named = re.findall(r"robots_guard\[([\w,]+)\]", page.read_text())

    assert {extra for names in named for extra in names.split(",")} <= EXTRAS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_program_names_the_site_of_the_documentation():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["urls"]["Documentation"] == DOCUMENTATION


MODULES = sorted((ROOT / "robots_guard").rglob("*.py"))
_PAGE = re.compile(r"docs/|[\w-]+\.md\b")


def _texts_in(node):
    """The texts in code, except docstrings and what becomes addresses where it is shown: the
    arguments of `page_url`, and the links in the descriptions of settings."""
    is_address = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "page_url"
    is_description = isinstance(node, ast.keyword) and node.arg == "description"
    if is_address or is_description or isinstance(node, ast.Expr):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _texts_in(child)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_no_text_of_the_program_names_a_page_by_its_file(module):
    """A user who has installed the package has no docs folder."""
    if not _PAGE.search(text := module.read_text()):
        return
    named = [each for each in _texts_in(ast.parse(text)) if _PAGE.search(each)]

    assert named == []


def test_the_addresses_that_the_program_prints_lead_to_headings():
    texts = [module.read_text() for module in MODULES]
    pages = [page for text in texts for page in re.findall(r"page_url\([\"']([^\"']+)", text)]

    assert pages
    for page in pages:
        name, _, heading = page.partition("#")
        headings = re.findall("^#+ (.*)$", (ROOT / "docs" / name).read_text(), re.MULTILINE)
        assert heading in [each.lower().replace(" ", "-") for each in headings], page


def test_the_links_of_the_readme_lead_to_pages_of_the_site():
    """PyPI shows the README, so its links are absolute. The site's address is in pyproject.toml."""
    text = (ROOT / "README.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = project["urls"]["Documentation"]
    links = dict(re.findall(r"^\[(\w+)\]: (\S+)$", text, re.MULTILINE))

    assert "](" not in text
    assert set(re.findall(r"\]\[(\w+)\]", text)) == set(links)
    for link in links.values():
        assert link.startswith(site)
        page = link.removeprefix(site).replace(".html", ".md") or "index.md"
        assert (ROOT / "docs" / page).is_file(), link
