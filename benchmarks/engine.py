"""Parsing and judging, without a guard, a store or a network: the tables of docs/performance.md.

    python benchmarks/engine.py [--corpus FILE] [--files N] [--rounds N]

All times are CPU time of this process. The peers take turns: each round measures every peer once,
so that a slow moment of the machine affects all. A cell is the median over files of the median of
the rounds, with the quartiles over files. "x" is the median over files of the peer's time divided
by ours; below 1 we are slower.

The peers, as their users call them:

    ours        the compiled rules that the guard asks: `split_url` and `judge`
    RobotsFile  `RobotsFile.can_fetch`, the API for programs that have a robots.txt already
    protego     `Protego.can_fetch`
    stdlib      `urllib.robotparser`, which before Python 3.14 knows no wildcards and takes the first match
    google      Google's C++ library by a wheel, `fast-robotstxt` (ctypes) or `jwm.robotstxt`
                (pybind11), whichever is installed. It caches nothing: each question parses the file.
"""

from __future__ import annotations

import platform
import statistics
import time
import urllib.robotparser
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

from corpus import CLASSES, CRAWL, arguments, crawled_files, files, kind_of_core, positive, urls
from protego import Protego

from robots_guard.decisions.robots_file import RobotsFile
from robots_guard.origin import split_url
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import compile_rules

AGENT = "examplebot"
RFC9309 = dialect("rfc9309")
QUESTIONS = 100
ASKED = (1, 10)

Ask = Callable[[str], object]
Peer = Callable[[bytes], Ask]


def ours(body: bytes, matching: str = "standard") -> Ask:
    judge = compile_rules(body, RFC9309, AGENT, matching).judge

    def ask(url: str) -> object:
        return judge(split_url(url)[1])

    return ask


def robots_file(body: bytes) -> Ask:
    robots = RobotsFile.parse(body)
    return lambda url: robots.can_fetch(AGENT, url)


def protego(body: bytes) -> Ask:
    parsed = Protego.parse(body.decode("utf-8", "ignore"))
    return lambda url: parsed.can_fetch(url, AGENT)


def stdlib(body: bytes) -> Ask:
    parser = urllib.robotparser.RobotFileParser()
    parser.parse(body.decode("utf-8", "ignore").splitlines())
    return lambda url: parser.can_fetch(AGENT, url)


def _google() -> dict[str, Peer]:
    try:
        from robotstxt import RobotsMatcher  # fast-robotstxt
    except ImportError:
        return _google_by_pybind()

    def fast(body: bytes) -> Ask:
        text, matcher = body.decode("utf-8", "ignore"), RobotsMatcher()
        return lambda url: matcher.is_allowed(text, AGENT, url)

    return {"google": fast}


def _google_by_pybind() -> dict[str, Peer]:
    try:
        from jwm.robotstxt.googlebot import RobotsMatcher
    except ImportError:
        return {}

    def bound(body: bytes) -> Ask:
        matcher = RobotsMatcher()
        return lambda url: matcher.OneAgentAllowedByRobots(body, AGENT, url)

    return {"google": bound}


PEERS: dict[str, Peer] = {
    "ours": ours,
    "RobotsFile": robots_file,
    "protego": protego,
    "stdlib": stdlib,
    **_google(),
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rounds", type=positive, default=7, help="rounds of each measurement")
    options = parser.parse_args()
    corpus = files(options.corpus, options.files, options.seed)
    source = "real files" if options.corpus else "generated files"
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {kind_of_core()}, protego "
        f"{version('protego')}, {source}: "
        + ", ".join(f"{len(corpus[name])} {name}" for name in CLASSES)
    )
    if "google" not in PEERS:
        print("without Google's library: neither fast-robotstxt nor jwm.robotstxt is installed")
    _print_warm(corpus, options.seed, options.rounds)
    _print_parsing(corpus, options.rounds)
    _print_cold(crawled_files(options.corpus, options.seed), options.seed, options.rounds)
    _print_spellings(options.rounds)


# --- Measuring ---

Cost = dict[str, float]  # nanoseconds of CPU by way


def measure(ways: dict[str, Callable[[], object]], times: int, rounds: int) -> Cost:
    """Return the median over the rounds of the nanoseconds of one run, by way."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.process_time_ns()
            for _ in range(times):
                run()
            spent[name].append((time.process_time_ns() - start) / times)
    return {name: statistics.median(found) for name, found in spent.items()}


def _cell(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{_time(middle)} ({_time(low)}-{_time(high)})"


def _time(nanoseconds: float) -> str:
    microseconds = nanoseconds / 1000
    digits = 2 if microseconds < 10 else 0
    return f"{microseconds:,.{digits}f}"


def _print_table(
    title: str, first: str, rows: Iterable[tuple[str, list[Cost]]], against: str = "ours"
) -> None:
    """Print a Markdown table: the microseconds of each way, and the ratio of each peer to ours."""
    lines: list[str] = []
    for name, costs in rows:
        ways = list(costs[0])
        if not lines:
            heads = [way if way == against else f"{way} | x" for way in ways]
            lines.append(f"| {first} | {' | '.join(heads)} |")
            lines.append(f"|---|{'---|' * sum(1 if way == against else 2 for way in ways)}")
        cells = [name]
        for way in ways:
            cells.append(_cell([cost[way] for cost in costs]))
            if way != against:
                ratio = statistics.median(cost[way] / cost[against] for cost in costs)
                cells.append(f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    print(f"\n{title}\n", *lines, sep="\n")


# --- The tables ---


def _print_warm(corpus: dict[str, list[bytes]], seed: int, rounds: int) -> None:
    def cost(body: bytes) -> Cost:
        questions = urls(body, QUESTIONS, seed, CRAWL)
        ways = {}
        for name, make in PEERS.items():
            ask = make(body)
            ways[name] = _asking(ask, questions)
            ways[name]()
        return {name: spent / QUESTIONS for name, spent in measure(ways, 1, rounds).items()}

    _print_table(
        "A question, file parsed, caches warm; half of the URLs are pages that no rule names (us)",
        "file",
        ((name, [cost(body) for body in corpus[name]]) for name in CLASSES if corpus[name]),
    )


def _asking(ask: Ask, questions: Sequence[str]) -> Callable[[], None]:
    def run() -> None:
        for url in questions:
            ask(url)

    return run


def _print_parsing(corpus: dict[str, list[bytes]], rounds: int) -> None:
    url = "https://www.example.com/some/page?id=7"
    times = {"small": 10, "medium": 3, "large": 1, "huge": 1}

    def parsed(body: bytes, name: str) -> Cost:
        kept = {way: PEERS[way] for way in ("ours", "protego", "stdlib")}
        return measure(
            {way: lambda make=make: make(body) for way, make in kept.items()}, times[name], rounds
        )

    def answered(body: bytes, name: str) -> Cost:
        return measure(
            {way: lambda make=make: make(body)(url) for way, make in PEERS.items()},
            times[name],
            rounds,
        )

    _print_table(
        "Parse and compile for one crawler (us); protego builds its index at the first question",
        "file",
        ((name, [parsed(body, name) for body in corpus[name]]) for name in CLASSES if corpus[name]),
    )
    _print_table(
        "From the bytes to the first answer (us)",
        "file",
        (
            (name, [answered(body, name) for body in corpus[name]])
            for name in CLASSES
            if corpus[name]
        ),
    )


def _print_cold(bodies: list[bytes], seed: int, rounds: int) -> None:
    """Print the cost of a broad crawl: every file is parsed once, and asked `asked` times, each time
    after all the others."""
    questions = [urls(body, max(ASKED), seed, CRAWL) for body in bodies]

    def crawl(make: Peer, asked: int) -> None:
        asks = []
        for body, (first, *_) in zip(bodies, questions, strict=True):
            asks.append(make(body))
            asks[-1](first)
        for turn in range(1, asked):
            for ask, each in zip(asks, questions, strict=True):
                ask(each[turn])

    def costs(asked: int) -> list[Cost]:
        found = []
        for _ in range(rounds):
            row = {}
            for name, make in PEERS.items():
                start = time.process_time_ns()
                crawl(make, asked)
                row[name] = (time.process_time_ns() - start) / len(bodies)
            found.append(row)
        return found

    _print_table(
        f"A broad crawl, caches cold: {len(bodies):,} files in rotation, each parsed once (us per"
        " file, with all its questions; quartiles over rounds)",
        "questions per file",
        ((str(asked), costs(asked)) for asked in ASKED),
    )


RULES = b"""User-agent: *
Disallow: /admin/
Disallow: /private/
Disallow: /search
Allow: /search/about
Disallow: /*?sort=
Disallow: /tmp/
"""
SPELLINGS = {
    "plain": "/products/shoes/12345.html",
    "a query": "/products/shoes?id=7&page=2",
    "`%20`": "/products/red%20shoes/12345.html",
    "UTF-8 escapes": "/wiki/%C3%89t%C3%A9",
    "a URL in the query": "/go?to=https%3A%2F%2Fwww.example.org%2Fx",
    "`//`": "/products//shoes/12345.html",
    "`..`": "/products/../shoes/12345.html",
    "`%2F`": "/products/shoes%2Fred/12345.html",
    "`%2e%2e`": "/products/%2e%2e/shoes/12345.html",
    "`;`": "/products/shoes;jsessionid=1A2B",
    "an empty query": "/products/shoes?",
    "`//` at the beginning": "//products/shoes/12345.html",
}


def _print_spellings(rounds: int) -> None:
    asks = {
        "ours": ours(RULES),
        "ours, strict": ours(RULES, "strict"),
        "protego": protego(RULES),
    }

    def costs(target: str) -> list[Cost]:
        url = f"https://www.example.com{target}"
        ways = {name: (lambda ask=ask: ask(url)) for name, ask in asks.items()}
        return [measure(ways, 200, rounds) for _ in range(5)]

    _print_table(
        "Spellings of a target under 6 rules (us); protego judges one form, ours every form to which"
        " a server may resolve it (quartiles over repetitions)",
        "target",
        ((name, costs(target)) for name, target in SPELLINGS.items()),
    )


if __name__ == "__main__":
    main()
