"""The Host directive of yandex2003."""

from __future__ import annotations

import pytest
from protocol.rows import ask

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.directives import is_host_value
from robots_guard.protocol.ruleset import compile_rules

BODY = b"User-agent: *\nDisallow: /forum\nHost: www.myhost.ru:8080\nHost: main.example.ru\n"


def judge(host, port=0, scheme="http", target="/x", name="yandex2003"):
    return compile_rules(BODY, dialect(name), "Yandex").judge(target, host, port, scheme)


def test_a_mirror_is_disallowed_and_the_main_host_named():
    ruling = judge("mirror.ru")

    assert not ruling.allowed
    assert ruling.mirror_of == "www.myhost.ru:8080"
    assert ruling.rule is not None
    assert (ruling.rule.line, ruling.rule.pattern) == (3, "/")


def test_the_main_host_is_as_if_the_lines_were_absent():
    assert judge("www.myhost.ru", 8080).allowed
    assert not judge("www.myhost.ru", 8080, target="/forum/1").allowed
    assert judge("www.myhost.ru", 8080, target="/forum/1").mirror_of is None


@pytest.mark.parametrize(
    ("host", "port", "scheme", "is_main"),
    [
        ("main.example.ru", 0, "http", True),
        ("main.example.ru", 80, "http", True),
        ("MAIN.example.ru.", 80, "http", True),
        ("main.example.ru", 443, "https", True),
        ("main.example.ru", 8080, "http", False),
        ("www.myhost.ru", 0, "http", False),
    ],
)
def test_a_name_without_a_port_means_the_default_port_of_the_scheme(host, port, scheme, is_main):
    assert judge(host, port, scheme).allowed is is_main


def test_a_letter_that_is_ascii_only_in_lower_case_makes_no_host():
    assert not is_host_value("\u212aain.ru")  # the Kelvin sign


def test_robots_txt_of_a_mirror_may_be_read():
    assert judge("mirror.ru", target="/robots.txt").allowed


def test_without_a_host_the_directive_cannot_be_judged_and_is_not():
    assert judge("").allowed


def test_other_dialects_keep_the_line_without_effect():
    assert judge("mirror.ru", name="rfc9309").allowed
    assert [r.field for r in compile_rules(BODY, dialect("rfc9309"), "x").records] == [
        "host",
        "host",
    ]


def test_a_plain_target_is_judged_by_host_as_well_in_every_matching():
    for matching in ("spec", "standard", "strict"):
        rules = compile_rules(BODY, dialect("yandex2003"), "Yandex", matching)
        assert not rules.judge("/x", "mirror.ru").allowed


@pytest.mark.parametrize(
    "value", ["a" * 64 + ".ru", "ru", "", "a.ru:", "a.ru:+80", "a.ru:٣", "a.r\u0443", "[::1]"]
)
def test_wrong_arguments_beyond_those_of_the_seed(value):
    assert not is_host_value(value)


@pytest.mark.parametrize("value", ["xn--80aswg.xn--p1ai", "main.example.co.ck"])
def test_a_top_level_domain_may_be_international_or_have_only_rules_for_what_is_below_it(value):
    assert is_host_value(value)


def test_a_host_line_closes_a_run_of_agents():
    body = "User-agent: a\nHost: main.ru\nUser-agent: b\nDisallow: /x\n"

    assert ask(body, "http://main.ru/x", "a", "yandex2003").allowed


def test_a_host_name_is_253_octets_long_at_most():
    labels = ("a" * 49 + ".") * 5  # 250

    assert is_host_value("b" + labels + "ru")
    assert not is_host_value("bb" + labels + "ru")


@pytest.mark.parametrize(
    ("port", "is_valid"),
    [("", False), ("0", False), ("1", True), ("65535", True), ("65536", False), ("x", False)],
)
def test_a_port_is_a_number_from_1_to_65535(port, is_valid):
    assert is_host_value(f"main.ru:{port}") is is_valid


def test_a_mirror_ruling_has_the_host_line():
    rule = judge("mirror.ru").rule

    assert (rule.allow, rule.pattern, rule.line, rule.text) == (
        False,
        "/",
        3,
        "Host: www.myhost.ru:8080",
    )
    assert judge("mirror.ru").group == "*"


def test_another_scheme_has_the_default_port_of_http():
    assert judge("main.example.ru", 0, "gopher").allowed
    assert not judge("main.example.ru", 443, "http").allowed
