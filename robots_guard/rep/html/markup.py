"""What of a page's markup is read: METAs, licence links, and texts that are not for snippets.

The tree of selectolax is exact, and is used where it is installed and its cost is bounded. Else the
tokenizer of this package reads the page; it may find more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Element(NamedTuple):
    """An element: its attributes by their names in lower case, and its start tag as text.

    Unless it is certain, a browser may not see it. Then it can close things only.
    """

    attributes: Mapping[str, str | None]
    tag: str
    is_certain: bool = True

    def get(self, name: str) -> str:
        """Return an attribute without blanks around it; empty if it is missing."""
        return (self.attributes.get(name) or "").strip()


class Markup(NamedTuple):
    """The elements of a page that can state something."""

    metas: list[Element]  # those with a name or a http-equiv
    licenses: list[Element]
    withheld: list[str]  # the texts of elements with data-nosnippet
    base: str | None  # href of the first BASE that has one
    is_incomplete: bool = False


NO_MARKUP = Markup([], [], [], None)
