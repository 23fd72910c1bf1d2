"""The files of a release, built once for all tests of a module."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
#: What takes minutes. The tox environment `compiled` installs a wheel with the compiled core.
OMITTED = ("--no-compiled", "--no-sbom")


class Release(NamedTuple):
    """What the release script wrote, unpacked."""

    directory: Path
    output: str  # what the script printed
    wheel_names: frozenset[str]
    sdist: Path
    metadata: Message


def script(path: Path) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")  # so that one worker runs its tests, and builds only once
def release(tmp_path_factory):
    directory = tmp_path_factory.mktemp("release")
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "release.py", "--output", directory / "dist", *OMITTED],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel_path,) = (directory / "dist").glob("*.whl")
    (sdist_path,) = (directory / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel_path) as wheel:
        wheel.extractall(directory / "wheel")
        names = frozenset(wheel.namelist())
    with tarfile.open(sdist_path) as sdist:
        sdist.extractall(directory, filter="data")
    metadata = next((directory / "wheel").glob("*.dist-info/METADATA"))
    return Release(
        directory=directory / "dist",
        output=done.stdout,
        wheel_names=names,
        sdist=directory / sdist_path.name.removesuffix(".tar.gz"),
        metadata=Parser().parsestr(metadata.read_text(encoding="utf-8")),
    )
