"""The text of an overrides file, with an override added or removed, and everything else unchanged.

Invariant: what people wrote, with its order and comments, is kept. A text is returned only if it is
read as intended; otherwise SettingsError says to edit the file by hand.
"""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from robots_guard.core.overrides import ROBOTS_FILE, Override, Overrides, parse
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.origin import Origin

_HEADER = re.compile(r"(?m)^[ \t]*\[\[[ \t]*override[ \t]*\]\]")
_EXPIRES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9:.]+([Zz]|[+-][0-9:]+)?)?")


class Pin(NamedTuple):
    """What an override with a pinned robots.txt says. `until` is a day or a moment, as in TOML."""

    origin: Origin
    file: str
    owner: str
    reason: str
    until: str
    id: str = ""


def text_with_pin(text: str, pin: Pin, base: Terms) -> str:
    """Return the text of an overrides file with a pin appended.

    Raises SettingsError if the text cannot be read, the pin is not valid, or the origin has an
    override already.
    """
    found = parse(text, base)
    taken = found.by_place.get(pin.origin)
    if taken is not None:
        raise SettingsError(
            f"{pin.origin} has the override {taken.exemption.id!r} already: add robots_file to it,"
            " or remove it first ('robots-guard overrides unpin' removes a pin)"
        )
    if not _EXPIRES.fullmatch(pin.until):
        raise SettingsError(f"--until {pin.until!r} is not a date: write one such as 2027-03-31")
    pin = pin._replace(id=pin.id or _free_id(pin.origin, text))
    before = f"{text.rstrip()}\n\n" if text.strip() else ""
    result = before + _block_of(pin)
    changed = parse(result, base)
    for fault in changed.faults[len(found.faults) :]:
        raise SettingsError(f"the override would have no effect: {fault.why}")
    added = changed.by_place.get(pin.origin)
    if added is None or added.robots_file != pin.file or not _keeps(found, changed, added):
        raise SettingsError("the override cannot be added at the end of the file: edit it by hand")
    return result


def _block_of(pin: Pin) -> str:
    lines = [
        "[[override]]",
        f"id = {_quoted(pin.id)}",
        f"origin = {_quoted(str(pin.origin))}",
        f"owner = {_quoted(pin.owner)}",
        f"reason = {_quoted(pin.reason)}",
        f"expires = {pin.until}",
        f"{ROBOTS_FILE} = {_quoted(pin.file)}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A string in TOML. Its escapes are those of JSON, which leaves DEL as it is."""
    try:
        return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
    except UnicodeEncodeError:
        raise SettingsError(f"{text!r} is not valid text: write it in UTF-8") from None


def _free_id(origin: Origin, text: str) -> str:
    """An id that no override of the file has."""
    host = str(origin).partition("://")[2].replace(":", "-")
    wanted, number = f"pin-{host}", 1
    while _quoted(wanted) in text:
        number += 1
        wanted = f"pin-{host}-{number}"
    return wanted


def text_without_pin(text: str, origin: Origin, base: Terms) -> tuple[str, Override]:
    """Return the text of an overrides file without the pin of an origin, and the override that was
    removed. Raises SettingsError if there is none, or if it has other settings, too."""
    found = parse(text, base)
    pin = found.by_place.get(origin)
    if pin is None or pin.robots_file is None:
        raise SettingsError(
            f"no robots.txt is pinned for {origin}: see 'robots-guard overrides list'"
        )
    others = [name for name in pin.changes if name != ROBOTS_FILE]
    if others:
        raise SettingsError(
            f"override {pin.exemption.id!r} also sets {', '.join(others)}: remove {ROBOTS_FILE} from"
            " it by hand"
        )
    result = _without_block(text, pin.exemption.id)
    changed = parse(result, base)
    if not _keeps(changed, found, pin) or changed.faults != found.faults:
        raise _edit_by_hand(pin.exemption.id)
    return result, pin


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
