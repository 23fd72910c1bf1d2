"""The decision service: admits the requests of a data plane, whatever protocol it asks by.

    admit      the permission to send a request at once, with the origin's turn; or the response to
               its client. `begin` does the same, and needs no task for a request that need not wait
    respond    the response has begun: its turn counts from here, and its fields are judged
    release    the request has ended without a response

A protocol is a module with a function `start`, which is imported only if its address is set.

Invariant: deny first. A request passes only by an `Admitted`. An exception, a fault, a shutdown, an
audit log that cannot be written, too many requests that wait: each is a response instead. Where
signals are enforced, the response to a request that is not known is refused.
"""

from __future__ import annotations

import importlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from robots_guard.configuration.settings import CLOCKS, ProxySettings, direct_fetcher, open_guard
from robots_guard.decisions.addresses import Address
from robots_guard.decisions.component import Component
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.verdict import Action, Decision, Exemption, Verdict
from robots_guard.errors import SettingsError
from robots_guard.gateway.admission import TRACKED, Admission
from robots_guard.gateway.decision_log import DecisionLog
from robots_guard.gateway.destinations import Addresses, NoAddress, NotLookedUp, PortFetcher
from robots_guard.gateway.refusal import ProxyReply, not_ready, reply_to_failure
from robots_guard.gateway.refusal_templates import RefusalTemplates
from robots_guard.gateway.waits import MAX_HELD, NoRoomToWait, ShuttingDown, Waits
from robots_guard.gateway.wire import Wire
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.invocation import BARE, Invocation
from robots_guard.origin import Origin
from robots_guard.serve.plan import Plan

log = logging.getLogger("robots_guard")

T = TypeVar("T")

COMPONENT = Component.SERVE
_NO_VERDICT = "The guard could not reach a verdict on the response."


class Admitted(NamedTuple):
    """The permission to send a request at once.

    `id` is that of the decision: the data plane hands it back with the response. `needs_response`
    says whether `respond` must be awaited when the response begins, because its turn counts from
    there or its fields are judged. `address` is where to connect, if the data plane has asked for it.
    """

    id: str
    needs_response: bool
    address: Address | None = None


Answer = Admitted | ProxyReply
ANSWERS: Final = (Admitted, ProxyReply)  # the types of an answer, for `isinstance`
PendingAnswer = Callable[[], Coroutine[Any, Any, Answer]]  # waits, and returns the answer


class _Inquiry(NamedTuple):
    """What a data plane asks: the arguments of `admit`."""

    wire: Wire
    user: str | None
    accept: str
    in_tunnel: bool
    needs_address: bool


class DecisionService:
    """The guard for one data plane. Each process has its own. It must be created where an event
    loop runs.

    `invocation` says what printed commands must name. `on_decision` is called with each decision on
    a request. `listening` returns the addresses of this service and of its data plane, to which no
    request may lead. At most `max_held` requests wait at a time. `authorities` is a PEM file
    trusted for robots.txt files instead of the system's authorities. Raises SettingsError.
    """

    def __init__(
        self,
        settings: ProxySettings,
        invocation: Invocation = BARE,
        on_decision: Callable[[Decision], None] = lambda _: None,
        listening: Callable[[], Addresses] = tuple,
        max_held: int = MAX_HELD,
        authorities: str | None = None,
    ) -> None:
        self.settings = settings
        self.on_decision = on_decision
        self.fault: str | None = None
        self._identity = settings.identity()
        self._destinations = settings.destinations(listening)
        #: The refusal by the operator's destination policy, if it is known without a lookup. The
        #: index is `in_tunnel`.
        self._known_refusals = (
            partial(self._known_refusal, in_tunnel=False),
            partial(self._known_refusal, in_tunnel=True),
        )
        self._decision_log = DecisionLog(settings.log, settings.privacy, invocation)
        self._refusals = RefusalTemplates(settings.contact, invocation)
        self._waits = Waits(max_held)
        self._calls = 0  # of `admit` and `respond`
        self._expected: dict[str, None] = {}  # permitted requests whose response must be reported
        self._guard = self._open_guard(authorities)
        uses_placeholders = settings.uses_placeholders
        self._admission = Admission(self._guard, CLOCKS, uses_placeholders=uses_placeholders)
        self._is_closed = False

    def _open_guard(self, authorities: str | None) -> Guard:
        # Clients choose the origins, so that none of them is trusted.
        fetcher = direct_fetcher(self.settings, trusts_caller=False, authorities=authorities)
        return open_guard(
            self.settings,
            component=COMPONENT,
            runtime=AsyncioRuntime(),
            fetcher=PortFetcher(fetcher, self._objection_to_hop),
            on_decision=self._decision_log.add,
        )

    def _objection_to_hop(self, origin: Origin) -> str | None:
        """Why a redirect of a robots.txt may not lead to the port of this origin, or None. An https
        origin is checked like a tunnel, because a client would need one."""
        return self._destinations.objection_to_port(origin.port, in_tunnel=origin.scheme == "https")

    # -- a request ----------------------------------------------------------------------------------------

    async def admit(
        self,
        wire: Wire,
        *,
        user: str | None = None,
        accept: str = "",
        in_tunnel: bool = False,
        needs_address: bool = False,
    ) -> Answer:
        """Return the permission to send a request at once, or the response to its client.

        It is held until a deferral ends and until its turn, for at most `hold_max` seconds. `user`
        is authenticated, `accept` is the client's Accept field, `in_tunnel` says whether the client
        has opened a tunnel, and `needs_address` whether the data plane needs the address to connect
        to. If this is cancelled, the request is not permitted.
        """
        answer = self.begin(
            wire, user=user, accept=accept, in_tunnel=in_tunnel, needs_address=needs_address
        )
        return answer if isinstance(answer, ANSWERS) else await answer()

    def begin(
        self,
        wire: Wire,
        *,
        user: str | None = None,
        accept: str = "",
        in_tunnel: bool = False,
        needs_address: bool = False,
    ) -> Answer | PendingAnswer:
        """Return what `admit` returns; or, if the request has to wait, a function that waits.

        Most requests need not wait, because their policies are in memory. Without a task they cost
        less. Only an answer permits a request: the function by itself permits nothing.
        """
        inquiry = _Inquiry(wire, user, accept, in_tunnel, needs_address)
        decision = None
        try:
            self._require_ready()
            decision = self._judge_at_once(inquiry)
            if decision is not None and not self._must_wait(decision):
                address = self._known_address(inquiry, decision)
                self.on_decision(decision)
                return self._answer(inquiry, decision, address)
        except (NoAddress, NotLookedUp):
            pass
        except Exception as error:  # noqa: BLE001  `reply_to_failure` logs it
            return reply_to_failure(error, wire.method)
        return partial(self._admit_later, inquiry, decision)

    async def _admit_later(self, inquiry: _Inquiry, decision: Decision | None) -> Answer:
        """Admit a request that has to wait: for its decision, if there is none yet, for its address,
        or for its turn."""
        method = inquiry.wire.method
        self._calls += 1
        try:
            if decision is None:
                decision = await self._judge(inquiry)
            deadline = CLOCKS.monotonic() + self._patience(inquiry)
            decision = await self._wait_out(inquiry, decision, deadline)
            self.on_decision(decision)
            # Before the turn, which would grow old during a lookup.
            address = await self._address(inquiry, decision)
            decision = await self._with_turn(inquiry, decision, deadline)
            return self._answer(inquiry, decision, address)
        except Exception as error:  # noqa: BLE001  `reply_to_failure` logs it
            return reply_to_failure(error, method)
        finally:
            self._calls -= 1

    def _must_wait(self, decision: Decision) -> bool:
        """Whether a decision cannot, or need not, be acted on at once."""
        return _needs_turn(decision) or self._admission.can_wait_out(
            decision, self.settings.hold_max
        )

    def _patience(self, inquiry: _Inquiry) -> float:
        """The seconds for which a request may be held."""
        return self.settings.hold_max if self._waits.has_room(inquiry.wire.client) else 0.0

    async def _hold(self, inquiry: _Inquiry, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that may take long."""
        return await self._waits.run(work, inquiry.wire.client)

    async def _wait_out(self, inquiry: _Inquiry, decision: Decision, deadline: float) -> Decision:
        """The decision after a deferral that ends before the deadline."""
        patience = deadline - CLOCKS.monotonic()
        if not self._admission.can_wait_out(decision, patience):
            return decision
        judge = partial(self._judge_now, inquiry)
        return await self._hold(inquiry, self._admission.wait_out(decision, patience, judge))

    def _known_address(self, inquiry: _Inquiry, decision: Decision) -> Address | None:
        """The address to connect to, if the data plane needs it. Raises NotLookedUp and
        NoAddress."""
        if not _needs_address(inquiry, decision):
            return None
        return self._destinations.known_address_of(decision.question.origin)

    async def _address(self, inquiry: _Inquiry, decision: Decision) -> Address | None:
        """The address to connect to, if the data plane needs it. Raises NoAddress."""
        if not _needs_address(inquiry, decision):
            return None
        return await self._hold(inquiry, self._destinations.address_of(decision.question.origin))

    async def _with_turn(self, inquiry: _Inquiry, decision: Decision, deadline: float) -> Decision:
        if not _needs_turn(decision):
            return decision
        patience = max(0.0, deadline - CLOCKS.monotonic())
        return await self._hold(inquiry, self._admission.take_turn(decision, patience))

    def _answer(self, inquiry: _Inquiry, decision: Decision, address: Address | None) -> Answer:
        method = inquiry.wire.method
        if decision.verdict.action is not Action.PASS:
            return self._refusals.reply_to(decision, method, inquiry.accept)
        return self._permit(decision, method, address)

    def _require_ready(self) -> None:
        if self._waits.ended:
            raise ShuttingDown("robots_guard is shutting down")
        if self.fault is not None:
            raise SettingsError(self.fault)

    def _judge_at_once(self, inquiry: _Inquiry) -> Decision | None:
        """The decision, if it needs no waiting. Without one, nothing has been recorded."""
        agents = self._identity.agents(inquiry.user, inquiry.wire.user_agents)
        known = self._known_refusals[inquiry.in_tunnel]
        return self._admission.judge_at_once(inquiry.wire, agents, known)

    async def _judge(self, inquiry: _Inquiry) -> Decision:
        """The decision for all agents that the request is judged as."""
        if not self._waits.has_room(inquiry.wire.client):
            raise NoRoomToWait("the client waits for too many decisions already")
        return await self._hold(inquiry, self._judge_now(inquiry))

    async def _judge_now(self, inquiry: _Inquiry) -> Decision:
        agents = self._identity.agents(inquiry.user, inquiry.wire.user_agents)
        refusal = partial(self._refusal, in_tunnel=inquiry.in_tunnel)
        return await self._admission.judge(inquiry.wire, agents, refusal)

    def _known_refusal(self, origin: Origin, *, in_tunnel: bool) -> Verdict | None:
        return _refusal_of(
            self._destinations.known_objection_to_origin(origin, in_tunnel=in_tunnel)
        )

    async def _refusal(self, origin: Origin, *, in_tunnel: bool) -> Verdict | None:
        return _refusal_of(
            await self._destinations.objection_to_origin(origin, in_tunnel=in_tunnel)
        )

    def _permit(self, decision: Decision, method: str, address: Address | None) -> Answer:
        """Permit a request that has its turn. Its turn counts from now until it is answered."""
        admission = self._admission
        admission.track(decision)
        try:
            if not admission.mark_sent(decision.id):  # the process has been suspended
                admission.release(decision.id)
                return not_ready("The guard could not grant a turn.", method=method)
            needs_response = self._needs_response(decision.id)
            if needs_response:
                self._expect(decision.id)
            return Admitted(decision.id, needs_response, address)
        except Exception:
            admission.release(decision.id)
            raise

    def _expect(self, decision_id: str) -> None:
        self._expected[decision_id] = None
        if len(self._expected) > TRACKED:
            del self._expected[next(iter(self._expected))]

    def _needs_response(self, decision_id: str) -> bool:
        admission = self._admission
        return admission.needs_response_mark(decision_id, "") or admission.must_judge_response(
            decision_id
        )

    # -- its response -------------------------------------------------------------------------------------

    async def respond(
        self, decision_id: str, head: ResponseHead, retry_after: str = ""
    ) -> ProxyReply | None:
        """Note that the response has begun; return the response that replaces it, or None.

        The origin's next turn counts from here, and a 402, 429 or 503 with `retry_after` (the field
        of that name, if it is not in `head`) pauses the origin. The request has ended with this
        call.
        """
        self._calls += 1
        try:
            reply = self._judge_response(decision_id, head)
            retry_after = retry_after or _retry_after_in(head)
            await self._admission.mark_response_started(decision_id, head.status, retry_after)
        except Exception:  # fail closed: an internal error must not open a response
            log.exception("robots_guard failed; the response is refused")
            return not_ready(_NO_VERDICT, method=head.method)
        finally:
            self._calls -= 1
            self._forget(decision_id)
        return reply

    def _judge_response(self, decision_id: str, head: ResponseHead) -> ProxyReply | None:
        if decision_id not in self._admission:
            return self.reply_to_unknown(head)
        decision = self._admission.judge_fields(decision_id, head)
        if decision is None or decision.verdict.action is Action.PASS:
            return None
        return self._refusals.reply_to(decision, head.method)

    def reply_to_unknown(self, head: ResponseHead) -> ProxyReply | None:
        """Return the response that replaces one to an unknown or forgotten request, or None. Its origin
        is unknown, too, so any override might enforce its signals."""
        settings = self.settings
        if not (settings.enforces_signals or settings.overrides):
            return None
        return not_ready(_NO_VERDICT, method=head.method)

    def release(self, decision_id: str) -> None:
        """Forget a request that has ended without a response."""
        self._forget(decision_id)

    def _forget(self, decision_id: str) -> None:
        self._expected.pop(decision_id, None)
        self._admission.release(decision_id)

    # -- operation ----------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """The decisions and failures so far, by name."""
        return self._guard.counts

    @property
    def waiting(self) -> int:
        """The number of requests that are held."""
        return len(self._waits)

    @property
    def exemptions(self) -> tuple[Exemption, ...]:
        """The exemptions of the overrides."""
        return self._guard.exemptions

    def under_way(self) -> int:
        """The number of requests and responses that are being judged or held, and of permitted
        requests whose response must be judged or noted."""
        return self._calls + len(self._expected)

    def reload_overrides(self) -> None:
        """Reload the overrides now if they have changed."""
        self._guard.reload_overrides()

    def end_log_windows(self) -> None:
        """Log counts of repeated decisions if they are due."""
        self._decision_log.end_windows(CLOCKS.now())

    def drain(self) -> None:
        """Refuse all new and waiting requests from now on. Responses to earlier ones are judged."""
        self.fault = "robots_guard is shutting down"
        self._waits.end()

    async def close(self) -> None:
        """Close the store and the audit log. Calls after the first do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.drain()
        await self._guard.drain()
        self._guard.close()
        self._decision_log.close()


def _needs_address(inquiry: _Inquiry, decision: Decision) -> bool:
    return inquiry.needs_address and decision.verdict.action is Action.PASS


def _needs_turn(decision: Decision) -> bool:
    return decision.verdict.action is Action.PASS and not decision.is_due


def _refusal_of(objection: str | None) -> Verdict | None:
    if objection is None:
        return None
    return Verdict(action=Action.DROP, reason=Reason.DESTINATION_REFUSED, detail=objection)


def _retry_after_in(head: ResponseHead) -> str:
    values = [value for name, value in head.headers if name.lower() == "retry-after"]
    return values[0] if values else ""


class Server(Protocol):
    """What serves one protocol."""

    def close(self) -> None:
        """Accept no more connections, and end those that are idle."""

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""


class Running(NamedTuple):
    """What a protocol is served with: by the worker with this number, at this socket."""

    plan: Plan
    service: DecisionService
    listener: socket.socket
    number: int


Start = Callable[[Running], Awaitable[Server]]


async def _start(module: str, running: Running) -> Server:
    start: Start = importlib.import_module(f"robots_guard.serve.{module}").start
    return await start(running)


#: How each protocol is served: by the function `start` of a module.
STARTS: Mapping[str, Start] = {
    "envoy": partial(_start, "ext_authz"),
    "icap": partial(_start, "icap"),
    "sds": partial(_start, "secret_discovery"),
}
