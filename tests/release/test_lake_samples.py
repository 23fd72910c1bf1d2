"""The samples for Vector and Fluent Bit: their steps refer to each other, and to the tables.

The programs themselves are in no package registry that the tests can reach.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from ruamel.yaml import YAML  # mitmproxy needs it

from robots_guard.audit.read.reader import KINDS, LONGEST_LINE
from robots_guard.audit.tables import LAKE_TABLES

EXAMPLES = Path(__file__).parents[2] / "examples"
FLUENT_BIT = (EXAMPLES / "fluent-bit/fluent-bit.conf").read_text()


@pytest.fixture(scope="module")
def vector():
    return YAML(typ="safe").load(EXAMPLES / "vector/vector.yaml")


def test_a_sample_that_is_not_run_says_so():
    for path in ("vector/vector.yaml", "fluent-bit/fluent-bit.conf", "fluent-bit/parsers.conf"):
        assert (EXAMPLES / path).read_text().startswith("# UNTESTED")


def test_steps_of_vector_refer_to_each_other(vector):
    transforms = vector["transforms"]
    outputs = {*vector["sources"], *transforms, "records.dropped", "tables._unmatched"}
    outputs |= {f"tables.{name}" for name in transforms["tables"]["route"]}
    steps = [*transforms.values(), *vector["sinks"].values()]
    assert {name for step in steps for name in step["inputs"]} <= outputs


def test_vector_sends_each_kind_to_its_table(vector):
    routes = vector["transforms"]["tables"]["route"]
    for name, condition in routes.items():
        assert tuple(re.findall(r'"(.+?)"', condition)) == LAKE_TABLES[name].kinds
    inputs = {name: [f"tables.{name}"] for name in routes} | {"events": ["tables._unmatched"]}
    sinks = {each["table"]: each["inputs"] for each in vector["sinks"].values() if "table" in each}
    assert sinks == inputs
    assert sinks.keys() == LAKE_TABLES.keys()
    assert vector["sources"]["lines"]["max_line_bytes"] == LONGEST_LINE


def test_vector_encodes_what_the_tables_have_as_text(vector):
    source = vector["transforms"]["records"]["source"]
    objects = {
        name
        for each in LAKE_TABLES.values()
        for name, kind in each.columns.items()
        if kind == "JSON"
    }
    assert set(re.findall(r"\.(\w+) = encode_json", source)) == objects


def test_fluent_bit_sends_each_kind_to_its_table():
    rules = re.findall(r"Rule +\$kind \^\(?(.+?)\)?\$ +table\.(\w+) +true", FLUENT_BIT)
    assert {name: tuple(kinds.split("|")) for kinds, name in rules} == {
        name: each.kinds for name, each in LAKE_TABLES.items()
    }
    assert sorted(kind for kinds, _ in rules for kind in kinds.split("|")) == sorted(KINDS)
    matches = re.findall(r"Match +table\.(\w+)", FLUENT_BIT)
    uris = re.findall(r"URI +(\S+)", FLUENT_BIT)
    into = [parse_qs(urlsplit(uri).query)["query"][0] for uri in uris]
    assert into == [f"INSERT INTO robots_guard.{name} FORMAT JSONEachRow" for name in matches]
    assert matches == [*LAKE_TABLES]
