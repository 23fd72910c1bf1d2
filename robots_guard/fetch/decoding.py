"""A body's octets, decoded and bounded.

We ask for no coding (RFC 9110 section 12.5.3). An origin that applies one anyway is read through one layer of
gzip or deflate, and never further than the cap: what is packed to burst is cut like any other long file.
"""

from __future__ import annotations

import zlib

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's window bits
_PACKED_SLACK = 64 * 1024  # octets that packing may add to what cannot be packed


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


class Packed(Plain):
    """A body behind one layer of gzip or deflate; gzip may have several members (RFC 1952 section 2.2)."""

    def __init__(self, cap: int, coding: str) -> None:
        super().__init__(cap)
        self._gzip = coding in ("gzip", "x-gzip")
        self._packed = 0
        self._unpacker: zlib._Decompress | None = None

    def feed(self, octets: bytes) -> None:
        """Unpack what fits. Raises Undecodable."""
        self._packed += len(octets)
        self.truncated = self._packed > self._cap + _PACKED_SLACK
        try:
            while octets and not self.truncated:
                octets = self._unpack(octets)
        except zlib.error as error:
            raise Undecodable(str(error)) from None

    def _unpack(self, octets: bytes) -> bytes:
        """One member's part of the octets; what is left belongs to the next."""
        if self._unpacker is None:
            octets = octets if not self.body else octets.lstrip(b"\0")  # padding after a member
            if not octets:
                return b""
            self._unpacker = zlib.decompressobj(self._window(octets[0]))
        room = self._cap - len(self.body)
        self.body += self._unpacker.decompress(octets, room + 1)
        self.truncated = len(self.body) > self._cap
        del self.body[self._cap :]
        if not self._unpacker.eof:
            return b""
        rest, self._unpacker = self._unpacker.unused_data, None
        return rest

    def _window(self, first: int) -> int:
        if self._gzip:
            return _GZIP
        return _ZLIB if first & 0x0F == 8 else _RAW  # "deflate" is sent with zlib's frame and without

    def end(self) -> None:
        """Raises Undecodable if the last member is not whole."""
        if self._unpacker is not None and not self.truncated:
            raise Undecodable("the packed body is cut short")


def decoder(content_encoding: str, cap: int) -> Plain:
    """The decoder for a Content-Encoding field. Raises Undecodable for one we do not read."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return Plain(cap)
    if coding in ("gzip", "x-gzip", "deflate"):
        return Packed(cap, coding)
    raise Undecodable(f"content-encoding {coding[:40]!r} is not read")
