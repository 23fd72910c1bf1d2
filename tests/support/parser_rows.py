"""What `RobotsFile` and two other parsers answer: the rows of the table in
docs/migration/parsers.md.

    PYTHONPATH=tests python -m support.parser_rows

prints the table. Each answer is the library's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.robotparser import RobotFileParser

from robots_guard import RobotsFile

SITE = "http://example.com"
STAR = b"User-agent: *\n"


class Row(NamedTuple):
    """One difference: a file, a URL, and what decides."""

    file: bytes
    url: str
    why: str
    agent: str = "mybot"


ROWS = [
    Row(
        STAR + b"Allow: /\nDisallow: /private/\n",
        f"{SITE}/private/x",
        "the longest rule wins (RFC 9309 section 2.2.2), not the first",
    ),
    Row(
        STAR + b"Disallow: /a\nAllow: /a\n",
        f"{SITE}/a",
        "between equal rules, Allow wins (RFC 9309)",
    ),
    Row(STAR + b"Disallow: /*.pdf$\n", f"{SITE}/a.pdf", "`*` and `$` (RFC 9309)"),
    Row(
        b"User-agent: mybot\nDisallow: /a\n\nUser-agent: mybot\nDisallow: /b\n",
        f"{SITE}/b",
        "all groups that name the crawler apply (RFC 9309)",
    ),
    Row(
        b"User-agent: mybot\n\nDisallow: /\n",
        f"{SITE}/x",
        "blank lines mean nothing (RFC 9309)",
    ),
    Row(STAR + b"Dissallow: /\n", f"{SITE}/x", "frequent misspellings are read"),
    Row(STAR + b"Disallow /\n", f"{SITE}/x", "a missing colon is forgiven"),
    Row(b"\xef\xbb\xbf" + STAR + b"Disallow: /\n", f"{SITE}/x", "a byte order mark is not text"),
    Row(
        STAR.decode().encode("utf-16") + "Disallow: /\n".encode("utf-16-le"),
        f"{SITE}/x",
        "UTF-16 with a byte order mark is read",
    ),
    Row(
        STAR + b"Disallow: /caf\xe9\n",
        f"{SITE}/caf%E9",
        "bytes are compared, also those that are not UTF-8",
    ),
    Row(STAR + b"Disallow: /\n", f"{SITE}/robots.txt", "/robots.txt itself is always open"),
    Row(STAR + b"Disallow: /\n", f"{SITE}/robots.txt?x", "and only that exact target"),
    Row(
        b"User-agent: my\nDisallow: /\n",
        f"{SITE}/x",
        "a group names a crawler by its whole product token (RFC 9309 section 2.2.1)",
    ),
    Row(
        b"User-agent: mybot\nDisallow: /\n",
        f"{SITE}/x",
        "likewise",
        "mybot-news",
    ),
    Row(
        b"User-agent: mybot/2.0\nDisallow: /\n",
        f"{SITE}/x",
        "a version after the name is ignored",
    ),
    Row(
        b"User-agent: mybot\nCrawl-delay: 1\nUser-agent: other\nDisallow: /\n",
        f"{SITE}/x",
        "a line that is no rule does not end the list of names (RFC 9309 section 2.2.4)",
    ),
    Row(
        STAR + b"Disallow: /private/\n",
        f"{SITE}/a/../private/x",
        "other spellings of a path, which servers resolve to it ([Matching](../dialects.md#matching))",
    ),
    Row(STAR + b"Disallow: /private/\n", f"{SITE}//private/x", "likewise"),
    Row(STAR + b"Disallow: /private/\n", f"{SITE}/private;v=1/x", "likewise"),
    Row(STAR + b"Disallow: /x$\n", f"{SITE}/x?", "likewise"),
    Row(
        STAR + b"Disallow: /a/b\n",
        f"{SITE}/a%2Fb",
        'an encoded slash is not a slash (RFC 3986); `matching="strict"` denies it, too',
    ),
    Row(STAR + b"Disallow: /a+b\n", f"{SITE}/a%2Bb", "nor is an encoded `+` a `+`"),
    Row(STAR + b"Disallow: /\n", "ftp://example.com/x", "a robots.txt governs http and https only"),
    Row(
        STAR + b"Disallow: /x\n",
        "http://exa mple.com/y",
        "a host that parsers read differently is refused",
    ),
]

Parser = Callable[[Row], bool]


def by_robots_guard(row: Row) -> bool:
    return RobotsFile.parse(row.file).can_fetch(row.agent, row.url)


def by_protego(row: Row) -> bool:
    from protego import Protego

    text = row.file.decode("utf-8-sig", "ignore")  # as Scrapy does
    return Protego.parse(text).can_fetch(row.url, row.agent)


def by_robotparser(row: Row) -> bool:
    parser = RobotFileParser()
    parser.parse(row.file.decode("utf-8").splitlines())  # as its `read` does
    return parser.can_fetch(row.agent, row.url)


PARSERS: dict[str, Parser] = {
    "`RobotsFile`": by_robots_guard,
    "protego": by_protego,
    "robotparser": by_robotparser,
}


def table() -> str:
    """The table, in Markdown."""
    heads = ["robots.txt", "asked", *PARSERS, "because"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in ROWS]
    return "\n".join(lines) + "\n"


def cells(row: Row) -> list[str]:
    asked = f"`{row.url.removeprefix(SITE)}`"
    if row.agent != "mybot":
        asked += f" by `{row.agent}`"
    return [_shown(row.file), asked, *answers(row), row.why]


def answers(row: Row) -> list[str]:
    """Whether each parser says that the request may be made: `yes`, `no`, or `error`."""
    return [_answer(parser, row) for parser in PARSERS.values()]


def _answer(parser: Parser, row: Row) -> str:
    try:
        return "yes" if parser(row) else "no"
    except UnicodeError:
        return "error"


def _shown(file: bytes) -> str:
    if file.startswith((b"\xff\xfe", b"\xef\xbb\xbf")):
        encoding = "utf-16" if file[:1] == b"\xff" else "utf-8-sig"
        name = "UTF-16" if file[:1] == b"\xff" else "UTF-8 with mark"
        return f"{_lines(file.decode(encoding))} ({name})"
    return _lines(file.decode("utf-8", "backslashreplace"))


def _lines(text: str) -> str:
    return "<br>".join(f"`{line}`" if line else "(blank)" for line in text.splitlines())


if __name__ == "__main__":
    print(table(), end="")
