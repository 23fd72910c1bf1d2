"""Cases: what a client sends, by which way through the proxy, to an origin of which temper. A seed stands for each."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from integrations.mitmproxy.differential import frames, grammar
from integrations.mitmproxy.differential.origin import Temper

#: Seconds without a byte after which a client leaves: the proxy waits for the rest of a body that is none. Nothing
#: rests on it but how much of a stream a slow proxy gets to read.
QUIET = 0.5


@dataclass(frozen=True)
class Way:
    """How a client reaches an origin: `entry` is what it says first, `origin` the protocol at the other end."""

    entry: str  # absolute, tunnel, socks, direct
    speaks: str  # http1, h2
    tls: bool
    origin: str  # http, tls, h2

    def __str__(self) -> str:
        client = f"{self.speaks} over TLS" if self.tls else self.speaks
        return f"{self.entry}, {client}, to {self.origin}"

    @property
    def scheme(self) -> str:
        return "http" if self.origin == "http" else "https"


_TUNNELED = [
    ("http1", False, "http"),
    ("http1", True, "tls"),
    ("h2", True, "tls"),
    ("h2", True, "h2"),
]
_PROXY = [
    Way("absolute", "http1", False, "http"),
    Way("absolute", "h2", True, "http"),  # a client that speaks TLS to the proxy itself
    *(Way("tunnel", *rest) for rest in _TUNNELED),
]
WAYS = {
    "regular": _PROXY,
    "upstream": _PROXY,
    "socks5": [Way("socks", *rest) for rest in _TUNNELED],
    "reverse": [*(Way("direct", *rest) for rest in _TUNNELED), Way("direct", "h2", True, "http")],
}


@dataclass(frozen=True)
class Case:
    """What one client sends on one connection. `pieces` are the writes, or the frames of HTTP/2."""

    seed: int
    label: str
    way: Way
    temper: Temper
    pieces: tuple[bytes, ...]
    leaves: bool = False  # whether the client closes at once, without reading
    patience: float = QUIET  # seconds without a byte after which the client leaves
    after_switch: bytes = b""  # what the client sends once it is answered with 101

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.label}; {self.way}; an origin that {self.temper.value})"


def case(seed: int, mode: str, authorities: dict[str, str]) -> Case:
    """Make the case of a seed. `authorities` are those of the lane it runs in, by protocol."""
    rng = Random(seed)
    way = rng.choice(WAYS[mode])
    temper = rng.choice((Temper.READS, Temper.READS, *Temper))
    aims = grammar.Aims(seed, authorities[way.origin], absolute=way.entry == "absolute")
    if way.speaks == "h2":
        label, written = frames.stream(rng, aims, way.scheme)
        return Case(seed, label, way, temper, tuple(written), leaves=rng.random() < 0.04)
    label, data = grammar.stream(rng, aims)
    leaves = rng.random() < (0.7 if label == "unfinished" else 0.04)
    after_switch = grammar.smuggled(rng, aims, "switched") + grammar.last(aims)
    return Case(
        seed, label, way, temper, grammar.in_pieces(rng, data), leaves, after_switch=after_switch
    )
