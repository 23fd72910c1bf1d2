"""A soak test: two proxies and a crawl run for a long time, under faults drawn by a seed.

    python benchmarks/soak.py [--requests 1000000] [--pages 100000] [--minutes 600] [--seed 1] [--keep DIR]

One proxy with two workers uses a redis-server; another, which is never killed, uses SQLite; a
Scrapy crawl uses either one each time it is started. All write one audit log. redis-server is
stopped, killed and emptied, the SQLite file is deleted, the log's disk is filled, workers and the
crawl are killed, clocks are moved, and the origins answer late, badly or not at all.

Exits with 1 unless these counts are 0: forbidden requests that an origin received; lost records (a
page that an origin received without the record of its PASS, a refusal sent to a client without its
record while the disk was not full, a gap in the log that no full disk explains); hung requests;
processes whose memory, descriptors or threads grew. Needs redis-server, and root for the full disk
(a tmpfs).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from holds import Client
from soaking import faults, records
from soaking.programs import Clock, Program, Watch, free_port, path_of
from soaking.sites import Ledger, Numbers, Site, url
from soaking.spider import Outcome, Work, outcomes

from robots_guard.testing import Loopback

WARM = 60  # seconds at the start of a process that are not compared: caches are filling
# seconds a process must live to be judged for growth: until then clients still open connections
LONG = 600
PATIENCE = 90.0  # seconds a client waits for an answer: several times that for a decision
STOPS = 60.0  # seconds within which a program must stop
SPIDER = Path(__file__).parent / "soaking" / "spider.py"
SPIDER_BEGINS = 1_000_000_000  # the number of the crawl's first page
SETTINGS = {
    "agent": "soakbot",
    "allow_private": "127.0.0.0/8",
    "audit": "all",
    "audit_required": "always",
    "audit_retention_days": "30",
    "fetch_timeout": "6",
    "max_defer": "60",
}
ROOM = {"MiB": 32, "descriptors": 64, "threads": 16}  # allowed growth of a process
_ID = re.compile(
    rb'\r\nrobots-guard: (\w+); reason=([\w-]+)[^\r]*?(?:id="([^"]+)")?\r\n', re.IGNORECASE
)


class Refusal(NamedTuple):
    """A refusal received by a client, with the times of request and answer."""

    id: str
    sent: float
    answered: float


class Load:
    """Clients of the proxies, each a thread with one outstanding request.

    Aborted requests are repeated.
    """

    def __init__(self, options: argparse.Namespace, ports: list[int], sites: list[str]) -> None:
        self.ends: Counter[str] = Counter()
        self.refusals: list[Refusal] = []
        self.hung: list[str] = []
        self.milliseconds: list[float] = []
        self.is_over = False
        self._seed, self._ports, self._sites = options.seed, ports, sites
        self._numbers = Numbers(options.requests)
        self._threads = [
            threading.Thread(target=self._run, args=(each,)) for each in range(options.clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, client: int) -> None:
        port = self._ports[client % len(self._ports)]
        connection: Client | None = None
        while not self.is_over and (number := self._numbers.take()) is not None:
            page = url(self._seed, number, self._sites)
            while not self.is_over:
                began = time.monotonic()
                try:
                    connection = connection or Client(port, PATIENCE)
                    connection.ask(page)
                    self._note(began, connection.reply()[0])
                    break
                except TimeoutError:
                    self.hung.append(page)
                    connection = None
                    break
                except OSError as error:
                    self.ends[type(error).__name__] += 1
                    connection = None
                    time.sleep(0.2)

    def _note(self, began: float, head: bytes) -> None:
        now = time.monotonic()
        self.milliseconds.append((now - began) * 1000)
        status = head.split(b" ", 2)[1].decode()
        refusal = _ID.search(head)
        self.ends[f"{status} {refusal[2].decode()}" if refusal else status] += 1
        if refusal and refusal[3]:
            self.refusals.append(Refusal(refusal[3].decode(), began, now))


class Stage:
    """All programs, origins and files of a soak test."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, stack: contextlib.ExitStack
    ) -> None:
        self.options, self.folder = options, folder
        self.ledger = Ledger()
        net = stack.enter_context(Loopback())
        self.sites = [
            Site(net, each, options.seed, self.ledger).origin.url for each in range(options.sites)
        ]
        self.disk = faults.Disk(folder / "disk")
        stack.callback(self.disk.close)
        self.audit_log = self.disk.place / "log"
        self.database = folder / "store" / "policies.sqlite"
        self.database.parent.mkdir()
        self.outcomes = folder / "outcomes"
        self.redis_port = free_port()
        self.clocks = {
            name: Clock(folder, name) for name in ("proxy-redis", "proxy-sqlite", "crawl")
        }
        self.programs: dict[str, Program] = {}
        self.has_crawled = False  # the crawl finished by itself
        stack.callback(self._kill)
        self._start("redis", self._redis)
        self.ports = [
            self._proxy("proxy-redis", self._store("redis"), 2),
            self._proxy("proxy-sqlite", "", 1),
        ]
        if options.pages:
            self._start("crawl", self._crawl)

    def _start(self, name: str, command: Callable[[], list[str]]) -> None:
        clock = self.clocks.get(name)
        self.programs[name] = Program(
            name, self.folder, command, clock.environment if clock else None
        )

    def _store(self, name: str) -> str:
        return (
            f"redis://127.0.0.1:{self.redis_port}/0"
            if name == "redis"
            else f"sqlite:///{self.database}"
        )

    def _redis(self) -> list[str]:
        listen = ["--port", str(self.redis_port), "--bind", "127.0.0.1"]
        return [path_of("redis-server"), *listen, "--save", "", "--dir", str(self.folder)]

    def _proxy(self, name: str, store: str, workers: int) -> int:
        port = free_port()
        chosen = SETTINGS | {
            "store": store or self._store("sqlite"),
            "audit_log": str(self.audit_log),
        }
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items()]
        command = [
            path_of("robots-guard"),
            "proxy",
            *flags,
            "--confdir",
            str(self.folder / "ca"),
            "--drain",
            "2",
        ]
        command += ["--listen", f"127.0.0.1:{port}", "--workers", str(workers)]
        self._start(name, lambda: command)
        return port

    def _crawl(self) -> list[str]:
        """Return the command for crawling the remaining pages, with a store drawn by the seed."""
        chance = Random(f"{self.options.seed}/crawl/{len(outcomes(self.outcomes))}")
        chosen = SETTINGS | {
            "store": self._store(chance.choice(("redis", "sqlite"))),
            "audit_log": str(self.audit_log),
        }
        settings = {f"ROBOTS_GUARD_{key.upper()}": value for key, value in chosen.items()} | {
            "ADDONS": {"robots_guard.scrapy.Addon": 500},
            "CONCURRENT_REQUESTS": 32,
            "DOWNLOAD_TIMEOUT": 30,
            "RETRY_ENABLED": False,
        }
        work = Work(
            self.options.seed,
            SPIDER_BEGINS,
            self.options.pages,
            self.sites,
            str(self.outcomes),
            settings,
        )
        return [
            sys.executable,
            str(Path(__file__).parent / "soaking" / "spider.py"),
            msgspec.json.encode(work).decode(),
        ]

    def faults(self) -> tuple[dict[str, list[str]], dict[str, faults.Begin]]:
        """Return the names of the faults by lane, and the function that begins each."""
        redis, proxy, sqlite = (
            self.programs[name] for name in ("redis", "proxy-redis", "proxy-sqlite")
        )
        store = {
            "redis stopped": faults.pause(redis),
            "redis killed": faults.kill(redis, held=True),
            "redis emptied": faults.flush(self.redis_port),
            "sqlite deleted": faults.delete(self.database),
        }
        process = {
            f"{name}: clock jumps": faults.jump(clock) for name, clock in self.clocks.items()
        }
        process |= {
            "worker killed": faults.kill(proxy),
            "sqlite proxy stopped": faults.pause(sqlite),
        }
        if "crawl" in self.programs:
            process["crawl killed"] = faults.kill(self.programs["crawl"])
        world = {"origins down": faults.down(self.ledger)}
        if self.disk.is_mounted:
            world["disk full"] = self.disk.fill
        lanes = {"store": list(store), "process": list(process), "world": list(world)}
        return lanes, store | process | world

    def await_ready(self) -> None:
        for port in self.ports:
            while not _listens(port):
                time.sleep(0.1)

    def stop(self) -> list[str]:
        """Stop all programs. Returns the names of those that did not stop in time."""
        order = [self.programs[name] for name in reversed(self.programs)]
        return [each.name for each in order if not each.stop(STOPS)]

    def _kill(self) -> None:
        for each in self.programs.values():
            if each.process.poll() is None:
                each.stop(0.0)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        Client(port, 1.0).connection.close()
        return True
    return False


def soak(stage: Stage, load: Load) -> tuple[Watch, Counter[str], list[str]]:
    """Run until the load is done or the time is over.

    Returns the samples, the faults that were applied, and the programs that did not stop.
    """
    options = stage.options
    lanes, begins = stage.faults()
    planned = faults.schedule(options.seed, options.minutes * 60, lanes)
    shown = list(faults.shown(planned))
    print(
        f"{len(shown)} faults are planned for seed {options.seed}:",
        *shown[: options.show],
        sep="\n",
        flush=True,
    )
    until = time.monotonic() + options.minutes * 60
    crawl = stage.programs.get("crawl")
    with Watch(list(stage.programs.values())) as watch:
        with faults.Faults(options.seed, planned, begins) as faulty:
            load.start()
            while time.monotonic() < until and not (
                load.is_done() and (crawl is None or crawl.has_ended.is_set())
            ):
                time.sleep(0.5)
                _print_progress(stage, load)
        load.is_over = True
        load.join()
    stage.has_crawled = crawl is not None and crawl.has_ended.is_set()
    return watch, Counter(faulty.done), stage.stop()


_last_progress = [time.monotonic()]


def _print_progress(stage: Stage, load: Load) -> None:
    if time.monotonic() - _last_progress[0] > 60:
        _last_progress[0] = time.monotonic()
        pages = stage.outcomes.read_bytes().count(b"\n") if stage.outcomes.exists() else 0
        print(
            f"  {len(load.milliseconds)} requests, {pages} pages, {len(load.hung)} hung", flush=True
        )


# -- the report ------------------------------------------------------------------------------------


def lost(
    stage: Stage, load: Load, crawled: list[Outcome], found: records.Found
) -> tuple[list[str], int]:
    """Return the lost records, and the number of those missing because the disk was full."""
    refusals = [
        *load.refusals,
        *(Refusal(each.id, each.at - 30, each.at) for each in crawled if each.id),
    ]
    missing = [each for each in refusals if each.id not in found.ids]
    accused = [each for each in missing if not stage.disk.full.meet(each.sent, each.answered)]
    sentences = [f"no record of the refusal {each.id}" for each in accused]
    sentences += [
        f"no record of the PASS of page {number}"
        for number in sorted(stage.ledger.pages - found.passed)
    ]
    return [*sentences, *found.unexplained], len(missing) - len(accused)


def grown(watch: Watch) -> Iterator[str]:
    """Yield the processes that used more in the last quarter of a long life than in the first.

    Also prints a table of all processes.
    """
    print(f"\n{'process':16}{'s':>6}   {'MiB, first and last quarter':32}{'descriptors':28}threads")
    for usage in watch.longest_lived():
        samples = usage.samples[WARM:]
        quarter = len(samples) // 4
        if not quarter:
            continue
        first, last = samples[:quarter], samples[-quarter:]
        columns = [
            _compare([each[at] for each in first], [each[at] for each in last]) for at in range(3)
        ]
        print(f"{usage.program:16}{len(samples):>6}   {columns[0]:32}{columns[1]:28}{columns[2]}")
        for at, (what, room) in enumerate(ROOM.items()):
            more = statistics.median(each[at] for each in last) - statistics.median(
                each[at] for each in first
            )
            if more > room and len(samples) >= LONG:
                yield f"{usage.program}: {more:.0f} more {what}"


def _compare(first: list[float], last: list[float]) -> str:
    return " -> ".join(
        f"{statistics.median(each):.0f} ({min(each):.0f}-{max(each):.0f})" for each in (first, last)
    )


def hung(stage: Stage, load: Load, crawled: list[Outcome], late: list[str]) -> list[str]:
    """Return the requests without an answer, including pages without an outcome of a finished
    crawl.
    """
    sentences = [f"no answer within {PATIENCE:.0f} s: {page}" for page in load.hung]
    left = stage.options.pages - len({each.number for each in crawled})
    if stage.has_crawled and left:
        sentences.append(f"{left} pages of the crawl have no outcome")
    return sentences + [f"{name} did not end within {STOPS:.0f} s" for name in late]


def report(
    stage: Stage, load: Load, watch: Watch, done: Counter[str], late: list[str], took: float
) -> bool:
    """Print the report. Returns whether all four counts are 0."""
    crawled = outcomes(stage.outcomes)
    found = records.read(stage.audit_log, stage.disk.full)
    print(f"\nseed {stage.options.seed}, {took:.0f} s: {len(load.milliseconds)} requests through the proxies,"
          f" {len(crawled)} Scrapy pages, {len(stage.ledger.pages)} pages received by {len(stage.sites)} origins,"
          f" {found.records} records")  # fmt: skip
    _count("faults", done)
    _count("starts", Counter({name: each.starts for name, each in stage.programs.items()}))
    _count("answers through the proxies", load.ends)
    _count("ends of Scrapy pages", Counter(each.end for each in crawled))
    _count("answers to robots.txt", Counter(stage.ledger.fetches))
    if load.milliseconds:
        cuts = statistics.quantiles(load.milliseconds, n=100)
        print(f"milliseconds: median {cuts[49]:.1f}, quartiles {cuts[24]:.1f} to {cuts[74]:.1f}, p99 {cuts[98]:.1f},"
              f" longest {max(load.milliseconds):.0f}")  # fmt: skip
    missing, excused = lost(stage, load, crawled, found)
    print(f"log: {found.explained} records missing in gaps while the disk was full, {excused} of refusals that clients"
          f" received; {found.killed} writers killed; {found.trouble or 'nothing torn'}")  # fmt: skip
    sums = {
        "forbidden requests received": stage.ledger.forbidden,
        "records lost": missing,
        "requests hung": hung(stage, load, crawled, late),
        "processes that grew": list(grown(watch)),
    }
    for name, sentences in sums.items():
        print(f"\n{name}: {len(sentences)}", *sentences[:10], sep="\n  ")
    return not any(sums.values())


def _count(what: str, counts: Counter[str]) -> None:
    print(f"{what}: {', '.join(f'{each} {count}' for each, count in counts.most_common())}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000, help="through the proxies")
    parser.add_argument("--pages", type=int, default=100_000, help="of the Scrapy crawl")
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="after which the soak ends in any case"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--sites", type=int, default=120)
    parser.add_argument("--show", type=int, default=1000, help="faults of the schedule to print")
    parser.add_argument("--keep", type=Path, help="copy the log and the programs' output there")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        stage = Stage(options, folder, stack)
        stage.await_ready()
        if not stage.disk.is_mounted:
            print("mounting is not allowed here: the disk is never full")
        load = Load(options, stage.ports, stage.sites)
        began = time.monotonic()
        watch, done, late = soak(stage, load)
        try:
            is_sound = report(stage, load, watch, done, late, time.monotonic() - began)
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
    sys.exit(not is_sound)


if __name__ == "__main__":
    main()
