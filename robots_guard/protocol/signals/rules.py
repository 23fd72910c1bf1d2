"""The rules of X-Robots-Tag lines and of META ROBOTS contents, such as `noindex, max-snippet:20`.

No RFC defines their grammar. Google's page gives examples: rules are separated by commas, a rule
may have a value after a colon, and `agent:` binds the rules after it to one crawler. `a: b` is thus
ambiguous: it is a rule with a value if `a` is one of a closed list of names, otherwise an agent and
a rule. A date may contain commas, colons and blanks. So the text is read from left to right, one
word at a time, and a word is looked up before what follows it is read.

Invariant: a restrictive rule is found wherever it is a word of the text. A value, a separator or a
name that cannot be read never hides the rules beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from robots_guard.protocol.signals.dates import match_date
from robots_guard.protocol.signals.statement import (
    RAW_CAP,
    Flag,
    Place,
    Signal,
    Statement,
    bounded,
    is_restrictive,
)

#: The rules with a value.
DATE_RULE = "unavailable_after"
NUMBER_RULES = frozenset(("max-snippet", "max-video-preview"))
WORD_RULES = {"max-image-preview": ("none", "standard", "large")}
VALUED_RULES = frozenset((DATE_RULE, *NUMBER_RULES, *WORD_RULES))

#: The rules without a value.
PLAIN_RULES = frozenset(
    (
        *("noindex", "nofollow", "none", "nosnippet", "noarchive", "nocache", "noimageindex"),
        *("notranslate", "noai", "noimageai", "noml", "disallowaitraining"),
        # Permissions.
        *("all", "index", "follow", "archive", "snippet", "imageindex", "translate"),
        *("allowaitraining", "indexifembedded"),
        # Rules of services that have ended.
        *("noodp", "noydir", "noyaca", "nositelinkssearchbox"),
    )
)
RULES = VALUED_RULES | PLAIN_RULES

#: Those of them that deny something, under any settings.
DENYING_RULES = tuple(
    rule
    for rule in sorted(PLAIN_RULES)
    if is_restrictive(Statement(signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule=rule))
)

#: The most characters of a field or a META content that are read. A longer one counts as a denial.
FIELD_CAP = 16_384
WORD_CAP = 100  # characters of an unknown word or an agent that are kept

# Blanks are the blanks of Unicode, control characters and invisible marks. Quotation marks and
# semicolons are not part of the grammar, but separate words too.
_BLANK = r"\s\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff"
_QUOTE = "\"'`\u2018-\u201f\u00ab\u00bb"
_GAP = re.compile(rf"[{_BLANK},;{_QUOTE}\uff0c\uff1b\u3001\u060c]*+")
_WORD = re.compile(rf"[^{_BLANK},;{_QUOTE}\uff0c\uff1b\u3001\u060c:=]++")
_MARK = re.compile(rf"[{_BLANK}]*+([:=])")
_VALUE_GAP = re.compile(rf"[{_BLANK}{_QUOTE}]*+")
_NUMBER = re.compile(rf"(-?[0-9]{{1,18}})(?![^{_BLANK},;{_QUOTE}\uff0c\uff1b\u3001\u060c])")
_ZONE = re.compile(rf"[{_BLANK}]*+([A-Za-z]{{1,5}})(?![^{_BLANK},;{_QUOTE}])")
_STRICT = frozenset(", \t\r\n\f")
_AGENT = re.compile(r"(?=[0-9._-]*+[A-Za-z*])[A-Za-z0-9_.*-]++(?:/.*)?", re.DOTALL)
_WEEKDAY = re.compile(r"(?i:mon|tue|wed|thu|fri|sat|sun)[a-z]*+\.?\s*+,")


def read_rules(
    text: str,
    *,
    signal: Signal,
    place: Place,
    agent: str = "*",
    flags: tuple[Flag, ...] = (),
    raw: str | None = None,
) -> tuple[Statement, ...]:
    """The statements of one X-Robots-Tag line or of one META content. Never raises.

    `agent` is the crawler that the rules are for, until the text names another. `flags` are added
    to each statement. `raw` is the text of the header or tag, if it is not `text`. An unknown word
    is a statement with the flag UNKNOWN_RULE. A rule whose value cannot be read has the value "",
    and denies nothing.
    """
    shown = (text if raw is None else raw).strip()[:RAW_CAP]

    def statement(found: _Found) -> Statement:
        return Statement(
            signal=signal,
            place=place,
            rule=found.name,
            value=found.value,
            raw=shown,
            agent=found.agent,
            flags=tuple(dict.fromkeys((*flags, *found.flags))),
        )

    return bounded(map(statement, _Scanner(text, agent).rules()))


def unread_rules(
    text: str, *, signal: Signal, place: Place, agent: str = "*"
) -> tuple[Statement, ...]:
    """The statements of a text that is longer than FIELD_CAP, of which nothing is read."""
    return tuple(
        Statement(
            signal=signal,
            place=place,
            rule=rule,
            raw=text.strip()[:RAW_CAP],
            agent=agent_name(agent),
            flags=(Flag.MALFORMED,),
        )
        for rule in DENYING_RULES
    )


def agent_name(text: str) -> str:
    """The name of a crawler as it is compared: in lower case and without a version."""
    return text.partition("/")[0].strip().lower()[:WORD_CAP]


class _Found:
    """A rule that was found. The words after it may add a flag."""

    __slots__ = ("agent", "flags", "name", "value")

    def __init__(self, name: str, agent: str) -> None:
        self.name = name
        self.agent = agent
        self.value: str | int | bool = True
        self.flags: list[Flag] = []


class _Scanner:
    """One pass over a text, from left to right."""

    def __init__(self, text: str, agent: str) -> None:
        self._text = text
        self._at = 0
        self._agent = agent_name(agent)
        self._lenient = False  # the text before the next rule deviates from the grammar

    def rules(self) -> Iterator[_Found]:
        last: _Found | None = None
        while self._at < len(self._text):
            self._skip_gap(last)
            word = self._word()
            if not word:
                # A colon or equals sign without a name, or the end.
                self._lenient = self._lenient or self._at < len(self._text)
                self._at += 1
                continue
            found = self._rule(word)
            if found is None:
                if last is not None:
                    yield last
                last = None
                continue
            if self._lenient:
                found.flags.insert(0, Flag.LENIENT)
                self._lenient = False
            if last is not None:
                yield last
            last = found
        if last is not None:
            yield last

    def _skip_gap(self, last: _Found | None) -> None:
        """Skip separators. Unusual ones flag the rules on both sides."""
        end = self._end_of(_GAP)
        gap = self._text[self._at : end]
        self._at = end
        is_between_rules = last is not None and end < len(self._text)
        if not _STRICT.issuperset(gap) or (is_between_rules and "," not in gap):
            self._lenient = end < len(self._text)
            if last is not None and Flag.LENIENT not in last.flags:
                last.flags.append(Flag.LENIENT)

    def _word(self) -> str:
        begin = self._at
        self._at = self._end_of(_WORD)
        return self._text[begin : self._at]

    def _rule(self, word: str) -> _Found | None:
        """The rule that a word states, or None if the word names an agent."""
        name = word.lower()
        mark = self._skip_mark()
        if name in VALUED_RULES:
            return self._valued(name, mark)
        if name in PLAIN_RULES:
            found = _Found(name, self._agent)
            if name == "indexifembedded":
                found.flags.append(Flag.INDEXIFEMBEDDED)
            if mark:
                found.flags.append(Flag.MALFORMED)
                self._skip_value()
            return found
        is_url = self._text.startswith("//", self._at)
        if mark == ":" and not is_url and _AGENT.fullmatch(word):
            self._agent = agent_name(word)
            return None
        found = _Found(name[:WORD_CAP], self._agent)
        found.flags.append(Flag.UNKNOWN_RULE)
        if mark == "=":
            self._skip_value()
        return found

    def _skip_mark(self) -> str:
        """Skip a colon or an equals sign after a word, and return it."""
        mark = _MARK.match(self._text, self._at)
        if mark is None:
            return ""
        self._at = mark.end()
        return mark[1]

    def _skip_value(self) -> None:
        """Skip a word after a mark, unless it is a rule or an agent itself."""
        before = self._at
        self._at = self._end_of(_VALUE_GAP)
        word = self._word()
        if word.lower() in RULES or self._is_before_colon():
            self._at = before

    def _is_before_colon(self) -> bool:
        mark = _MARK.match(self._text, self._at)
        return mark is not None and mark[1] == ":"

    # --- Values ---

    def _valued(self, name: str, mark: str) -> _Found:
        found = _Found(name, self._agent)
        if mark == "=":
            found.flags.append(Flag.LENIENT)
        before = self._at
        self._at = self._end_of(_VALUE_GAP)
        if name == DATE_RULE:
            is_read = self._read_date(found)
        elif name in NUMBER_RULES:
            is_read = self._read_number(found)
        else:
            is_read = self._read_word(found, WORD_RULES[name])
        if is_read:
            if not mark:
                found.flags.append(Flag.LENIENT)
            return found
        self._at = before
        found.value = ""
        found.flags.append(Flag.UNREADABLE_DATE if name == DATE_RULE else Flag.MALFORMED)
        if mark:
            self._skip_unreadable_value()
        return found

    def _read_date(self, found: _Found) -> bool:
        date = match_date(self._text, self._at)
        if date is None:
            return False
        found.value = date.seconds
        self._at = date.end
        if date.assumed_utc:
            found.flags.append(Flag.ASSUMED_UTC)
            self._skip_unknown_zone()
        return True

    def _skip_unknown_zone(self) -> None:
        zone = _ZONE.match(self._text, self._at)
        if zone is None or zone[1].lower() in RULES:
            return
        before, self._at = self._at, zone.end()
        if _MARK.match(self._text, self._at):
            self._at = before

    def _read_number(self, found: _Found) -> bool:
        number = _NUMBER.match(self._text, self._at)
        if number is None or int(number[1]) < -1:
            return False
        found.value = int(number[1])
        self._at = number.end()
        return True

    def _read_word(self, found: _Found, words: tuple[str, ...]) -> bool:
        before = self._at
        word = self._word().lower()
        if word in words and not self._is_before_colon():
            found.value = word
            return True
        self._at = before
        return False

    def _skip_unreadable_value(self) -> None:
        """Skip to the next comma or semicolon, but no further than the next rule or agent."""
        weekday = _WEEKDAY.match(self._text, self._end_of(_VALUE_GAP))
        if weekday:
            self._at = weekday.end()
        while self._at < len(self._text):
            before = self._at
            gap_end = self._end_of(_GAP)
            gap = self._text[self._at : gap_end]
            if "," in gap or ";" in gap:
                return
            self._at = gap_end
            word = self._word()
            names_agent = self._is_before_colon() and _AGENT.fullmatch(word)
            if word.lower() in RULES or names_agent:
                self._at = before
                return
            self._at = max(self._at, before + 1)

    def _end_of(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        if found is None:
            return self._at
        return found.end()
