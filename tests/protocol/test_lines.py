"""Bytes to lines: byte order marks, line ends, comments, limits, control characters."""

from __future__ import annotations

import codecs

import pytest
from protocol.rows import ask

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.lines import BODY_CAP, LINE_CAP, Line, clean, lines, records, shown

RFC = dialect("rfc9309")
GOOGLE = dialect("google")
BODY = "User-agent: *\nDisallow: /privé\n"


def read(text, name=RFC):
    return [(number, field, value) for number, field, value in records(text, name) if field]


def test_a_line_has_number_field_value_and_text():
    found = list(lines(b"\n# c\n  Crawl-Delay :  5 # why\nno colon\n", RFC))

    assert found == [
        Line(3, "crawl-delay", "5", "Crawl-Delay :  5"),
        Line(4, "?", "no colon", "no colon"),
    ]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_utf8_mark_is_dropped_also_when_cut_short(mark):
    assert clean(mark + BODY.encode()) == BODY.encode()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["le", "be"])
def test_wide_encodings_are_read_by_their_mark(encoding, end):
    mark = getattr(codecs, f"BOM_{encoding.replace('-', '').upper()}_{end.upper()}")

    assert clean(mark + BODY.encode(f"{encoding}-{end}")) == BODY.encode()


def test_a_wide_encoding_without_a_mark_is_not_guessed():
    assert clean(BODY.encode("utf-16-le")) == BODY.encode("utf-16-le")


def test_a_broken_wide_encoding_does_not_raise():
    assert clean(codecs.BOM_UTF16_LE + b"U\0s\0\xd8") is not None


def test_the_cap_cuts_at_the_last_whole_line():
    body = b"User-agent: *\n" + b"Disallow: /0123456789\n" * 25_000

    assert len(clean(body)) <= BODY_CAP
    assert clean(body).endswith(b"/0123456789\n")


def test_a_body_that_is_one_endless_line_is_cut_too():
    assert len(clean(b"Disallow: /" + b"a" * 600_000)) == BODY_CAP


def test_a_comment_line_is_not_a_blank_line():
    assert list(records(b"# x\n  # y\n\n", RFC)) == [(3, b"", b"")]


def test_an_over_long_disallow_gets_shorter_and_so_broader():
    long = b"Disallow: /" + b"a" * 20_000
    ((_, field, value),) = read(long + b"\n")

    assert field == b"disallow"
    assert len(b"Disallow:" + value) <= LINE_CAP
    assert value != b"/" + b"a" * 20_000


def test_an_over_long_allow_is_dropped():
    assert read(b"Allow: /" + b"a" * 20_000 + b"\n") == []


def test_google_truncates_both():
    assert len(read(b"Allow: /" + b"a" * 20_000 + b"\n", GOOGLE)) == 1


def test_a_control_character_ends_a_disallow_and_removes_an_allow():
    body = b"User-agent: *\nDisallow: /a\x00b\nAllow: /a\x01c\n"

    assert read(body)[1:] == [(2, b"disallow", b"/a")]


@pytest.mark.parametrize("gap", [b" /a" * 10_000 + b" ", b" \x01 ", b" /a\x00b "])
def test_truncating_one_value_keeps_the_others(gap):
    body = (
        b"User-agent: foo" + gap.replace(b"/", b"") + b"mybot\nDisallow: /first" + gap + b"/last\n"
    )

    for path in ("/first", "/last"):
        assert not ask(body, path, "mybot", "kollar1996").allowed


def test_a_control_character_ends_each_value_of_a_line():
    body = b"User-agent: *\nDisallow: /a\x01b /c\n"

    assert not ask(body, "/ax", "mybot", "kollar1996").allowed
    assert ask(body, "/b", "mybot", "kollar1996").allowed


def test_controls_before_a_value_do_not_make_it_empty():
    assert read(b"Disallow: \x01/a\n") == [(1, b"disallow", b"/a")]
    assert read(b"\x00Disallow:\x00\n") == [(1, b"disallow", b"")]


def test_google_ends_a_line_at_nul_and_takes_other_controls_as_data():
    assert read(b"Disallow: /a\x00b\nAllow: /a\x01c\n", GOOGLE) == [
        (1, b"disallow", b"/a"),
        (2, b"allow", b"/a\x01c"),
    ]


@pytest.mark.parametrize(
    "separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_no_rule_can_be_smuggled_behind_another_separator(separator):
    body = (
        f"User-agent: *\nDisallow: /x\nUser-agent: y{separator}User-agent: *{separator}Allow: /x\n"
    )

    assert not ask(body, "/x").allowed


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"Disalow: /x", b"disallow"),
        (b"dissallow: /x", b"disallow"),
        (b"Disallowed: /x", b"disallow"),
        (b"Disallow /x", b"disallow"),
        (b"useragent: /x", b"user-agent"),
        (b"User Agent: /x", b"user-agent"),
        (b"site-map: /x", b"sitemap"),
        (b"Disallow /x /y", b"?"),
    ],
)
def test_misspelt_fields_are_read_by_lenient_dialects_only(line, field):
    assert read(line)[0][1] == field
    assert read(line, dialect("koster1996"))[0][1] != field or field == b"?"


def test_text_for_people_is_capped_and_decoded_with_replacement():
    ((_, _, value, text),) = lines(b"X: \xff" + b"a" * 9_000, RFC)

    assert value.startswith("\ufffda")
    assert len(value) == len(text) == 512


def test_a_body_is_read_up_to_500_kib_and_no_further():
    """RFC 9309 section 2.5 asks for at least that."""
    whole = b"Disallow: /x\n" + b"#" * (512_000 - 13)

    assert clean(whole) == whole
    assert clean(whole + b"#") == b"Disallow: /x\n"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_the_cap_cuts_behind_the_last_end_of_a_line_that_is_within_it(end):
    line = b"Disallow: /" + b"x" * (100 - len(end)) + end
    body = line * (512_000 // len(line) + 1)

    assert clean(body) == line * (512_000 // len(line))


def test_a_line_as_long_as_the_cap_is_whole_and_a_longer_one_is_cut_there():
    path = b"/" + b"x" * (16_663 - len("Disallow:/"))

    def said(line: bytes, name=RFC) -> list[bytes]:
        return [value for _, _, value in read(line, name)]

    for name in (RFC, GOOGLE):
        assert said(b"Disallow:" + path, name) == [path]
        assert said(b"Disallow:" + path + b"y", name) == [path]
    assert said(b"Allow:" + path + b"123") == [path + b"123"]
    assert said(b"Allow:" + path + b"1234") == []
    assert said(b"Allow:" + path + b"1234", GOOGLE) == [path + b"123"]


def test_a_comment_does_not_count_towards_the_length_of_a_line():
    path = b"/" + b"x" * (16_663 - len("Allow:/"))

    assert read(b"Allow:" + path + b"#" + b"y" * 100) == [(1, b"allow", path)]


def test_text_for_people_is_512_characters_long_at_most_however_many_octets_those_are():
    assert shown(b"x" * 512) == "x" * 512
    assert shown(b"x" * 513) == "x" * 512
    assert shown("\U0001f916".encode() * 513) == "\U0001f916" * 512
