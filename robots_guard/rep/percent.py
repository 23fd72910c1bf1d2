"""Percent-encoding: how targets and patterns are written before they are compared.

The law of this file: each way of comparing writes both sides so that plain comparison of octets is right, and
nothing is decoded twice. Patterns are written all at once, a line each, for most files need no change at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from robots_guard.rep.dialect import Percent

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ENCODED = r"%[0-9A-Fa-f]{2}"
# What canonical writing changes: escapes in lower case and of unreserved octets, and whatever is neither unreserved
# nor reserved (RFC 3986 section 2), for it cannot stand in a URL.
_CHANGED = r"%(?:[a-f][0-9A-Fa-f]|[0-9A-F][a-f]|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])"
_CHANGED_ESCAPE = re.compile(_CHANGED)
# In a target "*" and "$" are data, and so encoded; in a rule "*" and a final "$" are operators and stay.
_IN_TARGET = re.compile(_CHANGED + r"|[^!#%-)+-;=?-\[\]_a-z~]")
_IN_LITERALS = re.compile(_CHANGED + r"|[^!#%-)+-;=?-\[\]_a-z~\n]")
_DATA_DOLLAR = re.compile(r"\$(?=.)")
_ODD_OCTET = re.compile(r"[^!-~\n]")
# The octets that no way of comparing changes, in rules or in targets; and the line feed between two rules.
UNCHANGED = bytes(octet for octet in range(256) if not _IN_TARGET.match(chr(octet)) and octet != ord("%")) + b"\n"
_NOT_ODD = UNCHANGED + b"%*$"
_NOT_ODD_IN_TARGET = UNCHANGED.replace(b"\n", b"%")
_ANY_ESCAPE = re.compile(_ENCODED)
_GOOGLE = re.compile(_ENCODED + r"|[^\x00-\x7f]")


class _Canonical(dict[str, str]):
    """What an escape or an odd octet becomes in the form of RFC 9309 section 2.2.2. At most 22 * 22 + 256 entries."""

    def __missing__(self, found: str) -> str:
        if len(found) == 3:
            octet = chr(int(found[1:], 16))
            written = octet if octet in _UNRESERVED else found.upper()
        elif found <= "\xff":
            written = f"%{ord(found):02X}"
        else:
            return "".join(f"%{octet:02X}" for octet in found.encode("utf-8", "surrogatepass"))
        self[found] = written
        return written


_CANONICAL = _Canonical()


def _rewrite(found: re.Match[str]) -> str:
    return _CANONICAL[found[0]]


# For str.translate, which is quicker where many octets are odd.
_ODD_OCTETS = {octet: _CANONICAL[chr(octet)] for octet in range(256) if _IN_TARGET.match(chr(octet))}


# What of a rule can match in the escape of an ASCII octet: that escape, a "%" that begins none, and a text behind a
# star that begins with one of its digits.
_MEETS_ESCAPE = re.compile(
    "%(?:" + "|".join(f"{octet:02X}" for octet in _ODD_OCTETS if octet < 0x80) + r")|%(?![0-9A-F]{2})|\*[0-9A-F]"
)


def meets_escapes(rules: str) -> bool:
    """May rules, in canonical writing, match what a target in ASCII holds only once its odd octets are encoded?"""
    return ("%" in rules or "*" in rules) and _MEETS_ESCAPE.search(rules) is not None


def canonical(target: str) -> str:
    """The form of RFC 9309: unreserved octets decoded, other escapes in upper case, odd octets encoded.

    A "%" that begins no escape is data and stays: a rule "/%*/" means any escape.
    """
    if target.isascii():
        odd = target.encode().translate(None, _NOT_ODD_IN_TARGET)
        return (_IN_TARGET if odd else _CHANGED_ESCAPE).sub(_rewrite, target)
    return _CHANGED_ESCAPE.sub(_rewrite, target).translate(_ODD_OCTETS)


def canonical_rules(patterns: str) -> str:
    """The same for rules, a line each: "*" and a final "$" stay operators, and any other "$" is data."""
    # A search for one character at a time is quicker than one for any of them.
    written = _DATA_DOLLAR.sub("%24", _CHANGED_ESCAPE.sub(_rewrite, patterns))
    for octet in set(patterns.encode("latin-1").translate(None, _NOT_ODD)):
        written = written.replace(chr(octet), _CANONICAL[chr(octet)])
    return written


def canonical_literals(patterns: str) -> str:
    """The same for rules of a dialect without wildcards: "*" and "$" are data as in a target."""
    return _IN_LITERALS.sub(_rewrite, patterns)


def _decoded(text: str) -> str:
    """koster1996 section 3.2.2: every escape is decoded, except that of the slash."""
    return _ANY_ESCAPE.sub(_decoded_octet, text)


def _decoded_octet(found: re.Match[str]) -> str:
    octet = chr(int(found[0][1:], 16))
    # A line feed stays as well, or it would divide a rule; it stays on both sides, so nothing is lost.
    return found[0].upper() if octet in "/\n" else octet


def _as_written(text: str) -> str:
    """As written; only what cannot stand in a URL is encoded, for so the URL must carry it."""
    return _ODD_OCTET.sub(_rewrite, text)


def _google_rules(patterns: str) -> str:
    """Google's library: escapes in upper case, octets beyond ASCII encoded, nothing decoded."""
    return _GOOGLE.sub(_upper_or_encoded, patterns)


def _upper_or_encoded(found: re.Match[str]) -> str:
    return found[0].upper() if len(found[0]) == 3 else _CANONICAL[found[0]]


def _unchanged(text: str) -> str:
    return text


Form = Callable[[str], str]

# Way of comparing -> form of the target, form of rules with wildcards, form of rules without.
_WAYS: dict[Percent, tuple[Form, Form, Form]] = {
    "rfc9309": (canonical, canonical_rules, canonical_literals),
    "decode": (_decoded, _decoded, _decoded),
    "as_written": (_as_written, _as_written, _as_written),
    "google": (_unchanged, _google_rules, _google_rules),
}


def target_form(percent: Percent) -> Form:
    """How a target is written before it is compared."""
    return _WAYS[percent][0]


def rule_form(percent: Percent, *, wildcards: bool) -> Form:
    """How patterns, a line each, are written before they are compared."""
    return _WAYS[percent][1 if wildcards else 2]
