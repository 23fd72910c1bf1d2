"""Makes links that leave docs/, such as `../examples`, lead to the repository.

On GitHub such a link works as it is written. The site does not contain these files. A link to a
file that does not exist is left as it is, so that MyST reports it.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

_LINK = re.compile(r"(?<=\]\()(?:\.\./)+[^)\s#]+")


def rewrite(text: str, page: Path, root: Path, source_url: str) -> str:
    """Return the text of a page, in which links to files of the repository outside docs/ lead to
    `source_url`."""

    def replace(link: re.Match[str]) -> str:
        target = (page.parent / link[0]).resolve()
        inside = target.is_relative_to(root / "docs") or not target.is_relative_to(root)
        if inside or not target.exists():
            return link[0]
        return f"{source_url}/{target.relative_to(root).as_posix()}"

    return _LINK.sub(replace, text)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    source[0] = rewrite(source[0], page, Path(app.srcdir).parent, app.config.source_url)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_config_value("source_url", "", "env", str)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
