"""Decisions to record, and audit logs to record them in."""

from __future__ import annotations

from robots_guard.audit.write.log import FileAuditLog, LogOptions
from robots_guard.audit.write.writer import WriterOptions
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import Action, Decision, Question, RuleRef, Verdict
from robots_guard.origin import split_url
from robots_guard.ports import Clocks

AT = 1_800_000_000.0

DROP = Verdict(
    action=Action.DROP,
    reason=Reason.DISALLOWED,
    rule=RuleRef(2, "Disallow: /private/", "*"),
    group="*",
    form="spec",
)
PASS = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
DEFER = Verdict(
    action=Action.DEFER, reason=Reason.UNREACHABLE, until=AT + 30, detail="dns: no such host"
)


def policy(url="https://a.test/", at=AT - 60):
    answer = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)
    return begin(split_url(url)[0], None, "direct").next(answer, at).policy


def decision(url="https://a.test/private/x", verdict=DROP, *, at=AT, component="cli", **values):
    origin, target = split_url(url)
    question = Question(
        origin=origin,
        target=values.pop("target", target),
        agent=values.pop("agent", "mybot"),
        user_agent=values.pop("user_agent", "mybot/1.0"),
        method=values.pop("method", "GET"),
        client=values.pop("client", "127.0.0.1:4000"),
    )
    return Decision(
        id="w-1", at=at, component=component, question=question, verdict=verdict, **values
    )


class Wall:
    """A wall clock that stands still at `now`, or shows the time it is set to."""

    def __init__(self, now=None):
        self._stands = now is not None
        self._now = AT if now is None else now

    def __call__(self):
        return self._now

    def show(self, now):
        if not self._stands:
            self._now = now


class _AuditLog(FileAuditLog):
    wall: Wall

    def write(self, decision):
        self.wall.show(decision.at)
        super().write(decision)

    def note(self, event, **named):
        self.wall.show(event.at)
        super().note(event, **named)


def audit_log_in(
    directory,
    *,
    component="cli",
    job="",
    fsync=False,
    chain=False,
    signer=None,
    rotate_bytes=2**28,
    now=None,
    monotonic=None,
    files=None,
    settings=None,
    **log_options,
):
    """An audit log without housekeeping, unless `retention` is given.

    Its wall clock shows the time of the latest decision or event, or stands still at `now`; its monotonic clock stands
    still unless one is given.
    """
    log_options.setdefault("retention", None)
    wall = Wall(now)
    clocks = Clocks(now=wall, monotonic=monotonic or (lambda: 7.0))
    writing = WriterOptions(
        component=component,
        job=job,
        fsync=fsync,
        chain=chain,
        signer=signer,
        rotate_bytes=rotate_bytes,
        settings={"agent": "mybot"} | (settings or {}),
    )
    more = {} if files is None else {"files": files}
    audit_log = _AuditLog(directory, clocks, LogOptions(**log_options), writing, **more)
    audit_log.wall = wall
    return audit_log
