"""Uses: what a site's statements deny and allow, by use of the content.

Invariant: a doubtful denial counts, and a doubtful permission does not. A further statement never
withdraws a denial, with two exceptions. A TDM reservation that is nearer to the content replaces one
farther away (TDMRep final report, section 5). In the page dialects `bing`, `yandex` and
`kollar1996`, some robots rules cancel others of the same response (`decisions/page_dialects.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from robots_guard.decisions.page_dialects import PAGE_DIALECTS, PageDialect
from robots_guard.decisions.signal_settings import RESERVED, SignalSettings, Use
from robots_guard.protocol.signals.rules import agent_name
from robots_guard.protocol.signals.statement import Place, Signal, Statement
from robots_guard.protocol.signals.usage import LEVELS

_EVERY = tuple(use.value for use in Use if use not in (Use.CRAWL, Use.FOLLOW))
#: The labels of Content-Usage (of all drafts) and Content-Signal, and the uses that they are about.
_LABELS: dict[str, tuple[str, ...]] = {
    "train-ai": (Use.AI_TRAIN,),
    "ai-use": (Use.AI_INPUT,),
    "search": (Use.SEARCH,),
    "all": _EVERY,
    "bots": _EVERY,
    "tdm": (Use.TDM, Use.AI_TRAIN),
    "ai": (Use.AI_TRAIN,),
    "genai": (Use.AI_TRAIN,),
    "train-genai": (Use.AI_TRAIN,),
    "inference": (Use.AI_INPUT,),
    "ai-output": (Use.AI_INPUT,),
    "ai-train": (Use.AI_TRAIN,),
    "ai-input": (Use.AI_INPUT,),
}
_PREVIEWS = ("none", "standard", "large")
_PLACES = tuple(Place)  # the farthest first
_PAGE_RULES = frozenset((Signal.X_ROBOTS_TAG, Signal.ROBOTS_TAG, Signal.META_ROBOTS))
_NUMBERS = ("max-snippet", "max-video-preview")


class UseState(StrEnum):
    """What a site says about one use."""

    DENY = "deny"
    ALLOW = "allow"
    UNKNOWN = "unknown"


class StatementEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A statement that applies, and the uses that it denies and allows. A use of the page's images
    begins with `images.`."""

    statement: Statement
    denies: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()


class Uses(msgspec.Struct, frozen=True, kw_only=True):
    """The uses that the statements of a site deny and allow at one moment.

    `states` has every use, and `images` has the denied uses of the page's images. `limits` are
    conditions for showing the content: max-snippet is in characters, max-video-preview in seconds,
    and -1 is no limit. `unavailable_after` is in seconds since 1970. `content_use` is the level of
    use that Content-Signal permits.
    """

    states: Mapping[str, UseState]
    images: Mapping[str, UseState] = {}
    limits: Mapping[str, str | int | bool] = {}
    unavailable_after: float | None = None
    content_use: str | None = None
    tdm_policy: str | None = None
    license: tuple[str, ...] = ()
    license_other: tuple[str, ...] = ()
    price: str | None = None
    evidence: tuple[StatementEffect, ...] = ()
    is_incomplete: bool = False  # part of the page was not read

    @property
    def denied(self) -> list[str]:
        """The denied uses, sorted."""
        return sorted(use for use, state in self.states.items() if state is UseState.DENY)

    @property
    def flags(self) -> list[str]:
        """The flags of all statements, sorted."""
        return sorted({flag.value for each in self.evidence for flag in each.statement.flags})

    @property
    def denials(self) -> list[tuple[str, str]]:
        """The pairs of a denied use and a signal that denies it, sorted, each once."""
        pairs = ((use, each) for each in self.evidence for use in each.denies)
        return sorted({(use, each.statement.signal.value) for use, each in pairs})

    @property
    def may_follow(self) -> bool:
        """Whether the page's links may be followed."""
        return self.states[Use.FOLLOW] is not UseState.DENY

    def denial_of(self, use: str) -> Statement | None:
        """The statement that denies a use, of several the one that is known first. None if there is
        none."""
        denials = [each.statement for each in self.evidence if use in each.denies]
        return min(denials, key=lambda each: _PLACES.index(each.place), default=None)

    def permission_of(self, use: str) -> Statement | None:
        """The first statement that allows a use, in the same order."""
        permissions = [each.statement for each in self.evidence if use in each.allows]
        return min(permissions, key=lambda each: _PLACES.index(each.place), default=None)


def read_uses(
    statements: Iterable[Statement],
    agent: str,
    settings: SignalSettings,
    now: float,
    *,
    is_incomplete: bool = False,
) -> Uses:
    """The uses that the statements for a crawler deny and allow at `now`, in seconds since 1970.

    `is_incomplete`: part of the page was not read.
    """
    name = agent_name(agent)
    binding = [each for each in statements if _is_for(each, name)]
    reading = _Reading(binding, settings, now)
    evidence = tuple(map(reading.effect, binding))
    return Uses(
        states=_states(evidence),
        images=_images(evidence),
        limits=_limits(binding),
        unavailable_after=_earliest(binding),
        content_use=_least(binding, "use", LEVELS, Signal.CONTENT_SIGNAL),
        tdm_policy=reading.tdm_policy,
        license=_values(binding, "license"),
        license_other=_values(binding, "license-other"),
        price=next(iter(_values(binding, "crawler-price")), None),
        evidence=evidence,
        is_incomplete=is_incomplete,
    )


def _is_for(statement: Statement, name: str) -> bool:
    return statement.agent in ("*", name) or statement.signal is Signal.PURPOSE_TOKEN


class _Reading:
    """The statements of one resource, which are interpreted together."""

    def __init__(
        self, statements: Sequence[Statement], settings: SignalSettings, now: float
    ) -> None:
        self._settings = settings
        self._dialect = PAGE_DIALECTS[settings.page_dialect]
        self._now = now
        rules = {each.rule for each in statements if each.signal in _PAGE_RULES}
        self._lifted = _lifted(rules, self._dialect)
        self._has_follow = bool(rules & {"follow", "all"})
        reservations = [each for each in statements if _is_reservation(each)]
        places = {each.place for each in reservations}
        #: Of the reservations, those in the place nearest to the content count.
        self._tdm_place = max(places, key=_PLACES.index, default=None)
        self._is_reserved = any(
            each.value == 1 for each in reservations if each.place is self._tdm_place
        )
        self.tdm_policy = self._policy(statements)

    def _policy(self, statements: Sequence[Statement]) -> str | None:
        if not self._is_reserved:
            return None
        policies = (each for each in statements if each.rule == "tdm-policy")
        nearest = (each for each in policies if each.place is self._tdm_place)
        return next((str(each.value) for each in nearest), None)

    def effect(self, statement: Statement) -> StatementEffect:
        """What a statement denies and allows beside the others."""
        denies: tuple[str, ...] = ()
        allows: tuple[str, ...] = ()
        match statement.signal:
            case Signal.X_ROBOTS_TAG | Signal.ROBOTS_TAG | Signal.META_ROBOTS:
                denies = self._denied_by_rule(statement)
            case Signal.CONTENT_USAGE | Signal.CONTENT_SIGNAL:
                denies, allows = _by_label(statement)
            case Signal.TDM:
                denies, allows = self._by_reservation(statement)
            case Signal.AI_TRAINING:
                denies = (Use.AI_TRAIN.value,) if statement.rule == "disallowaitraining" else ()
            case Signal.NOINDEX:
                denies = (Use.SEARCH.value,)
            case Signal.PURPOSE_TOKEN:
                denies = (statement.rule,)
            case (
                Signal.LICENSE
                | Signal.PAYMENT
                | Signal.DOCUMENT_STATE
                | Signal.META_URL
                | Signal.REVISIT_AFTER
                | Signal.DATA_NOSNIPPET
            ):
                pass  # denies no use
        return StatementEffect(statement=statement, denies=denies, allows=allows)

    def _denied_by_rule(self, statement: Statement) -> tuple[str, ...]:
        rule, value, dialect = statement.rule, statement.value, self._dialect
        if rule in self._lifted or value == "":
            return ()
        if rule == "none":
            return self._denied_by_none()
        if rule == "max-snippet":
            return dialect.denies["nosnippet"] if value == 0 else ()
        if rule == "unavailable_after" and not (
            isinstance(value, (int, float)) and self._now >= value
        ):
            return ()
        if rule == "noindex" and dialect.noindex_drops_links and not self._has_follow:
            return (*dialect.denies[rule], Use.FOLLOW.value)
        images = tuple(f"images.{use}" for use in dialect.images.get(rule, ()))
        return dialect.denies.get(rule, ()) + images

    def _denied_by_none(self) -> tuple[str, ...]:
        """`none` means noindex and nofollow. A permission can cancel each of them separately."""
        parts = (part for part in ("noindex", "nofollow") if part not in self._lifted)
        return tuple(use for part in parts for use in self._dialect.denies[part])

    def _by_reservation(self, statement: Statement) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not _is_reservation(statement) or statement.place is not self._tdm_place:
            return (), ()
        if statement.value == 1:
            return RESERVED, ()
        return (), () if self._is_reserved else (Use.TDM.value,)


def _is_reservation(statement: Statement) -> bool:
    return (
        statement.signal is Signal.TDM
        and statement.rule == "tdm-reservation"
        and statement.value in (0, 1)
    )


def _lifted(rules: set[str], dialect: PageDialect) -> frozenset[str]:
    """The rules that a permission, or nocache at Bing, cancels."""
    lifted = {each for rule in rules for each in dialect.lifts.get(rule, ())}
    if "*" in lifted:
        lifted |= rules
    if dialect.nocache_replaces_noarchive and "nocache" in rules:
        lifted.add("noarchive")
    return frozenset(lifted)


def _by_label(statement: Statement) -> tuple[tuple[str, ...], tuple[str, ...]]:
    uses = tuple(str(use) for use in _LABELS.get(statement.rule, ()))
    if statement.value in ("n", "no"):
        return uses, ()
    if statement.value in ("y", "yes"):
        return (), uses
    return (), ()


def _states(evidence: Sequence[StatementEffect]) -> dict[str, UseState]:
    denied = {use for each in evidence for use in each.denies}
    allowed = {use for each in evidence for use in each.allows}
    return {use.value: _state(use.value, denied, allowed) for use in Use}


def _state(use: str, denied: set[str], allowed: set[str]) -> UseState:
    if use in denied:
        return UseState.DENY
    if use in allowed:
        return UseState.ALLOW
    return UseState.UNKNOWN


def _images(evidence: Sequence[StatementEffect]) -> dict[str, UseState]:
    denied = {use for each in evidence for use in each.denies if use.startswith("images.")}
    return {use.removeprefix("images."): UseState.DENY for use in sorted(denied)}


def _limits(statements: Sequence[Statement]) -> dict[str, str | int | bool]:
    """The conditions for showing the content. Of several values for one, the strictest counts."""
    limits: dict[str, str | int | bool] = {}
    for rule in _NUMBERS:
        numbers = [
            each.value
            for each in statements
            if each.rule == rule and isinstance(each.value, int) and each.value is not True
        ]
        if numbers:
            limits[rule] = min(numbers, key=_least_first)
    if preview := _least(statements, "max-image-preview", _PREVIEWS):
        limits["max-image-preview"] = preview
    rules = {each.rule for each in statements if each.signal in _PAGE_RULES}
    if "nocache" in rules:
        limits["nocache"] = "title-and-snippet-only"
    if "notranslate" in rules:
        limits["notranslate"] = True
    return limits


def _least_first(number: int) -> float:
    """The sort key of a limit: -1, which means no limit, comes last."""
    return float("inf") if number < 0 else number


def _least(
    statements: Sequence[Statement], rule: str, order: Sequence[str], signal: Signal | None = None
) -> str | None:
    found = [
        str(each.value)
        for each in statements
        if each.rule == rule and each.value in order and signal in (None, each.signal)
    ]
    return min(found, key=order.index, default=None)


def _earliest(statements: Sequence[Statement]) -> float | None:
    dates = [
        float(each.value)
        for each in statements
        if each.rule == "unavailable_after"
        and isinstance(each.value, (int, float))
        and each.value is not True
    ]
    return min(dates, default=None)


def _values(statements: Sequence[Statement], rule: str) -> tuple[str, ...]:
    found = [each.value for each in statements if each.rule == rule]
    return tuple(dict.fromkeys(value for value in found if isinstance(value, str) and value))


# -- as plain values -------------------------------------------------------------------------------


def plain_of(uses: Uses) -> dict[str, Any]:
    """The uses as JSON values, in one form for records, Scrapy's `response.meta`, archives and the
    command line. Empty values are omitted, but `uses` has every use."""
    values = {
        "uses": {use: state.value for use, state in uses.states.items()},
        "images": {use: state.value for use, state in uses.images.items()},
        "limits": dict(uses.limits),
        "unavailable_after": shown_time(uses.unavailable_after),
        "content_use": uses.content_use,
        "tdm_policy": uses.tdm_policy,
        "license": list(uses.license),
        "license_other": list(uses.license_other),
        "price": uses.price,
        "incomplete": uses.is_incomplete,
        "flags": uses.flags,
        "evidence": [_plain_evidence(each) for each in uses.evidence],
    }
    return {name: value for name, value in values.items() if value not in (None, [], {}, False)}


def _plain_evidence(evidence: StatementEffect) -> dict[str, Any]:
    statement = evidence.statement
    values = {
        "signal": statement.signal.value,
        "where": statement.place.value,
        "rule": statement.rule,
        "value": statement.value,
        "raw": statement.raw,
        "agent": statement.agent,
        "line": statement.line,
        "flags": [flag.value for flag in statement.flags],
        "denies": list(evidence.denies),
        "allows": list(evidence.allows),
    }
    return {name: value for name, value in values.items() if value is not None and value != []}


def shown_time(seconds: float | None) -> str | None:
    """A time in seconds since 1970 as text, such as 2026-11-22T00:00:00Z; None if it has no text."""
    if seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    # strftime() does not pad the year.
    return moment.isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


# -- purposes --------------------------------------------------------------------------------------


class PurposeRefusal(msgspec.Struct, frozen=True):
    """A declared purpose that is refused. `statement` is None if the site says nothing about the
    purpose, and `on_unknown` is `deny`."""

    purpose: str
    statement: Statement | None

    @property
    def detail(self) -> str:
        """The purpose and the statement, in words."""
        if self.statement is None:
            return f"{self.purpose}: the site does not state that it permits this use"
        where = self.statement.place.value
        if self.statement.line is not None:
            where = f"line {self.statement.line} of {where}"
        return f"{self.purpose}: {self.statement.signal.value} ({where}) says {self.says}"

    @property
    def says(self) -> str:
        """The text of the statement, or an empty string."""
        return self.statement.raw if self.statement else ""


def refusal_of(
    uses: Uses, settings: SignalSettings, *, is_final: bool = True
) -> PurposeRefusal | None:
    """The refusal of a declared purpose, or None.

    `is_final`: nothing more will be read, so a purpose that is unknown by now is decided by
    `on_unknown`.
    """
    for purpose in settings.declared:
        if statement := uses.denial_of(purpose):
            return PurposeRefusal(purpose, statement)
    if settings.declared and (statement := _lower_use(uses, settings.content_use)):
        return PurposeRefusal(settings.declared[0], statement)
    if is_final and settings.on_unknown == "deny":
        for purpose in settings.declared:
            if uses.states[purpose] is UseState.UNKNOWN:
                return PurposeRefusal(purpose, None)
    return None


def relaxation(
    statements: Sequence[Statement], agent: str, settings: SignalSettings, now: float
) -> str | None:
    """The setting without which the statements would refuse a declared purpose, as `name=value`;
    None if they would not refuse one anyway."""
    if settings.page_dialect == _STRICT.page_dialect or not settings.enforces_signals:
        return None
    strict = msgspec.structs.replace(settings, page_dialect=_STRICT.page_dialect)
    if refusal_of(read_uses(statements, agent, strict, now), strict, is_final=False):
        return f"page_dialect={settings.page_dialect}"
    return None


_STRICT = SignalSettings()  # whose page dialect denies what any of the others denies


def _lower_use(uses: Uses, level: str) -> Statement | None:
    """The statement that permits a lower level of use than the crawler's, or None."""
    permitted = uses.content_use
    if permitted is None or LEVELS.index(level) <= LEVELS.index(permitted):
        return None
    statements = (each.statement for each in uses.evidence)
    return next(each for each in statements if each.rule == "use" and each.value == permitted)
