"""`explain`: the rule in its place, what it beat, and how old it all is."""

from __future__ import annotations

import json

import pytest

from robots_guard.cli.explain import MEANINGS
from robots_guard.core.verdict import Reason
from robots_guard.rep.dialect import DIALECTS
from robots_guard.testing import Reply

RULES = """\
# a comment

User-agent: other
Disallow: /

User-agent: *
Disallow: /private/   # keep out
Allow: /private/press
Disallow: /p
Allow: /
"""


@pytest.fixture
def robots(tmp_path):
    path = tmp_path / "robots.txt"
    path.write_text(RULES)
    return path


def test_every_reason_has_a_meaning():
    assert set(MEANINGS) == set(Reason)


def test_the_rule_stands_among_its_neighbours_and_above_what_it_beat(here, robots):
    status, out, _ = here("explain", "--robots", robots, "https://a.test/private/press/1")

    assert status == 0
    assert out == (
        "PASS  https://a.test/private/press/1\n"
        "It may be requested: no rule that applies forbids it. (reason: allowed)\n"
        "\n"
        "asked      for mybot, dialect rfc9309, matching standard\n"
        "group      * (line 6): no group names mybot, so the one for all applies\n"
        "rule       line 8: Allow: /private/press\n"
        "\n"
        "        5 | \n"
        "        6 | User-agent: *\n"
        "        7 | Disallow: /private/   # keep out\n"
        "  >     8 | Allow: /private/press\n"
        "        9 | Disallow: /p\n"
        "       10 | Allow: /\n"
        "\n"
        "These match too, but are no longer than it (the longest counts, and Allow where two are as long):\n"
        "        7 | Disallow: /private/\n"
        "        9 | Disallow: /p\n"
        "       10 | Allow: /\n"
        "\n"
        "Other dialects would say (! where it is something else):\n"
        "  ! koster1994   drop   line 7: Disallow: /private/\n"
        "  ! kollar1996   drop   line 7: Disallow: /private/\n"
        "  ! koster1996   drop   line 7: Disallow: /private/\n"
        "  ! rambler2003  drop   line 7: Disallow: /private/\n"
        "  ! yandex2003   drop   line 7: Disallow: /private/\n"
        "    slurp2006    pass   line 8: Allow: /private/press\n"
        "    google       pass   line 8: Allow: /private/press\n"
        "    bing         pass   line 8: Allow: /private/press\n"
        "    yandex       pass   line 8: Allow: /private/press\n"
        "\n"
        f"source     {robots}, {len(RULES)} octets\n"
    )


def test_exit_statuses_are_those_of_check(here, robots, net):
    assert here("explain", "--robots", robots, "https://a.test/private/").status == 1
    assert here("explain", net.origin(503).url).status == 3
    assert here("explain", "ftp://a.test/").status == 0


def test_another_spelling_that_decided_is_named(here, robots):
    _, out, _ = here("explain", "--robots", robots, "https://a.test//private/x")

    assert "not match the URL as it is written, but another spelling of it (standard:slashes)" in out


def test_no_group_and_no_rule(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: other\nDisallow: /\n")
    _, out, _ = here("explain", "--robots", path, "https://a.test/x")

    assert "group      none applies: no group names mybot or *\n" in out
    assert "rule       none matches" in out


def test_the_group_is_shown_with_all_its_lines_and_why(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: mybot\nDisallow: /a\nUser-agent: *\nDisallow: /\nUser-agent: MyBot/2\nDisallow: /b\n")
    out = here("explain", "--robots", path, "https://a.test/b").out

    assert "group      mybot, MyBot/2 (lines 1, 5): it names mybot\n" in out


def test_each_part_of_a_composite_tells_its_group(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: mybot extra\n\nDisallow: /a\n")
    out = here("explain", "--dialect", "strictest(rfc9309, koster1994)", "--robots", path, "https://a.test/a").out

    assert "group      rfc9309: mybot extra (line 1): it names mybot\n" in out
    assert "group      koster1994: none applies: no group names mybot or *\n" in out


def test_other_dialects_judge_the_same_answer_by_their_own_access_table(here, net):
    told = json.loads(here("explain", "--json", net.origin(403).url).out)
    differing = {each["dialect"]: each["action"] for each in told["dialects"] if each["differs"]}

    assert (told["action"], told["reason"]) == ("drop", "restricted")
    assert differing == {"google": "pass"}
    assert len(told["dialects"]) == len(DIALECTS) - 1


def test_a_dialect_that_refuses_the_whole_host_says_so(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: *\nDisallow: /x\nHost: www.example.com\n")
    told = json.loads(here("explain", "--json", "--robots", path, "https://a.example.com/").out)
    [yandex] = [each for each in told["dialects"] if each["dialect"] == "yandex2003"]

    assert yandex == {
        "dialect": "yandex2003",
        "action": "drop",
        "reason": "mirror",
        "rule": "Host: www.example.com",
        "line": 3,
        "group": "*",
        "differs": True,
    }


def test_a_held_policy_is_told_with_its_age_and_end(here, net):
    target = net.origin("", {"/r.txt": Reply(body=RULES, headers=(("Cache-Control", "max-age=7200"),))})
    site = net.origin(Reply(status=301, headers=(("Location", f"{target.url}/r.txt?token=abc"),)))
    here("check", site.url)
    status, out, _ = here("explain", f"{site.url}/private/")

    assert status == 1
    assert f"source     {target.url}/r.txt?token=REDACTED, status 200, {len(RULES)} octets\n" in out
    assert f"redirect   from {site.url}/robots.txt\n" in out
    assert "ago, via direct\n" in out
    assert "fresh      until " in out
    assert ", in 1 h 59 min\n" in out or ", in 2 h\n" in out
    assert len(site.robots_fetches) == 1


def test_trouble_is_told_with_what_comes_next(here, net):
    _, out, _ = here("explain", net.origin(503).url)

    assert out.startswith("DEFER  ")
    assert "status: status 503" in out
    assert "  Ask again at 20" in out
    assert "trouble    status: status 503, 1 tries since" in out
    assert "asked next 20" in out


@pytest.mark.parametrize("status", [403, 404])
def test_no_rules_at_all(here, net, status):
    out = here("explain", net.origin(status).url).out

    assert f", status {status}, 0 octets\n" in out
    assert "rule " not in out


def test_the_same_for_machines(here, net):
    site = net.origin(RULES)
    status, out, _ = here("explain", "--json", f"{site.url}/private/press")
    told = json.loads(out)

    assert status == 0
    assert told["means"] == MEANINGS[Reason.ALLOWED]
    assert (told["action"], told["line"], told["agent"]) == ("pass", 8, "mybot")
    assert [match["line"] for match in told["matches"]] == [8, 7, 9, 10]
    assert told["context"][0] == {"line": 5, "text": ""}
    assert told["expires_at"] > told["fetched_at"]
    assert told["chosen"] == [{"dialect": "rfc9309", "title": "*", "why": "named *", "lines": [6]}]
    assert told["document"] == {"url": f"{site.url}/robots.txt", "octets": len(RULES), "truncated": False}
    assert {each["dialect"] for each in told["dialects"] if each["differs"]} >= {"koster1994", "koster1996"}


def test_a_url_without_an_origin_is_explained_too(here):
    assert json.loads(here("explain", "--json", "http://a%00/").out)["reason"] == "malformed-target"
    assert "robots.txt speaks of http and https only" in here("explain", "mailto:a@b.test").out
