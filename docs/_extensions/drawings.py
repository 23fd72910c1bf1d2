"""Puts the SVG drawings into the pages that show them.

As a separate image, a drawing would follow the system's colour scheme and not the one that the
reader chose on the site, and its text could be neither searched nor read aloud. In Markdown it is an
image, so that GitHub shows it, too.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class InlineDrawings(SphinxPostTransform):
    """Replaces images that are SVG files by their markup."""

    default_priority = 5  # before Sphinx collects the images to copy
    formats = ("html",)

    def run(self, **_: object) -> None:
        """Called by Sphinx, for each page."""
        for image in list(self.document.findall(nodes.image)):
            drawing = Path(self.env.srcdir, image["uri"])
            if drawing.suffix == ".svg" and drawing.is_file():
                image.replace_self(nodes.raw("", drawing.read_text("utf-8"), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_post_transform(InlineDrawings)
    return {"parallel_read_safe": True}
