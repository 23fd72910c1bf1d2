"""Meta tags: what the META elements of a page state.

A META with robots rules has the name `robots` or the name of a crawler. Any word can be a crawler's
name, so a META with any other name counts only if its content has one of the known rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from robots_guard.protocol.html.links import absolute_url
from robots_guard.protocol.html.markup import Element
from robots_guard.protocol.signals import content_signal, content_usage, tdmrep
from robots_guard.protocol.signals.bounds import is_restrictive
from robots_guard.protocol.signals.rules import FIELD_CAP, agent_name, read_rules, unread_rules
from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement

#: Names that do not name a crawler (HTML section 4.2.5.1, and the registry MetaExtensions).
_NOT_AGENTS = frozenset(
    {
        "abstract", "apple-mobile-web-app-capable", "apple-mobile-web-app-title", "application-name",
        "author", "classification", "color-scheme", "copyright", "coverage", "csrf-param",
        "csrf-token", "date", "description", "designer", "distribution", "format-detection",
        "generator", "geo.placename", "geo.position", "geo.region", "google-site-verification",
        "handheldfriendly", "icbm", "keywords", "language", "mobileoptimized", "msapplication-config",
        "msapplication-tilecolor", "msapplication-tileimage", "news_keywords", "owner", "pagename",
        "parsely-tags", "publisher", "rating", "referrer", "resource-type", "subject", "subtitle",
        "summary", "tags", "target", "theme-color", "thumbnail", "title", "topic", "viewport",
        "yandex-verification", tdmrep.RESERVATION, tdmrep.POLICY,
    }
)  # fmt: skip
_AGENT = re.compile(r"(?=[0-9._-]*[a-z])[a-z0-9_.-]+(?:/.*)?|\*", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,;]+")
_ROBOTS = "robots"
_FIELD = "x-robots-tag"


def meta_statements(metas: Iterable[Element]) -> Iterator[Statement]:
    """Yield the statements of the METAs of one page."""
    reservations: list[Element] = []
    policies: list[str] = []
    for meta in metas:
        for statement in _statements(meta):
            if meta.is_certain or is_restrictive(statement) or statement.signal in _RECORDED:
                yield statement
        name = (meta.get("name") or meta.get("http-equiv")).lower()
        if name == tdmrep.RESERVATION:
            may_grant = meta.is_certain and meta.get("name") != ""
            if may_grant or meta.get("content") != "0":
                reservations.append(meta)
        elif name == tdmrep.POLICY:
            policies.append(meta.get("content"))
    yield from tdmrep.read_values(
        [meta.get("content") for meta in reservations],
        policies,
        place=Place.PAGE,
        raws=[meta.tag for meta in reservations],
    )


def _statements(meta: Element) -> Iterator[Statement]:
    name = meta.get("name").lower()
    field = meta.get("http-equiv").lower()
    if name == _ROBOTS:
        yield from _rules(meta, "*", ())
    elif name in _READERS:
        yield from _READERS[name](meta)
    elif name and name not in _NOT_AGENTS:
        yield from _named_rules(meta, name)
    if field in (_ROBOTS, _FIELD):
        yield from _rules(meta, "*", (Flag.NONSTANDARD,))
    elif field in _FIELDS:
        yield from _FIELDS[field](meta)


def _rules(meta: Element, agent: str, flags: tuple[Flag, ...]) -> tuple[Statement, ...]:
    content = meta.get("content")
    if len(content) > FIELD_CAP:
        return unread_rules(meta.tag, signal=Signal.META_ROBOTS, place=Place.PAGE, agent=agent)
    return read_rules(
        content,
        signal=Signal.META_ROBOTS,
        place=Place.PAGE,
        agent=agent,
        flags=flags,
        raw=meta.tag,
    )


def _named_rules(meta: Element, names: str) -> Iterator[Statement]:
    """Yield the rules of a META for each crawler in its name. No document defines a list of names
    there."""
    agents = [name for name in _SEPARATORS.split(names) if _AGENT.fullmatch(name)]
    flags: tuple[Flag, ...] = (Flag.LENIENT,) if _SEPARATORS.search(names) else ()
    for name in dict.fromkeys(agents):
        if name in _NOT_AGENTS:
            continue
        is_general = name in (_ROBOTS, _FIELD)
        more: tuple[Flag, ...] = (Flag.NONSTANDARD,) if name == _FIELD else ()
        agent = "*" if is_general else agent_name(name)
        found = _rules(meta, agent, (*flags, *more))
        if is_general or any(Flag.UNKNOWN_RULE not in each.flags for each in found):
            yield from found


def _document_state(meta: Element) -> Iterator[Statement]:
    word = meta.get("content").upper()
    yield _recorded(meta, Signal.DOCUMENT_STATE, word if word in ("STATIC", "DYNAMIC") else "")


def _url(meta: Element) -> Iterator[Statement]:
    content = meta.get("content")
    yield _recorded(meta, Signal.META_URL, content if absolute_url(content) else "")


def _revisit_after(meta: Element) -> Iterator[Statement]:
    yield _recorded(meta, Signal.REVISIT_AFTER, meta.get("content")[:RAW_CAP])


def _recorded(meta: Element, signal: Signal, value: str) -> Statement:
    return Statement(
        signal=signal,
        place=Place.PAGE,
        rule="url" if signal is Signal.META_URL else signal.value,
        value=value,
        raw=meta.tag[:RAW_CAP],
        flags=() if value else (Flag.MALFORMED,),
    )


def _content_usage(meta: Element) -> Iterator[Statement]:
    yield from content_usage.read(
        meta.get("content"), place=Place.PAGE, flags=(Flag.NONSTANDARD,), raw=meta.tag
    )


def _content_signal(meta: Element) -> Iterator[Statement]:
    yield from content_signal.read(
        meta.get("content"), place=Place.PAGE, flags=(Flag.NONSTANDARD,), raw=meta.tag
    )


_Reader = Callable[[Element], Iterator[Statement]]

#: No document defines a META for these two fields (draft-ietf-aipref-attach-05,
#: contentsignals.org).
_FIELDS: dict[str, _Reader] = {
    "content-usage": _content_usage,
    "content-signal": _content_signal,
}
_READERS: dict[str, _Reader] = {
    "document-state": _document_state,
    "url": _url,
    "revisit-after": _revisit_after,
    **_FIELDS,
}
_RECORDED = frozenset({Signal.DOCUMENT_STATE, Signal.META_URL, Signal.REVISIT_AFTER})
