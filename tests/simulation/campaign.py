"""Run many histories in a row, optionally in several processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from simulation.fleet import run as run_history
from simulation.kernel import Stuck

CPU_LIMIT = 5.0  # seconds for one history: more means an endless loop within one step
BATCH = 250  # histories per report and per garbage collection


class Report(NamedTuple):
    """A batch of histories: their number, and the first violation of each that has one."""

    histories: int
    requests: int
    violations: list[tuple[int, str, str]]  # the seed, the invariant, the text


def batch(work: tuple[int, int, str]) -> Report:
    first, count, tier = work
    violations, requests = [], 0
    signal.signal(signal.SIGVTALRM, _stop)
    for seed in range(first, first + count):
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT)
        history = run_history(seed, tier)
        requests += len(history.plan.requests)
        if history.judge.violations:
            worst = history.judge.violations[0]
            violations.append((seed, worst.name, str(worst)))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    gc.collect()
    return Report(count, requests, violations)


def _stop(*_: object) -> None:
    raise Stuck(f"a step has taken more than {CPU_LIMIT:g} s")


def _begin() -> None:
    gc.disable()  # histories are too short to benefit; garbage is collected after each batch


def reports(first: int, histories: int, jobs: int, tier: str) -> Iterator[Report]:
    """Yield the reports on the histories as they arrive, in any order."""
    seeds = range(first, first + histories, BATCH)
    work = [(seed, min(BATCH, first + histories - seed), tier) for seed in seeds]
    if jobs == 1:
        _begin()
        yield from map(batch, work)
        gc.enable()
        return
    with multiprocessing.get_context("fork").Pool(jobs, _begin) as pool:
        yield from pool.imap_unordered(batch, work)


def run(first: int, histories: int, jobs: int, tier: str, stop: int) -> int:
    """Run the histories, or until `stop` of them violate an invariant. Returns 1 if any did."""
    began, done, requests, found = time.monotonic(), 0, 0, []
    by_name: Counter[str] = Counter()
    for report in reports(first, histories, jobs, tier):
        done += report.histories
        requests += report.requests
        found += report.violations
        by_name.update(name for _, name, _ in report.violations)
        if len(found) >= stop:
            break
        if done % 100_000 == 0:
            print(f"{done} histories, {time.monotonic() - began:.0f} s", flush=True)
    took, times = time.monotonic() - began, os.times()
    if found:
        seed, _, text = min(found)
        print(f"found after {min(found)[0] - first + 1} histories: {text} (seed {seed})")
    for seed, _, text in found[:20]:
        print(f"  --replay {seed}  {text}")
    cpu = times.user + times.children_user
    print(
        f"{done} histories from seed {first}, {requests} requests, {tier}: {len(found)} with a violation"
        f" {dict(by_name) or ''} ({took:.0f} s, {done / took:.0f} a second; {cpu:.0f} s of CPU)"
    )
    return int(bool(found))


def replay(seed: int, tier: str) -> int:
    """Print one history: its plan, its trace and its violations. Returns 1 if there are any."""
    history = run_history(seed, tier, traced=True)
    plan = history.plan
    print(f"seed {seed}: faults {sorted(plan.faults) or 'none'}")
    for part in (*plan.members, *plan.sites, *plan.requests, *plan.store, *plan.log):
        print(f"  {part}")
    for moment, where, what in history.kernel.trace or ():
        print(f"{moment:14.3f}  {where:6} {what}")
    for violation in history.judge.violations:
        print(f"VIOLATION {violation}")
    return int(bool(history.judge.violations))
