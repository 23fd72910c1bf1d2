"""A robots.txt that an override pins, as evidence: in the log, in bundles, and replayed."""

from __future__ import annotations

import hashlib
import io

import msgspec
import pytest
from audit.decisions import audit_log_in
from audit.evidence_log import line_of
from support.guards import make_guard

from robots_guard.audit.bundle.archive import read_archive, write_archive
from robots_guard.audit.bundle.contents import Parts, parts_of
from robots_guard.audit.bundle.derivation import completeness_of
from robots_guard.audit.bundle.verification import ClaimState, verify_bundle
from robots_guard.audit.bundle.writer import all_files, write_bundle
from robots_guard.audit.read.reader import Filter, entries, pinned_texts
from robots_guard.audit.read.search import Search, pinned_document
from robots_guard.audit.record import OverridesRecord, PinnedRecord, Record
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.verdict import Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.origin import origin_of

A = origin_of("https://a.test")
OWN = Fetched(status=200, body=b"User-agent: *\nDisallow: /closed\n", tls_verified=True)
RULES = b"User-agent: *\nDisallow: /private/\n" + b"".join(
    b"Disallow: /%d-\xff\n" % number for number in range(1000)
)
DIGEST = hashlib.sha256(RULES).hexdigest()
OVERRIDES = """
[[override]]
id = "pin-1"
origin = "https://a.test"
owner = "jane"
reason = "their file is broken"
expires = 2999-12-31
robots_file = "pinned.txt"
"""


@pytest.fixture
async def log(tmp_path):
    """A log with a refusal and two passes by a pinned file, of which the site's own forbids one."""
    (tmp_path / "pinned.txt").write_bytes(RULES)
    (tmp_path / "overrides.toml").write_text(OVERRIDES)
    settings = {"agent": "mybot", "audit": "all"}
    written = audit_log_in(
        tmp_path / "log",
        audit="all",
        chain=True,
        settings=Settings(**settings).writing("cli").settings,
    )
    guard = make_guard(
        ScriptedFetcher({A.robots_url: OWN}),
        overrides=tmp_path / "overrides.toml",
        audit_log=written,
        component="cli",
    )
    await guard.policy(A)
    for target in ("/private/a", "/open", "/closed"):
        await guard.check(Question(origin=A, target=target, agent="mybot"))
    guard.close()
    return tmp_path / "log"


def decisions(log) -> list[Record]:
    return [each for each in entries(log, Filter(kind="decision")) if isinstance(each, Record)]


def bundle_of(log, *ids: str) -> bytes:
    target = io.BytesIO()
    with Search(log) as search:
        write_bundle(target, search, Filter(), documents=lambda _: None, now=4e9, ids=ids)
    return target.getvalue()


def said(data: bytes, state: ClaimState) -> str:
    return "\n".join(each.sentence for each in verify_bundle(data).claims if each.state is state)


def archive_of(parts: Parts) -> bytes:
    target = io.BytesIO()
    write_archive(target, all_files(parts, completeness_of(parts)))
    return target.getvalue()


def test_the_log_has_the_whole_text(log):
    found = list(entries(log, Filter(kind="pinned")))
    assert len(found) == 5
    assert pinned_texts(found) == {DIGEST: RULES}
    assert pinned_texts(found[1:]) == {}
    with Search(log) as search:
        assert pinned_document(search, DIGEST) == RULES
        assert pinned_document(search, "0" * 64) is None


def test_a_bundle_has_the_pinned_text_and_proves_the_verdict(log):
    refused, passed, relaxed = decisions(log)
    assert (relaxed.would, relaxed.relaxed) == ("drop", "override=pin-1")
    data = bundle_of(log, *(each.id for each in (refused, passed, relaxed)))

    assert parts_of(read_archive(data)).documents == {DIGEST: RULES}
    proven = said(data, ClaimState.PROVEN)
    assert f"override pin-1 had pinned the robots.txt {DIGEST} for https://a.test" in proven
    assert "the verdict, judged again, is the recorded one (3 times)" in proven
    assert said(data, ClaimState.CONTRADICTED) == ""
    page = read_archive(data)["index.html"].decode()
    assert "Pinned" in page


def test_a_bundle_says_that_the_text_is_missing(log):
    parts = parts_of(read_archive(bundle_of(log, decisions(log)[0].id)))
    lines = [line for line in parts.lines if not isinstance(line.entry, PinnedRecord)]
    data = archive_of(parts._replace(lines=lines, chains={}))
    assert "what the robots.txt contained that override pin-1 had pinned" in said(
        data, ClaimState.NOT_PROVEN
    )


@pytest.mark.parametrize("forgery", ["text", "override", "document"])
def test_a_forged_pin_is_found(log, forgery):
    parts = parts_of(read_archive(bundle_of(log, decisions(log)[0].id)))
    lines = []
    for line in parts.lines:
        entry = line.entry
        if forgery == "text" and isinstance(entry, PinnedRecord):
            entry = msgspec.structs.replace(entry, text=entry.text.replace("private", "open"))
        if forgery == "override" and isinstance(entry, OverridesRecord):
            text = OVERRIDES.replace("robots_file", "max_delay = 1 #")
            digest = hashlib.sha256(text.encode()).hexdigest()
            entry = msgspec.structs.replace(entry, text=text, sha256=digest)
        lines.append(line_of(entry.line_of_json()))
    documents = parts.documents
    if forgery == "document":
        documents = {DIGEST: b"User-agent: *\nDisallow: /"}
    data = archive_of(parts._replace(lines=lines, documents=documents, chains={}))

    proven = said(data, ClaimState.PROVEN)
    if forgery == "text":
        assert "had pinned the robots.txt" not in proven
    if forgery == "override":
        assert "pinned no robots.txt for https://a.test" in said(data, ClaimState.CONTRADICTED)
    if forgery == "document":
        assert "has another SHA-256" in said(data, ClaimState.CONTRADICTED)
