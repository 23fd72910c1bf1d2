"""Faults of robots rules, as X-Robots-Tag and META ROBOTS state them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from robots_guard.protocol.lint.page import cut
from robots_guard.protocol.lint.usage import ValueFault
from robots_guard.protocol.signals.rules import PLAIN_RULES, RULES, VALUED_RULES
from robots_guard.protocol.signals.statement import Flag, Statement

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
