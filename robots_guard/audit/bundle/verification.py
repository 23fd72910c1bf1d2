"""Verification of a bundle: what it proves, what it does not prove, and what contradicts itself.

Invariant: each claim of the result was checked on the bundle alone, with the standard library
and the package's core. What needs a further library (signatures, timestamps, the page) counts as not
proven without it, and the result says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from robots_guard.audit.bundle.archive import MANIFEST, SIGNATURE, manifest_problems, read_archive
from robots_guard.audit.bundle.basis import (
    NOT_MODIFIED,
    Basis,
    BasisIndex,
    Judged,
    agrees,
    is_digest_of,
    seconds_of,
    selection_problems,
)
from robots_guard.audit.bundle.chain import ChainCheck, check_chain, covered_by
from robots_guard.audit.bundle.contents import (
    COMPLETENESS,
    OVERRIDES,
    PAGE,
    SETTINGS,
    BundleSignature,
    Completeness,
    DisclosedLine,
    Parts,
    Seal,
    decoded,
    encoded,
    parts_of,
)
from robots_guard.audit.bundle.derivation import (
    completeness_of,
    derived_files,
    lines_by_writer,
    name_of,
    overrides_text,
    stretches,
    uncovered,
)
from robots_guard.audit.bundle.trust import (
    CLOCK_SKEW,
    BundleTrust,
    TimestampCheck,
    check_timestamp,
    is_signed,
    key_name,
)
from robots_guard.audit.bundle.warc_response import BadWarc, read_response, uuid_of
from robots_guard.audit.read.reader import pinned_texts
from robots_guard.audit.read.replay import Judgement, Replayed, is_replayable, replay
from robots_guard.audit.record import (
    Fetch,
    OverridesRecord,
    Record,
    Start,
    override_fields,
)
from robots_guard.audit.signing import bundle_statement, verify_signature
from robots_guard.decisions.codec import EMPTY
from robots_guard.decisions.overrides import Overrides, parse
from robots_guard.decisions.policy import PINNED
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import MalformedURL, MissingExtra, NotGoverned, SettingsError
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.text import counted

MOST_SHOWN = 20  # sentences of one state about single records
MOST_GAPS = 3  # that are named, of a period
WARC_CLOCK = 0.002  # seconds between a fetch and the date of its WARC record: both are rounded
_TERMS = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))  # of no importance


NO_TRUST = BundleTrust()


#: Follows what is said of records that no signature covers, though their writer signs.
NOT_YET = (
    "; unless their writer was killed, its next checkpoint (within five minutes) signs them:"
    " make the bundle again then"
)
#: The beginning of the findings about times without lines.
NOTHING_COVERED = "what the crawler did"
ALL_SELECTED = "that the bundle has each record of its selection"
UNSIGNED = (
    f"{ALL_SELECTED}, and that this was the selection: no signature covers the bundle. Make it with"
    " --audit-signing-key"
)
_KEY_SETTING = "audit_signing_key"


class ClaimState(StrEnum):
    """The state of a claim."""

    PROVEN = "proven"
    NOT_PROVEN = "not proven"
    CONTRADICTED = "contradicted"


class Claim(NamedTuple):
    """A sentence about a bundle, and its state."""

    state: ClaimState
    sentence: str


class Verification(NamedTuple):
    """The result of a verification, and the decisions that were judged again."""

    claims: list[Claim]
    completeness: Completeness
    replayed: list[tuple[Judgement, Replayed]]

    @property
    def is_contradicted(self) -> bool:
        """Whether anything contradicts the bundle."""
        return any(each.state is ClaimState.CONTRADICTED for each in self.claims)


class _Findings:
    """Collects claims. Those that are the same for many records are counted."""

    def __init__(self) -> None:
        self._found: dict[Claim, int] = {}

    def add(self, state: ClaimState, sentence: str) -> None:
        claim = Claim(state, sentence)
        self._found[claim] = self._found.get(claim, 0) + 1

    def contradict(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self.add(ClaimState.CONTRADICTED, sentence)

    def claims(self) -> list[Claim]:
        """The claims by their state; of each state, only so many about single records."""
        found = []
        for state in ClaimState:
            mine = [each for each in self._found.items() if each[0].state is state]
            found += [_counted(each, count) for each, count in mine[:MOST_SHOWN]]
            if len(mine) > MOST_SHOWN:
                found.append(Claim(state, f"and {len(mine) - MOST_SHOWN} further claims"))
        return found


def _counted(claim: Claim, count: int) -> Claim:
    if count == 1:
        return claim
    return claim._replace(sentence=f"{claim.sentence} ({count} times)")


def verify_bundle(
    data: bytes, trust: BundleTrust = NO_TRUST, now: float | None = None
) -> Verification:
    """Verify a bundle. `now` is the present time in seconds since 1970. Raises NoBundle, and
    MissingExtra if there are keys and signatures cannot be checked."""
    files = read_archive(data)
    parts = parts_of(files)
    findings = _Findings()
    _check_manifest(files, findings)
    _check_order(parts, findings)
    completeness = completeness_of(parts)
    _check_derived(files, parts, completeness, findings)
    _check_chains(parts, trust, findings)
    _check_period(completeness, trust, findings)
    _check_signature(files, parts, trust, findings)
    _check_documents(parts, findings)
    index = BasisIndex(line.entry for line in parts.lines)
    findings.contradict(selection_problems(parts, index))
    replayed = []
    for record in index.decisions.values():
        basis = index.basis_of(record)
        _check_basis(record, basis, parts, findings)
        result = _replay(record, basis, parts, now, findings)
        if result is not None:
            replayed.append(result)
    return Verification(findings.claims(), completeness, replayed)


# -- the files -------------------------------------------------------------------------------------


def _check_manifest(files: dict[str, bytes], findings: _Findings) -> None:
    problems = manifest_problems(files)
    findings.contradict(problems)
    if not problems:
        findings.add(
            ClaimState.PROVEN,
            f"the {len(files.keys() - {MANIFEST, SIGNATURE})} files are those that {MANIFEST} lists",
        )


def _check_order(parts: Parts, findings: _Findings) -> None:
    keys = [(line.entry.writer, line.entry.seq) for line in parts.lines]
    if any(later <= earlier for earlier, later in pairwise(keys)):
        findings.add(ClaimState.CONTRADICTED, "the records are not in order, or one is there twice")
    ids = Counter(
        line.entry.id for line in parts.lines if isinstance(line.entry, Judged) and line.entry.id
    )
    findings.contradict(f"two records have the id {each!r}" for each, n in ids.items() if n > 1)
    settings: dict[str, Start] = {}
    for line in parts.lines:
        start = line.entry
        if isinstance(start, Start):
            first = settings.setdefault(start.writer, start)
            same = ("version", "host", "pid", "settings", "chain")
            if any(getattr(first, name) != getattr(start, name) for name in same):
                findings.add(
                    ClaimState.CONTRADICTED, f"{start.writer} has two different start records"
                )
    for line in parts.lines:
        entry = line.entry
        known = settings.get(entry.writer)
        if known and (entry.component, entry.job) != (known.component, known.job):
            findings.add(
                ClaimState.CONTRADICTED,
                f"{name_of(entry)} has another component or job than its writer",
            )


def _check_derived(
    files: dict[str, bytes], parts: Parts, completeness: Completeness, findings: _Findings
) -> None:
    expected = derived_files(parts) | {COMPLETENESS: encoded(completeness)}
    stated = {name for name in files if name.startswith(OVERRIDES) or name == SETTINGS}
    for name in sorted(expected.keys() | stated):
        if name not in expected or files.get(name) != expected[name]:
            findings.add(ClaimState.CONTRADICTED, f"{name} is not what the records say")
    _check_page(files, parts, completeness, findings)


def _check_page(
    files: dict[str, bytes], parts: Parts, completeness: Completeness, findings: _Findings
) -> None:
    if PAGE not in files:
        findings.add(ClaimState.CONTRADICTED, f"{PAGE} is missing")
        return
    try:
        from robots_guard.audit.bundle.page import page_of
    except MissingExtra as error:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"that {PAGE} says what the other files say, and no more: {error}",
        )
        return
    if page_of(parts, completeness) == files[PAGE]:
        findings.add(ClaimState.PROVEN, f"{PAGE} says what the other files say, and no more")
    else:
        findings.add(
            ClaimState.CONTRADICTED,
            f"{PAGE} is not the page that this version of robots_guard writes for these files",
        )


# -- who wrote it, and when ------------------------------------------------------------------------


def _check_chains(parts: Parts, trust: BundleTrust, findings: _Findings) -> None:
    by_writer = lines_by_writer(parts.lines)
    for name in parts.chains.keys() - by_writer.keys():
        findings.add(ClaimState.CONTRADICTED, f"{name} has a chain, but no records")
    checks: dict[str, ChainCheck] = {}
    stamps = {
        name: check_timestamp(name, content, trust.roots) for name, content in parts.anchors.items()
    }
    stamped = [head for stamp in stamps.values() for head in stamp.heads]
    for writer, lines in by_writer.items():
        if writer not in parts.chains:
            _report_no_chain(writer, lines, trust, findings)
            continue
        heads = {each.head for each in stamped if each.writer == writer}
        checks[writer] = check_chain(parts.chains[writer], lines, heads)
        findings.contradict(checks[writer].problems)
        if not checks[writer].problems:
            findings.add(
                ClaimState.PROVEN,
                f"the {len(lines)} records of {writer} stand in its chain as they are here",
            )
        _check_seals(parts, writer, checks[writer], trust, findings)
    _check_anchors(parts, stamps, checks, findings)


def _report_no_chain(
    writer: str, lines: list[DisclosedLine], trust: BundleTrust, findings: _Findings
) -> None:
    starts = [line.entry for line in lines if isinstance(line.entry, Start)]
    if not starts:
        # Each file of the log begins with a start record, and a bundle contains it for each of its
        # records. Without it, a record could have been taken out of the chain of another writer.
        findings.add(
            ClaimState.CONTRADICTED,
            f"{writer} has neither a chain nor a start record that says that there is none",
        )
    elif any(start.chain for start in starts):
        findings.add(
            ClaimState.CONTRADICTED,
            f"{writer} has a chain, as its start record says, and it is missing",
        )
    elif trust.keys:
        findings.add(ClaimState.CONTRADICTED, f"no given key has signed the records of {writer}")
    else:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"who wrote the {len(lines)} records of {writer}, and when: the record is consistent, but"
            " nothing ties it to a time or a writer (its log has no chain)",
        )


def _check_seals(
    parts: Parts,
    writer: str,
    check: ChainCheck,
    trust: BundleTrust,
    findings: _Findings,
) -> None:
    """Check the signatures of the parts of a chain that have disclosed lines."""
    inside = Counter(place.span for place in check.places.values())
    hint = NOT_YET * _signs(parts, writer)
    for number, span in enumerate(parts.chains[writer].spans):
        if span.seal is None:
            _report_unsigned(writer, inside[number], hint, trust, findings)
        else:
            _check_seal(writer, span.seal, inside[number], trust, findings)


def _signs(parts: Parts, writer: str) -> bool:
    """Whether a writer signs its checkpoints, by its start records."""
    mine = (line.entry for line in parts.lines if line.entry.writer == writer)
    return any(isinstance(each, Start) and each.settings.get(_KEY_SETTING) for each in mine)


def _report_unsigned(
    writer: str, inside: int, hint: str, trust: BundleTrust, findings: _Findings
) -> None:
    if trust.keys and inside:
        findings.add(
            ClaimState.CONTRADICTED,
            f"no signature by a given key covers {counted(inside, 'record')} of {writer}{hint}",
        )
    elif inside:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"who wrote {counted(inside, 'record')} of {writer}: no signature covers them, and anyone can"
            f" compute a chain{hint}",
        )


def _check_seal(
    writer: str, seal: Seal, inside: int, trust: BundleTrust, findings: _Findings
) -> None:
    what = f"the chain of {writer} up to {seal.last} was signed at {seal.at}"
    key = key_name(seal.key)
    try:
        is_valid = is_signed(writer, seal)
    except MissingExtra as error:
        if trust.keys:
            raise  # what cannot be checked is not contradicted
        findings.add(
            ClaimState.NOT_PROVEN,
            f"{what} with the key {key}: signatures are not checked: {error}",
        )
        return
    if not is_valid:
        findings.add(
            ClaimState.CONTRADICTED, f"the signature of {writer} at {seal.last} is not valid"
        )
    elif trust.keys and seal.key not in trust.keys:
        findings.add(
            ClaimState.CONTRADICTED, f"{what} with the key {key}, which is not among the given keys"
        )
    elif trust.keys:
        findings.add(ClaimState.PROVEN, f"{what} with the given key {key} ({inside} records)")
    else:
        findings.add(ClaimState.PROVEN, f"{what} by the holder of the key {key} ({inside} records)")
        findings.add(
            ClaimState.NOT_PROVEN,
            f"whose key {key} is: get the operator's public key from elsewhere, and give it with --keys",
        )


def _check_anchors(
    parts: Parts,
    stamps: dict[str, TimestampCheck],
    checks: dict[str, ChainCheck],
    findings: _Findings,
) -> None:
    entries = {line.digest: line.entry for line in parts.lines}
    stamped: dict[str, set[str]] = {writer: set() for writer in checks}
    for name, found in stamps.items():
        mine = [each for each in found.heads if each.writer in checks]
        known = [each for each in mine if each.head in checks[each.writer].heads]
        reached: dict[str, int] = {}
        if found.problem:
            findings.add(ClaimState.CONTRADICTED, f"{name}: {found.problem}")
        elif not known:
            findings.add(
                ClaimState.CONTRADICTED, f"{name} covers none of the chains in this bundle"
            )
        elif found.unchecked:
            findings.add(
                ClaimState.NOT_PROVEN, f"{name}: timestamps are not checked: {found.unchecked}"
            )
        else:
            for each in known:
                check = checks[each.writer]
                covered = covered_by(parts.chains[each.writer], check, check.heads[each.head])
                stamped[each.writer] |= covered
                latest = max((seconds_of(entries[digest].at) for digest in covered), default=0.0)
                reached[each.writer] = max((entries[digest].seq for digest in covered), default=0)
                if latest > seconds_of(found.at) + CLOCK_SKEW:
                    findings.add(
                        ClaimState.CONTRADICTED, f"{name} is older than a record that it covers"
                    )
            _report_timestamp(name, found, reached, findings)
    for writer, check in checks.items():
        without = len(check.places) - len(stamped[writer])
        if without:
            findings.add(
                ClaimState.NOT_PROVEN,
                f"when {without} records of {writer} existed: no timestamp of an authority covers"
                " them, and the times that they state are those of the writer's clock",
            )


def _report_timestamp(
    name: str, found: TimestampCheck, reached: dict[str, int], findings: _Findings
) -> None:
    """Report a timestamp, and the last record here of each writer that it covers. The numbers that
    its heads state prove nothing: anyone can request a timestamp of any number."""
    writers = ", ".join(f"{writer} up to {last}" for writer, last in reached.items())
    what = f"the chains of {writers} existed at {found.at} ({name})"
    if found.is_trusted:
        findings.add(
            ClaimState.PROVEN, f"{what}, as an authority of the given certificates confirms"
        )
    else:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"{what}: its timestamp says so, but the authority is not verified (--tsa-roots FILE)",
        )


# -- what was selected ----------------------------------------------------------------------------


def _check_period(completeness: Completeness, trust: BundleTrust, findings: _Findings) -> None:
    """Check which parts of the period are covered by lines; with keys, by signed lines."""
    selection = completeness.selection
    if not selection.has_period:
        return
    covered = stretches(selection, completeness.runs, is_signed=bool(trust.keys))
    gaps = list(uncovered(selection, covered))
    if not covered:
        state, signed = ClaimState.NOT_PROVEN, ""
        named = "from {} to {}".format(*selection.period)
        if trust.keys:
            state, signed = ClaimState.CONTRADICTED, " that is signed"
        findings.add(
            state,
            f"{NOTHING_COVERED} {named}: no writer has a run of lines{signed} in it",
        )
        return
    if gaps:
        named = ", ".join(f"from {since} to {until}" for since, until in gaps[:MOST_GAPS])
        more = f", and at {len(gaps) - MOST_GAPS} more times" if len(gaps) > MOST_GAPS else ""
        findings.add(
            ClaimState.NOT_PROVEN,
            f"{NOTHING_COVERED} {named}{more}: no line of any writer reaches there",
        )
    for run in completeness.runs:
        if run.missing:
            findings.add(
                ClaimState.NOT_PROVEN,
                f"what {counted(run.missing, 'number')} of {run.writer} without a line stood for:"
                " records that could not be written",
            )


def _check_signature(
    files: dict[str, bytes], parts: Parts, trust: BundleTrust, findings: _Findings
) -> None:
    """Check the signature on the statement that the bundle has everything its filter selects. A
    bundle selected by the ids of decisions needs none: it either has them or not."""
    content = files.get(SIGNATURE)
    if content is None:
        if parts.selection.where:
            state = ClaimState.CONTRADICTED if trust.keys else ClaimState.NOT_PROVEN
            findings.add(state, UNSIGNED)
        return
    signed = decoded(content, BundleSignature, SIGNATURE)
    key = key_name(signed.key)
    try:
        is_valid = verify_signature(
            signed.key, signed.signature, bundle_statement(files.get(MANIFEST, b""))
        )
    except MissingExtra as error:
        if trust.keys:
            raise
        findings.add(
            ClaimState.NOT_PROVEN, f"{ALL_SELECTED}: the signature is not checked: {error}"
        )
        return
    if not is_valid:
        findings.add(ClaimState.CONTRADICTED, "the signature of the bundle is not valid")
    elif trust.keys and signed.key not in trust.keys:
        findings.add(
            ClaimState.CONTRADICTED,
            f"the bundle is signed with the key {key}, which is not among the given keys",
        )
    elif trust.keys:
        findings.add(
            ClaimState.PROVEN,
            f"the holder of the given key {key} states by a signature {ALL_SELECTED}",
        )
    else:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"{ALL_SELECTED}: the holder of the key {key} states it by a signature, and whose key"
            " it is must come from elsewhere (--keys)",
        )


# -- what was judged -------------------------------------------------------------------------------


def _check_documents(parts: Parts, findings: _Findings) -> None:
    records = [line.entry for line in parts.lines]
    named = {
        entry.sha256 for entry in records if isinstance(entry, Record | Fetch) and entry.sha256
    }
    ids = {
        uuid_of(entry.warc_id) for entry in records if isinstance(entry, Fetch) and entry.warc_id
    }
    for name, content in parts.documents.items():
        if not is_digest_of(name, content):
            findings.add(ClaimState.CONTRADICTED, f"the document {name} has another SHA-256")
        elif name not in named:
            findings.add(ClaimState.CONTRADICTED, f"no record names the document {name}")
    for identity in parts.warc.keys() - ids:
        findings.add(ClaimState.CONTRADICTED, f"no record names the response {identity}")
    for entry in records:
        if isinstance(entry, Fetch) and entry.warc_id:
            _check_response(entry, parts, findings)


def _check_response(fetch: Fetch, parts: Parts, findings: _Findings) -> None:
    """Check the WARC record of a fetch."""
    data = parts.warc.get(uuid_of(fetch.warc_id or "") or "")
    if data is None:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"what {name_of(fetch)} received: its WARC record is not in the bundle",
        )
        return
    problem = _response_problem(fetch, data, parts)
    if problem:
        findings.add(ClaimState.CONTRADICTED, f"the response to {name_of(fetch)} {problem}")
    else:
        findings.add(
            ClaimState.PROVEN,
            f"what {fetch.url} answered at {fetch.at}, as the writer received it (WARC, {name_of(fetch)})",
        )


def _response_problem(fetch: Fetch, data: bytes, parts: Parts) -> str | None:
    if fetch.warc_sha256 is None or not is_digest_of(fetch.warc_sha256, data):
        return "has another SHA-256 than was recorded"
    try:
        found = read_response(data)
    except BadWarc as error:
        return f"is not as robots_guard writes it: {error}"
    if found.identity != fetch.warc_id:
        return "has another WARC-Record-ID"
    if found.url != fetch.url:
        return "is that of another URL"
    if abs(seconds_of(found.date) - seconds_of(fetch.at)) > WARC_CLOCK:
        return "is of another time"
    if found.status != fetch.status or len(found.body) != fetch.size:
        return "has another status or size"
    if fetch.sha256 is not None and not is_digest_of(fetch.sha256, found.body):
        return "has another body"
    document = parts.documents.get(fetch.sha256 or "")
    if document is not None and document != found.body:
        return "is not the document"
    return None


def _check_basis(record: Judged, basis: Basis, parts: Parts, findings: _Findings) -> None:
    if basis.start is None:
        findings.add(
            ClaimState.NOT_PROVEN, f"the settings of {record.writer}: its start record is not here"
        )
    if record.override is not None:
        _check_override(record, basis.overrides, findings)
    if isinstance(record, Record) and record.via == PINNED:
        _check_pinned(record, basis, findings)
    elif isinstance(record, Record) and record.fetched_at is not None:
        _check_fetch(record, basis, parts, findings)


def _check_pinned(record: Record, basis: Basis, findings: _Findings) -> None:
    """Check that a document is the one that the override had pinned for the origin."""
    problem = _pin_problem(record, basis)
    if problem:
        findings.add(ClaimState.CONTRADICTED, f"{record.id}: {problem}")
    elif record.sha256 in pinned_texts(basis.pinned):
        findings.add(
            ClaimState.PROVEN,
            f"override {record.override} had pinned the robots.txt {record.sha256} for"
            f" {record.origin}: what it contained is recorded ({name_of(basis.pinned[0])})",
        )
    else:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"{record.id}: what the robots.txt contained that override {record.override} had pinned",
        )


def _pin_problem(record: Record, basis: Basis) -> str | None:
    """Why the override of a decision cannot have pinned a document; None if it can."""
    if record.override is None:
        return "no override pinned the robots.txt by which was decided"
    text = overrides_text(basis.overrides) if basis.overrides else None
    if text is None:
        return None
    try:
        found = _overrides_in(text)
        applied = found.terms(origin_of(record.origin), _TERMS, seconds_of(record.at)).override
    except (SettingsError, MalformedURL, NotGoverned, RecursionError):
        return None  # reported elsewhere
    pins = [each.exemption.id for each in found.entries if each.robots_file is not None]
    if applied is None or applied.id != record.override or record.override not in pins:
        return f"override {record.override!r} pinned no robots.txt for {record.origin}"
    return None


def _check_override(record: Judged, loaded: OverridesRecord | None, findings: _Findings) -> None:
    """Check the override of a decision against the overrides that its writer had read."""
    text = overrides_text(loaded) if loaded is not None else None
    if loaded is None or text is None:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"override {record.override}: the overrides in force are not recorded",
        )
        return
    if not is_digest_of(loaded.sha256, text.encode("utf-8", "backslashreplace")):
        findings.add(
            ClaimState.CONTRADICTED, f"{name_of(loaded)}: the overrides have another SHA-256"
        )
        return
    problem = _override_problem(record, text)
    if problem:
        findings.add(ClaimState.CONTRADICTED, f"{record.id}: {problem}")
    else:
        findings.add(
            ClaimState.PROVEN,
            f"override {record.override} of {record.override_owner} was in force until"
            f" {record.override_expires}, as {name_of(loaded)} has it",
        )


@lru_cache(maxsize=8)  # most decisions of a bundle have the same overrides
def _overrides_in(text: str) -> Overrides:
    """The overrides in a text. Raises SettingsError."""
    return parse(text, _TERMS)


def _override_problem(record: Judged, text: str) -> str | None:
    try:
        entries = _overrides_in(text).entries
    except (SettingsError, RecursionError) as error:
        return f"the overrides in force cannot be read: {error}"
    found = [each.exemption for each in entries if each.exemption.id == record.override]
    if not found:
        return f"there was no override {record.override!r} in force"
    stated = override_fields(found[0])
    differing = [name for name, value in stated.items() if getattr(record, name) != value]
    if differing:
        return f"the override in force had another {', '.join(differing)}"
    if seconds_of(record.override_expires) <= seconds_of(record.at):
        return f"override {record.override!r} had expired"
    return None


def _check_fetch(record: Record, basis: Basis, parts: Parts, findings: _Findings) -> None:
    """Check that a document is the one that was fetched from the origin at the stated time."""
    if basis.fetch is None:
        state = ClaimState.NOT_PROVEN if not basis.hops else ClaimState.CONTRADICTED
        findings.add(
            state,
            f"{record.id}: that its robots.txt was fetched from {record.origin} at {record.fetched_at}:"
            " no record of such a fetch is here",
        )
        return
    problem = _fetch_problem(record, basis)
    if problem:
        findings.add(ClaimState.CONTRADICTED, f"{record.id}: {problem}")
        return
    findings.add(
        ClaimState.PROVEN,
        f"the robots.txt of {record.origin} was fetched at {record.fetched_at}"
        f" ({name_of(basis.fetch)}, status {basis.fetch.status})",
    )
    if not {each.url for each in basis.hops}.issuperset(record.redirects):
        # A writer with another audit_query may have recorded them.
        findings.add(
            ClaimState.NOT_PROVEN, f"{record.id}: that the redirects are those of the fetch"
        )
    delivered = basis.delivered
    if delivered is None:
        findings.add(ClaimState.NOT_PROVEN, f"when the document {record.sha256} was first received")
    elif record.sha256 not in (EMPTY, delivered.sha256):
        _check_cut_document(record, delivered, parts, findings)


def _fetch_problem(record: Record, basis: Basis) -> str | None:
    fetch, delivered = basis.fetch, basis.delivered
    assert fetch is not None
    if fetch.via != record.via:
        return f"it was fetched by {fetch.via!r}, and not by {record.via!r}"
    if (fetch.tls_verified or False) < (record.tls_verified or False):
        return "its robots.txt was fetched without verified TLS"
    age = seconds_of(record.at) - seconds_of(record.fetched_at)
    if abs(age - (record.age or 0)) > WARC_CLOCK:
        return "the stated age is not that of the document"
    if not record.redirects and fetch.url != f"{record.origin}/robots.txt":
        return f"it was fetched from {fetch.url}"
    if delivered is not None and fetch.status == NOT_MODIFIED and delivered.status != record.status:
        return f"the document came with status {delivered.status}"
    return None


def _check_cut_document(
    record: Record, delivered: Fetch, parts: Parts, findings: _Findings
) -> None:
    """Check a document that is only the beginning of what was received."""
    data = parts.warc.get(uuid_of(delivered.warc_id or "") or "")
    document = parts.documents.get(record.sha256 or "")
    if data is None or document is None:
        findings.add(
            ClaimState.NOT_PROVEN,
            f"{record.id}: that its document is the beginning of what {name_of(delivered)} received",
        )
        return
    try:
        is_beginning = agrees(document, read_response(data).body, truncated=delivered.truncated)
    except BadWarc:
        return  # already reported
    if not is_beginning:
        findings.add(ClaimState.CONTRADICTED, f"{record.id}: its document is not the one received")


def _replay(
    record: Judged, basis: Basis, parts: Parts, now: float | None, findings: _Findings
) -> tuple[Judgement, Replayed] | None:
    """Judge a decision again."""
    if not is_replayable(record):
        findings.add(
            ClaimState.NOT_PROVEN,
            f"the verdict {record.reason}: it does not depend on a robots.txt",
        )
        return None
    document = None
    if isinstance(record, Record) and record.sha256 is not None:
        document = parts.documents.get(record.sha256)
        if document is None and record.sha256 != EMPTY:
            findings.add(
                ClaimState.NOT_PROVEN, f"the verdict of {record.id}: its document is not here"
            )
            return None
    judgement = Judgement(
        record=record,
        settings=basis.start.settings if basis.start else {},
        document=document,
        overrides=overrides_text(basis.overrides) if basis.overrides else None,
    )
    try:
        result = replay(judgement, now)
    except SettingsError as error:
        findings.add(ClaimState.CONTRADICTED, f"the verdict of {record.id}: {error}")
        return None
    findings.contradict(f"the verdict of {record.id}: {each}" for each in result.differences)
    if not result.differences:
        findings.add(ClaimState.PROVEN, "the verdict, judged again, is the recorded one")
    for caveat in result.caveats:
        findings.add(ClaimState.NOT_PROVEN, f"a part of the verdict: {caveat}")
    return judgement, result
