"""The normal forms of a target."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from protocol.slow_forms import slow_folded, slow_variants

from robots_guard.errors import SettingsError
from robots_guard.origin import wire_text
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import (
    MATCHINGS,
    folded,
    forms_of,
    is_plain,
    malformed,
    matching,
    variants,
)
from robots_guard.protocol.percent import canonical, canonical_rules
from robots_guard.protocol.ruleset import compile_rules

TARGETS = st.text(alphabet="ab/.;?#%2eEfF5cC7\\ é*$", max_size=24).map(
    lambda text: wire_text("/" + text)
)
#: Most targets are like these.
PLAIN_TARGETS = st.text(alphabet="ab/.?E0!&'(+,-:=@[]_~", max_size=12).map(lambda text: "/" + text)


@pytest.mark.parametrize(
    ("target", "form"),
    [
        ("/a/b?c=d&e=/../", "/a/b?c=d&e=/../"),
        ("/%7Ejoe/%7ejoe", "/~joe/~joe"),
        ("/%2f%2F%3c", "/%2F%2F%3C"),
        ("/%2570", "/%2570"),
        ("/%zz/%/%4", "/%zz/%/%4"),
        ("/a*b$c$", "/a%2Ab%24c%24"),
        (wire_text("/é"), "/%C3%A9"),
        ('/a b"<>^`{|}\\', "/a%20b%22%3C%3E%5E%60%7B%7C%7D%5C"),
    ],
)
def test_the_canonical_form_of_a_target(target, form):
    assert canonical(target) == form


def test_in_a_rule_stars_and_a_last_dollar_are_operators():
    assert canonical_rules("/*a$b*$") == "/*a%24b*$"


def test_text_is_encoded_as_utf8():
    assert wire_text("/é") == "/\xc3\xa9"
    assert wire_text("/a") == "/a"
    assert wire_text("/\udc80") == "/\x80"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/a", None),
        ("/a#b", None),
        ("/%00", None),
        ("/\xe9", None),
        ("", "no leading slash"),
        ("a/b", "no leading slash"),
        ("*", "no leading slash"),
        ("http://e.example/", "no leading slash"),
        ("/a b", "byte 0x20"),
        ("/a\tb", "byte 0x09"),
        ("/a\0", "byte 0x00"),
        ("/a\x7f", "byte 0x7f"),
        ("/a\\b", "backslash"),
        ("/" + "a" * 8_191, None),
        ("/" + "a" * 8_192, "longer than 8192 bytes"),
    ],
)
def test_malformed_targets(target, reason):
    assert malformed(target) == reason


def test_only_spec_accepts_malformed_targets():
    assert [matching(name).refuses_malformed for name in MATCHINGS] == [False, True, True]


def test_an_unknown_matching_is_refused():
    with pytest.raises(
        SettingsError, match="'lax' is not known; use one of spec, standard, strict"
    ):
        matching("lax")


@pytest.mark.parametrize(
    ("target", "form"),
    [
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/../b", "/b"),
        ("/a/b/..", "/a/"),
        ("/a/.", "/a/"),
        ("/a//b", "/a/b"),
        ("/a/..;x=1/b", "/b"),
        ("/a;x/b;y", "/a/b"),
        ("/a//../b", "/b"),
        ("//host/b", "/b"),
        ("/a#/../../b", "/b"),
        ("/a\xe9", "/a%C3%A9"),
        ("/a/../b?q=/../c", "/b?q=/../c"),
    ],
)
def test_a_form_a_server_may_resolve_to_is_among_the_variants(target, form):
    assert form in list(variants(target))


@pytest.mark.parametrize(
    "target", ["/a..b", "/a/...", "/.well-known/x", "/a?b=/../c", "/%252e%252e/a", "/a%3Bx"]
)
def test_data_is_not_resolved(target):
    assert list(variants(target)) == [canonical(target)]


def test_encoded_slashes_are_folded_in_the_path_only():
    forms = [text for form in variants("/a%2Fb%5cc?d=%2F") for text, _ in folded(form)]

    assert forms == ["/a/b/c?d=%2F"]


@settings(max_examples=400)
@given(TARGETS)
def test_canonical_is_stable_on_what_has_no_lone_percent(target):
    form = canonical(target)
    assume("%" not in target.replace("%2", "").replace("%7", ""))

    assert canonical(form) == form


@settings(max_examples=400)
@given(TARGETS | PLAIN_TARGETS)
def test_a_plain_target_has_no_other_form(target):
    assume(is_plain(target))

    assert list(variants(target)) == [target]


#: Joined at random, they reach the steps that are rarely needed, and combinations of them.
PARTS = st.sampled_from(
    ("/", "//", "/..", "/.", "..", ".", ";", ";x", "%2F", "%5c", "%2e", "%2E%2e", "%", "%zz", "%41")
) | st.sampled_from(("%32F", "#", "?", "?b", "\xa0", "\xc3\xa9", "h:80", "u@h", "a", "B", "*", "|"))
BUILT_TARGETS = st.lists(PARTS, max_size=10).map("".join)


@settings(max_examples=1_000)
@given(BUILT_TARGETS | BUILT_TARGETS.map("/".__add__) | TARGETS | st.text(max_size=10))
def test_short_cuts_change_no_form_no_order_and_no_step(target):
    forms = variants(target)

    assert list(forms.items()) == list(slow_variants(target).items())
    for form in forms:
        # Of equal forms only the first decides.
        assert dict(reversed(folded(form))) == dict(reversed(slow_folded(form)))
        assert [text for text, _ in folded(form)][:1] == [text for text, _ in slow_folded(form)][:1]


@settings(max_examples=1_000)
@given(BUILT_TARGETS | BUILT_TARGETS.map("/".__add__) | TARGETS | st.text(max_size=10))
def test_the_forms_without_their_steps_are_those_of_both_profiles(target):
    named = slow_variants(target)
    folded_forms = {text for form in named for text, _ in slow_folded(form)}

    forms = forms_of(target)

    assert forms[0] == next(iter(named))
    assert set(forms) == named.keys() | folded_forms


@pytest.mark.parametrize(
    ("target", "forms"),
    [
        ("/a%20b?c=//d", ["/a%20b?c=//d"]),
        ("/%c3%a9|*", ["/%C3%A9%7C%2A"]),
        ("/a//b?c", ["/a//b?c", "/a/b?c"]),
        ("/a/../b", ["/a/../b", "/b"]),
        ("/a/..?", ["/a/..?", "/?", "/?", "/a/..", "/", "/"]),
        ("/a%2fb%5C?%2F", ["/a%2Fb%5C?%2F", "/a/b/?%2F"]),
        ("/a%2F/b", ["/a%2F/b", "/a//b", "/a/b"]),
        ("/%%326", ["/%26", "/%2526"]),
        ("/a;b", ["/a;b", "/a"]),
        ("../%2e", ["/../.", "/", "/."]),
    ],
)
def test_a_target_and_its_forms(target, forms):
    assert list(dict.fromkeys(forms_of(target))) == list(dict.fromkeys(forms))


@settings(max_examples=300)
@given(st.text(max_size=40))
def test_no_text_makes_the_forms_raise(text):
    malformed(text)
    wire_text(text)
    for variant in variants(text):
        folded(variant)


def test_the_forms_of_a_long_hostile_target_are_few():
    target = "/" + "//./..;x/%2e%2e/;a=b" * 400

    assert len(list(variants(target))) <= 50


@pytest.mark.parametrize("rule", ["/a.pdf$", "/*.pdf$"])
@pytest.mark.parametrize("target", ["/a.pdf?", "/a%2epdf?", "//a.pdf?"])
def test_an_empty_query_does_not_evade_an_end_anchor(rule, target):
    ruling = compile_rules(
        f"User-agent: *\nDisallow: {rule}\n".encode(), dialect("rfc9309"), "mybot"
    ).judge(target)

    assert not ruling.allowed
    assert "empty-query" in ruling.form


def test_a_query_of_something_is_another_resource():
    rules = compile_rules(b"User-agent: *\nDisallow: /a.pdf$\n", dialect("rfc9309"), "mybot")

    assert rules.judge("/a.pdf?x").allowed


def test_octets_behind_a_number_sign_are_read_as_latin_1_too():
    body = "User-agent: *\nDisallow: /é\n".encode()

    assert not compile_rules(body, dialect("rfc9309"), "x").judge("/y/../..;x#/\xe9").allowed


UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"


@pytest.mark.parametrize("octet", range(256))
def test_an_escape_is_decoded_if_its_octet_is_unreserved_and_else_written_in_capitals(octet):
    """RFC 3986 section 6.2.2: both spellings of the hexadecimal digits are one escape."""
    written = chr(octet) if chr(octet) in UNRESERVED else f"%{octet:02X}"

    assert canonical(f"/%{octet:02X}") == canonical(f"/%{octet:02x}") == "/" + written


@pytest.mark.parametrize("target", ["/", "/a/b.html", "/a?b=c", "/~x:@!&"])
def test_a_target_of_common_characters_is_plain(target):
    assert is_plain(target)


@pytest.mark.parametrize(
    "target",
    ["", "a", "//", "/a//b", "/.", "/a/../b", "/a?", "/%41", "/a b", "/é", "/a*", "/a$", "/a;b"],
)
def test_a_target_with_another_form_is_not_plain(target):
    assert not is_plain(target)


@pytest.mark.parametrize("target", ["/a", "/a%20b", "/a%3Fb?c=%2F", "/a..b", "/a?b=//c/../d;e"])
def test_a_target_that_every_server_reads_the_same_has_one_form(target):
    assert variants(target) == {canonical(target): "percent-encoding"}


@pytest.mark.parametrize("target", ["/a#b", "/a?", "/a\xe9", "/a%zz", "/a//b", "/a;b", "/a/./b"])
def test_a_target_that_some_server_reads_differently_has_several(target):
    assert len(variants(target)) > 1


@pytest.mark.parametrize(
    ("target", "forms"),
    [
        ("/a/..", {"/a/..", "/"}),
        ("/a/b/..", {"/a/b/..", "/a/", "/a"}),
        ("/a/.", {"/a/.", "/a/", "/a"}),
        ("/b/..;x", {"/b/..;x", "/b/..", "/b/../;x", "/", "/;x"}),
    ],
)
def test_a_last_dot_segment_names_the_directory_and_to_a_file_system_the_file(target, forms):
    assert set(variants(target)) == forms


def test_a_form_names_all_the_steps_that_led_to_it():
    forms = [each for form in variants("/a%2F..%2Fb") for each in folded(form)]

    assert forms[:2] == [("/a/../b", "encoded-slash"), ("/b", "encoded-slash+dots")]


def test_trimming_by_node_is_a_step():
    assert "trimmed" in variants("/private\xa0").values()


def test_a_surrogate_that_a_caller_left_in_a_target_is_read_as_its_octets():
    assert "/%ED%B2%80" in variants("/\udc80")
