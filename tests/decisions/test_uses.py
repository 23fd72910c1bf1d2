"""Uses: denials, permissions, their precedence, and the operator's purposes.

The sources are those of the modules under test. The rows of tests/data/signals.jsonl begin with
bytes. This file tests the rules of `decisions.uses` alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.page_dialects import PAGE_DIALECTS
from robots_guard.decisions.signal_settings import PURPOSES, SignalSettings, Use
from robots_guard.decisions.uses import UseState, plain_of, read_uses, refusal_of
from robots_guard.errors import SettingsError
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.statement import Flag, Place, Signal, Statement

NOW = 1_800_000_000.0
EVERY = sorted(PURPOSES)


def rule(word, value=True, *, signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, **more):
    return Statement(signal=signal, place=place, rule=word, value=value, raw=word, **more)


def usage(label, value, **more):
    return rule(label, value, signal=Signal.CONTENT_USAGE, **more)


def content_signal(label, value, **more):
    return rule(label, value, signal=Signal.CONTENT_SIGNAL, place=Place.ROBOTS_TXT, **more)


def reservation(value, place=Place.HEADER):
    return rule("tdm-reservation", value, signal=Signal.TDM, place=place)


def uses_of(*statements, agent="mybot", now=NOW, **settings):
    return read_uses(statements, agent, SignalSettings(**settings), now)


@pytest.mark.parametrize(
    ("statement", "denied"),
    [
        (rule("noindex"), ["ai-index", "search", "snippet"]),
        (rule("nofollow"), ["follow"]),
        (rule("none"), ["ai-index", "follow", "search", "snippet"]),
        (rule("nosnippet"), ["ai-input", "snippet"]),
        (rule("max-snippet", 0), ["ai-input", "snippet"]),
        (rule("max-snippet", 20), []),
        (rule("noarchive"), ["ai-input", "ai-train", "archive"]),
        (rule("nocache"), ["archive"]),
        (rule("noai"), ["ai-input", "ai-train"]),
        (rule("noml"), ["ai-input", "ai-train"]),
        (rule("disallowaitraining"), ["ai-train"]),
        (rule("unavailable_after", NOW), ["ai-index", "archive", "search", "snippet"]),
        (rule("unavailable_after", NOW + 1), []),
        (rule("unavailable_after", "", flags=(Flag.UNREADABLE_DATE,)), []),
        (rule("noindex", "", flags=(Flag.MALFORMED,)), []),
        (rule("index"), []),
        (rule("allowaitraining"), []),
        (usage("train-ai", "n"), ["ai-train"]),
        (usage("ai-use", "n"), ["ai-input"]),
        (usage("bots", "n"), EVERY),
        (usage("tdm", "n"), ["ai-train", "tdm"]),
        (usage("train-ai", ""), []),
        (content_signal("ai-input", "no"), ["ai-input"]),
        (content_signal("use", "immediate"), []),
        (reservation(1), ["ai-train", "tdm"]),
        (rule("noindex", signal=Signal.NOINDEX, place=Place.ROBOTS_TXT), ["search"]),
        (rule("ai-train", "disallow", signal=Signal.PURPOSE_TOKEN, agent="gptbot"), ["ai-train"]),
        (rule("disallowaitraining", signal=Signal.AI_TRAINING), ["ai-train"]),
        (rule("allowaitraining", signal=Signal.AI_TRAINING), []),
        (rule("license", "https://a.test/l.xml", signal=Signal.LICENSE), []),
    ],
    ids=lambda value: f"{value.rule}={value.value}" if isinstance(value, Statement) else "",
)
def test_a_statement_denies(statement, denied):
    assert uses_of(statement).denied == denied


@pytest.mark.parametrize(
    ("statement", "use"),
    [
        (usage("train-ai", "y"), "ai-train"),
        (content_signal("search", "yes"), "search"),
        (reservation(0), "tdm"),
    ],
)
def test_a_permission_is_outweighed_by_any_denial_of_another_signal(statement, use):
    assert uses_of(statement).states[use] is UseState.ALLOW
    assert uses_of(statement, usage("bots", "n")).states[use] is UseState.DENY


def test_only_the_rules_for_this_crawler_apply():
    others = rule("noindex", agent="googlebot")
    assert uses_of(others).evidence == ()
    assert uses_of(others, agent="GoogleBot").denied == ["ai-index", "search", "snippet"]
    assert uses_of(others, agent="googlebot-news").denied == []


@pytest.mark.parametrize(
    ("dialect", "words", "denied"),
    [
        ("yandex", ["index", "noindex"], []),
        ("yandex", ["none", "all"], []),
        ("yandex", ["none", "follow"], ["ai-index", "search", "snippet"]),
        ("yandex", ["archive", "noarchive"], []),
        ("yandex", ["noarchive"], ["archive"]),
        ("google", ["noarchive", "nocache", "noai"], []),
        ("bing", ["noarchive"], ["ai-input", "ai-train", "archive"]),
        ("bing", ["noarchive", "nocache"], ["archive"]),
        ("kollar1996", ["noindex"], ["ai-index", "follow", "search", "snippet"]),
        ("kollar1996", ["noindex", "follow"], ["ai-index", "search", "snippet"]),
        ("kollar1996", ["noindex", "nofollow", "all"], []),
        ("kollar1996", ["follow", "nofollow"], []),
        ("union", ["all", "none"], ["ai-index", "follow", "search", "snippet"]),
    ],
)
def test_a_page_dialect_reads_rules_as_its_source_says(dialect, words, denied):
    assert uses_of(*map(rule, words), page_dialect=dialect).denied == denied


@pytest.mark.parametrize("dialect", PAGE_DIALECTS)
def test_every_choice_of_the_setting_is_a_dialect(dialect):
    assert SignalSettings(page_dialect=dialect).page_dialect == dialect


def test_the_reservation_nearest_to_the_content_counts():
    of_file, of_header, of_page = Place.TDMREP_FILE, Place.HEADER, Place.PAGE
    assert uses_of(reservation(1, of_file), reservation(0, of_header)).denied == []
    assert uses_of(reservation(0, of_header), reservation(1, of_page)).denied == ["ai-train", "tdm"]
    assert uses_of(reservation(1, of_header), reservation("", of_page)).states["tdm"] == "deny"
    assert uses_of(reservation(0), reservation(1)).states["tdm"] is UseState.DENY


def test_a_reservation_of_0_withdraws_no_denial_of_another_signal():
    assert uses_of(reservation(0, Place.PAGE), usage("tdm", "n")).states["tdm"] is UseState.DENY


def test_the_policy_of_a_reservation_is_the_one_beside_it():
    policy = rule("tdm-policy", "https://a.test/p.json", signal=Signal.TDM)
    assert uses_of(reservation(1), policy).tdm_policy == "https://a.test/p.json"
    assert uses_of(policy).tdm_policy is None
    assert uses_of(reservation(0), policy).tdm_policy is None
    assert uses_of(reservation(1, Place.PAGE), policy).tdm_policy is None


def test_limits_are_the_strictest_of_all():
    uses = uses_of(
        rule("max-snippet", -1),
        rule("max-snippet", 30),
        rule("max-video-preview", -1),
        rule("max-image-preview", "large"),
        rule("max-image-preview", "standard"),
        rule("max-image-preview", "huge"),
        rule("notranslate"),
        rule("nocache"),
    )
    assert uses.limits == {
        "max-snippet": 30,
        "max-video-preview": -1,
        "max-image-preview": "standard",
        "notranslate": True,
        "nocache": "title-and-snippet-only",
    }


def test_disputed_rules_are_read_widely_unless_a_dialect_says_otherwise():
    assert set(uses_of(rule("noarchive")).denied) == {"archive", "ai-input", "ai-train"}
    assert uses_of(rule("noarchive"), page_dialect="yandex").denied == ["archive"]
    assert set(uses_of(reservation(1)).denied) == {"tdm", "ai-train"}


# -- purposes --------------------------------------------------------------------------------------


def refusal(*statements, is_final=True, **settings):
    found = refusal_of(
        uses_of(*statements, **settings), SignalSettings(**settings), is_final=is_final
    )
    return None if found is None else (found.purpose, found.detail)


def test_no_purpose_is_refused_where_none_is_declared():
    assert refusal(rule("none")) is None


def test_any_denied_purpose_refuses_the_whole_response():
    refused = refusal(rule("noai"), purposes="search, ai-train")
    assert refused == ("ai-train", "ai-train: x-robots-tag (header) says noai")


def test_the_refusal_names_the_statement_that_can_be_known_first():
    page = rule("noindex", signal=Signal.META_ROBOTS, place=Place.PAGE)
    line = content_signal("search", "no", line=3)
    refused = refusal(page, line, purposes="search")
    assert refused == ("search", "search: content-signal (line 3 of robots.txt) says search")


@pytest.mark.parametrize(
    ("site", "ours", "is_refused"),
    [("reference", "full", True), ("reference", "reference", False), ("full", "immediate", False)],
)
def test_a_lower_level_of_use_refuses_every_purpose(site, ours, is_refused):
    statement = content_signal("use", site)
    assert bool(refusal(statement, purposes="search", content_use=ours)) is is_refused


def test_silence_counts_only_when_everything_has_been_read():
    settings = {"purposes": "ai-train", "on_unknown": "deny"}
    assert refusal(rule("noindex"), is_final=False, **settings) is None
    purpose, _ = refusal(rule("noindex"), **settings)
    assert purpose == "ai-train"
    assert refusal(usage("train-ai", "y"), **settings) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"purposes": "serch"},
        {"purposes": "crawl"},
        {"purpose_tokens": "GPTBot"},
        {"purpose_tokens": "ai-train=GPT Bot"},
        {"purpose_tokens": "=GPTBot"},
    ],
)
def test_a_setting_that_names_no_use_is_an_error(wrong):
    (name,) = wrong
    with pytest.raises(SettingsError, match=name):
        SignalSettings(**wrong)


def test_purpose_tokens_are_pairs():
    settings = SignalSettings(purpose_tokens="ai-train=GPTBot, search=OAI-SearchBot,")
    assert settings.tokens == (("ai-train", "GPTBot"), ("search", "OAI-SearchBot"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"purposes": "tdm"}, True),
        ({"purposes": "ai-train"}, True),
        ({"purposes": "ai-input"}, False),
        ({"purposes": "search"}, False),
        ({"purposes": "tdm", "signals": "off"}, False),
    ],
)
def test_the_reservations_of_a_site_are_needed_for_some_purposes_only(settings, expected):
    assert SignalSettings(**settings).needs_reservations is expected


# -- properties ------------------------------------------------------------------------------------

WORDS = (
    "noindex",
    "nofollow",
    "none",
    "all",
    "index",
    "noarchive",
    "nocache",
    "noai",
    "max-snippet",
)
STATEMENTS = st.one_of(
    st.builds(rule, st.sampled_from(WORDS), st.sampled_from([True, 0, 20, ""])),
    st.builds(usage, st.sampled_from(["train-ai", "search", "bots", "x"]), st.sampled_from("yn")),
    st.builds(content_signal, st.sampled_from(["search", "use"]), st.sampled_from(["yes", "no"])),
)


@given(st.lists(STATEMENTS, max_size=8), STATEMENTS)
def test_a_further_statement_never_withdraws_a_denial(statements, further):
    before = uses_of(*statements).denied
    assert set(before) <= set(uses_of(*statements, further).denied)


@given(st.lists(STATEMENTS, max_size=6), st.sampled_from(list(PAGE_DIALECTS)))
def test_the_plain_form_is_json_and_names_every_use(statements, dialect):
    plain = plain_of(uses_of(*statements, page_dialect=dialect))
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain["uses"]) == set(Use)


def test_a_statement_for_a_long_name_applies():
    agent = "a" * 150
    (statement,) = header_statements([("X-Robots-Tag", f"{agent}: noindex")], 200)
    assert "search" in uses_of(statement, agent=agent).denied


@pytest.mark.parametrize(("seconds", "written"), [(-6e10, "0068-09-03T13:20:00Z"), (0, "1970-")])
def test_a_date_of_any_year_is_written_as_in_iso_8601(seconds, written):
    uses = uses_of(rule("unavailable_after", seconds))
    assert plain_of(uses)["unavailable_after"].startswith(written)


def test_the_signals_page_explains_each_flag():
    page = (Path(__file__).parents[2] / "docs" / "signals.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]

    assert [f for f in Flag if not any(row.startswith(f"| `{f.value}` |") for row in rows)] == []
