"""Service: the guard of this proxy with its settings, or the fault that keeps it from judging.

Invariant: deny first. While there is a fault there is no guard, and without one no request passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Set as AbstractSet
from functools import cache
from typing import NamedTuple

from mitmproxy import connection, ctx

from robots_guard.configuration.settings import (
    CLOCKS,
    REPORT_ONLY,
    ProxySettings,
    direct_fetcher,
    open_guard,
    parts,
    signals_note,
)
from robots_guard.decisions.component import Component
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Question, Verdict
from robots_guard.errors import SettingsError
from robots_guard.gateway.admission import Admission
from robots_guard.gateway.decision_log import DecisionLog
from robots_guard.gateway.destinations import Addresses, PortFetcher
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.gateway.refusal_templates import RefusalTemplates
from robots_guard.guard.guard import Guard
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.invocation import BARE, Invocation
from robots_guard.mitmproxy import options
from robots_guard.mitmproxy.bodies import MEMORY
from robots_guard.mitmproxy.destinations import (
    ClientDestinations,
    Passthrough,
    address_of,
    reverse_targets,
)
from robots_guard.mitmproxy.fetcher import MitmFetcher
from robots_guard.mitmproxy.permits import Permits
from robots_guard.mitmproxy.replies import HOST
from robots_guard.origin import Origin
from robots_guard.ports import Fetcher

log = logging.getLogger("robots_guard")

COMPONENT = Component.PROXY
_PROXY_ORIGIN = Origin("http", HOST, 80)  # the origin in records about the proxy itself
# its store and its log are never opened; the default ones need a home directory
_UNCONFIGURED = ProxySettings(agent="unset", store="memory:", audit_log="")
_LOG_EVERY = 5.0  # seconds between two looks for counts to be logged


class OpenGuard(NamedTuple):
    """A guard that is ready to judge, its admission, and its settings."""

    guard: Guard
    admission: Admission
    settings: ProxySettings


class Service:
    """Opens and closes the guard. It has a fault until it has been configured without one.

    `given` settings replace mitmproxy's options. `invocation` says what printed commands must name.
    `relaxed` are the unsafe options that the operator has allowed, each with the reason why it is
    unsafe.
    """

    def __init__(
        self,
        permits: Permits,
        given: ProxySettings | None,
        invocation: Invocation = BARE,
    ) -> None:
        self._permits = permits
        self._given = given
        # mitmproxy calls `configure` whenever an option changes; a file is read at the start only
        self._configuration = cache(options.configuration_of)
        self.invocation = invocation
        self._settings: ProxySettings | None = None
        self._open: OpenGuard | None = None
        self._fetcher: MitmFetcher | None = None
        self._permanent_fault: str | None = None
        self.fault: str | None = "robots_guard is not configured"
        self.is_running = False
        self.relaxed: dict[str, str] = {}
        self._apply(_UNCONFIGURED)

    def _apply(self, settings: ProxySettings) -> None:
        self.identity = settings.identity()
        self.destinations = ClientDestinations(settings.destinations(_listening))
        self.passthrough = Passthrough(parts(settings.passthrough))
        self._decision_log = DecisionLog(settings.log, settings.privacy, self.invocation)
        self._refusals = RefusalTemplates(settings.contact, self.invocation)

    def question_of(self, client: connection.Client, origin: Origin) -> Question:
        """The question about a connection that is not a request, for the agent of its user."""
        return Question(
            origin=origin,
            target="/",
            agent=self.agent_of(client),
            method="CONNECT",
            client=address_of(client),
        )

    def agent_of(self, client: connection.Client) -> str:
        """The agent as which a client's connection is judged: its user's, or the operator's."""
        return self.identity.agents(_user_of(client), ())[0]

    # -- configuration ------------------------------------------------------------------------------------

    def configure(self) -> None:
        """Apply the settings. Raises SettingsError."""
        if self._permanent_fault is not None:
            raise SettingsError(self._permanent_fault)
        settings = self._given or self._read_settings()
        relaxed = options.check_options(ctx.options, settings.unsafe_allowed)
        if self.is_running and settings != self._settings:
            raise SettingsError(
                "robots_guard's options cannot be changed while the proxy runs: restart it"
            )
        if settings != self._settings:
            self.close()
            self._apply(settings)
            MEMORY.limit = settings.body_memory_bytes
        self._refusals = RefusalTemplates(settings.contact, self.invocation)
        self.destinations.reverse_targets = reverse_targets(ctx.options)
        self._settings = settings
        self.fault = None
        self._relax(relaxed)

    def _read_settings(self) -> ProxySettings:
        """Read mitmproxy's options, also for what printed commands must name."""
        self.invocation = options.read_invocation(ctx.options, self._configuration)
        return options.read_settings(ctx.options, self._configuration)

    def _relax(self, relaxed: dict[str, str]) -> None:
        """Accept the unsafe options that are allowed. Each is recorded once the proxy runs."""
        newly = {name: why for name, why in relaxed.items() if name not in self.relaxed}
        self.relaxed = relaxed
        if self.is_running:
            self._record_options(newly)

    def _record_options(self, relaxed: dict[str, str]) -> None:
        guard, _, settings = self.guard_or_raise()
        for name, why in relaxed.items():
            log.warning("robots_guard: %s, and is allowed to", why)
            question = Question(
                origin=_PROXY_ORIGIN,
                target=f"/options/{name}",
                agent=settings.agent,
                method="CONFIGURE",
            )
            if (
                guard.decide(question, bypassed_by(f"allow_unsafe={name}", why)).verdict.action
                is not Action.PASS
            ):
                raise SettingsError(
                    f"allow_unsafe: {name} must be recorded, and the audit log cannot be written"
                )

    def start(self) -> None:
        """Report a fault: an error that is logged when mitmproxy runs ends its start with exit status 1."""
        try:
            settings = self.guard_or_raise().settings
            self._record_options(self.relaxed)
            place = f"audit log in {settings.shown('audit_log')}"
            if settings.report_only:
                place += f"; {REPORT_ONLY}"
            if note := signals_note(settings):
                place += f"; {note}"
            log.info("robots_guard: guarding %s, %s", settings.agent, place)
            self._warn_of_open_listener()
        except SettingsError as error:
            self.fault = str(error)
            log.error("robots_guard: %s", error)
        self.is_running = True
        self._end_log_windows()

    def _warn_of_open_listener(self) -> None:
        """Warn if any machine can use a mitmdump. The command refuses to start instead."""
        place = options.open_listener(ctx.options)
        if self._given is None and place is not None:
            log.warning(
                "robots_guard: this proxy listens on %s without authentication, and any machine that reaches"
                " it crawls as %s: use --listen-host 127.0.0.1, or --set proxyauth=USER:PASSWORD",
                place,
                self.guard_or_raise().settings.agent,
            )

    def _end_log_windows(self) -> None:
        """Log counts of repeated decisions when they are due, also while no decision is made."""
        self._decision_log.end_windows(CLOCKS.now())
        asyncio.get_running_loop().call_later(_LOG_EVERY, self._end_log_windows)

    def fail_permanently(self, fault: str) -> None:
        """Refuse every request from now on, whatever is configured later."""
        self.fault = self._permanent_fault = fault

    def reply_to(self, decision: Decision, method: str = "GET", accept: str = "") -> ProxyReply:
        """The response to a refused client. It names the operator's contact."""
        return self._refusals.reply_to(decision, method, accept)

    # -- the guard ----------------------------------------------------------------------------------------

    @property
    def guard_or_none(self) -> OpenGuard | None:
        """The guard if it is open, even while there is a fault."""
        return self._open

    def guard_despite_fault(self) -> OpenGuard:
        """The guard for a request that it has permitted: an open one serves it even while there is a
        fault, as during the shutdown. Raises SettingsError if none is open and there is a fault."""
        return self._open or self.guard_or_raise()

    def guard_or_raise(self) -> OpenGuard:
        """The guard for a new request, opened on first use. Raises SettingsError while there is a
        fault."""
        if self.fault is not None or self._settings is None:
            raise SettingsError(self.fault or "robots_guard is not configured")
        if self._open is None:
            self._open = self._open_guard(self._settings)
        return self._open

    def _open_guard(self, settings: ProxySettings) -> OpenGuard:
        fetcher = self._new_fetcher(settings)
        guard = open_guard(
            settings,
            component=COMPONENT,
            runtime=AsyncioRuntime(),
            fetcher=PortFetcher(fetcher, self.destinations.objection_to_hop),
            demands_verified="ssl_insecure" not in self.relaxed,
            on_decision=self._decision_log.add,
        )
        self._fetcher = fetcher if isinstance(fetcher, MitmFetcher) else None
        admission = Admission(guard, CLOCKS, uses_placeholders=settings.uses_placeholders)
        return OpenGuard(guard, admission, settings)

    def _new_fetcher(self, settings: ProxySettings) -> Fetcher:
        if settings.fetch == "direct":  # clients choose the origins, so none of them is trusted
            authorities = ctx.options.ssl_verify_upstream_trusted_ca
            return direct_fetcher(settings, trusts_caller=False, authorities=authorities)
        return MitmFetcher(self._permits, user_agent=settings.fetch_user_agent)

    def close(self) -> None:
        """Close the store and the audit log."""
        if self._open is not None:
            self._open.guard.close()
        self._open = self._fetcher = None
        self._decision_log.close()

    @property
    def own_fetches(self) -> AbstractSet[str]:
        """The ids of the flows in which this process fetches a robots.txt."""
        if self._fetcher is None:
            return frozenset()
        return self._fetcher.own

    @property
    def counts(self) -> Counter[str]:
        """The decisions and failures so far, by name."""
        if self._open is None:
            return Counter()
        return self._open.guard.counts


def bypassed_by(setting: str, why: str) -> Verdict:
    """The verdict on traffic that passes because of an operator's setting."""
    return Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed=setting, detail=why)


def dropped_for(reason: Reason, why: str) -> Verdict:
    """The verdict on traffic that is dropped for a reason besides robots.txt."""
    return Verdict(action=Action.DROP, reason=reason, detail=why)


def _user_of(client: connection.Client) -> str | None:
    """The user as whom mitmproxy's addon proxyauth has authenticated a connection (CONNECT, SOCKS)."""
    addon = ctx.master.addons.get("proxyauth")
    credentials = None if addon is None else addon.authenticated.get(client)
    return None if credentials is None else credentials[0]


def _listening() -> Addresses:
    servers = ctx.master.addons.get("proxyserver")
    if servers is None:
        return ()
    addresses: Addresses = servers.listen_addrs()
    return addresses
