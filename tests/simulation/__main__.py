"""Run the simulation by hand.

    python -m tests.simulation [--histories 1000000] [--seed 0] [--jobs 2] [--tier model|sqlite|redis]
    python -m tests.simulation --replay SEED       replay one history, with its trace
    python -m tests.simulation --planted [NAME]    plant each fault (or one) and report when it is found

The first form prints the number of histories run, and each violation with its seed. It exits with 1
if there was any violation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulation.planted import FAULTS, plant


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.planted == "":
        return _plant_all(arguments)
    if arguments.planted:
        plant(arguments.planted)
    from simulation import campaign  # imported here, because the fault must be planted before

    if arguments.replay is not None:
        return campaign.replay(arguments.replay, arguments.tier)
    stop = 1 if arguments.planted else 20
    return campaign.run(arguments.seed, arguments.histories, arguments.jobs, arguments.tier, stop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first history; the others follow"
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument(
        "--tier", choices=("model", "sqlite", "redis"), default="model", help="the shared store"
    )
    parser.add_argument("--replay", type=int, metavar="SEED")
    parser.add_argument("--planted", nargs="?", const="", metavar="NAME")
    return parser


def _plant_all(arguments: argparse.Namespace) -> int:
    found = 0
    for fault in FAULTS:
        command = [sys.executable, "-m", "tests.simulation", "--planted", fault.name]
        command += ["--histories", str(arguments.histories), "--seed", str(arguments.seed)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (ended.stdout or ended.stderr).strip().splitlines()
        found += ended.returncode == 1
        print(f"{fault.name:20} {lines[0] if lines else 'nothing was printed'}", flush=True)
    print(f"{found} of {len(FAULTS)} found")
    return found < len(FAULTS)


if __name__ == "__main__":
    sys.exit(main())
