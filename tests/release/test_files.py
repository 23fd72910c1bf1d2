"""What a release consists of: nothing is missing from it, and nothing is in it by accident."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from release.conftest import ROOT, script
from support.programs import program

import robots_guard

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GENERATED = {"PKG-INFO"}


def test_two_builds_are_equal_and_accepted_by_twine(release):
    assert "release: two builds are equal" in release.output
    assert release.output.count("PASSED") == 2


def test_compiled_wheels_are_built_from_the_sdist(release, tmp_path, monkeypatch):
    releasing = script(ROOT / ".ci" / "release.py")
    sources = set()

    def compiled_wheel(python, sdist, place):
        sources.add(sdist)
        place.mkdir(parents=True)
        wheel = place / "compiled.whl"
        wheel.touch()
        return wheel

    monkeypatch.setattr(releasing, "_compiled_wheel", compiled_wheel)
    built = sorted(release.directory.glob("robots_guard-*"))  # the wheel is the first
    releasing.build_compiled(built, tmp_path, tmp_path)

    assert [path.name for path in sources] == [f"{release.sdist.name}.tar.gz"]


def test_the_sums_are_those_of_the_files(release):
    lines = (release.directory / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    files = {path.name: path for path in release.directory.iterdir() if path.name != "SHA256SUMS"}

    assert set(listed) == set(files)
    for name, path in files.items():
        assert listed[name] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_sdist_is_what_git_has(release):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    command = [program("git"), "ls-files", "-z", "--cached"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    known = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
    shipped = {
        path.relative_to(release.sdist).as_posix()
        for path in release.sdist.rglob("*")
        if path.is_file()
    }

    assert known - shipped == set()
    assert {name for name in shipped - known - GENERATED if not _is_new(name)} == set()


def _is_new(name: str) -> bool:
    """Whether git does not know a file that it does not ignore either: one that is about to be added."""
    command = [program("git"), "ls-files", "--others", "--exclude-standard", "--", name]
    return bool(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def test_the_wheel_has_the_package_and_what_belongs_to_the_command(release):
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "robots_guard").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    beside = {name for name in release.wheel_names if not name.startswith("robots_guard/")}
    kinds = {_kind(name) for name in beside}

    assert {name for name in release.wheel_names if name.startswith("robots_guard/")} == package
    assert kinds == {
        "dist-info/METADATA",
        "dist-info/RECORD",
        "dist-info/WHEEL",
        "dist-info/entry_points.txt",
        "dist-info/licenses/LICENSE",
    }


def _kind(name: str) -> str:
    return re.sub(r"^robots_guard-[^/]+\.dist-info/", "dist-info/", name)


def test_the_wheel_is_typed(release):
    assert "robots_guard/py.typed" in release.wheel_names


def test_the_metadata_says_who_where_and_what(release):
    metadata = release.metadata
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))

    assert urls == PROJECT["urls"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog", "Security"} <= set(urls)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert metadata["Maintainer"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(metadata["Summary"]) <= 512  # the index refuses more


def test_the_classifiers_name_the_pythons_that_are_tested(release):
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    tested = {f"3.{minor}" for minor in re.findall(r"\bpy3(\d+)\b", tox.split("\n\n")[0])}
    named = {
        each.rpartition(" ")[2]
        for each in release.metadata.get_all("Classifier")
        if re.search(r"Python :: 3\.\d+$", each)
    }

    assert named == tested


LINK = re.compile(
    r"""\]\(\s*<?([^)\s>]+)|^\[[^]]+\]:\s*(\S+)|<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=["']([^"']+)""",
    re.MULTILINE,
)


def test_links_of_the_long_description_are_absolute(release):
    """A package index has none of the files of the tree."""
    text = re.sub(r"```.*?```", "", release.metadata.get_payload(), flags=re.DOTALL)
    links = ["".join(groups) for groups in LINK.findall(text)]

    assert len(links) > 10
    assert [link for link in links if not re.match(r"https://|#|mailto:", link)] == []


ADDRESS = re.compile(
    r"https://github\.com/(robots-guard/[\w.-]+?)(?:\.git)?(?=[/\s)\"'>@#,]|\.\s|$)"
)


def test_every_file_names_the_same_repository():
    repository = PROJECT["urls"]["Source"].removeprefix("https://github.com/")
    named = {}
    for pattern in (
        "*.md",
        "*.yml",
        "*.yaml",
        "*.toml",
        "docs/**/*.md",
        "examples/**/*",
        "robots_guard/**/*.py",
    ):
        for path in ROOT.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                for found in ADDRESS.findall(path.read_text(encoding="utf-8")):
                    named.setdefault(found, path.name)

    assert set(named) == {repository}, named


def test_the_tests_can_be_run_from_the_sdist(release):
    # Tests that read the pages, the code and the data of the tests.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"),
            *("tests/decisions/test_reasons.py", "tests/protocol/test_dialects.py"),
        ],
        cwd=release.sdist,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:]


def test_the_changelog_has_a_section_for_the_version():
    text = Path(ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert re.search(
        rf"^# robots_guard {re.escape(robots_guard.__version__)} \(", text, re.MULTILINE
    )
