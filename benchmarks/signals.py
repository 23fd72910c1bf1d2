"""The time to read what a page and its headers state, beside selectolax alone.

    python benchmarks/signals.py [--rounds N]

What is compared, in CPU time, each in turn in every round:

    selectolax   the tree of the whole text, and nothing more.
    read_page    charset, METAs and statements; no links.
    tags         read_page without selectolax.
    links        the links of the page, which are read on demand.
    headers      header_statements of the fields of a response.

The pages have a head of 8 or 44 KB, with METAs as blogs have them; that of `robots` is the last.
Prints the best, the median and the quartiles in microseconds. The goals are those of issue 14.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from selectolax.lexbor import LexborHTMLParser

from robots_guard.protocol.html import page as page_module
from robots_guard.protocol.html.page import read_page
from robots_guard.protocol.signals.headers import header_statements

URL = "https://www.example.com/articles/1"
CONTENT_TYPE = "text/html; charset=utf-8"
WINDOW = 65_536
GOALS = {"100 KB, 8 KB head": 300, "100 KB, 44 KB head": 300, "64 KiB window": 200}

PLAIN = [
    ("Date", "Mon, 23 Nov 2026 04:00:00 GMT"),
    ("Content-Type", CONTENT_TYPE),
    ("Content-Length", "100000"),
    ("Connection", "keep-alive"),
    ("Cache-Control", "max-age=600"),
    ("ETag", '"5f-abc"'),
    ("Last-Modified", "Sun, 22 Nov 2026 04:00:00 GMT"),
    ("Vary", "Accept-Encoding"),
    ("Server", "nginx"),
    ("Strict-Transport-Security", "max-age=31536000"),
    ("X-Content-Type-Options", "nosniff"),
    ("Set-Cookie", "session=1; Path=/; HttpOnly"),
]
HEADERS = {
    "12 fields": PLAIN,
    "and X-Robots-Tag": [*PLAIN, ("X-Robots-Tag", "noindex, nofollow")],
    "and an agent and a date": [
        *PLAIN,
        ("X-Robots-Tag", "examplebot: noarchive, unavailable_after: 25 Jun 2030 15:00:00 PST"),
    ],
    "and Content-Usage": [*PLAIN, ("Content-Usage", "train-ai=n, search=y")],
}

Work = Callable[[], object]


def page(head: int, size: int) -> bytes:
    """A page of an online magazine: a head of some bytes, then teasers up to the size."""
    names = ("viewport", "description", "twitter:card", "twitter:title", "generator")
    metas = [f'<meta property="og:x{n}" content="Some text about this page">' for n in range(12)]
    metas += [f'<meta name="{name}" content="some words, and some more">' for name in names]
    links = [f'<link rel="stylesheet" href="/static/{n}.css">' for n in range(10)]
    last = '<meta name="robots" content="index, follow, max-image-preview:large, max-snippet:-1">'
    begin = "<!doctype html><html lang=en><head><meta charset=utf-8><title>A page</title>"
    begin += "".join(metas + links)
    rules = []
    while len(begin) + sum(map(len, rules)) + len(last) < head:
        rules.append(f".item-{len(rules)}{{color:#fff;margin:0 auto;padding:1px 2px}}")
    text = f"{begin}<style>{''.join(rules)}</style>{last}</head><body>"
    teasers = []
    length = len(text)
    while length < size:
        teasers.append(_teaser(len(teasers)))
        length += len(teasers[-1])
    return (text + "".join(teasers)).encode()[:size]


def _teaser(number: int) -> str:
    return (
        f'<div class="row item-{number}"><h3><a href="/articles/{number}?page=2" class="link">'
        f"Title of article {number}</a></h3><p>Lorem ipsum dolor sit amet, <b>consectetur</b> "
        "adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. "
        f'Ut enim ad minim veniam <img src="/i/{number}.png" alt="x"></p></div>\n'
    )


def without_tree(body: bytes) -> object:
    tree_type = page_module.tree_type
    page_module.tree_type = lambda: None  # type: ignore[assignment]  # as if it were not installed
    try:
        return read_page(body, CONTENT_TYPE, URL)
    finally:
        page_module.tree_type = tree_type


def page_work(body: bytes) -> dict[str, Work]:
    is_whole = len(body) != WINDOW
    return {
        "selectolax": lambda: LexborHTMLParser(body),
        "read_page": lambda: read_page(body, CONTENT_TYPE, URL, is_whole=is_whole),
        "tags": lambda: without_tree(body),
        "links": lambda: read_page(body, CONTENT_TYPE, URL).links,
    }


def measure(work: dict[str, Work], rounds: int, repeats: int = 1) -> dict[str, list[float]]:
    """Return the CPU times of each, in microseconds."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            began = time.process_time_ns()
            for _ in range(repeats):
                call()
            found[name].append((time.process_time_ns() - began) / 1000 / repeats)
    return found


def show(title: str, times: dict[str, list[float]], goal: float | None = None) -> None:
    print(f"{title}" + (f"  (goal of read_page: {goal} us)" if goal else ""))
    for name, values in times.items():
        low, median, high = statistics.quantiles(values, n=4)
        print(
            f"  {name:24} best {min(values):9.1f}   median {median:9.1f}   "
            f"quartiles {low:9.1f} to {high:9.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    pages = {
        "100 KB, 8 KB head": page(8_000, 100_000),
        "100 KB, 44 KB head": page(44_000, 100_000),
        "64 KiB window": page(44_000, WINDOW),
        "1 MB, 8 KB head": page(8_000, 1_000_000),
    }
    for title, body in pages.items():
        times = measure(page_work(body), max(10, rounds * 100_000 // max(100_000, len(body))))
        show(title, times, GOALS.get(title))
    headers = {
        title: lambda fields=fields: header_statements(fields, 200)  # type: ignore[misc]  # the default binds `fields`
        for title, fields in HEADERS.items()
    }
    show("headers", measure(headers, rounds, repeats=20))


if __name__ == "__main__":
    main()
