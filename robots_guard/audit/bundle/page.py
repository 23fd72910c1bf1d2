"""The page of a bundle, for readers who do not have this package.

Invariant: it says what the other files say. It runs and loads nothing, and all values are escaped,
because clients and sites control them. It depends on the files only, so that a reader of the bundle
can write it again and compare it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from robots_guard.audit.bundle.basis import Basis, BasisIndex, Judged
from robots_guard.audit.bundle.contents import FORMAT, Chain, Completeness, Parts
from robots_guard.audit.bundle.derivation import name_of, overrides_text
from robots_guard.audit.bundle.trust import key_name
from robots_guard.audit.record import Fetch, Passes, Record
from robots_guard.audit.show.markup import environment
from robots_guard.audit.show.sentence import date_and_time, sentence_of
from robots_guard.decisions.policy import PINNED
from robots_guard.protocol.lines import excerpt

if TYPE_CHECKING:
    from jinja2 import Template

MOST_STORIES = 100  # decisions that are shown with their documents
MOST_SENTENCES = 2000
SHORT = 120  # lines of a document that is shown as a whole
AROUND = 20  # lines shown around the deciding one of a longer document


class ShownLine(NamedTuple):
    """A line of a document."""

    number: int
    text: str
    is_deciding: bool


class Story(NamedTuple):
    """A decision in words, with its basis."""

    id: str
    action: str
    sentence: str
    facts: list[tuple[str, str]]
    exception: list[tuple[str, str]]
    fetches: list[tuple[str, str]]
    lines: list[ShownLine]
    is_excerpt: bool


class ChainNote(NamedTuple):
    """What a bundle has of a writer's chain, in words."""

    writer: str
    place: str
    signed: str
    timestamps: str


def page_of(parts: Parts, completeness: Completeness) -> bytes:
    """The page, in HTML."""
    index = BasisIndex(line.entry for line in parts.lines)
    records = sorted(index.decisions.values(), key=lambda each: (each.at or "", each.id))
    stories = [_story(each, index.basis_of(each), parts) for each in records[:MOST_STORIES]]
    text = _template().render(
        format=FORMAT,
        title=_title(parts, records),
        stories=stories,
        sentences=[sentence_of(each) for each in records[MOST_STORIES:MOST_SENTENCES]],
        left_out=max(0, len(records) - MOST_SENTENCES),
        counted=[each for each in map(_counted, parts.lines) if each][:MOST_SENTENCES],
        completeness=completeness,
        selected=[f"the decision {each}" for each in parts.selection.ids]
        + [f"{name} {value}" for name, value in sorted(parts.selection.where.items())],
        chains=[_chain_note(each, parts) for each in parts.chains.values()],
        anchors=[_anchor_note(name, content) for name, content in parts.anchors.items()],
        overrides=sorted(
            {text for line in parts.lines if (text := overrides_text(line.entry)) is not None}
        ),
        total=len(parts.lines),
    )
    return text.encode("utf-8", "backslashreplace")


@cache
def _template() -> Template:
    return environment().get_template("bundle.html")


def _title(parts: Parts, records: list[Judged]) -> str:
    chosen = [each for each in records if each.id in parts.selection.ids]
    if len(chosen) == 1:
        return sentence_of(chosen[0])
    if len(records) == 1:
        return sentence_of(records[0])
    if records:
        return f"{len(records)} decisions on whether pages could be fetched"
    return "No decision of this selection is in the audit log"


def _story(record: Judged, basis: Basis, parts: Parts) -> Story:
    document = parts.documents.get(record.sha256 or "") if isinstance(record, Record) else None
    lines, is_excerpt = _shown_lines(document, record)
    return Story(
        id=record.id,
        action=record.action,
        sentence=sentence_of(record),
        facts=_facts(record, basis),
        exception=_exception(record),
        fetches=[_fetch_note(each) for each in basis.hops],
        lines=lines,
        is_excerpt=is_excerpt,
    )


def _shown_lines(document: bytes | None, record: Judged) -> tuple[list[ShownLine], bool]:
    if document is None:
        return [], False
    deciding = record.line if isinstance(record, Record) else None
    total = document.count(b"\n") + document.count(b"\r") + 1
    around = SHORT if total <= SHORT else AROUND
    found = excerpt(document, deciding or 1, around=around)
    lines = [ShownLine(number, text, number == deciding) for number, text in found]
    return lines, total > SHORT


def _facts(record: Judged, basis: Basis) -> list[tuple[str, str]]:
    facts = [
        ("Decision", record.id),
        ("Made at", record.at or ""),
        ("Crawler", record.agent),
        ("Request", f"{record.method or 'GET'} {record.url}"),
        ("Result", f"{record.action} ({record.reason})"),
        ("Recorded by", f"{name_of(record)} ({record.component})"),
    ]
    if record.job:
        facts.append(("Job", record.job))
    if basis.start is not None:
        facts.append(("Version", f"robots_guard {basis.start.version} on {basis.start.host}"))
    if isinstance(record, Record):
        facts += _document_facts(record)
    if record.would is not None:
        facts.append(("Without the exception or setting", record.would))
    if record.relaxed is not None:
        facts.append(("Setting that let it pass", record.relaxed))
    if record.detail:
        facts.append(("Detail", record.detail))
    return facts


def _document_facts(record: Record) -> list[tuple[str, str]]:
    facts = [("Read as", f"{record.dialect}, {record.matching}")] if record.dialect else []
    if record.sha256 is not None:
        facts.append(("robots.txt", f"SHA-256 {record.sha256}"))
    if record.fetched_at is not None:
        how = f"by {record.via}, status {record.status}"
        if record.via == PINNED:
            facts.append(("Pinned", f"by the override, read at {record.fetched_at}"))
        else:
            facts.append(("Fetched", f"{record.fetched_at} {how}"))
    if record.failure is not None:
        failure = record.failure
        facts.append(("Not available", f"{failure} since {record.trouble_since}"))
    return facts


def _exception(record: Judged) -> list[tuple[str, str]]:
    if record.override is None:
        return []
    return [
        ("Exception", record.override),
        ("Made by", record.override_owner or ""),
        ("Because", record.override_reason or ""),
        ("Until", record.override_expires or ""),
    ]


def _fetch_note(fetch: Fetch) -> tuple[str, str]:
    outcome = fetch.failure or f"status {fetch.status}, {fetch.size} bytes"
    verified = "TLS verified" if fetch.tls_verified else "TLS not verified"
    if fetch.url.startswith("http:"):
        verified = "without TLS"
    if fetch.location:
        outcome += f", to {fetch.location}"
    return date_and_time(fetch.at), f"{fetch.url}: {outcome}, by {fetch.via}, {verified}"


def _counted(line: Any) -> str | None:
    """A record that counts decisions, in one sentence."""
    entry = line.entry
    if not isinstance(entry, Passes):
        return None
    return (
        f"{entry.agent} was allowed to make {entry.count} requests to {entry.origin} from"
        f" {date_and_time(entry.since)} to {date_and_time(entry.until)}"
    )


def _chain_note(chain: Chain, parts: Parts) -> ChainNote:
    count = sum(line.entry.writer == chain.writer for line in parts.lines)
    seals = [each.seal for each in chain.spans if each.seal is not None]
    heads = ", ".join(
        f"up to number {seal.last} at {date_and_time(seal.at)} with the key {key_name(seal.key)}"
        for seal in seals[-3:]
    )
    stamps = [name for name, content in parts.anchors.items() if chain.writer.encode() in content]
    return ChainNote(
        writer=chain.writer,
        place=f"{count} records, among {sum(len(each.links) for each in chain.spans)} lines",
        signed=heads or "not signed",
        timestamps=", ".join(stamps) or "none",
    )


def _anchor_note(name: str, content: bytes) -> tuple[str, str]:
    """An anchor's name and what it states."""
    from robots_guard.audit.anchors import InvalidAnchor, anchor_of

    try:
        anchor = anchor_of(content)
    except InvalidAnchor as error:
        return name, f"not readable: {error}"
    stated = ", ".join(f"{each.writer} up to {each.last}" for each in anchor.heads[:50])
    return name, f"{date_and_time(anchor.at)}, for {stated}"
