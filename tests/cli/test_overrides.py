"""`robots-guard overrides`, as a person and a script call it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess

import pytest
from cli.command import COMMAND

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

    assert (ran.status, ran.err) == (0, "1 in force, 0 expired, 0 invalid\n")


def test_overrides_without_effect_are_named(here, file):
    file.write_text(GOOD + OLD + BAD)

    ran = here("overrides", "check", file)

    assert ran.status == 1
    bad, *others = ran.err.splitlines()
    assert bad.startswith("bad\\x1b[31m: ")
    assert "write an origin as https://host" in bad
    assert others == [
        "old: expired after 2001-12-31: extend or remove it",
        "1 in force, 1 expired, 1 invalid",
    ]


def test_check_shows_every_override(here, file, variables):
    file.write_text(GOOD + OLD + BAD)
    variables.setenv("ROBOTS_GUARD_OVERRIDES", str(file))

    headings, *rows = [line.split("\t") for line in here("overrides", "check").out.splitlines()]
    data = [json.loads(line) for line in here("overrides", "check", "--json").out.splitlines()]

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


# -- pinned robots.txt files ----------------------------------------------------------------------

RULES = "User-agent: *\nDisallow: /private/\n"
WHO = ("--owner", "jane", "--reason", "their file is broken", "--until", "2999-12-31")


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "shop.txt"
    path.write_text(RULES)
    return path


def test_a_robots_txt_is_pinned_and_unpinned(here, file, rules):
    file.write_text(GOOD)
    file.chmod(0o640)

    ran = here(
        "overrides", "add", "https://a.example", f"robots_file={rules}", *WHO, "--overrides", file
    )

    assert (ran.status, ran.err) == (0, "")
    assert ran.out == (
        f"https://a.example: robots_file=shop.txt until 2999-12-31 (override a.example in {file})\n"
    )
    assert 'robots_file = "shop.txt"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    pinned = [
        json.loads(line) for line in here("overrides", "check", file, "--json").out.splitlines()
    ]
    assert pinned[1]["changes"] == {"robots_file": "shop.txt"}
    assert pinned[1]["sha256"] == hashlib.sha256(RULES.encode()).hexdigest()
    assert "robots_file=shop.txt" in here("overrides", "check", file).out
    assert here("overrides", "check", file).status == 0

    ran = here("overrides", "remove", "https://a.example", "--overrides", file)
    assert ran.status == 0
    assert "https://a.example has no override any more" in ran.out
    assert file.read_text() == GOOD
    assert [path.name for path in file.parent.iterdir() if "new" in path.name] == []


def test_the_overrides_file_is_created(here, file, rules):
    ran = here(
        "overrides", "add", "https://a.example", f"robots_file={rules}", *WHO, "--overrides", file
    )
    assert ran.status == 0
    assert here("overrides", "check", file).err == "1 in force, 0 expired, 0 invalid\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("", "has no group"),
        ("User-agent: *\n" + "#" * 512_000, "has more than 512000 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_not_pinned(here, file, rules, content, why):
    rules.unlink()
    if content is not None:
        rules.write_text(content)
    ran = here(
        "overrides", "add", "https://a.example", f"robots_file={rules}", *WHO, "--overrides", file
    )
    assert (ran.status, ran.out) == (2, "")
    assert why in ran.err
    assert not file.exists()


def test_a_pin_in_the_past_and_without_an_overrides_file(here, file, rules):
    old = [*WHO[:-1], "2001-01-01"]
    ran = here(
        "overrides", "add", "https://a.example", f"robots_file={rules}", *old, "--overrides", file
    )
    assert (ran.status, file.exists()) == (2, False)
    assert "is in the past" in ran.err

    ran = here("overrides", "add", "https://a.example", f"robots_file={rules}", *WHO)
    assert ran.status == 2
    assert "name it with --overrides" in ran.err


def test_the_problems_of_a_pinned_file_are_shown(here, file, rules):
    rules.write_text(RULES + "Dissalow /x\n")
    pinned = here(
        "overrides", "add", "https://a.example", f"robots_file={rules}", *WHO, "--overrides", file
    )
    assert pinned.status == 0
    assert f"{rules}:3: error RG" in pinned.err

    ran = here("overrides", "check", file)
    assert ran.status == 1
    assert f"a.example: {rules}:3: error RG" in ran.err

    rules.unlink()
    ran = here("overrides", "check", file)
    assert ran.status == 1
    assert "cannot be read" in ran.err


NEEDED = ("--owner", "jane", "--reason", "contract", "--until", "2999-12-31")


@pytest.mark.parametrize(
    ("site", "place"),
    [
        ("*.M\u00fcnchen.example", "*.xn--mnchen-3ya.example"),
        ("*.shop.example.", "*.shop.example"),
        ("*.shop.example/", "*.shop.example"),
        ("https://Shop.example:443/", "https://shop.example"),
    ],
)
def test_a_site_can_be_written_in_any_spelling(here, file, site, place):
    added = here("overrides", "add", site, "max_delay=1", *NEEDED, "--overrides", file)
    assert (added.status, added.err) == (0, "")
    assert added.out.startswith(f"{place}: ")

    assert here("overrides", "remove", site, "--overrides", file).status == 0
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("*.shop.example:8080", "max_delay=1"), "has a port"),
        (("https://shop.example", "max_delay=1", "max-delay=2"), "max_delay is given twice"),
        (("https://shop.example", "owner=x"), "owner is not a change of the terms"),
        (("https://shop.example", "max_delay=1", "--until", "2999-13-01"), "is not a date"),
    ],
)
def test_what_cannot_be_added_is_refused_with_its_cause(here, file, arguments, why):
    ran = here("overrides", "add", *NEEDED, *arguments, "--overrides", file)

    assert ran.status == 2
    assert why in ran.err
    assert not file.exists()


def test_a_file_that_no_guard_would_read_is_not_written(here, file):
    """A guard reads a mebibyte."""
    file.write_text(GOOD + "#" * (1024 * 1024 - len(GOOD) - 50))
    before = file.read_bytes()

    ran = here("overrides", "add", "https://b.example", "max_delay=1", *NEEDED, "--overrides", file)

    assert ran.status == 2
    assert "would have more than 1,048,576 bytes" in ran.err
    assert file.read_bytes() == before


def test_a_file_keeps_its_owner_and_mode(here, file):
    """A guard that is another user would otherwise be unable to read it."""
    # Only root can give a file away.
    owner = (os.geteuid(), os.getegid()) if os.geteuid() else (1234, 1235)
    file.write_text(GOOD)
    os.chown(file, *owner)
    file.chmod(0o640)

    here("overrides", "add", "https://b.example", "max_delay=1", *NEEDED, "--overrides", file)

    state = file.stat()
    assert "b.example" in file.read_text()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (*owner, 0o640)
    assert [*file.parent.iterdir()] == [file]


def test_a_circle_of_links_is_an_error_with_its_cause(here, file):
    file.symlink_to(file)
    ran = here("overrides", "add", "https://b.example", "max_delay=1", *NEEDED, "--overrides", file)

    assert ran.status == 2
    assert "symbolic links" in ran.err


def test_overrides_that_are_added_at_once_are_all_there(file):
    def command(number):
        site = f"https://s{number}.example"
        return [COMMAND, "overrides", "add", site, "max_delay=1"]

    running = [
        subprocess.Popen([*command(number), *NEEDED, "--overrides", file]) for number in range(4)
    ]

    assert [each.wait() for each in running] == [0] * 4
    assert file.read_text().count("[[override]]") == 4
