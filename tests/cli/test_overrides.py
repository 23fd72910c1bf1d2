"""`robots-guard overrides`, as a person and a script call it."""

from __future__ import annotations

import json

import pytest

GOOD = """
[[override]]
id = "shop"
origin = "https://shop.example"
owner = "jane"
reason = "contract"
expires = 2999-12-31
max_delay = 1
"""
OLD = GOOD.replace('"shop"', '"old"').replace("2999", "2001").replace("shop.example", "old.example")
BAD = GOOD.replace('"shop"', '"bad\\u001b[31m"').replace("https://shop.example", "shop.example")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "overrides.toml"


def test_status_0_if_all_overrides_are_in_force(here, file):
    file.write_text(GOOD)

    ran = here("overrides", "check", file)

    assert (ran.status, ran.out, ran.err) == (0, "", "1 in force, 0 expired, 0 invalid\n")


def test_overrides_without_effect_are_named(here, file):
    file.write_text(GOOD + OLD + BAD)

    ran = here("overrides", "check", file)

    assert ran.status == 1
    assert ran.out.splitlines()[0].startswith("bad\\x1b[31m: ")
    assert "write an origin as https://host" in ran.out
    assert "old: expired after 2001-12-31: extend or remove it" in ran.out
    assert ran.err == "1 in force, 1 expired, 1 invalid\n"


def test_list_shows_every_override(here, file, variables):
    file.write_text(GOOD + OLD + BAD)
    variables.setenv("ROBOTS_GUARD_OVERRIDES", str(file))

    headings, *rows = [line.split("\t") for line in here("overrides", "list").out.splitlines()]
    data = [json.loads(line) for line in here("overrides", "list", "--json").out.splitlines()]

    expected = [
        "in force",
        "shop",
        "https://shop.example",
        "max_delay=1.0",
        "2999-12-31",  # as it was written: the last day
    ]
    assert headings == ["state", "id", "site", "changes", "expires", "owner", "reason"]
    assert rows[0] == [*expected, "jane", "contract"]
    assert [row[0] for row in rows] == ["in force", "expired", "invalid"]
    assert [each["state"] for each in data] == ["in force", "expired", "invalid"]
    assert data[0]["changes"] == {"max_delay": 1.0}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ((), "no overrides file is given: name it as FILE, or with --overrides"),
        (("missing.toml",), "'missing.toml' cannot be used (No such file"),
    ],
)
def test_missing_overrides_file_is_reported(here, args, sentence):
    ran = here("overrides", "check", *args)

    assert ran.status == 2
    assert sentence in ran.err


def test_check_and_explain_apply_overrides(here, file, variables, net):
    origin = net.origin("User-agent: *\nDisallow: /\n")
    file.write_text(
        GOOD.replace("https://shop.example", origin.url).replace("max_delay = 1", 'action = "pass"')
    )
    variables.setenv("ROBOTS_GUARD_OVERRIDES", str(file))

    assert here("check", f"{origin.url}/x").status == 0
    assert "exempted" in here("explain", f"{origin.url}/x").out
