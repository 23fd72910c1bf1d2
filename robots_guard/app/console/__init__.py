"""The web console: pages that show the audit log, the policies and the overrides.

`app` creates the ASGI application; `sources_of` opens the files and the store that it reads. The package needs the
extra `console`.
"""

from __future__ import annotations

from robots_guard.errors import MissingExtra

try:
    import duckdb  # noqa: F401  (imported later, for each page)
    import jinja2  # noqa: F401  (only to check that it is installed)
    import starlette  # noqa: F401  (the same)
except ImportError as error:
    raise MissingExtra("console", "the web console") from error

from robots_guard.app.console.app import app
from robots_guard.app.console.sources import Refresher, Sources, sources_of

__all__ = ["Refresher", "Sources", "app", "sources_of"]
