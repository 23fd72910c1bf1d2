"""Where a value of the configuration comes from."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple


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
