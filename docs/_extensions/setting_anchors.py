"""Gives each setting in a table of settings an anchor: the name of `hold_max` in the table leads to
`settings.html#setting-hold_max`, an address that can be sent to others. A name that another table of
the page has, too, is numbered there (`setting-listen-2`)."""

from __future__ import annotations

from collections import Counter

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

HEADING = "setting"


class SettingAnchors(SphinxPostTransform):
    """Makes the first cell of each row a link to its own row."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_: object) -> None:
        """Called by Sphinx, for each page."""
        times: Counter[str] = Counter()
        for table in self.document.findall(nodes.table):
            head, body = next(table.findall(nodes.thead)), next(table.findall(nodes.tbody))
            if next(head.findall(nodes.entry)).astext() == HEADING:
                for row in body.findall(nodes.row):
                    _anchor(row, times)


def _anchor(row: nodes.row, times: Counter[str]) -> None:
    name = next(row.findall(nodes.literal))
    anchor = f"setting-{name.astext()}"
    times[anchor] += 1
    if times[anchor] > 1:
        anchor += f"-{times[anchor]}"
    row["ids"].append(anchor)
    name.replace_self(nodes.reference("", "", name.deepcopy(), refid=anchor, internal=True))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_post_transform(SettingAnchors)
    return {"parallel_read_safe": True}
