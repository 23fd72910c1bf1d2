"""`lint` where changes are checked: the GitHub Action, whose steps run here, and the hook for pre-commit."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import ruamel.yaml as yaml
from release.conftest import ROOT
from support.programs import program

GOOD = "User-agent: *\nDisallow: /private/\n"
BAD = "User-agent: *\nDisalow: /private/\n"


def read(name):
    return yaml.YAML(typ="safe").load(ROOT / name)


@pytest.fixture
def checkout(tmp_path):
    """A repository with two files, one of them wrong."""
    for place, text in {"robots.txt": GOOD, "site/a b/robots.txt": BAD, "other.txt": BAD}.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    return tmp_path


@pytest.fixture
def lint(checkout, tmp_path_factory):
    """Run the step `lint` of the action as a runner does."""
    action = read("action.yml")
    (step,) = [each for each in action["runs"]["steps"] if each.get("id") == "lint"]
    runner = tmp_path_factory.mktemp("runner")
    (runner / "robots_guard").symlink_to(sys.prefix)  # what the first step installs

    def lint(**given):
        inputs = {name: value["default"] for name, value in action["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        variables = {
            name: inputs[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]]
            for name, value in step["env"].items()
        }
        places = {"RUNNER_TEMP": str(runner), "GITHUB_OUTPUT": str(runner / "output")}
        return subprocess.run(
            [program("bash"), "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=checkout,
            env=os.environ | variables | places,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    lint.output = runner / "output"
    return lint


def test_the_action_annotates_each_file_and_fails(lint, checkout):
    done = lint(sarif="found.sarif", dialects="rfc9309 google")
    found = json.loads((checkout / "found.sarif").read_text())
    places = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in found["runs"][0]["results"]
    }

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=site/a b/robots.txt,line=2")
    assert places == {"site/a%20b/robots.txt"}
    assert lint.output.read_text() == "sarif=found.sarif\n"


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"files": "robots.txt"}, 0, ""),
        ({"fail_on": "never"}, 0, "::error file=site/a b/robots.txt"),
        ({"files": "robots.txt\nother.txt"}, 1, "::error file=other.txt"),
        ({"files": "nothing/*"}, 2, "::error::no file matches"),
        ({"files": "$(touch pwned)"}, 2, "'$(touch pwned)' cannot be read"),
        ({"files": "robots.txt", "agent": "$(touch pwned)"}, 2, "is not a product token"),
    ],
    ids=str,
)
def test_inputs_of_the_action(lint, checkout, given, status, said):
    done = lint(**given)

    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert not (checkout / "pwned").exists()


def test_scripts_of_the_action_contain_no_expressions():
    assert not [step for step in read("action.yml")["runs"]["steps"] if "${{" in step["run"]]


def test_the_hook_lints_the_files_that_it_is_given(checkout):
    (hook,) = read(".pre-commit-hooks.yaml")
    names = [
        path.relative_to(checkout).as_posix() for path in checkout.rglob("*") if path.is_file()
    ]
    matched = [name for name in names if re.search(hook["files"], name)]
    command = shlex.split(hook["entry"])
    command[0] = str(Path(sys.prefix) / "bin" / command[0])
    done = subprocess.run(
        [*command, *matched], cwd=checkout, capture_output=True, text=True, timeout=60, check=False
    )

    assert sorted(matched) == ["robots.txt", "site/a b/robots.txt"]
    assert done.returncode == 1
    assert "robots.txt: no findings" in done.stdout
    assert "site/a b/robots.txt:2: error" in done.stdout
