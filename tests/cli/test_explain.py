"""`explain`: the rule in its place, what it beat, and how old it all is."""

from __future__ import annotations

import json
import time

import pytest

from robots_guard.decisions.reasons import Reason, meaning_of
from robots_guard.protocol.dialect import DIALECTS
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


def test_rule_is_shown_in_context_above_the_rules_it_overrides(here, robots):
    status, out, _ = here("explain", "--robots", robots, "https://a.test/private/press/1")

    assert status == 0
    assert out == (
        "PASS  https://a.test/private/press/1\n"
        "No rule that applies forbids the request. (reason: allowed)\n"
        "\n"
        "agent      mybot, dialect rfc9309, matching standard\n"
        "group      * (line 6): no group names mybot, so the one for * applies\n"
        "rule       line 8: Allow: /private/press\n"
        "\n"
        "        5 | \n"
        "        6 | User-agent: *\n"
        "        7 | Disallow: /private/   # keep out\n"
        "  >     8 | Allow: /private/press\n"
        "        9 | Disallow: /p\n"
        "       10 | Allow: /\n"
        "\n"
        "These rules match too, but are not longer (the longest match decides; on a tie, Allow):\n"
        "        7 | Disallow: /private/\n"
        "        9 | Disallow: /p\n"
        "       10 | Allow: /\n"
        "\n"
        "Verdicts of other dialects (! marks a different one):\n"
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
        f"source     {robots}, {len(RULES)} bytes\n"
    )


def test_exit_statuses_are_those_of_check(here, robots, net):
    assert here("explain", "--robots", robots, "https://a.test/private/").status == 1
    assert here("explain", net.origin(503).url).status == 3
    assert here("explain", "ftp://a.test/").status == 0


def test_deciding_equivalent_spelling_is_named(here, robots):
    _, out, _ = here("explain", "--robots", robots, "https://a.test//private/x")

    assert (
        "not match the URL as written, but an equivalent spelling of it (standard:slashes)" in out
    )


def test_no_group_and_no_rule(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: other\nDisallow: /\n")
    _, out, _ = here("explain", "--robots", path, "https://a.test/x")

    assert "group      none applies: no group names mybot or *\n" in out
    assert "rule       none matches" in out


def test_group_is_shown_with_its_lines_and_why(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text(
        "User-agent: mybot\nDisallow: /a\nUser-agent: *\nDisallow: /\nUser-agent: MyBot/2\nDisallow: /b\n"
    )
    out = here("explain", "--robots", path, "https://a.test/b").out

    assert "group      mybot, MyBot/2 (lines 1, 5): it names mybot\n" in out


def test_each_part_of_a_composite_dialect_shows_its_group(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: mybot extra\n\nDisallow: /a\n")
    out = here(
        "explain",
        "--dialect",
        "strictest(rfc9309, koster1994)",
        "--robots",
        path,
        "https://a.test/a",
    ).out

    assert "group      rfc9309: mybot extra (line 1): it names mybot\n" in out
    assert "group      koster1994: none applies: no group names mybot or *\n" in out


def test_other_dialects_apply_their_own_status_rules(here, net):
    data = json.loads(here("explain", "--json", net.origin(403).url).out)
    differing = {each["dialect"]: each["action"] for each in data["dialects"] if each["differs"]}

    assert (data["action"], data["reason"]) == ("drop", "restricted")
    assert differing == {"google": "pass"}
    assert len(data["dialects"]) == len(DIALECTS) - 1


def test_mirror_in_another_dialect_is_shown(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: *\nDisallow: /x\nHost: www.example.com\n")
    data = json.loads(here("explain", "--json", "--robots", path, "https://a.example.com/").out)
    [yandex] = [each for each in data["dialects"] if each["dialect"] == "yandex2003"]

    assert yandex == {
        "dialect": "yandex2003",
        "action": "drop",
        "reason": "mirror",
        "rule": "Host: www.example.com",
        "line": 3,
        "group": "*",
        "delay_source": None,
        "delay": None,
        "differs": True,
    }


@pytest.mark.parametrize(
    ("options", "text", "url", "says"),
    [
        (
            [],
            "Disallow: /\n",
            "https://a.test/robots.txt",
            "rule       none applies to /robots.txt\n",
        ),
        (
            ["--dialect", "yandex2003"],
            "Disallow: /\nHost: www.example.com\n",
            "https://a.example.com/",
            "These rules match too, but a mirror is closed entirely:\n        2 | Disallow: /\n",
        ),
        (
            [],
            "".join(
                f"Disallow: /*a*{number % 7}{'b' * (number % 50)}c$\n" for number in range(4000)
            ),
            "https://a.test/" + "a" * 4000 + "0123456" + "b" * 50 + "cx",
            "rule       none is named: finding out which of so many rules decides would take too long\n",
        ),
    ],
    ids=["exempt", "mirror", "too-complex"],
)
def test_explanation_fits_the_reason(here, tmp_path, options, text, url, says):
    path = tmp_path / "r.txt"
    path.write_text("User-agent: *\n" + text)
    _, out, _ = here("explain", *options, "--robots", path, url)

    assert says in out


TIMES = """\
User-agent: mybot
Disallow: /private/
Crawl-delay: 4
Crawl-delay: soon
Request-rate: 1/10m
Visit-time: 0000-2400

User-agent: yourbot
Crawl-delay: 7
"""


def test_timing_lines_and_which_one_binds(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text(TIMES)

    out = here("explain", "--robots", path, "https://a.test/").out

    assert (
        "timing     line 3: Crawl-delay: 4\n"
        "timing     line 4: Crawl-delay: soon (invalid, ignored)\n"
        "timing     line 5: Request-rate: 1/10m (300 s between two requests, limited by max_delay)\n"
        "timing     line 6: Visit-time: 0000-2400\n"
    ) in out
    assert "!" not in out.partition("other dialects")[2].replace("(!", "")
    out = here("explain", "--robots", path, "--min-delay", "900", "https://a.test/").out
    assert "timing     min-delay: 900 s between two requests\n" in out


def test_closed_site_shows_when_it_opens(here, tmp_path):
    path = tmp_path / "r.txt"
    opens = time.gmtime(time.time() + 6 * 3600)
    path.write_text(f"User-agent: *\nVisit-time: {opens.tm_hour:02}00-{opens.tm_hour:02}30\n")

    status, out, _ = here("explain", "--robots", path, "https://a.test/")

    assert status == 3
    assert out.startswith(
        "DEFER  https://a.test/\nThe site's robots.txt asks crawlers to visit at other times"
    )
    assert f"Try again at {time.strftime('%Y-%m-%dT%H:00:00', opens)}" in out
    assert (
        here("explain", "--robots", path, "--visit-time", "ignore", "https://a.test/").status == 0
    )


def test_different_delay_in_another_dialect_is_shown(here, tmp_path):
    path = tmp_path / "r.txt"
    path.write_text(
        "User-agent: mybot\nDisallow: /x\nCrawl-delay: 4\n\nUser-agent: *\nDisallow: /y\nCrawl-delay: 9\n"
    )

    data = json.loads(here("explain", "--json", "--robots", path, "https://a.test/").out)

    assert (data["delay_source"], data["delay"]) == ("crawl-delay", 4)
    assert data["time"] == [{"line": 3, "text": "Crawl-delay: 4", "means": "binds"}]
    by_dialect = {
        each["dialect"]: (each["delay_source"], each["delay"], each["differs"])
        for each in data["dialects"]
    }
    assert by_dialect["google"] == ("crawl-delay", 4, False)
    assert by_dialect["bing"] == ("crawl-delay", 9, True)
    shown = here("explain", "--robots", path, "https://a.test/").out
    assert "  ! bing         pass   no rule matches; 9 s between two requests\n" in shown
    assert "    google       pass   no rule matches\n" in shown


def test_stored_policy_is_shown_with_age_and_expiry(here, net):
    target = net.origin(
        "", {"/r.txt": Reply(body=RULES, headers=(("Cache-Control", "max-age=7200"),))}
    )
    site = net.origin(Reply(status=301, headers=(("Location", f"{target.url}/r.txt?token=abc"),)))
    here("check", site.url)
    status, out, _ = here("explain", f"{site.url}/private/")

    assert status == 1
    assert f"source     {target.url}/r.txt?token=REDACTED, status 200, {len(RULES)} bytes\n" in out
    assert f"redirect   from {site.url}/robots.txt\n" in out
    assert "ago, via direct\n" in out
    assert "fresh      until " in out
    assert ", in 1 h 59 min\n" in out or ", in 2 h\n" in out
    assert len(site.robots_fetches) == 1


def test_fetch_failure_is_shown_with_the_next_try(here, net):
    _, out, _ = here("explain", net.origin(503).url)

    assert out.startswith("DEFER  ")
    assert "status: status 503" not in out
    assert "  Try again at 20" in out
    assert "trouble    status 503, 1 try since" in out
    assert "next try   20" in out


@pytest.mark.parametrize("status", [403, 404])
def test_policy_without_rules(here, net, status):
    out = here("explain", net.origin(status).url).out

    assert f", status {status}, 0 bytes\n" in out
    assert "rule " not in out


def test_json_output(here, net):
    site = net.origin(RULES)
    status, out, _ = here("explain", "--json", f"{site.url}/private/press")
    data = json.loads(out)

    assert status == 0
    assert data["means"] == meaning_of(Reason.ALLOWED).sentence
    assert (data["action"], data["line"], data["agent"]) == ("pass", 8, "mybot")
    assert [match["line"] for match in data["matches"]] == [8, 7, 9, 10]
    assert data["context"][0] == {"line": 5, "text": ""}
    assert data["expires_at"] > data["fetched_at"]
    assert data["chosen"] == [{"dialect": "rfc9309", "title": "*", "why": "named *", "lines": [6]}]
    assert data["document"] == {
        "url": f"{site.url}/robots.txt",
        "size": len(RULES),
        "truncated": False,
    }
    assert {each["dialect"] for each in data["dialects"] if each["differs"]} >= {
        "koster1994",
        "koster1996",
    }


def test_url_without_an_origin_is_explained(here):
    assert json.loads(here("explain", "--json", "http://a%00/").out)["reason"] == "malformed-target"
    assert "robots.txt applies to http and https only" in here("explain", "mailto:a@b.test").out
