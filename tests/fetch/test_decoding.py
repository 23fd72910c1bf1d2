"""Bodies with an unrequested content coding: one layer is decoded, never beyond the cap."""

from __future__ import annotations

import importlib
import time
import tracemalloc
import zlib

import pytest

from robots_guard.guard.fetch import content_coding
from robots_guard.guard.fetch.content_coding import Undecodable, decoder

# These tests replace the private `_import_if_installed`, because codings that are installed cannot
# be uninstalled.

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


PACKING = {}  # what can be compressed here can be decompressed, too
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
        found = content_coding._import_if_installed
        hidden = ("compression.zstd", "backports.zstd")

        def import_others(name):
            return None if name in hidden else found(name)

        monkeypatch.setattr(content_coding, "_import_if_installed", import_others)
    return request.param


def test_a_packed_file_that_is_too_long_on_the_wire_is_not_taken_for_a_part():
    """Flushed after every byte, rules far below the cap take more bytes than the cap."""
    packer = zlib.compressobj(wbits=31)
    data = b"".join(
        packer.compress(bytes((each,))) + packer.flush(zlib.Z_SYNC_FLUSH) for each in TEXT * 3000
    )
    assert len(TEXT * 3000) < CAP < len(data)
    body = decoder("gzip", CAP)
    with pytest.raises(Undecodable, match="longer than"):
        body.feed(data)
    assert not body.truncated


def read(coding: str, data: bytes, step: int = 65536):
    body = decoder(coding.partition(" ")[0], CAP)
    for start in range(0, len(data), step):
        body.feed(data[start : start + step])
        if body.truncated:
            break
    body.end()
    return body


@pytest.mark.parametrize("step", [1, 7, 65536])
@pytest.mark.parametrize(
    "body", [TEXT, b"", TEXT * 14_000, b"\0" * CAP], ids=["short", "empty", "long", "at the cap"]
)
def test_one_layer_is_unpacked(coding, body, step):
    got = read(coding, packed(coding, body), step)

    assert (bytes(got.body), got.truncated) == (body, False)


@pytest.mark.parametrize("step", [1, 65536])
def test_a_bomb_is_cut_at_the_cap_and_costs_neither_memory_nor_time(coding, step):
    bomb = packed(coding, b"\0" * 50_000_000)
    tracemalloc.start()
    began = time.thread_time()
    try:
        got = read(coding, bomb, step)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (len(got.body), got.truncated) == (CAP, True)
    assert peak < 8 * 1024 * 1024
    assert time.thread_time() - began < 0.5


def test_truncated_or_malformed_stream_is_refused(coding):
    whole = packed(coding, TEXT)
    for data in (whole[:-3], b"rubbish" * 9, whole + b"rubbish"):
        with pytest.raises(Undecodable):
            read(coding, data)


@pytest.mark.parametrize("coding", [name for name in PACKING if name != "br"], indirect=True)
def test_frames_of_zstd_follow_one_another(coding):
    two = packed(coding, TEXT[:10]) + packed(coding, TEXT[10:])

    assert bytes(read(coding, two).body) == TEXT
    assert bytes(read(coding, two, 1).body) == TEXT


@pytest.mark.parametrize("coding", [name for name in PACKING if name != "br"], indirect=True)
def test_a_window_beyond_rfc_9659_is_refused(coding):
    # A window of 2 GiB, one empty raw block.
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xa8" + b"\x01\x00\x00"

    with pytest.raises(Undecodable):
        read(coding, frame)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_without_a_decoder_that_can_be_bounded_a_coding_is_not_read(coding, monkeypatch):
    monkeypatch.setattr(content_coding, "_import_if_installed", lambda name: None)

    with pytest.raises(Undecodable, match=r"needs .* to be read"):
        read(coding, b"whatever")


def test_an_old_brotli_is_not_used(monkeypatch):
    class Old:
        error = ZstdError = ValueError

        class Decompressor:
            pass

    monkeypatch.setattr(content_coding, "_import_if_installed", lambda name: Old)

    with pytest.raises(Undecodable, match=r"brotli 1\.2 or later"):
        read("br", b"whatever")
