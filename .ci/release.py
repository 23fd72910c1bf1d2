"""Builds a release into dist/, checks it, and uploads it if told to. Run it by `tox -e release`.

1. The sdist and the wheel are built twice, in different directories, with different umasks and file
   times. They must be equal byte for byte. The time in them is SOURCE_DATE_EPOCH, or the time of the
   last commit.
2. For each CPython in the classifiers that this machine has, a wheel with the compiled core is
   built from the sdist, also twice, and auditwheel makes it a manylinux wheel.
3. `twine check --strict` reads what the package index will show.
4. The wheel is installed with all extras, and what was installed is written as a CycloneDX SBOM
   beside it.
5. SHA256SUMS lists all files.
6. With --upload, and only for a clean tree whose tag is the version, the wheels and the sdist are
   uploaded. An upload without a compiled wheel for each of these versions is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
WITHOUT_GIT = "1580601600"  # hatchling's own default: 2 February 2020


def main() -> None:
    """Read the command line and make the release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="directory of the files")
    parser.add_argument("--no-sbom", action="store_true", help="install nothing, write no SBOM")
    parser.add_argument("--no-compiled", action="store_true", help="build the pure wheel alone")
    parser.add_argument("--upload", action="store_true", help="upload the release with twine")
    options = parser.parse_args()
    if options.upload:
        _check_tree()
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="robots-guard-release-") as scratch:
        built = build_twice(Path(scratch), options.output)
        if not options.no_compiled:
            built += build_compiled(built, Path(scratch), options.output)
        _run("-m", "twine", "check", "--strict", *map(str, built))
        if not options.no_sbom:
            wheel = next(path for path in built if path.name.endswith("-none-any.whl"))
            write_sbom(wheel, Path(scratch), options.output)
    write_sums(options.output)
    if options.upload:
        if len(built) != 2 + len(_pythons()):
            sys.exit("release: a wheel with the compiled core is missing")
        _run("-m", "twine", "upload", "--non-interactive", *map(str, built))


def build_twice(scratch: Path, output: Path) -> list[Path]:
    """Build into `output` and once more elsewhere. Exits if the files differ."""
    epoch = _source_date_epoch()
    first = _build(ROOT, output, epoch, umask=0o022)
    copied = _aged_copy(first, scratch / "a directory of another name")
    second = _build(copied, scratch / "second", epoch, umask=0o077)
    for one, other in zip(first, second, strict=True):
        if (one.name, one.read_bytes()) != (other.name, other.read_bytes()):
            sys.exit(f"release: {one.name} differs when it is built a second time")
    print(f"release: two builds are equal: {', '.join(path.name for path in first)}")
    return first


def _build(source: Path, output: Path, epoch: str, umask: int) -> list[Path]:
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(source)],
        check=True,
        env=environment,
        umask=umask,
        stdout=subprocess.DEVNULL,
    )
    return sorted(path for path in output.iterdir() if path.name.startswith("robots_guard-"))


def build_compiled(built: list[Path], scratch: Path, output: Path) -> list[Path]:
    """Build a wheel with the compiled core from the sdist among `built`, for each supported
    interpreter on this machine, and copy it to `output`. Exits if a second build differs. Returns
    the copies."""
    copies = []
    sdist = _sdist_of(built)
    for name in _pythons():
        python = shutil.which(name)
        if python is None or subprocess.run([python, "-V"], check=False).returncode != 0:
            print(f"release: no wheel with the compiled core for {name}: it is not on this machine")
            continue
        first, second = (_compiled_wheel(python, sdist, scratch / name / each) for each in "12")
        if first.read_bytes() != second.read_bytes():
            sys.exit(f"release: {first.name} differs when it is built a second time")
        copies.append(Path(shutil.copy(first, output)))
        print(f"release: two builds are equal: {first.name}")
    return copies


def _compiled_wheel(python: str, sdist: Path, place: Path) -> Path:
    """Build a wheel with the compiled core from the sdist. Returns the copy that auditwheel has
    named after the oldest glibc on which it runs."""
    place.mkdir(parents=True)
    versions = place / "versions.txt"
    versions.write_text("\n".join(_project()["dependency-groups"]["release"]), encoding="utf-8")
    options = ("--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", str(place))
    _run(
        "-m",
        "pip",
        "wheel",
        *options,
        str(sdist),
        python=python,
        COMPILE_ROBOTS_GUARD="1",
        PIP_CONSTRAINT=str(versions),
        PIP_BUILD_CONSTRAINT=str(versions),
    )
    (wheel,) = place.glob("*.whl")
    _run("-m", "auditwheel", "repair", "--wheel-dir", str(place / "repaired"), str(wheel))
    (repaired,) = (place / "repaired").glob("*.whl")
    return repaired


def _pythons() -> list[str]:
    """Return the interpreters in the classifiers: python3.11 and so on."""
    classifiers = _project()["project"]["classifiers"]
    found = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in classifiers
    )
    return [f"python{each[1]}" for each in found if each]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _sdist_of(built: list[Path]) -> Path:
    return next(path for path in built if path.name.endswith(".tar.gz"))


def _aged_copy(built: list[Path], place: Path) -> Path:
    """The source tree of the sdist, in another directory, with other permissions and times."""
    with tarfile.open(_sdist_of(built)) as archive:
        archive.extractall(place, filter="data")
    (source,) = place.iterdir()
    for number, path in enumerate(sorted(source.rglob("*"))):
        if path.is_file():
            path.chmod(0o700 if path.stat().st_mode & 0o100 else 0o600)
        os.utime(path, (10**9 + number, 10**9 + number))
    return source


def _source_date_epoch() -> str:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    if not (ROOT / ".git").exists():
        return WITHOUT_GIT
    return _git("log", "-1", "--format=%ct")


def write_sbom(wheel: Path, scratch: Path, output: Path) -> None:
    """Install the wheel with all extras and write what was installed as a CycloneDX document."""
    target = scratch / "installed"
    venv.create(target, with_pip=True)
    python = str(target / "bin" / "python")
    _run("-m", "pip", "install", "--quiet", f"{wheel}[all]", python=python)
    _run("-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools", python=python)
    sbom = output / f"{wheel.name.split('-py3')[0]}.cdx.json"
    arguments = (
        "environment",
        "--output-reproducible",
        "--pyproject",
        str(ROOT / "pyproject.toml"),
    )
    _run("-m", "cyclonedx_py", *arguments, "--output-file", str(sbom), python)


def write_sums(output: Path) -> None:
    """Write the SHA-256 of each file, as sha256sum does."""
    files = sorted(path for path in output.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (output / SUMS).write_text("".join(lines), encoding="ascii")
    print("".join(lines), end="")


def _check_tree() -> None:
    for objection in _objections():
        sys.exit(f"release: {objection}")


def _objections() -> Iterator[str]:
    """What is missing before an upload."""
    source = (ROOT / "robots_guard" / "__init__.py").read_text(encoding="utf-8")
    version = source.partition('__version__ = "')[2].partition('"')[0]
    if _git("status", "--porcelain"):
        yield "the tree has changes that are not committed"
    if f"v{version}" not in _git("tag", "--points-at", "HEAD").split():
        yield f"the commit has no tag v{version}: git tag -s v{version}"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^# robots_guard {re.escape(version)} \(\d", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no dated section for {version}: towncrier build --version {version}"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def _run(*arguments: str, python: str = sys.executable, **variables: str) -> None:
    environment = os.environ | variables
    environment["SOURCE_DATE_EPOCH"] = _source_date_epoch()  # the SBOM's time, too
    subprocess.run([python, *arguments], check=True, env=environment)


if __name__ == "__main__":
    main()
