"""The JSON Schema of a configuration file, from the settings' descriptions.

Editors complete and check robots_guard.toml by it. It accepts what the program accepts, except that
a number or a switch may not be written as text.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

import msgspec

from robots_guard.configuration.sections import HOST_PORT, SECTIONS, own_options, settings_in
from robots_guard.configuration.settings import SETTINGS, Setting
from robots_guard.configuration.source import FILE, VARIABLE
from robots_guard.protocol.robots import NAME
from robots_guard.text import without_links

#: The draft that editors' TOML extensions read.
DRAFT = "http://json-schema.org/draft-07/schema#"
TITLE = "robots_guard.toml"
_REFERENCE = f"({VARIABLE}|{FILE})."
#: The forms of texts that begin in one of a few ways, by the name or the metavar of the setting; a
#: reference may stand instead.
_FORMS = {
    "agent": f"{NAME}$",
    "store": r"(memory:$|sqlite:///.|(\s*[a-z][a-z0-9-]*=)?(rediss?(\+(cluster|sentinel))?://.|unix://.))",
    "fetch_proxy": "($|https?://.)",
    HOST_PORT: r"(\[.+\]|[^:]+):[0-9]{1,5}$",
    "ADDRESS": r"($|unix:.|(\[.+\]|[^:]+):[0-9]{1,5}$)",
}
#: Those of which there may be several, in a list.
_LISTED = ("store",)
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
#: A list that the program joins to one text.
_JOINED = {"type": "array", "items": {"type": ["string", "integer"]}}
#: Keywords of msgspec's schema that are given otherwise.
_LEFT_OUT = ("title", "description", "default")


def json_schema() -> dict[str, Any]:
    """Return the schema of a whole file."""
    definitions = {name: _value(setting) for name, setting in SETTINGS.items()}
    properties: dict[str, Any] = {name: _ref(name) for name in definitions}
    for section in SECTIONS:
        own = {name: _value(setting) for name, setting in own_options(section).items()}
        shared = {name: _ref(name) for name in settings_in(section) if name not in own}
        properties[section] = {
            "description": f"Values for the component {section} only.",
            "type": "object",
            "properties": shared | own,
            "additionalProperties": False,
        }
    return {
        "$schema": DRAFT,
        "title": TITLE,
        "description": "The configuration of robots_guard.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "definitions": definitions,
    }


def schema_text() -> str:
    """Return the schema as text, which docs/robots_guard.schema.json holds."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def _value(setting: Setting) -> dict[str, Any]:
    """The schema of a setting: its type and bounds, its description and its default."""
    described = _type(setting)
    if setting.default is not msgspec.NODEFAULT:
        described["default"] = msgspec.to_builtins(setting.default)
    return described


def _type(setting: Setting) -> dict[str, Any]:
    base, form = setting.type, _FORMS.get(setting.extra.get("metavar", setting.name))
    described: dict[str, Any] = {"description": without_links(setting.description)}
    if form is not None:
        text = _TEXT | {"pattern": f"^({_REFERENCE}|{form})"}
        if setting.name in _LISTED:
            return described | {"anyOf": [text, {"type": "array", "items": text}]}
        return described | text
    if base is str:
        return described | {"anyOf": [_TEXT, _JOINED]}
    if setting.is_list:
        return described | {"anyOf": [_TEXT, _TEXTS]}
    if get_origin(base) is Literal:
        return described | {"enum": list(get_args(base))}
    plain = msgspec.json.schema(setting.annotated)
    return described | {key: each for key, each in plain.items() if key not in _LEFT_OUT}
