"""The destinations that the operator lets clients reach."""

from __future__ import annotations

import asyncio

import pytest

from robots_guard.core.addresses import literal, networks
from robots_guard.gateway.destinations import DestinationPolicy


def policy(clock=lambda: 0.0, *, allowed="", listening=()):
    return DestinationPolicy(
        ports=[range(80, 81), range(8000, 9000)],
        allowed=networks(allowed),
        listening=lambda: listening,
        monotonic=clock,
    )


@pytest.mark.parametrize(
    ("port", "in_tunnel", "why"),
    [
        (80, True, None),
        (8999, True, None),
        (9000, False, None),
        (9000, True, "a tunnel to port 9000"),
        (25, False, "port 25 is not a web port"),
        (25, True, "port 25 is not a web port"),
    ],
)
def test_ports(port, in_tunnel, why):
    found = policy().objection_to_port(port, in_tunnel=in_tunnel)
    assert (found is None) == (why is None)
    assert found is None or found.startswith(why)


@pytest.mark.parametrize(
    ("host", "allowed", "is_refused"),
    [
        ("192.0.2.7", "192.0.2.0/24", False),
        ("10.0.0.1", "", True),
        ("8.8.8.8", "", False),
        ("::ffff:127.0.0.1", "", True),
        ("localhost", "", True),
        ("localhost", "127.0.0.0/8,::1/128", False),
    ],
)
async def test_hosts(host, allowed, is_refused):
    objection = await policy(allowed=allowed).objection_to_host(host, has_parent=False)
    assert (objection is not None) == is_refused


async def test_a_parent_proxy_resolves_names_but_not_addresses():
    destinations = policy()
    assert await destinations.objection_to_host("localhost", has_parent=True) is None
    assert await destinations.objection_to_host("127.0.0.1", has_parent=True) is not None
    assert await destinations.objection_to_host("localhost", has_parent=False) is not None


async def test_a_name_is_resolved_again_after_a_while(clock, monkeypatch):
    answers = iter(["8.8.8.8", "127.0.0.1"])

    async def resolve(host, port):
        return [(2, 1, 6, "", (next(answers), 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    destinations = policy(clock)
    seen = []
    for seconds in (0, 29, 2):
        clock.advance(seconds)
        seen.append(await destinations.objection_to_host("a.test", has_parent=False))
    assert seen[:2] == [None, None]
    assert "127.0.0.1 is not public" in seen[2]


@pytest.mark.parametrize(
    ("address", "listens_at", "is_refused"),
    [
        ("127.0.0.1", ("127.0.0.1", 8080), True),
        ("::ffff:127.0.0.1", ("127.0.0.1", 8080), True),
        ("127.0.0.1", ("0.0.0.0", 8080), True),
        ("127.0.0.1", ("127.0.0.1", 9090), False),
        ("127.0.0.2", ("127.0.0.1", 8080), False),
    ],
)
def test_the_proxys_own_address(address, listens_at, is_refused):
    destinations = policy(allowed="127.0.0.0/8,::ffff:0:0/96", listening=[listens_at])
    objection = destinations.objection_to_addresses([literal(address)], 8080)
    assert (objection is not None) == is_refused
    assert objection is None or "address of this proxy" in objection
