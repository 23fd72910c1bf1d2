"""TDMRep: 0 counts only in the form of the report, and 1 in other forms too."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.signals.statement import Flag, Place, Signal
from robots_guard.protocol.signals.tdmrep import read_file, read_values

MALFORMED, LENIENT = Flag.MALFORMED, Flag.LENIENT


def values(*reservations, policies=()):
    statements = read_values(reservations, policies, place=Place.HEADER)
    return [(each.value, *each.flags) for each in statements]


@pytest.mark.parametrize(
    ("reservations", "expected"),
    [
        (["1"], [(1,)]),
        (["0"], [(0,)]),
        ([" 1 "], [(1,)]),
        (["2"], [("", MALFORMED)]),
        (["true"], [("", MALFORMED)]),
        ([""], [("", MALFORMED)]),
        (["11"], [("", MALFORMED)]),
        (['"1"'], [(1, LENIENT)]),
        (["1;x"], [(1, LENIENT)]),
        (["1.0"], [(1, LENIENT)]),
        (['"0"'], [("", MALFORMED)]),
        (["0.0"], [("", MALFORMED)]),
        # Headers that a cache has joined, and several of them.
        (["0, 1"], [(1, LENIENT)]),
        (["0, 0"], [("", MALFORMED)]),
        (["0", "1"], [("", MALFORMED), (1,)]),
        (["1", "0"], [(1,), ("", MALFORMED)]),
        (["0", "x"], [("", MALFORMED)]),
        (["0", "0"], [(0,)]),
        ([], []),
    ],
)
def test_values(reservations, expected):
    assert values(*reservations) == expected


@pytest.mark.parametrize(
    ("reservation", "policies", "expected"),
    [
        ("1", ["https://p.example/x"], ["https://p.example/x"]),
        ("1", [" https://p.example/x ", ""], ["https://p.example/x"]),
        ("0", ["https://p.example/x"], []),
        ("2", ["https://p.example/x"], []),
    ],
)
def test_a_policy_needs_a_reservation(reservation, policies, expected):
    statements = read_values([reservation], policies, place=Place.PAGE)

    assert [each.value for each in statements if each.rule == "tdm-policy"] == expected
    assert {each.signal for each in statements} == {Signal.TDM}


def file(*entries):
    return read_file(json.dumps(entries).encode())


def at(tdm, target, matching="standard"):
    return [(each.value, *each.flags) for each in tdm.statements(target, matching)]


def entry(location, reservation, **more):
    return {"location": location, "tdm-reservation": reservation, **more}


def test_the_first_match_counts():
    tdm = file(entry("/a/", 0), entry("/a/b", 1), entry("/", 1, **{"tdm-policy": "https://p"}))

    assert at(tdm, "/a/b") == [(0,)]
    assert at(tdm, "/c") == [(1,), ("https://p",)]


@pytest.mark.parametrize(
    ("location", "target", "matches"),
    [
        ("/*.pdf$", "/a/b.pdf", True),
        ("/*.pdf$", "/a/b.pdf?x", False),
        ("/a b", "/a%20b", True),
        ("/\u00e9", "/%C3%A9", True),
        ("/%7Ea", "/~a", True),
        ("*", "/x", True),
        ("a/", "/a/b", True),
        ("https://x.example/a", "/a", True),
        ("https://x.example", "/a", True),
        ("/a\nb", "/a%0Ab", True),
        ("/a", "/x/../a", True),
        ("/a", "//a", True),
        ("/A", "/a", False),
        ("/", "/", True),
    ],
)
def test_locations(location, target, matches):
    assert bool(at(file(entry(location, 1)), target)) is matches


def test_letter_case_is_ignored_in_the_strict_profile_and_for_reservations_only():
    assert at(file(entry("/A", 1)), "/a", "strict") == [(1,)]
    assert at(file(entry("/A", 0)), "/a", "strict") == []


def test_another_form_of_the_target_adds_a_reservation():
    tdm = file(entry("/a", 1), entry("/", 0))

    assert at(tdm, "/x/../a") == [(0,), (1,)]
    assert at(tdm, "/x/../a", "spec") == [(0,)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[]", []),
        (b"", [("", MALFORMED)]),
        (b"{not json", [("", MALFORMED)]),
        (b"1", [("", MALFORMED)]),
        (b"[" * 100_000, [("", MALFORMED)]),
        (b"\xff\xfe", [("", MALFORMED)]),
        (b'\xef\xbb\xbf[{"location": "/", "tdm-reservation": 1}]', [(1,)]),
        (b'[{"location": "/", "tdm-reservation": "1"}]', [(1, LENIENT)]),
        (b'[{"location": "/", "tdm-reservation": 1.0}]', [(1, LENIENT)]),
        (b'[{"location": "/", "tdm-reservation": "0"}]', [("", MALFORMED)]),
        (b'[{"location": "/", "tdm-reservation": true}]', [("", MALFORMED)]),
        (b'[{"location": "/", "tdm-reservation": null}]', [("", MALFORMED)]),
        (b'[{"location": "/"}]', [("", MALFORMED)]),
        (b'[{"location": "/", "TDM-Reservation": 1}]', [(1, LENIENT)]),
        (b'[{"location": "/", "tdm_reservation": 0}]', [("", MALFORMED)]),
        # A repeated name does not withdraw a reservation.
        (b'[{"location": "/", "tdm-reservation": 1, "tdm-reservation": 0}]', [(1,)]),
        (b'[{"location": "/", "tdm-reservation": 0, "tdm-reservation": 1}]', [(1, LENIENT)]),
        (b'[{"location": "/", "tdm-reservation": 0, "tdm-reservation": 0}]', [("", MALFORMED)]),
        # An entry without a location is skipped, and one without a value is no match.
        (b'[7, {"location": "/", "tdm-reservation": 1}]', [("", MALFORMED), (1,)]),
        (b'[{"tdm-reservation": 1}]', [("", MALFORMED)]),
        (
            b'[{"location": "/p", "tdm-reservation": 9}, {"location": "/", "tdm-reservation": 1}]',
            [("", MALFORMED), (1,)],
        ),
        (
            b'[{"location": "/p", "tdm-reservation": 9}, {"location": "/", "tdm-reservation": 0}]',
            [("", MALFORMED)],
        ),
        # An object in place of the array reserves at most.
        (b'{"tdm-reservation": 1}', [(1, LENIENT)]),
        (b'{"tdm-reservation": 0}', [("", LENIENT)]),
        (b'{"location": "/x", "tdm-reservation": 1}', []),
        (b'{"rules": [{"location": "/", "tdm-reservation": 1}]}', [(1, LENIENT)]),
        (b'{"rules": [{"location": "/", "tdm-reservation": 0}]}', [("", LENIENT)]),
        (b"{}", [("", MALFORMED)]),
    ],
)
def test_files(body, expected):
    assert at(read_file(body), "/page") == expected


def test_statements_can_be_encoded():
    body = b'[{"location": "/", "tdm-reservation": 1, "tdm-policy": "\\ud800x"}]'

    for each in read_file(body).statements("/"):
        assert each.place is Place.TDMREP_FILE
        (each.raw + str(each.value)).encode()


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-1, 2),
        st.floats(allow_nan=False),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["location", "tdm-reservation", "tdm-policy", "TDM-RESERVATION", "x"]),
            st.one_of(inner, st.sampled_from(["/", "/p*", "/page$", 0, 1, "1"])),
            max_size=4,
        ),
    ),
)


@given(st.one_of(st.binary(), JSON.map(lambda value: json.dumps(value).encode())), st.text())
def test_no_file_raises(body, target):
    for each in read_file(body).statements(target):
        assert each.value in (0, 1, "") or each.rule == "tdm-policy"


@given(st.lists(st.text(max_size=6)), st.lists(st.text(max_size=6)))
def test_no_value_raises_and_none_withdraws_a_reservation(first, second):
    reserved = any(value[0] == 1 for value in values(*first))

    assert any(value[0] == 1 for value in values(*first, *second)) >= reserved


@given(st.lists(st.sampled_from([0, 1, "1", "0", 5]), max_size=5), JSON)
def test_a_later_entry_withdraws_no_reservation(reservations, more):
    """Entries are read in order, so only an earlier one can replace another."""
    entries = [entry("/", value) for value in reservations]
    reserved = any(value[0] == 1 for value in at(file(*entries), "/p"))

    assert any(value[0] == 1 for value in at(file(*entries, more), "/p")) >= reserved


@pytest.mark.parametrize(
    "make",
    [
        lambda n: json.dumps([entry(f"/{i}*x", 1) for i in range(n)]).encode(),
        lambda n: json.dumps([entry("/" + "*a" * 20 + "b$", 9) for _ in range(n)]).encode(),
        lambda n: b'[{"location": "/", "tdm-reservation": [' * n,
        lambda n: b'{"a":' * n,
    ],
)
def test_the_time_is_linear(make):
    assert growth(lambda body: read_file(body).statements("/" + "a" * 500), make, 300) < LINEAR


def test_an_entry_may_be_as_deep_as_can_be_read():
    deep = "[" * 600 + "]" * 600
    file = read_file(f'[{{"location": "/", "tdm-reservation": 1, "x": {deep}}}]'.encode())

    def deeper(levels):
        return deeper(levels - 1) if levels else file.statements("/a")

    assert [each.value for each in deeper(500)] == [1]


@pytest.mark.parametrize("note", [b"\x1b", b"\xe9", b"a\nb"])
@pytest.mark.parametrize(("value", "read"), [(b"1", 1), (b"0", "")])
def test_a_file_that_is_not_quite_json_can_reserve_only(note, value, read):
    file = read_file(b'[{"location": "/", "tdm-reservation": %b, "note": "%b"}]' % (value, note))
    statements = file.statements("/a")

    assert [each.value for each in statements] == ["", read]
    assert {flag for each in statements for flag in each.flags} >= {MALFORMED, LENIENT}
