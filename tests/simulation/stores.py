"""The shared store of a history: policies, leases and turns, for every process of the fleet.

A connection belongs to one process. Its calls fail before their effect, or after it (a lost
answer), according to the plan. Their duration is simulated by the process's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from robots_guard.decisions.lease import Taken
from robots_guard.decisions.pacing import Turn, Wait
from robots_guard.decisions.policy import Policy
from robots_guard.errors import DamagedValue, StoreError
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.guard.stores.sqlite import LeaseThenPolicy
from robots_guard.origin import Origin
from simulation.kernel import Kernel
from simulation.plan import Plan, Span

Clock = Callable[[], float]


class ModelStore(LeaseThenPolicy):
    """A minimal model of a shared store. With `clock`, it has its own clock, like a server."""

    is_local = True

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self.forget_all()

    def forget_all(self) -> None:
        """Lose all content, as after FLUSHALL or with a new file."""
        self._memory = MemoryStore()
        self.leases: dict[Origin, tuple[str, float]] = {}

    def get(self, origin: Origin) -> Policy | None:
        return self._memory.get(origin)

    def put(self, policy: Policy, now: float) -> None:
        self._memory.put(policy, now)

    def forget(self, origin: Origin) -> bool:
        return self._memory.forget(origin)

    def origins(self) -> Iterable[Origin]:
        return self._memory.origins()

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        now = now if self._clock is None else self._clock()
        lease = self.leases.get(origin)
        if lease is not None and now < lease[1] <= now + 2 * seconds:
            return False
        self.leases[origin] = (token, now + seconds)
        return True

    def release(self, origin: Origin, token: str) -> None:
        if self.leases.get(origin, ("",))[0] == token:
            del self.leases[origin]

    def reserve(self, origin: Origin, delay: float, now: Clock, name: str = "") -> Turn | Wait:
        turn = self._memory.reserve(origin, delay, self._clock or now, name)
        return replace(turn, asked=now(), skew=(self._clock or now)() - now())

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        return self._memory.move_turn(origin, stamp, since)

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:
        self._memory.note_pause(origin, seconds, now if self._clock is None else self._clock())

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class Weather:
    """The faults of the store, by the spans of a plan."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self._kernel = kernel
        self._spans = plan.store
        self.is_calm = not self._spans

    def fault(self) -> str:
        """Return the kind of fault that hits a call now; empty for none."""
        for span in self._spans:
            if self._hits(span):
                return span.kind
        return ""

    def delays(self, call: tuple[Any, ...]) -> tuple[float, float]:
        """Return the seconds that a call (a function and its arguments) takes before and after its
        effect.
        """
        random = self._kernel.random.random
        kind = "" if self.is_calm or not _is_store_call(call) else self.fault()
        if kind == "hung":
            return max(
                span.ends - self._kernel.time for span in self._spans if span.kind == kind
            ), 0.001
        longest = 2.0 if kind == "slow" else 0.02
        return random() * longest, random() * longest

    def _hits(self, span: Span) -> bool:
        if not span.begins <= self._kernel.time < span.ends:
            return False
        return span.share >= 1 or self._kernel.random.random() < span.share


def _is_store_call(call: tuple[Any, ...]) -> bool:
    return any(
        isinstance(each, Connection) or isinstance(getattr(each, "__self__", None), Connection)
        for each in call
    )


class Connection:
    """A SharedStore for one process: the common `store` behind a connection that may fail."""

    def __init__(self, store: Any, weather: Weather) -> None:
        self._store = store
        self._weather = weather
        self._is_closed = False
        self.is_local = store.is_local

    def _call(self, name: str, *args: Any) -> Any:
        if self._is_closed:
            raise StoreError("is closed")
        fault = "" if self._weather.is_calm else self._weather.fault()
        if fault == "down":
            raise StoreError("the store is down")
        if fault == "damaged" and name == "get":
            raise DamagedValue("the stored value is damaged")
        answer = getattr(self._store, name)(*args)
        if fault == "damaged" and isinstance(answer, Taken):
            answer = Taken(answer.is_ours, damage="the stored value is damaged")
        if fault == "lost-answer":
            raise StoreError("the answer was lost")
        return answer

    def get(self, origin: Origin) -> Policy | None:
        return self._call("get", origin)

    def put(self, policy: Policy, now: float) -> None:
        self._call("put", policy, now)

    def forget(self, origin: Origin) -> bool:
        return self._call("forget", origin)

    def origins(self) -> Iterable[Origin]:
        return self._call("origins")

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        return self._call("take", origin, token, now, seconds)

    def take_and_get(self, origin: Origin, token: str, now: float, seconds: float) -> Taken:
        return self._call("take_and_get", origin, token, now, seconds)

    def release(self, origin: Origin, token: str) -> None:
        self._call("release", origin, token)

    def reserve(self, origin: Origin, delay: float, now: Clock, name: str = "") -> Turn | Wait:
        return self._call("reserve", origin, delay, now, name)

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        return self._call("move_turn", origin, stamp, since)

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:
        self._call("note_pause", origin, seconds, now)

    def close(self) -> None:
        self._is_closed = True
