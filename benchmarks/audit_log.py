"""The cost of the audit log: records compared with bare writes, the levels of `audit`, queries over
many records, and killed writers.

    python benchmarks/audit_log.py [write] [levels] [query] [kill] [verify]
        [--records 10000000] [--kills 500] [--at DIRECTORY]

`write` and `levels` interleave their measurements in one run, so only the ratios are reliable; both
measure CPU time.
`levels` measures permitted requests: the time of `Guard.peek`, and the size of the log of a crawl
of 20 origins, one request a second to each for ten minutes. `query` generates
records of about 650 bytes. `verify` writes a signed log and verifies it, by CPU time. `kill` starts
writers, kills them under load, and counts the acknowledged records.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from audit.decisions import AT, PASS, audit_log_in, decision, policy
from audit.killed import kill_one

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.read.reader import Filter, Unreadable
from robots_guard.audit.read.search import Search
from robots_guard.audit.read.verify import verify_log
from robots_guard.audit.read.writer_check import Trust
from robots_guard.audit.record import Writer, moment, record_of
from robots_guard.audit.segments import JSONL, stem_of
from robots_guard.audit.signing import new_signer
from robots_guard.audit.write.line_encoder import LineEncoder
from robots_guard.configuration.settings import Settings, open_guard
from robots_guard.decisions.access import Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.decisions.verdict import Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.origin import origin_of

ROUNDS, LINES = 15, 20_000
FIRST_PAGE = 50
PER_FILE = 400_000


# -- writing ---------------------------------------------------------------------------------------


def per_line(work: Callable[[int], object]) -> float:
    """Return the microseconds of CPU per call."""
    clock = time.process_time_ns
    began = clock()
    for number in range(LINES):
        work(number)
    return (clock() - began) / 1000 / LINES


def write(place: Path) -> None:
    made = [
        decision(
            f"https://www.example-{number}.com/private/{number}",
            policy=policy(f"https://www.example-{number}.com/"),
        )
        for number in range(200)
    ]
    writer, encoder = Writer(writer="w", component="cli"), LineEncoder(Privacy())
    lines = [record_of(each, writer, seq=1, mono=1.0).line_of_json() for each in made]
    bare = os.open(place / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    synced = os.open(place / "synced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    audit_logs = {
        "audit_log": audit_log_in(place / "plain"),
        "audit log, chained": audit_log_in(place / "chained", chain=True),
        "audit log, signed": audit_log_in(place / "signed", chain=True, signer=new_signer()),
    }
    fsync = audit_log_in(place / "fsync", fsync=True)
    spent: dict[str, list[float]] = {}

    def measure(name: str, work: Callable[[int], object]) -> None:
        spent.setdefault(name, []).append(per_line(work))

    for _ in range(ROUNDS):
        measure("bare os.write", lambda number: os.write(bare, lines[number % 200]))
        measure(
            "record and encode",
            lambda number: record_of(made[number % 200], seq=number).line_of_json(),
        )
        measure(
            "encode, parts kept",
            lambda number: encoder.line_of(made[number % 200], writer, seq=number, mono=1.0),
        )
        for name, audit_log in audit_logs.items():
            measure(name, lambda number, audit_log=audit_log: audit_log.write(made[number % 200]))  # type: ignore[misc]  mypy cannot infer it
    few = 500
    fsynced = [
        _synced(few, lambda number: (os.write(synced, lines[number % 200]), os.fdatasync(synced)))
    ]
    fsynced.append(_synced(few, lambda number: fsync.write(made[number % 200])))
    middle = {name: statistics.median(times) for name, times in spent.items()}
    for name, microseconds in middle.items():
        share = middle["bare os.write"] / microseconds
        print(
            f"{name:28}{microseconds:8.2f} us a line{1e6 / microseconds:12,.0f} lines/s{share:8.0%} of bare os.write"
        )
    print(
        f"with fdatasync: bare {fsynced[0]:.0f} us, audit log {fsynced[1]:.0f} us a line, {fsynced[0] / fsynced[1]:.0%}"
    )
    for audit_log in (*audit_logs.values(), fsync):
        audit_log.close()


def _synced(count: int, work: Callable[[int], object]) -> float:
    began = time.perf_counter_ns()
    for number in range(count):
        work(number)
    return (time.perf_counter_ns() - began) / 1000 / count


# -- the levels of `audit` -------------------------------------------------------------------------

ORIGINS, MINUTES = 20, 10
#: The levels, and one of their steps: settings by the name in the table.
STEPS: dict[str, dict[str, Any]] = {
    "refusals": {"audit": "refusals"},
    "summary": {"audit": "summary"},
    "all": {"audit": "all"},
    "evidence": {"audit": "evidence"},
}


def levels(place: Path) -> None:
    """Print a table of the levels, as in docs/audit.md."""
    spent = asyncio.run(_peek_all(place / "peek"))
    print("| `audit` | bytes a request | us a request | more than `refusals` |")
    print("|---|---|---|---|")
    least = spent["refusals"]
    for name, settings in STEPS.items():
        size = _size_of_crawl(place / "crawl" / name, settings)
        print(f"| {name} | {size:.0f} | {spent[name]:.1f} | {spent[name] - least:.1f} |")


async def _peek_all(place: Path) -> dict[str, float]:
    """The median of the microseconds of CPU of a permitted request, by level, with its policy in
    memory."""
    origins = [origin_of(f"https://www.example-{number}.com") for number in range(ORIGINS)]
    answer = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)
    fetcher = ScriptedFetcher({origin.robots_url: answer for origin in origins})
    asked = [Question(origin=each, target="/open/page", agent="mybot") for each in origins]
    guards = {}
    for name, settings in STEPS.items():
        made = Settings(agent="mybot", store="memory:", audit_log=str(place / name), **settings)
        guards[name] = open_guard(
            made, component="scrapy", runtime=AsyncioRuntime(), fetcher=fetcher
        )
        for question in asked:
            await guards[name].check(question)
    spent: dict[str, list[float]] = {name: [] for name in STEPS}
    for _ in range(ROUNDS):
        for name, guard in guards.items():

            def work(number: int, guard: Guard = guard) -> None:
                guard.peek(asked[number % ORIGINS])

            spent[name].append(per_line(work))
    for guard in guards.values():
        guard.close()
    return {name: statistics.median(times) for name, times in spent.items()}


def _size_of_crawl(place: Path, settings: dict[str, Any]) -> float:
    """The bytes of the log and its evidence for each request of a crawl."""
    made = Settings(agent="mybot", **settings)
    options, writing = made.log_options("scrapy"), made.writing("scrapy")
    audit_log = audit_log_in(
        place,
        component="scrapy",
        chain=writing.chain,
        settings=writing.settings,
        audit=options.audit,
    )
    policies = [policy(f"https://www.example-{number}.com/") for number in range(ORIGINS)]
    for each in policies:
        assert each.document is not None
        outcome = Fetched(status=200, body=each.document.body, tls_verified=True)
        get = Get(url=each.origin.robots_url)
        fetched = FetchMade(
            at=AT, origin=each.origin, get=get, outcome=outcome, via="scrapy", elapsed=0.1
        )
        audit_log.note(fetched)
    for second in range(60 * MINUTES):
        for each in policies:
            url = f"{each.origin}/open/page-{second}"
            audit_log.write(decision(url, PASS, at=AT + second, component="scrapy", policy=each))
    audit_log.close()
    size = sum(path.stat().st_size for path in place.iterdir())
    return size / (60 * MINUTES * ORIGINS)


# -- queries ---------------------------------------------------------------------------------------


def query(place: Path, count: int) -> None:
    audit_log = place / "audit_log"
    audit_log.mkdir()
    generate(audit_log, count)
    size = sum(path.stat().st_size for path in audit_log.iterdir())
    print(
        f"{count:,} records, {size / 1e9:.2f} GB of lines in {len(list(audit_log.iterdir()))} files"
    )
    ask_all(audit_log, "indexing")
    ask_all(audit_log, "indexed")


def generate(audit_log: Path, count: int) -> None:
    """Write the records of a week, in files as writers leave them."""
    template = record_of(
        decision(policy=policy()), Writer(writer="WRITER", component="scrapy"), seq=1, mono=1.0
    )
    line = template.line_of_json().decode()
    for each in (
        "2027-01-15T08:00:00.000Z",
        "https://a.test/private/x",
        '"origin":"https://a.test"',
        "WRITER",
    ):
        assert each in line
    number = 0
    while number < count:
        part = min(PER_FILE, count - number)
        at = AT + 7 * 86400 * number / count
        writer = f"host-1-{number:08x}"
        path = audit_log / (stem_of((moment(at) or "")[:10].replace("-", ""), writer, 1) + JSONL)
        with path.open("w") as file:
            file.writelines(
                _line(line, number + each, at + each * 0.15, writer) for each in range(part)
            )
        number += part


def _line(line: str, number: int, at: float, writer: str) -> str:
    site = number * 7919 % 2003
    changed = line.replace("2027-01-15T08:00:00.000Z", moment(at) or "", 1).replace(
        "WRITER", writer
    )
    changed = changed.replace(
        "https://a.test/private/x", f"https://www.example-{site}.com/private/{number}"
    )
    return changed.replace("https://a.test", f"https://www.example-{site}.com").replace(
        '"w-1"', f'"w-{number}"'
    )


def ask_all(audit_log: Path, form: str) -> None:
    queries = {
        "first page, oldest": Filter(),
        "first page of an origin": Filter(origin="https://www.example-7.com"),
        "one record by its id": Filter(id="w-123456"),
        "first page of a day": Filter(
            since="2027-01-18T00:00:00.000Z", until="2027-01-19T00:00:00.000Z"
        ),
    }
    for name, wanted in queries.items():
        _timed(f"{form}: {name}", lambda wanted=wanted: _page(audit_log, wanted))  # type: ignore[misc]  as above
    top = "SELECT origin, count(*) FROM decisions WHERE action = 'drop' GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
    _timed(f"{form}: top origins of all", lambda: _sql(audit_log, top))


def _page(audit_log: Path, wanted: Filter) -> int:
    with Search(audit_log, wanted) as search:
        return len(list(islice(search.records(FIRST_PAGE), FIRST_PAGE)))


def _sql(audit_log: Path, sql: str) -> int:
    with Search(audit_log) as search:
        return len(list(search.select(sql)[1]))


def _timed(name: str, work: Callable[[], int]) -> None:
    began = time.perf_counter()
    rows = work()
    print(f"{name:36}{time.perf_counter() - began:8.2f} s  ({rows} rows)")


# -- verifying ---------------------------------------------------------------------------------------


def verify(place: Path, count: int) -> None:
    signer = new_signer()
    log = audit_log_in(place / "to_verify", chain=True, signer=signer)
    made = [decision(f"https://a.test/private/{number}") for number in range(1000)]
    for number in range(count):
        log.write(made[number % 1000])
    log.close()
    before, began = _peak(), time.process_time()
    finding = verify_log(place / "to_verify", Unreadable(), Trust(keys=frozenset((signer.key,))))
    spent = time.process_time() - began
    assert finding.is_whole
    print(
        f"{count:,} records verified in {spent:.1f} s of one core, {_peak() - before} MiB more memory"
    )


def _peak() -> int:
    """The largest size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


# -- killing ---------------------------------------------------------------------------------------


def kill(place: Path, kills: int) -> None:
    outcomes = []
    for number in range(kills):
        directory = place / f"killed-{number}"
        outcomes.append(kill_one(directory, after=0.001 * (number % 97)))
        shutil.rmtree(directory)
    torn = [outcome.torn for outcome in outcomes]
    print(
        f"{kills} writers killed: {sum(outcome.acknowledged for outcome in outcomes):,} records acknowledged,"
    )
    print(f"0 of them lost; {sum(torn)} torn lines, at most {max(torn)} a writer")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", choices=["write", "levels", "query", "kill", "verify"], default="write"
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--at", type=Path, help="a directory on the disk to measure")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.at) as directory:
        place = Path(directory)
        if "write" in chosen.what:
            write(place)
        if "levels" in chosen.what:
            levels(place)
        if "query" in chosen.what:
            query(place, chosen.records)
        if "verify" in chosen.what:
            verify(place, chosen.records)
        if "kill" in chosen.what:
            kill(place, chosen.kills)


if __name__ == "__main__":
    main()
