"""Audit logs of any size for benchmarks: two weeks, or other days, of decisions and fetches by four writers, most of
them on few origins, as of crawls. The same arguments give the same records.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from robots_guard.audit.record import Fetch, Record, Start
from robots_guard.audit.segments import JSONL, ZSTD, day_of, stem_of
from robots_guard.audit.write.maintenance import compress

BEGINS = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 14
ORIGINS = 5_000
WRITERS = 4
FETCHES = 50  # every so many records are fetches
_OUTCOMES = (
    ("pass", "allowed", None, None),
    ("drop", "disallowed", "Disallow: /private/", 2),
    ("drop", "disallowed", "Disallow: /*?sort=", 17),
    ("drop", "restricted", None, None),
    ("defer", "crawl-delay", "Crawl-delay: 5", 4),
    ("defer", "unreachable", None, None),
)
_WEIGHTS = (50, 25, 8, 4, 9, 4)  # of the outcomes


def generate(directory: Path, records: int, seed: int = 7, days: int = DAYS) -> None:
    """Write the lines of `records` decisions, and compress their files, as writers do after midnight."""
    write_lines(directory, records, seed, days)
    compress(directory)
    for path in directory.glob(f"*{ZSTD}"):
        _end_with_day(path)


def write_lines(directory: Path, records: int, seed: int = 7, days: int = DAYS) -> None:
    """Write the lines of `records` decisions, with a file per writer and day."""
    chance = random.Random(seed)
    step = timedelta(days=days) / records
    directory.mkdir(parents=True, exist_ok=True)
    numbers = iter(range(records))
    for day in range(days):
        first, last = -(-records * day // days), -(-records * (day + 1) // days)
        lines = [[_start(writer, day, first)] for writer in range(WRITERS)]
        for number in (next(numbers) for _ in range(last - first)):
            lines[number % WRITERS].append(_line(number, day, BEGINS + step * number, chance))
        for writer in range(WRITERS):
            stem = stem_of(f"{BEGINS + timedelta(days=day):%Y%m%d}", f"bench-{writer}", day + 1)
            path = directory / f"{stem}{JSONL}"
            path.write_bytes(b"".join(lines[writer]))
            _end_with_day(path)


def _end_with_day(path: Path) -> None:
    """Set the time of a file to the end of its day, when its writer would have closed it."""
    day = datetime.strptime(day_of(path.name), "%Y%m%d").replace(tzinfo=UTC)
    end = (day + timedelta(days=1)).timestamp()
    os.utime(path, (end, end))


def leave_lines(directory: Path, count: int) -> None:
    """Write `count` records of the last hour, in a file that is not compressed."""
    chance, at = random.Random(8), BEGINS + timedelta(days=DAYS, hours=-1)
    step = timedelta(hours=1) / count
    lines = [_line(10**9 + number, DAYS, at + step * number, chance) for number in range(count)]
    (directory / f"{at:%Y%m%d}-lines-1-0001.jsonl").write_bytes(b"".join(lines))


def _start(writer: int, day: int, first: int) -> bytes:
    return Start(
        schema=1,
        at=_moment(BEGINS + timedelta(days=day)),
        seq=first // WRITERS + day + 1,
        writer=f"bench-{writer}",
        component="scrapy" if writer % 3 else "proxy",
        version="0",
        host="bench",
        pid=1,
        segment=day + 1,
        settings={"audit": "all", "audit_query": "redact"},
    ).line_of_json()


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def _line(number: int, day: int, at: datetime, chance: random.Random) -> bytes:
    if number % FETCHES == 0:
        return _fetch(number, day, at, chance)
    host = min(int(chance.paretovariate(0.6)), ORIGINS)
    action, reason, rule, line = _OUTCOMES[chance.choices(range(6), _WEIGHTS)[0]]
    origin = f"https://site-{host}.example"
    moment = _moment(at)
    return Record(
        schema=1,
        at=moment,
        seq=number // WRITERS + day + 2,
        writer=f"bench-{number % WRITERS}",
        component="scrapy" if number % 3 else "proxy",
        job=f"job-{number % 5}",
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


def _fetch(number: int, day: int, at: datetime, chance: random.Random) -> bytes:
    """The fetch of a robots.txt, of which each site has three versions."""
    host = chance.randrange(ORIGINS)
    origin = f"https://site-{host}.example"
    return Fetch(
        schema=1,
        at=_moment(at),
        seq=number // WRITERS + day + 2,
        writer=f"bench-{number % WRITERS}",
        component="scrapy",
        job=f"job-{number % 5}",
        origin=origin,
        url=f"{origin}/robots.txt",
        via="scrapy",
        status=200,
        size=1000,
        sha256=f"{host * 3 + chance.randrange(3):064x}",
        tls_verified=True,
        elapsed_us=80_000,
    ).line_of_json()
