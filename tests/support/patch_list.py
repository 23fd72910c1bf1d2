"""docs/patches.md, made of the patches themselves.

`PYTHONPATH=tests python -m support.patch_list > docs/patches.md` writes it.
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from robots_guard.gateway.patch import Patch
from robots_guard.scrapy import patches as scrapy_patches

with warnings.catch_warnings():
    # mitmproxy's own, of pyparsing and ldap3; only on import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from robots_guard.mitmproxy import patches as mitmproxy_patches

INTRODUCTION = """\
<!-- Made by: PYTHONPATH=tests python -m support.patch_list > docs/patches.md -->
# Replaced methods

robots_guard replaces some methods of mitmproxy, Scrapy, Twisted and asyncio, because they have no
option or hook for what a guard needs. Few of these methods are public interfaces. A test compares
the source of each with the versions that were read, and fails when one changes.

The file of each patch names these versions, and has a report for the authors of the library: what
to change, and how to see it. A patch goes when a fixed version is the oldest that robots_guard supports.
"""

GROUPS = {
    "In every mitmproxy with the addon": mitmproxy_patches.ADDON_PATCHES,
    "In `robots-guard proxy` only": mitmproxy_patches.COMMAND_PATCHES,
    "In a crawl of Scrapy": scrapy_patches.PATCHES,
}


def page() -> str:
    """The page."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    files = dict(_files(mitmproxy_patches)) | dict(_files(scrapy_patches))
    for title, patches in GROUPS.items():
        yield f"## {title}\n"
        yield "| Methods | Why | Patch |"
        yield "|---|---|---|"
        yield from (_row(patch, files[patch]) for patch in patches)
        yield ""


def modules_of(package: ModuleType) -> Iterator[tuple[ModuleType, tuple[Patch, ...]]]:
    """The modules of a package of patches, each with its patches."""
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        yield module, getattr(module, "PATCHES", ())


def _files(package: ModuleType) -> Iterator[tuple[Patch, str]]:
    for module, patches in modules_of(package):
        yield from ((patch, f"{module.__name__.replace('.', '/')}.py") for patch in patches)


def _row(patch: Patch, file: str) -> str:
    name = file.rpartition("/")[2].removesuffix(".py")
    link = f"[{name}](../{file})"
    reported = f" [Reported]({patch.issue})." if patch.issue else ""
    return f"| {_methods(patch)} | {patch.reason}{reported} | {link} |"


def _methods(patch: Patch) -> str:
    owner = patch.owner.__name__.rpartition(".")[2]
    return f"`{owner}`: " + ", ".join(f"`{each.name}`" for each in patch.methods)


if __name__ == "__main__":
    sys.stdout.write(page())
