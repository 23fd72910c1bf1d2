"""The console script: exit statuses, one sentence for what the caller got wrong, and no needless imports."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cli.command import COMMAND
from support.waiting import eventually

from robots_guard.app.cli import main as cli
from robots_guard.errors import MissingExtra
from robots_guard.invocation import ALL_SETTINGS
from robots_guard.protocol import matcher
from robots_guard.testing import Reply


@pytest.mark.parametrize("core", ["compiled", "interpreted"])
def test_the_version_says_which_core_is_installed(core, capsys, monkeypatch):
    monkeypatch.setattr(cli, "is_compiled", lambda: core == "compiled")

    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"robots-guard {version('robots_guard')} (core: {core})\n"


def test_the_core_is_compiled_if_its_modules_are_no_python_files(apart):
    kind = "interpreted" if matcher.__file__.endswith(".py") else "compiled"

    assert apart("--version") == (0, f"robots-guard {version('robots_guard')} (core: {kind})\n", "")


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["check", "--help"],
        ["explain", "-h"],
        ["audit", "--help"],
        ["audit", "query", "-h"],
    ],
)
def test_help(here, args):
    status, out, err = here(*args)

    assert (status, err) == (0, "")
    assert out.startswith("Usage: robots-guard")


def test_help_lists_commands_without_importing_them(apart):
    assert {"audit", "check", "demo", "explain", "proxy", "why"} <= set(apart("--help").out.split())


@pytest.mark.parametrize(
    "args", [["--help"], ["check", "--robots", "/dev/null", "https://a.test/"], ["audit", "query"]]
)
def test_commands_do_not_import_the_integrations(variables, args, tmp_path):
    (tmp_path / "audit_log").mkdir()
    code = (
        "import sys; from robots_guard.app.cli.main import run; run(sys.argv[1:]);"
        "print(*{'scrapy', 'mitmproxy', 'twisted'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], check=False, capture_output=True, text=True, timeout=60
    )

    assert done.stderr.splitlines()[-1] == ""


WRONG = [
    (["chekc"], "No such command 'chekc': did you mean check?"),
    (["audit", "qurey"], "No such command 'qurey': did you mean query?"),
    (
        ["proxy", "mybot"],
        "No such command 'mybot': known are ca; the crawler's name is given with --agent",
    ),
    (["policy", "refrsh"], "No such command 'refrsh': did you mean refresh?"),
    (["nonsense"], "No such command 'nonsense'"),
    (["check"], "no URL is given: give at least one, such as https://example.com/page"),
    (["check", "--agnet", "x", "https://a.test/"], "No such option"),
    (["check", "a.test/x"], "'a.test/x' is not an absolute URL: begin with http:// or https://"),
    (["check", "example.com:8080/private/"], "begin with http:// or https://"),
    (["check", "https://a.test/", "localhost:8000/x"], "begin with http:// or https://"),
    (["check", "--robots", "/dev/null", "htp://a.test/"], "begin with http:// or https://"),
    (["check", "data:8080/x"], "begin with http:// or https://"),
    (["check", "ws://a.test/"], "begin with http:// or https://"),
    (["explain", "example.com:8080/private/"], "begin with http:// or https://"),
    (["check", "//a.test/x"], "begin with http:// or https://"),
    (
        ["check", "--agent", "my bot", "https://a.test/"],
        "--agent 'my bot' is not a product token: RFC 9309 section 2.2.1 does not allow a space in it;",
    ),
    (["check", "--agent", "", "https://a.test/"], "--agent is not set"),
    (
        ["check", "--store", "postgres://x", "https://a.test/"],
        "is not a store: use memory:, sqlite:///",
    ),
    (
        ["check", "--store", "sqlite:////proc/none/p.sqlite", "https://a.test/"],
        "name a writable file that no other program uses",
    ),
    (
        ["check", "--store", "sqlite:////proc", "https://a.test/"],
        "name a writable file that no other program uses",
    ),
    (
        ["check", "--audit-log", "/proc/none", "https://a.test/"],
        "name a directory that can be written to",
    ),
    (["check", "--dialect", "rfc9310", "https://a.test/"], "rfc9310"),
    (["check", "--matching", "loose", "https://a.test/"], "use spec, standard or strict"),
    (
        ["check", "--on-restricted", "perhaps", "https://a.test/"],
        "-restricted 'perhaps' is not known: use drop or allow",
    ),
    (
        ["check", "--max-defer", "soon", "https://a.test/"],
        "--max-defer 'soon' is not a number of seconds",
    ),
    (["check", "--robots", "/none", "https://a.test/"], "No such file"),
    (["check", "--batch", "/none"], "No such file"),
    (
        ["check", "--batch", "/dev/null", "https://a.test/"],
        "--batch takes URLs and robots.txt from its file",
    ),
    (["explain"], "Missing argument 'URL'"),
    (["explain", "a.test"], "begin with http:// or https://"),
    (["audit"], "Missing command"),
    (
        ["audit", "query", "--audit-log", "/none"],
        "name the directory that the integrations write to",
    ),
    (
        ["audit", "tail", "--audit-log", "/dev/null"],
        "name the directory that the integrations write to",
    ),
    *(
        (["audit", *command, "--audit-log", "/none"], "there is no audit log in '/none'")
        for command in (
            ["query"],
            ["tail"],
            ["verify"],
            ["report"],
            ["export", "--format", "ecs"],
            ["replay", "w-1"],
            ["bundle", "w-1"],
        )
    ),
    (["why", "https://a.test/", "--audit-log", "/none"], "there is no audit log in '/none'"),
    (["why", "a.test/x"], "begin with http:// or https://"),
    (["audit", "query", "--url", "a.test/x"], "begin with http:// or https://"),
    (["audit", "query", "--component", "proxi"], "'proxi' is not one of"),
    (["audit", "query", "--since", "long ago"], "use a span such as 90s, 30m, 2h or 7d"),
    (["audit", "query", "--origin", "a.test"], "give an origin such as https://example.com"),
    (["audit", "query", "--reason", "because"], "is not one of"),
    (
        ["audit", "tail", "--audit-log", "/none"],
        "name the directory that the integrations write to",
    ),
    (["audit", "export"], "Missing option '--format': choose from ecs, otel, heritrix, csv"),
]


@pytest.mark.parametrize(
    ("args", "sentence"), WRONG, ids=[" ".join(args)[:60] for args, _ in WRONG]
)
def test_usage_errors_are_one_sentence_and_status_2(here, args, sentence):
    status, out, err = here(*args)

    assert (status, out) == (2, "")
    assert err.startswith("robots-guard: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args", [WRONG[1][0], WRONG[6][0], WRONG[12][0], WRONG[15][0], WRONG[17][0]], ids=str
)
def test_installed_script_reports_usage_errors_too(apart, args):
    status, out, err = apart(*args)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "Traceback" not in err


def test_missing_agent_names_the_remedy(here, variables):
    variables.delenv("ROBOTS_GUARD_AGENT")

    assert here("check", "https://a.test/").err == (
        "robots-guard: --agent is not set: give the crawler's product token, such as 'mybot',"
        ' or write agent = "mybot" into robots_guard.toml\n'
    )


def test_misspelt_variable_is_an_error(here, variables):
    variables.setenv("ROBOTS_GUARD_ON_UNREACHABEL", "drop")
    status, _, err = here("check", "https://a.test/")

    assert status == 2
    assert (
        "unknown setting ROBOTS_GUARD_ON_UNREACHABEL: did you mean ROBOTS_GUARD_ON_UNREACHABLE?"
        in err
    )


@pytest.mark.parametrize(
    "command", [["audit", "query"], ["audit", "tail"], ["lint", "/dev/null"]], ids=str
)
def test_misspelt_variable_is_an_error_for_every_command(here, variables, command):
    variables.setenv("ROBOTS_GUARD_AUDIT_LGO", "/x")
    status, _, err = here(*command)

    assert status == 2
    assert "unknown setting ROBOTS_GUARD_AUDIT_LGO: did you mean ROBOTS_GUARD_AUDIT_LOG?" in err


def test_store_or_audit_log_path_is_taken_by_a_file(here, tmp_path):
    (tmp_path / "file").write_text("")
    store = here("check", "--store", f"sqlite:///{tmp_path}/file/p.sqlite", "https://a.test/")
    audit_log = here("check", "--audit-log", f"{tmp_path}/file/audit_log", "https://a.test/")

    assert (store.status, audit_log.status) == (2, 2)
    assert "name a writable file that no other program uses, or memory:" in store.err
    assert "name a directory that can be written to" in audit_log.err


def test_missing_extra_is_one_sentence(here, monkeypatch):
    monkeypatch.setitem(
        cli.COMMANDS, "proxy", cli.CommandEntry("no_such_package.proxy:proxy", "", "proxy")
    )

    assert here("proxy") == (
        2,
        "",
        f"robots-guard: {MissingExtra('proxy', 'robots-guard proxy')}\n",
    )


@pytest.mark.parametrize("package", ["scrapy", "mitmproxy"])
def test_demo_checks_its_extras_first(here, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)

    assert here("demo") == (2, "", f"robots-guard: {MissingExtra('all', 'robots-guard demo')}\n")


def test_internal_error_shows_a_traceback_and_is_no_verdict(here, monkeypatch):
    monkeypatch.setitem(
        cli.COMMANDS, "proxy", cli.CommandEntry("robots_guard.app.cli.no_such:proxy", "", "proxy")
    )
    status, out, err = here("proxy")

    assert (status, out) == (70, "")
    assert err.splitlines()[-1].startswith(
        "robots-guard: this is a bug in robots_guard (ModuleNotFoundError)"
    )


def test_unwritable_output_is_one_sentence_and_no_verdict(variables):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [COMMAND, "check", "--robots", "/dev/null", "https://a.test/"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    assert (done.returncode, done.stderr) == (2, "robots-guard: No space left on device\n")


@pytest.mark.parametrize(
    "command",
    [
        "check --robots /dev/null https://a.test/ >&-",
        "lint /dev/null >&-",
        "lint - <&-",
        "check --batch - <&-",
        "check --robots - https://a.test/ <&-",
        "explain --robots - https://a.test/ <&-",
    ],
)
def test_closed_stream_is_one_sentence_and_no_bug(variables, command):
    done = subprocess.run(
        ["bash", "-c", f"{COMMAND} {command}"],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )

    sentence = "robots-guard: standard input or output is closed: leave it open, or redirect it to /dev/null\n"
    assert (done.returncode, done.stderr) == (2, sentence)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["check", "explain"])
def test_endless_file_is_read_up_to_the_cap(here, command):
    status, _, err = here(command, "--robots", "/dev/zero", "https://a.test/")

    assert (status, err) == (3, "")  # what is no text permits nothing


def test_help_needs_no_extra(variables):
    code = "import sys; sys.modules['mitmproxy'] = None; from robots_guard.app.cli.main import main; main()"
    asked, run = (
        subprocess.run(
            [sys.executable, "-c", code, *args],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        for args in (["proxy", "--help"], ["proxy"])
    )

    assert (asked.returncode, asked.stderr) == (0, "")
    assert (run.returncode, run.stderr) == (
        2,
        f"robots-guard: {MissingExtra('proxy', 'the proxy')}\n",
    )


# -- ends that are nobody's fault ---------------------------------------------------------------------------


def test_ctrl_c_is_quiet(variables, net):
    site = net.origin(Reply(hang=True))
    child = subprocess.Popen(
        [COMMAND, "check", site.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    eventually(lambda: site.received)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)

    assert (child.returncode, out, err.strip()) == (130, b"", b"")


def test_ctrl_c_is_quiet_while_a_batch_waits_for_its_input(variables):
    child = subprocess.Popen(
        [COMMAND, "check", "--batch", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child.stdin.write(b'{"robots_txt":"","url":"http://a.test/"}\n')
    child.stdin.flush()
    assert b"pass" in child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    out, err = child.communicate(timeout=60)

    assert (out, err.strip()) == (b"", b"")


def test_broken_pipe_is_no_error(variables, tmp_path):
    (tmp_path / "robots.txt").write_text("")
    child = subprocess.Popen(
        [
            COMMAND,
            "check",
            "--robots",
            str(tmp_path / "robots.txt"),
            *(f"https://a.test/{n}" for n in range(5000)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child.stdout.readline()
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()

    assert (child.wait(60), err) == (141, b"")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "AGENT",
            "bot/2",
            "ROBOTS_GUARD_AGENT 'bot/2' is not a product token: RFC 9309",
        ),
        ("DIALECT", "nope", "ROBOTS_GUARD_DIALECT 'nope' is not known"),
        ("MAX_DEFER", "soon", "ROBOTS_GUARD_MAX_DEFER 'soon' is not a number of seconds"),
        (
            "REPORT_ONLY",
            "maybe",
            "ROBOTS_GUARD_REPORT_ONLY 'maybe' is not a switch: use true or false",
        ),
        ("COLOUR", "red", "unknown setting ROBOTS_GUARD_COLOUR: the nearest are ROBOTS_GUARD_"),
    ],
)
def test_wrong_value_in_the_environment_names_its_variable(here, variables, name, value, sentence):
    variables.setenv(f"ROBOTS_GUARD_{name}", value)
    status, out, err = here("check", "https://a.test/")

    assert (status, out) == (2, "")
    assert sentence in err
    assert "--" not in err.replace("--help", "").replace(ALL_SETTINGS, "")
    assert len(err) < 400


def test_option_overrides_the_environment_in_messages_too(here, variables):
    variables.setenv("ROBOTS_GUARD_MAX_DEFER", "soon")

    assert (
        "--max-defer 'late' is not" in here("check", "--max-defer", "late", "https://a.test/").err
    )


@pytest.mark.parametrize("command", ["check", "explain", "proxy", "serve", "console"])
def test_help_lists_what_people_use_and_names_where_the_rest_is(here, command):
    status, out, _ = here(command, "--help")
    everything = here(command, "--help-all").out

    assert status == 0
    assert len(out.splitlines()) < 110
    assert "--agent " in out
    assert "--max-defer" not in out
    assert "--max-defer" in everything
    assert f"robots-guard {command} --help-all lists" in " ".join(out.split())
    assert "--help-all lists" not in " ".join(everything.split())


def test_bare_command_prints_help(here):
    assert here() == here("--help")


def test_help_lists_settings_in_sections(here):
    from robots_guard.app.cli.options import HEADINGS, OTHER
    from robots_guard.app.cli.proxy import proxy
    from robots_guard.configuration.settings import PROXY_NAMES

    shown = here("proxy", "--help-all").out
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    sections = {
        option.name: option.section for option in proxy.params if option.name in PROXY_NAMES
    }

    assert sorted(titles) == sorted(["Options", *HEADINGS, OTHER, "Commands"])
    assert set(sections) == set(PROXY_NAMES)
    assert sections["audit_log"] == "Audit log"
    assert sections["purpose_tokens"] == "Use of content"
    assert titles.index("Options") < titles.index("Crawler")
    assert shown.index("--listen") < shown.index("--agent ")
