"""Body memory: counts the bytes of bodies that this process keeps, over all connections.

`body_size_limit` bounds one request, but a client may open any number of them. Each byte of a body
that mitmproxy keeps is counted here from its arrival until its flow has ended, its client has
disconnected, or the byte was discarded. An upload that would exceed the limit is refused
(`http_stream_uploads`), and its bytes are released.

Of responses, only the pages that are held until they are judged are counted
(`http_stream_responses`): `robots-guard proxy` forwards all others as they arrive.
"""

from __future__ import annotations


class BodyMemory:
    """Counts bytes by client connection, and by flow or another key. Invariant: `used` never exceeds `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._counted: dict[str, dict[str, int]] = {}

    def take(self, client: str, key: str, size: int) -> bool:
        """Count `size` more bytes. Returns False, and counts nothing, if that would exceed the limit."""
        if self.used + size > self.limit:
            return False
        counts = self._counted.setdefault(client, {})
        counts[key] = counts.get(key, 0) + size
        self.used += size
        return True

    def used_by(self, client: str, key: str) -> int:
        """The number of bytes counted under a key."""
        return self._counted.get(client, {}).get(key, 0)

    def give_back(self, client: str, key: str, size: int) -> None:
        """Count `size` fewer bytes under a key, but never fewer than none."""
        counts = self._counted.get(client, {})
        freed = min(size, counts.get(key, 0))
        if freed:
            counts[key] -= freed
            self.used -= freed

    def release(self, client: str, key: str) -> None:
        """Drop all bytes counted under a key."""
        counts = self._counted.get(client)
        if counts is None:
            return
        self.used -= counts.pop(key, 0)
        if not counts:
            del self._counted[client]

    def forget(self, client: str) -> None:
        """Drop all bytes counted for a client connection."""
        self.used -= sum(self._counted.pop(client, {}).values())

    def __len__(self) -> int:
        """The number of client connections with counted bytes."""
        return len(self._counted)


#: The body memory of this process. The enforcer sets its limit.
MEMORY = BodyMemory(256 * 1024**2)
