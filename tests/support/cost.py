"""The cost of hostile input as a ratio of CPU times: absolute times belong in `benchmarks/`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")

FACTOR = 8
LINEAR = (
    4 * FACTOR
)  # the most growth of a cost that is linear, as measured; a quadratic one grows 64-fold


def growth(
    work: Callable[[Input], object], make: Callable[[int], Input], size: int, times: int = 3
) -> float:
    """Return by how much the CPU time of `work` grows when its input, made by `make`, grows from
    `size` to FACTOR times that. The least of some `times` counts.
    """
    return _cpu_seconds(work, make(FACTOR * size), times) / _cpu_seconds(work, make(size), times)


def _cpu_seconds(work: Callable[[Input], object], value: Input, times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.thread_time()
        work(value)
        seconds.append(time.thread_time() - began)
    return min(seconds)
