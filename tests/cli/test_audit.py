"""`audit`: what the doors decided, searched and followed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time

import msgspec
import pytest
from audit.decisions import AT, DEFER, decision
from cli.command import COMMAND

from robots_guard.audit.journal import FileJournal
from robots_guard.audit.record import record_of


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def journal(directory):
    made = FileJournal(directory, passes=True)
    made.write(decision("https://a.test/private/1", door="scrapy"))
    made.write(decision("https://b.test/private/2?token=abc", door="mitmproxy", at=AT + 1))
    made.write(decision("https://a.test/3", verdict=DEFER, at=AT + 2, agent="otherbot"))
    yield made
    made.close()


def test_a_row_a_record_nothing_cut(here, journal):
    journal.write(decision("https://a.test/" + "x" * 500, at=AT + 3))
    status, out, err = here("audit", "query")
    lines = out.splitlines()

    assert (status, err) == (0, "")
    assert lines[0].split("\t") == [
        "drop",
        "2027-01-15T08:00:00.000Z",
        "scrapy",
        "mybot",
        "disallowed",
        "https://a.test/private/1",
        "Disallow: /private/",
        "2",
    ]
    assert lines[3].split("\t")[5] == "https://a.test/" + "x" * 500


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--origin", "https://a.test"], [1, 3]),
        (["--origin", "https://A.test:443/some/page"], [1, 3]),
        (["--reason", "unreachable"], [3]),
        (["--action", "drop"], [1, 2]),
        (["--door", "scrapy"], [1]),
        (["--door", "proxy"], [2]),
        (["--agent", "OtherBot"], [3]),
        (["--since", "2027-01-15T08:00:01"], [2, 3]),
        (["--since", "2027-01-15T09:00:01+01:00"], [2, 3]),
        (["--until", "2027-01-15T08:00:01Z"], [1]),
        (["--until", "1h"], []),
        (["--limit", "2"], [1, 2]),
        (["--action", "drop", "--door", "mitmproxy"], [2]),
    ],
    ids=str,
)
def test_filters_and_json(here, journal, options, found):
    status, out, _ = here("audit", "query", "--json", *options)

    assert status == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == found


def test_a_refusal_is_found_by_its_reference(here, journal):
    journal.write(msgspec.structs.replace(decision("https://a.test/private/4", at=AT + 4), id="w-4"))
    (found,) = here("audit", "query", "--id", "w-4", "--json").out.splitlines()

    assert json.loads(found)["url"] == "https://a.test/private/4"
    assert here("audit", "query", "--id", "none").out == ""


def test_nothing_recorded_yet_is_told(here, directory):
    directory.mkdir()

    assert here("audit", "query") == (0, "", f"robots-guard: nothing has been recorded yet in {directory}\n")


def test_tail_waits_for_the_first_record(variables, directory):
    child = subprocess.Popen([COMMAND, "audit", "tail", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr.readline() == (
        f"robots-guard: nothing has been recorded yet in {directory}; waiting for the first record\n".encode()
    )
    journal = FileJournal(directory, passes=False)
    journal.write(decision("https://a.test/private/"))
    assert json.loads(child.stdout.readline())["url"] == "https://a.test/private/"
    journal.close()
    child.send_signal(signal.SIGINT)

    assert child.wait(30) == 130
    child.communicate(timeout=30)


def test_json_is_the_line_of_the_journal(here, journal):
    assert here("audit", "query", "--json").out == journal.path.read_text()


def test_unreadable_lines_are_told_and_do_not_hide_the_rest(here, journal):
    (journal.directory / "torn.jsonl").write_bytes(b"\x1b]0;evil\x07\n" + journal.path.read_bytes()[:300])
    status, out, err = here("audit", "query")

    assert (status, len(out.splitlines())) == (0, 3)
    assert err == "robots-guard: 2 unreadable lines in torn.jsonl\n"


def test_records_cannot_steer_the_terminal(here, directory):
    directory.mkdir()
    hostile = json.loads(record_of(decision()).line_of_json())
    hostile |= {"url": "https://a.test/\x1b[2J\n\tdrop[red]\u202e", "door": "\x9b31m", "rule": "[link=x]\r"}
    (directory / "a.jsonl").write_text(json.dumps(hostile) + "\n")
    out = here("audit", "query").out

    assert len(out.splitlines()) == 1
    assert out.replace("\t", "").rstrip("\n").isprintable()
    assert "drop[red]" in out


def test_tail_shows_the_latest(here, journal):
    _, out, _ = here("audit", "tail", "-n", 2, "--no-follow", "--json")

    assert [json.loads(line)["seq"] for line in out.splitlines()] == [2, 3]
    assert here("audit", "tail", "-n", 0, "--no-follow").out == ""


def test_tail_follows_all_files_and_ends_quietly(variables, journal, directory):
    child = subprocess.Popen(
        [COMMAND, "audit", "tail", "-n", "1", "--action", "drop", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = [json.loads(child.stdout.readline())["url"]]
    journal.write(decision("https://a.test/private/4", at=AT + 4))
    seen.append(json.loads(child.stdout.readline())["url"])
    journal.write(decision("https://a.test/5", verdict=DEFER, at=AT + 5))
    late = FileJournal(directory, passes=False)
    late.write(decision("https://late.test/private/", at=AT + 6))
    seen.append(json.loads(child.stdout.readline())["url"])
    late.close()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)

    assert seen == [
        "https://b.test/private/2?token=REDACTED",
        "https://a.test/private/4",
        "https://late.test/private/",
    ]
    assert (child.returncode, out, err.strip()) == (130, b"", b"")


@pytest.mark.parametrize("args", [["query"], ["tail", "--no-follow"]], ids=str)
def test_on_a_terminal_a_table_with_colours_and_no_markup_obeyed(variables, journal, args):
    journal.write(decision("https://a.test/[red]x[/red]", at=AT + 7))
    shown = on_a_terminal("audit", *args)

    assert b"\x1b[31mdrop" in shown
    assert b"\x1b[33mdefer" in shown
    assert b"[red]x[/red]" in shown


def on_a_terminal(*args) -> bytes:
    """What the command writes to a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen([COMMAND, *args], stdout=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert child.wait(30) == 0
    return shown
