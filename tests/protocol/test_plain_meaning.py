"""What an author plainly meant to close is closed: invisible characters, several lines in one,
several names on a line, slips in a field, and names with digits."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from protocol.rows import ask

from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.lines import INVISIBLE, kind_of_binary, lines
from robots_guard.protocol.robots import can_compare
from robots_guard.protocol.ruleset import compile_rules

CLOSED = "User-agent: *\nDisallow: /private/\n"

#: Files whose author forbids /private/ to every crawler.
MEANT = {
    "no-break space before the field": "User-agent: *\n\xa0Disallow: /private/\n",
    "no-break space behind the colon": "User-agent:\xa0*\nDisallow:\xa0/private/\n",
    "no-break space before the colon": "User-agent\xa0: *\nDisallow\xa0: /private/\n",
    "no-break space behind the path": "User-agent: *\xa0\nDisallow: /private/\xa0\n",
    "no-break space before a comment": "User-agent: *\xa0# all\nDisallow: /private/\xa0# secret\n",
    "no-break space instead of the space in a field": "User\xa0agent: *\nDisallow: /private/\n",
    "ideographic space": "User-agent: *\u3000# 全部\nDisallow: /private/\u3000# 秘密\n",
    "zero-width space": "\u200bUser-agent: *\n\u200bDisallow:\u200b /private/\u200b\n",
    "soft hyphen in a field": "User-agent: *\nDis\xadallow: /private/\n",
    "direction mark": "User-agent: *\nDisallow: \u202a/private/\u202c\n",
    "no colon, and a no-break space": "User-agent: *\nDisallow\xa0/private/\n",
    "Latin-1": "User-agent:\xa0*\nDisallow:\xa0/private/\n".encode("latin-1"),
    "Latin-1, behind the path": "User-agent: *\xa0\nDisallow: /private/\xa0 # caf\xe9\n".encode(
        "latin-1"
    ),
    "a mark in the middle": "User-agent: q\nDisallow: /\n\n\ufeffUser-agent: *\nDisallow: /private/\n",
    "a mark before a rule": "User-agent: *\n\ufeffDisallow: /private/\n",
    "two marks": "\ufeff\ufeffUser-agent: *\nDisallow: /private/\n",
    "a mark where files were joined": "User-agent: q\nDisallow: /\ufeffUser-agent: *\nDisallow: /private/\n",
    "a mark that was encoded twice": "ï»¿User-agent: *\nDisallow: /private/\n",
    "full-width colon, star and slash": "User-agent：＊\nDisallow：／private/\n",
    "two colons": "User-agent：: *\nDisallow: /private/\n",
    "non-breaking hyphen": "User\u2011agent: *\nDisallow: /private/\n",
    "<BR>": "User-agent: *<BR>\nDisallow: /private/<BR>\n",
    "tags around lines": "<html><body><p>User-agent: *</p>\n<p>Disallow: /private/</p></body></html>\n",
    "one line with tags": "User-agent: *<br />Disallow: /private/<br />\n",
    "tags in a value": "User-agent: <b>*</b>\nDisallow:&nbsp;<i>/private/</i>\n",
    "line feeds in letters": r"User-agent: *\nDisallow: /private/\n",
    "carriage returns and line feeds in letters": r"User-agent: *\r\n\r\nDisallow: /private/",
    "Desallow": "User-agent: *\nDesallow: /private/\n",
    "Disallwo": "User-agent: *\nDisallwo: /private/\n",
    "Usr-agent": "Usr-agent: *\nDisallow: /private/\n",
    "Useg-agent": "Useg-agent: *\nDisallow: /private/\n",
    "a list with a star": "User-agent: onebot, *\nDisallow: /private/\n",
    "a star with a comma": "User-agent: *,\nDisallow: /private/\n",
    "a star in quotation marks": 'User-agent: "*"\nDisallow: /private/\n',
    "a list of names": "User-agent: onebot, examplebot, twobot\nDisallow: /private/\n",
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_plainly_closed_is_closed(name):
    assert not ask(MEANT[name], "/private/x").allowed
    assert ask(MEANT[name], "/public/x").allowed


@pytest.mark.parametrize("name", ["koster1994", "koster1996", "bing", "yandex", "slurp2006"])
def test_invisible_characters_close_in_every_dialect_but_googles(name):
    for text in (
        "User-agent:\xa0*\n\ufeffDisallow:\xa0/private/\n",
        "User-agent: *<br>\nDisallow: /private/<br>\n",
    ):
        assert not ask(text, "/private/x", name=name).allowed


#: Where Google's library happens to read the same: it looks only at how a field begins.
GOOGLES_TOO = {"no-break space before the colon", "two colons"}


@pytest.mark.parametrize("name", sorted(MEANT.keys() - GOOGLES_TOO))
def test_google_reads_as_its_library_does(name):
    assert ask(MEANT[name], "/private/x", name="google").allowed


def test_all_invisible_characters_are_known():
    wanted = {
        chr(point)
        for point in range(0x80, sys.maxunicode + 1)
        if unicodedata.category(chr(point)) in ("Zs", "Zl", "Zp", "Cf")
    }

    assert wanted <= set(INVISIBLE)


@pytest.mark.parametrize(
    "path", ["/caf\xe9", "/\u0e01\u0e32", "/x\u0308", "/\u6f22\u5b57", "/\U0001f600"]
)
def test_visible_characters_at_an_end_stay(path):
    assert not ask(f"User-agent: *\nDisallow: {path}\n", path).allowed
    assert ask(f"User-agent: *\nDisallow: {path}\n", path[:-1] + "x").allowed


def test_a_byte_of_a_character_is_no_latin_1_space():
    # "à" ends with the byte 0xA0 in UTF-8.
    assert ask("User-agent: *\nDisallow: /à\n", "/%C3%A1").allowed


def test_lines_keep_their_numbers_where_one_was_several():
    body = b"User-agent: *<br>Disallow: /a<br>Disallow: /b\nDisallow: /c\n"
    rules = compile_rules(body, dialect("rfc9309"), "examplebot", "spec")

    found = {path: rules.judge(path).rule for path in ("/a", "/b", "/c")}

    assert {path: (rule.line, rule.pattern) for path, rule in found.items()} == {
        "/a": (1, "/a"),
        "/b": (1, "/b"),
        "/c": (2, "/c"),
    }
    assert [rule.pattern for rule in rules.matches("/b")] == ["/b"]
    assert [line.number for line in lines(body, dialect("rfc9309"))] == [1, 1, 1, 2]


def test_no_permission_is_smuggled_behind_a_break():
    for mark in ("<br>", "\ufeff", "\\n"):
        body = f"User-agent: *\nDisallow: /x\nUser-agent: y{mark}User-agent: *{mark}Allow: /x\n"
        assert not ask(body, "/x").allowed


def test_a_slip_opens_nothing():
    assert not ask("User-agent: *\nDisallow: /\nAlow: /x\n", "/x").allowed


@pytest.mark.parametrize(
    "text",
    [
        "Uber-agent: examplebot\nDisallow:\n\nUser-agent: *\nDisallow: /\n",
        "User-agent: examplebot\nDisallow: /a\nUser-agnet: *\nDisallow: /\n",
        "User-agent: examplebot\nDisaldlow: /a\n\nUser-agent: *\nDisallow: /\n",
        "<p>User-agent: examplebot</p>\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n",
        "User-agent: examplebot\nDisallow:\n\\nUser-agent: *\nDisallow: /\n",
        "User-agent: *\nDisallow: /*x<br>\n",
    ],
)
def test_no_correction_opens_what_the_letter_closes(text):
    """Scrapy's own parser reads the letter, so that a crawl would request more with the guard."""
    assert not ask(text, "/x%3Cbr%3E").allowed


def test_fields_about_training_are_no_slips():
    assert ask("User-agent: *\nDisallowAITraining: /\n", "/x").allowed


# --- Several names on a line ---

LISTED = "User-agent: one, two\nDisallow: /x\nAllow: /y\n\nUser-agent: *\nDisallow: /y\n"


@pytest.mark.parametrize(
    ("agent", "allowed"), [("one", {"/y", "/z"}), ("two", {"/z"}), ("three", {"/x", "/z"})]
)
def test_a_further_name_on_a_line_has_the_rules_that_both_readings_forbid(agent, allowed):
    assert {path for path in ("/x", "/y", "/z") if ask(LISTED, path, agent).allowed} == allowed


def test_a_further_name_has_the_delay_and_the_statements():
    body = b"User-agent: one, two\nCrawl-delay: 7\nContent-Usage: train-ai=n\nDisallow: /x\n"
    rules = compile_rules(body, dialect("rfc9309"), "two")

    assert rules.pace is not None
    assert [each.value for each in rules.statements("/a")] == ["n"]


def test_a_purpose_token_may_be_a_further_name():
    body = b"User-agent: one, Google-Extended\nDisallow: /\n"
    rules = compile_rules(
        body, dialect("rfc9309"), "three", purpose_tokens=(("ai-train", "Google-Extended"),)
    )

    assert [each.rule for each in rules.statements("/a")] == ["ai-train"]


# --- Names with digits ---

NUMBERED = (
    "User-agent: bot1\nDisallow: /1\n\nUser-agent: bot2\nDisallow: /2\n\nUser-agent: AI2Bot/1.0\nDisallow: /a\n\n"
    "User-agent: 360Spider\nDisallow: /3\n\nUser-agent: my.bot\nDisallow: /d\n\nUser-agent: *\nDisallow: /s\n"
)
PATHS = ("/1", "/2", "/a", "/3", "/d", "/s")


@pytest.mark.parametrize(
    ("agent", "forbidden"),
    [
        ("bot1", {"/1"}),
        ("BOT2", {"/2"}),
        ("bot3", {"/s"}),
        ("bot", {"/1", "/2"}),  # as Google's library cuts the names in the file
        ("AI2Bot", {"/a"}),
        ("ai2bot/2.1", {"/a"}),
        ("AI", {"/a"}),
        ("360spider", {"/3"}),
        ("spider", {"/s"}),
        ("my.bot", {"/d"}),
        ("my", {"/d"}),
        ("my.bot2", {"/s"}),
    ],
)
@pytest.mark.parametrize("name", ["rfc9309", "bing"])
def test_names_with_digits_are_compared_whole(agent, forbidden, name):
    assert {
        path for path in PATHS if not ask(NUMBERED, path, agent, name=name).allowed
    } == forbidden


def test_yandex_finds_a_whole_name_within_a_name_with_digits():
    body = "User-agent: bot1\nDisallow: /1\n\nUser-agent: bot2\nDisallow: /2\n"

    assert not ask(body, "/1", "mybot1", name="yandex").allowed
    assert ask(body, "/2", "mybot1", name="yandex").allowed


def test_which_dialects_can_compare_a_name():
    able = {name for name, each in DIALECTS.items() if can_compare("AI2Bot", each)}

    assert able == DIALECTS.keys() - {"google"}
    assert can_compare("my-bot", DIALECTS["google"])
    assert not can_compare("AI2Bot", dialect("strictest(rfc9309, google)"))


# --- Bodies that are no text ---


@pytest.mark.parametrize(
    "body",
    [
        b"\x1f\x8b\x08\0\0\0\0\0",
        b"PK\x03\x04\x14\0",
        b"%PDF-1.7\n%\xe2\xe3\n",
        b"\x89PNG\r\n\x1a\n\0\0",
        b"GIF89a\x01\0",
        b"\xff\xd8\xff\xe0\0\x10JFIF",
        b"\x28\xb5\x2f\xfd\x04",
        b"x\x9c\xcbH",
        CLOSED.encode("utf-16-le"),
        CLOSED.encode("utf-16-be"),
        "# 日本\n".encode("utf-16-le"),
        CLOSED.encode("utf-32-le"),
        CLOSED.encode("utf-32-be"),
    ],
)
def test_a_body_that_begins_as_no_text_does_is_named(body):
    assert kind_of_binary(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"U",
        b"\n\n",
        CLOSED.encode(),
        CLOSED.encode("utf-8-sig"),
        CLOSED.encode("utf-16"),
        CLOSED.encode("utf-32"),
        b"\0User-agent: *\n",
        b"<html>",
        b"PK: x",
        b"BZ",
        b"\xe9t\xe9",
    ],
)
def test_a_body_that_may_be_text_is_not(body):
    assert kind_of_binary(body) is None
