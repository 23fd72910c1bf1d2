"""The memory that bodies of requests take, over all connections of the process.

`body_size_limit` bounds one request; a client opens as many as it likes. Each byte of a body that mitmproxy keeps is
counted here from its arrival until its flow has ended, or the client has gone, or the byte was let go. What would go
beyond the bound is refused (`uploads`), and gives back what was kept of it.

It counts what clients send. Answers are not counted: `robots-guard proxy` passes them on as they come.
"""

from __future__ import annotations


class BodyMemory:
    """Bytes kept, by client connection and by flow or another key. Invariant: `held` never exceeds `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._kept: dict[str, dict[str, int]] = {}

    def take(self, client: str, key: str, size: int) -> bool:
        """Count so many bytes more; whether there was room. Without room nothing is counted."""
        if self.held + size > self.limit:
            return False
        kept = self._kept.setdefault(client, {})
        kept[key] = kept.get(key, 0) + size
        self.held += size
        return True

    def give_back(self, client: str, key: str, size: int) -> None:
        """Count so many bytes less, but no more than are counted under that key."""
        kept = self._kept.get(client, {})
        freed = min(size, kept.get(key, 0))
        if freed:
            kept[key] -= freed
            self.held -= freed

    def release(self, client: str, key: str) -> None:
        """Count nothing any more under that key."""
        kept = self._kept.get(client)
        if kept is None:
            return
        self.held -= kept.pop(key, 0)
        if not kept:
            del self._kept[client]

    def forget(self, client: str) -> None:
        """Count nothing any more for that client connection."""
        self.held -= sum(self._kept.pop(client, {}).values())

    def __len__(self) -> int:
        """How many client connections something is counted for."""
        return len(self._kept)


#: The process's own. The enforcer sets its limit.
MEMORY = BodyMemory(256 * 1024**2)
