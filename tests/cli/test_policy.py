"""`policy`: what is held is listed, shown, renewed, dropped and carried; hostile files are ordinary input."""

from __future__ import annotations

import base64
import json
import math
import os
import pty
import sqlite3
import subprocess
import time

import msgspec
import pytest
from cli.command import COMMAND

from robots_guard.cli.policy import AT_ONCE
from robots_guard.origin import origin_of
from robots_guard.stores.sqlite import SqliteStore
from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
replace = msgspec.structs.replace


def rows(out):
    return [line.split("\t") for line in out.splitlines()]


@pytest.fixture
def held(here, net):
    """Three policies: rules, no file, trouble."""
    sites = net.origin(RULES), net.origin(404), net.origin(503)
    here("check", *(f"{site.url}/" for site in sites))
    return sites


@pytest.mark.parametrize(
    "command",
    [["ls"], ["show", "http://a.test"], ["forget", "--all"], ["purge"], ["export"], ["import", "-"], ["refresh", "x"]],
    ids=lambda command: command[0],
)
def test_a_variable_that_is_no_setting_stops_the_start(here, variables, tmp_path, command):
    variables.setenv("ROBOTS_GUARD_STROE", "redis://cache.internal")
    status, out, err = here("policy", *command)

    assert (status, out) == (2, "")
    assert "unknown setting ROBOTS_GUARD_STROE: did you mean ROBOTS_GUARD_STORE?" in err
    assert not (tmp_path / "policies.sqlite").exists()


# -- ls and show ----------------------------------------------------------------------------------------------


LOOKING = (["ls"], ["show", "http://a.test"], ["export"])


@pytest.mark.parametrize("command", LOOKING, ids=lambda command: command[0])
def test_who_looks_for_a_store_that_is_not_there_is_told_and_makes_none(here, tmp_path, command):
    where = tmp_path / "deep" / "mistyped.sqlite"
    status, out, err = here("policy", *command, "--store", f"sqlite:///{where}")

    assert (status, out) == (2, "")
    assert err == (
        f"robots-guard: store: '{where}' is not there: a door creates it, or name the doors' own with --store\n"
    )
    assert not where.parent.exists()


@pytest.mark.parametrize("command", LOOKING, ids=lambda command: command[0])
def test_who_looks_at_a_damaged_store_leaves_it_as_it_is(here, held, tmp_path, command):
    (tmp_path / "policies.sqlite").write_bytes(b"garbage")
    before = sorted(path.name for path in tmp_path.iterdir())
    status, out, err = here("policy", *command)

    assert (status, out) == (2, "")
    assert "policies.sqlite' is damaged (file is not a database) and left as it is" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "policies.sqlite").read_bytes() == b"garbage"


def test_a_store_that_was_damaged_is_spoken_of_once(here, held, tmp_path):
    (tmp_path / "policies.sqlite").write_bytes(b"garbage")
    status, out, err = here("policy", "purge")

    assert (status, out) == (2, "")
    assert err.startswith(
        "robots-guard: the policy store: was damaged (file is not a database) and has been begun anew"
    )
    assert here("policy", "purge")[0] == 0
    assert here("policy", "ls") == (0, "", "")


@pytest.mark.parametrize("command", [("ls",), ("show", "https://a.test")])
def test_of_a_server_that_is_away_the_cause_is_said(here, command):
    """The start has asked it already; that it is left alone for a while does not concern a command that ends."""
    assert here("policy", *command, "--store=redis://127.0.0.1:1/0") == (
        2,
        "",
        "robots-guard: the policy store: the server cannot be asked:"
        " Error 111 connecting to 127.0.0.1:1. Connection refused.\n",
    )


def test_ls_has_a_row_a_policy(here, held):
    status, out, err = here("policy", "ls")
    rules, none, busy = held

    assert (status, err) == (0, "")
    assert {row[2]: [row[0], row[1], *row[5:]] for row in rows(out)} == {
        rules.url: ["rules", "fresh", "200", "direct", str(len(RULES))],
        none.url: ["unrestricted", "fresh", "404", "direct", "0"],
        busy.url: ["unreachable", "fresh", "503", "", ""],
    }


def test_ls_as_json_and_by_another_dialect(here, held, net):
    closed = net.origin(403)
    here("check", f"{closed.url}/")
    found = {line["origin"]: line for line in map(json.loads, here("policy", "ls", "--json").out.splitlines())}
    google = {
        line["origin"]: line
        for line in map(json.loads, here("policy", "ls", "--json", "--dialect=google").out.splitlines())
    }

    assert found[held[0].url]["document"]["octets"] == len(RULES)
    assert found[held[2].url]["trouble"]["failure"] == "status"
    assert (found[closed.url]["access"], google[closed.url]["access"]) == ("restricted", "unrestricted")


def test_show_tells_what_is_held_and_the_file(here, held):
    status, out, _ = here("policy", "show", f"{held[0].url}/any/page")

    assert status == 0
    assert f"origin     {held[0].url}" in out
    assert "access     rules, fresh" in out
    assert "via direct" in out
    assert "Disallow: /private/" in out
    assert json.loads(here("policy", "show", held[0].url, "--json").out)["document"]["body"] == RULES
    assert "status 503" in here("policy", "show", held[2].url).out


def test_show_raw_gives_the_very_octets(apart, net, here):
    body = b"User-agent: *\r\nDisallow: /\xff\x00\n"
    site = net.origin(Reply(body=body))
    here("check", f"{site.url}/")
    done = subprocess.run([COMMAND, "policy", "show", "--raw", site.url], capture_output=True, check=True)

    assert done.stdout == body


def test_a_file_cannot_move_a_terminal(here, net):
    site = net.origin(Reply(body=b"User-agent: *\nDisallow: /\x1b[2J\n# \xe2\x80\xae\n"))
    here("check", f"{site.url}/")

    assert not {"\x1b", "\u202e"} & set(here("policy", "show", site.url).out)


def test_show_of_nothing(here, held):
    status, out, err = here("policy", "show", "https://nowhere.test/")

    assert (status, out, err) == (1, "", "robots-guard: nothing is held for https://nowhere.test\n")


# -- refresh and forget ---------------------------------------------------------------------------------------


def test_refresh_asks_again_and_missing_does_not(here, net):
    site = net.origin(RULES)
    for _ in range(2):
        assert here("policy", "refresh", site.url).status == 0
    assert len(site.robots_fetches) == 2
    assert here("policy", "refresh", "--missing", f"{site.url}/page").status == 0
    assert len(site.robots_fetches) == 2


def test_refresh_says_what_became_of_each(here, net):
    rules, busy = net.origin(RULES), net.origin(503)
    status, out, err = here("policy", "refresh", rules.url, busy.url)

    assert status == 3
    assert sorted(rows(out)) == [
        ["rules", rules.url, "200", str(len(RULES)), ""],
        ["unreachable", busy.url, "503", "", "status 503"],
    ]
    assert err == "robots-guard: 1 rules, 1 unreachable\n"


def test_a_list_warms_the_store_once_an_origin_and_names_what_it_cannot_read(apart, net, here):
    sites = [net.origin(RULES) for _ in range(3)]
    listed = "\n".join(
        [
            f"\ufeff{sites[0].url}",
            "# a list",
            *(f"{site.url}/{n}" for n in range(4) for site in sites),
            "ftp://a.test",
            "http://",
        ]
    )
    done = apart("policy", "refresh", "--from", "-", "--json", stdin=listed)

    assert done.status == 2
    assert len(done.out.splitlines()) == 3
    assert "line 1: " not in done.err  # a mark of byte order is no part of it
    assert "line 15: " in done.err
    assert "line 16: " in done.err
    assert [len(site.robots_fetches) for site in sites] == [1, 1, 1]
    assert len(rows(here("policy", "ls").out)) == 3


def test_an_argument_that_names_no_origin_is_told_as_one(here, net):
    status, _, err = here("policy", "refresh", net.origin(RULES).url, "zz", "--from", "/dev/null")

    assert status == 2
    assert "robots-guard: argument 2 ('zz'): " in err
    assert "give an origin such as https://example.com" in err
    assert "line" not in err


def test_a_store_that_fails_is_not_warmed_and_this_is_said(here, net):
    status, out, err = here("policy", "refresh", net.origin(RULES).url, "--store=redis://127.0.0.1:1/0")

    assert (status, rows(out)[0][0]) == (2, "rules")
    assert "calls of the store failed: what it did not take is not kept" in err


def test_many_are_asked_at_once(apart, net):
    """Each answers after 0.3 s: one after another they would take a minute."""
    sites = [net.origin(Reply(body=RULES, delay=0.3)) for _ in range(3 * AT_ONCE)]
    began = time.monotonic()
    done = apart("policy", "refresh", "--from", "-", stdin="\n".join(site.url for site in sites))

    assert done.status == 0
    assert len(rows(done.out)) == len(sites)
    assert time.monotonic() - began < 15


def test_a_bar_is_drawn_on_a_terminal_and_only_there(variables, net):
    site = net.origin(RULES)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [COMMAND, "policy", "refresh", site.url], stdout=subprocess.PIPE, stderr=theirs, check=False, timeout=60,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )  # fmt: skip
    os.close(theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)

    assert done.returncode == 0
    assert "robots.txt" in drawn
    assert "1/1" in drawn
    assert "\x1b" not in done.stdout.decode()


def test_forget(here, held):
    status, out, _ = here("policy", "forget", f"{held[0].url}/x", "https://nowhere.test")

    assert status == 1
    assert rows(out) == [["forgotten", held[0].url], ["not held", "https://nowhere.test"]]
    assert len(rows(here("policy", "ls").out)) == 2
    assert here("policy", "forget", "--all") == (0, "", "robots-guard: 2 policies forgotten\n")
    assert here("policy", "ls").out == ""


# -- export and import ----------------------------------------------------------------------------------------


def exported():
    return subprocess.run([COMMAND, "policy", "export"], capture_output=True, check=True).stdout


def test_an_export_is_read_again_as_it_was(held, here, variables, tmp_path):
    lines = exported()
    variables.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    file = tmp_path / "export.jsonl"
    file.write_bytes(lines)

    assert here("policy", "import", file) == (0, "", "robots-guard: 3 policies read\n")
    assert exported() == lines
    assert here("check", f"{held[0].url}/private/x").status == 1
    assert len(held[0].robots_fetches) == 1


def test_what_is_held_and_later_stays(held, here, tmp_path):
    early = exported()
    here("policy", "refresh", held[0].url)
    late = exported()
    file = tmp_path / "early.jsonl"
    file.write_bytes(early)
    here("policy", "import", file)

    assert early != late
    assert exported() == late


def changed(line: bytes, **document) -> bytes:
    data = json.loads(line)
    data["policy"]["document"] |= document
    return json.dumps(data).encode() + b"\n"


def test_a_hostile_import_is_told_line_by_line_and_harms_nothing(held, here, tmp_path, variables):
    good = next(line for line in exported().splitlines() if b'"status":200' in line)
    opened = base64.b64encode(b"User-agent: *\nAllow: /\n").decode()
    hostile = [
        b"\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b'{"version": 2, "policy": {}}\n',
        b'{"version": 1, "policy": null}\n',
        b'{"version": 1, "policy": {}, "more": 1}\n',
        changed(good, body=opened),
        changed(good, fetched_at=time.time() + 1e6),
        changed(good, fetched_at="now"),
        changed(good, stated_lifetime=1e300),
        good.replace(b'["http"', b'["HTTP"') + b"\n",
        b"x" * 3_000_000 + b"\n",
        good + b"\n",
        b"x" * 3_000_000,
    ]
    variables.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    file = tmp_path / "hostile.jsonl"
    file.write_bytes(b"".join(hostile))
    status, out, err = here("policy", "import", file)

    assert (status, out) == (2, "")
    assert "1 policies read" in err
    assert f"{len(hostile) - 1 - 10} more could not be used" in err
    assert "Traceback" not in err
    assert len(rows(here("policy", "ls").out)) == 1
    assert here("check", f"{held[0].url}/private/x").status == 1


# -- what the caller got wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["ls", "--store=memory:"], "holds nothing beyond one process"),
        (["refresh", "http://a.test", "--store=memory:"], "keeps nothing beyond this command"),
        (["refresh"], "no origin is given"),
        (["forget"], "name the origins to forget, or give --all"),
        (["forget", "--all", "http://a.test"], "name the origins to forget, or give --all"),
        (["show", "a.test"], "give an origin such as https://example.com"),
        (["refresh", "ftp://a.test"], "ftp: is not http or https"),
        (["ls", "--dialect=rfc9310"], "dialect 'rfc9310' is not known"),
        (["import", "/nowhere/at/all"], "No such file"),
    ],
)
def test_what_is_wrong_is_one_sentence(here, args, sentence):
    status, out, err = here("policy", *args)

    assert (status, out) == (2, "") if args[0] != "refresh" else status == 2
    assert sentence in err
    assert "Traceback" not in err


def test_the_store_of_another_program_is_left_alone(here, tmp_path):
    path = tmp_path / "other.db"
    path.write_bytes(b"SQLite format 3\x00" + b"rubbish" * 99)
    status, _, err = here("policy", "ls", f"--store=sqlite:///{path}")

    assert status == 2
    assert err.count("\n") == 1


def test_no_agent_is_needed_to_look(here, variables, held):
    variables.delenv("ROBOTS_GUARD_AGENT")

    assert here("policy", "ls").status == 0
    assert here("policy", "forget", held[0].url).status == 0
    assert "agent" in here("policy", "refresh", held[0].url).err


def test_a_policy_of_another_hand_is_seen(here, variables, tmp_path, held):
    store = SqliteStore(tmp_path / "policies.sqlite")
    try:
        assert store.get(origin_of(held[0].url)).document.via == "direct"
    finally:
        store.close()


def test_a_damaged_policy_is_told_of_and_the_others_are_listed(here, held, tmp_path):
    connection = sqlite3.connect(tmp_path / "policies.sqlite")
    connection.execute("UPDATE policies SET value = x'00' WHERE origin = ?", (held[0].url,))
    connection.commit()
    connection.close()
    status, out, err = here("policy", "ls")

    assert status == 0
    assert len(rows(out)) == 2
    assert err.startswith("robots-guard: ")
    assert "Traceback" not in err


def test_times_that_are_none_are_told_of_as_such(here, held, tmp_path):
    """A store may hold anything: nothing of it may stop the listing."""
    origin, store = origin_of(held[0].url), SqliteStore(tmp_path / "policies.sqlite")
    found = store.get(origin)
    store.put(replace(found, document=replace(found.document, fetched_at=math.inf)), time.time())
    store.close()

    row = next(row for row in rows(here("policy", "ls").out) if row[2] == held[0].url)
    assert row[:5] == ["rules", "expired", held[0].url, "?", "?"]
    assert here("policy", "show", held[0].url).status == 0


def test_an_origin_whose_key_is_spelt_twice_is_one(here, held, tmp_path):
    connection = sqlite3.connect(tmp_path / "policies.sqlite")
    spelt = held[0].url.replace("http://", "HTTP://")
    connection.execute("INSERT INTO policies SELECT ?, settled_at, value FROM policies LIMIT 1", (spelt,))
    connection.commit()
    connection.close()

    assert len(rows(here("policy", "ls").out)) == 3
    assert here("policy", "forget", "--all") == (0, "", "robots-guard: 3 policies forgotten\n")


# -- purge ----------------------------------------------------------------------------------------------------


def test_purge_keeps_what_the_journal_rests_on(here, net, tmp_path):
    """Two files nobody used for long: one a refusal was recorded for, which must be shown again one day."""
    refused, passed = net.origin(RULES), net.origin("User-agent: *\nDisallow: /other/\n")
    here("check", f"{refused.url}/private/x", f"{passed.url}/")
    (tmp_path / "journal" / "hostile.jsonl").write_text('{"sha256":"../../etc"}\nnonsense\n')
    connection = sqlite3.connect(tmp_path / "policies.sqlite")
    with connection:
        connection.execute("UPDATE documents SET used_at = 0")
    connection.close()

    status, _, err = here("policy", "purge")

    assert (status, err) == (0, "robots-guard: 1 documents removed, 1 kept for the journal\n")
    store = SqliteStore(tmp_path / "policies.sqlite")
    kept = [
        record["sha256"] for record in map(json.loads, here("audit", "tail", "--no-follow", "--json").out.splitlines())
    ]
    assert [store.document(sha256) for sha256 in kept] == [RULES.encode()]
    store.close()


def test_purge_removes_nothing_while_the_journal_cannot_be_read(here, net, tmp_path):
    here("check", f"{net.origin(RULES).url}/private/x")
    (tmp_path / "journal" / "20260101-host-1-ab-0001.jsonl.zst").write_bytes(b"damaged")
    status, _, err = here("policy", "purge")

    assert status == 2
    assert err.startswith("robots-guard: nothing is purged, because not all of the journal can be read: 20260101-host")


@pytest.mark.parametrize("args", [[], ["--journal", "{}/typo"]], ids=["environment", "option"])
def test_purge_removes_nothing_if_the_journal_named_is_not_there(here, net, tmp_path, variables, args):
    here("check", f"{net.origin(RULES).url}/private/x")
    variables.setenv("ROBOTS_GUARD_JOURNAL", f"{tmp_path}/typo")
    status, out, err = here("policy", "purge", *(arg.format(tmp_path) for arg in args))

    assert (status, out) == (2, "")
    assert err == (
        f"robots-guard: nothing is purged, because there is no journal '{tmp_path}/typo':"
        " name the directory that the doors write to\n"
    )


def test_purge_of_nothing_where_nobody_has_recorded(here, variables, tmp_path):
    variables.delenv("ROBOTS_GUARD_JOURNAL")
    variables.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    assert here("policy", "purge") == (0, "", "robots-guard: 0 documents removed, 0 kept for the journal\n")
