"""Checks pages in a browser with axe-core."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe

#: The rules of WCAG 2.2 at the levels A and AA, the best practices and the experimental rules.
RULES = {
    "runOnly": [
        "wcag2a",
        "wcag2aa",
        "wcag21a",
        "wcag21aa",
        "wcag22aa",
        "best-practice",
        "experimental",
    ],
    "resultTypes": ["violations"],  # else axe-core also describes each node that violates no rule
}


def violations(page: Any) -> list[str]:
    """Return the nodes of a page that violate a rule, one on each line."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]
