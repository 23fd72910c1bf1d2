"""URLs as questions: what a caller of the API asks about."""

from __future__ import annotations

from robots_guard.core.check import read_url
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Question, Verdict
from robots_guard.errors import MalformedURL
from robots_guard.origin import UNREADABLE, objection, wire_text

Asked = tuple[Question, Verdict | None]


def question_of(url: str, agent: str, method: str = "GET") -> Asked | Verdict:
    """Return the question about a URL, with the verdict if it is malformed; or only a verdict if no
    robots.txt governs it, in which case there is nothing to ask."""
    fault = objection(url)
    if fault is not None:
        return _malformed(url, agent, method, fault)
    read = read_url(url)
    if not isinstance(read, Verdict):
        origin, target = read
        return Question(origin=origin, target=target, agent=agent, method=method), None
    if read.reason is Reason.NOT_GOVERNED:
        return read
    return _malformed(url, agent, method, read.detail or "")


def _malformed(url: str, agent: str, method: str, fault: str) -> Asked:
    """The refusal of a URL without an origin. It is recorded without userinfo, because it is
    unclear where a password in it ends."""
    shown = url.rpartition("@")[2]
    if "@" in url:
        fault = "a malformed URL with userinfo"
    try:
        target = wire_text(f"/{shown}")
    except MalformedURL:
        target = "/"
    question = Question(origin=UNREADABLE, target=target, agent=agent, method=method)
    return question, Verdict(action=Action.DROP, reason=Reason.MALFORMED_TARGET, detail=fault)
