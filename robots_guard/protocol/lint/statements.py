"""Checks of statements on use: Content-Usage and Content-Signal, in a robots.txt, in header fields and
in pages, and the robots rules of X-Robots-Tag and META ROBOTS."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from robots_guard.protocol.lint.finding import CheckTable, Note, Severity
from robots_guard.protocol.lint.page import Item, LintedFile, cut
from robots_guard.protocol.signals.rules import PLAIN_RULES, RULES, VALUED_RULES
from robots_guard.protocol.signals.statement import Flag, Place, Statement
from robots_guard.protocol.signals.usage import (
    PIECE,
    SIGNAL_LABELS,
    USAGE_LABELS,
    read_signal,
    read_usage,
)

TABLE = CheckTable()

USAGE = "content-usage"
SIGNAL = "content-signal"

_PATH = re.compile(rb"[/*][^ \t=]*(?:[ \t]+|\Z)")
_WORDS = {
    USAGE: (("yes", "no", "true", "false", "allow", "deny", "disallow", "1", "0"), "y or n"),
    SIGNAL: (("y", "n", "true", "false", "allow", "deny", "disallow", "1", "0"), "yes or no"),
}
_LABELS = {USAGE: sorted(USAGE_LABELS), SIGNAL: sorted((*SIGNAL_LABELS, "use"))}
#: The label of the other vocabulary that means the same.
_COUNTERPARTS = {"ai-train": "train-ai", "train-ai": "ai-train", "ai-input": "ai-use"}
_FIELD_NAMES = {USAGE: "Content-Usage", SIGNAL: "Content-Signal"}


class ValueFault(NamedTuple):
    """A fault of a value: the code of its finding, and a message."""

    code: str
    message: str


def value_faults(field: str, text: str) -> Iterator[ValueFault]:
    """The faults of the value of a Content-Usage or Content-Signal field."""
    words, right = _WORDS[field]
    has_wrong_word = False
    for label, value in PIECE.findall(text):
        if value.lower() in words and label.lower() != "use":
            has_wrong_word = True
            message = f"{_FIELD_NAMES[field]} is written with {right}"
            yield ValueFault("RG603", f"{cut(f'{label}={value}')}: {message}")
    read = read_usage if field == USAGE else read_signal
    statements = read(text, place=Place.HEADER)
    for statement in statements:
        if fault := _label_fault(field, statement):
            yield ValueFault("RG605", fault)
    if not has_wrong_word and any(Flag.MALFORMED in each.flags for each in statements):
        yield ValueFault("RG604", _form_fault(field))


def _label_fault(field: str, statement: Statement) -> str | None:
    name, flags = statement.rule, statement.flags
    if Flag.CROSS_VOCABULARY in flags:
        counterpart = _COUNTERPARTS.get(name)
        remedy = f": write {counterpart}" if counterpart else ""
        return f"{cut(name)} is not a label of {_FIELD_NAMES[field]}{remedy}"
    if Flag.LEGACY in flags:
        return f"{cut(name)} is a label of an earlier draft, which only denies here"
    if Flag.UNKNOWN_RULE not in flags:
        return None
    near = difflib.get_close_matches(name, _LABELS[field], n=1)
    guess = f": did you mean {near[0]}?" if near else f": known are {', '.join(_LABELS[field])}"
    return f"{cut(name)} is not a label of {_FIELD_NAMES[field]}{guess}"


def _form_fault(field: str) -> str:
    if field == USAGE:
        return (
            "this is not a dictionary of RFC 9651, such as train-ai=n, search=y: by the letter,"
            " the whole field says nothing"
        )
    return "a value is not in the form name=yes or name=no, such as search=yes, ai-train=no"


@TABLE.line(
    "RG601",
    "plural-content-signals",
    Severity.ERROR,
    "Content-Signals is not the field that crawlers read.",
    b"content-signals",
)
def _plural(item: Item, _: LintedFile) -> Iterator[Note]:
    yield Note(item.number, "crawlers read Content-Signal, without the s", lambda _: None)


@TABLE.file(
    "RG602",
    "ungrouped-usage",
    Severity.WARNING,
    "Content-Usage or Content-Signal precedes the first User-agent line.",
)
def _ungrouped(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for number, field, _value in page.robots.loose.others:
        name = field.decode("latin-1")
        if name in _FIELD_NAMES:
            message = f"{_FIELD_NAMES[name]} precedes the first User-agent line"
            yield Note(
                number,
                f"{message}: it belongs into a group, and permits nothing here",
                lambda _: None,
            )


@TABLE.line(
    "RG603",
    "words-of-the-other-vocabulary",
    Severity.ERROR,
    "Content-Usage has the values y and n, Content-Signal yes and no.",
    USAGE.encode(),
    SIGNAL.encode(),
)
def _wrong_words(item: Item, page: LintedFile) -> Iterator[Note]:
    return _faults(item, page, "RG603")


@TABLE.line(
    "RG604",
    "malformed-usage",
    Severity.ERROR,
    "The value of Content-Usage or Content-Signal cannot be read.",
    USAGE.encode(),
    SIGNAL.encode(),
)
def _malformed(item: Item, page: LintedFile) -> Iterator[Note]:
    return _faults(item, page, "RG604")


@TABLE.line(
    "RG605",
    "unknown-label",
    Severity.WARNING,
    "Content-Usage or Content-Signal has a label that it does not define.",
    USAGE.encode(),
    SIGNAL.encode(),
)
def _unknown_label(item: Item, page: LintedFile) -> Iterator[Note]:
    return _faults(item, page, "RG605")


def _faults(item: Item, _: LintedFile, code: str) -> Iterator[Note]:
    path = _PATH.match(item.value)
    text = item.value[path.end() if path else 0 :].decode("utf-8", "replace")
    for fault in value_faults(item.field.decode(), text):
        if fault.code == code:
            yield Note(item.number, fault.message, lambda _: None)


L = TypeVar("L")

_OPPOSITES = (
    ("index", "noindex"),
    ("follow", "nofollow"),
    ("archive", "noarchive"),
    ("snippet", "nosnippet"),
    ("imageindex", "noimageindex"),
    ("translate", "notranslate"),
    ("allowaitraining", "disallowaitraining"),
)
#: Rules that stand for two others.
_PARTS = {"none": ("noindex", "nofollow"), "all": ("index", "follow")}
_DEAD = {
    "noodp": "the Open Directory closed in March 2017",
    "noydir": "the Yahoo Directory closed in December 2014",
    "noyaca": "Yandex Catalogue closed in 2018",
    "nositelinkssearchbox": "Google ended the sitelinks search box in November 2024",
}
_WORD = re.compile(r"[\w-]+")
_PREVIEW = re.compile(r"max-image-preview\s*[:=]?\s*none")
_UNUSED_BY_GOOGLE = ("noarchive", "nocache")


def word_faults(rules: Sequence[Statement]) -> Iterator[ValueFault]:
    """Words that are no rules, and rules without effect."""
    for each in rules:
        if Flag.UNKNOWN_RULE in each.flags:
            yield ValueFault("RG704", f"{cut(each.rule)} is no robots rule{_guess(each.rule)}")
        elif each.rule in _DEAD:
            yield ValueFault("RG703", f"{each.rule} has no effect: {_DEAD[each.rule]}")
        elif each.rule in _UNUSED_BY_GOOGLE:
            message = "has no effect at Google; Bing and others read it"
            yield ValueFault("RG703", f"{each.rule} {message}")


def _guess(word: str) -> str:
    joined = word.replace("-", "").replace("_", "")
    if joined in RULES:
        return f": did you mean {joined}?"
    near = difflib.get_close_matches(word, sorted(RULES), n=1, cutoff=0.75)
    return f": did you mean {near[0]}?" if near else ""


def agent_faults(rules: Sequence[Statement]) -> Iterator[ValueFault]:
    """Rules of one line whose crawler is in doubt."""
    for before, after in pairwise(rules):
        is_new_agent = after.agent not in ("*", before.agent)
        if is_new_agent and Flag.UNKNOWN_RULE in before.flags:
            name = cut(f"{before.rule} {after.agent}")
            yield ValueFault("RG705", f"{name}: is read as a name of {cut(after.agent)} alone")
            return
    bound = [each for each in rules if each.agent != "*" and _is_prefixed(each)]
    agents = list(dict.fromkeys(each.agent for each in bound))
    if len(agents) > 1:
        message = f"the rules after {cut(agents[1])}: are for that crawler"
        yield ValueFault("RG705", f"{message}: write one line for each crawler")
    elif len(bound) > 1:
        message = f"{cut(bound[-1].rule)} is for {cut(agents[0])} only"
        yield ValueFault("RG705", f"{message}: write a rule for all crawlers on a line of its own")


def _is_prefixed(rule: Statement) -> bool:
    """Whether the name stands before the rule, and not in the name of a META."""
    return f"{rule.agent}:" in rule.raw.lower().replace(" :", ":")


def form_faults(rules: Sequence[Statement]) -> Iterator[ValueFault]:
    """Values that cannot be read, and deviations from the usual form."""
    for each in rules:
        if Flag.UNREADABLE_DATE in each.flags:
            message = "write a date such as 2030-01-31T12:00:00Z"
            yield ValueFault("RG706", f"{each.rule} has no date that can be read: {message}")
        elif each.value == "" and each.rule in VALUED_RULES:
            yield ValueFault("RG706", f"{each.rule} has no value that can be read")
        elif Flag.MALFORMED in each.flags and each.rule in RULES:
            yield ValueFault("RG707", f"{each.rule} has no value: write it without the colon")
        elif Flag.LENIENT in each.flags:
            yield ValueFault("RG707", "rules are separated by commas, and a value follows a colon")
        if Flag.ASSUMED_UTC in each.flags:
            yield ValueFault("RG708", "the date names no time zone that is known, so UTC is taken")
        if Flag.INDEXIFEMBEDDED in each.flags:
            message = "indexifembedded lifts noindex in frames at Google only"
            yield ValueFault("RG707", message)


Placed = tuple[L, Statement]


def contradictions(stated: Iterable[Placed[L]]) -> Iterator[tuple[L, ValueFault]]:
    """Rules for the same crawler that contradict each other, each at the later one."""
    seen: dict[tuple[str, str], Statement] = {}
    for place, each in stated:
        for part in _PARTS.get(each.rule, (each.rule,)):
            if other := seen.get((each.agent, _opposite(part))):
                message = f"{other.rule} and {each.rule} contradict each other"
                effect = "most crawlers take the prohibition, Yandex the permission"
                yield place, ValueFault("RG701", f"{message}: {effect}")
            seen.setdefault((each.agent, part), each)
        if each.rule in VALUED_RULES and each.value != "":
            first = seen.setdefault((each.agent, f"{each.rule}:"), each)
            if first.value != each.value:
                message = f"{each.rule} has two values"
                yield place, ValueFault("RG701", f"{message}: the strictest one counts")


def _opposite(rule: str) -> str:
    for yes, no in _OPPOSITES:
        if rule in (yes, no):
            return no if rule == yes else yes
    return ""


def repetitions(stated: Iterable[Placed[L]]) -> Iterator[tuple[L, ValueFault]]:
    """Rules that say for the same crawler what another one says."""
    seen: dict[tuple[str, str], Statement] = {}
    for place, each in stated:
        if Flag.UNKNOWN_RULE in each.flags or each.rule in VALUED_RULES:
            continue
        for part in _PARTS.get(each.rule, (each.rule,)):
            other = seen.setdefault((each.agent, part), each)
            if other is not each:
                covered = "is repeated" if other.rule == each.rule else f"repeats {other.rule}"
                yield place, ValueFault("RG702", f"{each.rule} {covered}")
                break


def repetitions_in(text: str, rules: Sequence[Statement]) -> Iterator[ValueFault]:
    """Rules that one text states twice. The engine gives them as one statement."""
    stated = Counter(each.rule for each in rules if each.rule in PLAIN_RULES)
    if not stated:
        return
    words = Counter(_WORD.findall(_PREVIEW.sub("", text.lower())))
    for rule, count in stated.items():
        if words[rule] > count:
            yield ValueFault("RG702", f"{rule} is repeated")
