"""Redis Sentinels: finding a service's primary, and explaining why none was found.

redis-py raises one error for every cause. But Sentinels that are down and a primary that is lost
recover by themselves, while Sentinels that do not know the service, or refuse to answer, do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import exceptions
from redis.sentinel import MasterNotFoundError, Sentinel

from robots_guard.guard.stores.refusals import SentinelsRefuse, sentinel_refusal


class Sentinels(Sentinel):
    """Sentinels queried in turn. The one that names a primary is queried first the next time."""

    def __init__(self, addresses: list[tuple[str, int]], options: dict[str, Any]) -> None:
        parent: Any = super()
        parent.__init__(addresses, sentinel_kwargs=options)

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the host and port of the service's primary.

        Raises MasterNotFoundError if there is none now, and SentinelsRefuse for a mistake in the
        URL.
        """
        answers = _Answers(service_name)
        sentinels: list[Any] = list(self.sentinels)
        for sentinel in sentinels:
            address = _address(sentinel)
            try:
                services = sentinel.sentinel_masters()
            except exceptions.RedisError as error:
                answers.add_failure(address, error)
                continue
            found = services.get(service_name)
            if found and _is_up(found):
                self._move_to_front(sentinel)
                return found["ip"], found["port"]
            answers.add_without_primary(address, services)
        raise answers.error()

    def _move_to_front(self, sentinel: Any) -> None:
        """Put a Sentinel first, in one assignment because other threads may be iterating."""
        self.sentinels = [sentinel, *(each for each in self.sentinels if each is not sentinel)]


class _Answers:
    """The answers of Sentinels that did not name a primary."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._known_to: list[str] = []
        self._unknown_to: list[str] = []
        self._services: set[str] = set()
        self._refusals: list[str] = []
        self._failures: list[str] = []

    def add_without_primary(self, address: str, services: Mapping[str, Any]) -> None:
        """Add a Sentinel that listed its services but no usable primary of this one."""
        self._services.update(services)
        if self._service in services:
            self._known_to.append(address)
        else:
            self._unknown_to.append(address)

    def add_failure(self, address: str, error: exceptions.RedisError) -> None:
        """Add a Sentinel that did not answer, or refused to."""
        refusal = sentinel_refusal(address, error)
        if refusal:
            self._refusals.append(refusal)
        else:
            self._failures.append(str(error))

    def error(self) -> exceptions.RedisError:
        """Return the most likely cause.

        The name is wrong only if no Sentinel that answers knows the service.
        """
        if self._known_to:
            return MasterNotFoundError(
                f"the Sentinels know of no primary of {self._service!r} that is up"
            )
        if self._unknown_to:
            return SentinelsRefuse(self._unknown_service())
        if self._refusals:
            return SentinelsRefuse(self._refusals[0])
        return MasterNotFoundError(f"no Sentinel answers ({'; '.join(self._failures)})")

    def _unknown_service(self) -> str:
        sentinels = _join("the Sentinel at {} knows", "the Sentinels at {} know", self._unknown_to)
        known = ", ".join(map(repr, sorted(self._services)))
        remedy = "configure them to monitor it, or name other Sentinels"
        if known:
            remedy = f"end the URL with a service they know ({known})"
        return f"{sentinels} no service {self._service!r}: {remedy}"


def _is_up(found: Mapping[str, Any]) -> bool:
    return bool(found["is_master"]) and not (found["is_sdown"] or found["is_odown"])


def _join(singular: str, plural: str, addresses: list[str]) -> str:
    template = plural if len(addresses) > 1 else singular
    return template.format(", ".join(addresses))


def _address(sentinel: Any) -> str:
    address = sentinel.connection_pool.connection_kwargs
    host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
    return f"{host}:{address['port']}"
