"""Settings: one name everywhere, each documented once, bad input answered with one sentence."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from robots_guard.configuration import SECTIONS, own_options
from robots_guard.configuration.settings import (
    PROXY_NAMES,
    SETTINGS,
    ProxySettings,
    Settings,
    open_guard,
    settings_of,
)
from robots_guard.decisions.site_settings import SiteSettings, types_of
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.calls import STORE_WIDTH
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.text import wrong_type

DOCS = Path(__file__).parent.parent / "docs"
TABLES = runpy.run_path(str(DOCS / "settings_tables.py"))


@pytest.mark.parametrize("page", TABLES["PAGES"])
def test_the_docs_have_the_table_that_the_descriptions_give(page):
    expected = TABLES["page_of"](page)

    assert (DOCS / page).read_text() == expected, "to rewrite it: python docs/settings_tables.py"


def test_each_setting_stands_in_one_table():
    shown = [
        setting.name
        for runs in TABLES["PAGES"].values()
        for run in runs
        for settings in run.values()
        for setting in settings
    ]
    own = [name for section in SECTIONS for name in own_options(section)]

    assert sorted(shown) == sorted([*PROXY_NAMES, *own])


def test_a_name_that_the_dialect_cannot_compare_is_refused():
    for name in ("google", "strictest(rfc9309, google)"):
        with pytest.raises(SettingsError, match="cannot be judged in dialect"):
            Settings(agent="AI2Bot", dialect=name)
    assert Settings(agent="360Spider").agent == "360Spider"


def test_the_docs_list_the_settings_that_an_override_can_change():
    names = ", ".join(f"`{name}`" for name in types_of(SiteSettings))
    page = (DOCS / "overrides.md").read_text()

    assert f"| {names} |" in page, "to rewrite it: python docs/settings_tables.py"
    assert TABLES["overrides_page"]() == page


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_description_begins_with_a_summary_and_names_every_choice(setting):
    choices = get_args(setting.type)

    assert [choice for choice in choices if choice not in setting.summary] == []
    assert setting.summary[:-1].isprintable()
    assert not {"](", "`"} & set(setting.summary)
    assert len(setting.summary) < 140


def test_text_is_converted_to_the_type_of_the_setting():
    settings = settings_of({"agent": "mybot", "max_defer": "60", "audit": "all"})

    assert (settings.max_defer, settings.audit) == (60.0, "all")


@pytest.mark.parametrize("value", [True, 1, "1", "true", "True"])
def test_a_switch_takes_the_spellings_of_every_framework(value):
    assert settings_of({"agent": "mybot", "report_only": value}).report_only is True


@pytest.mark.parametrize("name", types_of(Terms))
def test_a_value_of_another_type_is_refused_and_its_setting_is_named(name):
    terms = Settings(agent="mybot").terms()

    with pytest.raises(SettingsError, match=f"^{name} b'x' is not ") as caught:
        msgspec.structs.replace(terms, **{name: b"x"})

    assert str(caught.value) == f"{name} b'x' {wrong_type(b'x', types_of(Terms)[name])}"


def test_the_first_of_several_values_of_another_type_is_named():
    first, *_, last = types_of(Terms)
    terms = Settings(agent="mybot").terms()

    with pytest.raises(SettingsError, match=f"^{first} "):
        msgspec.structs.replace(terms, **{last: b"x", first: b"x"})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "agent is not set"),
        ({"agent": ""}, "agent is not set"),
        ({"agent": "my bot/1.0"}, "'my bot/1.0' is not a product token"),
        (
            {"agent": "mybot", "max_deffer": 1},
            "unknown setting max_deffer: did you mean max_defer?",
        ),
        (
            {"agent": "mybot", "policy_store": "x"},
            "unknown setting policy_store: did you mean store?",
        ),
        ({"agent": "mybot", "colour": 1}, "unknown setting colour: the nearest are "),
        ({"agent": "mybot", "dialect": "rfc9310"}, "dialect 'rfc9310' is not known"),
        ({"agent": "mybot", "matching": "loose"}, "'loose'"),
        ({"agent": "mybot", "on_restricted": "maybe"}, "on_restricted"),
        ({"agent": "mybot", "on_unreachable": "wait"}, "on_unreachable"),
        ({"agent": "mybot", "fetch": "aiohttp"}, "fetch"),
        (
            {"agent": "mybot", "fetch_proxy": "socks5://a.test:1"},
            "fetch_proxy is not the URL of an HTTP proxy",
        ),
        (
            {"agent": "mybot", "fetch_proxy": "a.test:8080"},
            "fetch_proxy is not the URL of an HTTP proxy",
        ),
        ({"agent": "mybot", "allow_private": "10.0.0.1/8"}, "'10.0.0.1/8' is not a network"),
        (
            {"agent": "mybot", "allow_private": ["10.0.0.0/8", "localhost"]},
            "'localhost' is not a network",
        ),
        ({"agent": "mybot", "max_defer": "soon"}, "max_defer"),
        ({"agent": "mybot", "max_defer": "-1"}, "max_defer"),
        ({"agent": "mybot", "max_defer": "nan"}, "max_defer"),
        ({"agent": "mybot", "max_defer": "inf"}, "max_defer"),
        ({"agent": "mybot", "fetch_timeout": "0"}, "fetch_timeout"),
        ({"agent": "mybot", "fetch_timeout": "inf"}, "fetch_timeout"),
        ({"agent": "mybot", "audit": "perhaps"}, "audit"),
    ],
)
def test_unusable_value_is_named_in_one_sentence(values, sentence):
    with pytest.raises(SettingsError, match=re.escape(sentence)) as caught:
        settings_of(values)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("on_restricted", "pass", "--on-restricted 'pass' is not known: use drop or allow"),
        (
            "on_unreachable",
            "wait",
            "--on-unreachable 'wait' is not known: use defer, drop or allow",
        ),
        ("max_defer", "x", "--max-defer 'x' is not a number of seconds"),
        ("max_defer", "-1", "--max-defer '-1' is out of range: use 0 to 31536000 seconds"),
        (
            "fetch_timeout",
            0,
            "--fetch-timeout 0 is out of range: use more than 0 and at most 3600 seconds",
        ),
        (
            "audit",
            "perhaps",
            "--audit 'perhaps' is not known: use refusals, summary, all or evidence",
        ),
        ("min_delay", "nan", "--min-delay 'nan' is out of range: use 0 to 86400 seconds"),
        (
            "audit_retention_bytes",
            "-1",
            "--audit-retention-bytes '-1' is out of range: use 0 to 1000000000000000",
        ),
        (
            "audit_retention_days",
            "x",
            "--audit-retention-days 'x' is not a whole number: write one such as 30",
        ),
        ("audit_retention_days", -1, "--audit-retention-days -1 is out of range: use 0 to 1000000"),
        ("report_only", "perhaps", "--report-only 'perhaps' is not a switch: use true or false"),
        ("store", 7, "--store 7 is not text"),
        ("agent", "my bot", "--agent 'my bot' is not a product token"),
        ("dialect", "rfc9310", "--dialect 'rfc9310' is not known; use one of"),
        ("matching", "loose", "--matching 'loose' is not known: use spec, standard or strict"),
    ],
)
def test_setting_is_named_as_the_framework_writes_it(name, value, sentence):
    with pytest.raises(SettingsError) as caught:
        settings_of({"agent": "mybot", name: value}, spelling="--{}")

    assert str(caught.value).startswith(sentence)


def test_capitals_are_kept_in_the_spelling_of_the_framework():
    with pytest.raises(
        SettingsError, match=r"^ROBOTS_GUARD_MAX_DEFER 'soon' is not a number of seconds"
    ):
        settings_of({"agent": "mybot", "max_defer": "soon"}, spelling="ROBOTS_GUARD_{}")


def test_names_are_shown_as_the_framework_writes_them():
    with pytest.raises(
        SettingsError,
        match="unknown setting ROBOTS_GUARD_MAX_DEFFER: did you mean ROBOTS_GUARD_MAX",
    ):
        settings_of({"agent": "mybot", "max_deffer": 1}, spelling="ROBOTS_GUARD_{}")
    with pytest.raises(SettingsError, match="ROBOTS_GUARD_AGENT is not set"):
        settings_of({}, spelling="ROBOTS_GUARD_{}")


@pytest.mark.parametrize(
    ("name", "value"), [("store", "sqlite:////proc/no/such"), ("audit_log", "/proc/no/such")]
)
def test_a_path_that_cannot_be_used_stops_the_start(tmp_path, name, value):
    good = {
        "agent": "mybot",
        "store": f"sqlite:///{tmp_path}/p.sqlite",
        "audit_log": str(tmp_path / "j"),
    }
    with pytest.raises(SettingsError, match=name) as caught:
        open_guard(
            settings_of({**good, name: value}),
            component="test",
            runtime=AsyncioRuntime(),
            fetcher=ScriptedFetcher({}),
        )

    assert "\n" not in str(caught.value)


def test_the_guard_gets_the_number_of_threads_for_its_store():
    def threads(**given) -> int:
        options = settings_of({"agent": "mybot", **given}).guard_options(
            "test", demands_verified=True
        )
        return options.store_threads

    assert (threads(), threads(store_threads="32")) == (STORE_WIDTH, 32)
    for wrong in ("0", "257", "many"):
        with pytest.raises(SettingsError, match="store_threads"):
            threads(store_threads=wrong)


@pytest.mark.parametrize(
    ("given", "at_once"),
    [({}, True), ({"audit_durability": "fsync"}, False), ({"audit": "evidence"}, False)],
)
def test_a_fetch_is_recorded_at_once_if_its_record_is_one_line(given, at_once):
    """Evidence is longer, and a disk that is waited for may hang."""
    options = settings_of({"agent": "mybot", **given}).guard_options(
        "scrapy", demands_verified=True
    )

    assert options.records_fetches_at_once is at_once


def test_regions_may_be_a_list():
    regions = ["eu=redis://me:secret@h/0", "us=redis+cluster://me:secret@i,j/"]
    settings = settings_of({"agent": "mybot", "store": regions})

    assert settings.store == ",".join(regions)
    assert settings.shown("store") == "eu=redis://h/0, us=redis+cluster://i,j/"


def test_list_is_joined_with_commas():
    settings = settings_of({"agent": "mybot", "allow_private": ["10.0.0.0/8", "::1/128"]})

    assert settings.allow_private == "10.0.0.0/8,::1/128"


@pytest.mark.parametrize(
    ("ports", "meant"), [([443, 8443], "443,8443"), ([80, "8000-8999"], "80,8000-8999")]
)
def test_a_list_of_numbers_is_joined_as_one_of_texts(ports, meant):
    settings = settings_of({"agent": "mybot", "connect_ports": ports}, kind=ProxySettings)

    assert settings.connect_ports == meant


def test_the_password_of_a_proxy_is_in_no_message():
    with pytest.raises(SettingsError) as caught:
        settings_of({"agent": "mybot", "fetch_proxy": "http://me:sesame@"})

    assert "sesame" not in str(caught.value)
