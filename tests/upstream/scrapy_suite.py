"""Scrapy's own test suite, with the add-on among the default settings of every crawler."""

from __future__ import annotations

from upstream.suite import HERE, Difference, Suite

DIFFERENCES: tuple[Difference, ...] = ()

SUITE = Suite(
    project="scrapy",
    package="scrapy",
    selection=("tests",),
    differences=DIFFERENCES,
    arguments=("-n", "2", "--timeout", "120"),
    switch=HERE / "switches" / "scrapy",
)
