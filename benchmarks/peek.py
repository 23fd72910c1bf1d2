"""The cost of a decision with the policy in memory: `Guard.peek`, with its record in the audit log.

    python benchmarks/peek.py [--corpus FILE] [--files N] [--rounds N] [--audit LEVEL]

The decision is compared with `can_fetch` of protego, which splits the URL, and with the match of the
compiled rules alone. The output is the CPU time per question: the median of the files' best rounds,
with the quartiles. Each round measures all sides in turn, so that a slow moment of the machine
affects all of them. The questions of a file are about one origin. "rotation" has 1,000 origins with
small and medium files; it asks one question about each before the next, so that nothing is in the
processor's caches.

`peek` is called with questions; "url" includes splitting the URL and building the question. PASSes
and refusals are measured separately: a refusal is always recorded, and most of its time goes into
the record.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from corpus import CLASSES, arguments, files, kind_of_core, positive, urls
from protego import Protego

from robots_guard.audit.write.log import FileAuditLog
from robots_guard.configuration.settings import CLOCKS, Settings
from robots_guard.decisions.check import compiled, judge_offline
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.verdict import Action, Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import Origin, split_url

AGENT = "examplebot"
QUESTIONS = 300
ORIGINS = 1_000
#: Microseconds of a PASS: the goal of issue 17.
GOAL = 2.9
SIDES = ("peek", "peek, url", "match", "protego", "refusal")

Ask = Callable[[], float]


class Site:
    """One origin with its robots.txt, and URLs that are permitted and refused."""

    def __init__(self, number: int, body: bytes, seed: int) -> None:
        self.origin = Origin("https", f"site{number}.example.com", 443)
        self.body = body
        self.document = Document(
            status=200,
            url=self.origin.robots_url,
            sha256=hashlib.sha256(body).hexdigest(),
            body=body,
            fetched_at=CLOCKS.now(),
            via="direct",
            tls_verified=True,
        )
        host = f"https://{self.origin.host}"
        asked = [
            host + url.removeprefix("https://www.example.com")
            for url in urls(body, QUESTIONS, seed)
        ]
        terms = Settings(agent=AGENT).terms()
        rules = compiled(self.document, terms, AGENT)
        self.match = rules.judge
        self.policy = Policy(origin=self.origin, document=self.document)
        self.passing, self.refused = [], []
        for url in asked:
            verdict = judge_offline(
                question(url), terms, self.policy, CLOCKS.now(), rules_of=lambda _: rules
            )
            if verdict.action is Action.PASS:
                self.passing.append(url)
            else:
                self.refused.append(url)
        self.protego = Protego.parse(body.decode("utf-8", "ignore"))


def question(url: str) -> Question:
    origin, target = split_url(url)
    return Question(origin=origin, target=target, agent=AGENT)


def open_guard(directory: Path, audit: str, sites: Iterable[Site]) -> Guard:
    """Return a guard that has the policies of the sites in memory, and records as Scrapy's does."""
    settings = Settings(agent=AGENT, audit_log=str(directory), audit=audit)
    memory = MemoryStore()
    for site in sites:
        memory.put(site.policy, CLOCKS.now())
    return Guard(
        settings.guard_options("scrapy", demands_verified=True),
        runtime=AsyncioRuntime(),
        clocks=CLOCKS,
        memory=memory,
        store=None,
        fetcher=ScriptedFetcher({}),
        audit_log=FileAuditLog(
            directory, CLOCKS, settings.log_options("scrapy"), settings.writing("scrapy")
        ),
    )


async def prepare(guard: Guard, sites: Iterable[Site]) -> None:
    """Compile the rules of each site (those of a long file are compiled in a thread), and check that
    the guard decides as the match alone does."""
    for site in sites:
        for url in (*site.passing[:1], *site.refused[:1]):
            await guard.check(question(url))
            decision = guard.peek(question(url))
            assert decision is not None
            assert (decision.verdict.action is Action.PASS) == (url in site.passing)


def timed(function: Callable[[object], object], values: list[object]) -> float:
    """Return the microseconds of CPU per call."""
    start = time.process_time_ns()
    for value in values:
        function(value)
    return (time.process_time_ns() - start) / 1000 / max(1, len(values))


def sides_of(guard: Guard, site: Site) -> dict[str, Ask]:
    """Return the measurements for one site."""
    peek, match, can_fetch = guard.peek, site.match, site.protego.can_fetch
    passing = [question(url) for url in site.passing]
    refused = [question(url) for url in site.refused]
    targets = [each.target for each in passing]
    host = site.origin.host
    sides = {
        "peek": lambda: timed(peek, passing),
        "peek, url": lambda: timed(lambda url: peek(question(url)), site.passing),
        "match": lambda: timed(lambda target: match(target, host, 443, "https"), targets),
        "protego": lambda: timed(lambda url: can_fetch(url, AGENT), site.passing),
    }
    if refused:
        sides["refusal"] = lambda: timed(peek, refused)
    return sides


def sides_in_rotation(guard: Guard, sites: list[Site]) -> dict[str, Ask]:
    """Return the measurements for many sites, each asked one question at a time."""
    asked = [
        (site, url, question(url))
        for rank in range(2)
        for site in sites
        for url in site.passing[rank : rank + 1]
    ]
    questions = [each for *_, each in asked]
    return {
        "peek": lambda: timed(guard.peek, questions),
        "peek, url": lambda: timed(lambda each: guard.peek(question(each[1])), asked),
        "match": lambda: timed(
            lambda each: each[0].match(each[2].target, each[2].origin.host, 443, "https"), asked
        ),
        "protego": lambda: timed(lambda each: each[0].protego.can_fetch(each[1], AGENT), asked),
    }


def best(sides: dict[str, Ask], rounds: int) -> dict[str, float]:
    """Return the best round of each side. The sides take turns in each round."""
    for ask in sides.values():
        ask()
    found = dict.fromkeys(sides, float("inf"))
    gc.collect()
    for _ in range(rounds):
        for name, ask in sides.items():
            found[name] = min(found[name], ask())
    return found


def shown(values: list[float]) -> str:
    low, middle, high = values * 3 if len(values) == 1 else statistics.quantiles(values, n=4)
    return f"{middle:7.2f} ({low:.2f}-{high:.2f})"


def print_rows(title: str, rows: list[dict[str, float]]) -> None:
    columns = [[row[side] for row in rows if side in row] for side in SIDES]
    ratios = [row["protego"] / row["peek, url"] for row in rows]
    texts = "".join(f"{shown(values) if values else '':>21}" for values in columns)
    print(f"{title:16}{texts}{shown(ratios):>21}")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--audit", default="summary", help="the setting `audit`")
    options = parser.parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    print(f"{kind_of_core()}: CPU microseconds per question, median (quartiles)")
    print(f"{'class':16}" + "".join(f"{side:>21}" for side in (*SIDES, "protego / url")))
    for name in CLASSES:
        sites = [Site(number, body, options.seed) for number, body in enumerate(corpus[name])]
        sites = [site for site in sites if len(site.passing) >= 20]
        if not sites:
            continue
        with tempfile.TemporaryDirectory() as directory:
            guard = open_guard(Path(directory), options.audit, sites)
            asyncio.run(prepare(guard, sites))
            rows = [best(sides_of(guard, site), options.rounds) for site in sites]
            guard.close()
        print_rows(name, rows)
    sites = list(rotating(corpus, options.seed))
    with tempfile.TemporaryDirectory() as directory:
        guard = open_guard(Path(directory), options.audit, sites)
        asyncio.run(prepare(guard, sites))
        print_rows("rotation", [best(sides_in_rotation(guard, sites), 1) for _ in range(9)])
        guard.close()
    print(f"goal: peek <= {GOAL}")


def rotating(corpus: dict[str, list[bytes]], seed: int) -> Iterable[Site]:
    """Return sites with files of all classes but the largest, in turn."""
    bodies = itertools.cycle(corpus["small"] + corpus["medium"])
    for number in range(ORIGINS):
        yield Site(number, next(bodies), seed + number)


if __name__ == "__main__":
    main()
