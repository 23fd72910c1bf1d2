"""Envoy's questions: which address a permission names, and that nothing is permitted without one."""

from __future__ import annotations

# One test empties the private cache of judged names, instead of waiting for half a minute.
import asyncio

import pytest

from robots_guard.gateway.placeholders import PLACEHOLDERS
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.serve.ext_authz import CARRIERS, ExtAuthz, carried
from robots_guard.serve.http_listener import DataPlaneRequest, HttpReply

RULES = "User-agent: *\nDisallow: /private/\n"
PACED = "User-agent: *\nDisallow: /private/\nCrawl-delay: 60\n"
NO_ADDRESS = b"no address that may be reached"


async def ask(envoy: ExtAuthz, authority: str, target: str = "/open") -> HttpReply | bytes:
    """Ask as Envoy does about a GET of a plain client."""
    fields = ((b"host", authority.encode()), (b"user-agent", b"mybot"))
    target_sent = f"/check/http{target}".encode()
    reply = envoy.answer(DataPlaneRequest(method=b"GET", target=target_sent, fields=fields))
    return reply if isinstance(reply, HttpReply | bytes) else await reply()


def permitted_address(reply: HttpReply | bytes) -> str:
    assert isinstance(reply, bytes), reply
    lines = dict(line.split(": ", 1) for line in reply.decode().split("\r\n")[1:-2])
    return lines["robots-guard-address"]


async def test_a_permission_names_the_address_that_was_judged(serve, net, name_server):
    site = net.origin(RULES)
    name_server.answers = [[site.address], [site.address], ["192.0.2.1"]]
    envoy = ExtAuthz(serve())

    reply = await ask(envoy, f"a.test:{site.port}")

    assert permitted_address(reply) == f"{site.address}:{site.port}"
    # By the judgement, and by the fetch of robots.txt, which connects itself.
    assert len(name_server.asked) == 2


async def test_a_request_needs_no_lookup_of_its_own(serve, net, name_server):
    site = net.origin(RULES)
    name_server.answers = [[site.address]]
    envoy = ExtAuthz(serve())
    await ask(envoy, f"a.test:{site.port}")
    name_server.asked.clear()

    for _ in range(3):
        assert isinstance(await ask(envoy, f"a.test:{site.port}"), bytes)
    assert isinstance(await ask(envoy, f"a.test:{site.port}", "/private/x"), HttpReply)

    assert name_server.asked == []


async def test_the_services_own_address_is_not_named(serve, net, name_server):
    """Otherwise Envoy could be made to send requests to itself."""
    site = net.origin(RULES)
    name_server.answers = [[site.address]]
    envoy = ExtAuthz(serve(listening=lambda: [("0.0.0.0", site.port)]))

    for host in ("a.test", site.address):
        reply = await ask(envoy, f"{host}:{site.port}")
        assert isinstance(reply, HttpReply)
    assert site.received == []


async def test_a_name_that_has_lost_its_address_takes_no_turn(serve, net, name_server):
    site = net.origin(PACED)
    name_server.answers = [[site.address]]
    service = serve(hold_max=0.0)
    envoy = ExtAuthz(service)
    # Afterwards the policy is known, and the turn is not taken.
    assert isinstance(await ask(envoy, f"a.test:{site.port}", "/private/x"), HttpReply)

    name_server.answers = [[]]
    service._destinations._hosts.clear()  # as after half a minute
    reply = await ask(envoy, f"a.test:{site.port}")
    assert isinstance(reply, HttpReply)
    assert NO_ADDRESS in reply.body

    name_server.answers = [[site.address]]
    assert isinstance(await ask(envoy, f"a.test:{site.port}"), bytes)


async def test_requests_that_wait_for_a_name_are_held_requests(serve, net, name_server):
    """Each takes memory. So they are counted, limited, and ended at shutdown."""
    site = net.origin(RULES)
    name_server.answers = [[site.address]]
    name_server.gate.clear()
    service = serve(max_held=1)
    envoy = ExtAuthz(service)
    first = asyncio.ensure_future(ask(envoy, f"a.test:{site.port}"))
    await asyncio.sleep(0.05)

    assert service.waiting == 1
    second = await ask(envoy, f"b.test:{site.port}")
    name_server.gate.set()

    assert isinstance(second, HttpReply)
    assert isinstance(await first, bytes)
    assert name_server.asked[0] == "a.test"
    assert "b.test" not in name_server.asked


async def test_a_host_that_cannot_be_looked_up_is_no_failure_of_the_guard(serve, caplog):
    reply = await ask(ExtAuthz(serve()), "a" * 64 + ".test")

    assert isinstance(reply, HttpReply)
    assert "robots_guard failed" not in caplog.text


@pytest.mark.parametrize("status", range(100, 600))
def test_no_reply_is_taken_for_a_permission_or_a_fault(status):
    """ext_authz takes a 200 for a permission, and every status from 500 for a fault of the service."""
    assert 400 <= carried(ProxyReply(status, (), b"")).status < 500


def test_the_statuses_of_placeholders_are_translated_back():
    assert {each.status for each in PLACEHOLDERS.values()} <= set(CARRIERS)


async def test_a_part_of_a_page_is_refused_with_a_placeholder(serve, net):
    site = net.origin(RULES)
    envoy = ExtAuthz(serve(refusals="placeholder"))
    fields = (
        (b"host", f"{site.address}:{site.port}".encode()),
        (b"sec-fetch-dest", b"image"),
        (b"origin", b"https://shop.test"),
    )

    request = DataPlaneRequest(b"GET", b"/check/http/private/x.png", fields)
    reply = envoy.answer(request)
    if not isinstance(reply, HttpReply):
        reply = await reply()

    assert (reply.status, reply.body) == (CARRIERS[200], PLACEHOLDERS["image"].body)
    assert ("Access-Control-Allow-Origin", "https://shop.test") in reply.headers
