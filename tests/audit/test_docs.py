"""The pages of the audit log explain every field and kind, and their examples are valid."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec

from robots_guard.audit.read.reader import KINDS, read_line
from robots_guard.audit.record import AnyRecord, json_schema
from robots_guard.audit.schema import column_type

_DOCS = Path(__file__).parents[2] / "docs"
DOCS = "".join((_DOCS / page).read_text() for page in ("audit.md", "reference/audit-record.md"))


def test_every_kind_and_field_is_explained():
    fields = {
        field.name for record in get_args(AnyRecord) for field in msgspec.structs.fields(record)
    }
    documented = set(re.findall(r"`([a-z0-9_-]+)`", DOCS))

    assert fields - documented == set()
    assert set(KINDS) - documented == set()
    assert "<!-- generated: exports -->" in DOCS  # from FORMATS, when the site is built
    assert tuple(str(record.__struct_config__.tag) for record in get_args(AnyRecord)) == KINDS


def test_every_example_is_valid_and_is_read():
    examples = re.findall(r"```json\n(.*?)\n```", DOCS, re.DOTALL)
    validator = jsonschema.Draft202012Validator(json_schema())

    assert len(examples) >= 2
    for example in examples:
        validator.validate(json.loads(example))
        assert read_line(example.encode()).line_of_json().decode() == f"{example}\n"


def test_a_field_has_one_type_in_all_kinds():
    """The kinds share their columns in DuckDB and in compacted files."""
    types = defaultdict(set)
    for record in get_args(AnyRecord):
        for field in msgspec.structs.fields(record):
            types[field.name].add(column_type(field.type))

    assert {name: found for name, found in types.items() if len(found) > 1} == {}
