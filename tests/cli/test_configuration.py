"""The commands with a configuration file: what they read, and how they name a faulty value."""

from __future__ import annotations

import json

import pytest

ROBOTS = "User-agent: filebot\nDisallow: /private\n\nUser-agent: *\nDisallow:\n"


@pytest.fixture
def file(variables, tmp_path):
    """A configuration file, and an environment without any settings."""
    for name in ("AGENT", "STORE", "AUDIT_LOG"):
        variables.delenv(f"ROBOTS_GUARD_{name}")
    (tmp_path / "robots.txt").write_text(ROBOTS)
    path = tmp_path / "robots_guard.toml"
    path.write_text(
        'agent = "filebot"\n'
        'store = "sqlite:///file.sqlite"\n'
        'audit_log = "log"\n'
        'overrides = "overrides.toml"\n'
        '[console]\nlisten = "nowhere"\nagent = "consolebot"\n'
        '[proxy]\nconfdir = "ca"\n'
    )
    return path


def test_the_file_may_be_named_before_and_after_the_command(here, file, tmp_path):
    question = ("check", "--robots", tmp_path / "robots.txt", "https://a.test/private")

    assert here("--config", file, *question).status == 1
    assert here(*question, "--config", file).status == 1
    assert here(*question, "--config", file, "--agent", "other").status == 0
    assert "--agent is not set" in here(*question).err
    assert "--agent is not set" in here(*question, "--config", "").err


def test_the_variable_names_the_file_too(here, file, variables, tmp_path):
    variables.setenv("ROBOTS_GUARD_CONFIG", str(file))
    question = ("check", "--robots", tmp_path / "robots.txt", "https://a.test/private")

    assert here(*question).status == 1
    variables.setenv("ROBOTS_GUARD_AGENT", "other")
    assert here(*question).status == 0


def test_each_command_takes_its_places_from_the_file(here, file, tmp_path):
    (tmp_path / "overrides.toml").write_text("[[override]]\nid = 'x'\n")
    wanted = {
        ("policy", "show"): f"{tmp_path}/file.sqlite",
        ("audit", "tail"): f"there is no audit log in '{tmp_path}/log'",
        ("audit", "hold"): f"there is no audit log in '{tmp_path}/log'",
        ("why", "https://a.test/"): f"there is no audit log in '{tmp_path}/log'",
    }
    for command, sentence in wanted.items():
        status, _, err = here("--config", file, *command)
        assert (status, sentence in err) == (2, True), (command, err)
    assert here("overrides", "check", "--config", file).err.startswith("x: ")


def test_a_batch_without_an_agent_uses_that_of_the_file(apart, file):
    question = json.dumps({"robots_txt": ROBOTS, "url": "https://a.test/private"})
    done = apart("check", "--batch", "-", "--config", file, stdin=question)

    assert json.loads(done.out)["action"] == "drop"


def test_an_error_names_the_place_of_the_value(here, file):
    assert f"{file}:6: listen 'nowhere' is not an address" in here("console", "--config", file).err
    err = here("console", "--config", file, "--listen", "x").err
    assert "--listen 'x' is not an address" in err
    file.write_text("agent = 'my bot'\n")
    assert (
        f"{file}:1: agent 'my bot' is not a product token"
        in here("--config", file, "policy", "refresh", "https://a.test").err
    )
