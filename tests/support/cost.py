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

    The small input is measured several `times`, of which the least counts, and then the large one,
    because a machine may be slow for seconds. All of it is repeated while the growth is more than
    `enough`, and the least growth counts.
    """
    large, small = make(FACTOR * size), make(size)
    least = math.inf
    for _ in range(ATTEMPTS):
        base = min(_cpu_seconds(work, small) for _ in range(times))
        least = min(least, _cpu_seconds(work, large) / base)
        if least < enough:
            break
    return least


def _cpu_seconds(work: Callable[[Input], object], value: Input) -> float:
    began = time.thread_time()
    work(value)
    return time.thread_time() - began
