"""The console script: exit statuses, one sentence for what the caller got wrong, and no needless imports."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
from cli.command import COMMAND

from robots_guard import cli
from robots_guard.errors import MissingExtra
from robots_guard.testing import Reply


def test_the_version(apart):
    assert apart("--version") == (0, f"robots-guard {version('robots_guard')}\n", "")


@pytest.mark.parametrize(
    "args", [["--help"], ["check", "--help"], ["explain", "-h"], ["audit", "--help"], ["audit", "query", "-h"]]
)
def test_help(here, args):
    status, out, err = here(*args)

    assert (status, err) == (0, "")
    assert out.startswith("Usage: robots-guard")


def test_help_lists_all_commands_and_imports_none(apart):
    assert {"audit", "check", "demo", "explain", "proxy"} <= set(apart("--help").out.split())


@pytest.mark.parametrize(
    "args", [["--help"], ["check", "--robots", "/dev/null", "https://a.test/"], ["audit", "query"]]
)
def test_no_command_pays_for_the_hosts(variables, args, tmp_path):
    (tmp_path / "journal").mkdir()
    code = (
        "import sys; from robots_guard import cli; cli.run(sys.argv[1:]);"
        "print(*{'scrapy', 'mitmproxy', 'twisted'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], check=False, capture_output=True, text=True, timeout=60)

    assert done.stderr.strip() == ""


WRONG = [
    ([], "Missing command"),
    (["chekc"], "No such command 'chekc'"),
    (["check"], "no URL is given: name at least one, such as https://example.com/page"),
    (["check", "--agnet", "x", "https://a.test/"], "No such option"),
    (["check", "a.test/x"], "'a.test/x' is no absolute URL: begin with http:// or https://"),
    (["check", "//a.test/x"], "begin with http:// or https://"),
    (["check", "--agent", "my bot", "https://a.test/"], "agent = 'my bot' is not a product token: use letters"),
    (["check", "--agent", "", "https://a.test/"], "--agent is not set"),
    (["check", "--store", "postgres://x", "https://a.test/"], "is not a store: use memory:, sqlite:///"),
    (["check", "--store", "sqlite:////proc/none/p.sqlite", "https://a.test/"], "name a writable file of its own"),
    (["check", "--store", "sqlite:////proc", "https://a.test/"], "name a writable file of its own"),
    (["check", "--journal", "/proc/none", "https://a.test/"], "name a directory that can be written to"),
    (["check", "--dialect", "rfc9310", "https://a.test/"], "rfc9310"),
    (["check", "--matching", "loose", "https://a.test/"], "use one of spec, standard, strict"),
    (["check", "--on-restricted", "perhaps", "https://a.test/"], "perhaps"),
    (["check", "--max-defer", "soon", "https://a.test/"], "max_defer"),
    (["check", "--robots", "/none", "https://a.test/"], "No such file"),
    (["check", "--batch", "/none"], "No such file"),
    (["check", "--batch", "/dev/null", "https://a.test/"], "--batch brings its own URLs"),
    (["explain"], "Missing argument 'URL'"),
    (["explain", "a.test"], "begin with http:// or https://"),
    (["audit"], "Missing command"),
    (["audit", "query", "--journal", "/none"], "name the directory that the doors write to"),
    (["audit", "tail", "--journal", "/dev/null"], "name the directory that the doors write to"),
    (["audit", "query", "--since", "yesterday"], "use a span such as 90s, 30m, 2h, 7d"),
    (["audit", "query", "--origin", "a.test"], "give an origin such as https://example.com"),
    (["audit", "query", "--reason", "because"], "is not one of"),
]


@pytest.mark.parametrize(("args", "sentence"), WRONG, ids=[" ".join(args)[:60] for args, _ in WRONG])
def test_what_the_caller_got_wrong_is_one_sentence_and_status_2(here, args, sentence):
    status, out, err = here(*args)

    assert (status, out) == (2, "")
    assert err.startswith("robots-guard: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("args", [WRONG[1][0], WRONG[6][0], WRONG[9][0], WRONG[11][0]], ids=str)
def test_the_same_of_the_real_script(apart, args):
    status, out, err = apart(*args)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "Traceback" not in err


def test_no_agent_is_answered_with_the_remedy(here, variables):
    variables.delenv("ROBOTS_GUARD_AGENT")

    assert here("check", "https://a.test/").err == (
        "robots-guard: --agent is not set: give the crawler's product token, such as 'mybot'\n"
    )


def test_a_misspelt_variable_is_not_passed_over(here, variables):
    variables.setenv("ROBOTS_GUARD_ON_UNREACHABEL", "drop")
    status, _, err = here("check", "https://a.test/")

    assert status == 2
    assert "unknown setting ROBOTS_GUARD_ON_UNREACHABEL: did you mean ROBOTS_GUARD_ON_UNREACHABLE?" in err


def test_a_file_in_the_way_of_store_or_journal(here, tmp_path):
    (tmp_path / "file").write_text("")
    store = here("check", "--store", f"sqlite:///{tmp_path}/file/p.sqlite", "https://a.test/")
    journal = here("check", "--journal", f"{tmp_path}/file/journal", "https://a.test/")

    assert (store.status, journal.status) == (2, 2)
    assert "name a writable file of its own, or memory:" in store.err
    assert "name a directory that can be written to" in journal.err


def test_an_extra_that_is_not_installed_is_one_sentence(here, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "proxy", cli.Entry("no_such_package.proxy:proxy", "", "proxy"))

    assert here("proxy") == (2, "", f"robots-guard: {MissingExtra('proxy', 'robots-guard proxy')}\n")


def test_a_fault_of_ours_is_not_hidden(here, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "proxy", cli.Entry("robots_guard.cli.no_such:proxy", "", "proxy"))

    with pytest.raises(ModuleNotFoundError):
        here("proxy")


# -- ends that are nobody's fault ---------------------------------------------------------------------------


def test_ctrl_c_is_quiet(variables, net):
    site = net.origin(Reply(hang=True))
    child = subprocess.Popen([COMMAND, "check", site.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: site.received)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)

    assert (child.returncode, out, err.strip()) == (130, b"", b"")


def test_ctrl_c_is_quiet_while_a_batch_waits_for_its_input(variables):
    child = subprocess.Popen(
        [COMMAND, "check", "--batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdin.write(b'{"robots_txt":"","url":"http://a.test/"}\n')
    child.stdin.flush()
    assert b"pass" in child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    out, err = child.communicate(timeout=30)

    assert (out, err.strip()) == (b"", b"")


def test_a_reader_that_goes_away_is_no_error(variables, tmp_path):
    (tmp_path / "robots.txt").write_text("")
    child = subprocess.Popen(
        [COMMAND, "check", "--robots", str(tmp_path / "robots.txt"), *(f"https://a.test/{n}" for n in range(5000))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child.stdout.readline()
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()

    assert (child.wait(30), err) == (141, b"")


def until(condition):
    """Wait for something another process does."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
