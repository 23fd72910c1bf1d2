"""The HTTP/2 grammar writes frames that are turned into another request than the one that was judged.

As in `grammar`, a connection is valid except in one place, and the classes have the names under which the attacks
were published: `H2.CL` is a request whose content-length is not the length of its DATA, and so on. The frames are
written with hyperframe and hpack, which check nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import hpack
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from integrations.mitmproxy.differential.grammar import LAST, Aims, chunked, smuggled

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
Field = tuple[bytes, bytes]


class Connection:
    """Writes the frames of one client connection, a request to a stream."""

    def __init__(self, rng: Random, aims: Aims, scheme: str) -> None:
        self.rng = rng
        self.aims = aims
        self.scheme = scheme.encode()
        self.frames: list[bytes] = [PREFACE + SettingsFrame(0).serialize()]
        self.stream = -1
        self._encoder = hpack.Encoder()

    def names(self, path: str, method: str = "GET") -> list[Field]:
        """Return the pseudo-headers of a valid request."""
        return [
            (b":method", method.encode("latin-1")),
            (b":scheme", self.scheme),
            (b":authority", self.aims.authority.encode()),
            (b":path", path.encode("latin-1")),
        ]

    def put(self, frame: Frame, *flags: str) -> None:
        for flag in flags:
            frame.flags.add(flag)
        self.frames.append(frame.serialize())

    def request(
        self,
        fields: Sequence[Field],
        body: bytes | None = None,
        trailers: Sequence[Field] | None = None,
    ) -> None:
        """Write a request on a stream of its own; without a body its header block ends the stream."""
        self.stream += 2
        self.headers(fields, ends=body is None and trailers is None)
        if body is not None:
            self.body(body, ends=trailers is None)
        if trailers is not None:
            self.headers(trailers, ends=True)

    def headers(self, fields: Sequence[Field], *, ends: bool) -> None:
        """Write a header block, in one frame or with CONTINUATION behind it."""
        block = self._encoder.encode(fields, huffman=self.rng.random() < 0.5)
        cuts = [len(block)]
        if self.rng.random() < 0.2:
            cuts = [*sorted(self.rng.sample(range(len(block)), 2)), len(block)]
        first, *others = [block[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
        flags = ["END_STREAM"] if ends else []
        frame = HeadersFrame(self.stream, first)
        if self.rng.random() < 0.1:
            frame.pad_length = self.rng.randint(0, 20)
            flags.append("PADDED")
        self.put(frame, *flags, *([] if others else ["END_HEADERS"]))
        for number, part in enumerate(others, 1):
            self.put(
                ContinuationFrame(self.stream, part),
                *(["END_HEADERS"] if number == len(others) else []),
            )

    def body(self, data: bytes, *, ends: bool) -> None:
        """Write DATA in one frame or several, padded or not, with empty ones between."""
        step = self.rng.choice((16_000, 16_000, 7, 1 + len(data) // 2))
        parts = [data[at : at + step] for at in range(0, len(data), step)]
        if self.rng.random() < 0.2:
            parts.insert(self.rng.randrange(len(parts) + 1), b"")
        separately = self.rng.random() < 0.3  # END_STREAM on an empty frame of its own
        for number, part in enumerate(parts, 1):
            frame = DataFrame(self.stream, part)
            padded = self.rng.random() < 0.1
            if padded:
                frame.pad_length = self.rng.randint(0, 40)
            is_last = ends and number == len(parts) and not separately
            self.put(frame, *(["PADDED"] if padded else []), *(["END_STREAM"] if is_last else []))
        if ends and (separately or not parts):
            self.put(DataFrame(self.stream, b""), "END_STREAM")

    def hidden(self, name: object = "smuggled") -> bytes:
        return smuggled(self.rng, self.aims, name)

    def body_method(self) -> str:
        return self.rng.choice(("POST", "POST", "PUT", "GET", "HEAD", "DELETE", "OPTIONS"))


def plain(link: Connection) -> None:
    """One to four valid requests."""
    for number in range(link.rng.randint(1, 4)):
        path = link.rng.choice((link.aims.open, link.aims.open, link.aims.private))(number)
        body = link.rng.choice((None, b"", b"abc", link.hidden(f"in{number}")))
        said = [(b"content-length", b"%d" % len(body))] if body is not None else []
        link.request(link.names(path, "GET" if body is None else link.body_method()) + said, body)


def unframed(link: Connection) -> None:
    """A body without content-length, which HTTP/1 must frame."""
    path = link.rng.choice(
        (
            link.aims.open("unframed"),
            link.aims.open("unframed"),
            "/robots.txt",
            link.aims.private("u"),
        )
    )
    said = [(b"expect", b"100-continue")] if link.rng.random() < 0.2 else []
    trailers = [(b"x-a", b"b")] if link.rng.random() < 0.2 else None
    link.request(link.names(path, link.body_method()) + said, link.hidden(), trailers)


def h2_cl(link: Connection) -> None:
    """A content-length that is not the length of the DATA."""
    body = link.hidden()
    size = len(body)
    forms = (
        f"{size}",
        "0",
        "1",
        f"{size + 1}",
        f"{size - 1}",
        f"+{size}",
        f"{size}, {size}",
        f"{size},0",
        f"{size:#x}",
        "",
        "x",
        f" {size}",
        f"{2**64 + size}",
        "-1",
        f"0{size}",
    )
    said = [(b"content-length", link.rng.choice(forms).encode())]
    if link.rng.random() < 0.3:
        said.append((b"content-length", link.rng.choice(forms).encode()))
    link.request(
        link.names(link.aims.open("H2.CL"), link.body_method()) + said,
        link.rng.choice((body, body, None)),
    )


def h2_te(link: Connection) -> None:
    """A transfer-encoding, which HTTP/2 forbids and HTTP/1 obeys."""
    body = link.rng.choice((b"0\r\n\r\n" + link.hidden(), chunked(link.hidden()), link.hidden()))
    name = link.rng.choice(
        (b"transfer-encoding",) * 4
        + (b"transfer-encoding ", b"Transfer-Encoding", b"transfer_encoding", b"te")
    )
    value = link.rng.choice(
        (
            b"chunked",
            b"Chunked",
            b"\tchunked",
            b"chunked, identity",
            b"x\r\n chunked",
            b"identity",
            b"trailers",
        )
    )
    said = [(name, value)]
    if link.rng.random() < 0.4:
        said.append((b"content-length", b"%d" % len(body)))
    link.request(link.names(link.aims.open("H2.TE"), link.body_method()) + said, body)


def injection(link: Connection) -> None:
    """Line ends in a name, a value or a pseudo-header."""
    end = link.rng.choice((b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n ", b"\0", b"\x0b"))
    private = link.aims.private("injected").encode()
    authority = link.aims.authority.encode()
    split = end + b"Transfer-Encoding: chunked" + end
    whole = (
        b" HTTP/1.1"
        + end
        + b"Host: "
        + authority
        + end
        + end
        + b"GET "
        + private
        + b" HTTP/1.1"
        + end
        + b"X: y"
    )
    names = dict(link.names(link.aims.open("injected"), link.body_method()))
    said: list[Field] = []
    place = link.rng.choice(
        ("value", "name", ":path", ":method", ":authority", ":scheme", "cookie", "host")
    )
    if place == "value":
        said.append(
            (
                b"x-a",
                b"b"
                + link.rng.choice(
                    (split, end + end + b"GET " + private + b" HTTP/1.1" + end + b"X: y")
                ),
            )
        )
    elif place == "name":
        said.append((b"x-a: b" + split + b"x-c", b"d"))
    elif place in (":path", ":method"):
        names[place.encode()] = link.rng.choice(
            (names[place.encode()] + whole, b"GET " + private + b" HTTP/1.1" + end + b"X: y")
        )
    elif place in (":authority", ":scheme"):
        names[place.encode()] += split
    else:
        said.append((place.encode(), authority + split))
    link.request([*names.items(), *said], link.rng.choice((None, b"0\r\n\r\n" + link.hidden())))


def pseudo_headers(link: Connection) -> None:
    """Pseudo-headers twice, missing, unknown, in capitals, or behind the fields."""
    names = link.names(link.aims.open("pseudo"))
    secret = (b":path", link.aims.private("pseudo").encode())
    kind = link.rng.randrange(7)
    if kind == 0:
        names.insert(link.rng.randrange(5), secret)
    elif kind == 1:
        names += [(b"x-a", b"b"), secret]
    elif kind == 2:
        names.pop(link.rng.randrange(4))
    elif kind == 3:
        names.append(
            (
                link.rng.choice(
                    (b":foo", b":status", b":protocol", b":", b":path ", b" :path", b":Path")
                ),
                secret[1],
            )
        )
    elif kind == 4:
        name, value = names[2]
        names.append((name, link.rng.choice((value, b"elsewhere.invalid"))))
    elif kind == 5:
        names.insert(0, (b"x-a", b"b"))
    else:
        names[0] = (
            b":method",
            link.rng.choice(
                (b"", b"GET ", b" GET", b"G ET", b"get", b"GET /private/x HTTP/1.1\r\n", b"PRI")
            ),
        )
    link.request(names, link.rng.choice((None, None, link.hidden())))


def authorities(link: Connection) -> None:
    """Names of the site that disagree."""
    aims = link.aims
    address, _, port = aims.authority.partition(":")
    other = link.rng.choice(
        (
            aims.authority,
            "elsewhere.invalid",
            f"{address}.:{port}",
            f"{address}:0{port}",
            f"u@{aims.authority}",
            "",
            aims.authority + " ",
            f"{address}:1",
            address,
            aims.authority + "/private",
        )
    ).encode()
    names = dict(link.names(aims.open("authority")))
    said: list[Field] = []
    if link.rng.random() < 0.5:
        names[b":authority"] = other
    else:
        said.append((b"host", other))
    if link.rng.random() < 0.3:
        names.pop(b":authority")
    if link.rng.random() < 0.2:
        said.append((b"host", aims.authority.encode()))
    link.request([*names.items(), *said])


def paths(link: Connection) -> None:
    """Targets that a writer of HTTP/1 request lines must not pass on."""
    secret = link.aims.private("path")
    path = link.rng.choice(
        (
            "",
            "*",
            " ",
            f" {secret}",
            f"{link.aims.open('a')} {secret}",
            f"{link.aims.open('a')}\t{secret}",
            f"{link.aims.open('a')}#{secret}",
            f"http://{link.aims.authority}{secret}",
            f"//{link.aims.authority}{secret}",
            "open",
            f"{link.aims.open('a')}\0",
            f"?{secret}",
            f"{link.aims.open('a')} HTTP/1.1",
            f"{link.aims.open('a')} HTTP/1.0",
            "/open/..;/private/x",
            f"/\\{secret}",
            "/\xe4",
            f"{link.aims.open('a')}?{'x' * 20_000}",
            link.aims.authority,
        )
    )
    link.request(
        link.names(path, link.rng.choice(("GET", "OPTIONS", "POST"))),
        link.rng.choice((None, link.hidden())),
    )


def connect(link: Connection) -> None:
    """CONNECT, and CONNECT extended by a protocol, with requests in the DATA."""
    names = [(b":method", b"CONNECT"), (b":authority", link.aims.authority.encode())]
    if link.rng.random() < 0.6:
        protocol = link.rng.choice((b"websocket", b"connect-udp", b""))
        names = [*link.names(link.aims.open("connect"), "CONNECT"), (b":protocol", protocol)]
        names += [(b"sec-websocket-version", b"13")] if protocol == b"websocket" else []
    link.request(names, link.hidden())


def hop_by_hop(link: Connection) -> None:
    """Fields that belong to one HTTP/1 connection."""
    name, value = link.rng.choice(
        (
            (b"connection", b"close"),
            (b"connection", b"content-length"),
            (b"connection", b"transfer-encoding, host"),
            (b"upgrade", b"h2c"),
            (b"upgrade", b"websocket"),
            (b"keep-alive", b"timeout=9"),
            (b"proxy-connection", b"keep-alive"),
            (b"te", b"gzip"),
            (b"http2-settings", b"AAMAAABk"),
            (b"expect", b"100-continue"),
            (b"Host", b"elsewhere.invalid"),
            (b"trailer", b"content-length"),
        )
    )
    body = link.hidden()
    said = [(name, value), (b"content-length", b"%d" % len(body))]
    link.request(
        link.names(link.aims.open("hop"), link.body_method()) + said[: link.rng.choice((1, 2))],
        body,
    )


def trailers(link: Connection) -> None:
    """Trailers that frame, address or split the request, should a writer put them into it."""
    body = link.hidden()
    trailer = link.rng.choice(
        (
            (b"x-a", b"b"),
            (b"content-length", b"0"),
            (b"transfer-encoding", b"chunked"),
            (b"x-a", b"b\r\n\r\n" + body),
            (b":path", b"/private/x"),
            (b"host", b"elsewhere.invalid"),
            (b"x-a: b\r\n\r\n" + body, b"c"),
            (b"X-A", b"b"),
        )
    )
    framed = [(b"content-length", b"%d" % len(body))] if link.rng.random() < 0.5 else []
    link.request(
        link.names(link.aims.open("trailers"), link.body_method()) + framed, body, [trailer]
    )


def interrupted(link: Connection) -> None:
    """A body that is broken off, or that other frames and streams come between."""
    link.stream += 2
    link.headers(link.names(link.aims.open("interrupted"), "POST"), ends=False)
    body = link.hidden()
    link.body(body, ends=False)
    first = link.stream
    kind = link.rng.randrange(5)
    if kind == 0:
        link.put(RstStreamFrame(first, error_code=8))
    elif kind == 1:
        link.request(link.names(link.aims.open("between")), None)
        link.put(DataFrame(first, body), "END_STREAM")
    elif kind == 2:
        link.put(PingFrame(0, b"12345678"))
        link.put(PriorityFrame(first, depends_on=0, stream_weight=3))
        link.put(WindowUpdateFrame(0, window_increment=100))
        link.put(DataFrame(first, body), "END_STREAM")
    elif kind == 3:
        link.put(DataFrame(first, b""), "END_STREAM")
        link.put(DataFrame(first, body), "END_STREAM")  # behind the end of the stream


CLASSES: dict[str, Callable[[Connection], None]] = {
    "h2 plain": plain,
    "h2 unframed": unframed,
    "H2.CL": h2_cl,
    "H2.TE": h2_te,
    "h2 injection": injection,
    "h2 pseudo-headers": pseudo_headers,
    "h2 authorities": authorities,
    "h2 paths": paths,
    "h2 CONNECT": connect,
    "h2 hop-by-hop": hop_by_hop,
    "h2 trailers": trailers,
    "h2 interrupted": interrupted,
}


def stream(rng: Random, aims: Aims, scheme: str) -> tuple[str, list[bytes]]:
    """Return a class of connections and the frames of one, with a valid request behind them."""
    name = rng.choice(list(CLASSES))
    link = Connection(rng, aims, scheme)
    CLASSES[name](link)
    link.request(link.names(f"/open/{aims.number}.{LAST}"))
    return name, link.frames
