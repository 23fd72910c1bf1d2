"""The enforcer: the last link of mitmproxy's addon chain, and the four gates a request must pass.

    requestheaders   decides, before a body is read or a connection made
    request          decides again if anything the verdict rests on has changed since, and waits for the origin's turn
    server_connect   lets a connection out only for a client with a live permit (connections.py)
    the write        writes only permitted requests (write_gate.py)

Invariant: deny first. mitmproxy forwards a request whose addon has raised an exception; here such a request has no
permit, and the last two gates stop it. If anything is missing, not ready or broken, the request is refused.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial

from mitmproxy import addonmanager, connection, ctx, exceptions, http, tls
from mitmproxy.proxy import server_hooks

from robots_guard.core.freshness import asked_to_wait
from robots_guard.core.verdict import Action, Decision, Question, Reason
from robots_guard.errors import SettingsError
from robots_guard.guard import Guard
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.asgi import Application
from robots_guard.mitmproxy.body_memory import MEMORY
from robots_guard.mitmproxy.connections import Connections, let_by
from robots_guard.mitmproxy.fetcher import MitmFetcher, on_behalf_of
from robots_guard.mitmproxy.holds import Ended, Holds, PutOff, Waits
from robots_guard.mitmproxy.hops import PortFetcher
from robots_guard.mitmproxy.identity import Identity
from robots_guard.mitmproxy.itself import HOST, Itself, concerns
from robots_guard.mitmproxy.outgoing import Approved
from robots_guard.mitmproxy.permits import Passed, Refused, Seen
from robots_guard.mitmproxy.replies import Reply, copy_of, ending, reply_to, unready
from robots_guard.mitmproxy.uploads import NoRoom, Refusal
from robots_guard.mitmproxy.ways import named_by
from robots_guard.mitmproxy.wire import Wire
from robots_guard.origin import Origin
from robots_guard.ports import Fetcher
from robots_guard.runtime import AsyncioRuntime
from robots_guard.settings import CLOCKS, ProxySettings, direct_fetcher, open_guard

log = logging.getLogger("robots_guard")

DOOR = "mitmproxy"
ROUNDS = 3  # times a request is judged that others go on changing while it waits
_ITSELF = Origin("http", HOST, 80)  # in records on the proxy itself
_NOWHERE = ProxySettings(agent="unset")


class Enforcer(Connections):
    """Judges every flow. Usable as soon as it is loaded, and shut until it is configured without a fault.

    Settings come from mitmproxy's options, or are given by who has them already; `console` is what lies at
    http://robots.guard/console, if anything.
    """

    name = "robots_guard_enforcer"
    unhaltable = True  # by other addons (dispatch.py)

    def __init__(self, settings: ProxySettings | None = None, console: Application | None = None) -> None:
        super().__init__(_NOWHERE)
        self._given = settings
        self._settings: ProxySettings | None = None
        self._fault: str | None = "robots_guard is not configured"
        self._shut: str | None = None
        self._running = False
        self._guard: Guard | None = None
        self._fetcher: MitmFetcher | None = None
        self._identity = Identity(_NOWHERE)
        self._itself = Itself(console)
        self._holds = Holds()
        self._waits = Waits()
        self._turned_away: set[str] = set()
        self._put_off = PutOff(CLOCKS.monotonic)
        self.told: Callable[[Decision], None] = lambda _: None  # whoever counts

    # -- coming and going ---------------------------------------------------------------------------------

    def load(self, loader: addonmanager.Loader) -> None:
        """Add our options."""
        if self._given is None:
            options.declare(loader)

    def configure(self, updated: AbstractSet[str]) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Take the settings over, or find out why not.

        Until the proxy runs, options come one by one, so a fault is only kept; `running` tells it. After that,
        raising undoes the change.
        """
        try:
            self._configure()
        except SettingsError as error:
            if self._running:
                raise exceptions.OptionsError(str(error)) from None
            self._fault = str(error)

    def _configure(self) -> None:
        if self._shut is not None:
            raise SettingsError(self._shut)
        settings = self._given or options.settings_among(ctx.options)
        relaxed = options.insist(ctx.options, settings.unsafe_allowed)
        if self._running and settings != self._settings:
            raise SettingsError("robots_guard's options cannot be changed while the proxy runs: restart it")
        if settings != self._settings:
            self._close()
            self._identity = Identity(settings)
            self._go_by(settings)
            MEMORY.limit = settings.body_memory_bytes
        self._ways.named = named_by(ctx.options)
        self._settings = settings
        self._fault = None
        self._relax(relaxed)

    def _relax(self, relaxed: dict[str, str]) -> None:
        """Unsafe options that are allowed hold from here on; each is on record from when the proxy runs."""
        newly = {name: why for name, why in relaxed.items() if name not in self._relaxed}
        self._relaxed = relaxed
        if self._running:
            self._record_options(newly)

    def _record_options(self, relaxed: dict[str, str]) -> None:
        guard, settings = self._ready()
        for name, why in relaxed.items():
            log.warning("robots_guard: %s, and is allowed to", why)
            question = Question(origin=_ITSELF, target=f"/options/{name}", agent=settings.agent, method="CONFIGURE")
            if guard.decide(question, let_by(f"allow_unsafe={name}", why)).verdict.action is not Action.PASS:
                raise SettingsError(f"allow_unsafe: {name} is to be on record, and the journal cannot be written")

    def shut(self, fault: str) -> None:
        """Refuse everything, for good, and say why when the proxy begins to run."""
        self._fault = self._shut = fault

    @property
    def fault(self) -> str | None:
        """Why everything is refused, if it is."""
        return self._fault

    def running(self) -> None:
        """The last moment to complain: an error told here ends mitmproxy's start with exit status 1."""
        if self._running:
            return
        self._take_last_place()
        try:
            _, settings = self._ready()
            self._record_options(self._relaxed)
            log.info("robots_guard: guarding %s, journal in %s", settings.agent, settings.journal)
        except SettingsError as error:
            self._fault = str(error)
            log.error("robots_guard: %s", error)
        self._running = True

    def look_at_overrides(self) -> None:
        """Read the overrides again now, if they have changed."""
        if self._guard is not None:
            self._guard.look_at_overrides()

    def drain(self) -> None:
        """Refuse all requests from now on, those that still wait included; those that were let pass go on."""
        self._fault = "robots_guard is shutting down"
        self._waits.end()
        self._holds.end()

    def under_way(self) -> int:
        """The number of requests that were let pass, or refused because of the shutdown, and are not over."""
        passed = self._permits.under_way(self._fetcher.own if self._fetcher else frozenset())
        if not self._waits.ended:
            return passed + len(self._turned_away)
        return passed + len(self._turned_away) + len(self._waits) + len(self._holds)

    def held(self) -> int:
        """How many requests wait for their turn."""
        return self._guard.held if self._guard is not None else 0

    def done(self) -> None:
        """Release store and journal; from now on everything is refused."""
        self.drain()
        self._close()

    def _close(self) -> None:
        if self._guard is not None:
            self._guard.close()
        self._guard = self._fetcher = None

    def _ready(self) -> tuple[Guard, ProxySettings]:
        """The guard, opened when it is first needed. Raises SettingsError while there is a fault."""
        if self._fault is not None or self._settings is None:
            raise SettingsError(self._fault or "robots_guard is not configured")
        if self._guard is None:
            settings = self._settings
            fetcher = self._new_fetcher(settings)
            self._guard = open_guard(
                settings,
                door=DOOR,
                runtime=AsyncioRuntime(),
                fetcher=PortFetcher(fetcher, self._ways.objection_to_hop),
                demands_verified="ssl_insecure" not in self._relaxed,
            )
            self._fetcher = fetcher if isinstance(fetcher, MitmFetcher) else None
        return self._guard, self._settings

    def _new_fetcher(self, settings: ProxySettings) -> Fetcher:
        if settings.fetch == "direct":  # whoever may use the proxy names the origins: none of them is trusted
            authorities = ctx.options.ssl_verify_upstream_trusted_ca
            return direct_fetcher(settings, trusts_asked=False, authorities=authorities)
        return MitmFetcher(self._permits, user_agent=settings.fetch_user_agent)

    def _take_last_place(self) -> None:
        """An addon behind us could change what we have judged. A new list, for the old one is being walked."""
        chain = ctx.master.addons.chain
        if chain and chain[-1] is not self:
            ctx.master.addons.chain = [*(addon for addon in chain if addon is not self), self]

    def _is_last(self) -> bool:
        return ctx.master.addons.chain[-1] is self

    def _outrun(self, flow: http.HTTPFlow) -> None:
        """Who is behind us now will have this hook after us, and could change whatever we let pass."""
        self._take_last_place()
        self._refuse(flow, unready("An addon was added behind the guard.", method=flow.request.method))

    def client_connected(self, client: connection.Client) -> None:  # noqa: ARG002  (mitmproxy's signature)
        """Be last before the first request comes: later, it costs a request to be so."""
        self._take_last_place()

    # -- first gate: before the body ----------------------------------------------------------------------

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Decide."""
        if self._is_ours(flow):
            return
        if flow.response is not None or flow.error is not None:
            self._permits.leave(flow)
            return
        if not self._is_last():
            self._outrun(flow)
            return
        if concerns(flow):
            await self._answer_itself(flow)
            return
        await self._decide(flow)
        if flow.request.stream:  # it is sent on from here
            await self._settle(flow)

    async def _answer_itself(self, flow: http.HTTPFlow) -> None:
        self._refuse(flow, unready(_NO_ANSWER, method=flow.request.method))
        try:
            confdir = ctx.options.confdir
            answer = await self._itself.answer(flow, fault=self._fault, counts=self.counts, confdir=confdir)
            self._refuse(flow, answer)
        except Exception:
            log.exception("robots_guard could not answer for itself")

    @property
    def counts(self) -> Counter[str]:
        """What has been decided so far, and what went wrong."""
        return self._guard.counts if self._guard is not None else Counter()

    async def _decide(self, flow: http.HTTPFlow) -> None:
        self._permits.release(flow)
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        try:
            seen = Seen.of(flow)
            decision = await self._judge(flow, seen.wire)
            self.told(decision)
            copy = await self._copy_of_robots_txt(flow, decision)
            if copy is None:
                self._act(flow, decision, seen)
            else:
                self._refuse(flow, copy)
        except Ended:
            self._turn_away(flow)
        except SettingsError as error:
            reply = ending if self._waits.ended else partial(unready, f"The guard is not ready: {error}")
            self._refuse(flow, reply(method=flow.request.method))
        except Exception:
            log.exception("robots_guard failed; the request is refused")
            self._refuse(flow, unready(_NO_VERDICT, method=flow.request.method))

    def _turn_away(self, flow: http.HTTPFlow) -> None:
        """Refuse a request that was waiting at the shutdown; the shutdown waits until its client has the response."""
        self._refuse(flow, ending(method=flow.request.method))
        if flow.client_conn.connected:
            self._turned_away.add(flow.id)

    async def _judge(self, flow: http.HTTPFlow, wire: Wire) -> Decision:
        """As each agent whose request it is; the first refusal, or the first of all."""
        decisions = []
        for agent in self._identity.agents(flow, wire.user_agents):
            decision = await self._judge_as(agent, flow, wire)
            if decision.verdict.action is not Action.PASS:
                return decision
            decisions.append(decision)
        return max(decisions, key=_pace)

    async def _judge_as(self, agent: str, flow: http.HTTPFlow, wire: Wire) -> Decision:
        guard, _ = self._ready()
        question, verdict = wire.question(agent)
        question = self._put_off.linked(question)
        verdict = verdict or await self._waits.of(self._ways.verdict(flow.client_conn, question.origin))
        if verdict is not None:
            return guard.decide(question, verdict)
        with on_behalf_of(flow.client_conn):
            peeked = guard.peek(question)
            if peeked is not None:
                return peeked
            return await self._waits.of(guard.check(question))

    async def _copy_of_robots_txt(self, flow: http.HTTPFlow, decision: Decision) -> Reply | None:
        """What a crawler's own request for /robots.txt may be answered with: what it is judged by."""
        guard, settings = self._ready()
        origin, method = decision.question.origin, flow.request.method
        if not settings.serve_robots_from_cache or decision.verdict.reason is not Reason.ROBOTS_TXT:
            return None
        if method not in ("GET", "HEAD") or not guard.knows(origin):
            return None
        return copy_of(await guard.policy(origin), CLOCKS.now(), guard.terms(origin).dialect, method=method)

    def _act(self, flow: http.HTTPFlow, decision: Decision, seen: Seen) -> None:
        if decision.verdict.action is Action.PASS:
            self._let_pass(flow, decision, seen)
        else:
            self._itself.remember(decision)
            accept = flow.request.headers.get("accept", "")
            self._refuse(flow, reply_to(decision, method=flow.request.method, accept=accept))
        self._put_off.note(decision)
        flow.metadata["robots_guard"] = _noted(decision)

    def _let_pass(self, flow: http.HTTPFlow, decision: Decision, seen: Seen) -> None:
        if "proxy-authorization" in flow.request.headers:  # meant for this proxy; a parent gets what addons set later
            del flow.request.headers["proxy-authorization"]
        strict = self._settings is not None and self._settings.matching == "strict"
        user_agent = self._identity.user_agent(decision.question.agent)
        approved = Approved(decision.question.origin, seen.wire, user_agent, strict)
        self._permits.grant(flow, approved, seen.request, decision)
        flow.response = None

    def _refuse(self, flow: http.HTTPFlow, reply: Reply) -> None:
        response = Refusal.of(reply, flow.request.method)
        flow.request.stream = False  # mitmproxy cannot both answer and stream
        flow.response = response
        self._permits.refuse(flow, response)

    # -- second gate: the last hook before the wire -------------------------------------------------------

    async def request(self, flow: http.HTTPFlow) -> None:
        """Hold the flow against what was decided, and back until its turn."""
        if self._is_ours(flow):
            return
        stand = self._permits.of(flow)
        if isinstance(stand, Refused):
            flow.response = stand.response
        elif flow.response is not None:
            self._permits.leave(flow)
            self.counts["no_room"] += isinstance(flow.response, NoRoom)
        else:
            await self._settle(flow)
        flow.request.trailers = None  # an HTTP/1 writer would pass their line breaks on

    async def _settle(self, flow: http.HTTPFlow) -> None:
        """Until it is due, unchanged, with us as the last who could change it. A streamed one comes here twice."""
        try:
            await self._settle_in_rounds(flow)
        except SettingsError:  # the proxy is shutting down, and the request would have to wait for its turn
            self._turn_away(flow)
        except Exception:
            log.exception("robots_guard failed; the request is refused")
            self._refuse(flow, unready(_NO_VERDICT, method=flow.request.method))

    async def _settle_in_rounds(self, flow: http.HTTPFlow) -> None:
        for _ in range(2 * ROUNDS):
            stand = self._permits.of(flow)
            if isinstance(stand, Refused):
                return
            if not self._is_last():
                self._outrun(flow)
                return
            if not (isinstance(stand, Passed) and stand.decision and stand.is_still(flow.request, flow.client_conn)):
                await self._decide(flow)
                continue
            passed = self._recalled(flow, stand.decision)
            if passed.is_due:
                self._permits.seal(flow)
                return
            if not await self._has_waited(flow, passed):
                return
        self._refuse(flow, unready("The request was changed again and again.", method=flow.request.method))

    def _recalled(self, flow: http.HTTPFlow, passed: Decision) -> Decision:
        """While its body was read, the site may have asked for a pause. What is streamed has gone by then."""
        if flow.request.stream:
            return passed
        guard = self._guard or self._ready()[0]  # also at the shutdown: permitted requests go on
        return guard.recalled(passed)

    async def _has_waited(self, flow: http.HTTPFlow, passed: Decision) -> bool:
        """Wait for the flow's turn; whether anybody still wants it. Nothing stands open meanwhile."""
        seen = Seen.of(flow)
        self._refuse(flow, unready("The guard could not give a turn.", method=flow.request.method))
        guard, settings = self._ready()
        decision = await self._holds.wait(flow.client_conn, guard.turn(passed, settings.hold_max))
        if decision is None and self._waits.ended:
            self._turn_away(flow)
            return False
        if decision is None:
            self._permits.release(flow)
            return False
        self._act(flow, decision, seen)
        return True

    # -- third gate: connections --------------------------------------------------------------------------

    async def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Without TLS, the request goes after this."""
        if not data.server.tls:
            await self._renew_turns(data.client)

    async def tls_established_server(self, data: tls.TlsData) -> None:
        """With TLS, it goes after this."""
        await super().tls_established_server(data)
        await self._renew_turns(data.context.client)

    async def _renew_turns(self, client: connection.Client) -> None:
        """Connecting takes long. A turn that has grown old is moved to now, or another is waited for; a request that
        gets none is stopped at the write."""
        guard, settings = self._guard, self._settings
        if guard is None or settings is None:
            return
        for flow_id, decision in self._permits.with_turns(client):
            self._permits.decide(flow_id, await guard.turn(decision, settings.hold_max))

    def _leaves(self, decision: Decision) -> Decision:
        return decision if self._guard is None else self._guard.leaves(decision)

    # -- afterwards ---------------------------------------------------------------------------------------

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        """The turn counts from here. And a tripwire: an answer to a flow nobody let pass means a gate has failed."""
        if self._is_ours(flow):
            return
        stand = self._permits.of(flow)
        if stand is None and isinstance(flow.response, Refusal):  # the client has left before it was answered
            return
        if stand is None:
            log.error("robots_guard: %r was answered without a verdict; please report this", flow.request.url)
            flow.kill()
        elif isinstance(stand, Passed) and flow.response is not None:
            if "http3" not in self._relaxed:
                flow.response.headers.pop("alt-svc", None)  # an invitation to QUIC, which leads around us
            if stand.decision is not None:
                await self._learn(stand.decision, flow.response)

    async def _learn(self, decision: Decision, response: http.Response) -> None:
        guard = self._guard
        if guard is None:
            return
        headers = {"retry-after": response.headers.get("retry-after", "")}
        if seconds := asked_to_wait(response.status_code, headers, CLOCKS.now()):
            await guard.hold_off(decision.question.origin, seconds)
        await guard.answered(decision)  # last: it may wait for the store

    def response(self, flow: http.HTTPFlow) -> None:
        """The flow is over."""
        self._over(flow)
        self._take_last_place()

    def error(self, flow: http.HTTPFlow) -> None:
        """The flow is over."""
        self._over(flow)

    def _over(self, flow: http.HTTPFlow) -> None:
        MEMORY.release(flow.client_conn.id, flow.id)
        self._turned_away.discard(flow.id)
        if not self._is_ours(flow):
            self._permits.release(flow)

    def client_disconnected(self, client: connection.Client) -> None:
        """Nothing stands open for a client that has gone."""
        MEMORY.forget(client.id)
        self._permits.forget(client)
        self._ways.left(client)
        self._holds.give_up(client)

    def _record_unsent(self, request: http.Request, client: connection.Client, why: str) -> Decision:
        decision = super()._record_unsent(request, client, why)
        self._itself.remember(decision)
        return decision

    def _is_ours(self, flow: http.HTTPFlow) -> bool:
        return self._fetcher is not None and self._fetcher.owns(flow)


_NO_VERDICT = "The guard could not reach a verdict."
_NO_ANSWER = "The proxy could not answer for itself."


def _pace(decision: Decision) -> float:
    return decision.verdict.pace.seconds if decision.verdict.pace else 0.0


def _noted(decision: Decision) -> dict[str, str]:
    """For other addons and for saved flows."""
    verdict = decision.verdict
    return {"action": str(verdict.action), "reason": str(verdict.reason), "id": decision.id}
