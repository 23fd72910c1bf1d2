"""The command where the locale's encoding is not UTF-8: what is disallowed stays so, and nothing is lost in writing.

Python then puts a lone surrogate in the place of each byte of an argument that it cannot decode (PEP 383), and its
standard output has no character for most of what a robots.txt may hold.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cli.command import argument, quiet

RULES = "User-agent: *\nDisallow: /größe/\nDisallow: /日本/\n"
SHOWN = "http://a.test/gr%C3%B6%C3%9Fe/1"


# Prints what a program learns of its locale, and how it reads and writes in it.
PRINTS = """
import locale, os, sys
streams = [sys.stdin, sys.stdout, sys.stderr]
found = [(each.encoding, each.errors) for each in streams]
print(ascii([sys.argv[1:], found, sys.getfilesystemencoding(), locale.getpreferredencoding(False)]))
print(ascii([sys.stdin.readline(), os.environ["NAME"], locale.setlocale(locale.LC_CTYPE)]))
sys.stderr.write("größe 日本\\n")
sys.stdout.write("größe\\n")
"""


@pytest.fixture
def rules(tmp_path):
    file = tmp_path / "robots.txt"
    file.write_text(RULES, "utf-8")
    return file


def test_a_fork_has_the_locale_and_streams_of_a_program(locale, tmp_path):
    """The other tests run the command as a fork, because that starts faster."""
    _, environment, forks = locale
    script = tmp_path / "script.py"
    script.write_text(PRINTS, "utf-8")
    command = [str(script), "größe", "gr\udcf6\udcdfe"]
    environment = environment | {"NAME": "größe"}
    read = "größe\n".encode()
    fork = forks.run_in_bytes(command, environment, 60, read)
    program = subprocess.run(
        [sys.executable, *command], input=read, capture_output=True, env=environment, check=False
    )

    assert (fork.returncode, fork.stdout) == (program.returncode, program.stdout)
    assert fork.stderr.splitlines()[-1:] == program.stderr.splitlines()[-1:]


def test_disallowed_url_is_refused_and_shown_as_judged(ran, rules):
    done = quiet(ran("check", "--robots", rules, argument(ran, "http://a.test/größe/1")))

    assert done.returncode == 1
    verdict, reason, url, rule, line, _ = done.stdout.rstrip(b"\n").split(b"\t")
    assert (verdict, reason, url, line) == (b"drop", b"disallowed", SHOWN.encode(), b"2")
    assert rule.startswith(b"Disallow: /gr")


def test_bytes_that_are_not_utf_8_are_kept(ran, rules):
    done = quiet(ran("check", "--robots", rules, b"http://a.test/gr\xf6\xdfe/1"))

    # Where they are text, they are the text.
    shown = SHOWN if ran.latin_1 else "http://a.test/gr%F6%DFe/1"
    assert (done.returncode, shown.encode() in done.stdout) == (1, True)


@pytest.mark.parametrize("command", ["check", "explain"])
def test_json_is_ascii_and_complete(ran, rules, command):
    url = argument(ran, "http://größe.test/größe/1")
    done = quiet(ran(command, "--json", "--robots", rules, url))

    said = json.loads(done.stdout)
    assert (done.returncode, said["url"]) == (1, "http://xn--gre-6ka8i.test/gr%C3%B6%C3%9Fe/1")
    assert said["rule"] == "Disallow: /größe/"
    assert done.stdout.isascii()


def test_explanation_is_printed_completely(ran, rules):
    done = quiet(ran("explain", "--robots", rules, "http://a.test/%E6%97%A5%E6%9C%AC/1"))

    assert done.returncode == 1
    assert b"source" in done.stdout.splitlines()[-1]


def test_lint_names_file_and_lines(ran, rules):
    file = rules.rename(rules.with_name("größe.txt"))
    for form in ("text", "json", "sarif", "github"):
        done = quiet(ran("lint", "--format", form, file))
        assert done.returncode == 0
        assert b"RG314" in done.stdout


def test_batch_answers_each_line(ran):
    lines = [
        {"id": "ö", "url": "http://a.test/größe/1", "robots_txt": RULES, "user_agent": "mybot"},
        {
            "id": 2,
            "url": "http://a.test/gr\udcc3\udcb6\udcc3\udc9fe/1",
            "robots_txt": RULES,
            "user_agent": "mybot",
        },
        {
            "id": 3,
            "url": "http://a.test/x",
            "robots_txt": "User-agent: *\nDisallow: /\udcff",
            "user_agent": "mybot",
        },
    ]
    raw = [json.dumps(lines[0], ensure_ascii=False), *map(json.dumps, lines[1:])]
    done = quiet(ran("check", "--batch", "-", stdin="\n".join(raw).encode()))

    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["id"], each.get("action")) for each in said] == [
        ("ö", "drop"),
        (2, "drop"),
        (3, "pass"),
    ]
    assert done.returncode == 0


@pytest.mark.parametrize("field", ["url", "robots_txt"])
def test_invalid_surrogate_in_a_batch_is_an_error(ran, field):
    ask = {"url": "http://a.test/größe/1", "robots_txt": RULES, "user_agent": "mybot"}
    ask[field] += "\ud83d"
    done = quiet(ran("check", "--batch", "-", stdin=json.dumps(ask).encode()))

    said = json.loads(done.stdout)
    assert said.get("action") == "drop" or (done.returncode == 2 and "surrogate" in said["error"])


def test_audit_log_and_store_can_have_such_names(ran, tmp_path):
    """Port 9 is none of the web's: nothing is connected to, and the refusal is recorded."""
    place = tmp_path / "größe"
    store = f"sqlite:///{place}/policies.sqlite"
    place.mkdir()
    options = (
        "--audit-log",
        place / "audit_log",
        "--store",
        store,
        "--audit-job",
        "größe",
        "--user-agent",
        "größe/1",
    )
    done = quiet(ran("check", *options, argument(ran, "http://127.0.0.1:9/größe")))

    assert done.returncode == 3
    (file,) = (place / "audit_log").glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [each["kind"] for each in records] == ["start", "fetch", "decision", "stop"]
    assert [each["seq"] for each in records] == [1, 2, 3, 4]
    assert records[2]["url"] == "http://127.0.0.1:9/gr%C3%B6%C3%9Fe"
    if not ran.latin_1:
        assert {each["job"] for each in records} == {"größe"}
        assert records[0]["settings"]["store"] == store
    assert quiet(ran("policy", "show", "--json", "--store", store)).returncode == 0


def test_overrides_are_reported(ran, tmp_path):
    file = tmp_path / "größe.toml"
    entry = {"id": "größe", "owner": "jürgen", "reason": "日本", "origin": "https://größe.test"}
    text = "\n".join(f'{name} = "{value}"' for name, value in entry.items())
    file.write_text(f"[[override]]\n{text}\nexpires = 2999-01-01\nmax_delay = 1\n", "utf-8")
    done = ran("overrides", "check", "--json", file)

    said = json.loads(done.stdout)
    assert (said["id"], said["owner"], said["reason"]) == ("größe", "jürgen", "日本")
    assert (done.returncode, done.stderr) == (0, b"1 in force, 0 expired, 0 invalid\n")
    assert b"\nin force\t" in ran("overrides", "check", file).stdout


def test_list_of_origins_is_read(ran, tmp_path):
    listed = (
        "http://127.0.0.1:9/größe\nhttp://größe.invalid\n".encode() + b"http://gr\xf6\xdfe.test/\n"
    )
    done = quiet(ran("policy", "refresh", "--from", "-", "--json", stdin=listed))

    assert done.returncode == 2
    assert b"line 3" in done.stderr
    assert [json.loads(line)["origin"] for line in done.stdout.splitlines()] == [
        "http://127.0.0.1:9",
        "http://xn--gre-6ka8i.invalid",
    ]
