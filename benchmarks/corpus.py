"""The input of the benchmarks: a corpus file, or files generated with the distribution of a real
collection.

A corpus is JSON Lines, optionally xz-compressed: {"class": "small" | "medium" | "large" | "huge",
"body_b64": ...}.
"""

from __future__ import annotations

import argparse
import base64
import json
import lzma
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from robots_guard.protocol import is_compiled

CLASSES = ("small", "medium", "large", "huge")
# By class: the number of rules in the * group, and of files to generate.
_SIZES = {
    "small": (1, 20, 60),
    "medium": (20, 200, 40),
    "large": (200, 2_000, 12),
    "huge": (2_000, 12_000, 4),
}
_WORDS = (
    "admin",
    "search",
    "cart",
    "user",
    "private",
    "tmp",
    "print",
    "login",
    "feed",
    "api",
    "tag",
    "page",
    "img",
)


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--corpus", type=Path, help="JSON Lines of real files; default: generated files"
    )
    parser.add_argument("--files", type=int, default=60, help="maximum number of files per class")
    parser.add_argument("--seed", type=int, default=9309)
    return parser


def kind_of_core() -> str:
    """Name what is measured: the core is compiled in some wheels, and interpreted otherwise."""
    return "compiled core" if is_compiled() else "interpreted core"


def positive(text: str) -> int:
    """Read a number of at least 1 from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1: {number}")
    return number


def files(corpus: Path | None, limit: int, seed: int) -> dict[str, list[bytes]]:
    """Return bodies by class, at most `limit` of each."""
    chance = random.Random(seed)
    pairs = list(_read(corpus) if corpus else _generate(chance))
    chance.shuffle(pairs)
    found: dict[str, list[bytes]] = {name: [] for name in CLASSES}
    for name, body in pairs:
        if len(found[name]) < limit:
            found[name].append(body)
    return found


#: Of 1,000 files of a collection of 19,462 real ones, those of each class.
SHARES = {"small": 723, "medium": 258, "large": 18, "huge": 1}


def crawled_files(corpus: Path | None, seed: int) -> list[bytes]:
    """Return 1,000 bodies of all classes in the shares of a broad crawl, mixed."""
    chance = random.Random(seed)
    if corpus is None:
        bodies = [body for _, body in _generate(chance, SHARES)]
    else:
        by_class = files(corpus, 1_000, seed)
        bodies = [body for name, share in SHARES.items() for body in by_class[name][:share]]
    chance.shuffle(bodies)
    return bodies


def _read(path: Path) -> Iterator[tuple[str, bytes]]:
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["class"], base64.b64decode(row["body_b64"])


_PAGE_WORDS = ("news", "2026", "articles", "sport", "products", "shoes", "garden", "recipes", "de")
_PAGE_ENDS = ("", "", "/", ".html", ".html", "-red-shoes", "?page=2")

# The distribution of the number of wildcards, of 100 files with that many rules.
_WILDCARDS = ((0, 55), (2, 15), (6, 12), (14, 9), (25, 6), (90, 3))


def _generate(
    chance: random.Random, counts: Mapping[str, int] = MappingProxyType({})
) -> Iterator[tuple[str, bytes]]:
    amounts, weights = zip(*_WILDCARDS, strict=True)
    for name, (low, high, count) in _SIZES.items():
        for _ in range(counts.get(name, count)):
            total = int(low * (high / low) ** chance.random())
            starred = min(total // 2, chance.choices(amounts, weights)[0])
            rules = [_rule(chance, wildcard=place < starred) for place in range(total)]
            chance.shuffle(rules)
            yield name, ("User-agent: *\n" + "".join(rules)).encode()


def _rule(chance: random.Random, *, wildcard: bool) -> str:
    path = "/" + "/".join(
        f"{chance.choice(_WORDS)}{chance.randrange(4000)}" for _ in range(chance.randint(1, 3))
    )
    if wildcard and chance.random() < 0.6:
        path = "/*" + path[1:] + chance.choice(("", "$"))
    elif wildcard:
        path = path.replace("/", "/*/", 1) + chance.choice(("*", "?"))
    return (
        f"{'Allow' if chance.random() < 0.12 else 'Disallow'}: {path}{chance.choice(('', '/'))}\n"
    )


#: Kinds of questions: from a rule, near a rule, of the words that rules often have, and a page that
#: no rule is likely to name.
FROM_RULE, NEAR_MISS, RANDOM, PLAIN_PAGE = range(4)
#: Half of the pages of a crawl are named by no rule.
CRAWL = (PLAIN_PAGE, FROM_RULE, PLAIN_PAGE, NEAR_MISS)


def urls(
    body: bytes, count: int, seed: int, kinds: Sequence[int] = (FROM_RULE, NEAR_MISS, RANDOM)
) -> list[str]:
    """Return questions about a file, of the given kinds in turn."""
    chance = random.Random(seed)
    values = [
        line.partition(b":")[2].strip()
        for line in body.splitlines()
        if line[:1] in b"DdAa" and b"/" in line
    ]
    patterns = [value.decode("utf-8", "ignore") for value in values if value.startswith(b"/")] or [
        "/"
    ]
    return [
        _url(chance, chance.choice(patterns), kinds[number % len(kinds)]) for number in range(count)
    ]


def _url(chance: random.Random, pattern: str, kind: int) -> str:
    path = (
        pattern.replace("*", chance.choice(_WORDS))
        .replace("$", "")
        .partition(" ")[0]
        .partition("#")[0]
    )
    if kind == PLAIN_PAGE:
        words = "/".join(chance.choice(_PAGE_WORDS) for _ in range(chance.randint(1, 3)))
        return (
            f"https://www.example.com/{words}/{chance.randrange(10**6)}{chance.choice(_PAGE_ENDS)}"
        )
    if kind == NEAR_MISS and len(path) > 2:
        at = chance.randrange(1, len(path))
        path = path[:at] + chance.choice("abcxyz") + path[at + 1 :]
    elif kind == RANDOM:
        path = (
            "/"
            + "/".join(chance.choice(_WORDS) for _ in range(chance.randint(1, 4)))
            + f"/{chance.randrange(10**6)}"
        )
    more = (
        ("", "index.html", "x/y", "?id=7") if path.endswith("/") else ("", ".html", "/x", "?id=7")
    )
    return f"https://www.example.com{path}{chance.choice(more)}"
