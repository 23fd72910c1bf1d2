"""A document compiled for one dialect, one crawler and one matching: a target to a ruling.

The law of this file: every ruling names the rule that made it, and a form of the target beyond the first can only
turn an allowance into a denial. Rulings are made once and shared, so a verdict on the hot path makes no object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from robots_guard.rep import host as hosts
from robots_guard.rep.dialect import Dialect
from robots_guard.rep.lines import Line, Record
from robots_guard.rep.matcher import TOO_COMPLEX, Constant, pattern_matches
from robots_guard.rep.paths import (
    PLAIN,
    Variant,
    cut_fragment,
    folded,
    has_encoded_slash,
    is_alone,
    matching,
    rooted,
    variants,
)
from robots_guard.rep.percent import target_form
from robots_guard.rep.ranking import formed, matcher_of, place_of, ranks
from robots_guard.rep.robots import Robots, Selection, parse
from robots_guard.rep.source import Rule, Source, spread

__all__ = ["Rule", "Ruleset", "Ruling", "compile_rules"]

EXEMPT = "/robots.txt"
KEPT_RULINGS = 1_024  # a ruleset; few crawlers meet as many rules of one file


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

    __slots__ = ("size",)

    size: int  # about how many octets of memory this takes

    @property
    @abstractmethod
    def group(self) -> str | None:
        """The User-agent values of the group that applies, as written, or None."""

    @property
    @abstractmethod
    def records(self) -> tuple[Line, ...]:
        """The other lines of that group: Crawl-delay, Content-Signal, ..."""

    @abstractmethod
    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        """The ruling on one target. Host, port and scheme matter to the Host directive only."""

    @abstractmethod
    def matches(self, target: str) -> list[Rule]:
        """Every rule that matches the target as it is written, in order of precedence."""


def compile_rules(body: bytes, dialect: Dialect, token: str, matching: str = "standard") -> Ruleset:
    """The document as one crawler must read it. Never raises on any octets."""
    if dialect.parts:
        return Strictest([(part.name, _Document(parse(body, part), token, matching)) for part in dialect.parts])
    return _Document(parse(body, dialect), token, matching)


class Strictest(Ruleset):
    """Several readings of one document: allowed is what all of them allow."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[str, Ruleset]]) -> None:
        self._parts = parts
        self.size = sum(ruleset.size for _, ruleset in parts)

    @property
    def group(self) -> str | None:
        return next((ruleset.group for _, ruleset in self._parts if ruleset.group is not None), None)

    @property
    def records(self) -> tuple[Line, ...]:
        return tuple(dict.fromkeys(record for _, ruleset in self._parts for record in ruleset.records))

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
        "_dialect",
        "_folded",
        "_form",
        "_hosts",
        "_matching",
        "_others",
        "_plain",
        "_rulings",
        "_selection",
        "_single",
        "_source",
        "_swift",
    )

    def __init__(self, robots: Robots, token: str, matching_name: str) -> None:
        dialect = robots.dialect
        selection = robots.select(token)
        rules = spread([rule for group in selection.groups for rule in group.rules], dialect)
        self._dialect = dialect
        self._matching = matching(matching_name)
        self._form = target_form(dialect.percent)
        self._selection = selection.title
        self._source = Source(robots.text, dialect, rules)
        self._others = tuple(_others(robots, selection))
        self._hosts = hosts.valid_hosts(self.records) if dialect.host_directive else ()
        self._rulings: dict[int, Ruling] = {}
        self._compile([value for _, _, value in rules])

    def _compile(self, values: list[bytes]) -> None:
        dialect, matching, allows = self._dialect, self._matching, self._source.allows()
        written = formed(values, dialect.percent, dialect)
        matcher = matcher_of(written, allows, dialect)
        self._decide = self._canonical = self._folded = matcher.decide
        if matching.resolves:
            resolved = written if dialect.percent == "rfc9309" else formed(values, "rfc9309", dialect)
            if resolved != written:
                self._canonical = self._folded = matcher_of(resolved, allows, dialect).decide
            lower = [text.lower() for text in resolved] if matching.folds else resolved
            if lower != resolved:
                self._folded = matcher_of(lower, allows, dialect).decide
        one = self._canonical == self._folded == matcher.decide and not self._hosts
        self._constant = self._ruling(matcher.decide("/")) if one and isinstance(matcher, Constant) else None
        # A plain target has one form and one answer ...
        self._plain = one and not matching.folds
        # ... and so has any target that needs no resolving, if no rule holds an escape: for an octet that the
        # target should have had encoded, a "*" or "$" among them, stands in no pattern either.
        self._swift = self._plain and "%" not in "".join(written)
        # Here the canonical form is the first one judged already.
        self._single = self._plain and dialect.percent == "rfc9309"
        self.size = 1_000 + len(self._source.text) + sum(map(len, values)) + 110 * len(values)

    @property
    def group(self) -> str | None:
        return self._selection

    @property
    def records(self) -> tuple[Line, ...]:
        return tuple(map(self._source.line, self._others))

    # --- Judging ---

    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        if target == EXEMPT and self._dialect.exempts_robots_txt:
            return self._exempt()
        if self._constant is not None:
            return self._constant
        # is_plain written out, with a quicker test where no rule holds an escape: a call would cost a tenth of all.
        if (
            self._plain
            and "//" not in target
            and "/." not in target
            and (
                "%" not in target and ";" not in target and "#" not in target and target[:1] == "/"
                if self._swift
                else PLAIN(target)
            )
        ):
            rank = self._decide(target)
            try:
                return self._rulings[rank]
            except KeyError:
                return self._ruling(rank)
        return self._judge_with_care(target, host, port, scheme)

    def _judge_with_care(self, target: str, host: str, port: int, scheme: str) -> Ruling:
        written = rooted(cut_fragment(target))
        if written == EXEMPT and self._dialect.exempts_robots_txt and not self._matching.resolves:
            return self._exempt()
        if self._hosts and host and not hosts.is_main(self._hosts, host, port, scheme):
            return self._mirror()
        form = self._form(written)
        ruling = self._ruling(self._decide(form))
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
        """Many servers read %2F as a slash and no standard does: where that matters, pass and say so."""
        if self._matching.folds or not has_encoded_slash(target):
            return ruling
        forms = (form for variant in variants(target) for form in folded(variant))
        doubtful = any(self._denied(form, self._canonical, "strict") for form in forms)
        return ruling._replace(ambiguous="pct_slash") if doubtful else ruling

    def _exempt(self) -> Ruling:
        return Ruling(allowed=True, group=self.group, exempt=True)

    def _mirror(self) -> Ruling:
        first = self._hosts[0]
        rule = Rule(allow=False, pattern="/", line=first.line, text=first.text)
        return Ruling(allowed=False, rule=rule, group=self.group, mirror_of=first.shown)

    def _ruling(self, rank: int) -> Ruling:
        """The ruling of a rank, made once."""
        found = self._rulings.get(rank)
        if found is None:
            rule = self._source.rule(place_of(rank, len(self._source))) if rank >= 0 else None
            found = Ruling(allowed=rule is None or rule.allow, rule=rule, group=self.group)
            if rank == TOO_COMPLEX:
                found = found._replace(allowed=False, ambiguous="policy_too_complex")
            if len(self._rulings) >= KEPT_RULINGS:
                self._rulings.clear()
            self._rulings[rank] = found
        return found

    def matches(self, target: str) -> list[Rule]:
        dialect, source = self._dialect, self._source
        form = self._form(rooted(cut_fragment(target)))
        texts = formed(source.patterns(), dialect.percent, dialect)
        hits = [
            (rank, place)
            for place, (rank, text) in enumerate(zip(ranks(texts, source.allows(), dialect), texts, strict=True))
            if pattern_matches(text, form, wildcards=dialect.wildcards)
        ]
        return [source.rule(place) for _, place in sorted(hits, reverse=True)]


def _others(robots: Robots, selection: Selection) -> list[Record]:
    found = [record for group in selection.groups for record in group.others]
    if robots.dialect.delay_from_star:
        found += [r for r in robots.star_others() if r[1] == b"crawl-delay" and r not in found]
    return found
