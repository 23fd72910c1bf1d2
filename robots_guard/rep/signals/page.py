"""The statements of an HTML page."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from robots_guard.rep.signals.statement import Statement


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a page states, and its links: whether each may be followed."""

    statements: tuple[Statement, ...] = ()
    links: Mapping[str, bool] = {}
    is_incomplete: bool = False
