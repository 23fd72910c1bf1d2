"""The man pages: one for each command, with all of its options, and correct in both formatters."""

from __future__ import annotations

import re
import subprocess

import pytest
from support.programs import program

from robots_guard.cli.main import NAME, commands
from robots_guard.cli.reference.description import all_commands, describe
from robots_guard.cli.reference.man_page import man_pages, page_name

ROOT = describe(commands, NAME)
COMMANDS = list(all_commands(ROOT))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man1")
    for name, page in man_pages(ROOT, "1.2.3").items():
        (folder / name).write_text(page)
    return folder


def _shown(page):
    command = [program("mandoc"), "-T", "utf8", "-O", "width=200", str(page)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(".\b", "", shown)  # what the formatter overstrikes to make it bold


def test_there_is_a_page_for_each_command(pages):
    names = {path.name for path in pages.iterdir()}

    assert names == {f"{page_name(command)}.1" for command in COMMANDS}
    assert {"robots-guard.1", "robots-guard-check.1", "robots-guard-audit-hold-add.1"} <= names


def test_mandoc_has_no_objections(pages):
    # A page has no date: a date would make two builds of one version differ.
    command = [program("mandoc"), "-T", "lint", "-W", "warning", *map(str, pages.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    objections = [line for line in done.stdout.splitlines() if "missing date" not in line]

    assert objections == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_page_has_everything_that_help_has(pages, command):
    shown = " ".join(_shown(pages / f"{page_name(command)}.1").split())

    assert f"{command.name} {command.usage}" in shown
    for option in command.options:
        assert f"{option.synopsis} {option.help}".strip() in shown
    for each in command.commands:
        assert f"{page_name(each)}(1) {each.summary}" in shown
