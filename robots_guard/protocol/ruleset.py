"""A document compiled for one dialect, one crawler and one matching profile: a target to a ruling.

Invariant: every ruling names its rule, and a form of the target after the first can only turn an
allowance into a denial. Rulings are cached and shared, so that the hot path creates no objects.

Invariant: memory per rule is one number. The text of a rule is read again from the document when a
verdict first names the rule. Of a document in which a line is several, the patterns are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import NamedTuple

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.directives import Pace, is_main, pace_of, valid_hosts
from robots_guard.protocol.lines import Line, Record, records, shown, shown_line
from robots_guard.protocol.matcher import (
    FEW,
    NO_RULE,
    TOO_COMPLEX,
    Constant,
    Matcher,
    formed,
    matcher_of,
    pattern_matches,
    place_of,
    ranks,
)
from robots_guard.protocol.paths import (
    Matching,
    cut_fragment,
    folded,
    forms_of,
    has_encoded_slash,
    is_plain,
    rooted,
    variants,
)
from robots_guard.protocol.paths import matching as matching_of
from robots_guard.protocol.percent import meets_escapes, target_form
from robots_guard.protocol.robots import Robots, Selection, parse, parse_clean
from robots_guard.protocol.signals.robots_txt import (
    NO_STATEMENTS,
    RobotsStatements,
    states_something,
)
from robots_guard.protocol.signals.statement import RAW_CAP, Place, Signal, Statement, bounded


@dataclass(frozen=True, slots=True)
class Rule:
    """One Allow or Disallow line."""

    allow: bool
    pattern: str
    line: int
    text: str

    def __reduce__(self) -> tuple[type[Rule], tuple[bool, str, int, str]]:
        """Copies and pickles are made by the constructor, as those of a dialect are."""
        return Rule, (self.allow, self.pattern, self.line, self.text)


class SourceText:
    """The text of a document, and one crawler's rules in it by place."""

    __slots__ = ("_dialect", "_kept", "_offsets", "rows", "text")

    def __init__(
        self, text: bytes, dialect: Dialect, rows: list[int], kept: list[bytes] | None = None
    ) -> None:
        self.text = text
        self._dialect = dialect
        self._kept = kept
        self._offsets: array[int] | None = None
        # A list of small numbers takes little memory, because Python caches small integers.
        self.rows: Sequence[int] = rows if len(rows) < FEW else array("I", rows)

    def rule(self, place: int) -> Rule:
        """The rule at a place, as written in the document."""
        row = self.rows[place]
        line = row >> 1
        return Rule(bool(row & 1), shown(self._pattern(place)), line, shown_line(self._raw(line)))

    def _pattern(self, place: int) -> bytes:
        """The pattern at a place. A line may contain several."""
        if self._kept is not None:
            return self._kept[place]
        row = self.rows[place]
        return next(islice(self._patterns_of(row), place - bisect_left(self.rows, row), None))

    def patterns(self) -> list[bytes]:
        """The patterns by place. Each line is read once, even if it contains several."""
        if self._kept is not None:
            return self._kept
        return [pattern for row in dict.fromkeys(self.rows) for pattern in self._patterns_of(row)]

    def _patterns_of(self, row: int) -> Iterator[bytes]:
        for _, _, value in records(self._raw(row >> 1), self._dialect):
            yield from _patterns(value, row, self._dialect)

    def line(self, record: Record) -> Line:
        """A record as text for people."""
        number, name, value = record
        return Line(number, shown(name), shown(value), shown_line(self._raw(number)))

    def _raw(self, number: int) -> bytes:
        if self._offsets is None:
            lengths = map(len, self.text.splitlines(keepends=True))
            self._offsets = array("I", accumulate(lengths, initial=0))
        return self.text[self._offsets[number - 1] : self._offsets[number]].rstrip(b"\r\n")


def patterns_of(
    rows: list[int], values: list[bytes], dialect: Dialect
) -> tuple[list[int], list[bytes]]:
    """The row and the text of each pattern: a dialect may read a value as several patterns, or
    change it.

    A rule without a value is dropped: it forbids nothing and cancels nothing.
    """
    several = dialect.paths_per_line == "many" or dialect.root_slash or dialect.index_page
    if not several and b"" not in values:
        return rows, values
    rules = [rule for rule in zip(rows, values, strict=True) if rule[1]]
    if several:
        rules = [
            (row, pattern) for row, value in rules for pattern in _patterns(value, row, dialect)
        ]
    return [row for row, _ in rules], [pattern for _, pattern in rules]


def _patterns(value: bytes, row: int, dialect: Dialect) -> Iterator[bytes]:
    patterns = [value]
    if dialect.paths_per_line == "many":
        patterns = value.split()
    for pattern in patterns:
        if dialect.root_slash and pattern[:1] != b"/":
            yield b"/" + pattern
        else:
            yield pattern
        if dialect.index_page and row & 1:
            directory, slash, page = pattern.rpartition(b"/")
            if slash and page.startswith(b"index.htm"):
                yield directory + b"/$"


__all__ = ["Rule", "Ruleset", "Ruling", "compile_rules"]

EXEMPT = "/robots.txt"
KEPT_RULINGS = 1_024  # per ruleset; few crawlers meet as many rules of one file


class Ruling(NamedTuple):
    """The result for one target, with the rule, group and form of the target that decided."""

    allowed: bool
    rule: Rule | None = None
    group: str | None = None
    form: str = "spec"
    mirror_of: str | None = None
    ambiguous: str | None = None
    disagree: tuple[str, ...] = ()
    exempt: bool = False


class Ruleset(ABC):
    """A document compiled for one dialect, or for several."""

    __slots__ = ("_pace", "size")

    size: int  # approximate memory use in bytes

    @property
    @abstractmethod
    def group(self) -> str | None:
        """The User-agent values of the group that applies, as written, or None."""

    @property
    @abstractmethod
    def records(self) -> tuple[Line, ...]:
        """The other lines of that group: Crawl-delay, Content-Signal, ..."""

    @property
    def pace(self) -> Pace | None:
        """The delays and visiting times of that group, or None. Parsed on first use."""
        try:
            return self._pace
        except AttributeError:
            self._pace: Pace | None = pace_of(self.records)
            return self._pace

    @abstractmethod
    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        """The ruling on one target. Host, port and scheme are used by the Host directive only."""

    @abstractmethod
    def statements(self, target: str) -> tuple[Statement, ...]:
        """What the document states about the use of a target's content, in addition to its rules."""

    def _without_permissions_of_disallowed(
        self, statements: tuple[Statement, ...], target: str
    ) -> tuple[Statement, ...]:
        """The statements. If the target is disallowed, permissions of Content-Usage are removed,
        because they are only about content that may be fetched (draft-ietf-aipref-attach-05)."""
        has_permission = any(map(_is_permission, statements))
        if has_permission and not self.judge(target).allowed:
            return tuple(each for each in statements if not _is_permission(each))
        return statements

    @abstractmethod
    def matches(self, target: str) -> list[Rule]:
        """Every rule that matches the target as written, in order of precedence."""


#: A use of content, such as `ai-train`, and a product token, such as `Google-Extended`.
PurposeToken = tuple[str, str]


def compile_rules(
    body: bytes,
    dialect: Dialect,
    token: str,
    matching: str = "standard",
    purpose_tokens: tuple[PurposeToken, ...] = (),
) -> Ruleset:
    """Compile a document for one crawler. Never raises on any bytes.

    `purpose_tokens` are product tokens that stand for a use. If the rules for such a token disallow
    a target, that is a statement about the use.
    """
    forms = matching_of(matching)
    if dialect.parts:
        parts = dialect.parts
        return Strictest(
            [
                (part.name, _reading(parse(body, part), token, forms, purpose_tokens))
                for part in parts
            ]
        )
    return _reading(parse(body, dialect), token, forms, purpose_tokens)


def _reading(
    robots: Robots,
    token: str,
    matching: Matching,
    purpose_tokens: tuple[PurposeToken, ...] = (),
) -> Ruleset:
    """A document compiled for one crawler. If it can be mended, it has two readings, and what both
    allow is allowed."""
    selection = robots.select(token)
    mended = robots.mended(token)
    first = _Document(robots, selection, token, matching, purpose_tokens)
    if mended is None:
        return first
    second = _Document(mended, mended.select(token), token, matching, purpose_tokens)
    return Strictest([("as-written", first), ("as-meant", second)])


class Strictest(Ruleset):
    """Several readings of one document, which allows what all of them allow."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[str, Ruleset]]) -> None:
        self._parts = parts
        self.size = sum(ruleset.size for _, ruleset in parts)

    @property
    def group(self) -> str | None:
        groups = (ruleset.group for _, ruleset in self._parts)
        return next((group for group in groups if group is not None), None)

    @property
    def records(self) -> tuple[Line, ...]:
        return tuple(
            dict.fromkeys(record for _, ruleset in self._parts for record in ruleset.records)
        )

    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        rulings = [
            (name, ruleset.judge(target, host, port, scheme)) for name, ruleset in self._parts
        ]
        deciding = next((ruling for _, ruling in rulings if not ruling.allowed), rulings[0][1])
        others = tuple(name for name, ruling in rulings if ruling.allowed != deciding.allowed)
        if others:
            return deciding._replace(disagree=others)
        return deciding

    def statements(self, target: str) -> tuple[Statement, ...]:
        found = [each for _, ruleset in self._parts for each in ruleset.statements(target)]
        return self._without_permissions_of_disallowed(bounded(found), target)

    def matches(self, target: str) -> list[Rule]:
        found = [ruleset.matches(target) for _, ruleset in self._parts]
        # The rules of the part that decides come first: see `judge`.
        found.sort(key=lambda rules: not rules or rules[0].allow)
        return list(dict.fromkeys(rule for rules in found for rule in rules))


def _named_tokens(
    robots: Robots, matching: Matching, purpose_tokens: tuple[PurposeToken, ...]
) -> tuple[tuple[str, str, Ruleset], ...]:
    """The purpose tokens that the document names: use, token and the rules for the token."""
    return tuple(
        (use, token.lower(), _reading(robots, token, matching))
        for use, token in purpose_tokens
        if robots.names(token)
    )


@lru_cache(maxsize=256)
def _no_match(group: str | None) -> Ruling:
    """The ruling if no rule matches, shared by documents whose groups have the same title, as most
    do."""
    return Ruling(allowed=True, group=group)


def _is_permission(statement: Statement) -> bool:
    return statement.signal is Signal.CONTENT_USAGE and statement.value == "y"


#: Bytes of memory per byte of a document that has statements, once they are compiled, as measured.
STATED_BYTES = 36

#: Bytes of a document whose statements are compiled with its rules. The guard compiles long
#: documents in a thread; a first question about the statements would block its event loop.
COMPILED_AT_ONCE = 64 * 1024


class _Document(Ruleset):
    """One reading of one document."""

    __slots__ = (
        "_canonical",
        "_constant",
        "_dialect",
        "_folded",
        "_hosts",
        "_matcher",
        "_matching",
        "_no_match",
        "_others",
        "_plain",
        "_rulings",
        "_source",
        "_statements",
        "_swift",
        "_token",
        "_tokens",
    )

    def __init__(
        self,
        robots: Robots,
        selection: Selection,
        token: str,
        matching: Matching,
        purpose_tokens: tuple[PurposeToken, ...] = (),
    ) -> None:
        dialect, text = robots.dialect, robots.text
        rows, values = patterns_of(*selection.rules, dialect)
        self._dialect = dialect
        self._others = tuple(robots.others_for(selection))
        self._matching = matching
        self._source = SourceText(text, dialect, rows, values if robots.has_split_lines else None)
        self._no_match = _no_match(selection.title)
        self._rulings: dict[int, Ruling] = {}
        self._hosts = valid_hosts(self.records) if dialect.host_directive else ()
        written = formed(values, dialect.percent, dialect) if rows else ""
        self._matcher = self._canonical = self._folded = matcher_of(written, rows, dialect)
        if matching.folds or (matching.resolves and dialect.percent != "rfc9309"):
            self._compile_further_forms(values, written)
        one = self._folded is self._matcher and not self._hosts
        # A plain target has one form and one ruling ...
        self._plain = one and not matching.folds
        self._constant = self._no_match if one and not rows else None
        # ... and so has any other ASCII target that needs no resolving, if no rule depends on
        # whether its bytes are encoded.
        self._swift = self._plain and not meets_escapes(written)
        self.size = 800 + len(text) + len(written) + 120 * len(rows)
        self._token = token
        self._tokens: tuple[tuple[str, str, Ruleset], ...] = ()
        if purpose_tokens:
            self._tokens = _named_tokens(robots, matching, purpose_tokens)
            self.size += sum(ruleset.size for *_, ruleset in self._tokens)
        self._statements: RobotsStatements | None = NO_STATEMENTS
        if states_something(robots):
            self.size += STATED_BYTES * len(text)
            self._statements = None  # compiled on first use
            if len(text) > COMPILED_AT_ONCE:
                self._statements = RobotsStatements(robots, token, matching)

    def _compile_further_forms(self, values: list[bytes], written: str) -> None:
        resolved = formed(values, "rfc9309", self._dialect)
        if resolved != written:
            self._canonical = self._folded = matcher_of(resolved, self._source.rows, self._dialect)
        lower = resolved.lower() if self._matching.folds else resolved
        if lower != resolved:
            self._folded = matcher_of(lower, self._source.rows, self._dialect)

    @property
    def group(self) -> str | None:
        return self._no_match.group

    @property
    def records(self) -> tuple[Line, ...]:
        return tuple(map(self._source.line, self._others))

    # --- Judging ---

    def judge(self, target: str, host: str = "", port: int = 0, scheme: str = "http") -> Ruling:
        if target == EXEMPT and self._dialect.exempts_robots_txt:
            return self._exempt()
        if self._constant is not None:
            return self._constant
        if self._swift:
            # The test of `is_plain` without a call, because every request comes here.
            has_one_form = (
                "//" not in target
                and "/." not in target
                and ("?" not in target or target[-1] != "?")
                and "%" not in target
                and ";" not in target
                and "#" not in target
                and target[:1] == "/"
                and target.isascii()
            )
        else:
            has_one_form = self._plain and is_plain(target)
        if has_one_form:
            rank = self._matcher.decide(target)
            if rank == NO_RULE:
                return self._no_match
            try:
                return self._rulings[rank]
            except KeyError:
                return self._ruling(rank)
        return self._judge_all_forms(target, host, port, scheme)

    def _judge_all_forms(self, target: str, host: str, port: int, scheme: str) -> Ruling:
        resolves = self._matching.resolves
        if not resolves and self._is_exempt(target):
            return self._exempt()
        if self._hosts and host and not is_main(self._hosts, host, port, scheme):
            return self._mirror()
        if not resolves:
            return self._ruling(self._rank_as_written(target))
        forms = others = forms_of(target)
        # The target as written has the first of these forms, unless the dialect has its own way of
        # comparing.
        if self._dialect.percent == "rfc9309":
            rank = self._canonical.decide(forms[0])
            others = forms[1:]
        else:
            rank = self._rank_as_written(target)
        ruling = self._no_match if rank == NO_RULE else self._ruling(rank)
        if not ruling.allowed:
            return ruling
        allows = not others or self._allows(others, self._canonical, rank)
        if allows and self._matching.folds:
            allows = self._allows(map(str.lower, forms), self._folded, rank)
        if allows:
            return ruling
        return self._denial(target) or self._doubt(target, ruling)

    def _allows(self, forms: Iterable[str], matcher: Matcher, usual: int) -> bool:
        """Whether all forms are allowed. `usual` is the rank of most, and allows."""
        for form in forms:
            rank = matcher.decide(form)
            if rank != usual and not self._ruling(rank).allowed:
                return False
        return True

    def _is_exempt(self, target: str) -> bool:
        written = rooted(cut_fragment(target))
        return written == EXEMPT and self._dialect.exempts_robots_txt

    def _rank_as_written(self, target: str) -> int:
        written = rooted(cut_fragment(target))
        return self._matcher.decide(target_form(self._dialect.percent)(written))

    def _denial(self, target: str) -> Ruling | None:
        """The ruling of the first form that is disallowed, which names the form."""
        folds = self._matching.folds
        for form, made_by in variants(target).items():
            denial = self._denial_of(form, self._canonical)
            if denial is not None:
                return denial._replace(form=f"standard:{made_by}")
            if folds and (denial := self._denial_of_folded_forms(form, made_by)):
                return denial
        return None

    def _denial_of_folded_forms(self, form: str, made_by: str) -> Ruling | None:
        denial = self._denial_of(form.lower(), self._folded)
        if denial is not None:
            return denial._replace(form=f"strict:{made_by}+letter-case")
        for text, steps in folded(form):
            denial = self._denial_of(text, self._canonical)
            if denial is not None:
                return denial._replace(form=f"strict:{steps}")
            denial = self._denial_of(text.lower(), self._folded)
            if denial is not None:
                return denial._replace(form=f"strict:{steps}+letter-case")
        return None

    def _denial_of(self, form: str, matcher: Matcher) -> Ruling | None:
        rank = matcher.decide(form)
        if rank == NO_RULE:
            return None
        ruling = self._ruling(rank)
        return None if ruling.allowed else ruling

    def _doubt(self, target: str, ruling: Ruling) -> Ruling:
        """Mark a ruling as ambiguous: it depends on %2F, which many servers but no standard read as
        a slash."""
        if self._matching.folds or not has_encoded_slash(target):
            return ruling
        return ruling._replace(ambiguous="pct_slash")

    def _exempt(self) -> Ruling:
        return Ruling(allowed=True, group=self.group, exempt=True)

    def _mirror(self) -> Ruling:
        first = self._hosts[0]
        rule = Rule(allow=False, pattern="/", line=first.line, text=first.text)
        return Ruling(allowed=False, rule=rule, group=self.group, mirror_of=first.shown)

    def _ruling(self, rank: int) -> Ruling:
        """The cached ruling of a rank."""
        if rank == NO_RULE:
            return self._no_match
        found = self._rulings.get(rank)
        if found is None:
            found = self._make_ruling(rank)
            if len(self._rulings) >= KEPT_RULINGS:
                self._rulings.clear()
            self._rulings[rank] = found
        return found

    def _make_ruling(self, rank: int) -> Ruling:
        if rank == TOO_COMPLEX:
            return Ruling(allowed=False, group=self.group, ambiguous="policy_too_complex")
        rule = self._source.rule(place_of(rank, len(self._source.rows)))
        ruling = Ruling(allowed=rule.allow, rule=rule, group=self.group)
        if self._plain and isinstance(self._matcher, Constant):
            self._constant = ruling
        return ruling

    # --- Statements ---

    def statements(self, target: str) -> tuple[Statement, ...]:
        if self._statements is None:
            robots = parse_clean(self._source.text, self._dialect)
            self._statements = RobotsStatements(robots, self._token, self._matching)
        found = self._statements.statements(target)
        if self._tokens:
            found = (*found, *self._token_statements(target))
        return self._without_permissions_of_disallowed(found, target)

    def _token_statements(self, target: str) -> Iterator[Statement]:
        for use, token, ruleset in self._tokens:
            ruling = ruleset.judge(target)
            if not ruling.allowed:
                yield Statement(
                    signal=Signal.PURPOSE_TOKEN,
                    place=Place.ROBOTS_TXT,
                    rule=use,
                    value="disallow",
                    agent=token,
                    raw=ruling.rule.text[:RAW_CAP] if ruling.rule else "",
                    line=ruling.rule.line if ruling.rule else None,
                )

    def matches(self, target: str) -> list[Rule]:
        dialect, source = self._dialect, self._source
        form = target_form(dialect.percent)(rooted(cut_fragment(target)))
        text = formed(source.patterns(), dialect.percent, dialect)
        texts = text.split("\n") if source.rows else []
        hits = [
            (rank, place)
            for place, (rank, text) in enumerate(
                zip(ranks(texts, source.rows, dialect), texts, strict=True)
            )
            if pattern_matches(text, form, wildcards=dialect.wildcards)
        ]
        return [source.rule(place) for _, place in sorted(hits, reverse=True)]
