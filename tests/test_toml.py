"""TOML from elsewhere: what is valid is parsed, and what would take the machine is refused with its line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.configuration.config_file import parse_config
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.overrides import parse
from robots_guard.errors import SettingsError
from robots_guard.gateway.identity import agents_in
from robots_guard.toml import LONGEST, PARTS, parse_toml

DEEP = {
    "key": "a" + ".a" * 100_000 + " = 1\n",
    "quoted": '"a"' + " . 'a'" * 100_000 + " = 1\n",
    "header": "[" + "a." * 100_000 + "a]\n",
    "tables": "[[" + "a." * 100_000 + "a]]\n",
    "inline": "x = { b = 1, " + "a." * 100_000 + "a = 1 }\n",
    "brackets": "a = " + "[" * 100_000 + "\n",
    "braces": "a = " + "{a=" * 100_000 + "\n",
    "long": "#" * LONGEST + "\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_what_would_take_the_machine_is_refused_everywhere(name, tmp_path):
    text = "# below\n" + DEEP[name]
    file = tmp_path / "agents.toml"
    file.write_text(text)
    line = 1 if name == "long" else 2

    with pytest.raises(SettingsError, match=rf"x\.toml:{line}: not valid TOML: "):
        parse_config(Path("x.toml"), text)
    with pytest.raises(SettingsError, match="not valid TOML"):
        parse(text, Settings(agent="mybot").terms())
    with pytest.raises(SettingsError, match="is not valid TOML"):
        agents_in(file)


def outcome(parser, text):
    try:
        return parser(text)
    except ValueError as error:
        return str(error)


@given(st.text(st.sampled_from("a.\"'[]{}=,1 \n"), max_size=200))
def test_other_text_is_parsed_as_tomllib_does(text):
    assert outcome(parse_toml, text) == outcome(tomllib.loads, text)


def test_a_value_may_have_any_number_of_dots():
    name = ".".join("abc"[number % 3] for number in range(2 * PARTS))

    assert parse_toml(f'a = "{name}"\nb = [\n  "{name}",\n]\n') == {"a": name, "b": [name]}


HOSTILE = {
    "nearly": lambda size: ("a." * (PARTS - 1) + " ,") * (size // 100),
    "one part": lambda size: "a" * size,
    "quotes": lambda size: '{"a' * (size // 3),
    "blanks": lambda size: ",      " * (size // 7),
    "an end on each line": lambda size: "a = '''\n" + "]\n" * (size // 20),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_time_of_an_invalid_file_is_linear(name):
    def read(text):
        with pytest.raises(SettingsError):
            parse_config(Path("x.toml"), text)

    assert growth(read, HOSTILE[name], 100_000) < LINEAR


def test_a_quotation_mark_in_a_part_does_not_hide_the_next():
    with pytest.raises(ValueError, match="more than 64 parts"):
        parse_toml('"\\"".' * 64 + "b = 1")
