"""One history: a fleet of guards, each in its own process, and the crawlers that use them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import msgspec
from support.guards import make_guard

from robots_guard.decisions.access import Fetched, Limits
from robots_guard.decisions.pacing import MAX_TURN_AGE
from robots_guard.decisions.verdict import Action, Decision, Deferral, Question
from robots_guard.guard import guard as guard_module
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks
from simulation.disks import Disk, View
from simulation.invariants import Judge
from simulation.kernel import EPOCH, Cancelled, Kernel, Process, Runtime, Stuck
from simulation.logs import Log
from simulation.plan import Member, Plan, Request, draw
from simulation.schedulers import Scheduler
from simulation.sites import Fetcher, Sites
from simulation.stores import Connection, Weather
from simulation.tiers import TIERS, Tier

# short, because other processes poll a lease all the time
LIMITS = Limits(connect=1.0, first_byte=2.0, total=4.0)
ATTEMPTS = 12  # of a deferred request
COUNTED = 4  # in one of as many histories, passes are only counted
AFTER = 0.5  # seconds from the last request until the guards are closed, if the plan says so


class Worker:
    """One process of the fleet: a guard, and the crawler that uses it."""

    def __init__(self, history: History, number: int, member: Member, generation: int = 0) -> None:
        kernel, plan = history.kernel, history.plan
        self.history = history
        self.name = f"p{number}.{generation}"
        self.process = Process(
            kernel, self.name, offset=member.offset + history.jumped[number], rate=member.rate
        )
        self.view = View(history.disk, self.process)
        self.log = Log(self.view, self.process, fsync=plan.fsync, counts=plan.seed % COUNTED == 0)
        self.purposes = member.purposes
        self.is_paused: dict[str, tuple[float, float]] = {}  # by origin: begin and end of its pause
        self.is_closed = False
        self.runtime = Runtime(self.process, history.weather.delays)
        self.scheduler = Scheduler(self)
        self.guard = make_guard(
            Fetcher(history.sites, self.process, 0.1 if "fetcher" in plan.faults else 0.0),
            component="proxy",
            agent="simbot",
            terms={
                "on_disallowed": plan.on_disallowed,
                "min_delay": plan.min_delay,
                "purposes": member.purposes,
            },
            runtime=self.runtime,
            store=history.connect(),
            audit_log=self.log,
            clocks=Clocks(now=self.process.now, monotonic=self.process.monotonic),
            limits=LIMITS,
            audit_required=plan.audit_required,
            tokens=self.process.token,
        )

    # -- one request -------------------------------------------------------------------------------

    async def crawl(self, request: Request) -> None:
        """Request a page, again while it is deferred, and visit it once it passes."""
        with suppress(Cancelled):
            for _ in range(request.times):
                await self._crawl(request)

    async def _crawl(self, request: Request) -> None:
        site = self.history.plan.sites[request.site]
        question = Question(origin=origin_of(site.url), target=request.target, agent="simbot")
        for _ in range(ATTEMPTS):
            decision = await self.check(question)
            if decision.verdict.action is Action.PASS:
                decision = await self._send(decision, request)
            if decision.verdict.action is not Action.DEFER or self.is_closed:
                return
            first = question.deferral or Deferral(decision.id, decision.at)
            question = msgspec.structs.replace(question, deferral=first)
            await self.runtime.sleep(
                max(0.05, (decision.verdict.until or 0.0) - self.process.now())
            )

    async def check(self, question: Question) -> Decision:
        began = self.process.monotonic()
        decision = self.guard.peek(question)
        if decision is None:
            decision = await self.guard.check(question)
        self._note(decision)
        self.history.judge.judge_check(self, decision, self.process.monotonic() - began)
        return decision

    async def _send(self, decision: Decision, request: Request) -> Decision:
        """Send a request, if its turn comes. Returns the decision that permitted or deferred it."""
        began, first = self.process.monotonic(), decision
        while True:
            decision = await self.turn(self.guard.recheck_pause(decision), request.patience)
            if decision.verdict.action is not Action.PASS:
                return decision
            await self.runtime.sleep(self.history.random.choice(self.history.plan.wire))
            if self.is_closed:  # no integration sends a request after closing its guard
                return decision
            leaving = self.guard.mark_sent(self.guard.recheck_pause(decision))
            if leaving.is_due:
                break
        decision = leaving
        response = self.visit(decision)
        self._judge_wait(first, request, self.process.monotonic() - began)
        await self.process_response(decision, response)
        return decision

    async def turn(self, decision: Decision, patience: float) -> Decision:
        began = self.process.monotonic()
        turned = await self.guard.turn(decision, patience)
        if turned is not decision:
            self._note(turned)
            self.history.judge.judge_turn(self, turned, patience, self.process.monotonic() - began)
        return turned

    def visit(self, decision: Decision) -> Fetched:
        """Send the request to its site. Returns the head of the response."""
        self.history.judge.judge_arrival(self, decision)
        site = self.history.sites.by_url[str(decision.question.origin)]
        pace = decision.verdict.delay
        delay = pace.seconds if pace is not None and decision.turn is not None else None
        self.history.kernel.note(
            self.name, f"visits {site.url}{decision.question.target} ({decision.id})"
        )
        return self.history.sites.visit(self.process, site, delay, _slots(decision))

    async def process_response(self, decision: Decision, response: Fetched) -> None:
        """Begin the response after a delay, and report a requested pause to the guard."""
        origin = decision.question.origin
        await self.runtime.sleep(self.history.random.random() * MAX_TURN_AGE)
        if response.status == 503:
            seconds = float(response.headers["retry-after"])
            now = self.history.kernel.time
            self.is_paused[str(origin)] = (now, now + seconds / self.process.rate)
            await self.guard.note_pause(origin, seconds)
        await self.guard.mark_response_started(decision)

    def _judge_wait(self, first: Decision, request: Request, seconds: float) -> None:
        pace = first.verdict.delay
        pauses = any(
            site.busy or any(each.retry_after for each in site.answers)
            for site in self.history.plan.sites
        )
        if pace is None or pauses:
            return
        plan = self.history.plan
        waiting = sum(each.site == request.site for each in plan.requests)
        # Each renewal may take a turn for the tdmrep.json, and one for a redirect of it.
        if "tdm" in plan.purposes:
            waiting += 2 * len(plan.members)
        self.history.judge.judge_wait(self, first, seconds, (waiting + 2) * (pace.seconds + 2.0))

    def _note(self, decision: Decision) -> None:
        if self.history.kernel.trace is None:
            return
        verdict = decision.verdict
        until = "" if verdict.until is None else f" until {verdict.until - EPOCH:.3f}"
        what = f"{verdict.action} {verdict.reason}{until} {decision.question.origin}{decision.question.target}"
        turn = "" if decision.turn is None else f" turn {decision.turn.stamp - EPOCH:.3f}"
        self.history.kernel.note(self.name, f"{decision.id}: {what}{turn} {verdict.detail or ''}")

    # -- the end -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the guard, which may be while its crawler is still running."""
        began = self.process.monotonic()
        self.history.kernel.note(self.name, "is closed")
        self.is_closed = True
        await self.guard.drain()
        self.guard.close()
        self.history.judge.judge_closing(self, self.process.monotonic() - began)


def _slots(decision: Decision) -> tuple[int, int] | None:
    """Return crowd and rank of the decision's turn, if it was taken in a slot of this process."""
    turn = decision.turn
    return None if turn is None or turn.until == math.inf else (turn.crowd, turn.rank)


class History:
    """The execution of a plan on a store of a tier."""

    def __init__(self, plan: Plan, tier: Callable[[Kernel, Plan], Tier]) -> None:
        self.plan = plan
        self.random = Random(plan.seed + 1)
        self.kernel = Kernel(self.random)
        self.sites = Sites(self.kernel, plan)
        self.weather = Weather(self.kernel, plan)
        self.disk = Disk(self.kernel, plan)
        self.jumped = [0.0 for _ in plan.members]
        self.store = tier(self.kernel, plan) if plan.is_shared else None
        self.judge = Judge(self)
        self.workers: list[Worker] = []
        self._current: list[Worker] = []

    def connect(self) -> Connection | None:
        """Return a connection to the shared store for one process; None if there is no shared
        store.
        """
        return None if self.store is None else Connection(self.store.connect(), self.weather)

    def run(self) -> History:
        """Run the plan, from the first request until no task is left."""
        self._current = [
            self._start(number, member) for number, member in enumerate(self.plan.members)
        ]
        for request in self.plan.requests:
            self.kernel.call_at(request.at, lambda request=request: self._request(request))
        for number, member in enumerate(self.plan.members):
            for moment, by in member.jumps:
                self.kernel.call_at(moment, lambda number=number, by=by: self._jump(number, by))
        for moment in self.plan.losses:
            self.kernel.call_at(moment, self._lose)
        try:
            if self.plan.closing:
                self.kernel.call_at(self.plan.requests[-1].at + AFTER, self._close)
                self.kernel.run()
            else:
                self.kernel.run()
                self._close()
                self.kernel.run()
            self.judge.judge_end()
        except Stuck as stuck:
            self.judge.report("stuck", str(stuck))
        self._clean_up()
        return self

    def _start(self, number: int, member: Member, generation: int = 0) -> Worker:
        worker = Worker(self, number, member, generation)
        worker.process.at_death = lambda: self._on_death(worker, number, member, generation)
        if generation == 0:
            worker.process.dies_at_step = member.dies_at_step
        self.workers.append(worker)
        return worker

    def _on_death(self, worker: Worker, number: int, member: Member, generation: int) -> None:
        worker.view.release()
        # a call on its way to the store may still arrive
        for call in worker.runtime.calls.values():
            if self.random.random() < 0.5:
                call()
        if member.returns_after is not None:
            at = self.kernel.time + member.returns_after
            self.kernel.call_at(at, lambda: self._return(number, member, generation + 1))

    def _return(self, number: int, member: Member, generation: int) -> None:
        self._current[number] = self._start(number, member, generation)

    def _request(self, request: Request) -> None:
        worker = self._current[request.process]
        if not worker.process.is_alive:
            return
        if self.plan.has_scheduler:
            worker.scheduler.add(request)
            return
        task = self.kernel.start(worker.process, worker.crawl(request), f"crawl {request.target}")
        if request.is_cancelled_after is not None:
            self.kernel.call_at(
                request.at + request.is_cancelled_after, lambda: self.kernel.cancel(task)
            )

    def _jump(self, number: int, by: float) -> None:
        self.jumped[number] += by
        self._current[number].process.offset += by
        self.kernel.note(self._current[number].name, f"its clock jumps by {by:g} s")

    def _lose(self) -> None:
        self.kernel.note("store", "forgets everything")
        assert self.store is not None
        self.store.forget_all()

    def _close(self) -> None:
        for worker in self._current:
            if worker.process.is_alive:
                self.kernel.start(worker.process, worker.close(), "close")

    def _clean_up(self) -> None:
        """Close the remaining coroutines and the store; this no longer affects the history."""
        for worker in self.workers:
            for task in list(worker.process.tasks):
                with suppress(RuntimeError, StopIteration):
                    task.coroutine.close()
        if self.store is not None:
            self.store.close()


def run(seed: int, tier: str = "model", *, traced: bool = False) -> History:
    """Run the history of a seed."""
    with _without_threads_and_warnings():
        history = History(draw(seed), TIERS[tier])
        history.kernel.trace = [] if traced else None
        return history.run()


@contextmanager
def _without_threads_and_warnings() -> Iterator[None]:
    """Suppress warnings, since the faults are planned, and close guards without a thread."""
    log, run_within = logging.getLogger("robots_guard"), guard_module.run_within
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    guard_module.run_within = lambda _seconds, close: close() is None
    try:
        yield
    finally:
        log.setLevel(level)
        guard_module.run_within = run_within
