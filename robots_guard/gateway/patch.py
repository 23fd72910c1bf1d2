"""Patches: replaced methods of a library, each with its reason and a report for its authors.

A module of `mitmproxy/patches/` or `scrapy/patches/` lists its patches in `PATCHES`: each is for one
method, or for a few methods of one class that make sense only together, and is an entry of
docs/patches.md. Few of these methods are public interfaces, so a test compares their sources with
the digests here, and fails with a version of the library in which one has changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, NamedTuple


class Method(NamedTuple):
    """A replaced method.

    `digests` has the first 12 hexadecimal digits of the SHA-256 of its source, for each form that
    it has in the versions of the patch. `new` takes its place, with the method as the default
    of its keyword argument `plain`; without it, the module of the patch replaces the method itself,
    in single objects.
    """

    name: str
    digests: frozenset[str]
    new: Callable[..., Any] | None = None


def method(name: str, *digests: str, new: Callable[..., Any] | None = None) -> Method:
    """A replaced method with these digests."""
    return Method(name, frozenset(digests), new)


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
    replaced = [
        (name, _replacement(getattr(patch.owner, name), new))  # all of them, or AttributeError
        for name, _, new in patch.methods
        if new is not None
    ]
    for name, replacement in replaced:
        setattr(patch.owner, name, replacement)


def _replacement(plain: Callable[..., Any], new: Any) -> Callable[..., Any]:
    """A copy of `new` with a default for `plain`: a function that calls it would cost time."""
    replacement = FunctionType(
        new.__code__, new.__globals__, argdefs=new.__defaults__, closure=new.__closure__
    )
    replacement.__kwdefaults__ = {"plain": plain}
    return functools.wraps(plain)(replacement)
