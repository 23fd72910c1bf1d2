"""The home of an origin among regions: the same in every process, balanced, and stable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.guard.stores.regions import home_of
from robots_guard.origin import origin_of

ORIGINS = [origin_of(f"https://{number}.example") for number in range(6000)]
NAMES = st.lists(
    st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True), min_size=1, max_size=8, unique=True
)
SOME = st.sampled_from(ORIGINS)


def homes(*regions: str) -> list[str]:
    return [home_of(origin, regions) for origin in ORIGINS]


def test_the_homes_of_a_running_fleet_never_change():
    """Another version of this package must find the same homes."""
    regions = ("eu", "us", "asia")
    expected = {
        "https://example.com": "eu",
        "http://example.com": "asia",
        "https://example.com:8443": "eu",
        "https://xn--bcher-kva.example": "eu",
        "http://[2001:db8::1]": "asia",
        "https://a.test": "us",
    }

    assert {origin: home_of(origin_of(origin), regions) for origin in expected} == expected


def test_another_process_finds_the_same_homes():
    program = (
        "from robots_guard.guard.stores.regions import home_of; from robots_guard.origin import origin_of\n"
        "print(*(home_of(origin_of(f'https://{n}.example'), {'asia', 'eu', 'us'}) for n in range(200)))"
    )
    for seed in ("0", "1"):
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert found.stdout.split() == homes("eu", "us", "asia")[:200]


@given(NAMES, SOME, st.randoms())
def test_the_order_of_the_regions_does_not_matter(regions, origin, random):
    home = home_of(origin, regions)
    random.shuffle(regions)

    assert home_of(origin, regions) == home
    assert home in regions


@given(NAMES, SOME)
def test_a_further_region_takes_origins_from_all_and_moves_none_between_them(regions, origin):
    new, *others = regions
    if others:
        assert home_of(origin, regions) in (new, home_of(origin, others))


@given(NAMES, SOME)
def test_a_removed_region_leaves_the_other_origins_where_they_are(regions, origin):
    home = home_of(origin, regions)
    for region in regions:
        if region != home:
            assert home_of(origin, [each for each in regions if each != region]) == home


@pytest.mark.parametrize("names", [("eu", "us"), ("eu", "us", "asia"), ("a", "b", "c", "d", "e")])
def test_the_origins_are_spread_evenly(names):
    found = homes(*names)
    share = len(ORIGINS) / len(names)

    for name in names:
        # five standard deviations of a binomial distribution
        assert abs(found.count(name) - share) < 5 * (share * (1 - 1 / len(names))) ** 0.5


def test_a_third_region_takes_a_third_of_the_origins():
    before, after = homes("eu", "us"), homes("eu", "us", "asia")
    moved = [new for old, new in zip(before, after, strict=True) if old != new]

    assert set(moved) == {"asia"}
    assert 0.30 < len(moved) / len(ORIGINS) < 0.37
