"""Content codings: decodes the bytes of a body, up to a cap.

Fetchers request no coding (RFC 9110 section 12.5.3). If an origin applies one anyway, one layer of
gzip, deflate, br or zstd is decoded, never beyond the cap: a decompression bomb is truncated like
any other long file. br and zstd need a decoder that can be bounded; without one the response is
unusable.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's window bits
PACKED_SLACK = 64 * 1024  # bytes that packing may add to an incompressible body
_ZSTD_WINDOW_LOG = 23  # RFC 9659: at most 8 MiB of window in HTTP
_SLICE = 32  # bytes of zstd: at most eight blocks, each 128 KiB unpacked (RFC 8878 section 3.1.1.2)


class Undecodable(Exception):
    """The body does not match its Content-Encoding, is cut short, or has an unsupported coding."""


class Plain:
    """A body without a coding, truncated at `cap` bytes."""

    def __init__(self, cap: int) -> None:
        self.body = bytearray()
        self.truncated = False
        self._cap = cap

    def feed(self, data: bytes) -> None:
        """Append what fits under the cap."""
        self.truncated = self.truncated or len(self.body) + len(data) > self._cap
        self.body += data[: self._cap - len(self.body)]

    def end(self) -> None:
        """Do nothing: an uncoded body has no pending data."""


class Unpacker(Protocol):
    """One packed stream. `decompress` returns at most about `room` bytes; `eof` marks the stream's
    end."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end of the stream."""
        ...

    def decompress(self, data: bytes, room: int, /) -> bytes:
        """Unpack further bytes."""
        ...


class Packed(Plain):
    """A body with one coding. It may consist of several streams, as in gzip (RFC 1952 section 2.2)
    and zstd."""

    def __init__(self, cap: int, begin: Callable[[int], Unpacker]) -> None:
        super().__init__(cap)
        self._begin = begin
        self._packed = 0
        self._unpacker: Unpacker | None = None

    def feed(self, data: bytes) -> None:
        """Unpack what fits under the cap.

        Raises Undecodable if that fails, and if the packed body is longer than a file within the
        cap can need: its unpacked part may then be far below the cap, so that its last rules would
        be lost.
        """
        room = max(0, self._cap + PACKED_SLACK - self._packed)
        is_too_long = len(data) > room
        self._packed += len(data)
        self._unpack_all(data[:room])
        if is_too_long and not self.truncated:
            raise Undecodable("the packed body is longer than its content may be")

    def _unpack_all(self, data: bytes) -> None:
        try:
            while data and not self.truncated:
                data = self._unpack(data)
        except _errors() as error:
            raise Undecodable(str(error)) from None

    def _unpack(self, data: bytes) -> bytes:
        """Unpack one stream's part of the data; return the rest, which belongs to the next
        stream."""
        if self._unpacker is None:
            if self.body:
                data = data.lstrip(b"\0")  # padding after a member
            if not data:
                return b""
            self._unpacker = self._begin(data[0])
        room = self._cap - len(self.body)
        self.body += self._unpacker.decompress(data, room + 1)
        self.truncated = len(self.body) > self._cap
        del self.body[self._cap :]
        if not self._unpacker.eof:
            return b""
        rest, self._unpacker = self._unpacker.unused_data, None
        return rest

    def end(self) -> None:
        """Check that the last stream is complete. Raises Undecodable if not."""
        if self._unpacker is not None and not self.truncated:
            raise Undecodable("the packed body is cut short")


def decoder(content_encoding: str, cap: int) -> Plain:
    """Return the decoder for a Content-Encoding field, whose lines are joined by commas.

    Members that change nothing do not count: empty ones (RFC 9110 section 5.6.1.2) and `identity`.
    Raises Undecodable if the coding is unsupported, or if there are several.
    """
    members = (each.strip().lower() for each in content_encoding.split(","))
    coding = ", ".join(each for each in members if each not in ("", "identity"))
    if not coding:
        return Plain(cap)
    begin = _UNPACKERS.get(coding)
    if begin is None:
        raise Undecodable(f"content-encoding {coding[:40]!r} is not supported")
    return Packed(cap, begin)


# -- one stream of each coding --------------------------------------------------------------------------------


def _gzip(first: int) -> Unpacker:  # noqa: ARG001  (all constructors get the first byte)
    return zlib.decompressobj(_GZIP)


def _deflate(first: int) -> Unpacker:
    # Servers send it with and without zlib's frame.
    return zlib.decompressobj(_ZLIB if first & 0x0F == 8 else _RAW)


class _Brotli:
    """A brotli stream. It needs brotli 1.2: earlier versions cannot bound output, and a few bytes
    unpack to megabytes."""

    unused_data = b""

    def __init__(self, library: Any) -> None:
        self._stream = library.Decompressor()

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        return bool(self._stream.is_finished())

    def decompress(self, data: bytes, room: int, /) -> bytes:
        """Unpack up to about twice `room`."""
        out: bytes = self._stream.process(data, output_buffer_limit=room)
        while len(out) < room and not self._stream.can_accept_more_data():
            out += self._stream.process(b"", output_buffer_limit=room - len(out))
        return out


class _Zstandard:
    """A zstd stream of python-zstandard, which cannot bound its output, so its input is fed in
    small slices."""

    def __init__(self, library: Any) -> None:
        self._stream = library.ZstdDecompressor(
            max_window_size=1 << _ZSTD_WINDOW_LOG
        ).decompressobj()
        self._after = b""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return bool(self._stream.eof)

    @property
    def unused_data(self) -> bytes:
        """The bytes after the frame."""
        return self._after

    def decompress(self, data: bytes, room: int, /) -> bytes:
        """Unpack at least `room` bytes if there are as many, and at most one slice more."""
        out = bytearray()
        for start in range(0, len(data), _SLICE):
            out += self._stream.decompress(data[start : start + _SLICE])
            if self._stream.eof:
                self._after = self._stream.unused_data + data[start + _SLICE :]
                break
            if len(out) >= room:
                break
        return bytes(out)


def _import_if_installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _brotli(first: int) -> Unpacker:  # noqa: ARG001  (as above)
    for library in filter(None, map(_import_if_installed, ("brotli", "brotlicffi"))):
        # `can_accept_more_data` was added together with the output limit.
        if hasattr(library.Decompressor, "can_accept_more_data"):
            return _Brotli(library)
    raise Undecodable("content-encoding 'br' needs brotli 1.2 or later to be read")


def _zstd(first: int) -> Unpacker:  # noqa: ARG001  (as above)
    for library in filter(None, map(_import_if_installed, ("compression.zstd", "backports.zstd"))):
        window = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        unpacker: Unpacker = library.ZstdDecompressor(options=window)
        return unpacker
    library = _import_if_installed("zstandard")
    if library is None:
        raise Undecodable("content-encoding 'zstd' needs backports.zstd or zstandard to be read")
    return _Zstandard(library)


_UNPACKERS: dict[str, Callable[[int], Unpacker]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the installed decoders."""
    brotli = [
        library.error for library in map(_import_if_installed, ("brotli", "brotlicffi")) if library
    ]
    libraries = map(_import_if_installed, ("compression.zstd", "backports.zstd", "zstandard"))
    return (zlib.error, EOFError, *brotli, *(library.ZstdError for library in libraries if library))
