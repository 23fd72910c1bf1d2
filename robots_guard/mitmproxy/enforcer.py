"""The enforcer: the last link of mitmproxy's addon chain, and the four gates a request must pass.

    requestheaders   decides, before the body is read or a connection is made
    request          decides again if anything relevant to the verdict has changed, and waits for the origin's turn
    server_connect   allows a connection only for a client with a live permit (connections.py)
    the write        writes only permitted requests (write_gate.py)

Invariant: deny first. mitmproxy forwards a request whose addon has raised an exception; here such a
request has no permit, and the last two gates stop it. If anything is missing, not ready or broken,
the request is refused.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from mitmproxy import addonmanager, connection, ctx, exceptions, http, tls
from mitmproxy.proxy import server_hooks

from robots_guard.core.freshness import asked_to_wait
from robots_guard.core.verdict import Action, Decision, Question, Reason
from robots_guard.errors import SettingsError
from robots_guard.gateway.deferrals import DeferralMemory
from robots_guard.gateway.refusal import ProxyReply, cached_copy, not_ready, reply_to, shutting_down
from robots_guard.gateway.wire import Wire
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.body_memory import MEMORY
from robots_guard.mitmproxy.egress.connections import Connections, bypassed_by
from robots_guard.mitmproxy.egress.fetcher import MitmFetcher, on_behalf_of
from robots_guard.mitmproxy.egress.redirects import PortFetcher
from robots_guard.mitmproxy.replies.asgi import Application
from robots_guard.mitmproxy.replies.status import HOST, StatusSite, is_for_proxy
from robots_guard.mitmproxy.request.destinations import reverse_targets
from robots_guard.mitmproxy.request.outgoing import Approved
from robots_guard.mitmproxy.request.permits import JudgedRequest, PassedFlow, RefusedFlow
from robots_guard.mitmproxy.request.uploads import NoRoom, Refusal
from robots_guard.mitmproxy.turn_waiters import HookWaits, ShuttingDown, TurnWaiters
from robots_guard.origin import Origin
from robots_guard.ports import Fetcher
from robots_guard.settings import CLOCKS, ProxySettings, direct_fetcher, open_guard

log = logging.getLogger("robots_guard")

COMPONENT = "proxy"
MAX_ROUNDS = 6  # of judging and waiting, for a request that other addons keep changing
_PROXY_ORIGIN = Origin("http", HOST, 80)  # the origin in records about the proxy itself
_UNCONFIGURED = ProxySettings(agent="unset")


class Enforcer(Connections):
    """Judges every flow. It refuses everything until it has been configured without a fault.

    `settings` replace mitmproxy's options if they are given. `console` is the application that
    is served at http://robots.guard/console.
    """

    name = "robots_guard_enforcer"
    unhaltable = True  # AddonHalt of another addon does not skip it (dispatch.py)

    def __init__(self, settings: ProxySettings | None = None, console: Application | None = None) -> None:
        super().__init__(_UNCONFIGURED)
        self._given_settings = settings
        self._settings: ProxySettings | None = None
        self._fault: str | None = "robots_guard is not configured"
        self._permanent_fault: str | None = None
        self._running = False
        self._guard: Guard | None = None
        self._fetcher: MitmFetcher | None = None
        self._identity = _UNCONFIGURED.identity()
        self._status_site = StatusSite(console)
        self._turn_waiters = TurnWaiters()
        self._hook_waits = HookWaits()
        self._refused_at_shutdown: set[str] = set()
        self._deferrals = DeferralMemory(CLOCKS.monotonic)
        self.on_decision: Callable[[Decision], None] = lambda _: None  # the metrics' callback

    # -- start and end ------------------------------------------------------------------------------------

    def load(self, loader: addonmanager.Loader) -> None:
        """Declare the options."""
        if self._given_settings is None:
            options.declare(loader)

    def configure(self, updated: AbstractSet[str]) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Apply the settings, or keep the fault that prevents it.

        Until the proxy runs, mitmproxy sets options one by one, so a fault is only kept, and
        `running` reports it. After that, raising OptionsError makes mitmproxy undo the change.
        """
        try:
            self._configure()
        except SettingsError as error:
            if self._running:
                raise exceptions.OptionsError(str(error)) from None
            self._fault = str(error)

    def _configure(self) -> None:
        if self._permanent_fault is not None:
            raise SettingsError(self._permanent_fault)
        settings = self._given_settings or options.read_settings(ctx.options)
        relaxed = options.check_options(ctx.options, settings.unsafe_allowed)
        if self._running and settings != self._settings:
            raise SettingsError("robots_guard's options cannot be changed while the proxy runs: restart it")
        if settings != self._settings:
            self._close()
            self._identity = settings.identity()
            self._apply_settings(settings)
            MEMORY.limit = settings.body_memory_bytes
        self._destinations.reverse_targets = reverse_targets(ctx.options)
        self._settings = settings
        self._fault = None
        self._relax(relaxed)

    def _relax(self, relaxed: dict[str, str]) -> None:
        """Accept the unsafe options that are allowed. Each is recorded once the proxy runs."""
        newly = {name: why for name, why in relaxed.items() if name not in self._relaxed}
        self._relaxed = relaxed
        if self._running:
            self._record_options(newly)

    def _record_options(self, relaxed: dict[str, str]) -> None:
        guard, settings = self._ready()
        for name, why in relaxed.items():
            log.warning("robots_guard: %s, and is allowed to", why)
            question = Question(
                origin=_PROXY_ORIGIN, target=f"/options/{name}", agent=settings.agent, method="CONFIGURE"
            )
            if guard.decide(question, bypassed_by(f"allow_unsafe={name}", why)).verdict.action is not Action.PASS:
                raise SettingsError(f"allow_unsafe: {name} must be recorded, and the audit log cannot be written")

    def refuse_everything(self, fault: str) -> None:
        """Refuse every request permanently. The reason is logged when the proxy starts to run."""
        self._fault = self._permanent_fault = fault

    @property
    def fault(self) -> str | None:
        """The reason why every request is refused; None if requests are judged."""
        return self._fault

    def running(self) -> None:
        """Report a fault: an error that is logged in this hook ends mitmproxy's start with exit status 1."""
        if self._running:
            return
        self._move_to_end()
        try:
            _, settings = self._ready()
            self._record_options(self._relaxed)
            log.info("robots_guard: guarding %s, audit log in %s", settings.agent, settings.audit_log)
        except SettingsError as error:
            self._fault = str(error)
            log.error("robots_guard: %s", error)
        self._running = True

    def look_at_overrides(self) -> None:
        """Reload the overrides now if they have changed."""
        if self._guard is not None:
            self._guard.look_at_overrides()

    def drain(self) -> None:
        """Refuse all new and waiting requests from now on. Permitted requests continue."""
        self._fault = "robots_guard is shutting down"
        self._hook_waits.end()
        self._turn_waiters.end()

    def under_way(self) -> int:
        """The number of unfinished requests that were permitted, or refused because of the shutdown."""
        fetches = self._fetcher.own if self._fetcher else frozenset()
        count = self._permits.under_way(fetches) + len(self._refused_at_shutdown)
        if self._hook_waits.ended:
            count += len(self._hook_waits) + len(self._turn_waiters)
        return count

    def waiting(self) -> int:
        """The number of requests that wait for their turn."""
        if self._guard is not None:
            return self._guard.held
        return 0

    def done(self) -> None:
        """Close the store and the audit log. From now on everything is refused."""
        self.drain()
        self._close()

    def _close(self) -> None:
        if self._guard is not None:
            self._guard.close()
        self._guard = self._fetcher = None

    def _ready(self) -> tuple[Guard, ProxySettings]:
        """The guard, opened on first use, and its settings. Raises SettingsError while there is a fault."""
        if self._fault is not None or self._settings is None:
            raise SettingsError(self._fault or "robots_guard is not configured")
        if self._guard is None:
            settings = self._settings
            fetcher = self._new_fetcher(settings)
            self._guard = open_guard(
                settings,
                component=COMPONENT,
                runtime=AsyncioRuntime(),
                fetcher=PortFetcher(fetcher, self._destinations.objection_to_hop),
                demands_verified="ssl_insecure" not in self._relaxed,
            )
            self._fetcher = fetcher if isinstance(fetcher, MitmFetcher) else None
        return self._guard, self._settings

    def _new_fetcher(self, settings: ProxySettings) -> Fetcher:
        if settings.fetch == "direct":  # clients choose the origins, so none of them is trusted
            authorities = ctx.options.ssl_verify_upstream_trusted_ca
            return direct_fetcher(settings, trusts_asked=False, authorities=authorities)
        return MitmFetcher(self._permits, user_agent=settings.fetch_user_agent)

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
        self._refuse(flow, not_ready("An addon was added behind the guard.", method=flow.request.method))

    def client_connected(self, client: connection.Client) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Become the last addon before the first request: doing it later would cost a request."""
        self._move_to_end()

    # -- first gate: before the body ----------------------------------------------------------------------

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Judge the request."""
        if self._is_own_fetch(flow):
            return
        if flow.response is not None or flow.error is not None:
            self._permits.mark_answered_elsewhere(flow)
            return
        if not self._is_last():
            self._refuse_overtaken(flow)
            return
        if is_for_proxy(flow):
            await self._answer_for_proxy(flow)
            return
        await self._decide(flow)
        if flow.request.stream:  # mitmproxy starts to send it after this hook
            await self._await_turn(flow)

    async def _answer_for_proxy(self, flow: http.HTTPFlow) -> None:
        # The response if the answer fails or the client leaves meanwhile.
        self._refuse(flow, not_ready(_NO_ANSWER, method=flow.request.method))
        try:
            confdir = ctx.options.confdir
            answer = await self._status_site.answer(flow, fault=self._fault, counts=self.counts, confdir=confdir)
            self._refuse(flow, answer)
        except Exception:
            log.exception("robots_guard could not answer a request for the proxy itself")

    @property
    def counts(self) -> Counter[str]:
        """The decisions and failures so far, by name."""
        if self._guard is not None:
            return self._guard.counts
        return Counter()

    async def _decide(self, flow: http.HTTPFlow) -> None:
        self._permits.release(flow)
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        try:
            judged = JudgedRequest.of(flow)
            decision = await self._judge(flow, judged.wire)
            self.on_decision(decision)
            copy = await self._cached_robots_txt(flow, decision)
            if copy is None:
                self._act(flow, decision, judged)
            else:
                self._refuse(flow, copy)
        except ShuttingDown:
            self._refuse_at_shutdown(flow)
        except SettingsError as error:
            method = flow.request.method
            if self._hook_waits.ended:
                self._refuse(flow, shutting_down(method=method))
            else:
                self._refuse(flow, not_ready(f"The guard is not ready: {error}", method=method))
        except Exception:
            log.exception("robots_guard failed; the request is refused")
            self._refuse(flow, not_ready(_NO_VERDICT, method=flow.request.method))

    def _refuse_at_shutdown(self, flow: http.HTTPFlow) -> None:
        """Refuse a request that is waiting at the shutdown, which lasts until its client has the response."""
        self._refuse(flow, shutting_down(method=flow.request.method))
        if flow.client_conn.connected:
            self._refused_at_shutdown.add(flow.id)

    async def _judge(self, flow: http.HTTPFlow, wire: Wire) -> Decision:
        """The decision of all agents the request is judged as: the first refusal, else the longest delay."""
        decisions = []
        for agent in self._identity.agents(_user_of(flow), wire.user_agents):
            decision = await self._judge_as(agent, flow, wire)
            if decision.verdict.action is not Action.PASS:
                return decision
            decisions.append(decision)
        return max(decisions, key=_required_delay)

    async def _judge_as(self, agent: str, flow: http.HTTPFlow, wire: Wire) -> Decision:
        guard, _ = self._ready()
        question, verdict = wire.question(agent)
        question = self._deferrals.link(question)
        verdict = verdict or await self._hook_waits.run(self._destinations.verdict(flow.client_conn, question.origin))
        if verdict is not None:
            return guard.decide(question, verdict)
        with on_behalf_of(flow.client_conn):
            peeked = guard.peek(question)
            if peeked is not None:
                return peeked
            return await self._hook_waits.run(guard.check(question))

    async def _cached_robots_txt(self, flow: http.HTTPFlow, decision: Decision) -> ProxyReply | None:
        """The cached robots.txt to answer a client's own request for /robots.txt with, or None."""
        guard, settings = self._ready()
        origin, method = decision.question.origin, flow.request.method
        if not settings.serve_robots_from_cache or decision.verdict.reason is not Reason.ROBOTS_TXT:
            return None
        if method not in ("GET", "HEAD") or not guard.knows(origin):
            return None
        return cached_copy(await guard.policy(origin), CLOCKS.now(), guard.terms(origin).dialect, method=method)

    def _act(self, flow: http.HTTPFlow, decision: Decision, judged: JudgedRequest) -> None:
        if decision.verdict.action is Action.PASS:
            self._permit(flow, decision, judged)
        else:
            self._status_site.remember(decision)
            accept = flow.request.headers.get("accept", "")
            self._refuse(flow, reply_to(decision, method=flow.request.method, accept=accept))
        self._deferrals.remember(decision)
        flow.metadata["robots_guard"] = _metadata_of(decision)

    def _permit(self, flow: http.HTTPFlow, decision: Decision, judged: JudgedRequest) -> None:
        # The client's credentials are for this proxy. A parent proxy gets those that addons set later.
        if "proxy-authorization" in flow.request.headers:
            del flow.request.headers["proxy-authorization"]
        strict = self._settings is not None and self._settings.matching == "strict"
        user_agent = self._identity.user_agent_of(decision.question.agent)
        approved = Approved(decision.question.origin, judged.wire, user_agent, strict)
        self._permits.grant(flow, approved, judged.request, decision)
        flow.response = None

    def _refuse(self, flow: http.HTTPFlow, reply: ProxyReply) -> None:
        response = Refusal.of(reply, flow.request.method)
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        flow.response = response
        self._permits.refuse(flow, response)

    # -- second gate: the last hook before the wire -------------------------------------------------------

    async def request(self, flow: http.HTTPFlow) -> None:
        """Check that the request is still the judged one, and wait for its turn."""
        if self._is_own_fetch(flow):
            return
        state = self._permits.state_of(flow)
        if isinstance(state, RefusedFlow):
            flow.response = state.response
        elif flow.response is not None:
            self._permits.mark_answered_elsewhere(flow)
            self.counts["no_room"] += isinstance(flow.response, NoRoom)
        else:
            await self._await_turn(flow)
        flow.request.trailers = None  # mitmproxy's HTTP/1 writer would pass on line breaks in them

    async def _await_turn(self, flow: http.HTTPFlow) -> None:
        """Wait until the request may be sent, and judge it again if it changes meanwhile.

        This addon must also be the last one by then. A streamed request comes here twice.
        """
        try:
            await self._await_turn_in_rounds(flow)
        except SettingsError:  # the proxy is shutting down, and the request has no turn yet
            self._refuse_at_shutdown(flow)
        except Exception:
            log.exception("robots_guard failed; the request is refused")
            self._refuse(flow, not_ready(_NO_VERDICT, method=flow.request.method))

    async def _await_turn_in_rounds(self, flow: http.HTTPFlow) -> None:
        for _ in range(MAX_ROUNDS):
            state = self._permits.state_of(flow)
            if isinstance(state, RefusedFlow):
                return
            if not self._is_last():
                self._refuse_overtaken(flow)
                return
            if not (
                isinstance(state, PassedFlow) and state.decision and state.is_still(flow.request, flow.client_conn)
            ):
                await self._decide(flow)
                continue
            decision = self._recheck_hold_off(flow, state.decision)
            if decision.is_due:
                self._permits.seal(flow)
                return
            if not await self._wait_for_turn(flow, decision):
                return
        self._refuse(flow, not_ready("Other addons kept changing the request.", method=flow.request.method))

    def _recheck_hold_off(self, flow: http.HTTPFlow, passed: Decision) -> Decision:
        """Check whether the site has asked for a pause while the body was read. A streamed body is sent already."""
        if flow.request.stream:
            return passed
        guard = self._guard or self._ready()[0]  # also during the shutdown, when permitted requests continue
        return guard.recalled(passed)

    async def _wait_for_turn(self, flow: http.HTTPFlow, passed: Decision) -> bool:
        """Wait for the flow's turn, without a permit. Returns False if the client or the proxy ended meanwhile."""
        judged = JudgedRequest.of(flow)
        self._refuse(flow, not_ready("The guard could not grant a turn.", method=flow.request.method))
        guard, settings = self._ready()
        decision = await self._turn_waiters.wait(flow.client_conn, guard.turn(passed, settings.hold_max))
        if decision is None and self._hook_waits.ended:
            self._refuse_at_shutdown(flow)
            return False
        if decision is None:
            self._permits.release(flow)
            return False
        self._act(flow, decision, judged)
        return True

    # -- third gate: connections --------------------------------------------------------------------------

    async def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Renew turns: without TLS, the request is sent next."""
        if not data.server.tls:
            await self._renew_turns(data.client)

    async def tls_established_server(self, data: tls.TlsData) -> None:
        """Renew turns: with TLS, the request is sent next."""
        await super().tls_established_server(data)
        await self._renew_turns(data.context.client)

    async def _renew_turns(self, client: connection.Client) -> None:
        """Renew the turns that grew old while the connection was made.

        A turn is moved to now, or the request waits for another. Without one it is stopped at the
        write.
        """
        guard, settings = self._guard, self._settings
        if guard is None or settings is None:
            return
        for flow_id, decision in self._permits.unsent_turns(client):
            self._permits.replace_decision(flow_id, await guard.turn(decision, settings.hold_max))

    def _mark_sent(self, decision: Decision) -> Decision:
        if self._guard is None:
            return decision
        return self._guard.leaves(decision)

    # -- the response -------------------------------------------------------------------------------------

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Count the turn from here. A response to a flow without a verdict means that a gate has failed."""
        if self._is_own_fetch(flow):
            return
        state = self._permits.state_of(flow)
        if state is None and isinstance(flow.response, Refusal):  # the client left before the response
            return
        if state is None:
            log.error("robots_guard: %r was answered without a verdict; please report this", flow.request.url)
            flow.kill()
        elif isinstance(state, PassedFlow) and flow.response is not None:
            if "http3" not in self._relaxed:
                flow.response.headers.pop("alt-svc", None)  # it invites clients to QUIC, which bypasses the proxy
            if state.decision is not None:
                await self._learn(state.decision, flow.response)

    async def _learn(self, decision: Decision, response: http.Response) -> None:
        guard = self._guard
        if guard is None:
            return
        headers = {"retry-after": response.headers.get("retry-after", "")}
        if seconds := asked_to_wait(response.status_code, headers, CLOCKS.now()):
            await guard.hold_off(decision.question.origin, seconds)
        await guard.answered(decision)  # last, because it may wait for the store

    def response(self, flow: http.HTTPFlow) -> None:
        """Release the permit of a flow that has ended."""
        self._end_flow(flow)
        self._move_to_end()

    def error(self, flow: http.HTTPFlow) -> None:
        """Release the permit of a flow that has failed."""
        self._end_flow(flow)

    def _end_flow(self, flow: http.HTTPFlow) -> None:
        MEMORY.release(flow.client_conn.id, flow.id)
        self._refused_at_shutdown.discard(flow.id)
        if not self._is_own_fetch(flow):
            self._permits.release(flow)

    def client_disconnected(self, client: connection.Client) -> None:
        """Revoke the permits and cancel the waits of a client that has disconnected."""
        MEMORY.forget(client.id)
        self._permits.forget(client)
        self._destinations.close_tunnel(client)
        self._turn_waiters.cancel(client)

    def _record_unsent(self, request: http.Request, client: connection.Client, why: str) -> Decision:
        decision = super()._record_unsent(request, client, why)
        self._status_site.remember(decision)
        return decision

    def _is_own_fetch(self, flow: http.HTTPFlow) -> bool:
        return self._fetcher is not None and self._fetcher.owns(flow)


_NO_VERDICT = "The guard could not reach a verdict."
_NO_ANSWER = "The proxy could not answer this request."


def _user_of(flow: http.HTTPFlow) -> str | None:
    """The user whom mitmproxy's addon proxyauth has authenticated."""
    credentials = flow.metadata.get("proxyauth")
    return credentials[0] if credentials else None


def _required_delay(decision: Decision) -> float:
    if decision.verdict.pace:
        return decision.verdict.pace.seconds
    return 0.0


def _metadata_of(decision: Decision) -> dict[str, str]:
    """The decision in brief, for other addons and saved flows."""
    verdict = decision.verdict
    return {"action": str(verdict.action), "reason": str(verdict.reason), "id": decision.id}
