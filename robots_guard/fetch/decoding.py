"""A body's octets, decoded and bounded.

We ask for no coding (RFC 9110 section 12.5.3). An origin that applies one anyway is read through one layer of
gzip, deflate, br or zstd, and never further than the cap: what is packed to burst is cut like any other long file.
The last two are read where a decoder is installed that can be bounded, and else are no robots.txt.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's window bits
_PACKED_SLACK = 64 * 1024  # octets that packing may add to what cannot be packed
_ZSTD_WINDOW_LOG = 23  # RFC 9659: at most 8 MiB of window in HTTP
_SLICE = 32  # octets of zstd: eight blocks at most, of 128 KiB unpacked each (RFC 8878 section 3.1.1.2)


class Undecodable(Exception):
    """The body is not what its Content-Encoding says, or is cut short, or we do not read that coding."""


class Plain:
    """A body as it comes."""

    def __init__(self, cap: int) -> None:
        self.body = bytearray()
        self.truncated = False
        self._cap = cap

    def feed(self, octets: bytes) -> None:
        """Take what fits."""
        self.truncated = len(self.body) + len(octets) > self._cap
        self.body += octets[: self._cap - len(self.body)]

    def end(self) -> None:
        """Nothing is held back."""


class Unpacker(Protocol):
    """One packed stream. `decompress` gives about `room` octets at most; `eof` is the stream's end."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What came behind the end."""
        ...

    def decompress(self, octets: bytes, room: int, /) -> bytes:
        """Unpack some more."""
        ...


class Packed(Plain):
    """A body behind one layer; of streams one after the other, as gzip (RFC 1952 section 2.2) and zstd have them."""

    def __init__(self, cap: int, begin: Callable[[int], Unpacker]) -> None:
        super().__init__(cap)
        self._begin = begin
        self._packed = 0
        self._unpacker: Unpacker | None = None

    def feed(self, octets: bytes) -> None:
        """Unpack what fits. Raises Undecodable."""
        self._packed += len(octets)
        self.truncated = self.truncated or self._packed > self._cap + _PACKED_SLACK
        try:
            while octets and not self.truncated:
                octets = self._unpack(octets)
        except _errors() as error:
            raise Undecodable(str(error)) from None

    def _unpack(self, octets: bytes) -> bytes:
        """One stream's part of the octets; what is left belongs to the next."""
        if self._unpacker is None:
            octets = octets if not self.body else octets.lstrip(b"\0")  # padding after a member
            if not octets:
                return b""
            self._unpacker = self._begin(octets[0])
        room = self._cap - len(self.body)
        self.body += self._unpacker.decompress(octets, room + 1)
        self.truncated = len(self.body) > self._cap
        del self.body[self._cap :]
        if not self._unpacker.eof:
            return b""
        rest, self._unpacker = self._unpacker.unused_data, None
        return rest

    def end(self) -> None:
        """Raises Undecodable if the last stream is not whole."""
        if self._unpacker is not None and not self.truncated:
            raise Undecodable("the packed body is cut short")


def decoder(content_encoding: str, cap: int) -> Plain:
    """The decoder for a Content-Encoding field. Raises Undecodable for one we do not read."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return Plain(cap)
    begin = _BEGINNINGS.get(coding)
    if begin is None:
        raise Undecodable(f"content-encoding {coding[:40]!r} is not read")
    return Packed(cap, begin)


# -- one stream of each coding --------------------------------------------------------------------------------


def _gzip(first: int) -> Unpacker:  # noqa: ARG001  (all beginnings are told the first octet)
    return zlib.decompressobj(_GZIP)


def _deflate(first: int) -> Unpacker:
    return zlib.decompressobj(_ZLIB if first & 0x0F == 8 else _RAW)  # it is sent with zlib's frame and without


class _Brotli:
    """brotli 1.2 and later: earlier ones cannot be bounded, and a few octets of theirs unpack to megabytes."""

    unused_data = b""

    def __init__(self, library: Any) -> None:
        self._stream = library.Decompressor()

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        return bool(self._stream.is_finished())

    def decompress(self, octets: bytes, room: int, /) -> bytes:
        """Unpack up to about twice `room`."""
        out: bytes = self._stream.process(octets, output_buffer_limit=room)
        while len(out) < room and not self._stream.can_accept_more_data():
            out += self._stream.process(b"", output_buffer_limit=room - len(out))
        return out


class _Zstandard:
    """python-zstandard has no bound of its own, but little comes of little: it is fed in slices."""

    def __init__(self, library: Any) -> None:
        self._stream = library.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG).decompressobj()
        self._behind = b""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return bool(self._stream.eof)

    @property
    def unused_data(self) -> bytes:
        """What came behind the frame."""
        return self._behind

    def decompress(self, octets: bytes, room: int, /) -> bytes:
        """Unpack up to `room` and one slice more."""
        out = bytearray()
        for start in range(0, len(octets), _SLICE):
            out += self._stream.decompress(octets[start : start + _SLICE])
            if self._stream.eof:
                self._behind = self._stream.unused_data + octets[start + _SLICE :]
                break
            if len(out) >= room:
                break
        return bytes(out)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _brotli(first: int) -> Unpacker:  # noqa: ARG001  (as above)
    for library in filter(None, map(_imported, ("brotli", "brotlicffi"))):
        if hasattr(library.Decompressor, "can_accept_more_data"):  # came with the bound
            return _Brotli(library)
    raise Undecodable("content-encoding 'br' needs brotli 1.2 or later to be read")


def _zstd(first: int) -> Unpacker:  # noqa: ARG001  (as above)
    for library in filter(None, map(_imported, ("compression.zstd", "backports.zstd"))):
        window = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        unpacker: Unpacker = library.ZstdDecompressor(options=window)
        return unpacker
    library = _imported("zstandard")
    if library is None:
        raise Undecodable("content-encoding 'zstd' needs backports.zstd or zstandard to be read")
    return _Zstandard(library)


_BEGINNINGS: dict[str, Callable[[int], Unpacker]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def _errors() -> tuple[type[Exception], ...]:
    """What the decoders at hand raise."""
    brotli = [library.error for library in map(_imported, ("brotli", "brotlicffi")) if library]
    libraries = map(_imported, ("compression.zstd", "backports.zstd", "zstandard"))
    return (zlib.error, EOFError, *brotli, *(library.ZstdError for library in libraries if library))
