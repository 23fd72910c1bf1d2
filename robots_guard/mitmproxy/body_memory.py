"""Body memory: an account of the bytes of request bodies that the process keeps, over all connections.

`body_size_limit` bounds one request, but a client may open any number of them. Each byte of a body that mitmproxy
keeps is counted here from its arrival until its flow has ended, its client has disconnected, or the byte was
discarded. An upload that would exceed the limit is refused (`uploads`), and its bytes are released.

Only requests are counted: `robots-guard proxy` passes responses on as they come.
"""

from __future__ import annotations


class BodyMemory:
    """Counts bytes by client connection, and by flow or another key. Invariant: `held` never exceeds `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._kept: dict[str, dict[str, int]] = {}

    def take(self, client: str, key: str, size: int) -> bool:
        """Count `size` more bytes. Returns False, and counts nothing, if that would exceed the limit."""
        if self.held + size > self.limit:
            return False
        kept = self._kept.setdefault(client, {})
        kept[key] = kept.get(key, 0) + size
        self.held += size
        return True

    def kept(self, client: str, key: str) -> int:
        """The bytes that are counted under a key."""
        return self._kept.get(client, {}).get(key, 0)

    def give_back(self, client: str, key: str, size: int) -> None:
        """Count `size` fewer bytes, but not fewer than none under that key."""
        kept = self._kept.get(client, {})
        freed = min(size, kept.get(key, 0))
        if freed:
            kept[key] -= freed
            self.held -= freed

    def release(self, client: str, key: str) -> None:
        """Drop all that is counted under a key."""
        kept = self._kept.get(client)
        if kept is None:
            return
        self.held -= kept.pop(key, 0)
        if not kept:
            del self._kept[client]

    def forget(self, client: str) -> None:
        """Drop all that is counted for a client connection."""
        self.held -= sum(self._kept.pop(client, {}).values())

    def __len__(self) -> int:
        """The number of client connections with counted bytes."""
        return len(self._kept)


#: The account of this process. The enforcer sets its limit.
MEMORY = BodyMemory(256 * 1024**2)
