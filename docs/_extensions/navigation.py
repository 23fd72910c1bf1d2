"""Lets the navigation name folders before they have pages.

Sphinx reports a pattern that matches no page, and cannot be told not to. A page that no pattern
takes is still an error of the build.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from sphinx.application import Sphinx

_PATTERN = re.compile(r"^[\w/-]*\*\n", re.MULTILINE)


def drop_empty_patterns(text: str, pages: Collection[str]) -> str:
    """Return the text without those lines that are patterns and match no page."""

    def replace(line: re.Match[str]) -> str:
        pattern = line[0].strip()
        return line[0] if any(fnmatchcase(page, pattern) for page in pages) else ""

    return _PATTERN.sub(replace, text)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == app.config.root_doc:
        source[0] = drop_empty_patterns(source[0], app.env.found_docs)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
