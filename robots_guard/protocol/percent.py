"""Percent-encoding: how targets and patterns are normalized before they are compared.

Invariant: each way of comparing normalizes both sides so that a plain comparison of bytes is
correct, and nothing is decoded twice. All patterns are normalized at once, one per line, because
most files need no change at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from robots_guard.protocol.dialect import Percent

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ENCODED = r"%[0-9A-Fa-f]{2}"
# The canonical form changes escapes that are in lower case or encode unreserved octets, and encodes
# octets that are neither unreserved nor reserved (RFC 3986 section 2), because URLs cannot contain
# them.
CHANGED_ESCAPE = (
    r"%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f]|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])"
)
_CHANGED = re.compile(CHANGED_ESCAPE)
# In a target "*" and "$" are data and are encoded; in a rule "*" and a trailing "$" are operators.
_IN_TARGET = re.compile(CHANGED_ESCAPE + r"|[^!#%-)+-;=?-\[\]_a-z~]")
_IN_LITERALS = re.compile(CHANGED_ESCAPE + r"|[^!#%-)+-;=?-\[\]_a-z~\n]")
_DATA_DOLLAR = re.compile(r"\$(?=.)")
_NOT_IN_URL = re.compile(r"[^!-~\n]")
# The bytes that no way of comparing changes in rules or targets, and the line feed between two
# rules.
UNCHANGED = (
    bytes(byte for byte in range(256) if not _IN_TARGET.match(chr(byte)) and byte != ord("%"))
    + b"\n"
)
_NOT_ENCODED = UNCHANGED + b"%*$"
_NOT_ENCODED_IN_TARGET = UNCHANGED.replace(b"\n", b"%")
_ANY_ESCAPE = re.compile(_ENCODED)
_GOOGLE = re.compile(_ENCODED + r"|[^\x00-\x7f]")


class _Canonical(dict[str, str]):
    """The form of an escape or a character by RFC 9309 section 2.2.2. At most 22 * 22 + 256
    entries."""

    def __missing__(self, found: str) -> str:
        if len(found) == 3:
            char = chr(int(found[1:], 16))
            form = char if char in _UNRESERVED else found.upper()
        elif found <= "\xff":
            form = f"%{ord(found):02X}"
        else:
            return "".join(f"%{byte:02X}" for byte in found.encode("utf-8", "surrogatepass"))
        self[found] = form
        return form


_CANONICAL = _Canonical()


def _rewrite(found: re.Match[str]) -> str:
    return _CANONICAL[found[0]]


# For str.translate, which is faster if many bytes must be encoded.
_TO_ENCODE = {byte: _CANONICAL[chr(byte)] for byte in range(256) if _IN_TARGET.match(chr(byte))}


# The parts of a rule that can match within the escape of an ASCII byte: that escape, a "%" that
# begins no escape, and a text after a star that begins with one of its digits.
_MEETS_ESCAPE = re.compile(
    "%(?:"
    + "|".join(f"{byte:02X}" for byte in _TO_ENCODE if byte < 0x80)
    + r")|%(?![0-9A-F]{2})|\*[0-9A-F]"
)


def meets_escapes(rules: str) -> bool:
    """Whether rules in canonical form may match an ASCII target only after its bytes are
    encoded."""
    return ("%" in rules or "*" in rules) and _MEETS_ESCAPE.search(rules) is not None


def canonical(target: str) -> str:
    """The form of RFC 9309: unreserved octets decoded, other escapes in upper case, other octets
    encoded.

    A "%" that begins no escape is data and stays: a rule "/%*/" means any escape.
    """
    if target.isascii():
        to_encode = target.encode().translate(None, _NOT_ENCODED_IN_TARGET)
        if to_encode:
            return _IN_TARGET.sub(_rewrite, target)
        if "%" in target:
            return _CHANGED.sub(_rewrite, target)
        return target
    return _CHANGED.sub(_rewrite, target).translate(_TO_ENCODE)


def canonical_rules(patterns: str) -> str:
    """The same for rules, one per line: "*" and a trailing "$" stay operators; any other "$" is
    data."""
    # Replacing one character at a time is faster than searching for any of them.
    form = _DATA_DOLLAR.sub("%24", _CHANGED.sub(_rewrite, patterns))
    for byte in set(patterns.encode("latin-1").translate(None, _NOT_ENCODED)):
        form = form.replace(chr(byte), _CANONICAL[chr(byte)])
    return form


def canonical_literals(patterns: str) -> str:
    """The same for rules of a dialect without wildcards: "*" and "$" are data as in a target."""
    return _IN_LITERALS.sub(_rewrite, patterns)


def _decode(text: str) -> str:
    """Decode every escape except that of the slash (koster1996 section 3.2.2)."""
    return _ANY_ESCAPE.sub(_decode_escape, text)


def _decode_escape(found: re.Match[str]) -> str:
    char = chr(int(found[0][1:], 16))
    # A line feed stays encoded as well, on both sides: otherwise it would split a rule.
    if char in "/\n":
        return found[0].upper()
    return char


def _as_written(text: str) -> str:
    """Encode only what is not valid in a URL, as every client must."""
    return _NOT_IN_URL.sub(_rewrite, text)


def _google_rules(patterns: str) -> str:
    """The form of Google's library: escapes in upper case, bytes beyond ASCII encoded, nothing
    decoded."""
    return _GOOGLE.sub(_upper_or_encoded, patterns)


def _upper_or_encoded(found: re.Match[str]) -> str:
    if len(found[0]) == 3:
        return found[0].upper()
    return _CANONICAL[found[0]]


def _unchanged(text: str) -> str:
    return text


Form = Callable[[str], str]

# Way of comparing -> functions for the target, for rules with wildcards, and for rules without.
_WAYS: dict[Percent, tuple[Form, Form, Form]] = {
    "rfc9309": (canonical, canonical_rules, canonical_literals),
    "decode": (_decode, _decode, _decode),
    "as_written": (_as_written, _as_written, _as_written),
    "google": (_unchanged, _google_rules, _google_rules),
}


def target_form(percent: Percent) -> Form:
    """The function that normalizes a target before it is compared."""
    return _WAYS[percent][0]


def rule_form(percent: Percent, *, wildcards: bool) -> Form:
    """The function that normalizes patterns, one per line, before they are compared."""
    return _WAYS[percent][1 if wildcards else 2]
