"""Path patterns of signals, which are matched like the rules of a robots.txt (RFC 9309).

The operator's dialect decides how Allow and Disallow match. Signals are younger than the dialects,
so their patterns always match as RFC 9309 section 2.2.3 says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from robots_guard.protocol.dialect import DIALECTS, Precedence
from robots_guard.protocol.matcher import NO_RULE, TOO_COMPLEX, formed, matcher_of, place_of
from robots_guard.protocol.paths import Matching, cut_fragment, folded, is_plain, rooted, variants
from robots_guard.protocol.percent import target_form

__all__ = [
    "NO_RULE",
    "TOO_COMPLEX",
    "Form",
    "PathPatterns",
    "normal",
    "other_forms",
    "written_form",
]

_RFC9309 = DIALECTS["rfc9309"]
_DIALECTS = {
    "longest": _RFC9309,
    "first": replace(_RFC9309, precedence="first"),
}


class Form(NamedTuple):
    """A form of a target, and whether letter case is ignored when it is compared."""

    text: str
    ignores_case: bool = False


class PathPatterns:
    """Patterns. For each target one is chosen: the longest that matches, or the first."""

    def __init__(self, patterns: Sequence[bytes], precedence: Precedence = "longest") -> None:
        self._dialect = _DIALECTS[precedence]
        self._rows = [2 * place for place in range(len(patterns))]
        self._text = normal(patterns)
        self._matcher = matcher_of(self._text, self._rows, self._dialect)
        self._lower = self._matcher if self._text == self._text.lower() else None

    def choose(self, form: Form) -> int:
        """The index of the chosen pattern, NO_RULE, or TOO_COMPLEX."""
        matcher, text = self._matcher, form.text
        if form.ignores_case:
            text = text.lower()
            if self._lower is None:
                self._lower = matcher_of(self._text.lower(), self._rows, self._dialect)
            matcher = self._lower
        rank = matcher.decide(text)
        if rank in (NO_RULE, TOO_COMPLEX):
            return rank
        return place_of(rank, len(self._rows))


def normal(patterns: Sequence[bytes]) -> str:
    """The patterns in their normal form, one per line."""
    if not patterns:
        return ""
    # A pattern from JSON can contain a line feed, which separates patterns here.
    values = [pattern.replace(b"\n", b"%0A") for pattern in patterns]
    return formed(values, _RFC9309.percent, _RFC9309)


def written_form(target: str) -> Form:
    """The target as it was requested, in its normal form."""
    return Form(target_form(_RFC9309.percent)(rooted(cut_fragment(target))))


def other_forms(target: str, matching: Matching) -> Iterator[Form]:
    """The other forms that a server may treat as the same target. They can only add denials."""
    if not matching.resolves or (is_plain(target) and not matching.folds):
        return
    for variant in variants(target):
        texts = [variant]
        if matching.folds:
            texts += [text for text, _ in folded(variant)]
        for text in texts:
            yield Form(text)
            if matching.folds:
                yield Form(text, ignores_case=True)
