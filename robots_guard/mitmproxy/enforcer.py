"""The enforcer: the last link of mitmproxy's addon chain, and the four gates a request must pass.

    requestheaders   decides, before the body is read or a connection is made
    request          decides again if anything relevant to the verdict has changed, and waits for the
                     origin's turn
    server_connect   allows a connection only for a client with a live permit (connections.py)
    the write        writes only permitted requests (write_gate.py)

Invariant: deny first. mitmproxy forwards a request whose addon has raised an exception; here such a
request has no permit, and the last two gates stop it. If anything is missing, not ready or broken,
the request is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, TypeVar

from mitmproxy import addonmanager, connection, ctx, exceptions, http, tls
from mitmproxy.proxy import server_hooks

from robots_guard.configuration.settings import CLOCKS, ProxySettings
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Exemption
from robots_guard.errors import SettingsError
from robots_guard.gateway.listeners import report_exhaustion
from robots_guard.gateway.refusal import ProxyReply, not_ready, reply_to_failure, shutting_down
from robots_guard.gateway.waits import Abandoned, NoRoomToWait, Waits
from robots_guard.gateway.wire import Wire
from robots_guard.invocation import BARE, Invocation
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.bodies import MEMORY, memory_key
from robots_guard.mitmproxy.connections import Connections
from robots_guard.mitmproxy.fetcher import on_behalf_of
from robots_guard.mitmproxy.permits import (
    FlowState,
    JudgedRequest,
    PassedFlow,
    Permits,
    RefusedFlow,
)
from robots_guard.mitmproxy.replies import Application, NoRoom, Refusal, StatusSite, is_for_proxy
from robots_guard.mitmproxy.response_review import ResponseReview
from robots_guard.mitmproxy.service import Service, dropped_for
from robots_guard.mitmproxy.wire import Approved, wire_of
from robots_guard.mitmproxy.write_gate import WriteGate

log = logging.getLogger("robots_guard")

T = TypeVar("T")

MAX_ROUNDS = 6  # of judging and waiting, for a request that other addons keep changing


class Enforcer:
    """Judges every flow. It refuses everything until it has been configured without a fault.

    `settings` replace mitmproxy's options if they are given, and `invocation` says what commands
    that are printed must name. `console` is the application that is served at
    http://robots.guard/console.
    """

    name = "robots_guard_enforcer"
    unhaltable = True  # AddonHalt of another addon does not skip it (addon_dispatch.py)

    def __init__(
        self,
        settings: ProxySettings | None = None,
        console: Application | None = None,
        invocation: Invocation = BARE,
    ) -> None:
        self._declares_options = settings is None
        self._permits = Permits(self._release)
        self._service = Service(self._permits, settings, invocation)
        self.write_gate = WriteGate(
            self._permits, self._record_unsent, self._mark_sent, self._refuse_waiting
        )
        # mitmproxy calls the hooks of these, too.
        self.addons = [Connections(self._service, self._permits)]
        self._status_site = StatusSite(
            self._service.reply_to, lambda: self._service.invocation, console
        )
        self._review = ResponseReview(self._service.reply_to, self._note_refused_response)
        self._waits = Waits()
        self._refused_at_shutdown: set[str] = set()
        self.on_decision: Callable[[Decision], None] = lambda _: None  # the metrics' callback

    # -- start and end ------------------------------------------------------------------------------------

    def load(self, loader: addonmanager.Loader) -> None:
        """Declare the options."""
        if self._declares_options:
            options.declare(loader)

    def configure(self, updated: AbstractSet[str]) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Apply the settings, or keep the fault that prevents it.

        Until the proxy runs, mitmproxy sets options one by one, so a fault is only kept, and
        `running` reports it. After that, raising OptionsError makes mitmproxy undo the change.
        """
        try:
            self._service.configure()
        except SettingsError as error:
            if self._service.is_running:
                raise exceptions.OptionsError(str(error)) from None
            self._service.fault = str(error)

    def refuse_everything(self, fault: str) -> None:
        """Refuse every request permanently. The reason is logged when the proxy starts to run."""
        self._service.fail_permanently(fault)

    @property
    def fault(self) -> str | None:
        """The reason why every request is refused; None if requests are judged."""
        return self._service.fault

    def running(self) -> None:
        """Report a fault: an error that is logged in this hook ends mitmproxy's start with exit status 1."""
        if not self._service.is_running:
            self._move_to_end()
            report_exhaustion(asyncio.get_running_loop(), lambda: self.counts)
            self._service.start()

    def reload_overrides(self) -> None:
        """Reload the overrides now if they have changed."""
        if self._service.guard_or_none is not None:
            self._service.guard_or_none.guard.reload_overrides()

    def drain(self) -> None:
        """Refuse all new and waiting requests from now on. Permitted requests continue."""
        self._service.fail_permanently("robots_guard is shutting down")
        self._waits.end()

    def under_way(self) -> int:
        """The number of unfinished requests that were permitted, or refused because of the shutdown."""
        count = self._permits.under_way(self._service.own_fetches) + len(self._refused_at_shutdown)
        if self._waits.ended:
            count += len(self._waits)
        return count

    def waiting(self) -> int:
        """The number of requests that are held."""
        return len(self._waits)

    def exemptions(self) -> tuple[Exemption, ...]:
        """The exemptions of the overrides; none before the guard is open."""
        if self._service.guard_or_none is not None:
            return self._service.guard_or_none.guard.exemptions
        return ()

    def done(self) -> None:
        """Close the store and the audit log. From now on everything is refused."""
        self.drain()
        self._service.close()

    def _move_to_end(self) -> None:
        """Become the last addon of the chain: a later one could change a judged request.

        The chain is replaced by a new list because mitmproxy may be iterating over the old one.
        """
        chain = ctx.master.addons.chain
        if chain and chain[-1] is not self:
            ctx.master.addons.chain = [*(addon for addon in chain if addon is not self), self]

    def _is_last(self) -> bool:
        return ctx.master.addons.chain[-1] is self

    def _refuse_overtaken(self, flow: http.HTTPFlow) -> None:
        """Refuse a request that an addon behind this one could still change, and become the last addon again."""
        self._move_to_end()
        self._refuse(
            flow, not_ready("An addon was added behind the guard.", method=flow.request.method)
        )

    def client_connected(self, client: connection.Client) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Become the last addon before the first request: doing it later would cost a request."""
        self._move_to_end()

    # -- first gate: before the body ----------------------------------------------------------------------

    def requestheaders(self, flow: http.HTTPFlow) -> Coroutine[Any, Any, None] | None:
        """Judge the request. Returns a coroutine if something remains to be awaited."""
        if self._is_own_fetch(flow):
            return None
        if flow.response is not None or flow.error is not None:
            self._permits.mark_answered_elsewhere(flow)
            return None
        if not self._is_last():
            self._refuse_overtaken(flow)
            return None
        if is_for_proxy(flow):
            return self._answer_for_proxy(flow)
        rest = self._decide(flow)
        if rest is None:
            return None
        return self._finish_head(flow, rest)

    async def _finish_head(self, flow: http.HTTPFlow, rest: Coroutine[Any, Any, None]) -> None:
        """Await the decision and, if the body is streamed, the turn."""
        await rest
        if flow.request.stream:  # mitmproxy starts to send it after this hook
            await self._await_turn(flow)

    async def _answer_for_proxy(self, flow: http.HTTPFlow) -> None:
        # The response if the answer fails or the client leaves meanwhile.
        self._refuse(flow, not_ready(_NO_ANSWER, method=flow.request.method))
        try:
            confdir = ctx.options.confdir
            answer = await self._status_site.answer(
                flow, fault=self.fault, counts=self.counts, confdir=confdir
            )
            self._refuse(flow, answer)
        except Exception:
            log.exception("robots_guard could not answer a request for the proxy itself")

    @property
    def counts(self) -> Counter[str]:
        """The decisions and failures so far, by name."""
        return self._service.counts

    def _decide(self, flow: http.HTTPFlow) -> Coroutine[Any, Any, None] | None:
        """Judge a request and act on the decision. Returns a coroutine if something remains to be
        awaited."""
        self._permits.release(flow)
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        try:
            judged = JudgedRequest.of(flow)
            decision = self._judge_at_once(flow, judged.wire)
            if decision is None or self._can_wait_out(decision):
                return self._await_decision(flow, judged, decision)
            self.on_decision(decision)
            self._act(flow, decision, judged)
        except Exception as error:  # noqa: BLE001  `_refuse_on_error` logs it
            self._refuse_on_error(error, flow)
        return None

    async def _await_decision(
        self, flow: http.HTTPFlow, judged: JudgedRequest, decision: Decision | None
    ) -> None:
        """Judge a request with all that it needs, hold it while it is deferred for a short time,
        and act on the decision."""
        # A placeholder while this waits, as in `_wait_for_turn`.
        self._refuse(flow, not_ready(_NO_VERDICT, method=flow.request.method))
        try:
            if decision is None:
                decision = await self._judge(flow, judged.wire)
            began = CLOCKS.monotonic()
            decision = await self._wait_out(flow, judged.wire, decision)
            judged = judged._replace(held=CLOCKS.monotonic() - began)
            self.on_decision(decision)
            self._act(flow, decision, judged)
        except Abandoned:
            self._permits.release(flow)
        except Exception as error:  # noqa: BLE001  `_refuse_on_error` logs it
            self._refuse_on_error(error, flow)

    def _refuse_on_error(self, error: Exception, flow: http.HTTPFlow) -> None:
        """Refuse a request whose judgement has failed with this error."""
        if isinstance(error, SettingsError) and self._waits.ended:
            self._refuse_at_shutdown(flow)
        else:
            self._refuse(flow, reply_to_failure(error, flow.request.method))

    def _refuse_at_shutdown(self, flow: http.HTTPFlow) -> None:
        """Refuse a request that is waiting at the shutdown, which lasts until its client has the response."""
        self._refuse(flow, shutting_down(method=flow.request.method))
        if flow.client_conn.connected:
            self._refused_at_shutdown.add(flow.id)

    def _judge_at_once(self, flow: http.HTTPFlow, wire: Wire) -> Decision | None:
        """The decision on a request that is judged as one agent by a policy in memory; None if there
        are several agents or a look-up is needed."""
        admission = self._service.guard_or_raise().admission
        agents = self._service.identity.agents(_user_of(flow), wire.user_agents)
        refusal = partial(self._service.destinations.known_verdict, flow.client_conn)
        with on_behalf_of(flow.client_conn):
            return admission.judge_at_once(wire, agents, refusal)

    async def _judge(self, flow: http.HTTPFlow, wire: Wire) -> Decision:
        """The decision of all agents the request is judged as."""
        if not self._waits.has_room(wire.client):
            raise NoRoomToWait("the client waits for too many decisions already")
        return await self._hold(flow, wire.client, self._judge_now(flow, wire))

    async def _judge_now(self, flow: http.HTTPFlow, wire: Wire) -> Decision:
        admission = self._service.guard_or_raise().admission
        agents = self._service.identity.agents(_user_of(flow), wire.user_agents)
        refusal = partial(self._service.destinations.verdict, flow.client_conn)
        with on_behalf_of(flow.client_conn):
            return await admission.judge(wire, agents, refusal)

    def _can_wait_out(self, decision: Decision) -> bool:
        _, admission, settings = self._service.guard_or_raise()
        return admission.can_wait_out(decision, settings.hold_max)

    async def _wait_out(self, flow: http.HTTPFlow, wire: Wire, decision: Decision) -> Decision:
        """The decision after a deferral that ends within `hold_max` seconds."""
        patience = self._patience(wire.client)
        admission = self._service.guard_or_raise().admission
        if not admission.can_wait_out(decision, patience):
            return decision
        judge = partial(self._judge_now, flow, wire)
        return await self._hold(flow, wire.client, admission.wait_out(decision, patience, judge))

    def _patience(self, client: str) -> float:
        """The seconds for which a request of a client may be held."""
        settings = self._service.guard_or_raise().settings
        return settings.hold_max if self._waits.has_room(client) else 0.0

    async def _hold(self, flow: http.HTTPFlow, client: str, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that may take long. Raises Abandoned if the client leaves meanwhile."""
        return await self._waits.run(work, client, (flow.client_conn.id, flow.id))

    def _act(self, flow: http.HTTPFlow, decision: Decision, judged: JudgedRequest) -> None:
        if decision.verdict.action is Action.PASS:
            self._permit(flow, decision, judged)
        else:
            self._refuse(flow, self._reply_to(flow.request, decision))
        flow.metadata["robots_guard"] = _metadata_of(decision)

    def _reply_to(self, request: http.Request, decision: Decision) -> ProxyReply:
        self._status_site.remember(decision)
        accept = request.headers.get("accept", "")
        return self._service.reply_to(decision, request.method, accept)

    def _permit(self, flow: http.HTTPFlow, decision: Decision, judged: JudgedRequest) -> None:
        # The client's credentials are for this proxy. A parent proxy gets those that addons set later.
        if "proxy-authorization" in flow.request.headers:
            del flow.request.headers["proxy-authorization"]
        _, admission, settings = self._service.guard_despite_fault()
        user_agent = self._service.identity.user_agent_of(decision.question.agent)
        strict = settings.matching == "strict"
        approved = Approved(decision.question.origin, judged.wire, user_agent, strict)
        admission.track(decision)
        self._permits.grant(flow, approved, judged.request, decision.id, judged.held)
        flow.response = None

    def _refuse(self, flow: http.HTTPFlow, reply: ProxyReply) -> None:
        response = Refusal.of(reply, flow.request.method)
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        flow.response = response
        self._permits.refuse(flow, response)

    # -- second gate: the last hook before the wire -------------------------------------------------------

    def request(self, flow: http.HTTPFlow) -> Coroutine[Any, Any, None] | None:
        """Check that the request is still the judged one and has its turn. Returns a coroutine if it
        has to wait."""
        if self._is_own_fetch(flow):
            return None
        state = self._permits.state_of(flow)
        if isinstance(state, RefusedFlow):
            flow.response = state.response
        elif flow.response is not None:
            self._permits.mark_answered_elsewhere(flow)
            self.counts["no_room"] += isinstance(flow.response, NoRoom)
        elif not self._seal_at_once(flow, state):
            return self._await_turn(flow)
        flow.request.trailers = None  # mitmproxy's HTTP/1 writer would pass on line breaks in them
        return None

    def robots_guard_repeat(self, flow: http.HTTPFlow) -> Coroutine[Any, Any, None] | None:
        """Judge a request that is sent once more, because the site closed a kept connection without an
        answer. The site may have read it, so the second attempt needs its own record and turn.
        """
        if self._is_own_fetch(flow):
            return None
        self.counts["repeated"] += 1
        rest = self._decide(flow)
        if rest is None:
            return self.request(flow)
        return self._finish_repeat(flow, rest)

    async def _finish_repeat(self, flow: http.HTTPFlow, rest: Coroutine[Any, Any, None]) -> None:
        await rest
        rest_of_request = self.request(flow)
        if rest_of_request is not None:
            await rest_of_request

    def _seal_at_once(self, flow: http.HTTPFlow, state: FlowState | None) -> bool:
        """Seal the request if it may be written now. Returns whether it is sealed; if not, await
        `_await_turn`."""
        try:
            return self._is_last() and isinstance(state, PassedFlow) and self._seal(flow, state)
        except Exception:  # noqa: BLE001  `_await_turn` fails in the same way, and refuses the request
            return False

    def _seal(self, flow: http.HTTPFlow, state: PassedFlow) -> bool:
        """Seal the request, unless it has changed or its turn has yet to come. Returns whether it
        is sealed."""
        if not state.is_still(flow.request, flow.client_conn):
            return False
        if not self._current_decision(flow, state).is_due:
            return False
        self._permits.seal(flow)
        return True

    async def _await_turn(self, flow: http.HTTPFlow) -> None:
        """Hold the request until it may be written, without its trailers.

        If another addon changes it meanwhile, it is judged again, up to `MAX_ROUNDS` times; if
        another addon now runs after this one, it is refused. A streamed request comes here twice.
        """
        try:
            await self._await_turn_in_rounds(flow)
        except Exception as error:  # noqa: BLE001  `_refuse_on_error` logs it
            self._refuse_on_error(error, flow)
        flow.request.trailers = None  # as in `request`

    async def _await_turn_in_rounds(self, flow: http.HTTPFlow) -> None:
        for _ in range(MAX_ROUNDS):
            state = self._permits.state_of(flow)
            if isinstance(state, RefusedFlow):
                return
            if not self._is_last():
                self._refuse_overtaken(flow)
                return
            if not (
                isinstance(state, PassedFlow) and state.is_still(flow.request, flow.client_conn)
            ):
                rest = self._decide(flow)
                if rest is not None:
                    await rest
                continue
            decision = self._current_decision(flow, state)
            if decision.is_due:
                self._permits.seal(flow)
                return
            if not await self._wait_for_turn(flow, decision, state.held):
                return
        self._refuse(
            flow, not_ready("Other addons kept changing the request.", method=flow.request.method)
        )

    def _current_decision(self, flow: http.HTTPFlow, passed: PassedFlow) -> Decision:
        """Check whether the site has asked for a pause while the body was read. A streamed body is sent already."""
        admission = self._service.guard_despite_fault().admission
        decision = admission.tracked(passed.decision_id)
        if flow.request.stream:
            return decision
        return admission.recheck(decision)

    async def _wait_for_turn(self, flow: http.HTTPFlow, passed: Decision, held: float) -> bool:
        """Wait for the turn of a flow that was held for `held` seconds already, without a permit.
        Returns False if the client left meanwhile."""
        judged = JudgedRequest.of(flow)
        # A placeholder while this waits: if the wait fails, the request is refused and not sent. The
        # decision on the turn replaces it.
        self._refuse(
            flow, not_ready("The guard could not grant a turn.", method=flow.request.method)
        )
        admission = self._service.guard_or_raise().admission
        patience = max(0.0, self._patience(judged.wire.client) - held)
        turn = admission.take_turn(passed, patience)
        try:
            decision = await self._hold(flow, judged.wire.client, turn)
        except Abandoned:
            self._permits.release(flow)
            return False
        self._act(flow, decision, judged)
        return True

    # -- while a connection is made, and at the write ------------------------------------------------------

    async def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Renew turns: without TLS, the request is sent next."""
        if not data.server.tls:
            await self._renew_turns(data.client)

    async def tls_established_server(self, data: tls.TlsData) -> None:
        """Renew turns: with TLS, the request is sent next."""
        await self._renew_turns(data.context.client)

    async def _renew_turns(self, client: connection.Client) -> None:
        """Renew the turns that grew old while the connection was made."""
        opened = self._service.guard_or_none
        if opened is not None:
            unsent = self._permits.unsent(client)
            await opened.admission.renew_turns(unsent, opened.settings.hold_max)

    def _mark_sent(self, decision_id: str) -> bool:
        opened = self._service.guard_or_none
        return opened is None or opened.admission.mark_sent(decision_id)

    def _refuse_waiting(self, request: http.Request, decision_id: str) -> http.Response | None:
        """The response to a permitted request that lost its turn while it waited for a connection."""
        opened = self._service.guard_or_none
        refusal = opened.admission.refusal_of(decision_id) if opened is not None else None
        if refusal is None:
            return None
        return Refusal.of(self._reply_to(request, refusal), request.method)

    def _release(self, decision_id: str) -> None:
        if self._service.guard_or_none is not None:
            self._service.guard_or_none.admission.release(decision_id)

    def _record_unsent(
        self, request: http.Request, client: connection.Client, why: str
    ) -> Decision:
        """Record that a request was stopped at the write."""
        log.warning("robots_guard: %s; the request is not sent: %s", why, request.pretty_url)
        guard = self._service.guard_or_raise().guard
        question, _ = wire_of(request, client).question(self._service.agent_of(client))
        decision = guard.decide(question, dropped_for(Reason.NOT_JUDGED, why))
        self._status_site.remember(decision)
        return decision

    # -- the response -------------------------------------------------------------------------------------

    def responseheaders(self, flow: http.HTTPFlow) -> Coroutine[Any, Any, None] | None:
        """Judge the response, and count the turn from here. Returns a coroutine if something remains
        to be awaited.

        A response to a flow without a verdict means that a gate has failed.
        """
        if self._is_own_fetch(flow):
            return None
        state = self._permits.state_of(flow)
        # The client left before the response.
        if state is None and isinstance(flow.response, Refusal):
            return None
        if state is None:
            log.error(
                "robots_guard: %r was answered without a verdict; please report this",
                flow.request.url,
            )
            flow.kill()
        elif isinstance(state, PassedFlow) and flow.response is not None:
            return self._receive(flow, flow.response, state.decision_id)
        return None

    def _receive(
        self, flow: http.HTTPFlow, response: http.Response, decision_id: str
    ) -> Coroutine[Any, Any, None] | None:
        if "http3" not in self._service.relaxed:
            # The field invites clients to QUIC, which bypasses the proxy.
            response.headers.pop("alt-svc", None)
        opened = self._service.guard_or_none
        if opened is None:
            return None
        self._review.begin(flow, opened, decision_id)
        retry_after = response.headers.get("retry-after", "")
        if not opened.admission.needs_response_mark(decision_id, retry_after):
            return None
        return opened.admission.mark_response_started(
            decision_id, response.status_code, retry_after
        )

    def _note_refused_response(self, flow: http.HTTPFlow, decision: Decision) -> None:
        self._status_site.remember(decision)
        flow.metadata["robots_guard"] = _metadata_of(decision)

    def response(self, flow: http.HTTPFlow) -> None:
        """Release the permit of a flow that has ended."""
        self._review.end(flow)
        self._end_flow(flow)
        self._move_to_end()

    def error(self, flow: http.HTTPFlow) -> None:
        """Release the permit of a flow that has failed."""
        self._end_flow(flow)

    def _end_flow(self, flow: http.HTTPFlow) -> None:
        MEMORY.release(flow.client_conn.id, flow.id)
        MEMORY.release(flow.client_conn.id, memory_key(flow.id))
        self._refused_at_shutdown.discard(flow.id)
        if not self._is_own_fetch(flow):
            self._permits.release(flow)

    def robots_guard_stream_reset(self, flow: http.HTTPFlow) -> None:
        """Cancel the wait of a request whose HTTP/2 stream the client has reset."""
        self._waits.abandon(flow.id)

    def client_disconnected(self, client: connection.Client) -> None:
        """Revoke the permits and cancel the waits of a client that has disconnected."""
        MEMORY.forget(client.id)
        self._permits.forget(client)
        self._service.destinations.close_tunnel(client)
        self._waits.abandon(client.id)

    def _is_own_fetch(self, flow: http.HTTPFlow) -> bool:
        # It is recognized by its id: any addon can write metadata into a flow.
        return flow.id in self._service.own_fetches


_NO_VERDICT = "The guard could not reach a verdict."
_NO_ANSWER = "The proxy could not answer this request."


def _user_of(flow: http.HTTPFlow) -> str | None:
    """The user whom mitmproxy's addon proxyauth has authenticated."""
    credentials: tuple[str, str] | None = flow.metadata.get("proxyauth")
    if not credentials:
        return None
    return credentials[0]


def _metadata_of(decision: Decision) -> dict[str, str]:
    """The decision in brief, for other addons and saved flows."""
    verdict = decision.verdict
    return {"action": str(verdict.action), "reason": str(verdict.reason), "id": decision.id}
