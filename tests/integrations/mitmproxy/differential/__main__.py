"""Run the differential test by hand, for as many cases as there is time for.

    PYTHONPATH=tests python -m integrations.mitmproxy.differential \\
        [--kind proxy] [--mode regular] [--cases 10000] [--seed 0]
    PYTHONPATH=tests python -m integrations.mitmproxy.differential --kind proxy --mode regular --replay SEED

The first prints figures and every violation with its seed; the second runs one case, minimises it if it violates,
and shows what was sent and what reached the origin. Exits 1 if there was a violation or a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.differential.minimising import minimised
from integrations.mitmproxy.differential.running import MODES, Result, proxied

BATCH = 4_000  # cases for one proxy: its bytes and its audit log are held in memory


@dataclass
class Figures:
    """The figures of several runs."""

    cases: int = 0
    connections: int = 0
    found: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    violations: set[tuple[str, str, int | None]] = field(default_factory=set)  # kind, class, case
    faults: int = 0

    def add(self, result: Result) -> None:
        self.cases += len(result.cases)
        self.connections += result.judgement.connections
        self.found.update(result.judgement.found)
        self.statuses.update(result.statuses)
        self.violations.update(
            {(each.kind, _label(result, each.case), each.case) for each in result.violations}
        )
        self.faults += len(result.faults)

    def show(self) -> None:
        print(
            f"{self.cases} cases, {self.connections} connections at origins, {self.faults} faults"
        )
        print(
            "requests by reader: "
            + "; ".join(f"{name}: {count}" for name, count in sorted(self.found.items()))
        )
        print(
            "answers: "
            + "; ".join(f"{name}: {count}" for name, count in sorted(self.statuses.items()))
        )
        by_class = Counter((kind, label) for kind, label, _ in self.violations)
        print(f"{len(self.violations)} violations")
        for (kind, label), count in by_class.most_common():
            print(f"  {count:6} {kind} ({label})")


def _label(result: Result, case: int | None) -> str:
    known = result.cases.get(-1 if case is None else case)
    return known.label if known else "none"


async def _run(kind: str, mode: str, seeds: range) -> Result:
    with tempfile.TemporaryDirectory(prefix="robots-guard-differential-") as folder:
        async with proxied(kind, mode, Path(folder)) as proxy:
            return await proxy.run(seeds)


async def _replay(kind: str, mode: str, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="robots-guard-differential-") as folder:
        async with proxied(kind, mode, Path(folder), 1) as proxy:
            case, violations = await minimised(proxy, proxy.case(seed, proxy.lanes[0]))
            recorded = [each for each in proxy.lanes[0].recordings if each.case == seed]
        print(case)
        for piece in case.pieces:
            print("  sent", piece)
        for recording in recorded[-3:]:
            print("  at the origin", bytes(recording.data))
        for violation in violations:
            print(violation)
        print("".join(proxy.integration.output))
    return len(violations)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--replay", type=int, metavar="SEED")
    chosen = parser.parse_args()
    kinds, modes = chosen.kind or KINDS, chosen.mode or MODES
    if chosen.replay is not None:
        return int(
            any(asyncio.run(_replay(kind, mode, chosen.replay)) for kind in kinds for mode in modes)
        )
    print(f"mitmproxy {version('mitmproxy')}, Python {sys.version.split()[0]}")
    everything = Figures()
    batch = min(BATCH, -(-chosen.cases // (len(kinds) * len(modes))))
    seed = chosen.seed
    while seed < chosen.seed + chosen.cases:
        for kind in kinds:
            for mode in modes:
                begun = time.monotonic()
                result = asyncio.run(_run(kind, mode, range(seed, seed + batch)))
                seed += batch
                everything.add(result)
                rate = len(result.cases) / (time.monotonic() - begun)
                print(
                    f"{kind} {mode}: {rate:.0f} cases/s, to seed {seed}, {len(result.violations)} violations",
                    flush=True,
                )
                for each in result.violations[:20]:
                    print(f"  {each}: {result.cases.get(-1 if each.case is None else each.case)}")
                for fault in result.faults[:20]:
                    print(f"  fault: {fault}")
                for line in result.noted[:20]:
                    print(f"  noted: {line.rstrip()}")
    everything.show()
    return int(bool(everything.violations or everything.faults))


if __name__ == "__main__":
    sys.exit(main())
