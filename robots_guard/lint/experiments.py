"""Small files made of a line in question, put to every dialect: what does each do with it?

The law of this file: nothing is said of a dialect that its engine did not just do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from robots_guard.lint.finding import Ask
from robots_guard.lint.page import Item, cut
from robots_guard.rep.dialect import Dialect
from robots_guard.rep.robots import parse
from robots_guard.rep.ruleset import Ruleset, compile_rules

CRAWLER = "x"  # the name of the crawler in experiments where any will do
LONGEST = 2_048  # octets of a line or target that is tried out

_ODD = re.compile(rb"[^!-~]")


def as_target(path: bytes) -> str:
    """A path of the file as a target on the wire: rooted, and with its odd octets escaped."""
    text = _ODD.sub(lambda found: b"%%%02X" % found[0][0], path[:LONGEST]).decode("ascii")
    return text if text.startswith("/") else "/" + text


def matching(item: Item, *targets: str) -> Ask:
    """Which of these targets does the line's rule match?"""
    tried = tuple(dict.fromkeys(targets))
    line = item.field.capitalize() + b": " + item.value[:LONGEST]

    def ask(dialect: Dialect) -> str:
        if item.field == b"allow" and not dialect.allow:
            return "no rule: it knows no Allow"
        rules = _compiled(b"User-agent: *\n" + line + b"\n", dialect, CRAWLER)
        return _told(("matches", "match"), [target for target in tried if rules.matches(target)], tried)

    return ask


def reaching(value: bytes, *names: str) -> Ask:
    """Which crawlers of these names does a User-agent line with this value reach?"""
    tried = tuple(dict.fromkeys(name for name in names if name))

    def ask(dialect: Dialect) -> str:
        robots = parse(b"User-agent: " + value[:LONGEST] + b"\nDisallow: /\n", dialect)
        return _told(("reaches", "reach"), [name for name in tried if robots.select(name).groups], tried)

    return ask


def sharing(one: bytes, other: bytes, token: bytes) -> Ask:
    """Which of two groups with these values apply to the crawler of this name?"""
    groups = ((one, b"/1"), (other, b"/2"))
    body = b"\n".join(b"User-agent: %b\nDisallow: %b\n" % (value[:LONGEST], path) for value, path in groups)
    name = CRAWLER if token == b"*" else token.decode("ascii")

    def ask(dialect: Dialect) -> str:
        rules = _compiled(body, dialect, name)
        closed = tuple(target for target in ("/1", "/2") if not rules.judge(target).allowed)
        return _SHARING[closed]

    return ask


_SHARING = {
    ("/1", "/2"): "all groups with this name apply together",
    ("/1",): "only the first group with this name applies",
    ("/2",): "only the last group with this name applies",
    (): "no group with this name applies",
}


def judging(item: Item, target: str) -> Ask:
    """Does this line forbid the target?"""

    def ask(dialect: Dialect) -> str:
        rules = _compiled(b"User-agent: *\nDisallow: " + item.value[:LONGEST] + b"\n", dialect, CRAWLER)
        return f"{target} {'stays allowed' if rules.judge(target).allowed else 'is forbidden'}"

    return ask


def naming_a_host(value: bytes) -> Ask:
    """What does a Host line with this value do on a host that it does not name?"""
    body = b"User-agent: *\nDisallow: /x\nHost: " + value[:LONGEST] + b"\n"

    def ask(dialect: Dialect) -> str:
        if not dialect.host_directive:
            return "not used"
        main = _compiled(body, dialect, CRAWLER).judge("/", "mirror.example.com", 80).mirror_of
        return f"names {cut(main)} as the main host" if main else "as if absent"

    return ask


@lru_cache(maxsize=256)
def _compiled(body: bytes, dialect: Dialect, name: str) -> Ruleset:
    return compile_rules(body, dialect, name, "spec")


def _told(verb: tuple[str, str], done: Iterable[str], tried: tuple[str, ...]) -> str:
    does, do = verb
    yes = list(done)
    no = [each for each in tried if each not in yes]
    if not yes:
        return f"does not {do} {cut(no[0])}" if len(no) == 1 else f"{does} neither {_list(no, ' nor ')}"
    return f"{does} {_list(yes, ', ')}" + (f", not {_list(no, ' nor ')}" if no else "")


def _list(names: list[str], word: str) -> str:
    return word.join(map(cut, names))
