"""The parts of a page's markup that can state something.

`tree_reader` finds exactly what a browser sees. It is used if selectolax is installed and the cost
of a tree is bounded. Otherwise `tag_reader` reads the page, and may find more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Element(NamedTuple):
    """An element: its attributes by their names in lower case, and its start tag as text.

    If `is_certain` is False, a browser may not see the element. It can then deny, but not permit.
    """

    attributes: Mapping[str, str | None]
    tag: str
    is_certain: bool = True

    def get(self, name: str) -> str:
        """Return an attribute without surrounding blanks, or an empty string if it is missing."""
        return (self.attributes.get(name) or "").strip()


class Markup(NamedTuple):
    """The elements of a page that can state something."""

    metas: list[Element]  # with a name or an http-equiv
    licenses: list[Element]  # LINK elements, not all of which link to a licence
    withheld: list[str]  # the texts of elements with data-nosnippet
    base: str | None  # href of the first BASE that has one
    is_incomplete: bool = False


NO_MARKUP = Markup([], [], [], None)
