"""Page questions of `robots-guard check --batch`: what a site states of a page, and what follows.

    {"input": {"headers": [["X-Robots-Tag", "noai"]]}, "url": "https://a.test/", "agent": "mybot",
     "purposes": ["ai-train"]}
    {"uses": {"ai-train": "deny", ...}, "denied": ["ai-input", "ai-train"], "action": {"scrapy": "stop",
     "proxy": "drop", "phase": "headers"}, ...}

A question brings all that the site says: robots.txt, /.well-known/tdmrep.json, header fields and
page. Nothing is fetched and nothing recorded. A row of a table of conformance tests is a question
as it is: its other keys (`signal`, `where`, `expect`, `clause`, `spec_example`) are ignored, and
without `at` a row with `expect` is about the time for which the table was made.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from robots_guard.app.cli.ask.answers import Judge, policy_of_text
from robots_guard.app.cli.ask.judged_page import GivenPage, JudgedPage, judge_page
from robots_guard.decisions.check import read_url
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead
from robots_guard.decisions.signal_settings import PageDialectName, Use
from robots_guard.decisions.uses import Uses, plain_of, shown_time
from robots_guard.decisions.verdict import Action, Question, Terms, Verdict
from robots_guard.errors import RobotsGuardError
from robots_guard.origin import TDMREP_JSON, objection
from robots_guard.protocol.ruleset import compile_rules
from robots_guard.protocol.signals import tdmrep
from robots_guard.protocol.signals.statement import Flag, Signal, Statement
from robots_guard.protocol.signals.usage import ContentUse
from robots_guard.text import did_you_mean

#: Keys of a row of a conformance table that are no part of the question.
IGNORED = frozenset(("signal", "where", "expect", "clause", "spec_example"))
#: The time of a row that has an `expect` and no `at`: its table was made for this moment.
TABLE_TIME = datetime(2026, 11, 22, tzinfo=UTC)
_ROBOTS_RULES = frozenset((Signal.X_ROBOTS_TAG, Signal.ROBOTS_TAG, Signal.META_ROBOTS))


class InvalidPageQuestion(RobotsGuardError):
    """A line is a page question, but cannot be answered."""


class PageInput(msgspec.Struct, kw_only=True):
    """What the site says. `html` is the page as text, `html_b64` as bytes in Base64.

    `licenses` (RSL documents) and `embedded` (statements inside of files) are accepted and not
    read, as are texts of `wellknown` other than tdmrep.json.
    """

    headers: list[tuple[str, str]] = []
    html: str | None = None
    html_b64: str | None = None
    robots_txt: str | None = None
    wellknown: dict[str, str] = {}
    licenses: Any = None
    embedded: Any = None


class PageQuestion(msgspec.Struct, kw_only=True):
    """A line of the batch with the key `input`. `dialect` is the page dialect, `at` the moment of
    the question: a text such as 2026-11-22T00:00:00Z; without one, it is about now."""

    input: PageInput
    url: str
    id: Any = None
    agent: str | None = None
    purposes: list[str] | None = None
    at: datetime | None = None
    status: Annotated[int, Meta(ge=100, le=599)] = 200
    content_use: ContentUse | None = None
    dialect: PageDialectName | None = None


def is_page_question(values: Any) -> bool:
    """Whether a line of the batch is a page question."""
    return isinstance(values, dict) and "input" in values


def read_page_question(values: dict[str, Any]) -> PageQuestion:
    """Read a page question. Raises InvalidPageQuestion and ValueError, naming the field."""
    _refuse_unknown(values, PageQuestion, ignored=IGNORED, prefix="")
    if isinstance(values["input"], dict):
        _refuse_unknown(values["input"], PageInput, ignored=frozenset(), prefix="input.")
    ask = msgspec.convert(values, PageQuestion)
    if ask.at is None and "expect" in values:
        ask.at = TABLE_TIME
    sentence = objection(ask.url)
    if sentence is not None:
        raise InvalidPageQuestion(f"url: {sentence}")
    if ask.input.html is not None and ask.input.html_b64 is not None:
        raise InvalidPageQuestion("input.html and input.html_b64 are both given: give one of them")
    if ask.at is not None and ask.at.tzinfo is None:
        raise InvalidPageQuestion("at has no time zone: end it with Z for UTC")
    return ask


def _refuse_unknown(
    values: dict[str, Any], form: type[msgspec.Struct], *, ignored: frozenset[str], prefix: str
) -> None:
    """A misspelt field that is ignored would give the answer to another question."""
    for name in sorted(set(values) - set(form.__struct_fields__) - ignored):
        guess = did_you_mean(name, form.__struct_fields__)
        raise InvalidPageQuestion(f"unknown field {prefix}{name}: {guess}")


def terms_of(ask: PageQuestion, terms: Terms) -> Terms:
    """The settings, with those that the question brings. Raises SettingsError, naming the field."""
    changes: dict[str, Any] = {
        "page_dialect": ask.dialect,
        "content_use": ask.content_use,
        "purposes": None if ask.purposes is None else ",".join(ask.purposes),
    }
    return msgspec.structs.replace(
        terms, **{name: value for name, value in changes.items() if value is not None}
    )


def answer_page_question(
    ask: PageQuestion, terms: Terms, now: float, *, agent: str, token: str
) -> dict[str, Any]:
    """Answer a page question for a crawler. `token` is its name in a robots.txt, `agent` in all
    other places.

    Raises InvalidPageQuestion and SettingsError, naming the field.
    """
    terms = terms_of(ask, terms)
    at = now if ask.at is None else ask.at.timestamp()
    request = _request(ask, terms, at, token)
    head = ResponseHead(status=ask.status, headers=ask.input.headers)
    given = GivenPage(ask.url, request.stated, head, page_bytes(ask.input))
    judged = judge_page(given, request.verdict, agent, terms, at)
    return _answer(ask, request.verdict, judged)


class _Request(NamedTuple):
    """The verdict by the rules of robots.txt, and what the policy states."""

    verdict: Verdict
    stated: tuple[Statement, ...]


def _request(ask: PageQuestion, terms: Terms, now: float, token: str) -> _Request:
    read = read_url(ask.url)
    if isinstance(read, Verdict):
        raise InvalidPageQuestion(f"url has no robots.txt that applies: {read.reason}")
    origin, target = read
    verdict = Verdict(action=Action.PASS, reason=Reason.UNRESTRICTED)
    stated: tuple[Statement, ...] = ()
    if ask.input.robots_txt is not None:
        body = encoded(ask.input.robots_txt, "input.robots_txt")
        question = Question(origin=origin, target=target, agent=token)
        policy = policy_of_text(origin, body, now)
        verdict = Judge(terms).judge_offline(policy, question, now, at_any_time=True)
        rules = compile_rules(body, terms.dialect, token, terms.matching.name)
        stated = rules.statements(target)
    if TDMREP_JSON in ask.input.wellknown:
        body = encoded(ask.input.wellknown[TDMREP_JSON], f"input.wellknown.{TDMREP_JSON}")
        stated += tdmrep.read_file(body).statements(target, terms.matching.name)
    return _Request(verdict, stated)


def page_bytes(given: PageInput) -> bytes | None:
    """The bytes of the page, or None if there is none. Raises InvalidPageQuestion."""
    if given.html is not None:
        return encoded(given.html, "input.html")
    if given.html_b64 is None:
        return None
    try:
        return base64.b64decode(given.html_b64, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidPageQuestion("input.html_b64 is not Base64") from None


def encoded(text: str, name: str) -> bytes:
    """The bytes of a text; a lone surrogate of PEP 383 becomes its byte. Raises
    InvalidPageQuestion."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidPageQuestion(
            f"{name} contains a lone surrogate, which is neither a character nor an escaped byte:"
            " remove it"
        ) from None


# -- the answer ------------------------------------------------------------------------------------


def _answer(ask: PageQuestion, request: Verdict, judged: JudgedPage) -> dict[str, Any]:
    result, uses = judged.result, judged.result.uses
    plain = plain_of(uses)
    may_crawl = request.action is Action.PASS or request.reason is Reason.USAGE_RESERVED
    states = plain["uses"] | {Use.CRAWL.value: _crawl_state(ask, may_crawl=may_crawl)}
    return {
        "id": ask.id,
        "crawl": may_crawl,
        "uses": states,
        "denied": uses.denied,
        "images": plain.get("images", {}),
        "limits": plain.get("limits", {}),
        "unavailable_after": plain.get("unavailable_after"),
        "content_use": uses.content_use,
        "tdm_policy": uses.tdm_policy,
        "license": _licences(ask, uses),
        "license_other": list(uses.license_other) or None,
        "price": uses.price,
        "payment": None,  # the terms of a licence are in its document, which is not read
        "document_state": _first(uses, Signal.DOCUMENT_STATE),
        "canonical": _first(uses, Signal.META_URL),
        "revisit_after": "recorded" if _values(uses, Signal.REVISIT_AFTER) else None,
        "data_nosnippet": _values(uses, Signal.DATA_NOSNIPPET),
        "rules": _rules(uses),
        "flags": uses.flags,
        "follow": judged.links,
        "incomplete": uses.is_incomplete,
        "action": judged.action,
        "reason": result.verdict.reason.value,
        "detail": result.verdict.detail,
    }


def _crawl_state(ask: PageQuestion, *, may_crawl: bool) -> str:
    if not may_crawl:
        return "deny"
    return "unknown" if ask.input.robots_txt is None else "allow"


def _licences(ask: PageQuestion, uses: Uses) -> list[str] | None:
    """The RSL licences; None if there is none and no robots.txt, which is where sites name them."""
    if not uses.license and ask.input.robots_txt is None:
        return None
    return list(uses.license)


def _values(uses: Uses, signal: Signal) -> list[str]:
    found = (each.statement for each in uses.evidence if each.statement.signal is signal)
    return [each.value for each in found if isinstance(each.value, str) and each.value]


def _first(uses: Uses, signal: Signal) -> str | None:
    return next(iter(_values(uses, signal)), None)


def _rules(uses: Uses) -> list[list[Any]]:
    """The robots rules that bind the crawler, in their order, each with its agent and its value.

    The value is null if it cannot be read; a word that is no rule is left out.
    """
    stated = (each.statement for each in uses.evidence)
    return [
        [each.agent, each.rule, _shown_value(each)]
        for each in stated
        if each.signal in _ROBOTS_RULES and each.rule and Flag.UNKNOWN_RULE not in each.flags
    ]


def _shown_value(statement: Statement) -> Any:
    if statement.value == "":
        return None
    is_date = statement.rule == "unavailable_after" and statement.value is not True
    if is_date and isinstance(statement.value, (int, float)):
        return shown_time(statement.value)
    return statement.value
