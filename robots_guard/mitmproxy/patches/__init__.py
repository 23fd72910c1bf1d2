"""Patches: replacements of mitmproxy methods that are wrong for a proxy that must not fail open.

Each module covers one subject. Its docstring says what mitmproxy does, in which versions that was
read and tested, and what the replacement does. None of the replaced methods is a public interface:
`tests/hosts/mitmproxy/test_patches.py` has a digest of the source of each, and fails with a
mitmproxy in which one has changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Wrapper = Callable[[Any], Any]

_replaced: dict[tuple[object, str, Wrapper], Any] = {}


def replace(owner: object, name: str, make: Wrapper) -> None:
    """Replace a function of a class or module, once per process.

    `make` takes the current function and returns the new one, which has the old one as
    `__wrapped__`.
    """
    key = (owner, name, make)
    if key not in _replaced:
        plain = getattr(owner, name)
        _replaced[key] = plain
        setattr(owner, name, functools.wraps(plain)(make(plain)))


def replaced() -> list[tuple[str, Any]]:
    """The functions of mitmproxy that have been replaced, each with its qualified name."""
    return [(f"{plain.__module__}.{plain.__qualname__}", plain) for plain in map(_original, _replaced.values())]


def _original(function: Any) -> Any:
    while hasattr(function, "__wrapped__") and function.__module__.startswith("mitmproxy."):
        function = function.__wrapped__
    return function
