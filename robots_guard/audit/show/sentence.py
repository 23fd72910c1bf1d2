"""Decisions as sentences: which agent was or was not allowed to fetch what, when, and why.

Invariant: a sentence says no more than its record. Values of clients and sites in it are those of
the record; the caller escapes them when it prints the sentence.
"""

from __future__ import annotations

from collections.abc import Callable

from robots_guard.audit.record import EvidenceItem, Record, SignalsRecord
from robots_guard.decisions.policy import PINNED
from robots_guard.decisions.reasons import Reason, meaning_of
from robots_guard.decisions.verdict import BY_OVERRIDE, REPORT_ONLY

_Judged = Record | SignalsRecord
_READS = ("", "GET", "HEAD")


def sentence_of(record: _Judged) -> str:
    """A decision as one sentence, with a full stop."""
    parts = [f"{_what(record)} at {time_of(record.at)}: {cause_of(record)}"]
    parts += _circumstances(record)
    return "; ".join(parts) + "."


def time_of(at: str | None) -> str:
    """A moment of a record for a sentence, after "at": `02:51:11 UTC on 2026-11-22`."""
    if not at or "T" not in at:
        return "an unknown time"
    day, _, clock = at.partition("T")
    return f"{clock[:8]} UTC on {day}"


def date_and_time(at: str | None) -> str:
    """A moment of a record for a table: `2026-11-22 02:51:11 UTC`."""
    if not at or "T" not in at:
        return "an unknown time"
    day, _, clock = at.partition("T")
    return f"{day} {clock[:8]} UTC"


def cause_of(record: _Judged) -> str:
    """Why it was decided so, as a clause without a full stop."""
    if isinstance(record, SignalsRecord):
        return _cause_in_response(record)
    explain = _CAUSES.get(record.reason, _meaning)
    return explain(record)


def _what(record: _Judged) -> str:
    agent = record.agent or "a client"
    if isinstance(record, SignalsRecord):
        verb = {
            "pass": "was allowed to use the response of",
            "defer": "was not yet allowed to use the response of",
        }.get(record.action, "was not allowed to use the response of")
        return f"{agent} {verb} {record.url}"
    doing = "fetch"
    if record.method not in _READS:
        doing = f"send a {record.method} request to"
    verb = {
        "pass": f"was allowed to {doing}",
        "defer": f"was not yet allowed to {doing}",
    }.get(record.action, f"was not allowed to {doing}")
    return f"{agent} {verb} {record.url}"


def _about(value: object, form: str) -> str:
    """A form with a value in it, or nothing if there is no value."""
    if value in (None, ""):
        return ""
    return form.format(value)


# -- the cause, by reason --------------------------------------------------------------------------


def _meaning(record: _Judged) -> str:
    """The meaning of the reason, with what is known beside it."""
    meaning = meaning_of(record.reason).sentence.removesuffix(".") or f"reason {record.reason}"
    text = meaning[0].lower() + meaning[1:]
    return text + _about(record.detail, " ({})")


def _rule(record: Record) -> str:
    """The deciding line, or what is known without one."""
    if record.rule is None:
        return _meaning(record)
    line = _about(record.line, "line {}") or "a line"
    text = f"{line} of {_file(record)} says {record.rule}"
    if record.form not in (None, "spec"):
        text += f", which matches an equivalent spelling of the URL ({record.form})"
    return text


def _file(record: Record) -> str:
    """The robots.txt by which was decided."""
    if record.via == PINNED:
        return "the robots.txt that the operator had pinned for it"
    if not record.fetched_at:
        return "its robots.txt"
    stale = ", the last good copy" * record.stale
    return f"its robots.txt{stale}, fetched at {time_of(record.fetched_at)},"


def _allowed(record: Record) -> str:
    if record.rule is not None:
        return _rule(record)
    return f"no rule of {_file(record)} forbids it"


def _unrestricted(record: Record) -> str:
    answer = _about(record.status, " (the answer was {})")
    return f"the site had no robots.txt{answer}, and so restricted nothing"


def _restricted(record: Record) -> str:
    answer = record.status or "401 or 403"
    return f"the site answered {answer} for its robots.txt, which closes it to crawlers"


def _unreachable(record: Record) -> str:
    why = record.detail
    if record.failure and not (why or "").startswith(record.failure):
        why = ", ".join(filter(None, (record.failure, why)))
    since = ""
    if record.trouble_since:
        since = f" since {time_of(record.trouble_since)}"
    return f"its robots.txt could not be fetched{since}{_about(why, ' ({})')}"


def _mirror(record: Record) -> str:
    if record.rule is None:
        return _meaning(record)
    return f"the site is a mirror, {_rule(record)}"


def _delay(record: Record) -> str:
    seconds = _about(record.delay, "{:g} s between two requests")
    if record.rule is not None:
        return _rule(record) + _about(seconds, ", which means {}")
    if record.reason == Reason.MIN_DELAY and seconds:
        return f"the operator requires {seconds} to a site (min_delay)"
    return _meaning(record) + _about(seconds, ": {}")


def _reserved(record: Record) -> str:
    return _with_evidence(record, record.evidence or [])


def _cause_in_response(record: SignalsRecord) -> str:
    if record.action == "pass" and record.would is None:
        return _meaning(record)
    return _with_evidence(record, record.evidence)


def _with_evidence(record: _Judged, evidence: list[EvidenceItem]) -> str:
    """The first statement of the site that denies a use, or what is known without one."""
    item = next((each for each in evidence if each.denies), None)
    if item is None:
        return _meaning(record)
    line = _about(item.line, " (line {})")
    said = item.raw or "=".join(filter(None, (item.rule, str(item.value))))
    return (
        f"its {item.signal} in {item.where}{line} says {said}, which denies {_listed(item.denies)}"
    )


def _listed(names: list[str]) -> str:
    *others, last = names
    return " and ".join(filter(None, (", ".join(others), last)))


#: What says why, by reason. The others are said by their meaning (decisions/reasons.py).
_CAUSES: dict[str, Callable[[Record], str]] = {
    Reason.ALLOWED: _allowed,
    Reason.UNRESTRICTED: _unrestricted,
    Reason.DISALLOWED: _rule,
    Reason.MIRROR: _mirror,
    Reason.RESTRICTED: _restricted,
    Reason.UNREACHABLE: _unreachable,
    Reason.ROUTE_FAILED: _unreachable,
    Reason.FETCHER_FAILED: _unreachable,
    Reason.CRAWL_DELAY: _delay,
    Reason.REQUEST_RATE: _delay,
    Reason.VISIT_TIME: _delay,
    Reason.RETRY_AFTER: _delay,
    Reason.MIN_DELAY: _delay,
    Reason.USAGE_RESERVED: _reserved,
}


# -- circumstances ---------------------------------------------------------------------------------


def _circumstances(record: _Judged) -> list[str]:
    """What else decided, as clauses."""
    found = [_override(record), _unforced(record), _until(record), _own(record)]
    return [each for each in found if each]


def _override(record: _Judged) -> str:
    if record.override is None:
        return ""
    owner = _about(record.override_owner, " of {}")
    reason = _about(record.override_reason, " ({})")
    return f"the override {record.override}{owner}{reason} was in force"


def _unforced(record: _Judged) -> str:
    if record.would is not None and record.relaxed == REPORT_ONLY:
        return f"this was only reported (report_only), otherwise the action would be {record.would}"
    if record.would is not None and record.override is not None:
        return f"without it the action would have been {record.would}" + _would_rule(record)
    if record.would is not None:
        return f"this was only reported (report_only), otherwise the action would be {record.would}"
    if record.relaxed is not None and record.relaxed.startswith(BY_OVERRIDE):
        return "it was allowed only because of this override"
    if record.relaxed is not None:
        return f"it was allowed only because of the setting {record.relaxed}"
    return ""


def _would_rule(record: _Judged) -> str:
    if not isinstance(record, Record) or record.rule is None or record.reason != Reason.BYPASSED:
        return ""
    return f" (line {record.line} of its robots.txt: {record.rule})"


def _until(record: _Judged) -> str:
    if not isinstance(record, Record) or record.until is None:
        return ""
    return f"it was to ask again at {time_of(record.until)}"


def _own(record: _Judged) -> str:
    if isinstance(record, Record) and record.escaped:
        return "the request had already reached the site"
    if isinstance(record, Record) and record.defers and record.action == "drop":
        return f"it had been deferred before ({record.defers})"
    return ""
