"""The time to render each page of the console over a million records, in milliseconds. The goal is
below 300.

    python benchmarks/console.py [--records N] [--directory DIRECTORY] [--lines N]

The records are generated once (a directory that contains records is used as it is) and compacted
into Parquet; `--lines` leaves additional records of the last day uncompacted. Each page is
requested from a new console that has only opened the audit log (`first`), and once more (`again`,
with the answers of the snapshot cached). The best of three is reported. Opening is reported
separately, because it is repeated whenever the audit log has changed, for at most a tenth of the
time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from robots_guard.audit.compaction import compact
from robots_guard.audit.record import Record
from robots_guard.console import Sources, app
from robots_guard.core.verdict import Terms
from robots_guard.ports import Clocks
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching

BEGINS = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 14
TRIES = 3  # consoles per page; the best result is reported
ORIGINS = 5_000
_OUTCOMES = (
    ("pass", "allowed", None, None),
    ("drop", "disallowed", "Disallow: /private/", 2),
    ("drop", "disallowed", "Disallow: /*?sort=", 17),
    ("drop", "restricted", None, None),
    ("defer", "crawl-delay", "Crawl-delay: 5", 4),
    ("defer", "unreachable", None, None),
)


_DEEP = '["2026-11-07T12:00:00.000Z","bench-1",1]'
_CHEAP = "/decisions?since=2030-01-01"
PAGES = (
    ("overview, 24 hours", "/"),
    ("overview, 7 days", "/?period=7d"),
    ("overview, all", "/?period=all"),
    ("decisions", "/decisions"),
    ("... deep inside", f"/decisions?after={_DEEP}"),
    ("... oldest first", "/decisions?sort=oldest"),
    ("... by origin", "/decisions?sort=origin"),
    ("... slowest first", "/decisions?sort=slowest"),
    ("... of a busy origin", "/decisions?origin=https://site-1.example"),
    ("... of a rare origin", "/decisions?origin=https://site-3999.example"),
    ("... by a rule, dropped", "/decisions?action=drop&rule=Disallow: /*?sort="),
    ("... under any override", "/decisions?override=any"),
    ("... of an hour", "/decisions?since=2026-11-03T10:00&until=2026-11-03T11:00"),
    ("... none", "/decisions?reason=mirror"),
    ("one decision", "/decisions/bench-77"),
    ("an origin", "/origin?name=https://site-1.example"),
    ("overrides", "/overrides"),
    ("try a URL", "/try?url=https://site-1.example/private/"),
)


def main() -> None:
    """Generate the records, request the pages and print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--lines", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = chosen.directory or Path(scratch) / "audit_log"
        if not directory.exists():
            began = time.perf_counter()
            generate(directory, chosen.records)
            print(
                f"{chosen.records:,} records generated and compacted in {time.perf_counter() - began:.0f} s"
            )
        if chosen.lines:
            leave_lines(directory, chosen.lines)
        asyncio.run(measure(directory))


async def measure(directory: Path) -> None:
    """Request each page from new consoles and print the times."""
    print(f"{'':26}{'open':>8}{'first':>8}{'again':>8}   ms")
    for says, path in PAGES:
        every = [
            [milliseconds async for milliseconds in _request_times(directory, path)]
            for _ in range(TRIES)
        ]
        opening, first, again = (min(each) for each in zip(*every, strict=True))
        print(f"{says:26}{opening:8.0f}{first:8.0f}{again:8.0f}")


async def _request_times(directory: Path, path: str) -> AsyncIterator[float]:
    """Yield the milliseconds for opening (a page with hardly any query), for the page, and for the
    page again.
    """
    end = (BEGINS + timedelta(days=DAYS)).timestamp()
    clocks = Clocks(now=lambda: end, monotonic=time.monotonic)
    terms = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
    made = app(
        Sources(directory, None, None, terms, "mybot", clocks), hosts=["bench"], read_only=True
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=made), base_url="http://bench"
    ) as browser:
        for address in (_CHEAP, path, path):
            began = time.perf_counter()
            answer = await browser.get(address)
            assert answer.status_code == 200, answer.text
            yield 1000 * (time.perf_counter() - began)
    made.close()


def leave_lines(directory: Path, count: int) -> None:
    """Write `count` uncompacted records of the last hour."""
    chance, at = random.Random(8), BEGINS + timedelta(days=DAYS, hours=-1)
    step = timedelta(hours=1) / count
    lines = [_line(10**9 + number, at + step * number, chance) for number in range(count)]
    (directory / f"{at:%Y%m%d}-lines-1-0001.jsonl").write_bytes(b"".join(lines))


def generate(directory: Path, records: int, seed: int = 7) -> None:
    """Write an audit log of `count` decisions over two weeks, by four writers, as Parquet."""
    chance = random.Random(seed)
    step = timedelta(days=DAYS) / records
    per_day: dict[str, list[bytes]] = {}
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(records):
        at = BEGINS + step * number
        day = f"{at:%Y%m%d}"
        per_day.setdefault(day, []).append(_line(number, at, chance))
        if len(per_day) > 1:
            _write(directory, per_day, next(iter(per_day)))
    for day in list(per_day):
        _write(directory, per_day, day)
    compact(directory, "99999999")


def _write(directory: Path, per_day: dict[str, list[bytes]], day: str) -> None:
    (directory / f"{day}-bench-1-0001.jsonl").write_bytes(b"".join(per_day.pop(day)))


def _line(number: int, at: datetime, chance: random.Random) -> bytes:
    host = min(int(chance.paretovariate(0.6)), ORIGINS)
    action, reason, rule, line = _OUTCOMES[chance.choices(range(6), (50, 25, 8, 4, 9, 4))[0]]
    origin = f"https://site-{host}.example"
    moment = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
    return Record(
        schema=1,
        at=moment,
        seq=number + 1,
        writer=f"bench-{number % 4}",
        component="scrapy" if number % 3 else "proxy",
        id=f"bench-{number}",
        agent=("mybot", "imagebot", "newsbot")[number % 3],
        user_agent="mybot/1.0 (+https://bot.example)",
        method="GET",
        url=f"{origin}/{'private/' if rule else ''}{chance.randrange(10**6)}/page.html?sort=price&page={number}",
        origin=origin,
        action=action,
        reason=reason,
        group="*" if rule else None,
        rule=rule,
        line=line,
        form="spec" if rule else None,
        dialect="rfc9309",
        matching="standard",
        sha256=f"{host:064x}",
        status=200,
        fetched_at=moment,
        age=1.0,
        via="scrapy",
        until=moment if action == "defer" else None,
        failure="dns" if reason == "unreachable" else None,
        override="shop-2026" if host == 3 else None,
        override_owner="jane" if host == 3 else None,
        override_expires="2027-03-31T00:00:00.000Z" if host == 3 else None,
        elapsed_us=80,
        source="memory",
    ).line_of_json()


if __name__ == "__main__":
    main()
