"""The vectors from the seed documents, by kind, and the profiles as data."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from protocol.rows import ask, rows

from robots_guard.errors import SettingsError
from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.directives import is_host_value
from robots_guard.protocol.lint.groups import violations
from robots_guard.protocol.matcher import pattern_matches
from robots_guard.protocol.robots import parse
from robots_guard.protocol.ruleset import compile_rules

ROWS = rows("dialects.jsonl")
FIRM = {"allow": True, "disallow": False}


def of_kind(*kinds: str) -> list[pytest.ParameterSet]:
    return [pytest.param(row, id=row["id"]) for row in ROWS if row["kind"] in kinds]


@pytest.mark.parametrize(
    "row", [p for p in of_kind("match", "host") if str(p.values[0]["expect"]) in FIRM]
)
def test_a_firm_row_has_its_verdict(row):
    ruling = ask(row["robots_txt"], row["url"], row["user_agent"], row["dialect"])

    assert ruling.allowed is FIRM[row["expect"]], row["why"]


@pytest.mark.parametrize(
    "row", [p for p in of_kind("match") if p.values[0]["expect"] in ("match", "no-match")]
)
def test_a_pattern_alone_matches_or_not(row):
    body = f"User-agent: {row['user_agent']}\nDisallow: {row['input']['pattern']}\n"

    assert ask(body, row["url"], row["user_agent"], row["dialect"]).allowed is (
        row["expect"] == "no-match"
    ), row["why"]


@pytest.mark.parametrize(
    "row", [p for p in of_kind("host") if isinstance(p.values[0]["expect"], dict)]
)
def test_a_host_line_is_valid_or_not(row):
    assert is_host_value(row["input"]["host_value"]) is row["expect"]["valid"], row["why"]


# KOL-042 is a note on the octal codes of the seed; test_white_space_and_line_ends_of_kollar1996 has it.
READ = [
    p
    for p in of_kind("parse")
    if isinstance(p.values[0]["expect"], dict) and "WS" not in p.values[0]["expect"]
]


@pytest.mark.parametrize("row", READ)
def test_a_document_is_read_as_the_source_says(row):
    expected = row["expect"]
    robots = parse(row["robots_txt"].encode(), dialect(row["dialect"]))
    if "records" in expected:
        assert [_as_row(group) for group in robots.groups] == expected["records"]
    else:
        assert expected["issue"] in [violation.issue for violation in violations(robots)]


def _as_row(group):
    rules = [[name.decode(), value.decode()] for _, name, value in group.rules if value]
    return {"agents": [value.decode() for _, _, value in group.agents], "rules": rules}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("space", [" ", "\t"])
def test_white_space_and_line_ends_of_kollar1996(end, space):
    body = end.join((f"User-agent:{space}fred{space}rex", f"Disallow:{space}/a{space}/b", ""))

    assert not ask(body, "/b", "rex", "kollar1996").allowed
    assert ask(body, "/c", "rex", "kollar1996").allowed


def test_no_firm_document_of_the_seeds_is_reported_without_cause():
    blamed = {
        row["id"] for row in ROWS if row["kind"] == "parse" and "issue" in (row["expect"] or {})
    }
    for row in ROWS:
        if (
            row["kind"] == "parse"
            and row["id"] not in blamed
            and row["robots_txt"].startswith("User")
        ):
            assert violations(parse(row["robots_txt"].encode(), dialect(row["dialect"]))) == []


ACCESS = {"disallow_all": "restricted", "allow_all": "unrestricted", "defer": "unreachable"}


@pytest.mark.parametrize(
    "row",
    [p for p in of_kind("access") if p.values[0].get("input", {}).get("status") in (401, 403)],
)
def test_401_and_403_are_data_of_the_dialect(row):
    assert dialect(row["dialect"]).on_forbidden == ACCESS[row["expect"]]


@pytest.mark.parametrize("row", of_kind("expiry"))
def test_the_default_lifetime_is_data_of_the_dialect(row):
    kept = dialect(row["dialect"])
    headers, expected = row["input"]["headers"], row["expect"]

    assert kept.lifetime == expected.get("default_ttl_s", 604_800)
    if not headers and "fresh" in expected:
        assert (row["input"]["age_s"] <= kept.lifetime) is expected["fresh"]
    if headers:
        # What headers mean is the guard's business; it must be free to follow them beyond a day.
        assert kept.lifetime_cap is None


def test_every_unspecified_row_has_its_choice_in_the_docs():
    page = Path(__file__).parents[2].joinpath("docs/dialects.md").read_text("utf-8")
    open_rows = {
        row["id"] for row in ROWS if "unspecified" in str(row["expect"]) and row["kind"] != "meta"
    }

    assert open_rows <= set(re.findall(r"[A-Z0-9]{3}-\d{3}", page))


# --- What was chosen where the seeds are silent, each as docs/dialects.md says ---


@pytest.mark.parametrize(
    ("row", "allowed"),
    [
        pytest.param("K94-113", True, id="a file of prose holds no record, so nothing is closed"),
        pytest.param("K96-096", False, id="%2f and %2F are one octet"),
        pytest.param("K96-097", False, id="the query is compared too"),
        pytest.param("KOL-029", True, id="only the first product token counts"),
        pytest.param("KOL-032", False, id="several records: all of them"),
        pytest.param("SLP-009", False, id="the longer rule wins"),
        pytest.param("RAM-039", False, id="stacked User-agent lines share what follows"),
    ],
)
def test_an_open_point_is_answered_as_documented(row, allowed):
    found = next(each for each in ROWS if each["id"] == row)

    assert found["expect"] == "unspecified"
    assert (
        ask(found["robots_txt"], found["url"], found["user_agent"], found["dialect"]).allowed
        is allowed
    )


# --- Profiles ---


def test_there_are_ten_profiles():
    assert list(DIALECTS) == [
        "koster1994",
        "kollar1996",
        "koster1996",
        "rambler2003",
        "yandex2003",
        "slurp2006",
        "rfc9309",
        "google",
        "bing",
        "yandex",
    ]
    assert all(dialect(name) is each and each.name == name for name, each in DIALECTS.items())


def test_an_unknown_dialect_is_refused_in_one_sentence_that_names_the_known():
    with pytest.raises(
        SettingsError, match=r"'ask-jeeves' is not known; use one of koster1994, .*rfc9309"
    ):
        dialect("ask-jeeves")
    with pytest.raises(SettingsError, match="'altavista' is not known"):
        dialect("strictest(rfc9309, altavista)")


def test_no_dialect_name_is_tested_outside_dialect_py():
    package = Path(__file__).parents[2] / "robots_guard"
    test = re.compile(r"\bname\s*(==|!=|in)\s*[\[({]?\s*[\"'](" + "|".join(DIALECTS) + r")[\"']")
    # `percent` has values named after the source they follow; an encoding is not a dialect.
    found = [str(path) for path in package.rglob("*.py") if test.search(path.read_text("utf-8"))]

    assert found == []


def test_the_product_defaults_of_rfc9309():
    kept = dialect("rfc9309")

    assert (kept.on_forbidden, kept.on_too_many, kept.on_redirect_limit) == (
        "restricted",
        "unreachable",
        "unreachable",
    )
    assert (kept.lifetime, kept.lifetime_floor, kept.lifetime_cap) == (86_400, 300, 86_400)


def test_google_allows_what_google_allows():
    kept = dialect("google")

    assert (kept.on_forbidden, kept.on_too_many, kept.on_redirect_limit) == (
        "unrestricted",
        "unreachable",
        "unrestricted",
    )


def test_a_dialect_is_a_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        dialect("rfc9309").allow = False  # type: ignore[misc]
    assert hash(dialect("google")) != hash(dialect("bing"))


# --- strictest ---


def test_strictest_allows_what_all_allow_and_names_dissenting_parts():
    body = "User-agent: * Rex\nDisallow: /t /u\n"
    composite = "strictest(koster1994, kollar1996)"

    assert ask(body, "/x", name=composite).allowed
    denied = ask(body, "/u/1", name=composite)
    assert not denied.allowed
    assert denied.disagree == ("koster1994",)
    assert denied.rule is not None
    assert (denied.rule.line, denied.rule.pattern) == (2, "/u")


def test_strictest_keeps_a_copy_no_longer_than_any_of_its_parts():
    kept = dialect("strictest(koster1996,  google )")

    assert kept.name == "strictest(koster1996, google)"
    assert (kept.lifetime, kept.lifetime_cap) == (86_400, 86_400)
    assert kept.on_forbidden == "restricted"


@pytest.mark.parametrize("name", ["strictest()", "strictest(google,)", "strictest(, google)"])
def test_a_composite_with_a_part_missing_is_named_whole(name):
    with pytest.raises(SettingsError, match=re.escape(repr(name))):
        dialect(name)


# --- Names and versions ---


@pytest.mark.parametrize(
    "value", ["other/1.0 mybot/2.0", "Mozilla/5.0 (compatible; MyBot/1.0)", "a/mybot"]
)
def test_koster1996_searches_the_whole_value_for_the_name(value):
    body = f"User-agent: {value}\nDisallow: /x\n\nUser-agent: *\nDisallow: /s\n"

    assert not ask(body, "/x", "mybot", "koster1996").allowed
    assert ask(body, "/s", "mybot", "koster1996").allowed


@pytest.mark.parametrize(
    "name", ["koster1994", "kollar1996", "rambler2003", "yandex2003", "slurp2006"]
)
def test_a_version_behind_a_name_does_not_hide_its_record(name):
    assert not ask("User-agent: mybot/1.0\nDisallow: /x\n", "/x", "mybot", name).allowed


# --- Overlays ---


def test_bing_falls_back_to_msnbot():
    body = "User-agent: msnbot\nDisallow: /m\n\nUser-agent: *\nDisallow: /s\n"

    assert not ask(body, "/m", "bingbot", "bing").allowed
    assert ask(body, "/s", "bingbot", "bing").allowed
    own = body + "User-agent: bingbot\nDisallow: /b\n"
    assert ask(own, "/m", "bingbot", "bing").allowed
    assert not ask(own, "/b", "bingbot", "bing").allowed


def test_bing_goes_from_name_to_name_in_one_direction():
    body = "User-agent: bingbot\nDisallow: /b\n\nUser-agent: msnbot\nDisallow: /m\n\nUser-agent: *\nDisallow: /s\n"

    assert not ask(body, "/m", "msnbot", "bing").allowed
    assert ask(body, "/b", "msnbot", "bing").allowed
    assert not ask(body.replace("msnbot", "other"), "/s", "msnbot", "bing").allowed


@pytest.mark.parametrize(
    "value", ["YandexBot*", "yandex*", "YandexBot, other", "Yandex (all)", "YandexBot2"]
)
def test_yandex_truncates_a_value_at_the_end_of_the_token(value):
    body = f"User-agent: {value}\nDisallow: /y\n\nUser-agent: *\nDisallow: /s\n"

    assert not ask(body, "/y", "YandexBot", "yandex").allowed
    assert ask(body, "/s", "YandexBot", "yandex").allowed


def test_yandex_reads_a_star_followed_by_text_as_a_star():
    assert not ask("User-agent: * all bots\nDisallow: /\n", "/x", "YandexBot", "yandex").allowed


def test_yandex_obeys_the_narrowest_name_within_its_own():
    body = "User-agent: Yandex\nDisallow: /y\n\nUser-agent: YandexBot\nDisallow: /b\n\nUser-agent: *\nDisallow: /s\n"

    assert not ask(body, "/b", "YandexBot", "yandex").allowed
    assert ask(body, "/y", "YandexBot", "yandex").allowed
    assert not ask(body, "/y", "YandexImages", "yandex").allowed


def test_a_dollar_within_a_rule_is_literal_for_some_and_the_end_for_others():
    assert pattern_matches("/a$b", "/a$b/c", wildcards=True)
    assert not ask("User-agent: x\nDisallow: /a$b\n", "/a", "x", "slurp2006").allowed


@pytest.mark.parametrize("name", ["strictest(rfc9309, google)", "strictest(google, rfc9309)"])
def test_strictest_reads_a_status_like_its_strictest_part(name):
    kept, mild = dialect(name), dialect("strictest(google, google)")

    assert (kept.on_forbidden, kept.on_too_many, kept.on_redirect_limit) == (
        "restricted",
        "unreachable",
        "unreachable",
    )
    assert (mild.on_forbidden, mild.on_redirect_limit) == ("unrestricted", "unrestricted")


def test_strictest_exempts_robots_txt_if_any_part_does():
    assert dialect("strictest(google, rfc9309)").exempts_robots_txt
    assert dialect("strictest(rfc9309, google)").exempts_robots_txt
    assert not dialect("strictest(google, google)").exempts_robots_txt


def test_strictest_caches_no_longer_than_its_parts_in_any_order():
    for name in ("strictest(koster1996, google)", "strictest(google, koster1996)"):
        kept = dialect(name)
        assert (kept.lifetime, kept.lifetime_floor, kept.lifetime_cap) == (86_400, 300, 86_400)
    assert dialect("strictest(koster1996, koster1996)").lifetime_cap is None


def test_parts_of_strictest_judge_the_host():
    rules = compile_rules(
        b"User-agent: *\nDisallow: /forum\nHost: main.example.ru:8443\n",
        dialect("strictest(rfc9309, yandex2003)"),
        "Yandex",
    )

    assert rules.judge("/x", "main.example.ru", 8443, "https").allowed
    mirror = rules.judge("/x", "main.example.ru", 0, "https")
    assert (mirror.allowed, mirror.mirror_of, mirror.disagree) == (
        False,
        "main.example.ru:8443",
        ("rfc9309",),
    )
    assert rules.judge("/forum", "main.example.ru", 8443, "https").disagree == ()


@pytest.mark.parametrize(
    ("other", "expected"),
    [("google", [(2, True), (3, False)]), ("koster1994", [(3, False), (2, True)])],
)
def test_what_matches_under_strictest_is_listed_once_the_deciding_rule_first(other, expected):
    body = b"User-agent: *\nAllow: /a/b\nDisallow: /a\n"
    rules = compile_rules(body, dialect(f"strictest(rfc9309, {other})"), "x")

    assert [(rule.line, rule.allow) for rule in rules.matches("/a/b")] == expected
    assert rules.judge("/a/b").rule == rules.matches("/a/b")[0]
    assert rules.matches("/c") == []


@pytest.mark.parametrize(
    ("target", "allowed"), [("/%58", False), ("/%78", True), ("/a%2Fb", True), ("/a%2fb", True)]
)
def test_koster1996_decodes_every_escape_but_that_of_a_slash(target, allowed):
    assert (
        ask("User-agent: x\nDisallow: /X\nDisallow: /a/b\n", target, "x", "koster1996").allowed
        is allowed
    )


def test_google_allows_a_directory_with_its_index_page():
    assert ask("User-agent: *\nDisallow: /\nAllow: /a/index.html\n", "/a/", name="google").allowed
    assert ask("User-agent: *\nDisallow: /a/index.html\n", "/a/", name="google").allowed


@pytest.mark.parametrize("pattern", ["/a b$c", "/a\u00a0b$c"])
def test_slurp2006_ends_a_rule_at_a_dollar_but_not_at_a_space(pattern):
    rules = f"User-agent: *\nDisallow: {pattern}\nDisallow: /z\n".encode("latin-1")
    target = pattern[: pattern.index("$")]

    assert (
        not compile_rules(rules, dialect("slurp2006"), "examplebot", "spec").judge(target).allowed
    )
    assert (
        compile_rules(rules, dialect("slurp2006"), "examplebot", "spec")
        .judge(target + "$c")
        .allowed
    )
    assert compile_rules(rules, dialect("slurp2006"), "examplebot", "spec").judge("/a").allowed
