"""Files of header fields, as `curl -sD FILE` and `curl -I` write them.

    HTTP/2 200
    content-type: text/html
    x-robots-tag: noai

The status line may be missing. Of several responses, which curl writes one after the other when it
follows redirects, the last one counts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from robots_guard.decisions.response import ResponseHead
from robots_guard.errors import RobotsGuardError

_STATUS_LINE = re.compile(r"HTTP/[0-9.]+[ \t]+([1-5][0-9]{2})(?:[ \t].*)?", re.IGNORECASE)
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:(.*)", re.DOTALL)


class InvalidHeaderFile(RobotsGuardError):
    """A file does not have the form of header fields."""


class FieldLine(NamedTuple):
    """A field line: its number in the file, its name and its value."""

    number: int
    name: str
    value: str


class HeaderFile(NamedTuple):
    """The last response of a file."""

    status: int
    fields: tuple[FieldLine, ...]

    @property
    def head(self) -> ResponseHead:
        """The status and the fields."""
        return ResponseHead(
            status=self.status, headers=tuple((each.name, each.value) for each in self.fields)
        )


def read_header_file(body: bytes, name: str) -> HeaderFile:
    """Read a file of header fields. `name` is for the messages of InvalidHeaderFile."""
    status = 200
    fields: list[FieldLine] = []
    for number, line in enumerate(body.decode("latin-1").split("\n"), 1):
        text = line.rstrip("\r")
        status_line = _STATUS_LINE.fullmatch(text.strip())
        if status_line:
            status = int(status_line[1])
            fields.clear()
        elif text[:1] in (" ", "\t") and fields and text.strip():
            # RFC 9112 section 5.2: a folded line continues the one above.
            last = fields.pop()
            fields.append(last._replace(value=f"{last.value} {text.strip()}"))
        elif text.strip():
            fields.append(_field(number, text, name))
    return HeaderFile(status, tuple(fields))


def _field(number: int, text: str, name: str) -> FieldLine:
    found = _FIELD.fullmatch(text.strip())
    if found is None:
        raise InvalidHeaderFile(
            f"line {number} of {name} is not a header field: write one field on each line, as in"
            " X-Robots-Tag: noindex"
        )
    return FieldLine(number, found[1], found[2].strip())
