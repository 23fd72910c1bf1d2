"""The framing of responses, byte by byte: complete ones, ambiguous ones, and independence of how
bytes arrive.

`behaviours.py` has the same responses as read by three real fetchers.
"""

from __future__ import annotations

import pytest

from robots_guard.guard.fetch.framing import MAX_FIELD, BadFields, Framing, joined

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"

WHOLE = {
    "a length": OK + b"Content-Length: 3\r\n\r\nabc",
    "a length of 0": OK + b"Content-Length: 0\r\n\r\n",
    "until closed": OK + b"\r\nabc",
    "until closed at once": OK + b"\r\n",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\nabc",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "304 with the length of what it stands for": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
    "chunks": CHUNKED + CHUNKS,
    "chunks in capitals": CHUNKED.replace(b"chunked", b"CHUNKED") + CHUNKS,
    "chunks of hexadecimal sizes": CHUNKED + b'0A;x=y;z="a b"\r\n0123456789\r\n00\r\n\r\n',
    "trailers": CHUNKED + CHUNKS[:-2] + b"X: y\r\nZ:\r\n\r\n",
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
    + OK
    + b"\r\n",
    "a folded field": OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "control characters": OK + b"X: a\x0b\1\r\nContent-Length: 0\r\n\r\n",
    "a Location between tabs": OK + b"Location:\t/a\t\r\nContent-Length: 0\r\n\r\n",
    "LF": (OK + b"Content-Length: 3\r\n\r\nabc").replace(b"\r", b""),
    "CRs in a body": OK + b"Content-Length: 3\r\n\r\n\r\r\n",
}
DOUBTFUL = {
    "more than its length": OK + b"Content-Length: 3\r\n\r\nabcd",
    "more than nothing": OK + b"Content-Length: 0\r\n\r\na",
    "more than a 204 has": b"HTTP/1.1 204 No Content\r\n\r\na",
    "more than its chunks": CHUNKED + CHUNKS + b"a",
    "two lengths": OK + b"Content-Length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "a list of lengths": OK + b"Content-Length: 3,3\r\n\r\nabc",
    "a length with a sign": OK + b"Content-Length: +3\r\n\r\nabc",
    "a folded length": OK + b"Content-Length: 3\r\n 3\r\n\r\nabc",
    "a length before an empty fold": OK + b"Content-Length: 3\r\n \r\n\r\nabc",
    "a length behind a tab": OK + b"Content-Length:\t3\r\n\r\nabc",
    "a length before a tab": OK + b"Content-Length: 3\t\r\n\r\nabc",
    "a length with zeros in front": OK + b"Content-Length: 03\r\n\r\nabc",
    "a length without end": OK + b"Content-Length: " + b"3" * 16 + b"\r\n\r\nabc",
    "a length and chunks": OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks twice": OK
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "chunks in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0") + CHUNKS,
    "another coding": CHUNKED.replace(b"chunked", b"gzip, chunked") + CHUNKS,
    "a coding behind a vertical tab": CHUNKED.replace(b"chunked", b"\x0bchunked") + CHUNKS,
    "a coding before a tab": CHUNKED.replace(b"chunked", b"chunked\t") + CHUNKS,
    "a coding before a space and a tab": CHUNKED.replace(b"chunked", b"chunked \t") + CHUNKS,
    "a coding behind a tab": CHUNKED.replace(b" chunked", b"\tchunked") + CHUNKS,
    "a coding before an empty fold": CHUNKED.replace(b"chunked", b"chunked\r\n ") + CHUNKS,
    "a folded coding": CHUNKED.replace(b" chunked", b"\r\n chunked") + CHUNKS,
    "chunks of a 304": CHUNKED.replace(b"200", b"304") + CHUNKS,
    "a space behind a size": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "a tab behind a size": CHUNKED + b"3\t;x\r\nabc\r\n0\r\n\r\n",
    "a control character behind a size": CHUNKED + b"3;\1\r\nabc\r\n0\r\n\r\n",
    "a size with an extension without a name": CHUNKED + b"3;\r\nabc\r\n0\r\n\r\n",
    "a size with half a quotation": CHUNKED + b'3;a="b\r\nabc\r\n0\r\n\r\n',
    "a length among the trailers": CHUNKED + CHUNKS[:-2] + b"Content-Length: 3\r\n\r\n",
    "a coding among the trailers": CHUNKED + CHUNKS[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
    "a first trailer that is folded": CHUNKED + CHUNKS[:-2] + b" X: y\r\n\r\n",
    "a folded Location": OK + b"Location: /a\r\n b\r\n\r\n",
    "a Location before an empty fold": OK + b"Location: /a\r\n \r\n\r\n",
    "a vertical tab in a Location": OK + b"Location: /a\x0b\r\n\r\n",
    "DEL in a coding": OK + b"Content-Encoding: gzip\x7f\r\n\r\n",
    "an interim answer that is the last": b"HTTP/1.1 103 Hints\r\nConnection: x, Close\r\n\r\n"
    + OK
    + b"\r\n",
    "an interim answer in HTTP/1.0": b"HTTP/1.0 100 Continue\r\n\r\n" + OK + b"\r\n",
    "no size": CHUNKED + b"\r\nabc",
    "a size in other letters": CHUNKED + b"g\r\nabc",
    "a size with a sign": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "a size without end": CHUNKED + b"0" * 16 + b"\r\n\r\n",
    "a long line before a chunk": CHUNKED + b"3;" + b"x" * 2000,
    "a chunk with another end": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "LF behind a size": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "a trailer that is none": CHUNKED + CHUNKS[:-2] + b"x\r\n\r\n",
    "a line that is no field": OK + b"x\r\n\r\n",
    "a space before a colon": OK + b"X : y\r\n\r\n",
    "a first field that is folded": OK + b" X: y\r\n\r\n",
    "NUL": OK + b"X: \0\r\n\r\n",
    "CR": OK + b"X: a\rY: b\r\n\r\n",
    "a long field": OK + b"X: " + b"y" * MAX_FIELD,
    "a long head": OK + b"X: yyyyyyyy\r\n" * 6000,
    "interim answers without end": b"HTTP/1.1 103 Hints\r\n\r\n" * 4000,
    "an interim answer with a length": b"HTTP/1.1 103 Hints\r\nContent-Length: 3\r\n\r\nabc",
    "101": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "99": b"HTTP/1.1 099 What\r\n\r\n",
    "HTTP/2.0": OK.replace(b"1.1", b"2.0") + b"\r\n",
    "HTTP/0.9": b"User-agent: *\nDisallow:\n",
    "an empty line first": b"\r\n" + OK + b"\r\n",
}
CUT_SHORT = {
    "nothing": b"",
    "a status line": OK,
    "a head": OK + b"X: y\r\n",
    "an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
    "a body": OK + b"Content-Length: 3\r\n\r\nab",
    "a chunk": CHUNKED + b"3\r\nab",
    "no last chunk": CHUNKED + b"3\r\nabc\r\n",
    "no end of the trailers": CHUNKED + CHUNKS[:-2],
}
ANSWERS = {**WHOLE, **DOUBTFUL, **CUT_SHORT}


def read(*pieces: bytes, clean: bool = True) -> Framing:
    """Return the framing of a response whose connection has ended after it."""
    framing = Framing()
    for piece in pieces:
        framing.feed(piece)
    framing.closed(clean=clean)
    return framing


def objection(framing: Framing, *, truncated: bool = False) -> str:
    """Return the objection to a response for a client that has read the same content."""
    return framing.objection(truncated=truncated, content=framing.content)


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_that_is_framed_well_is_whole(name):
    framing = read(WHOLE[name])

    assert (framing.fault, framing.is_whole) == ("", True)
    assert objection(framing) == ""


@pytest.mark.parametrize("name", DOUBTFUL)
def test_an_answer_that_two_clients_may_read_in_two_ways_has_a_fault(name):
    framing = read(DOUBTFUL[name])

    assert framing.fault
    assert objection(framing) == objection(framing, truncated=True) == framing.fault


@pytest.mark.parametrize("name", CUT_SHORT)
def test_an_answer_that_is_cut_short_is_not_whole_unless_its_client_cut_it(name):
    framing = read(CUT_SHORT[name])

    assert (framing.fault, framing.is_whole) == ("", False)
    assert objection(framing)
    assert not objection(framing, truncated=True)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in ANSWERS.items()])
def test_where_the_pieces_are_cut_makes_no_difference(data, size):
    whole = read(data)
    piecewise = read(*(data[start : start + size] for start in range(0, len(data), size)))

    assert bool(piecewise.fault) == bool(whole.fault)
    assert bool(objection(piecewise)) == bool(objection(whole))
    assert whole.fault or piecewise.content == whole.content


@pytest.mark.parametrize("name", ["until closed", "until closed at once", "HTTP/1.0"])
def test_an_answer_until_the_end_of_the_connection_is_whole_only_after_a_clean_end(name):
    going_on, broken = Framing(), read(WHOLE[name], clean=False)
    going_on.feed(WHOLE[name])
    assert not going_on.is_whole
    assert not broken.is_whole
    assert objection(broken)


def test_a_client_that_stops_early_may_end_the_connection_itself():
    assert objection(read(WHOLE["until closed"], clean=False), truncated=True) == ""


def test_only_the_first_end_of_a_connection_counts():
    whole, broken = read(WHOLE["until closed"]), read(WHOLE["until closed"], clean=False)
    whole.closed(clean=False)
    broken.closed(clean=True)
    assert objection(whole) == ""
    assert objection(broken)


@pytest.mark.parametrize("name", ["a length", "chunks", "204"])
def test_an_answer_that_says_its_length_may_be_followed_by_any_end(name):
    assert objection(read(WHOLE[name], clean=False)) == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a length", 3),
        ("until closed", 3),
        ("chunks", 3),
        ("chunks of hexadecimal sizes", 10),
        ("204", 0),
    ],
)
def test_a_client_that_reads_another_content_than_the_framing_delimits_cannot_be_relied_on(
    name, content
):
    framing = read(WHOLE[name])

    assert framing.content == content
    assert not framing.objection(truncated=False, content=content)
    assert framing.objection(truncated=False, content=content + 1)
    assert framing.objection(truncated=False, content=content - 1)


def test_a_client_that_stops_early_has_read_no_more_than_the_framing_delimits():
    framing = read(CHUNKED + b"3\r\nabc\r\n3\r\na")

    assert not framing.objection(truncated=True, content=2)
    assert not framing.objection(truncated=True, content=4)
    assert framing.objection(truncated=True, content=5)


# -- header fields, as all fetchers give them -----------------------------------------------------------------


def test_equal_locations_are_one():
    assert joined([(b"Location", b"/a"), (b"location", b"/a")]) == {"location": "/a"}


@pytest.mark.parametrize(
    "fields",
    [
        [(b"Location", b"/a"), (b"Location", b"/b")],
        [(b"X", b"y" * MAX_FIELD)],
        [(b"X", b"a\0b")],
        [(b"X", b"y")] * 201,
        [(b"X%d" % n, b"y" * 8000) for n in range(9)],
    ],
)
def test_fields_that_no_honest_answer_has_are_refused(fields):
    with pytest.raises(BadFields):
        joined(fields)
