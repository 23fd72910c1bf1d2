"""Writes the tables of settings in settings.md and proxy.md, from the settings' descriptions.

python docs/settings_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from robots_guard.settings import NAMES, PROXY_NAMES, SETTINGS, Setting

DOCS = Path(__file__).parent
PAGES = {"settings.md": NAMES, "proxy.md": PROXY_NAMES[len(NAMES) :]}
HEAD = "| setting | default | meaning |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"(\|.*\n)*")


def page_of(name: str) -> str:
    """Return the text of a page, with its table as it should be."""
    text = (DOCS / name).read_text("utf-8")
    assert len(_TABLE.findall(text)) == 1, f"{name} should have one table of settings"
    return _TABLE.sub(lambda _: HEAD + "".join(_rows(PAGES[name])), text)


def _rows(names: Iterable[str]) -> Iterable[str]:
    for setting in map(SETTINGS.__getitem__, names):
        yield f"| `{setting.name}` | {_default(setting)} | {setting.description} |\n"


def _default(setting: Setting) -> str:
    if setting.default is msgspec.NODEFAULT:
        return setting.default_text or "none, required"
    return f"`{setting.default_text}`" if setting.default_text else "empty"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page_of(name), "utf-8")
