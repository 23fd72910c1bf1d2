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
    work: Callable[[Input], object],
    make: Callable[[int], Input],
    size: int,
    times: int = 3,
    enough: float = LINEAR,
) -> float:
    """Return by how much the CPU time of `work` grows when its input, made by `make`, grows from
    `size` to FACTOR times that.

    The least of several `times` counts. The large input takes most of the time, and is not measured
    again when the growth is less than `enough`: further measurements could only make it less.
    """
    large, small = make(FACTOR * size), make(size)
    least = _cpu_seconds(work, large)
    base = min(_cpu_seconds(work, small) for _ in range(times))
    for _ in range(times - 1):
        if least / base < enough:
            break
        least = min(least, _cpu_seconds(work, large))
    return least / base


def _cpu_seconds(work: Callable[[Input], object], value: Input) -> float:
    began = time.thread_time()
    work(value)
    return time.thread_time() - began
