"""The web console: the journal, the policies and the exceptions, for people to look at.

`app` makes the ASGI application; `sources_of` opens what it looks at. It needs the extra `console`.
"""

from __future__ import annotations

from robots_guard.errors import MissingExtra

try:
    import duckdb  # noqa: F401  (each page asks it)
    import jinja2  # noqa: F401  (whether it is there)
    import starlette  # noqa: F401  (the same)
except ImportError as error:
    raise MissingExtra("console", "the web console") from error

from robots_guard.console.pages import app
from robots_guard.console.sources import Refresher, Sources, sources_of

__all__ = ["Refresher", "Sources", "app", "sources_of"]
