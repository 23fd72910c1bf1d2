"""What both integrations have in common about replaced methods."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import robots_guard
from robots_guard.scrapy import patches as scrapy_patches

with warnings.catch_warnings():
    # mitmproxy's own, of pyparsing and ldap3; only on import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from robots_guard.mitmproxy import patches as mitmproxy_patches

PACKAGE = Path(robots_guard.__file__).parent
PATCHES = (
    *mitmproxy_patches.ADDON_PATCHES,
    *mitmproxy_patches.COMMAND_PATCHES,
    *scrapy_patches.PATCHES,
)
FRAMEWORKS = {"asyncio", "h11", "h2", "mitmproxy", "scrapy", "twisted"}


def test_every_patch_of_a_module_is_in_exactly_one_group():
    made, listed = 0, []
    for package in (mitmproxy_patches, scrapy_patches):
        for found in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{found.name}")
            made += sum(map(_makes_patch, ast.walk(ast.parse(inspect.getsource(module)))))
            listed += getattr(module, "PATCHES", ())
    assert sorted(map(id, listed)) == sorted(map(id, PATCHES))
    assert len(set(PATCHES)) == len(PATCHES) == made > 25


def _makes_patch(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "Patch"


@pytest.mark.parametrize(
    "patch", PATCHES, ids=lambda patch: f"{patch.owner.__name__}.{patch.methods[0].name}"
)
def test_a_patch_has_a_reason_and_a_report_for_upstream(patch):
    assert patch.reason.endswith(".")
    title, blank, *text = patch.report.splitlines()
    assert title.endswith(".")
    assert blank == ""
    assert any(line.startswith("To see it: ") for line in text)


def test_no_method_of_a_framework_is_replaced_outside_patches():
    """This finds assignments to classes and modules of a framework, not those to their objects."""
    found = {
        str(path.relative_to(PACKAGE)): list(_replaced(path)) for path in PACKAGE.rglob("*.py")
    }
    assert {
        path: places for path, places in found.items() if places and "patches" not in path
    } == {}


def _replaced(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    imported = set(_imported(tree))
    for node in ast.walk(tree):
        for owner in _owners(node):
            root, *rest = ast.unparse(owner).split(".")
            if root in imported and (not rest or rest[-1][0].isupper()):
                yield f"line {node.lineno}"


def _owners(node: ast.AST) -> Iterator[ast.expr]:
    """The objects whose attributes a statement sets."""
    if isinstance(node, ast.Assign):
        yield from (target.value for target in node.targets if isinstance(target, ast.Attribute))
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
        yield node.args[0]


def _imported(tree: ast.Module) -> Iterator[str]:
    """The names under which a module knows a framework's modules, classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FRAMEWORKS:
            yield from (each.asname or each.name for each in node.names)
        elif isinstance(node, ast.Import):
            names = (each.asname or each.name.partition(".")[0] for each in node.names)
            yield from (name for name in names if name in FRAMEWORKS)
