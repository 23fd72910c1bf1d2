"""Writes the tables of settings in settings.md, proxy.md and configuration.md, from the
descriptions of the settings.

python docs/settings_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from robots_guard.configuration import SECTIONS, own_options
from robots_guard.settings import NAMES, PROXY_NAMES, SETTINGS, Setting

DOCS = Path(__file__).parent
#: The tables of each page, in order.
PAGES: dict[str, list[list[Setting]]] = {
    "settings.md": [[SETTINGS[name] for name in NAMES]],
    "proxy.md": [[SETTINGS[name] for name in PROXY_NAMES[len(NAMES) :]]],
    "configuration.md": [
        list(own_options(name).values()) for name in SECTIONS if own_options(name)
    ],
}
HEAD = "| setting | default | meaning |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"(\|.*\n)*")


def page_of(name: str) -> str:
    """Return the text of a page, with its tables as they should be."""
    text = (DOCS / name).read_text("utf-8")
    tables = iter(PAGES[name])
    found, wanted = len(_TABLE.findall(text)), len(PAGES[name])
    assert found == wanted, f"{name} has {found} tables of settings instead of {wanted}"
    return _TABLE.sub(lambda _: HEAD + "".join(_rows(next(tables))), text)


def _rows(settings: Iterable[Setting]) -> Iterable[str]:
    for setting in settings:
        yield f"| `{setting.name}` | {_default(setting)} | {setting.description} |\n"


def _default(setting: Setting) -> str:
    if setting.default is msgspec.NODEFAULT:
        return setting.default_text or "none, required"
    return f"`{setting.default_text}`" if setting.default_text else "empty"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page_of(name), "utf-8")
