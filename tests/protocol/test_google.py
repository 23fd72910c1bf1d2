"""The topics of Google's test table, with our own files; `google_` marks what goes beyond RFC 9309."""

from __future__ import annotations

import pytest
from protocol.rows import ask


def allowed(body, url, agent="Ferret"):
    return ask(body, url, agent, "google").allowed


def test_line_syntax_a_group_needs_no_particular_spacing():
    for body in (
        "user-agent: Ferret\ndisallow: /\n",
        "user-agent:Ferret\ndisallow:/\n",
        " user-agent : Ferret \n disallow : / ",
    ):
        assert not allowed(body, "/x")


def test_line_syntax_other_lines_are_no_groups_and_no_rules():
    assert allowed("foo: Ferret\nsett: /\n", "/x")


def test_google_line_syntax_a_colon_may_be_missing_between_two_words():
    assert not allowed("user-agent Ferret\ndisallow /\n", "/x")
    assert allowed("user-agent Ferret\ndisallow / x\n", "/x")


def test_groups_share_rules_and_ignore_other_records_between():
    body = "allow: /den/sett/\n\nuser-agent: Ferret\ndisallow: /\nallow: /x/\n"
    body += "user-agent: Otter\ndisallow: /\nallow: /y/\n"
    body += "\n\nallow: /w/\nuser-agent: Badger\n\nuser-agent: Ferret\nallow: /z/\ndisallow: /\n"

    assert allowed(body, "/x/b")
    assert allowed(body, "/z/d")
    assert not allowed(body, "/y/c")
    assert allowed(body, "/y/c", "Otter")
    assert allowed(body, "/w/a", "Otter")
    assert not allowed(body, "/z/d", "Otter")
    assert allowed(body, "/z/d", "Badger")


def test_groups_only_allow_and_disallow_close_the_agents():
    for other in ("Sitemap: https://e.example/s.xml", "X-Note: hello"):
        body = f"User-agent: Otter\n{other}\nUser-agent: *\nDisallow: /\n"
        assert not allowed(body, "/", "Otter")
        assert not allowed(body, "/", "Ferret")


def test_field_names_have_no_case():
    for body in (
        "USER-AGENT: Ferret\nALLOW: /x/\nDISALLOW: /\n",
        "uSeR-aGeNt: Ferret\nAlLoW: /x/\ndIsAlLoW: /\n",
    ):
        assert allowed(body, "/x/y")
        assert not allowed(body, "/a/b")


def test_product_tokens_have_no_case_and_end_at_the_first_foreign_character():
    for name in ("MOLE HILL", "mole hill", "Mole/2.1"):
        assert not allowed(f"User-Agent: {name}\nDisallow: /\n", "/x", "Mole")
    assert allowed("User-agent: Mole\nDisallow: /\n", "/x", "Molehill")


def test_a_specific_group_beats_the_star_wherever_it_stands():
    body = "User-agent: *\nDisallow: /\nUser-agent: Ferret\nDisallow:\n"

    assert allowed(body, "/x")
    assert not allowed(body, "/x", "Otter")


def test_google_a_star_with_words_behind_it_is_a_star():
    assert not allowed("User-agent: * bib\nDisallow: /x\n", "/x")
    assert allowed("User-agent: *bib\nDisallow: /x\n", "/x")


def test_values_have_case():
    assert allowed("user-agent: Ferret\ndisallow: /X/\n", "/x/y")


@pytest.mark.parametrize(
    ("rules", "url", "expected"),
    [
        ("disallow: /x/page.html\nallow: /x/\n", "/x/page.html", False),
        ("allow: /x/page.html\ndisallow: /x/\n", "/x/page.html", True),
        ("allow: /x/page.html\ndisallow: /x/\n", "/x/", False),
        ("disallow: \nallow: \n", "/x/page.html", True),
        ("disallow: /\nallow: /\n", "/x/page.html", True),
        ("disallow: /x\nallow: /x/\n", "/x", False),
        ("allow: /page\ndisallow: /*.html\n", "/page.html", False),
        ("allow: /x/page.\ndisallow: /*.html\n", "/x/page.html", True),
        ("disallow: /x/page.html\nallow: /x/\n", "/x/", True),
    ],
)
def test_the_longest_match_decides_and_allow_wins_ties(rules, url, expected):
    assert allowed(f"user-agent: Ferret\n{rules}", url) is expected


def test_encoding_escapes_are_not_decoded():
    assert allowed(
        "User-agent: Ferret\nDisallow: /\nAllow: /den/sett/%E3%83%84\n", "/den/sett/%E3%83%84"
    )
    assert not allowed(
        "User-agent: Ferret\nDisallow: /\nAllow: /den/sett/%62%61%7A\n", "/den/sett/bib"
    )
    assert allowed(
        "User-agent: Ferret\nDisallow: /\nAllow: /den/sett/%62%61%7A\n", "/den/sett/%62%61%7A"
    )


def test_encoding_octets_of_a_rule_beyond_ascii_are_escaped():
    assert allowed(
        "User-agent: Ferret\nDisallow: /\nAllow: /den/sett/\u30c4\n", "/den/sett/%E3%83%84"
    )


@pytest.mark.parametrize(
    ("rule", "url", "blocked"),
    [
        ("/den/sett/burrow*", "/den/sett/burrow", True),
        ("/den/*/holt", "/den/sett/holt", True),
        ("/den/*/holt", "/den/burrow", False),
        ("/den/sett$", "/den/sett", True),
        ("/den/sett$", "/den/sett/", False),
        ("/den/sett$", "/den/sett?q", False),
        ("*.gif$", "/a/b.gif", True),
        ("/den*$", "/den/x", True),
        ("/a$b", "/a$b", True),
    ],
)
def test_special_characters(rule, url, blocked):
    assert allowed(f"User-agent: Ferret\nDisallow: {rule}\n", url) is not blocked


def test_a_hash_begins_a_comment():
    body = "User-agent: Ferret\n# Disallow: /\nDisallow: /den/burrow#holt\nAllow: /\n"

    assert allowed(body, "/den/sett")
    assert not allowed(body, "/den/burrow")


def test_google_index_html_is_its_directory():
    body = "User-Agent: *\nAllow: /shelf/index.html\nDisallow: /\n"

    assert not allowed(body, "/shelf/other.html")
    assert allowed(body, "/shelf/index.html")
    assert allowed(body, "/shelf/")
    assert not allowed(body, "/")


def test_google_long_lines_are_cut():
    long = "a" * 16_700
    body = f"user-agent: Ferret\ndisallow: /x/{long}/holt\n"

    assert allowed(body, "/none")
    assert not allowed(body, f"/x/{long}/none")


def test_google_does_not_exempt_robots_txt():
    assert not allowed("User-agent: *\nDisallow: /\n", "/robots.txt")


@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_a_byte_order_mark_only_counts_at_the_start(mark):
    assert not allowed(f"{mark}User-Agent: mole\nDisallow: /anything\n", "/anything", "mole")
    assert allowed("User-Agent: mole\n\ufeffAllow: /anything\nDisallow: /x\n", "/anything", "mole")


@pytest.mark.parametrize("field", ["dissallow", "dissalow", "disalow", "diasllow", "disallaw"])
def test_google_frequent_typos(field):
    assert not allowed(f"useragent: Ferret\n{field}: /x\n", "/x")
