"""Adds attributes to the theme's markup that users of a keyboard or a screen reader need, and that
axe-core demands.

Sphinx and Furo have no option for these. A test demands that each replacement occurs in the site, so
that a version of the theme that makes one unnecessary is noticed.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

REPLACEMENTS = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="This page">',
    # A block of code that is wider than the page can be scrolled by keys only if it has the focus.
    "<pre>": '<pre tabindex="0">',
    '<div id="search-results">': '<h1>Search</h1>\n<div id="search-results">',
}

#: A wide table, likewise. It becomes a <section>, because an element that can have the focus needs a
#: role, and a <div> has none.
_TABLE = re.compile(r'<div( class="table-wrapper[^>]*>\s*<table.*?</table>\s*)</div>', re.DOTALL)


def _replace(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        path.write_text(repaired(path.read_text("utf-8")), "utf-8")


def repaired(text: str) -> str:
    """Return the text of a page with the replacements. A page that Sphinx has not written anew has
    them from an earlier build."""
    for before, after in REPLACEMENTS.items():
        if after not in text:
            text = text.replace(before, after)
    return _TABLE.sub(r'<section tabindex="0"\1</section>', text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _replace)
    return {"parallel_read_safe": True}
