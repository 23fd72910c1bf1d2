"""RFC 9309, one test per clause; `extension_` and `choice_` where the RFC leaves a point open."""

from __future__ import annotations

import pytest
from protocol.rows import ask

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.robots import parse
from robots_guard.protocol.ruleset import compile_rules


def allowed(body, target, agent="examplebot", matching="spec"):
    return ask(body, target, agent, "rfc9309", matching).allowed


# --- 2.1 Protocol definition, 2.2 Formal syntax ---


def test_s2_2_1_a_group_may_have_several_user_agent_lines():
    body = "User-agent: a-bot\nUser-agent: b-bot\nDisallow: /x\n"

    assert not allowed(body, "/x", "a-bot")
    assert not allowed(body, "/x", "b-bot")
    assert allowed(body, "/x", "c-bot")


def test_s2_2_1_a_user_agent_line_after_a_rule_begins_a_group():
    body = "User-agent: a\nDisallow: /a\nUser-agent: b\nDisallow: /b\n"

    assert allowed(body, "/a", "b")
    assert allowed(body, "/b", "a")


def test_s2_2_1_names_are_compared_without_case():
    assert not allowed("User-agent: ExampleBot\nDisallow: /\n", "/x", "EXAMPLEbot")


def test_s2_2_1_names_are_equal_not_contained():
    body = "User-agent: example\nDisallow: /\n"

    assert allowed(body, "/x", "examplebot")
    assert allowed("User-agent: example-bot\nDisallow: /\n", "/x", "example")


def test_s2_2_1_groups_of_one_name_are_merged():
    body = "User-agent: examplebot\nDisallow: /a\nUser-agent: other\nDisallow: /\nUser-agent: EXAMPLEBOT\nDisallow: /b"

    assert not allowed(body, "/a")
    assert not allowed(body, "/b")
    assert allowed(body, "/c")


def test_s2_2_1_the_star_groups_apply_if_no_other_does():
    body = "User-agent: *\nDisallow: /a\nUser-agent: examplebot\nDisallow: /b\nUser-agent: *\nDisallow: /c\n"

    assert allowed(body, "/a")
    assert not allowed(body, "/a", "other")
    assert not allowed(body, "/c", "other")


def test_s2_2_1_without_a_group_there_are_no_rules():
    assert allowed("User-agent: other\nDisallow: /\n", "/x")


def test_s2_2_1_a_group_without_rules_allows():
    assert allowed("User-agent: *\nDisallow: /\nUser-agent: examplebot\n", "/x")


def test_s2_2_1_rules_before_any_group_are_ignored():
    assert allowed("Disallow: /\nUser-agent: examplebot\nDisallow: /b\n", "/a")


def test_s2_2_2_allow_and_disallow():
    body = "User-agent: *\nAllow: /a/b\nDisallow: /a\n"

    assert not allowed(body, "/a/c")
    assert allowed(body, "/a/b/c")


def test_s2_2_2_without_a_match_a_uri_is_allowed():
    assert allowed("User-agent: *\nDisallow: /a\n", "/b")


def test_s2_2_2_robots_txt_itself_is_allowed():
    body = "User-agent: *\nDisallow: /\n"

    ruling = ask(body, "/robots.txt", matching="standard")
    assert ruling.allowed
    assert ruling.exempt
    assert ruling.group == "*"


@pytest.mark.parametrize(
    "target", ["/Robots.txt", "/robots.txt?", "/a/robots.txt", "/robots.txt/", "//robots.txt"]
)
def test_s2_2_2_only_the_exact_path_is_robots_txt(target):
    assert not allowed("User-agent: *\nDisallow: /\n", target, matching="standard")


def test_s2_2_2_robots_txt_with_a_fragment_is_robots_txt_only_where_a_fragment_is_never_sent():
    body = "User-agent: *\nDisallow: /\n"

    assert ask(body, "/robots.txt#x", matching="spec").exempt
    assert not ask(body, "/robots.txt#x", matching="standard").allowed


def test_s2_2_2_matching_minds_the_case():
    assert allowed("User-agent: *\nDisallow: /Folder\n", "/folder")


def test_s2_2_2_the_match_begins_at_the_first_octet():
    assert allowed("User-agent: *\nDisallow: /b\n", "/a/b")


def test_s2_2_2_the_most_octets_win_in_any_order():
    for lines in ("Disallow: /a\nAllow: /a/b", "Allow: /a/b\nDisallow: /a"):
        assert allowed(f"User-agent: *\n{lines}\n", "/a/b")


def test_s2_2_2_allow_wins_a_tie():
    for lines in ("Disallow: /a\nAllow: /a", "Allow: /a\nDisallow: /a"):
        assert allowed(f"User-agent: *\n{lines}\n", "/a")


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True),
        ("/foo/bar/\u30c4", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%e3%83%84", "/foo/bar/\u30c4", True),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", True),
        ("/foo/bar/baz", "/foo/bar/%62%61%7A", True),
        ("/a%2Fb", "/a/b", False),
        ("/a/b", "/a%2fb", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/a%3Bb", "/a;b", False),
        ("/a b", "/a%20b", True),
    ],
)
def test_s2_2_2_escapes_of_unreserved_octets_are_decoded_and_odd_octets_encoded(
    pattern, target, matches
):
    assert allowed(f"User-agent: *\nDisallow: {pattern}\n", target) is not matches


def test_s2_2_3_a_hash_begins_a_comment():
    body = "# a\nUser-agent: * # b\n  # c\nDisallow: /x # /y\n#Disallow: /z\n"

    assert not allowed(body, "/x")
    assert allowed(body, "/y")
    assert allowed(body, "/z")


def test_s2_2_3_a_dollar_is_the_end():
    body = "User-agent: *\nDisallow: /a$\n"

    assert not allowed(body, "/a")
    assert allowed(body, "/ab")
    assert allowed(body, "/a?x")


def test_s2_2_3_a_star_is_any_octets_also_none():
    body = "User-agent: *\nDisallow: /a*c\n"

    assert not allowed(body, "/ac")
    assert not allowed(body, "/a/b/cd")
    assert allowed(body, "/a/b")


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", True),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-b.html", False),
        ("/path/foo-%24", "/path/foo-$", True),
        ("/path/foo-%24", "/path/foo-", False),
    ],
)
def test_s2_2_3_special_characters_are_written_as_escapes_to_be_matched(pattern, target, matches):
    assert allowed(f"User-agent: *\nDisallow: {pattern}\n", target) is not matches


def test_s2_2_4_other_records_do_not_disturb_a_group():
    body = "User-agent: a\nSitemap: https://e.example/s.xml\nUser-agent: b\nX-Unknown: y\nDisallow: /x\n"

    assert not allowed(body, "/x", "a")
    assert not allowed(body, "/x", "b")


def test_s2_2_4_other_records_are_kept_with_their_lines():
    robots = parse(
        b"Sitemap: https://e.example/s.xml\nUser-agent: *\nCrawl-delay: 5\n", dialect("rfc9309")
    )

    assert [(number, name) for number, name, _ in robots.others] == [
        (1, b"sitemap"),
        (3, b"crawl-delay"),
    ]
    assert [name for _, name, _ in robots.groups[0].others] == [b"crawl-delay"]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_s2_2_lines_end_in_cr_lf_or_both(end):
    assert not allowed(end.join(("User-agent: *", "Disallow: /x", "")), "/x")


def test_s2_2_no_other_character_ends_a_line():
    for char in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029":
        assert allowed(f"User-agent: *\nDisallow: /x{char}Disallow: /y\n", "/y")


def test_s2_2_blank_lines_mean_nothing():
    assert not allowed("User-agent: *\n\n\nDisallow: /x\n", "/x")


def test_s2_2_white_space_round_field_and_value_is_none_of_theirs():
    assert not allowed(" User-agent\t:\t* \n\tDISALLOW :/x \n", "/x")


def test_s2_3_a_byte_order_mark_is_no_part_of_the_file():
    assert not allowed(b"\xef\xbb\xbfUser-agent: *\nDisallow: /x\n", "/x")


def test_s2_3_1_5_lines_that_parse_count_in_a_file_that_does_not():
    body = "<html>\n<p>: : :\nUser-agent: *\n\0\xff\nDisallow: /x\n</html>"

    assert not allowed(body, "/x")


def test_s2_5_500_kibibytes_are_read():
    filler = b"#" * 99 + b"\n"
    body = b"User-agent: *\n" + filler * 5_118 + b"Disallow: /x\n"

    assert len(body) < 512_000
    assert not allowed(body, "/x")


def test_choice_s2_5_what_lies_beyond_is_cut_at_a_whole_line():
    body = b"User-agent: *\n" + b"Disallow: /abcdefgh\n" * 30_000
    rules = parse(body, dialect("rfc9309")).groups[0].rules

    assert {value for _, _, value in rules} == {b"/abcdefgh"}


def test_choice_a_token_is_cut_at_the_first_foreign_character():
    assert not allowed("User-agent: ExampleBot/2.1 (+https://e.example)\nDisallow: /x\n", "/x")
    assert not allowed("User-agent: * all of you\nDisallow: /x\n", "/x")


def test_choice_misspelt_fields_are_read():
    assert not allowed("Useragent: *\nDisalow: /x\n", "/x")
    assert not allowed("User-agent *\nDisallow /x\n", "/x")


def test_choice_an_empty_value_is_no_rule():
    assert not allowed("User-agent: *\nDisallow:\nDisallow: /x\nAllow:\n", "/x")


def test_a_ruling_names_rule_group_and_line():
    body = "# hello\nUser-agent: a\nUser-agent: *\n\nDisallow : /priv\u00e9/*  # no\n"
    ruling = ask(body, "/priv\u00e9/x")

    assert ruling.rule is not None
    assert (ruling.rule.line, ruling.rule.pattern, ruling.rule.allow) == (5, "/priv\u00e9/*", False)
    assert ruling.rule.text == "Disallow : /priv\u00e9/*"
    assert ruling.group == "a, *"
    assert (ruling.form, ruling.mirror_of, ruling.ambiguous, ruling.disagree) == (
        "spec",
        None,
        None,
        (),
    )


def test_matches_lists_every_rule_that_matches_by_precedence():
    body = b"User-agent: *\nDisallow: /\nAllow: /a\nDisallow: /b\nDisallow: /a/*/c$\nDisallow: /a\n"
    rules = compile_rules(body, dialect("rfc9309"), "examplebot")

    assert [rule.line for rule in rules.matches("/a/b/c")] == [5, 3, 6, 2]
    assert rules.matches("/a/b/c")[0] == rules.judge("/a/b/c").rule


def test_no_group_no_rule():
    ruling = ask("User-agent: other\nDisallow: /\n", "/x")

    assert (ruling.allowed, ruling.rule, ruling.group) == (True, None, None)


def test_a_pattern_with_a_space_in_it_is_one_pattern():
    """A value ends at the end of its line, not after its first word."""
    rules = compile_rules(b"User-agent: *\nDisallow: /a b\nAllow: /a\n", dialect("rfc9309"), "x")

    assert [rule.line for rule in rules.matches("/a%20b")] == [2, 3]
    assert (
        compile_rules(b"User-agent: y\nDisallow: /\n", dialect("rfc9309"), "x").matches("/") == []
    )
