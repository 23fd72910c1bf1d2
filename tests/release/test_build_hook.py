"""The build hook, which adds files to the wheel and compiles the core on request."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from release.conftest import ROOT, script

from robots_guard.configuration.environment import PREFIX

BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
#: Imported instead of mypyc: the compiler fails.
FAILING_MYPYC = "def mypycify(*_, **__): raise SystemExit(\"error: command 'gcc' failed\")\n"


@pytest.fixture(scope="module")
def hook():
    return script(ROOT / "hatch_build.py")


def test_the_variable_is_not_read_as_a_setting(hook):
    assert not hook.COMPILED.startswith(PREFIX)


def test_a_failed_build_says_what_is_missing_and_leaves_nothing(hook, tmp_path):
    mypyc = tmp_path / "modules" / "mypyc"
    mypyc.mkdir(parents=True)
    (mypyc / "__init__.py").touch()
    (mypyc / "build.py").write_text(FAILING_MYPYC)
    (mypyc.parent / "setuptools.py").write_text("setup = None\n")  # not installed everywhere
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    variables = {
        hook.COMPILED: "1",
        "PYTHONPATH": str(tmp_path / "modules"),
        "TMPDIR": str(scratch),
    }
    done = subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path / "dist"],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert "C compiler" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(scratch.iterdir()) == []
