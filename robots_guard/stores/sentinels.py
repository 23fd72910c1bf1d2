"""The Sentinels of a URL, which name the primary of a service; and why they name none.

redis-py has one error for all of that. But Sentinels that are away, and a primary that is lost, come back by
themselves; Sentinels that do not know the service, or refuse to answer, do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import exceptions
from redis.sentinel import MasterNotFoundError, Sentinel

from robots_guard.stores.refusals import SentinelsRefuse, of_sentinel


class Sentinels(Sentinel):
    """Sentinels that are asked in turn; the one that names a primary is asked first the next time."""

    def __init__(self, addresses: list[tuple[str, int]], options: dict[str, Any]) -> None:
        made: Any = super()
        made.__init__(addresses, sentinel_kwargs=options)

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """The address of the service's primary.

        Raises MasterNotFoundError if there is none now, and SentinelsRefuse for a mistake of the URL.
        """
        answers = _Answers(service_name)
        sentinels: list[Any] = list(self.sentinels)
        for sentinel in sentinels:
            place = _place(sentinel)
            try:
                services = sentinel.sentinel_masters()
            except exceptions.RedisError as error:
                answers.failed(place, error)
                continue
            found = services.get(service_name)
            if found and _is_up(found):
                self._ask_first(sentinel)
                return found["ip"], found["port"]
            answers.named_none(place, services)
        raise answers.error()

    def _ask_first(self, sentinel: Any) -> None:
        """Put a Sentinel first, in one assignment: other threads may be asking, too."""
        self.sentinels = [sentinel, *(each for each in self.sentinels if each is not sentinel)]


class _Answers:
    """What the Sentinels have answered, none of which named a primary."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._known_to: list[str] = []
        self._unknown_to: list[str] = []
        self._services: set[str] = set()
        self._refusals: list[str] = []
        self._failures: list[str] = []

    def named_none(self, place: str, services: Mapping[str, Any]) -> None:
        """Note a Sentinel that knows these services, and for ours no primary."""
        self._services.update(services)
        (self._known_to if self._service in services else self._unknown_to).append(place)

    def failed(self, place: str, error: exceptions.RedisError) -> None:
        """Note a Sentinel that did not answer, or refused to."""
        refusal = of_sentinel(place, error)
        if refusal:
            self._refusals.append(refusal)
        else:
            self._failures.append(str(error))

    def error(self) -> exceptions.RedisError:
        """The cause. Only if no Sentinel that answers knows the service is its name wrong."""
        if self._known_to:
            return MasterNotFoundError(f"the Sentinels know no primary of {self._service!r} that is up")
        if self._unknown_to:
            return SentinelsRefuse(self._unknown_service())
        if self._refusals:
            return SentinelsRefuse(self._refusals[0])
        return MasterNotFoundError(f"no Sentinel answers ({'; '.join(self._failures)})")

    def _unknown_service(self) -> str:
        asked = _listed("the Sentinel at {} knows", "the Sentinels at {} know", self._unknown_to)
        known = ", ".join(map(repr, sorted(self._services)))
        remedy = f"end the URL with one that is known ({known})" if known else "have it monitored, or name others"
        return f"{asked} no service {self._service!r}: {remedy}"


def _is_up(found: Mapping[str, Any]) -> bool:
    return bool(found["is_master"]) and not (found["is_sdown"] or found["is_odown"])


def _listed(one: str, several: str, places: list[str]) -> str:
    return (several if len(places) > 1 else one).format(", ".join(places))


def _place(sentinel: Any) -> str:
    address = sentinel.connection_pool.connection_kwargs
    host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
    return f"{host}:{address['port']}"
