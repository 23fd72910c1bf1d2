"""The command lines that the program prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from robots_guard.invocation import BARE, EVIDENCE, Invocation, invocation_for

LOG = Invocation({"audit_log": "/logs/a b"})
FILE = Invocation({"audit_log": "/log"}, "/x/robots_guard.toml", frozenset({"store"}))


@pytest.mark.parametrize(
    ("invocation", "needs", "options"),
    [
        (BARE, EVIDENCE, []),
        (LOG, ("audit_log",), ["--audit-log", "/logs/a b"]),
        (LOG, ("store",), []),
        (FILE, EVIDENCE, ["--audit-log", "/log", "--config", "/x/robots_guard.toml"]),
        (FILE, ("store",), ["--config", "/x/robots_guard.toml"]),
        (FILE, ("audit_log",), ["--audit-log", "/log"]),
    ],
)
def test_a_command_names_what_it_depends_on_and_a_shell_does_not_find(invocation, needs, options):
    line = invocation.command("audit", "bundle", "w-1", needs=needs)

    assert shlex.split(line) == ["robots-guard", "audit", "bundle", "w-1", *options]


@pytest.mark.parametrize("word", ["a b", "$(reboot)", "`reboot`", "it's", "a\nb", ""])
def test_a_word_is_quoted_for_the_shell(word):
    assert shlex.split(BARE.command("why", word)) == ["robots-guard", "why", word]


def test_the_command_for_an_audit_log_names_it_by_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = invocation_for(Path("log")).command("audit", "hold")

    assert line == f"robots-guard audit hold --audit-log {tmp_path}/log"
