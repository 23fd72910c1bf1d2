"""The cost of hostile input as a ratio of CPU times: absolute times belong in `benchmarks/`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")

FACTOR = 8
ATTEMPTS = 4
LINEAR = (
    4 * FACTOR
)  # the most growth of a cost that is linear, as measured; a quadratic one grows 64-fold


def growth(
    work: Callable[[Input], object],
    make: Callable[[int], Input],
    size: int,
    times: int = 3,
    enough: float = LINEAR,
) -> float:
    """Return by how much the CPU time of `work` grows when its input, made by `make`, grows from
    `size` to FACTOR times that.

    A machine may be slow for seconds. Therefore the small input is measured several `times` before
    and after the large one, and the least of these counts: growth is not hidden by a base from a
    slow moment. All of it is repeated while the growth is at least `enough`; the least growth counts.
    """
    large, small = make(FACTOR * size), make(size)
    least = math.inf
    for _ in range(ATTEMPTS):
        before = [_cpu_seconds(work, small) for _ in range(times)]
        cost = _cpu_seconds(work, large)
        after = [_cpu_seconds(work, small) for _ in range(times)]
        least = min(least, cost / min(before + after))
        if least < enough:
            break
    return least


def _cpu_seconds(work: Callable[[Input], object], value: Input) -> float:
    began = time.thread_time()
    work(value)
    return time.thread_time() - began
