"""Overrides: nothing is inferred; only the most specific applies; an invalid one has no effect."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.overrides import SOON, expiry, parse
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching

BASE = Terms(dialect=dialect("rfc9309"), matching=matching("standard"), max_delay=100.0)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
GOOD = {
    "id": '"one"',
    "owner": '"jane"',
    "reason": '"because"',
    "expires": "2027-01-01",
    "origin": '"https://a.test"',
}


def entry(**changes: str | None) -> str:
    keys = {**GOOD, **changes}
    return "[[override]]\n" + "".join(
        f"{name} = {value}\n" for name, value in keys.items() if value is not None
    )


def test_an_override_changes_only_the_terms_of_its_origin():
    found = parse(
        entry(max_delay="1", dialect='"google"', matching='"strict"', on_restricted='"allow"'), BASE
    )

    terms = found.terms(origin_of("https://a.test"), BASE, NOW)

    assert not found.faults
    assert found.entries[0].changes == {
        "dialect": "google",
        "matching": "strict",
        "on_restricted": "allow",
        "max_delay": 1.0,
    }
    assert (terms.max_delay, terms.dialect.name, terms.matching.name, terms.on_restricted) == (
        1,
        "google",
        "strict",
        "allow",
    )
    assert (terms.override.id, terms.override.owner, terms.override.reason) == (
        "one",
        "jane",
        "because",
    )
    for other in ("http://a.test", "https://a.test:8443", "https://www.a.test", "https://b.test"):
        assert found.terms(origin_of(other), BASE, NOW) is BASE


def test_a_suffix_covers_a_domain_and_its_subdomains():
    found = parse(entry(origin=None, suffix='".Example.test"', max_delay="1"), BASE)

    for inside in (
        "https://example.test",
        "http://www.example.test:81",
        "https://a.b.example.test",
    ):
        assert found.terms(origin_of(inside), BASE, NOW).max_delay == 1
    for outside in ("https://notexample.test", "https://example.test.evil.test"):
        assert found.terms(origin_of(outside), BASE, NOW) is BASE


def test_only_the_most_specific_override_applies():
    text = (
        entry(id='"wide"', origin=None, suffix='"example.test"', max_delay="1", min_delay="0.5")
        + entry(id='"near"', origin=None, suffix='"www.example.test"', max_delay="2")
        + entry(id='"own"', origin='"https://www.example.test"', max_delay="3")
    )
    found = parse(text, BASE)

    def named(url):
        return found.terms(origin_of(url), BASE, NOW)

    assert named("https://www.example.test").override.id == "own"
    assert named("http://www.example.test").override.id == "near"
    assert named("http://www.example.test").min_delay == 0
    assert named("http://example.test").override.id == "wide"


@pytest.mark.parametrize(
    ("expires", "last"),
    [("2026-11-20", "2026-11-20T23:59:59Z"), ("2026-11-20T13:00:00+01:00", "2026-11-20T11:59:59Z")],
)
def test_an_override_expires_at_the_stated_time(expires, last):
    found = parse(entry(expires=expires, max_delay="1"), BASE)
    moment = datetime.fromisoformat(last).timestamp()

    assert found.terms(origin_of("https://a.test"), BASE, moment).max_delay == 1
    assert found.terms(origin_of("https://a.test"), BASE, moment + 1) is BASE


def test_a_day_ends_at_midnight_utc_wherever_the_process_runs(monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        (only,) = parse(entry(expires="2026-11-20", max_delay="1"), BASE).entries
    finally:
        monkeypatch.undo()
        time.tzset()

    assert only.exemption.expires == datetime(2026, 11, 21, tzinfo=UTC).timestamp()


def test_expired_overrides_are_reported_with_the_remedy():
    found = parse(
        entry(expires="2020-01-01", max_delay="1")
        + entry(id='"b"', origin='"https://b.test"', max_delay="1"),
        BASE,
    )

    assert found.expired(NOW) == (("one", "it has expired: renew it or remove it"),)


def test_state_and_place_of_an_override():
    (exact,) = parse(entry(max_delay="1"), BASE).entries
    (suffix,) = parse(entry(origin=None, suffix='"a.test"', max_delay="1"), BASE).entries
    end = exact.exemption.expires

    assert [exact.state(end - left) for left in (SOON + 1, SOON, 0)] == [
        "in force",
        "expires soon",
        "expired",
    ]
    assert (exact.where, suffix.where) == ("https://a.test", "*.a.test")


def test_an_expired_override_gives_way_to_the_next():
    text = entry(expires="2020-01-01", max_delay="1") + entry(
        id='"w"', origin=None, suffix='"a.test"', max_delay="2"
    )

    assert parse(text, BASE).terms(origin_of("https://a.test"), BASE, NOW).max_delay == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"owner": None}, "owner is missing: state who is responsible for it"),
        ({"reason": '" "'}, "reason is empty: state why"),
        (
            {"expires": None},
            "expires is missing: state the last day on which it applies, such as 2027-03-31",
        ),
        ({"expires": '"never"'}, "expires"),
        ({"expires": "2027-01-01T00:00:00"}, "has no offset"),
        ({"id": None}, "id is missing: state a name for this override"),
        ({"reason": None}, "reason is missing: state why it is needed"),
        ({"owner": "7"}, "owner = 7 is not text: put it in quotes"),
        ({"suffix": "[1]"}, "suffix = [1] is not text: put it in quotes"),
        (
            {"max_delay": '"1"'},
            "max_delay = '1' is not a number of seconds: write one such as 30 or 0.5",
        ),
        (
            {"id": None, "owner": None},
            "id, owner are missing: state a name for this override, who is responsible for it",
        ),
        ({"origin": '"https://a.test:8000/path"'}, "'https://a.test:8000/path' has a path"),
        ({"origin": '"https://a.test:8x"'}, "'8x' is not a port number"),
        ({"origin": None, "suffix": '"a.test/path"'}, "'a.test/path' has a path"),
        ({"origin": None}, "origin is missing: state the site, such as https://example.com"),
        (
            {"origin": None, "owner": None, "site": '"https://a.test"', "max_dely": "1"},
            "owner, origin are missing: state who is responsible for it, the site, such as"
            " https://example.com (or suffix, a domain with all below it); 'site' is not known",
        ),
        ({"suffix": '"a.test"'}, "either origin or suffix"),
        ({"origin": '"a.test"'}, "write an origin as https://host"),
        ({"origin": '"ftp://a.test"'}, "write an origin as https://host"),
        ({"origin": None, "suffix": '"com"'}, "is a top-level domain"),
        ({"origin": None, "suffix": '"a.test:8443"'}, "suffix = 'a.test:8443' has a port"),
        ({"max_delay": None}, "it changes nothing: set one of action, robots_file, dialect"),
        ({"action": '"pass"'}, "max_delay has no effect with action = pass"),
        (
            {"action": '"maybe"', "max_delay": None},
            "action = 'maybe' is not known: use pass or drop",
        ),
        ({"max_delay": "-1"}, "max_delay = -1 is out of range: use 0 to 86400 seconds"),
        ({"max_delay": "nan"}, "max_delay = nan is out of range"),
        ({"dialect": '"rfc9310"'}, "rfc9310"),
        ({"on_restricted": '"open"'}, "on_restricted = 'open' is not known: use drop or allow"),
        ({"colour": '"red"'}, "'colour' is not known: known are: id, owner"),
        ({"max_dely": "1"}, "'max_dely' is not known: did you mean max_delay?"),
    ],
)
def test_an_invalid_override_has_no_effect_and_says_why(changes, why):
    good = entry(id='"good"', origin='"https://b.test"', max_delay="1")
    found = parse(entry(**{"max_delay": "1", **changes}) + good, BASE)

    assert [fault.which for fault in found.faults] == ["number 1" if "id" in changes else "one"]
    assert why in found.faults[0].why
    assert [each.exemption.id for each in found.entries] == ["good"]


def test_an_override_that_is_not_a_table_has_no_effect():
    assert parse("override = [3]", BASE).faults == (
        ("number 1", "3 is not a table: begin each override with [[override]]"),
    )


def test_duplicate_places_and_ids_are_faults():
    found = parse(
        entry(max_delay="1") + entry(id='"two"', max_delay="2") + entry(origin='"https://c.test"'),
        BASE,
    )

    assert [each.exemption.id for each in found.entries] == ["one"]
    assert [fault.which for fault in found.faults] == ["two", "one"]


@pytest.mark.parametrize("text", ["[[override]", "x = 1", "[override]\nid = 1", "override = 3"])
def test_a_file_that_is_not_valid_is_an_error(text):
    with pytest.raises(SettingsError):
        parse(text, BASE)


def test_an_empty_file_has_none():
    assert parse("", BASE).terms(origin_of("https://a.test"), BASE, NOW) is BASE


@given(st.text())
def test_only_settings_errors_are_raised(text):
    with contextlib.suppress(SettingsError):
        parse(text, BASE)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2026-11-30", "2026-11-30"),
        ("2027-01-01", "2027-01-01"),
        ("9999-12-31", "9999-12-31"),
        ("2026-11-30T18:00:00+01:00", "2026-11-30 17:00:00 UTC"),
    ],
)
def test_expiry_is_shown_as_it_was_written(written, shown):
    (override,) = parse(entry(expires=written, max_delay="1"), BASE).entries

    assert expiry(override.exemption.expires) == shown
