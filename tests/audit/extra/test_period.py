"""Bundles of a period: which parts of it the log reaches, and that nothing that was selected is left out."""

from __future__ import annotations

import io
import itertools
import os
import re

import msgspec
import pytest
from audit.decisions import AT, audit_log_in, decision
from audit.forgeries import (
    archive_of,
    contradictions,
    forge_copies,
    is_refused,
    with_manifest,
)

from robots_guard.audit.bundle.archive import SIGNATURE, read_archive
from robots_guard.audit.bundle.contents import (
    BundleSignature,
    encoded,
    parts_of,
)
from robots_guard.audit.bundle.derivation import completeness_of
from robots_guard.audit.bundle.trust import BundleTrust
from robots_guard.audit.bundle.verification import NOTHING_COVERED, ClaimState, verify_bundle
from robots_guard.audit.bundle.writer import all_files, search_for, write_bundle
from robots_guard.audit.read import index
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search
from robots_guard.audit.record import moment
from robots_guard.audit.signing import new_signer
from robots_guard.audit.write.maintenance import compress
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.errors import SettingsError

HOUR = 3600.0
SIGNER, OTHER = new_signer(), new_signer()
TRUST = BundleTrust([SIGNER.key])
#: A PASS that depends on no document.
OPEN = Verdict(action=Action.PASS, reason=Reason.ROBOTS_TXT)
NUMBERS = itertools.count()


def at(hours):
    """A time so many hours after AT, as records have it."""
    return moment(AT + hours * HOUR)


def write(directory, *hours, url="https://a.test/robots.txt", **options):
    """A writer that records a PASS at each of these hours."""
    clock = [AT + hours[0] * HOUR]
    log = audit_log_in(
        directory,
        **{
            "chain": True,
            "signer": SIGNER,
            "audit": "all",
            "monotonic": lambda: clock[0],
            **options,
        },
    )
    for hour in hours:
        clock[0] = AT + hour * HOUR
        made = decision(url, OPEN, at=clock[0])
        log.write(msgspec.structs.replace(made, id=f"p-{next(NUMBERS)}"))
    log.close()


def bundle(directory, *, now=100.0, signer=SIGNER, **where):
    """A bundle, made `now` hours after AT."""
    wanted, target = Filter(**where), io.BytesIO()
    with search_for(directory, wanted) as search:
        write_bundle(target, search, wanted, documents={}.get, now=AT + now * HOUR, signer=signer)
    return target.getvalue()


def uncovered(data, trust=TRUST):
    """The times of which it is said that nothing is proven of them."""
    said = [
        each.sentence
        for each in verify_bundle(data, trust).claims
        if each.sentence.startswith(NOTHING_COVERED) and each.state is ClaimState.NOT_PROVEN
    ]
    return re.findall(r"from (\S+Z to \S+Z)", "".join(said))


def stretch(since, until):
    return f"{at(since)} to {at(until)}"


# -- what the log reaches --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "period", [(-48, -24), (200, 300)], ids=["before the log", "after the log"]
)
def test_a_log_proves_nothing_of_a_time_in_which_it_was_not_written(tmp_path, period):
    write(tmp_path, 0, 1, 2)
    data = bundle(tmp_path, now=300, since=at(period[0]), until=at(period[1]))

    (problem,) = contradictions(verify_bundle(data, TRUST))
    assert problem.startswith(f"{NOTHING_COVERED} from {stretch(*period)}: no writer has a run")
    assert contradictions(verify_bundle(data)) == []
    assert uncovered(data, BundleTrust()) == [stretch(*period)]


@pytest.mark.parametrize(
    ("period", "gaps"),
    [
        ((1, 2), []),
        ((-5, 2), [(-5, 0)]),
        ((1, 30), [(2, 30)]),
        ((-5, 30), [(-5, 0), (2, 30)]),
        ((0, 200), [(2, 100)]),  # the bundle was made at 100
    ],
)
def test_the_parts_of_a_period_that_no_line_reaches_are_not_proven(tmp_path, period, gaps):
    write(tmp_path, 0, 0.5, 1, 1.5, 2)
    data = bundle(tmp_path, since=at(period[0]), until=at(period[1]))

    assert contradictions(verify_bundle(data, TRUST)) == []
    assert uncovered(data) == [stretch(*gap) for gap in gaps]


def test_a_writer_of_one_moment_is_one_in_the_period(tmp_path):
    write(tmp_path, 0)
    data = bundle(tmp_path, since=at(0), until=at(2))

    assert contradictions(verify_bundle(data, TRUST)) == []
    assert uncovered(data) == [stretch(0, 2)]


@pytest.mark.parametrize("value", ["", "x", "9999", None, at(50), "2027-01-15T08:00:00.000Z\n"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_no_period_that_a_forger_states_is_a_crash(signed, name, value):
    parts = parts_of(read_archive(signed))
    where = {key: each for key, each in parts.selection.where.items() if key != name}
    where |= {} if value is None else {name: value}
    _assert_refused(
        signed, parts._replace(selection=msgspec.structs.replace(parts.selection, where=where))
    )


@pytest.mark.parametrize("kept", [lambda _: None, compress])
def test_a_writer_that_was_idle_covers_a_period_without_lines(tmp_path, kept):
    """Its next number shows that it wrote nothing in between."""
    write(tmp_path, 0, 10)
    kept(tmp_path)
    data = bundle(tmp_path, since=at(3), until=at(4))
    result = verify_bundle(data, TRUST)

    assert contradictions(result) == []
    assert uncovered(data) == []
    assert [run.disclosed < run.lines for run in result.completeness.runs] == [True]


def test_times_between_two_writers_are_not_proven(tmp_path):
    write(tmp_path, 0, 1)
    write(tmp_path, 5, 6)
    write(tmp_path, 5.5, 7)
    data = bundle(tmp_path, since=at(0.5), until=at(7))

    assert uncovered(data) == [stretch(1, 5)]


def test_a_run_without_a_signature_covers_nothing_for_a_reader_with_keys(tmp_path):
    write(tmp_path, 0, 1, 2, signer=None)
    data = bundle(tmp_path, since=at(0), until=at(2))

    assert contradictions(verify_bundle(data)) == []
    assert any(
        each.startswith(NOTHING_COVERED) for each in contradictions(verify_bundle(data, TRUST))
    )


# -- what was selected -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("log")
    write(directory, 0, 1, 2, 3)
    write(directory, 1, 2, url="https://b.test/robots.txt")
    return bundle(directory, since=at(0), until=at(3), origin="https://a.test")


def test_the_maker_of_a_bundle_states_that_nothing_is_left_out(signed):
    said = [each.sentence for each in verify_bundle(signed, TRUST).claims if each.state == "proven"]

    assert any("that the bundle has each record of its selection" in each for each in said)
    assert contradictions(verify_bundle(signed, TRUST)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("since", at(-700)),
        ("since", at(1)),
        ("until", at(2)),
        ("until", at(90)),
        ("origin", "https://c.test"),
        ("kind", "fetch"),
        ("agent", "otherbot"),
    ],
)
def test_another_selection_does_not_verify(signed, name, value):
    parts = parts_of(read_archive(signed))
    where = parts.selection.where | {name: value}
    other = parts._replace(selection=msgspec.structs.replace(parts.selection, where=where))

    _assert_refused(signed, other)


def test_without_a_record_that_was_selected_it_does_not_verify(signed):
    """Its digest stays in the chain, so that only the signature of the bundle shows it."""
    parts = parts_of(read_archive(signed))
    lines = [line for line in parts.lines if getattr(line.entry, "action", "") != "pass"]
    assert len(lines) < len(parts.lines)
    other = parts._replace(lines=lines)

    _assert_refused(signed, other)
    unsigned = verify_bundle(archive_of(all_files(other, completeness_of(other))))
    assert any(
        each.state is ClaimState.NOT_PROVEN and "no signature covers the bundle" in each.sentence
        for each in unsigned.claims
    )


def test_without_one_of_its_writers_it_does_not_verify(signed):
    parts = parts_of(read_archive(signed))
    name = next(iter(parts.chains))
    lines = [line for line in parts.lines if line.entry.writer != name]
    chains = {key: chain for key, chain in parts.chains.items() if key != name}

    _assert_refused(signed, parts._replace(lines=lines, chains=chains))


def _assert_refused(signed, other):
    """Check that a bundle of these parts is refused: without a signature, with the old one, and with
    one by another key."""
    old = read_archive(signed)[SIGNATURE]
    files = all_files(other, completeness_of(other))
    assert is_refused(files, TRUST)
    assert is_refused(files | {SIGNATURE: old}, TRUST)
    assert is_refused(files | {SIGNATURE: old})
    assert is_refused(all_files(other, completeness_of(other), OTHER), TRUST)
    assert not is_refused(all_files(other, completeness_of(other), SIGNER), TRUST) or (
        other.selection.where != parts_of(read_archive(signed)).selection.where
    )


@pytest.mark.parametrize("field", ["key", "signature"])
def test_no_field_of_the_signature_can_be_forged(signed, field):
    files = read_archive(signed)
    value = msgspec.json.decode(files[SIGNATURE])
    for other in (OTHER.key, "", "x", value["signature"] if field == "key" else value["key"]):
        forged = encoded(BundleSignature(**value | {field: other}))
        assert is_refused(files | {SIGNATURE: forged}, TRUST)
        assert is_refused(with_manifest(files | {SIGNATURE: forged}))


def test_the_signature_of_a_checkpoint_is_none_of_a_bundle(signed):
    files = read_archive(signed)
    (*_, seal) = (
        span.seal for chain in parts_of(files).chains.values() for span in chain.spans if span.seal
    )
    forged = encoded(BundleSignature(key=seal.key, signature=seal.signature))

    assert is_refused(files | {SIGNATURE: forged})


def test_decisions_that_were_chosen_by_id_need_no_signature(tmp_path):
    """Nothing is said of others."""
    write(tmp_path, 0, 1)
    target = io.BytesIO()
    with Search(tmp_path, Filter()) as search:
        identity = next(search.records()).id
        write_bundle(target, search, documents={}.get, now=AT, ids=[identity])

    assert contradictions(verify_bundle(target.getvalue(), TRUST)) == []


def test_a_signed_selection_is_that_of_the_lines_and_not_of_their_index(tmp_path, monkeypatch):
    """With write access to the log, one can leave a PASS out of the index and change no line."""
    monkeypatch.setattr(index, "WORTHWHILE", 1)
    write(tmp_path, 1, 2, 3)
    expected = bundle(tmp_path, since=at(1), until=at(3))
    with Search(tmp_path):
        pass
    forge_copies(tmp_path, "SELECT * FROM {} WHERE kind <> 'decision'")
    with Search(tmp_path) as search:
        assert [*search.rows("SELECT * FROM records WHERE kind = 'decision'")] == []

    assert bundle(tmp_path, since=at(1), until=at(3)) == expected
    assert b'"decision"' in read_archive(expected)["records.jsonl"]


def test_a_file_that_is_dated_otherwise_leaves_nothing_out(tmp_path):
    """A query for a period leaves files of other days unread, by their names."""
    write(tmp_path, 1, 2, 3, rotate_bytes=700)
    of_pass = next(
        path for path in sorted(tmp_path.iterdir()) if b'"decision"' in path.read_bytes()
    )
    hidden = tmp_path / f"20200101{of_pass.name[8:]}"
    of_pass.rename(hidden)
    os.utime(hidden, (0, 0))

    with pytest.raises(SettingsError, match=r"20200101.* has lines of the period"):
        bundle(tmp_path, since=at(1), until=at(4))
    whole = bundle(tmp_path, since="2020-01-01T00:00:00.000Z", until=at(4))
    assert read_archive(whole)["records.jsonl"].count(b'"decision"') == 3
