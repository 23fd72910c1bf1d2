"""A new configuration file: every setting with its meaning and its default, commented out.

Invariant: nothing in it is in force until a line is uncommented, and each line is then valid.
"""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from robots_guard.configuration.sections import SECTIONS, own_options
from robots_guard.configuration.settings import NAMES, SETTINGS, USER_DEFAULTS, Setting, names_of
from robots_guard.errors import SettingsError
from robots_guard.text import without_links

SCHEMA_FILE = "robots_guard.schema.json"
#: Its lines have at most 88 columns. Addresses stay whole.
_COMMENT = textwrap.TextWrapper(width=88, break_on_hyphens=False, break_long_words=False)
#: Examples of settings that have no default, or none without a home directory.
_EXAMPLES = {
    "agent": "mybot",
    "store": "sqlite:////var/lib/robots_guard/policies.sqlite",
    "audit_log": "/var/log/robots_guard",
}
_HEAD = f"""#:schema ./{SCHEMA_FILE}
# The configuration of robots_guard, for every command and integration. Lines that begin with
# a single # are the defaults: remove the # of those that you change.
#
# robots-guard config check    reports mistakes in this file
# robots-guard config show     says which values are in force, and where they come from
# robots-guard config show --schema > {SCHEMA_FILE}
#                              writes the schema by which editors complete and check this file
#
# A text may be "env:NAME" or "file:PATH", so that a secret does not stand in this file. Relative
# paths are relative to the directory of this file.
"""


class TemplateEntry(NamedTuple):
    """A name with its description and an example of its value: its default, if it has one."""

    name: str
    description: str
    example: Any


def template(component: str | None = None) -> str:
    """Return the text of a new file: for one component, or for all."""
    sections = [each for each in SECTIONS if component in (None, each)]
    parts = [_HEAD]
    parts += _lines(_entry(SETTINGS[name]) for name in NAMES)
    for section in sections:
        entries = [_entry(setting) for setting in _settings_in(section)]
        if entries or component:
            parts += ["", f"[{section}]", *_header(section), *_lines(entries)]
    return "\n".join(parts) + "\n"


def _settings_in(section: str) -> list[Setting]:
    """What only one component has, in the order in which users see it."""
    own = list(own_options(section).values())
    own += [SETTINGS[name] for name in names_of(section) if name not in NAMES]
    return own


def _header(section: str) -> list[str]:
    return [
        f"# Values for the component {section} only. Any of the above may stand here, too, and wins."
    ]


def _lines(entries: Iterable[TemplateEntry]) -> Iterator[str]:
    for entry in entries:
        yield ""
        for line in _COMMENT.wrap(without_links(entry.description)):
            yield f"## {line}"
        yield f"# {entry.name} = {_toml(entry.example)}"


def _entry(setting: Setting) -> TemplateEntry:
    return TemplateEntry(setting.name, setting.description, _example(setting))


def _example(setting: Setting) -> Any:
    """The default of a setting, or an example if it has none."""
    if setting.name in USER_DEFAULTS:
        with contextlib.suppress(SettingsError):  # for a user without a home directory
            return USER_DEFAULTS[setting.name]()
    return _EXAMPLES.get(setting.name, setting.default)


def _toml(value: Any) -> str:
    """A value as TOML. Strings of JSON are basic strings of TOML, and so are numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
