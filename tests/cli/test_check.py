"""`check`: the verdicts and exit statuses, over real origins and over a file."""

from __future__ import annotations

import json
import time

import pytest

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.renewal import begin
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.origin import origin_of
from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\nAllow: /private/press\n"


@pytest.fixture
def robots(tmp_path):
    path = tmp_path / "robots.txt"
    path.write_text(RULES)
    return path


def rows(out):
    return [line.split("\t")[:5] for line in out.splitlines()]


def test_status_0_if_all_pass(here, net):
    rules, none = net.origin(RULES), net.origin(404)
    status, out, err = here(
        "check", f"{rules.url}/a", f"{rules.url}/private/press/1", f"{none.url}/private/"
    )

    assert (status, err) == (0, "")
    assert rows(out) == [
        ["pass", "allowed", f"{rules.url}/a", "", ""],
        ["pass", "allowed", f"{rules.url}/private/press/1", "Allow: /private/press", "3"],
        ["pass", "unrestricted", f"{none.url}/private/", "", ""],
    ]
    assert not rules.targets
    assert len(rules.robots_fetches) == len(none.robots_fetches) == 1


def test_status_1_if_one_is_dropped(here, net):
    site = net.origin(RULES)
    status, out, _ = here("check", f"{site.url}/a", f"{site.url}/%70rivate/")

    assert status == 1
    assert rows(out)[1] == [
        "drop",
        "disallowed",
        f"{site.url}/%70rivate/",
        "Disallow: /private/",
        "2",
    ]


def test_status_3_if_deferred_but_drop_wins(here, net):
    busy, closed, open_ = net.origin(503), net.origin(403), net.origin(404)

    assert here("check", busy.url, open_.url).status == 3
    assert here("check", busy.url, open_.url, closed.url).status == 1
    assert len(busy.robots_fetches) == 1


def test_relaxing_settings_apply_and_are_named(here, net):
    closed = net.origin(403)
    status, out, _ = here("check", "--on-restricted", "allow", closed.url)

    assert status == 0
    assert "on_restricted=allow" in out
    assert here("check", "--on_restricted=allow", closed.url).status == 0


def test_options_override_environment_variables(here, variables, net):
    closed = net.origin(403)
    variables.setenv("ROBOTS_GUARD_ON_RESTRICTED", "allow")

    assert here("check", closed.url).status == 0
    assert here("check", "--on-restricted", "drop", closed.url).status == 1


def test_schemes_and_authorities(here, robots):
    status, out, _ = here(
        "check", "--robots", robots, "ftp://a.test/private/", "mailto:me@a.test", "data:,x"
    )
    assert (status, [row[1] for row in rows(out)]) == (0, ["not-governed"] * 3)

    status, out, _ = here(
        "check", "--robots", robots, "http://a%2e.test/", "http:a.test", "http://a.test/\\"
    )
    assert (status, [row[:2] for row in rows(out)]) == (1, [["drop", "malformed-target"]] * 3)


def test_policy_is_shared_between_runs(apart, net):
    site = net.origin(RULES)
    first, second = apart("check", f"{site.url}/private/"), apart("check", f"{site.url}/private/")

    assert first == second
    assert first.status == 1
    assert len(site.robots_fetches) == 1
    assert site.robots_fetches[0].headers["user-agent"] == "mybot (robots_guard)"


def test_origins_are_fetched_concurrently_and_answered_in_order(here, net):
    slow = [net.origin(Reply(body=RULES, delay=1.0)) for _ in range(10)]
    quick = net.origin(RULES)
    began = time.monotonic()
    status, out, _ = here("check", *(f"{site.url}/private/" for site in [*slow, quick]))

    assert status == 1
    assert [row[2] for row in rows(out)] == [f"{site.url}/private/" for site in [*slow, quick]]
    assert time.monotonic() - began < 10


def test_hundred_urls_of_one_origin_fetch_once(here, net):
    site = net.origin(Reply(body=RULES, delay=0.2))
    assert here("check", *(f"{site.url}/{n}" for n in range(100))).status == 0

    assert len(site.robots_fetches) == 1


def test_stale_policy_is_used_while_it_is_refreshed(apart, net, tmp_path):
    """It goes on in the background, and the end of the program ends it without a word."""
    site = net.origin(Reply(hang=True))
    answer = Fetched(status=200, body=RULES.encode(), headers={"cache-control": "max-age=300"})
    stale = begin(origin_of(site.url), None, "direct").next(answer, time.time() - 400).policy
    store = SqliteStore(tmp_path / "policies.sqlite")
    store.put(stale, time.time())
    store.close()
    began = time.monotonic()
    ran = apart("check", "--fetch-timeout", "90", f"{site.url}/private/")

    assert (ran.status, ran.err) == (1, "")
    assert rows(ran.out)[0][1] == "disallowed"
    assert time.monotonic() - began < 25  # the fetch ends after 30


def test_json_equals_the_audit_record(here, net):
    site = net.origin(RULES)
    status, out, _ = here("check", "--json", f"{site.url}/private/?token=abc", "ftp://x/")
    record, foreign = map(json.loads, out.splitlines())

    assert status == 1
    assert (record["action"], record["reason"], record["line"]) == ("drop", "disallowed", 2)
    assert record["url"] == f"{site.url}/private/?token=REDACTED"
    assert (record["via"], record["status"], record["component"]) == ("direct", 200, "cli")
    assert (foreign["action"], foreign["reason"], foreign["origin"]) == ("pass", "not-governed", "")


def test_delay_is_named_and_no_turn_is_taken(here, net):
    site = net.origin(robots="User-agent: *\nCrawl-delay: 60\n")

    for _ in range(2):
        status, out, _ = here("check", "--json", f"{site.url}/a", f"{site.url}/b")
        assert status == 0
        assert [
            (each["delay_source"], each["delay"]) for each in map(json.loads, out.splitlines())
        ] == [("crawl-delay", 60.0)] * 2

    assert (
        here("check", f"{site.url}/a").out == f"pass\tallowed\t{site.url}/a\t\t\tcrawl-delay 60 s\n"
    )


def test_drops_are_recorded(here, net, tmp_path):
    site = net.origin(RULES)
    here("check", f"{site.url}/private/", f"{site.url}/a")
    (audit_log,) = (tmp_path / "audit_log").iterdir()
    (record,) = (
        line
        for line in map(json.loads, audit_log.read_text().splitlines())
        if line["kind"] == "decision"
    )

    assert (record["component"], record["url"], record["rule"]) == (
        "cli",
        f"{site.url}/private/",
        "Disallow: /private/",
    )


# -- a file on disk -----------------------------------------------------------------------------------------


def test_robots_file_needs_no_network_store_or_audit_log(here, robots, tmp_path):
    status, out, _ = here(
        "check", "--robots", robots, "https://a.test/private/", "https://b.test/private/press"
    )

    assert status == 1
    assert rows(out) == [
        ["drop", "disallowed", "https://a.test/private/", "Disallow: /private/", "2"],
        ["pass", "allowed", "https://b.test/private/press", "Allow: /private/press", "3"],
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"robots.txt"}


def test_robots_file_is_judged_by_given_dialect_and_agent(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: mybot\nDisallow: /a\nAllow: /a/b\n\nUser-agent: *\nDisallow: /\n")

    assert here("check", "--robots", path, "https://a.test/a/b").status == 0
    assert (
        here("check", "--robots", path, "--dialect", "koster1994", "https://a.test/a/b").status == 1
    )
    assert (
        here(
            "check",
            "--robots",
            path,
            "--dialect",
            "strictest(rfc9309, koster1994)",
            "https://a.test/a/b",
        ).status
        == 1
    )
    assert here("check", "--robots", path, "--agent", "other", "https://a.test/b").status == 1
    assert (
        here("check", "--robots", path, "https://a.test/%41/b", "--matching", "strict").status == 0
    )


def test_a_file_from_standard_input(apart):
    assert apart("check", "--robots", "-", "https://a.test/private/", stdin=RULES).status == 1


def test_file_cannot_control_the_terminal(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_bytes(b"User-agent: *\nDisallow: /x[red]\x9b\xc2\x9b31m\xe2\x80\xae\n")
    _, out, _ = here("check", "--robots", path, "https://a.test/x[red]%9B%C2%9B31m%E2%80%AE")
    shown = here("explain", "--robots", path, "https://a.test/x[red]%9B%C2%9B31m%E2%80%AE").out

    assert "Disallow: /x[red]" in out
    for text in (out, shown):
        assert text.replace("\t", "").replace("\n", "").isprintable()
