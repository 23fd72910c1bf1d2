"""Bodies, packed by who was not asked to: one layer, never further than the cap."""

from __future__ import annotations

import importlib
import time
import tracemalloc

import pytest

from robots_guard.fetch import decoding
from robots_guard.fetch.decoding import Undecodable, decoder

TEXT = b"User-agent: *\nDisallow: /private/\n"
CAP = 512_000


def library(*names):
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


brotli = library("brotli")
zstd = library("compression.zstd", "backports.zstd")
zstandard = library("zstandard")


PACKING = {}  # what can be packed here can be unpacked, too
if hasattr(getattr(brotli, "Decompressor", None), "can_accept_more_data"):
    PACKING["br"] = brotli.compress
if zstd:
    PACKING["zstd"] = zstd.compress
if zstandard:
    PACKING["zstd by zstandard"] = lambda body: zstandard.ZstdCompressor().compress(body)


def packed(coding: str, body: bytes) -> bytes:
    return PACKING[coding](body)


@pytest.fixture(params=PACKING)
def coding(request, monkeypatch):
    if request.param == "zstd by zstandard":
        found = decoding._imported
        hidden = ("compression.zstd", "backports.zstd")
        monkeypatch.setattr(decoding, "_imported", lambda name: None if name in hidden else found(name))
    return request.param


def read(coding: str, octets: bytes, step: int = 65536):
    body = decoder(coding.partition(" ")[0], CAP)
    for start in range(0, len(octets), step):
        body.feed(octets[start : start + step])
        if body.truncated:
            break
    body.end()
    return body


@pytest.mark.parametrize("step", [1, 7, 65536])
@pytest.mark.parametrize("body", [TEXT, b"", TEXT * 14_000, b"\0" * CAP], ids=["short", "empty", "long", "at the cap"])
def test_one_layer_is_unpacked(coding, body, step):
    got = read(coding, packed(coding, body), step)

    assert (bytes(got.body), got.truncated) == (body, False)


@pytest.mark.parametrize("step", [1, 65536])
def test_a_bomb_is_cut_at_the_cap_and_costs_neither_memory_nor_time(coding, step):
    bomb = packed(coding, b"\0" * 50_000_000)
    tracemalloc.start()
    began = time.monotonic()
    try:
        got = read(coding, bomb, step)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (len(got.body), got.truncated) == (CAP, True)
    assert peak < 8 * 1024 * 1024
    assert time.monotonic() - began < 0.5


def test_what_is_cut_short_or_no_such_stream_is_no_robots_txt(coding):
    whole = packed(coding, TEXT)
    for octets in (whole[:-3], b"rubbish" * 9, whole + b"rubbish"):
        with pytest.raises(Undecodable):
            read(coding, octets)


@pytest.mark.parametrize("coding", [name for name in PACKING if name != "br"], indirect=True)
def test_frames_of_zstd_follow_one_another(coding):
    two = packed(coding, TEXT[:10]) + packed(coding, TEXT[10:])

    assert bytes(read(coding, two).body) == TEXT
    assert bytes(read(coding, two, 1).body) == TEXT


@pytest.mark.parametrize("coding", [name for name in PACKING if name != "br"], indirect=True)
def test_a_window_beyond_rfc_9659_is_refused(coding):
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xa8" + b"\x01\x00\x00"  # a window of 2 GiB, one empty raw block

    with pytest.raises(Undecodable):
        read(coding, frame)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_without_a_decoder_that_can_be_bounded_a_coding_is_not_read(coding, monkeypatch):
    monkeypatch.setattr(decoding, "_imported", lambda name: None)

    with pytest.raises(Undecodable, match=r"needs .* to be read"):
        read(coding, b"whatever")


def test_an_old_brotli_is_not_used(monkeypatch):
    class Old:
        error = ZstdError = ValueError

        class Decompressor:
            pass

    monkeypatch.setattr(decoding, "_imported", lambda name: Old)

    with pytest.raises(Undecodable, match=r"brotli 1\.2 or later"):
        read("br", b"whatever")
