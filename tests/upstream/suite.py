"""A framework's own test suite: its sdist is downloaded from the package index, and its tests run
against the installed version of the framework.

The suite runs with robots_guard switched on. The files that have an unexpected failure run a second
time, and then without robots_guard. A test that fails twice with it and passes without it must be
among the suite's differences, each of which has a reason. A difference whose tests all pass is out of
date, and is reported, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
FAILED = frozenset(("failure", "error"))


@dataclass(frozen=True, slots=True)
class Difference:
    """Tests that pass without robots_guard and fail with it, and why that is right.

    Each of `tests` is the beginning of an id, such as `tests/test_crawl.py::TestCrawl::test_delay`.
    `versions` are the beginnings of the framework's versions whose suites have these tests.
    With `sometimes`, the tests may also pass.
    """

    tests: tuple[str, ...]
    reason: str
    versions: tuple[str, ...] = ("",)
    sometimes: bool = False


@dataclass(frozen=True, slots=True)
class Suite:
    """A framework's test suite.

    `package` is the folder of the sdist that is removed, so that the installed package is tested.
    `selection` are the files that run if none are named. `switch` is the folder that switches
    robots_guard on when it is in PYTHONPATH, and `plugin` a plugin of pytest that does so.
    """

    project: str
    package: str
    selection: tuple[str, ...]
    differences: tuple[Difference, ...]
    arguments: tuple[str, ...] = ()
    switch: Path | None = None
    plugin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The version of the framework that is installed."""
        return version(self.project)

    def check(self, folder: Path, arguments: Sequence[str]) -> list[str]:
        """Run the suite in a folder. Returns what is wrong, one sentence for each."""
        source = self.unpack(folder)
        chosen = tuple(arguments) or self.selection
        outcomes = self.run(source, chosen, guarded=True)
        failures = {test for test, has_passed in outcomes.items() if not has_passed}
        unexpected = {test for test in failures if self._difference_of(test) is None}
        if unexpected:
            files = sorted({test.partition("::")[0] for test in unexpected})
            for guarded in (True, False):
                again = self.run(source, files, guarded=guarded)
                unexpected = {test for test in unexpected if again.get(test, False) is not guarded}
        wrong = [f"{test} fails with robots_guard only" for test in sorted(unexpected)]
        return wrong + list(self._out_of_date(outcomes, failures))

    def unpack(self, folder: Path) -> Path:
        """The unpacked sdist of the installed version, which is downloaded unless it is there."""
        source = folder / f"{self.project}-{self.version}"
        if source.exists():
            return source
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.project}=={self.version}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--no-binary", ":all:", "--dest", str(folder), name], check=True)
        (archive,) = folder.glob(f"{self.project}-{self.version}.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        shutil.rmtree(source / self.package)
        return source

    def run(self, source: Path, chosen: Iterable[str], *, guarded: bool) -> dict[str, bool]:
        """Run tests. Returns for each that was not skipped whether it has passed."""
        report = source.parent / f"{self.project}-{os.getpid()}.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1"]
        paths = [str(source)]
        if guarded and self.plugin:
            pytest += ["-p", self.plugin]
        if guarded and self.switch is not None:
            paths.insert(0, str(self.switch))
        environment = {**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(paths)}
        command = [*pytest, f"--junit-xml={report}", *self.arguments, *chosen]
        print(f"== {self.project} {self.version}, guarded: {guarded}", flush=True)
        ended = subprocess.run(command, cwd=source, env=environment, check=False)
        if ended.returncode not in (0, 1) or not report.exists():
            raise SystemExit(f"pytest has ended with status {ended.returncode}")
        outcomes = dict(_outcomes(report))
        report.unlink()
        return outcomes

    def _difference_of(self, test: str) -> Difference | None:
        return next((known for known in self._differences() if test.startswith(known.tests)), None)

    def _differences(self) -> list[Difference]:
        installed = self.version
        return [known for known in self.differences if installed.startswith(known.versions)]

    def _out_of_date(self, outcomes: Mapping[str, bool], failures: set[str]) -> Iterable[str]:
        for known in self._differences():
            for test in known.tests:
                has_run = any(each.startswith(test) for each in outcomes)
                if (
                    has_run
                    and not known.sometimes
                    and not any(each.startswith(test) for each in failures)
                ):
                    yield f"{test} passes now: remove it from the differences of {self.project}"


def _outcomes(report: Path) -> Iterable[tuple[str, bool]]:
    """The ids of the tests in a JUnit report, and whether each has passed."""
    for case in ET.parse(report).iter("testcase"):
        results = {result.tag for result in case}
        if "skipped" in results:
            continue
        file, name = case.get("file") or "", case.get("name") or ""
        module = file.removesuffix(".py").replace("/", ".")
        inside = (case.get("classname") or "").removeprefix(module).strip(".")
        yield "::".join(filter(None, (file, *inside.split("."), name))), FAILED.isdisjoint(results)
