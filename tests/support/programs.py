"""Programs the tests drive. One that is missing skips loudly on a person's machine, and fails in CI."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

LOCALES = "/usr/share/i18n/locales/de_DE"  # a definition that localedef compiles
TOMCAT = "/usr/share/tomcat10/bin/catalina.sh"
PACKAGES = {
    "ip": "iproute2",
    "wg": "wireguard-tools",
    "node": "nodejs node-undici",
    "go": "golang-go",
    "redis-cli": "redis-tools",
    TOMCAT: "tomcat10",
    LOCALES: "locales",
    "localedef": "libc-bin",
    "java": "tomcat10",  # its JRE compiles a source file that it is given: the compiler is a module of it
}


def program(name: str) -> str:
    """The path of a program on PATH, or of a file given with its path."""
    path = name if Path(name).is_file() else shutil.which(name)
    if path is None:
        sentence = f"{name} is not installed: apt-get install {PACKAGES.get(name, name)}"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return path
