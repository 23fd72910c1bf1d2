"""References: a setting's text that names where its value is, so that the file holds no secret.

    store = "env:REDIS_URL"               # the value is in a variable of the environment
    fetch_proxy = "file:secrets/proxy"    # ... or in a file, without the newline at its end

Invariant: an error about a reference quotes the reference, and never what it refers to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robots_guard.configuration.regular_file import named_path, read_regular
from robots_guard.errors import SettingsError

VARIABLE = "env:"
FILE = "file:"
LONGEST = 65_536  # bytes of a file that is referred to


def is_reference(value: Any) -> bool:
    """Whether a value names where the value is."""
    return isinstance(value, str) and value.startswith((VARIABLE, FILE))


def resolve(reference: str, environ: Mapping[str, str]) -> str:
    """Return what a reference refers to. Raises SettingsError if it is missing, empty or not
    text."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        return _in_environment(name, environ)
    return _in_file(name)


def _in_environment(name: str, environ: Mapping[str, str]) -> str:
    if not name:
        raise SettingsError("names no environment variable: write env:NAME")
    if name not in environ:
        raise SettingsError(f"the environment variable {name} is not set")
    if not environ[name]:
        raise SettingsError(f"the environment variable {name} is empty")
    return environ[name]


def _in_file(name: str) -> str:
    if not name:
        raise SettingsError("names no file: write file:PATH")
    path = named_path(name)
    text = read_regular(path, LONGEST).text().rstrip("\r\n")
    if not text:
        raise SettingsError(f"{path} is empty")
    if "\n" in text or "\r" in text or "\0" in text:
        raise SettingsError(f"{path} has more than one line: it must have the value only")
    return text
