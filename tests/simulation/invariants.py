"""The invariants that must hold in every history. A violation is reported by the invariant's name.

forbidden         no request passes that the oracle forbids
outdated          no request passes on a document older than allowed
lacking           no request passes by a policy without the reservations that a purpose needs
reserved          no request passes that the reservations of its policy refuse
reservations      no tdmrep.json is requested that the robots.txt forbids, and one per robots.txt
foreign           no request is judged by another site's answer, unless a redirect led there
wrongly-refused   no request is refused that no answer of its site refuses
internal-error    no decision is an internal error of the guard
recorded          a decision is in the audit log before it is released, if the log is writable
counted           ... or counted, if passes are only counted; every count is written at closing
lost              an acknowledged record is kept
doubled           ... once, unless its file was removed
decision-timeout  a check ends within the time for a decision
patience          a wait for a turn ends within its patience
gap               requests of processes that know a site's delay keep it, while store and clocks are sound
own-gap           ... and those of one process, whatever happens to the store
away-gap          ... and those of processes to which the store, before it failed, reported the same
                  crowd, to within a quarter of the delay
held-off          a process sends no request to a site during its pause
fetches           one fetch per lifetime, plus one for each process that dies
starvation        each request to a site with a delay eventually gets its turn
closing           closing a guard ends within its time limit
leftovers         nothing is left: no task, no lease, no place in a queue or a gate
crash             no task of the guard raises
stuck             no history runs forever
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from robots_guard.decisions.pacing import LONGEST_PAUSE, MAX_TURN_AGE, window
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision
from robots_guard.origin import TDMREP_JSON
from simulation import oracle
from simulation.plan import PROMPT, Answer
from simulation.sites import Arrival, Served

# The private attributes of `_renewals` show what is left over, which has no public face.

if TYPE_CHECKING:
    from simulation.fleet import History, Worker

DECISION_TIMEOUT = 35.0  # seconds
STORE_CALL = 5.0  # seconds that one store call may take
ROUNDING = 1e-3  # seconds
CLOCKS_DIFFER = 0.05  # seconds, at most, between sound clocks
# seconds between an answer and the reading of a clock, plus the skew of sound clocks
LATENCY = 10.0
# a truncated line is not a record
_ID = re.compile(rb'\{"kind":"decision".*?"id":"([0-9a-f-]+)".*\}\Z')
_COUNT = re.compile(
    rb'\{"kind":"passes".*?"writer":"(?P<writer>[^"]+)".*?"count":(?P<count>\d+).*\}\Z'
)
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
    """An observer that collects violations."""

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

    def report(self, name: str, text: str) -> None:
        """Record a violation."""
        kernel = self._history.kernel
        kernel.note("judge", f"VIOLATION {name}: {text}")
        self.violations.append(Violation(name, kernel.time, text))

    # -- one decision ------------------------------------------------------------------------------

    def judge_check(self, worker: Worker, decision: Decision, elapsed: float) -> None:
        """Judge a check that took `elapsed` seconds."""
        if elapsed > DECISION_TIMEOUT + ROUNDING:
            self.report(
                "decision-timeout", f"{worker.name}: {_describe(decision)} took {elapsed:.3f} s"
            )
        self._judge_release(worker, decision)

    def judge_turn(
        self, worker: Worker, decision: Decision, patience: float, elapsed: float
    ) -> None:
        """Judge a turn that was granted or deferred."""
        if elapsed > patience + STORE_CALL + ROUNDING:
            self.report(
                "patience",
                f"{worker.name}: patience {patience} s, {_describe(decision)} took {elapsed:.3f} s",
            )
        if decision.verdict.action is not Action.PASS:  # a passing decision was judged before
            self._judge_release(worker, decision)

    def _judge_release(self, worker: Worker, decision: Decision) -> None:
        verdict = decision.verdict
        log = worker.log
        if not any(decision.id in ids for ids in (log.recorded, log.failed, log.counted)):
            self.report("recorded", f"{worker.name}: {_describe(decision)} is in no log")
        if (
            verdict.action is Action.PASS
            and decision.id in log.failed
            and self._plan.audit_required
        ):
            self.report(
                "recorded",
                f"{worker.name}: {_describe(decision)} passes, and could not be recorded",
            )
        if verdict.reason is Reason.INTERNAL_ERROR:
            self.report("internal-error", f"{worker.name}: {_describe(decision)}")
        elif verdict.action is Action.PASS:
            self._judge_pass(worker, decision)
        else:
            self._judge_refusal(worker, decision)

    def _judge_pass(self, worker: Worker, decision: Decision) -> None:
        target = decision.question.target
        if target == "/robots.txt":
            return
        document = decision.policy.document if decision.policy else None
        answer = self._sites.versions.get(document.etag) if document else None
        if answer is None:
            self.report(
                "forbidden", f"{worker.name}: {_describe(decision)} passes on no answer of the site"
            )
            return
        if oracle.reads(answer, target) != oracle.OPEN:
            self.report(
                "forbidden", f"{worker.name}: {_describe(decision)} passes on {answer.version}"
            )
        self._judge_reservations(worker, decision)
        self._judge_source(worker, decision, answer)
        self._judge_age(worker, decision, answer)

    def _judge_reservations(self, worker: Worker, decision: Decision) -> None:
        policy, question = decision.policy, decision.question
        if not worker.purposes or policy is None:
            return
        if policy.lacks_reservations:
            self.report("lacking", f"{worker.name}: {_describe(decision)}")
        site = self._sites.by_url[str(question.origin)]
        is_held = policy.reservations is not None and policy.reservations.status == 200
        if is_held and oracle.is_reserved(site.tdmrep, question.target):
            self.report("reserved", f"{worker.name}: {_describe(decision)}")

    def _reservations(self) -> None:
        """Judge the requests for tdmrep.json."""
        for request in self._sites.reservation_requests:
            rules = request.rules
            if rules.location:  # the rules are those of another page
                continue
            if oracle.reads(rules, request.target) != oracle.OPEN:
                self.report(
                    "reservations",
                    f"{request.process}: {request.origin}{request.target}, {rules.version}",
                )
        first = [each for each in self._sites.reservation_requests if each.target == TDMREP_JSON]
        for origin in self._sites.by_url:
            times = sum(each.origin == origin for each in first)
            renewals = sum(each.url == f"{origin}/robots.txt" for each in self._sites.served)
            if times > renewals:
                self.report("reservations", f"{origin}: {times} times in {renewals} renewals")

    def _judge_source(self, worker: Worker, decision: Decision, answer: Answer) -> None:
        requested, served_by = str(decision.question.origin), self._sites.origin_of[answer.version]
        reached, found = {requested}, [requested]
        while found:
            following = self._sites.led_to[found.pop()] - reached
            reached |= following
            found += following
        if served_by not in reached:
            self.report(
                "foreign", f"{worker.name}: {_describe(decision)} is judged by {answer.version}"
            )

    def _judge_age(self, worker: Worker, decision: Decision, answer: Answer) -> None:
        """Judge the age of a document: the last time it was served is the latest possible fetch."""
        served = [each.at for each in self._sites.served if each.answer is answer]
        served = served or [
            each.at for each in self._sites.served if each.answer.version == answer.version
        ]
        age = self._history.kernel.time - max(served, default=-1e12)
        in_trouble = decision.policy is not None and decision.policy.trouble is not None
        allowed = STALE_IF_ERROR if in_trouble else oracle.usable_for(answer)
        if age > allowed + LATENCY + self._clock_error:
            trouble = "in trouble" if in_trouble else "well"
            self.report(
                "outdated",
                f"{worker.name}: {_describe(decision)}: {answer.version} is {age:.0f} s old, {trouble}",
            )

    def _judge_refusal(self, worker: Worker, decision: Decision) -> None:
        verdict, policy = decision.verdict, decision.policy
        document = policy.document if policy else None
        answer = self._sites.versions.get(document.etag) if document else None
        match verdict.reason:
            case Reason.DISALLOWED:
                justified = (
                    answer is not None
                    and oracle.reads(answer, decision.question.target) == oracle.CLOSED
                )
            case Reason.USAGE_RESERVED:
                site = self._sites.by_url[str(decision.question.origin)]
                justified = bool(worker.purposes) and oracle.is_reserved(
                    site.tdmrep, decision.question.target
                )
            case Reason.RESTRICTED:
                justified = answer is not None and answer.status in (401, 403)
            case Reason.UNREACHABLE | Reason.ROUTE_FAILED | Reason.FETCHER_FAILED:
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
            self.report("wrongly-refused", f"{worker.name}: {_describe(decision)}")

    # -- pacing ------------------------------------------------------------------------------------

    def judge_arrival(self, worker: Worker, decision: Decision) -> None:
        """Judge a request that reached its site."""
        origin, now = str(decision.question.origin), self._history.kernel.time
        until = worker.is_paused.get(origin)
        if (
            until is not None
            and self._plan.are_clocks_sound
            and until[0] + 0.5 < now < until[1] - ROUNDING
        ):
            self.report(
                "held-off",
                f"{worker.name}: {_describe(decision)}, {until[1] - now:.3f} s too early",
            )

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
        """Check the gaps between arrivals.

        A process that dies while sending cannot re-stamp its turn.
        """
        tolerance = CLOCKS_DIFFER + (MAX_TURN_AGE if self._plan.can_die else 0.0)
        for earlier, later in pairwise(arrivals):
            assert later.delay is not None
            gap = later.at - earlier.at
            if gap < later.delay - tolerance:
                self.report(
                    name,
                    f"{later.origin}: {gap:.3f} s at delay {later.delay}, at {earlier.at:.3f} ({earlier.process})"
                    f" and {later.at:.3f} ({later.process})",
                )

    def _away_gap(self, arrivals: list[Arrival]) -> None:
        """Check each pair within a delay, since arrivals of different crowds may alternate.

        A store without its own clock uses those of the processes, which differ.
        """
        for number, earlier in enumerate(arrivals):
            for later in arrivals[number + 1 :]:
                assert earlier.delay is not None
                gap = later.at - earlier.at
                if gap >= earlier.delay:
                    break
                is_agreed = (
                    earlier.slots is not None
                    and later.slots is not None
                    and earlier.slots[0] == later.slots[0]
                )
                is_agreed = (
                    is_agreed and earlier.slots != later.slots and earlier.delay == later.delay
                )
                if is_agreed and gap < earlier.delay - window(earlier.delay) - 2 * CLOCKS_DIFFER:
                    self.report(
                        "away-gap",
                        f"{later.origin}: {gap:.3f} s at delay {later.delay}, at {earlier.at:.3f} ({earlier.process})"
                        f" and {later.at:.3f} ({later.process}), slots {earlier.slots} and {later.slots}",
                    )

    # -- fetching ----------------------------------------------------------------------------------

    def _fetches(self) -> None:
        if self._plan.faults - {"deaths", "cancellations"} or self._plan.closing:
            return
        if len(self._plan.purposes) > 1:  # a process that needs reservations renews what has none
            return
        if any(answer.location for site in self._plan.sites for answer in site.answers):
            return
        by_client: dict[tuple[str, str], list[Served]] = defaultdict(list)
        for served in self._sites.served:
            client = "" if self._plan.is_shared else served.process
            by_client[served.url, client].append(served)
        deaths = sum(not worker.process.is_alive for worker in self._history.workers)
        for (url, _), fetches in by_client.items():
            extra = sum(
                later.begun < self._due(earlier) - LATENCY for earlier, later in pairwise(fetches)
            )
            if extra > deaths:
                times = ", ".join(f"{each.begun:.1f} ({each.process})" for each in fetches)
                self.report("fetches", f"{url}: {extra} more than due, {deaths} deaths: {times}")

    def _due(self, served: Served) -> float:
        """Return the earliest moment at which a site needs to be fetched again."""
        answer = served.answer
        if oracle.reads(answer, "/") != oracle.SILENT:
            return served.at + oracle.fresh_for(answer)
        return served.at + max(1.0, answer.retry_after or 0.0)

    # -- the end -----------------------------------------------------------------------------------

    def judge_end(self) -> None:
        """Judge the end of the history."""
        for where, error in self._history.kernel.crashes:
            self.report("crash", f"{where}: {error!r}")
        self._gaps()
        self._fetches()
        self._reservations()
        for worker in self._history.workers:
            if worker.process.is_alive:
                self._judge_leftovers(worker)
        self._leases()
        self._records()

    def _records(self) -> None:
        kept = Counter(
            found[1].decode() for found in map(_ID.match, self._history.disk.records()) if found
        )
        for worker in self._history.workers:
            lost = sorted(worker.log.recorded - kept.keys())
            if lost:
                self.report("lost", f"{worker.name}: {lost}")
        doubled = sorted(each for each, times in kept.items() if times > 1)
        if doubled and not self._plan.removals:
            self.report("doubled", f"{doubled}")
        if not self._plan.removals:
            self._counts()

    def _counts(self) -> None:
        """Judge the counts of passes. A process that dies, and one that cannot write its log, may
        lose some; none may count a pass twice."""
        kept: Counter[str] = Counter()
        for found in filter(None, map(_COUNT.match, self._history.disk.records())):
            kept[found["writer"].decode()] += int(found["count"])
        for worker in self._history.workers:
            written = kept[worker.log.writer]
            counted = len(worker.log.counted) - worker.log.uncounted
            is_whole = worker.process.is_alive and not self._plan.log
            if written > counted or (is_whole and written < counted):
                self.report("counted", f"{worker.name}: {counted} passes, {written} in the log")

    def _judge_leftovers(self, worker: Worker) -> None:
        left = sorted(task.name for task in worker.process.tasks)
        if left:
            self.report("leftovers", f"{worker.name}: tasks {left}")
        taken = [
            f"{gate.width - gate.free} of {gate.width}"
            for gate in worker.runtime.gates
            if gate.free < gate.width
        ]
        if taken:
            self.report("leftovers", f"{worker.name}: places in gates {taken}")
        scheduler = worker.scheduler
        scheduler.deferrals.settle(worker.process.monotonic() + LONGEST_PAUSE)
        if len(scheduler.deferrals):
            self.report(
                "leftovers", f"{worker.name}: {len(scheduler.deferrals)} origins are not open"
            )
        if scheduler.waiting and not self._plan.closing:
            self.report(
                "starvation",
                f"{worker.name}: {len(scheduler.waiting)} requests are left in the scheduler",
            )
        if worker.guard.waiting:
            self.report("leftovers", f"{worker.name}: {worker.guard.waiting} wait in line")
        renewals = worker.guard._renewals
        if renewals._running or renewals._for_redirects or renewals._tokens or renewals._waiting:
            self.report(
                "leftovers", f"{worker.name}: renewals {renewals._running} {renewals._tokens}"
            )

    def _leases(self) -> None:
        if self._plan.faults - {"cancellations"} or self._history.store is None:
            return
        if left := self._history.store.leases():
            self.report("leftovers", f"leases {left}")

    def judge_wait(self, worker: Worker, decision: Decision, waited: float, bound: float) -> None:
        """Judge a request that got its turn, or gave up, after `waited` seconds."""
        if self._is_calm and self._plan.wire is PROMPT and waited > bound:
            self.report(
                "starvation",
                f"{worker.name}: {_describe(decision)} after {waited:.1f} s, bound {bound:.1f} s",
            )

    def judge_closing(self, worker: Worker, elapsed: float) -> None:
        """Judge the closing of a guard."""
        if elapsed > DECISION_TIMEOUT + ROUNDING:
            self.report("closing", f"{worker.name}: {elapsed:.3f} s")

    def _largest_clock_error(self) -> float:
        if self._plan.are_clocks_sound:
            return 0.0
        jumps = sum(abs(by) for member in self._plan.members for _, by in member.jumps)
        return jumps + 2 * 400.0 + 0.02 * self._plan.requests[-1].at + 300.0 + 3600.0


def _describe(decision: Decision) -> str:
    verdict, question = decision.verdict, decision.question
    return f"{verdict.action} {verdict.reason} {question.origin}{question.target} ({decision.id})"
