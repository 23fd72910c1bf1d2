"""The home of an origin: the region whose store keeps the origin's policy, lease and turns.

It is found by rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase
hit rates", IEEE/ACM Transactions on Networking 6(1), 1998): each region gets a score for the
origin, and the highest wins. All processes that know the same names therefore agree, in whatever
order they list them. A further region becomes the home of its share of the origins, and no origin
moves between the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from robots_guard.origin import Origin

_SCORE = 8  # bytes


def home_of(origin: Origin, regions: Iterable[str]) -> str:
    """Return the name of the origin's home among at least one region."""
    suffix = f"\n{origin}".encode()
    return max(regions, key=lambda region: (_score(region.encode() + suffix), region))


def _score(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_SCORE).digest()
