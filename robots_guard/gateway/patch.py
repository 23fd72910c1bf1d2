"""Patches: replaced methods of a library, each with its reason and a report for its authors.

`mitmproxy/patches/` and `scrapy/patches/` have one module for each method, or for a few methods of
one class that make sense only together. Its docstring says what the library does and what the
replacement does; its `PATCH` is an entry of docs/patches.md. Few of these methods are public
interfaces, so a test compares their sources with the digests here, and fails with a version of the
library in which one has changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

Make = Callable[[Any], Any]


class Method(NamedTuple):
    """A replaced method.

    `digests` has the first 12 hexadecimal digits of the SHA-256 of its source, for each form that
    it has in the versions of the patch. `make` takes the method and returns the new one; without
    it, the module of the patch replaces the method itself, in single objects.
    """

    name: str
    digests: frozenset[str]
    make: Make | None = None


def method(name: str, *digests: str, make: Make | None = None) -> Method:
    """A replaced method with these digests."""
    return Method(name, frozenset(digests), make)


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch:
    """The replacement of methods of a class, or of a function of a module.

    `versions` are those of the library in which the methods were read. `report` is for the
    library's authors: what happens, how to see it, and what could be done. `issue` is its address
    once it has been sent.
    """

    owner: type | ModuleType
    methods: tuple[Method, ...]
    versions: str
    reason: str
    report: str
    issue: str | None = None


_installed: set[Patch] = set()


def install_patches(patches: Iterable[Patch]) -> None:
    """Replace the methods of these patches, once per process.

    Each replacement has the replaced method as `__wrapped__`.
    """
    for patch in patches:
        if patch not in _installed:
            _replace_methods(patch)
            _installed.add(patch)


def _replace_methods(patch: Patch) -> None:
    makers = {name: make for name, _, make in patch.methods if make is not None}
    plain = {name: getattr(patch.owner, name) for name in makers}  # all of them, or AttributeError
    for name, make in makers.items():
        setattr(patch.owner, name, functools.wraps(plain[name])(make(plain[name])))
