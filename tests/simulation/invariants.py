"""What must hold in every history. Each invariant has a name, by which a violation is reported.

forbidden         no request passes that the oracle forbids
outdated          no request passes on a document older than allowed
foreign           no request is judged by what another site serves, unless a redirect has led there
wrongly-refused   no request is refused that no answer of its site refuses
internal-error    no decision is an error of the guard's own
recorded          a decision is in the audit log before it is released, if the log can be written
lost              a record that was acknowledged is kept
doubled           ... once, unless somebody removed the file
decision-timeout  a check ends within the time for a decision
patience          a turn ends within its patience
gap               requests whose processes know a site's delay reach it no closer, while store and clocks are sound
own-gap           ... and those of one process, whatever becomes of the store
away-gap          ... and those of processes that the store, before it failed, told of the same crowd, to within a
                  quarter of the delay
held-off          a process leaves a site alone that has asked it to
fetches           one fetch per lifetime, and one more for each process that dies
starvation        each request of a paced site has its turn in the end
closing           a guard is closed within its time
leftovers         nothing is left over: no task, no lease, no place in a line or a gate
crash             no task of the guard raises
stuck             no history runs for ever
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from robots_guard.core.pacing import LONGEST_HOLD_OFF, SLACK, window
from robots_guard.core.verdict import Action, Decision, Reason
from simulation import oracle
from simulation.plan import PROMPT, Answer
from simulation.sites import Arrival, Served

if TYPE_CHECKING:
    from simulation.fleet import History, Worker

DECISION_TIMEOUT = 35.0  # seconds
STORE_CALL = 5.0  # seconds that one call of the store may take
ROUNDING = 1e-3  # seconds
CLOCKS_DIFFER = 0.05  # seconds, where they are sound
LATENCY = 10.0  # seconds between an answer and the reading of a clock, and what sound clocks differ by
_ID = re.compile(rb'\{"kind":"decision".*?"id":"([0-9a-f-]+)".*\}\Z')  # a line that was cut short is no record
STALE_IF_ERROR = 30 * 86_400.0  # RFC 9309 section 2.3.1.4


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    name: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.name} at {self.at:.3f} s: {self.text}"


class Judge:
    """Looks on, and keeps what is violated."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._plan = history.plan
        self._sites = history.sites
        self.violations: list[Violation] = []
        self._is_calm = not self._plan.faults and not self._plan.closing
        self._clock_error = self._largest_clock_error()
        self._has_silence = any(
            oracle.reads(answer, "/") == oracle.SILENT or answer.location
            for site in self._plan.sites
            for answer in site.answers
        )

    def violated(self, name: str, text: str) -> None:
        """Keep a violation."""
        kernel = self._history.kernel
        kernel.note("judge", f"VIOLATION {name}: {text}")
        self.violations.append(Violation(name, kernel.time, text))

    # -- one decision -----------------------------------------------------------------------------------------

    def decided(self, worker: Worker, decision: Decision, elapsed: float) -> None:
        """A check has ended, after so many seconds."""
        if elapsed > DECISION_TIMEOUT + ROUNDING:
            self.violated("decision-timeout", f"{worker.name}: {_shown(decision)} took {elapsed:.3f} s")
        self._released(worker, decision)

    def turned(self, worker: Worker, decision: Decision, patience: float, elapsed: float) -> None:
        """A turn was taken, or it was said when to ask again."""
        if elapsed > patience + STORE_CALL + ROUNDING:
            self.violated("patience", f"{worker.name}: patience {patience} s, {_shown(decision)} took {elapsed:.3f} s")
        if decision.verdict.action is not Action.PASS:  # one that passes is the one that was judged before
            self._released(worker, decision)

    def _released(self, worker: Worker, decision: Decision) -> None:
        verdict = decision.verdict
        log = worker.log
        if decision.id not in log.recorded and decision.id not in log.failed:
            self.violated("recorded", f"{worker.name}: {_shown(decision)} is in no log")
        if verdict.action is Action.PASS and decision.id in log.failed and self._plan.audit_required:
            self.violated("recorded", f"{worker.name}: {_shown(decision)} passes, and could not be recorded")
        if verdict.reason is Reason.INTERNAL_ERROR:
            self.violated("internal-error", f"{worker.name}: {_shown(decision)}")
        elif verdict.action is Action.PASS:
            self._passed(worker, decision)
        else:
            self._refused(worker, decision)

    def _passed(self, worker: Worker, decision: Decision) -> None:
        target = decision.question.target
        if target == "/robots.txt":
            return
        document = decision.policy.document if decision.policy else None
        answer = self._sites.versions.get(document.etag) if document else None
        if answer is None:
            self.violated("forbidden", f"{worker.name}: {_shown(decision)} passes on no answer of the site")
            return
        if oracle.reads(answer, target) != oracle.OPEN:
            self.violated("forbidden", f"{worker.name}: {_shown(decision)} passes on {answer.version}")
        self._is_from(worker, decision, answer)
        self._is_current(worker, decision, answer)

    def _is_from(self, worker: Worker, decision: Decision, answer: Answer) -> None:
        asked, served_by = str(decision.question.origin), self._sites.origin_of[answer.version]
        reached, found = {asked}, [asked]
        while found:
            following = self._sites.led_to[found.pop()] - reached
            reached |= following
            found += following
        if served_by not in reached:
            self.violated("foreign", f"{worker.name}: {_shown(decision)} is judged by {answer.version}")

    def _is_current(self, worker: Worker, decision: Decision, answer: Answer) -> None:
        """What was last served of a version is the latest that anybody can have fetched."""
        served = [each.at for each in self._sites.served if each.answer is answer]
        served = served or [each.at for each in self._sites.served if each.answer.version == answer.version]
        age = self._history.kernel.time - max(served, default=-1e12)
        in_trouble = decision.policy is not None and decision.policy.trouble is not None
        allowed = STALE_IF_ERROR if in_trouble else oracle.usable_for(answer)
        if age > allowed + LATENCY + self._clock_error:
            trouble = "in trouble" if in_trouble else "well"
            self.violated(
                "outdated", f"{worker.name}: {_shown(decision)}: {answer.version} is {age:.0f} s old, {trouble}"
            )

    def _refused(self, worker: Worker, decision: Decision) -> None:
        verdict, policy = decision.verdict, decision.policy
        document = policy.document if policy else None
        answer = self._sites.versions.get(document.etag) if document else None
        match verdict.reason:
            case Reason.DISALLOWED:
                justified = answer is not None and oracle.reads(answer, decision.question.target) == oracle.CLOSED
            case Reason.RESTRICTED:
                justified = answer is not None and answer.status in (401, 403)
            case Reason.UNREACHABLE:
                justified = self._has_silence or not self._is_calm
            case Reason.UNRECORDED:
                justified = bool(self._plan.log or self._plan.removals or worker.is_closed)
            case Reason.CRAWL_DELAY:
                justified = answer is not None and oracle.delay_of(answer) > 0
            case Reason.MIN_DELAY:
                justified = self._plan.min_delay > 0
            case Reason.RETRY_AFTER:
                justified = any(site.busy for site in self._plan.sites) or self._has_silence
            case _:
                justified = False
        if not justified:
            self.violated("wrongly-refused", f"{worker.name}: {_shown(decision)}")

    # -- pacing -----------------------------------------------------------------------------------------------

    def arrived(self, worker: Worker, decision: Decision) -> None:
        """A request has reached its site."""
        origin, now = str(decision.question.origin), self._history.kernel.time
        until = worker.held_off.get(origin)
        if until is not None and self._plan.are_clocks_sound and until[0] + 0.5 < now < until[1] - ROUNDING:
            self.violated("held-off", f"{worker.name}: {_shown(decision)}, {until[1] - now:.3f} s too early")

    def _gaps(self) -> None:
        if not self._plan.are_clocks_sound:
            return
        by_origin: dict[str, list[Arrival]] = defaultdict(list)
        by_process: dict[tuple[str, str], list[Arrival]] = defaultdict(list)
        for arrival in self._sites.arrivals:
            if arrival.delay:
                by_origin[arrival.origin].append(arrival)
                by_process[arrival.origin, arrival.process].append(arrival)
        for arrivals in by_process.values():
            self._gap("own-gap", arrivals)
        for arrivals in by_origin.values():
            self._away_gap([arrival for arrival in arrivals if arrival.slots is not None])
        if self._plan.is_shared and self._plan.is_store_sound:
            for arrivals in by_origin.values():
                self._gap("gap", arrivals)

    def _gap(self, name: str, arrivals: list[Arrival]) -> None:
        """A process that dies as it sends a request has not told the store that the turn was taken for later."""
        tolerance = CLOCKS_DIFFER + (SLACK if self._plan.can_die else 0.0)
        for earlier, later in pairwise(arrivals):
            assert later.delay is not None
            gap = later.at - earlier.at
            if gap < later.delay - tolerance:
                self.violated(
                    name,
                    f"{later.origin}: {gap:.3f} s at delay {later.delay}, at {earlier.at:.3f} ({earlier.process})"
                    f" and {later.at:.3f} ({later.process})",
                )

    def _away_gap(self, arrivals: list[Arrival]) -> None:
        """Each pair within a delay, for between two of one crowd there may be one of another. Where the store keeps the
        time by the clocks of the processes, these differ."""
        for number, earlier in enumerate(arrivals):
            for later in arrivals[number + 1 :]:
                assert earlier.delay is not None
                gap = later.at - earlier.at
                if gap >= earlier.delay:
                    break
                is_agreed = earlier.slots is not None and later.slots is not None and earlier.slots[0] == later.slots[0]
                is_agreed = is_agreed and earlier.slots != later.slots and earlier.delay == later.delay
                if is_agreed and gap < earlier.delay - window(earlier.delay) - 2 * CLOCKS_DIFFER:
                    self.violated(
                        "away-gap",
                        f"{later.origin}: {gap:.3f} s at delay {later.delay}, at {earlier.at:.3f} ({earlier.process})"
                        f" and {later.at:.3f} ({later.process}), slots {earlier.slots} and {later.slots}",
                    )

    # -- fetching ---------------------------------------------------------------------------------------------

    def _fetches(self) -> None:
        if self._plan.faults - {"deaths", "cancellations"} or self._plan.closing:
            return
        if any(answer.location for site in self._plan.sites for answer in site.answers):
            return
        by_asker: dict[tuple[str, str], list[Served]] = defaultdict(list)
        for served in self._sites.served:
            asker = "" if self._plan.is_shared else served.process
            by_asker[served.url, asker].append(served)
        deaths = sum(not worker.process.is_alive for worker in self._history.workers)
        for (url, _), fetches in by_asker.items():
            extra = sum(later.begun < self._due(earlier) - LATENCY for earlier, later in pairwise(fetches))
            if extra > deaths:
                times = ", ".join(f"{each.begun:.1f} ({each.process})" for each in fetches)
                self.violated("fetches", f"{url}: {extra} more than due, {deaths} deaths: {times}")

    def _due(self, served: Served) -> float:
        """When a site has to be asked again, at the earliest."""
        answer = served.answer
        if oracle.reads(answer, "/") != oracle.SILENT:
            return served.at + oracle.fresh_for(answer)
        return served.at + max(30.0, answer.retry_after or 0.0)

    # -- the end ----------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """The history is over."""
        for where, error in self._history.kernel.crashes:
            self.violated("crash", f"{where}: {error!r}")
        self._gaps()
        self._fetches()
        for worker in self._history.workers:
            if worker.process.is_alive:
                self._left_over(worker)
        self._leases()
        self._records()

    def _records(self) -> None:
        kept = Counter(found[1].decode() for found in map(_ID.match, self._history.disk.records()) if found)
        for worker in self._history.workers:
            lost = sorted(worker.log.recorded - kept.keys())
            if lost:
                self.violated("lost", f"{worker.name}: {lost}")
        doubled = sorted(each for each, times in kept.items() if times > 1)
        if doubled and not self._plan.removals:
            self.violated("doubled", f"{doubled}")

    def _left_over(self, worker: Worker) -> None:
        left = sorted(task.name for task in worker.process.tasks)
        if left:
            self.violated("leftovers", f"{worker.name}: tasks {left}")
        taken = [f"{gate.width - gate.free} of {gate.width}" for gate in worker.runtime.gates if gate.free < gate.width]
        if taken:
            self.violated("leftovers", f"{worker.name}: places in gates {taken}")
        scheduler = worker.scheduler
        scheduler.deferrals.settle(worker.process.monotonic() + LONGEST_HOLD_OFF)
        if len(scheduler.deferrals):
            self.violated("leftovers", f"{worker.name}: {len(scheduler.deferrals)} origins are not open")
        if scheduler.waiting and not self._plan.closing:
            self.violated("starvation", f"{worker.name}: {len(scheduler.waiting)} requests are left in the scheduler")
        if worker.guard.held:
            self.violated("leftovers", f"{worker.name}: {worker.guard.held} wait in line")
        renewals = worker.guard._renewals
        if renewals._running or renewals._for_redirects or renewals._tokens or renewals._waiting:
            self.violated("leftovers", f"{worker.name}: renewals {renewals._running} {renewals._tokens}")

    def _leases(self) -> None:
        if self._plan.faults - {"cancellations"} or self._history.store is None:
            return
        if left := self._history.store.leases():
            self.violated("leftovers", f"leases {left}")

    def starved(self, worker: Worker, decision: Decision, waited: float, bound: float) -> None:
        """A request has had its turn, or has given up, after so many seconds."""
        if self._is_calm and self._plan.wire is PROMPT and waited > bound:
            self.violated("starvation", f"{worker.name}: {_shown(decision)} after {waited:.1f} s, bound {bound:.1f} s")

    def closed(self, worker: Worker, elapsed: float) -> None:
        """A guard was closed."""
        if elapsed > DECISION_TIMEOUT + ROUNDING:
            self.violated("closing", f"{worker.name}: {elapsed:.3f} s")

    def _largest_clock_error(self) -> float:
        if self._plan.are_clocks_sound:
            return 0.0
        jumps = sum(abs(by) for member in self._plan.members for _, by in member.jumps)
        return jumps + 2 * 400.0 + 0.02 * self._plan.requests[-1].at + 300.0 + 3600.0


def _shown(decision: Decision) -> str:
    verdict, question = decision.verdict, decision.question
    return f"{verdict.action} {verdict.reason} {question.origin}{question.target} ({decision.id})"
