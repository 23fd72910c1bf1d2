"""The text of an overrides file, with an override added or removed, and everything else unchanged.

Invariant: what people wrote, with its order and comments, is kept. A text is returned only if it is
read as intended; otherwise SettingsError says to edit the file by hand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from robots_guard.decisions.overrides import Override, Overrides, parse
from robots_guard.decisions.site_settings import SiteSettings
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.origin import Origin

_HEADER = re.compile(r"(?m)^[ \t]*\[\[[ \t]*override[ \t]*\]\]")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NUMBERS = {
    field.name
    for field in msgspec.structs.fields(SiteSettings)
    if isinstance(field.default, int | float)
}
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
#: The keys of an override that say what it is about.
OPTIONS = {"id", "owner", "reason", "expires", "origin", "suffix"}
_EXPIRES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9:.]+([Zz]|[+-][0-9:]+)?)?")


class NewOverride(NamedTuple):
    """An override to be added: its place, which is an origin or a domain with its subdomains; its keys
    with their values as text; and when it expires, as in TOML."""

    place: Origin | str
    changes: Mapping[str, str]
    owner: str
    reason: str
    until: str
    id: str = ""


def text_with(text: str, new: NewOverride, base: Terms) -> str:
    """Return the text of an overrides file with an override appended.

    Raises SettingsError if the text cannot be read, the override is not valid, or the place has one
    already.
    """
    found = parse(text, base)
    taken = found.by_place.get(new.place)
    if taken is not None:
        raise SettingsError(
            f"{taken.where} has the override {taken.exemption.id!r} already: change it in the file,"
            " or remove it first ('robots-guard overrides remove')"
        )
    if not _is_time(new.until):
        raise SettingsError(f"--until {new.until!r} is not a date: write one such as 2027-03-31")
    for name in sorted(OPTIONS & new.changes.keys()):
        raise SettingsError(f"{name} is not a change of the terms: state it once, with its option")
    new = new._replace(id=new.id or _free_id(new.place, text))
    before = f"{text.rstrip()}\n\n" if text.strip() else ""
    result = before + _block_of(new)
    changed = parse(result, base)
    for fault in changed.faults[len(found.faults) :]:
        raise SettingsError(f"the override would have no effect: {fault.why}")
    added = changed.by_place.get(new.place)
    if (
        added is None
        or added.changes.keys() != new.changes.keys()
        or not _keeps(found, changed, added)
    ):
        raise SettingsError("the override cannot be added at the end of the file: edit it by hand")
    return result


def _is_time(text: str) -> bool:
    """Whether a text is a date or a time in TOML, and nothing else."""
    with suppress(tomllib.TOMLDecodeError):
        return bool(_EXPIRES.fullmatch(text) and tomllib.loads(f"expires = {text}"))
    return False


def _block_of(new: NewOverride) -> str:
    place = "suffix" if isinstance(new.place, str) else "origin"
    lines = [
        "[[override]]",
        f"id = {_quoted(new.id)}",
        f"{place} = {_quoted(str(new.place))}",
        f"owner = {_quoted(new.owner)}",
        f"reason = {_quoted(new.reason)}",
        f"expires = {new.until}",
        *(f"{_key(name)} = {_value(name, value)}" for name, value in new.changes.items()),
    ]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _value(name: str, text: str) -> str:
    """A value in TOML: a number as it is if the key takes one, anything else as a string."""
    return text if name in _NUMBERS and _NUMBER.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    """A string in TOML. Its escapes are those of JSON, which leaves DEL as it is."""
    try:
        return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
    except UnicodeEncodeError:
        raise SettingsError(f"{text!r} is not valid text: write it in UTF-8") from None


def _free_id(place: Origin | str, text: str) -> str:
    """An id that no override of the file has."""
    wanted = host = str(place).rpartition("://")[2].replace(":", "-")
    number = 1
    while _quoted(wanted) in text:
        number += 1
        wanted = f"{host}-{number}"
    return wanted


def text_without(text: str, place: Origin | str, base: Terms) -> tuple[str, Override]:
    """Return the text of an overrides file without the override of a place, and the override.
    Raises SettingsError if there is none."""
    found = parse(text, base)
    removed = found.by_place.get(place)
    if removed is None:
        raise SettingsError(f"{place} has no override: see 'robots-guard overrides check'")
    result = _without_block(text, removed.exemption.id)
    changed = parse(result, base)
    if not _keeps(changed, found, removed) or changed.faults != found.faults:
        raise _edit_by_hand(removed.exemption.id)
    return result, removed


def _without_block(text: str, which: str) -> str:
    """The text without the table that has this id. Blank lines and comments behind its last key are
    kept, because they may belong to the next table."""
    starts = [found.start() for found in _HEADER.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        block = text[start:end]
        if _id_of(block) != which:
            continue
        lines = block.splitlines(keepends=True)
        while lines and lines[-1].strip()[:1] in ("", "#"):
            lines.pop()
        rest = block[len("".join(lines)) :]
        following = rest.lstrip("\n") + text[end:]
        if following or not text[:start].strip():
            return text[:start] + following
        return text[:start].rstrip() + "\n"
    raise _edit_by_hand(which)


def _id_of(block: str) -> Any:
    try:
        return tomllib.loads(block)["override"][0].get("id")
    except (tomllib.TOMLDecodeError, KeyError, AttributeError):
        return None


def _keeps(fewer: Overrides, more: Overrides, one: Override) -> bool:
    """Whether two texts have the same overrides, apart from one that only the second has."""
    return fewer.entries == tuple(each for each in more.entries if each.place != one.place)


def _edit_by_hand(which: str) -> SettingsError:
    return SettingsError(
        f"override {which!r} cannot be removed automatically: edit the file by hand"
    )
