"""A commented configuration file to begin with: every name, with what it means and its default.

Invariant: nothing in it is in force until a line is uncommented, and each line is then valid.
"""

from __future__ import annotations

import contextlib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec

from robots_guard.configuration.sections import SECTIONS, own_types, types_in
from robots_guard.errors import SettingsError
from robots_guard.settings import (
    NAMES,
    PROXY_NAMES,
    SETTINGS,
    default_audit_log,
    default_store,
)

SCHEMA_FILE = "robots_guard.schema.json"
WIDTH = 88  # columns of a comment
#: The defaults that lie in the user's home directory, each with an example for a user without one.
_OF_USER = {
    "store": (default_store, "sqlite:////var/lib/robots_guard/policies.sqlite"),
    "audit_log": (default_audit_log, "/var/log/robots_guard"),
}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_HEAD = f"""#:schema ./{SCHEMA_FILE}
# The configuration of robots_guard, for every command and integration. Lines that begin with
# a single # are the defaults: remove the # of those that you change.
#
# robots-guard config check    reports mistakes in this file
# robots-guard config show     says which values are in force, and where they come from
# robots-guard config schema > {SCHEMA_FILE}
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
    parts += _lines(_entry(name, types_in("")[name]) for name in NAMES)
    for section in sections:
        entries = [_entry(name, kind) for name, kind in _names_of(section).items()]
        if entries or component:
            parts += ["", f"[{section}]", *_header(section), *_lines(entries)]
    return "\n".join(parts) + "\n"


def _names_of(section: str) -> dict[str, Any]:
    """What only one component has, in the order in which users see it."""
    own = dict(own_types(section))
    if section == "proxy":
        shared = types_in("")
        own |= {name: shared[name] for name in PROXY_NAMES if name not in NAMES}
    return own


def _header(section: str) -> list[str]:
    return [
        f"# Values for the component {section} only. Any of the above may stand here, too, and wins."
    ]


def _lines(entries: Iterable[TemplateEntry]) -> Iterator[str]:
    for entry in entries:
        yield ""
        for line in textwrap.wrap(_plain(entry.description), WIDTH):
            yield f"## {line}"
        yield f"# {entry.name} = {_toml(entry.example)}"


def _plain(description: str) -> str:
    """A description without Markdown's links."""
    return _LINK.sub(lambda found: found[1], description)


def _entry(name: str, kind: Any) -> TemplateEntry:
    _, meta = get_args(kind)
    return TemplateEntry(name, meta.description, _example(name, kind))


def _example(name: str, kind: Any) -> Any:
    """The default of a name, or an example if it has none."""
    if name == "agent":
        return "mybot"
    if name in _OF_USER:
        default, otherwise = _OF_USER[name]
        with contextlib.suppress(SettingsError):  # for a user without a home directory
            return default()
        return otherwise
    if name in SETTINGS:
        return SETTINGS[name].default
    for section in SECTIONS.values():
        for field in msgspec.structs.fields(section):
            if field.name == name and field.type == kind:
                return field.default
    raise LookupError(name)


def _toml(value: Any) -> str:
    """A value as TOML. Strings of JSON are basic strings of TOML, and so are numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
