"""Several thousand histories; run more by hand: `python -m tests.simulation --histories 1000000`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import campaign
from simulation.planted import FAULTS

ROOT = Path(__file__).parent.parent.parent


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_histories_over_the_model_of_a_store(first):
    assert violations("model", first, 500) == []


@pytest.mark.parametrize("first", [10_000, 10_100, 10_200])
def test_histories_over_the_real_sqlite_store(first):
    assert violations("sqlite", first, 100) == []


@pytest.mark.parametrize("first", [20_000, 20_060, 20_120])
def test_histories_over_the_real_scripts_of_redis(first):
    assert violations("redis", first, 60) == []


def violations(tier: str, first: int, count: int) -> list[str]:
    report = campaign.batch((first, count, tier))
    assert report.histories == count
    assert report.requests > count
    return [f"--tier {tier} --replay {seed}: {text}" for seed, _, text in report.violations]


@pytest.mark.parametrize("tier", ["model", "sqlite", "redis"])
def test_a_seed_replays_exactly(tier):
    """Also if string hashing, and so the order of sets, differs."""
    one, other = (
        command("--tier", tier, "--replay", "17", PYTHONHASHSEED=seed) for seed in ("1", "2")
    )

    assert "visits https://" in one.stdout
    assert one.stdout == other.stdout


def test_the_help_shows_examples_on_separate_lines():
    assert "\n    python -m tests.simulation --replay SEED  " in command("--help").stdout


def test_a_failure_is_shown_with_its_seed_and_its_trace():
    result = command("--planted", "half-delay", "--histories", "50")

    assert result.returncode == 1
    assert "own-gap" in result.stdout
    seed = result.stdout.partition("--replay ")[2].split()[0]
    replayed = command("--planted", "half-delay", "--replay", seed)
    assert "VIOLATION own-gap" in replayed.stdout
    assert "visits https://" in replayed.stdout


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_planted_fault_changes_an_existing_line(fault):
    """Whether each is found is checked by hand: `python -m tests.simulation --planted`."""
    path = ROOT / Path(*fault.module.split(".")).with_suffix(".py")

    assert path.read_text().count(fault.old) == 1


@pytest.mark.parametrize(
    "name", ["no-lease", "always-stale", "unrecorded-passes", "unreachable-passes"]
)
def test_a_planted_fault_is_found(name):
    assert command("--planted", name, "--histories", "1000").returncode == 1
