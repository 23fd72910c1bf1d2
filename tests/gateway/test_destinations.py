"""The destinations that the operator lets clients reach."""

from __future__ import annotations

import asyncio

import pytest

from robots_guard.decisions.addresses import literal, networks
from robots_guard.gateway.destinations import DestinationPolicy, NoAddress
from robots_guard.gateway.waits import NoRoomToWait
from robots_guard.origin import Origin


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


async def test_a_name_is_resolved_again_after_a_while(clock, name_server):
    name_server.answers = [["8.8.8.8"], ["127.0.0.1"]]
    destinations = policy(clock)
    seen = []
    for seconds in (0, 29, 2):
        clock.advance(seconds)
        seen.append(await destinations.objection_to_host("a.test", has_parent=False))
    assert seen[:2] == [None, None]
    assert "127.0.0.1 is not public" in seen[2]


# -- the address to connect to ---------------------------------------------------------------------


async def address_or_none(destinations, host, port=80):
    try:
        return await destinations.address_of(Origin("http", host, port))
    except NoAddress:
        return None


@pytest.mark.parametrize(
    ("host", "address"),
    [("8.8.8.8", "8.8.8.8"), ("2606:4700::1111", "2606:4700::1111"), ("10.0.0.1", None)],
)
async def test_the_address_of_a_literal_is_itself(host, address, name_server):
    assert await address_or_none(policy(), host) == (literal(address) if address else None)
    assert name_server.asked == []


@pytest.mark.parametrize(
    ("addresses", "address"),
    [
        (["8.8.8.8", "9.9.9.9"], "8.8.8.8"),
        (["8.8.8.8", "127.0.0.1"], None),  # a program might try the second one
        ([], None),
    ],
)
async def test_the_address_of_a_name(addresses, address, name_server):
    name_server.answers = [addresses]
    assert await address_or_none(policy(), "a.test") == (literal(address) if address else None)


async def test_one_lookup_serves_the_judgement_and_the_address(name_server):
    name_server.answers = [["8.8.8.8"], ["127.0.0.1"]]
    destinations, origin = policy(listening=[("192.0.2.1", 80)]), Origin("http", "a.test", 80)
    assert await destinations.objection_to_origin(origin, in_tunnel=False) is None
    assert destinations.known_objection_to_origin(origin, in_tunnel=False) is None
    assert await destinations.address_of(origin) == literal("8.8.8.8")
    assert name_server.asked == ["a.test"]


async def test_concurrent_questions_share_a_lookup(name_server):
    name_server.answers = [["8.8.8.8"]]
    name_server.gate.clear()
    destinations, origin = policy(), Origin("http", "a.test", 80)
    questions = asyncio.gather(*(destinations.address_of(origin) for _ in range(5)))
    await asyncio.sleep(0.05)
    name_server.gate.set()
    assert set(await questions) == {literal("8.8.8.8")}
    assert name_server.asked == ["a.test"]


async def test_a_question_that_is_given_up_leaves_the_lookup_to_the_others(name_server):
    name_server.answers = [["8.8.8.8"]]
    name_server.gate.clear()
    destinations, origin = policy(), Origin("http", "a.test", 80)
    first, second = (asyncio.ensure_future(destinations.address_of(origin)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0.05)
    name_server.gate.set()
    assert await second == literal("8.8.8.8")
    assert name_server.asked == ["a.test"]


async def test_a_name_without_addresses_is_looked_up_again(name_server):
    name_server.answers = [[], ["8.8.8.8"]]
    destinations, origin = policy(), Origin("http", "a.test", 80)
    assert await destinations.objection_to_origin(origin, in_tunnel=False) is None
    assert await destinations.address_of(origin) == literal("8.8.8.8")


async def test_the_threads_of_lookups_are_bounded(name_server, monkeypatch):
    """They outlast the requests that began them, so that a limit of requests does not bound them."""
    monkeypatch.setattr("robots_guard.gateway.destinations._MOST_LOOKUPS", 2)
    name_server.answers = [["8.8.8.8"]]
    name_server.gate.clear()
    destinations = policy()
    origins = [Origin("http", f"{name}.test", 80) for name in "abc"]
    given_up = [asyncio.ensure_future(destinations.address_of(each)) for each in origins[:2]]
    await asyncio.sleep(0.05)
    for question in given_up:
        question.cancel()
    await asyncio.sleep(0)

    with pytest.raises(NoRoomToWait):
        await destinations.address_of(origins[2])
    shared = asyncio.ensure_future(destinations.address_of(origins[0]))
    await asyncio.sleep(0)
    name_server.gate.set()

    assert await shared == literal("8.8.8.8")
    assert await destinations.address_of(origins[0]) == literal("8.8.8.8")
    assert "c.test" not in name_server.asked


async def test_a_name_that_no_name_server_can_be_asked_for_has_no_address():
    destinations, name = policy(), "a" * 64 + ".test"
    origin = Origin("http", name, 80)
    assert await destinations.objection_to_origin(origin, in_tunnel=False) is None
    assert await address_or_none(destinations, name) is None


async def test_the_data_planes_own_address_is_not_returned(name_server):
    name_server.answers = [["127.0.0.1"]]
    destinations = policy(allowed="127.0.0.0/8", listening=[("0.0.0.0", 8080)])
    for host in ("a.test", "127.0.0.1"):
        assert await address_or_none(destinations, host, 8080) is None
        assert await address_or_none(destinations, host, 8081) == literal("127.0.0.1")


# -- the proxy's own address -----------------------------------------------------------------------


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
