"""`policy`: what is stored is listed, shown, renewed, dropped and carried; hostile files are ordinary input."""

from __future__ import annotations

import base64
import contextlib
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
from support.terminals import read_terminal

from robots_guard.app.cli.ask.guard_answers import FETCHES
from robots_guard.decisions.policy import Reservations
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of
from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
replace = msgspec.structs.replace


def rows(out):
    return [line.split("\t") for line in out.splitlines()]


def rows_of_show(out):
    """The rows of `policy show`, below its headings."""
    headings, *found = rows(out)
    assert headings == ["access", "state", "origin", "age", "fresh for", "status", "via", "bytes"]
    return found


@pytest.fixture
def stored(here, net):
    """Three policies: rules, no file, trouble."""
    sites = net.origin(RULES), net.origin(404), net.origin(503)
    here("check", *(f"{site.url}/" for site in sites))
    return sites


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["show", "http://a.test"],
        ["forget", "--all"],
        ["export"],
        ["import", "-"],
        ["refresh", "x"],
    ],
    ids=" ".join,
)
def test_unknown_variable_is_an_error(here, variables, tmp_path, command):
    variables.setenv("ROBOTS_GUARD_STROE", "redis://cache.internal")
    status, out, err = here("policy", *command)

    assert (status, out) == (2, "")
    assert "unknown setting ROBOTS_GUARD_STROE: did you mean ROBOTS_GUARD_STORE?" in err
    assert not (tmp_path / "policies.sqlite").exists()


# -- show ------ ----------------------------------------------------------------------------------------------


LOOKING = (["show"], ["show", "http://a.test"], ["export"])


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_missing_store_is_reported_and_not_created(here, tmp_path, command):
    where = tmp_path / "deep" / "mistyped.sqlite"
    status, out, err = here("policy", *command, "--store", f"sqlite:///{where}")

    assert (status, out) == (2, "")
    assert err == (
        f"robots-guard: store: '{where}' does not exist:"
        " an integration creates it; or name the integrations' store with --store\n"
    )
    assert not where.parent.exists()


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_reading_a_damaged_store_does_not_change_it(here, stored, tmp_path, command):
    (tmp_path / "policies.sqlite").write_bytes(b"garbage")
    before = sorted(path.name for path in tmp_path.iterdir())
    status, out, err = here("policy", *command)

    assert (status, out) == (2, "")
    assert "policies.sqlite' is damaged (file is not a database) and was not changed" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "policies.sqlite").read_bytes() == b"garbage"


def test_damaged_store_is_reported_once(here, stored, tmp_path):
    (tmp_path / "policies.sqlite").write_bytes(b"garbage")
    status, out, err = here("policy", "forget", "--all")

    assert (status, out) == (2, "")
    assert err.startswith(
        "robots-guard: the policy store: was damaged (file is not a database) and has been recreated"
    )
    assert here("policy", "forget", "--all")[0] == 0
    assert here("policy", "show") == (0, "", "")


@pytest.mark.parametrize("command", [("show",), ("show", "https://a.test")])
def test_unreachable_server_is_reported_with_its_cause(here, command):
    """The start has asked it already; that it is left alone for a while does not concern a command that ends."""
    assert here("policy", *command, "--store=redis://127.0.0.1:1/0") == (
        2,
        "",
        "robots-guard: the policy store: the server cannot be reached:"
        " Error 111 connecting to 127.0.0.1:1. Connection refused.\n",
    )


def test_show_has_one_row_per_policy(here, stored):
    status, out, err = here("policy", "show")
    rules, none, busy = stored

    assert (status, err) == (0, "")
    assert {row[2]: [row[0], row[1], *row[5:]] for row in rows_of_show(out)} == {
        rules.url: ["rules", "fresh", "200", "direct", str(len(RULES))],
        none.url: ["unrestricted", "fresh", "404", "direct", "0"],
        busy.url: ["unreachable", "fresh", "503", "", ""],
    }


def test_show_as_json_and_in_another_dialect(here, stored, net):
    closed = net.origin(403)
    here("check", f"{closed.url}/")
    found = {
        line["origin"]: line
        for line in map(json.loads, here("policy", "show", "--json").out.splitlines())
    }
    google = {
        line["origin"]: line
        for line in map(
            json.loads, here("policy", "show", "--json", "--dialect=google").out.splitlines()
        )
    }

    assert found[stored[0].url]["document"]["size"] == len(RULES)
    assert found[stored[2].url]["trouble"]["failure"] == "status"
    assert (found[closed.url]["access"], google[closed.url]["access"]) == (
        "restricted",
        "unrestricted",
    )


RESERVED = Reservations(
    attempted_at=1_800_000_000.0,
    status=200,
    fetched_at=1_800_000_000.0,
    body=b'[{"location": "/", "tdm-reservation": 1}]',
)


@pytest.mark.parametrize(
    ("reservations", "shown"),
    [
        (RESERVED, "tdmrep     status 200, 41 bytes, 2027-01-15T08:00:00.000Z, "),
        (
            Reservations(attempted_at=1_800_000_000.0, failure="disallowed"),
            "tdmrep     not available at 2027-01-15T08:00:00.000Z (disallowed)\n",
        ),
        (
            replace(RESERVED, failure="status 503"),
            "tdmrep     not available at 2027-01-15T08:00:00.000Z (status 503); the last answer: status",
        ),
    ],
)
def test_show_prints_the_stored_reservations(here, stored, tmp_path, reservations, shown):
    origin = origin_of(stored[0].url)
    with contextlib.closing(SqliteStore(tmp_path / "policies.sqlite")) as store:
        store.put(replace(store.get(origin), reservations=reservations), time.time())
    out = here("policy", "show", stored[0].url).out
    data = json.loads(here("policy", "show", stored[0].url, "--json").out)["reservations"]
    exported = json.loads(here("policy", "export").out.splitlines()[0])
    explained = here("explain", "--agent", "mybot", f"{stored[0].url}/")

    assert shown in out
    assert shown in explained.out
    assert data["failure"] == (reservations.failure or None)
    assert data["body"] == reservations.body.decode()
    assert exported["policy"]["reservations"]["failure"] == reservations.failure


def test_show_prints_the_policy_and_the_file(here, stored):
    status, out, _ = here("policy", "show", f"{stored[0].url}/any/page")

    assert status == 0
    assert f"origin     {stored[0].url}" in out
    assert "access     rules, fresh" in out
    assert "via direct" in out
    assert "Disallow: /private/" in out
    assert (
        json.loads(here("policy", "show", stored[0].url, "--json").out)["document"]["body"] == RULES
    )
    assert "status 503" in here("policy", "show", stored[2].url).out


def test_show_raw_prints_the_exact_bytes(apart, net, here):
    body = b"User-agent: *\r\nDisallow: /\xff\x00\n"
    site = net.origin(Reply(body=body))
    here("check", f"{site.url}/")
    done = subprocess.run(
        [COMMAND, "policy", "show", "--raw", site.url], capture_output=True, check=True
    )

    assert done.stdout == body


def test_file_cannot_control_a_terminal(here, net):
    site = net.origin(Reply(body=b"User-agent: *\nDisallow: /\x1b[2J\n# \xe2\x80\xae\n"))
    here("check", f"{site.url}/")

    assert not {"\x1b", "\u202e"} & set(here("policy", "show", site.url).out)


def test_show_of_an_unknown_origin(here, stored, tmp_path):
    status, out, err = here("policy", "show", "https://nowhere.test/")

    assert (status, out, err) == (
        1,
        "",
        "robots-guard: no policy is stored for https://nowhere.test: fetch it with"
        f" robots-guard policy refresh --agent mybot https://nowhere.test --audit-log {tmp_path}/audit_log"
        f" --store sqlite:///{tmp_path}/policies.sqlite, or name another --store\n",
    )


# -- refresh and forget ---------------------------------------------------------------------------------------


def test_refresh_refetches_and_missing_does_not(here, net):
    site = net.origin(RULES)
    for _ in range(2):
        assert here("policy", "refresh", site.url).status == 0
    assert len(site.robots_fetches) == 2
    assert here("policy", "refresh", "--missing", f"{site.url}/page").status == 0
    assert len(site.robots_fetches) == 2


def test_refresh_reports_each_origin(here, net):
    rules, busy = net.origin(RULES), net.origin(503)
    status, out, err = here("policy", "refresh", rules.url, busy.url)

    assert status == 3
    assert sorted(rows(out)) == [
        ["rules", rules.url, "200", str(len(RULES)), ""],
        ["unreachable", busy.url, "503", "", "status 503"],
    ]
    assert err == "robots-guard: 1 rules, 1 unreachable\n"


def test_refresh_from_list_fetches_each_origin_once_and_reports_faults(apart, net, here):
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
    assert len(rows_of_show(here("policy", "show").out)) == 3


def test_invalid_argument_is_reported_as_an_argument(here, net):
    status, _, err = here("policy", "refresh", net.origin(RULES).url, "zz", "--from", "/dev/null")

    assert status == 2
    assert "robots-guard: argument 2 ('zz'): " in err
    assert "give an origin such as https://example.com" in err
    assert "line" not in err


def test_refresh_reports_store_failures(here, net):
    status, out, err = here(
        "policy", "refresh", net.origin(RULES).url, "--store=redis://127.0.0.1:1/0"
    )

    assert (status, rows(out)[0][0]) == (2, "rules")
    assert "calls of the store failed: not all policies were stored" in err


def test_refresh_fetches_concurrently(apart, net):
    """Each answers after 0.3 s: one after another they would take a minute."""
    sites = [net.origin(Reply(body=RULES, delay=0.3)) for _ in range(3 * FETCHES)]
    began = time.monotonic()
    done = apart("policy", "refresh", "--from", "-", stdin="\n".join(site.url for site in sites))

    assert done.status == 0
    assert len(rows(done.out)) == len(sites)
    assert time.monotonic() - began < 15


def test_refresh_prints_in_the_order_of_the_list(apart, net):
    """The first origin answers last."""
    sites = [net.origin(Reply(body=RULES, delay=delay)) for delay in (0.6, 0.3, 0, 0)]
    done = apart(
        "policy", "refresh", "--from", "-", "--json", stdin="\n".join(site.url for site in sites)
    )

    assert [json.loads(line)["origin"] for line in done.out.splitlines()] == [
        site.url for site in sites
    ]


def test_progress_bar_is_drawn_on_a_terminal_only(variables, net):
    site = net.origin(RULES)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [COMMAND, "policy", "refresh", site.url], stdout=subprocess.PIPE, stderr=theirs, check=False, timeout=60,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )  # fmt: skip
    os.close(theirs)
    drawn = read_terminal(ours).decode()

    assert done.returncode == 0
    assert "robots.txt" in drawn
    assert "1/1" in drawn
    assert "\x1b" not in done.stdout.decode()


def test_forget(here, stored):
    status, out, _ = here("policy", "forget", f"{stored[0].url}/x", "https://nowhere.test")

    assert status == 1
    assert rows(out) == [["forgotten", stored[0].url], ["not stored", "https://nowhere.test"]]
    assert len(rows_of_show(here("policy", "show").out)) == 2
    assert here("policy", "forget", "--all") == (0, "", "robots-guard: 2 policies forgotten\n")
    assert here("policy", "show").out == ""


# -- export and import ----------------------------------------------------------------------------------------


def exported():
    return subprocess.run([COMMAND, "policy", "export"], capture_output=True, check=True).stdout


def test_export_and_import_round_trip(stored, here, variables, tmp_path):
    lines = exported()
    variables.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    file = tmp_path / "export.jsonl"
    file.write_bytes(lines)

    assert here("policy", "import", file) == (0, "", "robots-guard: 3 policies imported\n")
    assert exported() == lines
    assert here("check", f"{stored[0].url}/private/x").status == 1
    assert len(stored[0].robots_fetches) == 1


def test_import_keeps_newer_policies(stored, here, tmp_path):
    early = exported()
    here("policy", "refresh", stored[0].url)
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


def test_hostile_import_is_reported_and_harmless(stored, here, tmp_path, variables):
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
    assert "1 policies imported" in err
    assert f"{len(hostile) - 1 - 10} more could not be used" in err
    assert "Traceback" not in err
    assert len(rows_of_show(here("policy", "show").out)) == 1
    assert here("check", f"{stored[0].url}/private/x").status == 1


# -- what the caller got wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["show", "--store=memory:"], "exists in one process only"),
        (["refresh", "http://a.test", "--store=memory:"], "is lost when this command ends"),
        (["refresh"], "no origin is given"),
        (["forget"], "give either the origins to forget or --all"),
        (["forget", "--all", "http://a.test"], "give either the origins to forget or --all"),
        (["show", "a.test"], "give an origin such as https://example.com"),
        (["refresh", "ftp://a.test"], "ftp: is not http or https"),
        (["show", "--dialect=rfc9310"], "dialect 'rfc9310' is not known"),
        (["import", "/nowhere/at/all"], "No such file"),
    ],
)
def test_errors_are_one_sentence(here, args, sentence):
    status, out, err = here("policy", *args)

    assert (status, out) == (2, "") if args[0] != "refresh" else status == 2
    assert sentence in err
    assert "Traceback" not in err


def test_store_of_another_program_is_not_changed(here, tmp_path):
    path = tmp_path / "other.db"
    path.write_bytes(b"SQLite format 3\x00" + b"rubbish" * 99)
    status, _, err = here("policy", "show", f"--store=sqlite:///{path}")

    assert status == 2
    assert err.count("\n") == 1


def test_reading_needs_no_agent(here, variables, stored):
    variables.delenv("ROBOTS_GUARD_AGENT")

    assert here("policy", "show").status == 0
    assert here("policy", "forget", stored[0].url).status == 0
    assert "agent" in here("policy", "refresh", stored[0].url).err


def test_foreign_policy_is_shown(here, variables, tmp_path, stored):
    store = SqliteStore(tmp_path / "policies.sqlite")
    try:
        assert store.get(origin_of(stored[0].url)).document.via == "direct"
    finally:
        store.close()


def test_damaged_policy_is_reported_and_skipped(here, stored, tmp_path):
    connection = sqlite3.connect(tmp_path / "policies.sqlite")
    connection.execute("UPDATE policies SET value = x'00' WHERE origin = ?", (stored[0].url,))
    connection.commit()
    connection.close()
    status, out, err = here("policy", "show")

    assert status == 0
    assert len(rows_of_show(out)) == 2
    assert err.startswith("robots-guard: ")
    assert "Traceback" not in err


def test_invalid_times_are_shown_as_such(here, stored, tmp_path):
    """A store may hold anything: nothing of it may stop the listing."""
    origin, store = origin_of(stored[0].url), SqliteStore(tmp_path / "policies.sqlite")
    found = store.get(origin)
    store.put(replace(found, document=replace(found.document, fetched_at=math.inf)), time.time())
    store.close()

    row = next(row for row in rows_of_show(here("policy", "show").out) if row[2] == stored[0].url)
    assert row[:5] == ["rules", "expired", stored[0].url, "?", "?"]
    assert here("policy", "show", stored[0].url).status == 0


def test_two_spellings_of_an_origin_are_listed_once(here, stored, tmp_path):
    connection = sqlite3.connect(tmp_path / "policies.sqlite")
    spelt = stored[0].url.replace("http://", "HTTP://")
    connection.execute(
        "INSERT INTO policies SELECT ?, settled_at, value FROM policies LIMIT 1", (spelt,)
    )
    connection.commit()
    connection.close()

    assert len(rows_of_show(here("policy", "show").out)) == 3
    assert here("policy", "forget", "--all") == (0, "", "robots-guard: 3 policies forgotten\n")


# -- a store that is not there --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["forget", "https://a.test"], ["forget", "--all"]], ids=str)
def test_command_that_removes_creates_no_store(here, tmp_path, command):
    status, out, err = here("policy", *command, "--store", f"sqlite:///{tmp_path}/typo/p.sqlite")

    assert (status, out) == (2, "")
    assert f"'{tmp_path}/typo/p.sqlite' does not exist" in err
    assert not (tmp_path / "typo").exists()
