"""Experiments: small files built from the line in question, and what each dialect does with them.

Invariant: every statement about a dialect is an observed result of its engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lint.finding import Ask
from robots_guard.protocol.lint.page import Item, cut
from robots_guard.protocol.ruleset import Ruleset, compile_rules

CRAWLER = "x"  # the crawler's name where it does not matter
LONGEST = 2_048  # bytes of a line or target that is tried

_NOT_IN_URL = re.compile(rb"[^!-~]")


def as_target(path: bytes) -> str:
    """A path of the file as a request target: with a leading slash, and with other bytes
    escaped."""
    text = _NOT_IN_URL.sub(lambda found: b"%%%02X" % found[0][0], path[:LONGEST]).decode("ascii")
    if text.startswith("/"):
        return text
    return "/" + text


def matching(item: Item, *targets: str) -> Ask:
    """Ask which of these targets the line's rule matches."""
    tried = tuple(dict.fromkeys(targets))
    line = item.field.capitalize() + b": " + item.value[:LONGEST]

    def ask(dialect: Dialect) -> str:
        if item.field == b"allow" and not dialect.allow:
            return "not a rule: it has no Allow"
        rules = _compile(b"User-agent: *\n" + line + b"\n", dialect, CRAWLER)
        matched = [target for target in tried if rules.matches(target)]
        return _describe(("matches", "match"), matched, tried)

    return ask


def reaching(value: bytes, *names: str) -> Ask:
    """Ask which of the crawlers with these names a User-agent line with this value applies to."""
    tried = tuple(dict.fromkeys(name for name in names if name))

    def ask(dialect: Dialect) -> str:
        body = b"User-agent: " + value[:LONGEST] + b"\nDisallow: /\n"
        selected = [name for name in tried if not _compile(body, dialect, name).judge("/").allowed]
        return _describe(("applies to", "apply to"), selected, tried)

    return ask


def sharing(one: bytes, other: bytes, token: bytes) -> Ask:
    """Ask which of two groups with these values apply to the crawler of this name."""
    groups = ((one, b"/1"), (other, b"/2"))
    body = b"\n".join(
        b"User-agent: %b\nDisallow: %b\n" % (value[:LONGEST], path) for value, path in groups
    )
    name = CRAWLER if token == b"*" else token.decode("ascii")

    def ask(dialect: Dialect) -> str:
        rules = _compile(body, dialect, name)
        disallowed = tuple(target for target in ("/1", "/2") if not rules.judge(target).allowed)
        return _SHARING[disallowed]

    return ask


_SHARING = {
    ("/1", "/2"): "all groups with this name apply together",
    ("/1",): "only the first group with this name applies",
    ("/2",): "only the last group with this name applies",
    (): "no group with this name applies",
}


def judging(item: Item, target: str) -> Ask:
    """Ask whether this line forbids the target."""

    def ask(dialect: Dialect) -> str:
        rules = _compile(
            b"User-agent: *\nDisallow: " + item.value[:LONGEST] + b"\n", dialect, CRAWLER
        )
        return f"{target} {'stays allowed' if rules.judge(target).allowed else 'is forbidden'}"

    return ask


def naming_a_host(value: bytes) -> Ask:
    """Ask what a Host line with this value does on a host that it does not name."""
    body = b"User-agent: *\nDisallow: /x\nHost: " + value[:LONGEST] + b"\n"

    def ask(dialect: Dialect) -> str:
        if not dialect.host_directive:
            return "not used"
        main = _compile(body, dialect, CRAWLER).judge("/", "mirror.example.com", 80).mirror_of
        if main:
            return f"names {cut(main)} as the main host"
        return "ignored"

    return ask


@lru_cache(maxsize=256)
def _compile(body: bytes, dialect: Dialect, name: str) -> Ruleset:
    return compile_rules(body, dialect, name, "spec")


def _describe(verb: tuple[str, str], positive: Iterable[str], tried: tuple[str, ...]) -> str:
    """The result as text. `verb` is in the third person and the infinitive."""
    does, do = verb
    yes = list(positive)
    no = [each for each in tried if each not in yes]
    if not yes and len(no) == 1:
        return f"does not {do} {cut(no[0])}"
    if not yes:
        return f"{does} neither {_join(no, ' nor ')}"
    if not no:
        return f"{does} {_join(yes, ', ')}"
    return f"{does} {_join(yes, ', ')}, not {_join(no, ' nor ')}"


def _join(names: list[str], word: str) -> str:
    return word.join(map(cut, names))
