"""What lies beneath the guards of a history: the model of a store, or a real one, slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TIERS: dict[str, Callable[[Any], Any] | None] = {"model": None}
