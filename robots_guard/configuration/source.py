"""Where a value of the configuration comes from: the place where it is written, and what it refers to
if it is a reference, so that a file need not hold a secret.

    store = "env:REDIS_URL"               # the value is in a variable of the environment
    fetch_proxy = "file:secrets/proxy"    # ... or in a file, without the newline at its end

Invariant: an error about a reference quotes the reference, and never what it refers to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from robots_guard.configuration.regular_file import named_path, read_regular
from robots_guard.errors import SettingsError

VARIABLE = "env:"
FILE = "file:"
LONGEST = 65_536  # bytes of a file that is referred to


class Source(NamedTuple):
    """The place of a value: `name` is the path of a file, a variable of the environment, or an
    option, and `line` that of a file, otherwise 0."""

    kind: Literal["default", "file", "environment", "option"]
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        """The place as text for people."""
        if self.kind == "default":
            return "default"
        if self.kind == "environment":
            return f"the environment variable {self.name}"
        if self.line:
            return f"{self.name}:{self.line}"
        return self.name

    def spell(self, name: str) -> str:
        """The name of a setting as it was written at this place, as the beginning of a sentence."""
        if self.kind == "file":
            return f"{self}: {name}"
        return self.name or name


class Value(NamedTuple):
    """A value of a setting as it was written, and its source. A reference is not resolved, but
    relative paths in files are absolute here."""

    value: Any
    source: Source


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
