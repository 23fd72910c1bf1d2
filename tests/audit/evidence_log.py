"""A signed audit log with every kind of record that a bundle discloses, its bundle, and what a forger can do to it."""

from __future__ import annotations

import hashlib
import io
import itertools
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import msgspec
from audit.decisions import decision

from robots_guard.audit.anchors import Anchor, ChainHead, timestamp_request, token_of
from robots_guard.audit.bundle.chain import check_chain
from robots_guard.audit.bundle.contents import DisclosedLine, Parts
from robots_guard.audit.bundle.trust import BundleTrust
from robots_guard.audit.bundle.writer import write_bundle
from robots_guard.audit.read.reader import Filter, Unreadable, read_line
from robots_guard.audit.read.search import Search
from robots_guard.audit.read.verify import verify
from robots_guard.audit.record import Checkpoint, Start, moment
from robots_guard.audit.signing import Signer, new_signer, statement_of
from robots_guard.audit.write.log import FileAuditLog, LogOptions
from robots_guard.audit.write.writer import next_hash
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.access import Fetched, Get
from robots_guard.decisions.check import judge_offline
from robots_guard.decisions.events import (
    FailedOpen,
    FetchMade,
    FilesRemoved,
    HoldChanged,
    OverridesLoaded,
    PinnedFileRead,
    StoreWasReset,
)
from robots_guard.decisions.overrides import parse
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.response import ResponseHead, judge_response
from robots_guard.decisions.verdict import Question, ResponseRef
from robots_guard.origin import split_url
from robots_guard.ports import Clocks
from robots_guard.protocol.signals.statement import Place, Signal, Statement

BODY = b"User-agent: *\nDisallow: /private/\n"
OTHER = b"User-agent: *\nDisallow: /closed/\nCrawl-delay: 9\n"
OVERRIDES = """\
[[override]]
id = "shop-2026"
origin = "https://b.test"
owner = "jane@crawler.example"
reason = "contract of 12 May <script>alert(1)</script>"
expires = 2099-01-01
max_delay = 2.0
"""
NOINDEX = Statement(
    signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noindex", raw="noindex, max-snippet: 20"
)
IDS = ("w-0", "w-1", "w-2", "w-9")


class EvidenceLog(NamedTuple):
    """An audit log, its key, the root certificates of its authority if it has one, and the content of its store."""

    directory: Path
    signer: Signer
    roots: bytes
    documents: dict[str, bytes]
    began: float

    def bundle(self, *ids: str, **where: str) -> bytes:
        """A bundle of these decisions, or a signed one of those that a filter selects."""
        target = io.BytesIO()
        with Search(self.directory) as search:
            write_bundle(
                target,
                search,
                Filter(**where),
                documents=self.documents.get,
                now=self.began + 3600,
                ids=ids,
                signer=self.signer if where else None,
            )
        return target.getvalue()

    @property
    def trust(self) -> BundleTrust:
        """The trust of a reader who got the key and the certificates from elsewhere."""
        return BundleTrust([self.signer.key], [self.roots] if self.roots else [])


def write_evidence_log(directory: Path, authority=None, *, signed: bool = True) -> EvidenceLog:
    """An audit log with a checkpoint after every tenth record: a redirected fetch, decisions by it and under an
    override, a response, and decisions on other pages. With an `authority`, it is anchored."""
    signer, began = new_signer(), float(int(time.time())) - 100
    settings = Settings(agent="mybot", audit="all", purposes="search")
    ticks, now = itertools.count(0.0, 10.0), [began]
    clocks = Clocks(now=lambda: now[0], monotonic=lambda: next(ticks))
    options = msgspec.structs.replace(
        settings.writing("cli"),
        chain=True,
        signer=signer if signed else None,
    )
    log = FileAuditLog(directory, clocks, LogOptions(audit="evidence", retention=None), options)
    digest = hashlib.sha256(OVERRIDES.encode()).hexdigest()
    log.note(OverridesLoaded(at=began, source="o.toml", count=1, sha256=digest, text=OVERRIDES))
    policies = {}
    for site, body in (("a", BODY), ("b", OTHER)):
        policies[site] = _fetched(log, f"https://{site}.test", body, now, redirects=site == "b")
    for number in range(12):
        now[0] += 1
        log.write(
            _judged(
                f"https://a.test/{number}?q=secret", policies["a"], settings, now[0], f"h-{number}"
            )
        )
    for identity, url in (
        ("w-0", "https://a.test/open"),
        ("w-1", "https://a.test/private/x?<script>=\u202e"),
        ("w-2", "https://b.test/open"),
    ):
        now[0] += 1
        site = url[8]
        log.write(_judged(url, policies[site], settings, now[0], identity))
    now[0] += 1
    log.write(_response(settings, now[0]))
    for number in range(12):
        now[0] += 1
        log.write(
            _judged(f"https://a.test/{number}", policies["a"], settings, now[0], f"i-{number}")
        )
    log.close()
    roots = b""
    if authority is not None:
        roots = authority.roots.read_bytes()
        _anchor(directory, authority.url)
    documents = {hashlib.sha256(body).hexdigest(): body for body in (BODY, OTHER)}
    return EvidenceLog(directory, signer, roots, documents, began)


def write_log_of_every_kind(directory: Path) -> EvidenceLog:
    """A signed audit log of one writer with a record of each kind."""
    signer, began = new_signer(), float(int(time.time())) - 100
    settings = Settings(agent="mybot", purposes="search")
    ticks, now = iter(range(10**9)), [began]
    clocks = Clocks(now=lambda: now[0], monotonic=lambda: float(next(ticks)))
    writing = msgspec.structs.replace(settings.writing("cli"), chain=True, signer=signer)
    options = LogOptions(audit="summary", retention=None)
    log = FileAuditLog(directory, clocks, options, writing)
    digest = hashlib.sha256(OVERRIDES.encode()).hexdigest()
    log.note(OverridesLoaded(at=began, source="o.toml", count=1, sha256=digest, text=OVERRIDES))
    pinned = {"override": "pin-1", "source": "pinned.txt", "sha256": "0" * 64, "size": 9}
    for event in (
        PinnedFileRead(at=began, part=1, parts=1, text="# a\xff\n", **pinned),
        StoreWasReset(at=began, detail="damaged"),
        FailedOpen(at=began, setting="audit_required", count=2, detail="no space"),
        HoldChanged(at=began, hold="h1", change="add", owner="jane", reason="case 7"),
        FilesRemoved(at=began, files=("20261101-host-1-aa-0001.jsonl",)),
    ):
        log.note(event)
    policy = _fetched(log, "https://a.test", BODY, now, redirects=False)
    for number, page in enumerate(("open", "open", "private/x", "private/y", "private/z")):
        now[0] += 1
        log.write(_judged(f"https://a.test/{page}", policy, settings, now[0], f"w-{number}"))
    log.write(_response(settings, now[0]))
    log.close()
    return EvidenceLog(directory, signer, b"", {hashlib.sha256(BODY).hexdigest(): BODY}, began)


def _fetched(log, origin, body, now, *, redirects):
    """Fetch a robots.txt, through a redirect within the site if it `redirects`."""
    state = begin(split_url(f"{origin}/")[0], None, "direct")
    answers = [Fetched(status=200, body=body, tls_verified=True, headers={"server": "site"})]
    if redirects:
        headers = {"location": f"{origin}/robots/new.txt"}
        answers.insert(0, Fetched(status=301, headers=headers, tls_verified=True))
    for answer in answers:
        now[0] += 1
        get = Get(url=state.url, headers=(("User-Agent", "mybot/1.0"),))
        log.note(
            FetchMade(
                at=now[0],
                origin=split_url(f"{origin}/")[0],
                get=get,
                outcome=answer,
                via="direct",
                elapsed=0.1,
            )
        )
        state = state.next(answer, now[0] + 0.001)
    return state.policy


def _judged(url, policy, settings, at, identity):
    origin, target = split_url(url)
    terms = parse(OVERRIDES, settings.terms()).terms(origin, settings.terms(), at)
    question = Question(origin=origin, target=target, agent="mybot")
    verdict = judge_offline(question, terms, policy, at)
    made = decision(url, verdict, at=at, policy=policy, dialect="rfc9309", matching="standard")
    return msgspec.structs.replace(made, id=identity, override=terms.override)


def _response(settings, at):
    terms = settings.terms()
    verdict = judge_response([NOINDEX], ResponseHead(status=200, method="GET"), "mybot", terms, at)
    response = ResponseRef(status=200, request="w-0")
    made = decision("https://a.test/open", verdict, at=at, response=response)
    return msgspec.structs.replace(
        made, id="w-9", dialect=terms.page_dialect, purposes=terms.declared
    )


def _anchor(directory, url):
    """Have the heads of the log timestamped."""
    trouble = Unreadable()
    heads = [ChainHead(each.writer, each.last, each.head) for each in verify(directory, trouble)]
    request = timestamp_request(heads)
    call = urllib.request.Request(url, data=request.body, method="POST")
    with urllib.request.urlopen(call, timeout=30) as response:
        token = token_of(response.read(), request)
    anchor = Anchor(at=moment(time.time()), heads=heads, tsa=url, token=token)
    (directory / anchor.filename).write_bytes(msgspec.json.encode(anchor))


# -- what a forger can do ----------------------------------------------------------------------------


def rechained(parts: Parts, changed: dict[int, bytes], signer: Signer | None = None) -> Parts:
    """The parts with other lines, and the chains computed again: with the old signatures, or with those of `signer`."""
    (chain,) = parts.chains.values()
    places = check_chain(chain, parts.lines).places
    lines = dict(enumerate(line.raw for line in parts.lines)) | changed
    at = {
        (place.span, place.position): index
        for index, line in enumerate(parts.lines)
        if (place := places.get(line.digest)) is not None
    }
    spans, head, before = [], b"", None
    for number, span in enumerate(chain.spans):
        if before is None or before != span.previous:
            head = bytes.fromhex(span.previous)
        before, links, previous = span.head, [], head
        for position, link in enumerate(span.links):
            index = at.get((number, position))
            if index is not None:
                lines[index] = _restated(lines[index], head)
                link = hashlib.sha256(lines[index]).hexdigest()
            links.append(link)
            head = next_hash(head, bytes.fromhex(link))
        seal = span.seal
        if seal is not None:
            seal = msgspec.structs.replace(seal, head=head.hex())
            if signer is not None:
                seal = _signed(chain.writer, seal, signer)
        spans.append(
            msgspec.structs.replace(
                span, previous=previous.hex(), links=links, head=head.hex(), seal=seal
            )
        )
    chains = {chain.writer: msgspec.structs.replace(chain, spans=spans)}
    return parts._replace(lines=[line_of(lines[index]) for index in sorted(lines)], chains=chains)


def _signed(writer, seal, signer):
    statement = statement_of(writer, seal.last, seal.at, seal.head)
    return msgspec.structs.replace(seal, key=signer.key, signature=signer.sign(statement))


def _restated(raw: bytes, head: bytes) -> bytes:
    """The line with the head that it should state."""
    entry = line_of(raw).entry
    if isinstance(entry, Start):
        return msgspec.structs.replace(entry, previous=head.hex()).line_of_json()
    if isinstance(entry, Checkpoint):
        return msgspec.structs.replace(entry, head=head.hex()).line_of_json()
    return raw


def line_of(raw: bytes) -> DisclosedLine:
    entry = read_line(raw.rstrip(b"\n"))
    assert entry is not None
    return DisclosedLine(raw, entry)
