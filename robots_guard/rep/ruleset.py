"""A document compiled for one dialect, one crawler and one matching: a target to a ruling.

The law of this file: every ruling names the rule that made it, and a form of the target beyond the first can only
turn an allowance into a denial. A ruleset holds the document's octets and line numbers, and reads a rule's text
from them when a ruling first needs it; rulings are then shared, so a verdict on the hot path makes no object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from robots_guard.rep import host as hosts
from robots_guard.rep.dialect import Dialect, Percent
from robots_guard.rep.lines import Line, records, shown, shown_line
from robots_guard.rep.matcher import NO_RULE, Constant, Matcher, Patterns, pattern_matches
from robots_guard.rep.paths import (
    Variant,
    cut_fragment,
    folded,
    is_alone,
    is_plain,
    matching,
    needs_form,
    rooted,
    rule_form,
    target_form,
    variants,
)
from robots_guard.rep.robots import RawRule, Robots, parse

EXEMPT = "/robots.txt"


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    pattern: str
    line: int
    text: str


class Ruling(NamedTuple):
    """What a document says of one target, and which rule, group and form of the target say so."""

    allowed: bool
    rule: Rule | None = None
    group: str | None = None
    form: str = "spec"
    mirror_of: str | None = None
    ambiguous: str | None = None
    disagree: tuple[str, ...] = ()
    exempt: bool = False


class Ruleset(ABC):
    """A compiled document, of one dialect or of several."""

    __slots__ = ("group", "records", "size")

    group: str | None  # the User-agent values of the group that applies
    records: tuple[Line, ...]  # its other lines: Crawl-delay, Content-Signal, ...
    size: int  # about how many octets of memory this takes

    @abstractmethod
    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        """The ruling on one target. Host, port and scheme matter to the Host directive only."""

    @abstractmethod
    def matches(self, target: str) -> list[Rule]:
        """Every rule that matches the target as it is written, in order of precedence."""


def compile_rules(body: bytes, dialect: Dialect, token: str, matching: str = "standard") -> Ruleset:
    """The document as one crawler must read it. Never raises on any octets."""
    if dialect.parts:
        return Strictest([_Document(parse(body, part), token, matching) for part in dialect.parts], dialect.parts)
    return _Document(parse(body, dialect), token, matching)


class Strictest(Ruleset):
    """Several readings of one document: allowed is what all of them allow."""

    __slots__ = ("_parts",)

    def __init__(self, rulesets: list[_Document], dialects: tuple[Dialect, ...]) -> None:
        self._parts = [(dialect.name, ruleset) for dialect, ruleset in zip(dialects, rulesets, strict=True)]
        self.group = next((ruleset.group for ruleset in rulesets if ruleset.group is not None), None)
        self.records = tuple(dict.fromkeys(record for ruleset in rulesets for record in ruleset.records))
        self.size = sum(ruleset.size for ruleset in rulesets)

    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        rulings = [(name, ruleset.judge(target, host, port, scheme)) for name, ruleset in self._parts]
        deciding = next((ruling for _, ruling in rulings if not ruling.allowed), rulings[0][1])
        others = tuple(name for name, ruling in rulings if ruling.allowed != deciding.allowed)
        return deciding._replace(disagree=others) if others else deciding

    def matches(self, target: str) -> list[Rule]:
        found = [rule for _, ruleset in self._parts for rule in ruleset.matches(target)]
        return sorted(dict.fromkeys(found), key=lambda rule: rule.allow)


class _Document(Ruleset):
    """One reading of one document."""

    __slots__ = (
        "_canonical",
        "_constant",
        "_decide",
        "_default",
        "_dialect",
        "_exempt",
        "_folded",
        "_form",
        "_hosts",
        "_matching",
        "_offsets",
        "_plain",
        "_rows",
        "_rulings",
        "_single",
        "_swift",
        "_text",
    )

    def __init__(self, robots: Robots, token: str, matching_name: str) -> None:
        dialect = robots.dialect
        selection = robots.select(token)
        self._dialect = dialect
        self._matching = matching(matching_name)
        self._form = target_form(dialect.percent)
        self._text = robots.text
        self._offsets: array[int] | None = None
        self.group = selection.title
        self.records = tuple(record for group in selection.groups for record in group.records)
        if dialect.delay_from_star:
            self.records += tuple(
                r for r in robots.star_records() if r.field == "crawl-delay" and r not in self.records
            )
        self._hosts = hosts.valid_hosts(self.records) if dialect.host_directive else ()
        self._default = Ruling(allowed=True, group=self.group)
        self._exempt = Ruling(allowed=True, group=self.group, exempt=True) if dialect.exempts_robots_txt else None
        self._rulings: dict[int, Ruling] = {NO_RULE: self._default}
        self._compile([rule for group in selection.groups for rule in group.rules])

    def _compile(self, raws: list[RawRule]) -> None:
        dialect, matching = self._dialect, self._matching
        raws = _spread(raws, dialect) if _spreads(dialect) else [raw for raw in raws if raw[2]]
        # One number a rule: its line, and in the low bit whether it allows.
        self._rows = array("L", [number << 1 | allow for number, allow, _ in raws])
        values = [value for _, _, value in raws]
        allows = [allow for _, allow, _ in raws]
        written = _formed(values, dialect.percent, dialect)
        matcher = _matcher(written, allows, dialect)
        self._decide = matcher.decide
        self._canonical = self._folded = matcher.decide
        if matching.resolves:
            resolved = written if dialect.percent == "rfc9309" else _formed(values, "rfc9309", dialect)
            if resolved != written:
                self._canonical = self._folded = _matcher(resolved, allows, dialect).decide
            lower = [text.lower() for text in resolved] if matching.folds else resolved
            if lower != resolved:
                self._folded = _matcher(lower, allows, dialect).decide
        simple = isinstance(matcher, Constant) and self._canonical == self._folded == matcher.decide
        self._constant = self._ruling(matcher.decide("/")) if simple and not self._hosts else None
        # A plain target has one form and one answer ...
        self._plain = self._canonical == matcher.decide and not matching.folds and not self._hosts
        # ... and so has any target that needs no resolving, if no rule holds an escape: for an octet that the
        # target should have had encoded, a "*" or "$" among them, stands in no pattern either.
        self._swift = self._plain and "%" not in "".join(written)
        # Here the canonical form is the first one judged already.
        self._single = self._plain and dialect.percent == "rfc9309"
        self.size = 1_200 + len(self._text) + sum(map(len, values)) * 2 + 200 * len(values)

    # --- Judging ---

    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        if target == EXEMPT and self._exempt is not None:
            return self._exempt
        if self._constant is not None:
            return self._constant
        if (
            self._swift
            and "%" not in target
            and "//" not in target
            and "/." not in target
            and ";" not in target
            and "#" not in target
            and target[:1] == "/"
        ):
            try:
                return self._rulings[self._decide(target)]
            except KeyError:
                return self._ruling(self._decide(target))
        return self._judge_with_care(target, host, port, scheme)

    def _judge_with_care(self, target: str, host: str, port: int, scheme: str) -> Ruling:
        if self._plain and is_plain(target):
            return self._ruling(self._decide(target))
        written = rooted(cut_fragment(target))
        if written == EXEMPT and self._exempt is not None and not self._matching.resolves:
            return self._exempt
        if self._hosts and host and not hosts.is_main(self._hosts, host, port, scheme):
            return self._mirror()
        form = self._form(written)
        rank = self._decide(form)
        ruling = self._rulings.get(rank) or self._ruling(rank)
        if ruling.allowed and self._matching.resolves and not (self._single and is_alone(form, target)):
            return self._denial(target) or self._doubt(target, ruling)
        return ruling

    def _denial(self, target: str) -> Ruling | None:
        """The ruling of the first further form that is disallowed."""
        for variant in variants(target):
            denial = self._denied(variant, self._canonical, "standard")
            if denial is None and self._matching.folds:
                denial = self._denied_folded(variant)
            if denial is not None:
                return denial
        return None

    def _denied_folded(self, variant: Variant) -> Ruling | None:
        for form in (variant, *folded(variant)):
            denial = self._denied(form, self._canonical, "strict")
            if denial is None:
                lower = Variant(form.text.lower(), f"{form.made_by}+letter-case")
                denial = self._denied(lower, self._folded, "strict")
            if denial is not None:
                return denial
        return None

    def _denied(self, variant: Variant, decide: Callable[[str], int], name: str) -> Ruling | None:
        ruling = self._ruling(decide(variant.text))
        return None if ruling.allowed else ruling._replace(form=f"{name}:{variant.made_by}")

    def _doubt(self, target: str, ruling: Ruling) -> Ruling:
        """Many servers read %2F as a slash, the standards do not (security: say so, and let it pass)."""
        if self._matching.folds or "%" not in target:
            return ruling
        forms = (form for variant in variants(target) for form in folded(variant))
        doubtful = any(self._denied(form, self._canonical, "strict") for form in forms)
        return ruling._replace(ambiguous="pct_slash") if doubtful else ruling

    def _mirror(self) -> Ruling:
        first = self._hosts[0]
        rule = Rule(allow=False, pattern="/", line=first.line, text=first.text)
        return Ruling(allowed=False, rule=rule, group=self.group, mirror_of=first.shown)

    # --- Rules, read again when a ruling needs them ---

    def _ruling(self, rank: int) -> Ruling:
        """The ruling of a rank, made once."""
        found = self._rulings.get(rank)
        if found is None:
            rule = self._rule(_place(rank, len(self._rows)))
            found = self._rulings[rank] = Ruling(allowed=rule.allow, rule=rule, group=self.group)
        return found

    def _rule(self, place: int) -> Rule:
        row = self._rows[place]
        raw = self._raw(row >> 1)
        return Rule(bool(row & 1), shown(self._value(place)), row >> 1, shown_line(raw))

    def _value(self, place: int) -> bytes:
        """The pattern at a place, as it stands in the file."""
        row = self._rows[place]
        for _, _, value in records(self._raw(row >> 1), self._dialect):
            values = _spread([(row >> 1, bool(row & 1), value)], self._dialect)
            first = self._rows.index(row)
            return values[place - first][2]
        return b""

    def _raw(self, number: int) -> bytes:
        if self._offsets is None:
            lengths = map(len, self._text.splitlines(keepends=True))
            self._offsets = array("L", accumulate(lengths, initial=0))
        return self._text[self._offsets[number - 1] : self._offsets[number]].rstrip(b"\r\n")

    def matches(self, target: str) -> list[Rule]:
        dialect = self._dialect
        form = target_form(dialect.percent)(rooted(cut_fragment(target)))
        places = range(len(self._rows))
        texts = _formed([self._value(place) for place in places], dialect.percent, dialect)
        ranks = _ranks(texts, [bool(row & 1) for row in self._rows], dialect)
        hits = [
            (rank, place)
            for place, text, rank in zip(places, texts, ranks, strict=True)
            if pattern_matches(text, form, wildcards=dialect.wildcards)
        ]
        return [self._rule(place) for _, place in sorted(hits, reverse=True)]


# --- From the values of a group to a matcher ---


def _spreads(dialect: Dialect) -> bool:
    return dialect.paths_per_line == "many" or dialect.root_slash or dialect.index_page


def _spread(raws: Iterable[RawRule], dialect: Dialect) -> list[RawRule]:
    """One entry a pattern, where a dialect reads more or other patterns in a value than the value itself."""
    return [
        (number, allow, pattern)
        for number, allow, value in raws
        if value
        for pattern in _patterns(value, allow, dialect)
    ]


def _patterns(value: bytes, allow: bool, dialect: Dialect) -> Iterator[bytes]:
    for pattern in value.split() if dialect.paths_per_line == "many" else (value,):
        yield b"/" + pattern if dialect.root_slash and pattern[:1] != b"/" else pattern
        if dialect.index_page and allow:
            directory, slash, page = pattern.rpartition(b"/")
            if slash and page.startswith(b"index.htm"):
                yield directory + b"/$"


def _formed(values: list[bytes], percent: Percent, dialect: Dialect) -> list[str]:
    """The patterns in the writing they are compared in."""
    if not values:
        return []
    # One decoding and one test for all: no value holds a line feed, and most groups are plain ASCII.
    joined = b"\n".join(values).decode("latin-1")
    texts = joined.split("\n")
    if needs_form(joined, wildcards=dialect.wildcards):
        form = rule_form(percent, wildcards=dialect.wildcards)
        texts = [form(text) for text in texts]
    if dialect.dollar == "cuts" and "$" in joined:
        texts = [text[: text.index("$") + 1] if "$" in text else text for text in texts]
    return texts


def _matcher(texts: list[str], allows: list[bool], dialect: Dialect) -> Matcher:
    patterns = Patterns()
    add = patterns.add_patterns if dialect.wildcards else patterns.add_prefixes
    add(texts, _ranks(texts, allows, dialect))
    return patterns.compiled()


def _ranks(texts: list[str], allows: list[bool], dialect: Dialect) -> list[int]:
    """One integer a rule, higher wins: by length and then Allow (RFC 9309 section 2.2.2), or by place (1996).

    The place is the last part of each, so that ranks are unique, the earlier rule wins a tie, and the rule can be
    found from its rank.
    """
    count = len(texts)
    if dialect.precedence == "first":
        return list(range(count - 1, -1, -1))
    return [
        (len(text) * 2 + allow) * count + count - 1 - place
        for place, (text, allow) in enumerate(zip(texts, allows, strict=True))
    ]


def _place(rank: int, count: int) -> int:
    return count - 1 - rank % count
