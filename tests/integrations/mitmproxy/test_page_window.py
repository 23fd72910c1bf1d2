"""The beginning of a page, decoded while it arrives."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.mitmproxy.bodies import PageWindow

LIMIT = 1000


def window(*pieces, coding="", limit=LIMIT, ends=True):
    found = PageWindow(coding, limit)
    for piece in pieces:
        found.feed(piece)
    if ends:
        found.end()
    return found


@pytest.mark.parametrize(
    ("size", "is_whole"), [(0, True), (999, True), (1000, True), (1001, False), (5000, False)]
)
@pytest.mark.parametrize(("coding", "pack"), [("", bytes), ("gzip", gzip.compress)])
def test_a_page_is_whole_up_to_the_limit(size, is_whole, coding, pack):
    content = bytes(index % 251 for index in range(size))
    found = window(pack(content), coding=coding)
    assert (found.body, found.is_whole) == (content[:LIMIT], is_whole)
    assert found.is_full is not is_whole


def test_a_page_that_has_not_ended_is_not_whole():
    assert not window(b"x", ends=False).is_whole


@given(st.lists(st.binary(max_size=400), max_size=8))
def test_pieces_make_no_difference(pieces):
    whole = window(b"".join(pieces))
    found = window(*pieces)
    assert (found.body, found.is_whole) == (whole.body, whole.is_whole)


@pytest.mark.parametrize(
    "coding", ["gzip,", ", gzip", "identity, gzip", "gzip, identity", "GZIP ,, Identity"]
)
def test_members_that_change_nothing_do_not_count(coding):
    found = window(gzip.compress(b"page"), coding=coding)
    assert (found.body, found.is_whole) == (b"page", True)
    plain = window(b"page", coding=coding.lower().replace("gzip", ""))
    assert (plain.body, plain.is_whole) == (b"page", True)


@pytest.mark.parametrize("coding", ["rot13", "gzip, gzip", "compress", "br;q=1"])
def test_an_unknown_coding_is_not_read(coding):
    found = PageWindow(coding, LIMIT)
    assert found.is_full
    found.feed(b"x")
    found.end()
    assert (found.body, found.is_whole) == (b"", False)


def test_what_cannot_be_decoded_is_read_as_far_as_possible():
    packed = gzip.compress(bytes(range(200)))
    for spoiled in (b"not gzip", packed[:-20]):
        found = window(spoiled, coding="gzip")
        assert not found.is_whole


def test_a_bomb_is_read_up_to_the_limit():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(10**6)) for _ in range(100)) + packer.flush()
    found = window(*(bomb[at : at + 1000] for at in range(0, len(bomb), 1000)), coding="gzip")
    assert (found.size, found.is_full, found.is_whole) == (LIMIT, True, False)


def test_packed_bytes_without_content_are_bounded():
    empty = gzip.compress(b"")
    found = window(*[empty] * 20_000, coding="gzip")
    assert (found.is_full, found.is_whole) == (True, False)
