"""The HTML pages of a proxy: one style sheet, no scripts, no external resources.

Invariant: the templates escape all values, because clients and sites control some of them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def render(name: str, **values: object) -> bytes:
    """The page of the template with this name."""
    return _template(name).render(values).encode()


@cache
def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("robots_guard.gateway"),
        autoescape=True,
        auto_reload=False,  # it would check the files of the templates for each page
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
