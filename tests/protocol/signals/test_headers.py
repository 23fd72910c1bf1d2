"""Header fields: those that are read line by line, those that are joined, and those that are only
recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.signals.headers import FIELDS, header_statements
from robots_guard.protocol.signals.rules import FIELD_CAP
from robots_guard.protocol.signals.statement import (
    RAW_CAP,
    RECORDED,
    STATEMENTS,
    Flag,
    Place,
    Signal,
    is_restrictive,
)

URL = "https://a.example/dir/page"


def found(*headers, status=200, url=URL):
    return [
        (each.signal.value, each.agent, each.rule, each.value, *each.flags)
        for each in header_statements(headers, status, url)
    ]


def test_other_fields_say_nothing():
    headers = [("Server", "x"), ("X-Robots", "noindex"), ("Robots", "none"), ("TDM", "1")]

    assert header_statements(headers, 200) == ()
    assert header_statements((), 200) == ()


def test_lines_of_x_robots_tag_stay_apart():
    assert found(("X-Robots-Tag", "a: noindex"), ("x-robots-tag", "nofollow")) == [
        ("x-robots-tag", "a", "noindex", True),
        ("x-robots-tag", "*", "nofollow", True),
    ]


def test_a_statement_has_its_line_as_text():
    (statement,) = header_statements([("X-Robots-Tag", " noindex ")], 200)

    assert (statement.place, statement.raw) == (Place.HEADER, "X-Robots-Tag: noindex")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("*;noindex", [("*", "noindex", True)]),
        ("a;noindex, *;nosnippet", [("a", "noindex", True), ("*", "nosnippet", True)]),
        ("A/2;noindex", [("a", "noindex", True)]),
        ("*;noindex=?0", []),
        ("*;noindex=5", [("*", "noindex", True, Flag.MALFORMED)]),
        ("*;max-snippet=20", [("*", "max-snippet", 20)]),
        ('*;max-snippet="20"', [("*", "max-snippet", "", Flag.MALFORMED)]),
        ("*;max-snippet=-2", [("*", "max-snippet", "", Flag.MALFORMED)]),
        ("*;max-image-preview=none", [("*", "max-image-preview", "none")]),
        ("*;max-image-preview=x", [("*", "max-image-preview", "", Flag.MALFORMED)]),
        ("*;unavailable_after=@1277478000", [("*", "unavailable_after", 1277478000)]),
        (
            '*;unavailable_after="25 Jun 2010 15:00:00 GMT"',
            [("*", "unavailable_after", 1277478000)],
        ),
        ("*;unavailable_after=soon", [("*", "unavailable_after", "", Flag.UNREADABLE_DATE)]),
        ("*;indexifembedded", [("*", "indexifembedded", True, Flag.INDEXIFEMBEDDED)]),
        ("*;frobnicate", [("*", "frobnicate", True, Flag.UNKNOWN_RULE)]),
        ("a", []),
        ('"a";noindex', [("a", "noindex", True, Flag.LENIENT)]),
        (
            "(a b);noindex",
            [("a", "noindex", True), ("b", "noindex", True)],
        ),
        ("*;noindex,", [("*", "", "", Flag.MALFORMED)]),
        ("", []),
    ],
)
def test_robots_tag(value, expected):
    assert found(("Robots-Tag", value)) == [("robots-tag", *each) for each in expected]


def test_lines_of_robots_tag_are_joined():
    assert found(("Robots-Tag", "*;noindex"), ("Robots-Tag", ""), ("Robots-Tag", "a;none")) == [
        ("robots-tag", "*", "noindex", True),
        ("robots-tag", "a", "none", True),
    ]


def test_a_robots_tag_of_any_length_is_read():
    long = "a;x" * 30_000

    assert ("robots-tag", "*", "noindex", True, Flag.MALFORMED) in found(
        ("Robots-Tag", f"{long}, b;noindex")
    )


def test_lines_of_content_usage_are_joined():
    lines = [("Content-Usage", "train-ai=n"), ("content-usage", ""), ("Content-Usage", "search=y")]
    replaced = [("Content-Usage", "train-ai=n"), ("Content-Usage", "train-ai=y")]

    assert found(*lines) == [
        ("content-usage", "*", "train-ai", "n"),
        ("content-usage", "*", "search", "y"),
    ]
    assert found(*replaced) == [("content-usage", "*", "train-ai", "y")]


def test_a_content_signal_header_denies_only():
    assert found(("Content-Signal", "ai-train=no, search=yes")) == [
        ("content-signal", "*", "ai-train", "no", Flag.NONSTANDARD),
        ("content-signal", "*", "search", "", Flag.NONSTANDARD),
    ]


def test_tdm_headers():
    policy = ("tdm-policy", "https://p.example/")

    assert found(("TDM-Reservation", " 1 "), policy) == [
        ("tdm-reservation", "*", "tdm-reservation", 1),
        ("tdm-reservation", "*", "tdm-policy", "https://p.example/"),
    ]
    assert found(policy) == []


@pytest.mark.parametrize(
    ("value", "flags"), [("", ()), ("true", ()), ("/", ()), ("no", (Flag.MALFORMED,))]
)
def test_disallow_ai_training(value, flags):
    assert found(("DisallowAITraining", value)) == [
        ("disallow-ai-training", "*", "disallowaitraining", True, *flags)
    ]


RSL = 'type="application/rsl+xml"'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            f'<https://l.example/l.xml>; rel="license"; {RSL}',
            [("license", "https://l.example/l.xml")],
        ),
        (f"<https://l.example/l>;{RSL};rel=LICENSE", [("license", "https://l.example/l")]),
        (f'<https://l.example/l>; rel="next license"; {RSL}', [("license", "https://l.example/l")]),
        (f"</l.xml>; rel=license; {RSL}", [("license", "https://a.example/l.xml")]),
        (
            '<https://l.example/l>; rel=license; type="Application/RSL+xml; charset=x"',
            [("license", "https://l.example/l")],
        ),
        ("<https://cc.example/by>; rel=license", [("license-other", "https://cc.example/by")]),
        (
            f'</a>; rel=next, </x>; title="a, <b>; rel=license", </l>; rel=license; {RSL}',
            [("license", "https://a.example/l")],
        ),
        ('</l>; rel=license; anchor="/other"', []),
        (f'</l>; rel=license; anchor="{URL}"', [("license-other", "https://a.example/l")]),
        ('</l>; rel=license; anchor=""', [("license-other", "https://a.example/l")]),
        ("</l>; rel=next; rel=license", []),
        ("</l>; rev=license", []),
        ("</l>; rel=licenses", []),
        ("/l; rel=license", []),
        ('</l>; rel="license', [("license-other", "https://a.example/l")]),
        ("<http://[>; rel=license", [("license-other", "http://[")]),
    ],
)
def test_licence_links(value, expected):
    statements = header_statements([("Link", value)], 200, URL)

    assert [(each.rule, each.value) for each in statements] == expected


def test_a_relative_licence_needs_the_url():
    (statement,) = header_statements([("Link", "</l>; rel=license")], 200)

    assert (statement.value, statement.flags) == ("", (Flag.MALFORMED,))


@pytest.mark.parametrize(
    ("status", "value", "demands"),
    [
        (401, 'License error="invalid_request"', True),
        (402, "license", True),
        (403, 'Bearer realm="x", License', True),
        (503, "License", True),
        (200, "License", False),
        (401, 'Basic realm="x, License y"', False),
        (401, "Licensed x", False),
        (401, "Basic license", False),
    ],
)
def test_a_demand_for_a_licence(status, value, demands):
    expected = [("payment", "*", "license-required", True)] if demands else []

    assert found(("WWW-Authenticate", value), status=status) == expected


def test_a_price_is_recorded_at_any_status():
    assert found(("Crawler-Price", " USD 0.01 ")) == [("payment", "*", "crawler-price", "USD 0.01")]
    assert found(("crawler-price", " ")) == []
    assert found(("crawler-charged", "USD 0.01"), status=402) == []


# --- Invariants and limits ---

NAMES = sorted(name for name in FIELDS if name != "link")
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        (
            *(
                "noindex",
                "a: none",
                "*;noindex",
                "train-ai=n",
                "train-ai=y",
                "ai-train=no",
                "0",
                "1",
            ),
            *("unavailable_after: 2020-01-01", "max-snippet:3", "search=n, ai-use=n", "1, 0", ""),
        )
    ),
)
HEADERS = st.lists(st.tuples(st.sampled_from([*NAMES, "Link", "Server"]), VALUES), max_size=5)


@given(HEADERS, st.sampled_from([200, 401, 402]))
def test_no_header_raises(headers, status):
    for each in header_statements(headers, status, URL):
        assert len(each.raw) <= RAW_CAP
        assert isinstance(each.signal, Signal)
        each.raw.encode()


@given(HEADERS, HEADERS)
def test_more_headers_keep_each_denial(first, second):
    """Structured fields excepted: their lines are one value, whose last member counts, and in which
    one error hides all of Robots-Tag."""
    joined = ("content-usage", "robots-tag")
    denied = {_meaning(each) for each in header_statements(first, 200) if is_restrictive(each)}

    kept = {_meaning(each) for each in header_statements(first + second, 200)}
    assert {each for each in denied if each[0] not in joined} <= kept


def _meaning(each):
    return each.signal.value, each.agent, each.rule, each.value


def test_the_number_of_statements_is_limited():
    headers = [("X-Robots-Tag", f"bot{number}: noindex") for number in range(100_000)]

    statements = header_statements([*headers, ("X-Robots-Tag", "z: noai")], 200)

    assert len(statements) < STATEMENTS + 10
    assert ("*", "noai") in {(each.agent, each.rule) for each in statements}


@pytest.mark.parametrize(
    ("name", "denied"),
    [
        ("X-Robots-Tag", {"noindex", "nosnippet", "noarchive", "noai", "none"}),
        ("Robots-Tag", {"noindex", "nosnippet", "noarchive", "noai", "none"}),
        ("Content-Usage", {"train-ai", "ai-use", "search"}),
        ("Content-Signal", {"search", "ai-input", "ai-train"}),
    ],
)
@pytest.mark.parametrize("lines", [1, 1000])
def test_a_field_that_is_too_long_denies_what_it_can(name, denied, lines):
    """It is not read: a doubtful no counts."""
    value = '"\\' * (FIELD_CAP // 2 // lines)
    too_long = [(name, value)] * (lines + 1)

    statements = header_statements(too_long, 200)

    assert denied <= {each.rule for each in statements if is_restrictive(each)}
    assert {(each.agent, each.flags) for each in statements} == {("*", (Flag.MALFORMED,))}
    assert header_statements([(name, " " * (FIELD_CAP - 1))], 200) == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [("X-Robots-Tag", "noindex, " * 100)] * (n // 50),
        lambda n: [("Robots-Tag", "*;noindex")] * n,
        lambda n: [("Content-Usage", "train-ai=n")] * n,
        lambda n: [("tdm-reservation", "1"), ("tdm-policy", "x")] * n,
        lambda n: [("Link", "<" * 20 * n + "license")],
        lambda n: [("Link", "<a>;rel=license," * n)],
        lambda n: [("Link", "<a>" + ';license="' * n)],
        lambda n: [("Link", "<a>" + " ;" * n + "license")],
        lambda n: [("WWW-Authenticate", ", " * 20 * n)],
        lambda n: [("WWW-Authenticate", '"\\' * 20 * n)],
        lambda n: [("Link", '<a>;license="\\' * n)],
        lambda n: [("crawler-price", "x" * n)] * 10,
    ],
)
def test_the_time_is_linear(make):
    assert growth(lambda headers: header_statements(headers, 401, URL), make, 1_500) < LINEAR


@pytest.mark.parametrize("name", ["X-Robots-Tag ", "x-robots-tag\t", " X-ROBOTS-TAG"])
def test_blanks_around_a_name_do_not_hide_its_field(name):
    assert found((name, "noindex")) == [("x-robots-tag", "*", "noindex", True)]


@pytest.mark.parametrize("value", ["\t*;noindex\t", "\r\n\t*;noindex", " *;noindex \t "])
def test_blanks_around_a_value_do_not_make_it_malformed(value):
    assert found(("Robots-Tag", value)) == [("robots-tag", "*", "noindex", True)]


def test_the_number_of_prices_is_limited():
    prices = [("crawler-price", f"USD {number}") for number in range(10 * STATEMENTS)]

    assert len(found(*prices)) <= STATEMENTS + 10


def test_the_number_of_licences_is_limited_more():
    links = [("Link", f"</{number}>; rel=license") for number in range(STATEMENTS)]
    statements = found(*links, ("X-Robots-Tag", "noindex"))

    assert len(statements) <= RECORDED + 10
    assert ("x-robots-tag", "*", "noindex", True) in statements
