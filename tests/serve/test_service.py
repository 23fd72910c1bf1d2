"""The decision service: what it permits, holds and refuses, and that it fails closed."""

from __future__ import annotations

# Tests of failures break the service from inside, by its `_admission`, which is private.
import asyncio
import itertools
import json
import re
import time

import pytest
from support.audit_log import decisions
from support.waiting import until
from support.wires import wire

from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Question
from robots_guard.errors import AuditLogError
from robots_guard.gateway.placeholders import PLACEHOLDERS
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.origin import split_url
from robots_guard.serve.service import Admitted
from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
SLOW = "User-agent: *\nCrawl-delay: {}\n"


def to(url, **changes):
    """A GET of a URL, as the client of a plain proxy sends it."""
    origin, target = split_url(url)
    usual = {
        "scheme": origin.scheme,
        "host": origin.host,
        "port": origin.port,
        "target": target,
        "hosts": (origin.authority,),
        "sni": None,
    }
    return wire(**usual | changes)


def field(reply: ProxyReply, name: str) -> str:
    return dict(reply.headers).get(name, "")


# -- requests --------------------------------------------------------------------------------------


async def test_a_permitted_request_has_the_id_of_its_decision(serve, net, tmp_path):
    site, service = net.origin(RULES), serve()

    admitted = await service.admit(to(f"{site.url}/open"))

    assert isinstance(admitted, Admitted)
    assert not admitted.needs_response
    assert await service.respond(admitted.id, ResponseHead(status=200)) is None
    assert len(site.robots_fetches) == 1
    await service.close()
    (record,) = decisions(tmp_path / "audit_log")
    assert (record["id"], record["component"]) == (admitted.id, "serve")


async def test_a_refusal_names_the_rule(serve, net):
    site = net.origin(RULES)

    reply = await serve(contact="ops@crawler.example").admit(to(f"{site.url}/private/x"))

    assert isinstance(reply, ProxyReply)
    assert reply.status == 403
    problem = json.loads(reply.body)
    assert (problem["rule"], problem["line"]) == ("Disallow: /private/", 2)
    assert problem["contact"] == "ops@crawler.example"
    page = await serve().admit(to(f"{site.url}/private/x"), accept="text/html")
    assert field(page, "Content-Type").startswith("text/html")


#: What differs between the requests of `test_an_answer_at_once_is_that_after_waiting`.
METHODS = ("GET", "HEAD", "POST", "G E T")
TARGETS = ("/open", "/private/x", "/%70rivate/x", "/robots.txt", "*bad", "/a#b", "")
HOSTS = ({}, {"hosts": ("other.test",)}, {"hosts": ()})
OPTIONS = ({}, {"accept": "text/html"}, {"in_tunnel": True}, {"user": "alice"})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rules", [RULES, SLOW.format(60)], ids=["no-delay", "delay"])
async def test_an_answer_at_once_is_that_after_waiting(
    serve, net, tmp_path, monkeypatch, options, rules
):
    """A service that judges nothing at once gives the same answers and writes the same records."""
    users = tmp_path / "users.toml"
    users.write_text('[users]\nalice = "alicebot"\n')
    services = [
        serve(
            audit_log=str(tmp_path / name),
            agents=str(users),
            hold_max=0.0,
            connect_ports="443",
        )
        for name in ("at_once", "later")
    ]
    monkeypatch.setattr(services[1], "_judge_at_once", lambda *_: None)
    site = net.origin(rules)
    asked = itertools.product(METHODS, TARGETS, HOSTS)
    wires = [
        to(f"{site.url}/", method=method, target=target, **hosts) for method, target, hosts in asked
    ]

    answers = []
    for service in services:
        await service.admit(to(f"{site.url}/open"), **options)  # fetches the robots.txt
        answers.append([_shown(await service.admit(each, **options)) for each in wires])
        await service.close()

    assert answers[0] == answers[1]
    at_once, later = (
        [(each["action"], each["reason"], each.get("rule")) for each in decisions(tmp_path / name)]
        for name in ("at_once", "later")
    )
    assert at_once == later
    assert len(at_once) > len(wires)


def _shown(answer: Admitted | ProxyReply) -> object:
    """An answer without the ids and times, which differ each time."""
    if isinstance(answer, Admitted):
        return answer.needs_response
    names = [name for name, _ in answer.headers]
    return answer.status, names, re.sub(rb"[0-9a-f]{10}-\d+|\d\d:\d\d:\d\d|\d+", b"*", answer.body)


async def test_report_only_permits_no_address_that_the_operator_has_not_allowed(
    serve, net, tmp_path
):
    site, service = net.origin(RULES), serve(report_only=True, allow_private="192.0.2.0/24")

    reply = await service.admit(to(f"{site.url}/open"), needs_address=True)

    assert reply.status == 403
    await service.close()
    (record,) = decisions(tmp_path / "audit_log")
    assert (record["action"], record["reason"]) == ("drop", "destination-refused")
    assert site.received == []


@pytest.mark.parametrize("destination", ["image", "script", "empty", "iframe"])
async def test_a_part_of_a_page_is_refused_with_a_placeholder(serve, net, destination):
    site = net.origin(RULES)
    wire = to(f"{site.url}/private/x", fetch_destination=destination)

    reply = await serve(refusals="placeholder").admit(wire)
    assert isinstance(reply, ProxyReply)
    placeholder = PLACEHOLDERS[destination]
    assert (reply.status, reply.body) == (placeholder.status, placeholder.body)
    assert field(reply, "Robots-Guard").startswith("drop; reason=disallowed")

    refusal = await serve().admit(wire)
    assert refusal.status == 403


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hosts": ("other.test",)}, "ambiguous-authority"),
        ({"target": "*bad"}, "malformed-target"),
        ({"hosts": ("a.test", "b.test")}, "malformed-target"),
        ({"method": "G E T"}, "malformed-target"),
        ({"scheme": "ftp"}, "malformed-target"),
    ],
)
async def test_a_request_that_could_be_read_in_two_ways_is_refused(serve, net, changes, reason):
    site = net.origin(RULES)

    reply = await serve().admit(to(f"{site.url}/open", **changes))

    assert f"reason={reason}" in field(reply, "Robots-Guard")
    assert site.received == []


async def test_private_addresses_and_their_robots_txt_are_refused(serve, net):
    site = net.origin(RULES)
    service = serve(allow_private="")

    for host in (site.address, "localhost", "[::ffff:127.0.0.1]"):
        reply = await service.admit(to(f"http://{host}:{site.port}/open"))
        assert "reason=destination-refused" in field(reply, "Robots-Guard")
    assert site.received == []


async def test_only_the_ports_of_the_settings_may_be_reached_in_a_tunnel(serve, net):
    site = net.origin(RULES)
    service = serve(connect_ports="443")

    refused = await service.admit(to(f"{site.url}/open"), in_tunnel=True)
    passed = await service.admit(to(f"{site.url}/open"))

    assert "connect_ports" in json.loads(refused.body)["because"]
    assert isinstance(passed, Admitted)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
async def test_the_listeners_of_the_service_and_its_data_plane_may_not_be_reached(serve, host):
    service = serve(
        listening=lambda: [("127.0.0.1", 9001)], allow_private="127.0.0.0/8, 0.0.0.0/8, ::1"
    )

    reply = await service.admit(to(f"http://{host}:9001/open"))

    assert "address of this proxy" in json.loads(reply.body)["because"]


async def test_a_redirect_of_a_robots_txt_leads_only_to_the_ports_of_the_settings(serve, net):
    other = net.origin(RULES)
    location = f"https://{other.address}:{other.port}/robots.txt"
    site = net.origin(Reply(status=301, headers=(("Location", location),)))

    await serve(connect_ports="443", hold_max=0.0).admit(to(f"{site.url}/open"))

    assert len(site.robots_fetches) == 1
    assert other.connections == 0


async def test_each_user_has_an_agent(serve, net, tmp_path):
    agents = tmp_path / "agents.toml"
    agents.write_text('[users]\nalice = "alicebot"\n')
    site = net.origin("User-agent: alicebot\nDisallow: /\n")
    service = serve(agents=str(agents))

    assert isinstance(await service.admit(to(f"{site.url}/a")), Admitted)
    assert (await service.admit(to(f"{site.url}/a"), user="alice")).status == 403
    assert isinstance(await service.admit(to(f"{site.url}/a"), user="bob"), Admitted)


# -- turns -----------------------------------------------------------------------------------------


async def test_a_turn_counts_from_the_start_of_the_response(serve, net):
    site, service = net.origin(SLOW.format(0.3)), serve()
    url = f"{site.url}/open"

    first = await service.admit(to(url))
    assert first.needs_response
    await asyncio.sleep(0.2)
    await service.respond(first.id, ResponseHead(status=200))
    began = time.monotonic()
    second = await service.admit(to(url))

    assert second.needs_response
    assert time.monotonic() - began >= 0.29


async def test_a_turn_that_is_too_far_away_is_deferred(serve, net):
    site, service = net.origin(SLOW.format(60)), serve(hold_max=0.1)
    await service.admit(to(f"{site.url}/a"))

    reply = await service.admit(to(f"{site.url}/b"))

    assert reply.status in (429, 503)
    assert 50 < int(field(reply, "Retry-After")) <= 61


@pytest.mark.parametrize("status", [402, 429, 503])
async def test_a_page_can_ask_for_a_pause(serve, net, status):
    site, service = net.origin(RULES), serve(hold_max=0)
    first = await service.admit(to(f"{site.url}/a"))
    head = ResponseHead(status=status, headers=[("Retry-After", "30")])

    assert await service.respond(first.id, head) is None
    reply = await service.admit(to(f"{site.url}/b"))

    assert 25 < int(field(reply, "Retry-After")) <= 30


async def test_a_request_whose_client_leaves_gives_up_its_place(serve, net):
    site, service = net.origin(SLOW.format(20)), serve(hold_max=30)
    await service.admit(to(f"{site.url}/a"))
    held = asyncio.ensure_future(service.admit(to(f"{site.url}/b")))
    await until(lambda: service.waiting == 1)

    held.cancel()

    with pytest.raises(asyncio.CancelledError):
        await held
    assert service.waiting == 0


async def test_the_number_of_held_requests_is_bounded(serve, net, tmp_path):
    """A client holds no more requests than there are places left; beyond that it gets a 429 at once,
    which is recorded, and another client still finds a place."""
    site, service = net.origin(SLOW.format(5)), serve(hold_max=30, max_held=4)
    await service.admit(to(f"{site.url}/a"))
    held = [asyncio.ensure_future(service.admit(to(f"{site.url}/{n}"))) for n in range(2)]
    await until(lambda: service.waiting == 2)

    reply = await service.admit(to(f"{site.url}/c"))
    held.append(asyncio.ensure_future(service.admit(to(f"{site.url}/d", client="192.0.2.2"))))
    await until(lambda: service.waiting == 3)

    assert reply.status == 429
    assert 10 < int(field(reply, "Retry-After")) <= 15
    records = decisions(tmp_path / "audit_log")
    assert [each["action"] for each in records if each["url"].endswith("/c")] == ["pass", "defer"]
    service.drain()
    assert [each.status for each in await asyncio.gather(*held)] == [503] * 3


async def test_a_client_cannot_take_all_places_by_robots_txt_files_that_do_not_come(serve, net):
    slow = [net.origin(Reply(delay=30)) for _ in range(4)]
    site, service = net.origin(RULES), serve(max_held=4)
    asked = [asyncio.ensure_future(service.admit(to(f"{each.url}/"))) for each in slow]
    await until(lambda: sum(each.done() for each in asked) == 2)

    assert [each.result().status for each in asked if each.done()] == [503, 503]
    assert await service.admit(to(f"{site.url}/a", client="192.0.2.2"))
    service.drain()
    await asyncio.gather(*asked)


@pytest.mark.parametrize(("rules", "status"), [("", None), (RULES, 403), (503, 503)])
async def test_a_request_is_held_until_an_unreachable_robots_txt_is_tried_again(
    serve, net, monkeypatch, tmp_path, rules, status
):
    """It is judged again each time: by then the file may forbid it."""
    monkeypatch.setattr("robots_guard.decisions.freshness.RETRY_MIN", 1.0)
    answers = itertools.chain([503, 503], itertools.repeat(rules))
    site = net.origin(lambda _: _answer(next(answers)))
    service = serve(hold_max=5.5)
    began = time.monotonic()

    answer = await service.admit(to(f"{site.url}/private/x"))

    assert isinstance(answer, Admitted) if status is None else answer.status == status
    # After 0 s, 1 s and 3 s; the next time would be after 7 s.
    assert len(site.robots_fetches) == 3
    assert time.monotonic() - began >= 3
    actions = [each["action"] for each in decisions(tmp_path / "audit_log")]
    last = {None: "pass", 403: "drop", 503: "defer"}[status]
    assert actions == ["defer", "defer", last]
    if status == 503:
        assert int(field(answer, "Retry-After")) > 0
    assert service.waiting == 0


def _answer(rules: int | str) -> Reply:
    return Reply(status=rules) if isinstance(rules, int) else Reply(body=rules)


async def test_a_request_that_is_held_for_a_robots_txt_leaves_with_its_client(
    serve, net, monkeypatch
):
    monkeypatch.setattr("robots_guard.decisions.freshness.RETRY_MIN", 10.0)
    site, service = net.origin(503), serve(hold_max=30)
    held = [asyncio.ensure_future(service.admit(to(f"{site.url}/{n}"))) for n in range(2)]
    await until(lambda: len(site.robots_fetches) == 1 and service.waiting == 2)

    held[0].cancel()
    await until(held[0].done)

    assert service.waiting == 1
    service.drain()
    assert (await held[1]).status == 503


async def test_a_request_that_is_forbidden_while_it_is_held_does_not_leave(serve, net, tmp_path):
    site, overrides = net.origin(SLOW.format(3)), tmp_path / "overrides.toml"
    overrides.write_text("")
    service = serve(hold_max=30, overrides=str(overrides))
    await service.admit(to(f"{site.url}/a"))
    held = asyncio.ensure_future(service.admit(to(f"{site.url}/b")))
    await until(lambda: service.waiting == 1)

    overrides.write_text(
        f"""[[override]]
        id = "closed"
        origin = "{site.url}"
        owner = "o"
        reason = "r"
        expires = 2100-01-01
        action = "drop"
        """
    )
    service.reload_overrides()

    assert (await held).status == 403
    assert [each["action"] for each in decisions(tmp_path / "audit_log")] == [
        "pass",
        "pass",
        "drop",
    ]


async def test_what_a_request_waits_for_its_robots_txt_counts_towards_its_turn(
    serve, net, monkeypatch
):
    monkeypatch.setattr("robots_guard.decisions.freshness.RETRY_MIN", 3.0)
    answers = itertools.chain([503], itertools.repeat(SLOW.format(6)))
    site = net.origin(lambda _: _answer(next(answers)))
    service = serve(hold_max=7)

    held = [service.admit(to(f"{site.url}/{n}")) for n in range(2)]
    answers = await asyncio.gather(*held)

    assert [type(each) for each in answers].count(Admitted) == 1
    assert [each.status for each in answers if isinstance(each, ProxyReply)] == [429]


# -- responses -------------------------------------------------------------------------------------


async def test_a_response_is_refused_by_its_fields(serve, net, tmp_path):
    site, service = net.origin(RULES), serve(purposes="search")
    admitted = await service.admit(to(f"{site.url}/a"))
    assert admitted.needs_response
    head = ResponseHead(status=200, headers=[("X-Robots-Tag", "noindex")])

    reply = await service.respond(admitted.id, head)

    assert reply is not None
    assert reply.status == 403
    assert json.loads(reply.body)["denied"]
    # a request ends with its response
    assert (await service.respond(admitted.id, ResponseHead(status=200))).status == 503


async def test_the_response_to_an_unknown_request_is_refused_where_signals_are_enforced(serve):
    head = ResponseHead(status=200)

    assert await serve().respond("ab-1", head) is None
    assert (await serve(purposes="search").respond("ab-1", head)).status == 503


# -- failures --------------------------------------------------------------------------------------


async def test_a_failure_of_the_guard_is_a_refusal(serve, net, monkeypatch):
    site, service = net.origin(RULES), serve()

    def fail(*_args, **_more):
        raise ZeroDivisionError

    monkeypatch.setattr(service._admission, "judge_at_once", fail)

    assert (await service.admit(to(f"{site.url}/a"))).status == 503


async def test_a_failure_after_the_verdict_forgets_the_request(serve, net, monkeypatch):
    site, service = net.origin(RULES), serve()

    def fail(_):
        raise ZeroDivisionError

    monkeypatch.setattr(service._admission, "mark_sent", fail)

    assert (await service.admit(to(f"{site.url}/a"))).status == 503
    assert len(service._admission) == 0


async def test_what_cannot_be_recorded_is_refused(serve, net, monkeypatch):
    site, service = net.origin(RULES), serve()
    await service.admit(to(f"{site.url}/a"))

    def fail(_):
        raise AuditLogError("the disk is full")

    monkeypatch.setattr("robots_guard.audit.write.log.FileAuditLog.write", lambda _, __: fail(0))

    reply = await service.admit(to(f"{site.url}/b"))
    assert "reason=unrecorded" in field(reply, "Robots-Guard")


@pytest.mark.parametrize(
    "changes", [{"target": None}, {"hosts": (None,)}, {"port": "80"}, {"method": 7}]
)
async def test_values_of_wrong_types_are_refused(serve, net, changes):
    site = net.origin(RULES)

    reply = await serve().admit(to(f"{site.url}/a", **changes))

    assert isinstance(reply, ProxyReply)
    assert reply.status >= 400


async def test_a_fault_refuses_everything(serve, net):
    site, service = net.origin(RULES), serve()
    service.fault = "the disk is gone"

    reply = await service.admit(to(f"{site.url}/a"))

    assert "the disk is gone" in json.loads(reply.body)["detail"]


async def test_a_shutdown_refuses_new_and_held_requests_but_judges_responses(serve, net):
    site, service = net.origin(SLOW.format(20)), serve(hold_max=30, purposes="search")
    sent = await service.admit(to(f"{site.url}/a"))
    held = asyncio.ensure_future(service.admit(to(f"{site.url}/b")))
    await until(lambda: service.waiting == 1)

    service.drain()

    assert (await held).status == 503
    assert (await service.admit(to(f"{site.url}/c"))).status == 503
    assert service.under_way() == 1
    assert await service.respond(sent.id, ResponseHead(status=200)) is None
    assert service.under_way() == 0


async def test_on_decision_gets_each_decision_on_a_request(serve, net):
    seen: list[Question] = []
    site = net.origin(RULES)
    service = serve(on_decision=lambda decision: seen.append(decision.question))

    await service.admit(to(f"{site.url}/a"))
    await service.admit(to(f"{site.url}/private/"))

    assert [each.target for each in seen] == ["/a", "/private/"]
