"""Writes what follows from the descriptions of the settings: their tables in the pages, the list of
those that an override can change, and the JSON Schema. Each setting stands in one table. The tables
of settings.md have headings, those of the help.

python docs/settings_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from robots_guard.app.cli.config.schema import schema_text
from robots_guard.app.cli.options import COMMON, HEADINGS, OTHER, heading_of
from robots_guard.configuration import own_options
from robots_guard.configuration.settings import NAMES, PROXY_NAMES, SETTINGS, Setting
from robots_guard.decisions.site_settings import SiteSettings, types_of

DOCS = Path(__file__).parent
#: The settings that stand first: those of the help, and some more.
FIRST = (
    *COMMON,
    *("user_agent", "matching", "on_restricted", "on_unreachable", "max_delay", "hold_max"),
    *("signals", "audit_retention_days", "audit_signing_key"),
)


def _by_section() -> dict[str, list[Setting]]:
    """The settings of all components, the common ones first, by their headings."""
    found: dict[str, list[Setting]] = {"Common settings": []}
    found |= {title: [] for title in (*HEADINGS, OTHER)}
    for name in NAMES:
        title = "Common settings" if name in FIRST else heading_of(name)
        found[title].append(SETTINGS[name])
    return {title: settings for title, settings in found.items() if settings}


def _of(component: str) -> list[Setting]:
    """The settings that only a component has."""
    return list(own_options(component).values())


#: The runs of tables in each page: the settings of each table by its heading, or "" for none.
PAGES: dict[str, list[dict[str, list[Setting]]]] = {
    "settings.md": [_by_section()],
    "proxy.md": [
        {"": _of("proxy")},
        {"": [SETTINGS[name] for name in PROXY_NAMES[len(NAMES) :]]},
    ],
    "serve.md": [{"": _of("serve")}],
    "scrapy.md": [{"": _of("scrapy")}],
    "console.md": [{"Options": _of("console")}],
}
HEAD = "| setting | default | meaning |\n|---|---|---|\n"
#: In overrides.md, the names of the settings that an override can change.
_CHANGEABLE = re.compile(r"^\| .+(?= \| As the \[settings\])", re.MULTILINE)
_RUN = re.compile(r"(?:(?:## .*\n\n)?" + re.escape(HEAD) + r"(?:\|.*\n)*\n)+")


def page_of(name: str) -> str:
    """Return the text of a page, with its tables as they should be."""
    text = (DOCS / name).read_text("utf-8")
    runs = iter(PAGES[name])
    found, wanted = len(_RUN.findall(text)), len(PAGES[name])
    assert found == wanted, f"{name} has {found} runs of tables of settings instead of {wanted}"
    return _RUN.sub(lambda _: "".join(_tables(next(runs))), text)


def overrides_page() -> str:
    """Return the text of overrides.md, with its list as it should be."""
    names = ", ".join(f"`{name}`" for name in types_of(SiteSettings))
    text, found = _CHANGEABLE.subn(f"| {names}", (DOCS / "overrides.md").read_text("utf-8"))
    assert found == 1, f"overrides.md has {found} lists of settings instead of 1"
    return text


def _tables(run: dict[str, list[Setting]]) -> Iterable[str]:
    for title, settings in run.items():
        heading = f"## {title}\n\n" if title else ""
        yield f"{heading}{HEAD}{''.join(_rows(settings))}\n"


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
    (DOCS / "overrides.md").write_text(overrides_page(), "utf-8")
    (DOCS / "robots_guard.schema.json").write_text(schema_text(), "utf-8")
