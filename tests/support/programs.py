"""External programs used by the tests. A missing one skips the test locally, and fails it in CI."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

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


def program(name: str) -> str:
    """Return the path of a program on PATH, or of an existing file."""
    path = name if Path(name).is_file() else shutil.which(name)
    if path is None:
        message = f"{name} is not installed: apt-get install {PACKAGES.get(name, name)}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path
