"""Known origins: those whose policy was fresh when it was last looked up.

For each request, the policy of its origin is needed twice: when the request leaves the queue,
because the first request to an unknown origin leaves alone, and when it is judged. The second
look-up determines the verdict, and is always made. The first look-up only decides how requests leave
the queue, so its result serves all requests of the origin for `LOOK_UP_EVERY` seconds, but no longer
than the policy stays fresh. If memory loses the policy within that time, a request waits in the
middleware instead of the queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from robots_guard.origin import Origin

LOOK_UP_EVERY = 1.0  # seconds
MAX_REMEMBERED = 10_000  # origins; when there are more, all are forgotten


class KnownOrigins:
    """The origins whose policy can be used without waiting.

    `fresh_for` returns the seconds for which an origin's policy stays fresh, or None if the origin
    has no usable policy. `clock` is monotonic, in seconds.
    """

    def __init__(
        self, fresh_for: Callable[[Origin], float | None], clock: Callable[[], float]
    ) -> None:
        self._fresh_for = fresh_for
        self._clock = clock
        self._known_until: dict[Origin, float] = {}

    def __contains__(self, origin: Origin) -> bool:
        now = self._clock()
        if now < self._known_until.get(origin, -math.inf):
            return True
        fresh_for = self._fresh_for(origin)
        if fresh_for is None:
            return False
        if len(self._known_until) >= MAX_REMEMBERED:
            self._known_until.clear()
        self._known_until[origin] = now + min(fresh_for, LOOK_UP_EVERY)
        return True
