"""A build hook that adds the compiled core to a wheel, on request."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: If this environment variable is 1, the core in the wheel is compiled by mypyc. Such a wheel is for
#: the version of CPython and the platform that built it. The name begins unlike those of settings,
#: because a command refuses to run if it does not know a setting.
COMPILED = "COMPILE_ROBOTS_GUARD"
#: The modules that are compiled: reading robots.txt files and URLs, and matching them.
CORE = ("robots_guard/origin.py", "robots_guard/protocol/[a-z]*.py")
#: A script whose arguments are mypy's configuration and the modules. Without debug information,
#: the same modules result in the same bytes in every directory.
COMPILE = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify(
    ["--config-file", *sys.argv[1:]], debug_level="0", group_name="robots_guard"
)
setup(name="robots_guard", ext_modules=modules, script_args=["build_ext", "--inplace"])
"""


class CompiledCore(BuildHookInterface):
    """Compiles the core in a temporary directory, from which the builder copies it."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what is needed to compile, if that is requested: the version of mypy that checks
        the types, setuptools, and what the package needs, whose types mypy reads."""
        if not _is_compiled():
            return []
        project = tomllib.loads(Path(self.root, "pyproject.toml").read_text(encoding="utf-8"))
        types = project["dependency-groups"]["types"]
        mypy = next(each for each in types if each.startswith("mypy=="))
        compiler = [mypy.replace("mypy", "mypy[mypyc]"), "setuptools>=77"]
        return compiler + project["project"]["dependencies"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the core, if that is requested. An editable installation has none."""
        # If the build fails, `finalize` is not called, and Python removes the directory at its end.
        self._temporary = tempfile.TemporaryDirectory(prefix="robots-guard-build-")
        directory = Path(self._temporary.name)
        if _is_compiled() and version != "editable":
            build_data |= {"pure_python": False, "infer_tag": True}
            build_data["force_include"] |= self._compile(directory / "core")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  hatchling's signature
        """Remove the temporary directory."""
        self._temporary.cleanup()

    def _compile(self, directory: Path) -> dict[str, str]:
        """Compile the core in a copy of the package, so that no compiled module is left in the tree.
        Return the place of each compiled module in the wheel. Ends the build if it fails."""
        root = Path(self.root)
        package = directory / "robots_guard"
        shutil.copytree(root / "robots_guard", package, ignore=shutil.ignore_patterns("*.so"))
        # Because of what it imports, mypy would read the whole package, with all extras.
        (package / "__init__.py").write_text("", encoding="utf-8")
        modules = sorted(str(path.relative_to(root)) for each in CORE for path in root.glob(each))
        done = subprocess.run(
            [sys.executable, "-c", COMPILE, root / "pyproject.toml", *modules],
            cwd=directory,
            check=False,
            stdout=sys.stderr,
        )
        if done.returncode != 0:
            sys.exit(
                f"robots_guard: {COMPILED}=1 needs a C compiler, such as gcc, and Python's headers"
            )
        build = directory / "build"
        compiled = [each for each in directory.rglob("*.so") if build not in each.parents]
        return {str(path): str(path.relative_to(directory)) for path in compiled}


def _is_compiled() -> bool:
    return os.environ.get(COMPILED, "") == "1"
