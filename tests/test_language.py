"""The rules for names that a test can check (CONTRIBUTING.md, "Names and sentences")."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import robots_guard

PACKAGE = Path(robots_guard.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
NOUNS = {"content_coding", "finding", "framing", "listing", "outgoing", "pacing", "ranking", "spelling"}  # of the field


def test_a_class_name_names_one_class():
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PACKAGE)))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_is_a_noun_and_not_a_participle():
    names = {path.stem for path in MODULES} - NOUNS

    assert sorted(name for name in names if name.endswith(("ing", "ed"))) == []
