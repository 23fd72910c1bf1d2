"""What a bundle costs to make and to check: by its length, whatever its maker put into it."""

from __future__ import annotations

import io
import itertools
import tracemalloc

import msgspec
import pytest
from audit.decisions import AT, audit_log_in, decision
from audit.forgeries import archive_of, is_archive_refused, with_manifest
from support.cost import LINEAR, growth

from robots_guard.audit.bundle.archive import MANIFEST, read_archive
from robots_guard.audit.bundle.contents import CHAIN, RECORDS
from robots_guard.audit.bundle.verification import verify_bundle
from robots_guard.audit.bundle.writer import search_for, write_bundle
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.record import moment
from robots_guard.audit.signing import new_signer

LEAST = 250  # lines
MOST_BYTES = 4  # of memory for a byte of a hostile file


def bundle_of(directory, count):
    """A bundle of a signed log with so many lines, and a checkpoint after each."""
    ticks, signer = itertools.count(0.0, 300.0), new_signer()
    log = audit_log_in(directory, signer=signer, chain=True, monotonic=ticks.__next__)
    for number in range(count):
        made = decision(f"https://a.test/private/{number}", at=AT + number)
        log.write(msgspec.structs.replace(made, id=f"w-{number}"))
    log.close()
    return made_of(directory, count)


def made_of(directory, count):
    target, wanted = io.BytesIO(), Filter(since=moment(AT - 1), origin="https://other.test")
    with search_for(directory, wanted) as search:
        write_bundle(target, search, wanted, documents={}.get, now=AT + count + 600)
    return target.getvalue()


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The directories of a short log and of a long one, and their bundles, by their lines."""
    found = {}
    for count in (LEAST, 8 * LEAST):
        directory = tmp_path_factory.mktemp("log")
        found[count] = (directory, bundle_of(directory, count))
    return found


def test_a_bundle_of_many_checkpoints_costs_what_its_length_costs(logs):
    def check(count):
        assert not verify_bundle(logs[count][1]).is_contradicted

    assert growth(check, int, LEAST) < LINEAR
    assert growth(lambda count: made_of(logs[count][0], count), int, LEAST) < LINEAR


HOSTILE = {
    "lines": (RECORDS, lambda: b"\n" * 3_000_000),
    "digests": (
        CHAIN,
        lambda: (
            b'{"spans": [{"links": [%s""],"previous":"","head":""}],"writer":"x"}'
            % (b'"",' * 1_000_000)
        ),
    ),
    "manifest": (
        MANIFEST,
        lambda: b"".join(b"%064x  f%d\n" % (each, each) for each in range(80_000)),
    ),
}


@pytest.mark.parametrize(("where", "content"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_takes_little_more_memory_than_its_length(logs, where, content):
    files, hostile = read_archive(logs[LEAST][1]), content()
    name = next(name for name in files if name.startswith(where))
    data = archive_of(with_manifest(files | {name: hostile}) | {name: hostile})
    tracemalloc.start()
    try:
        assert is_archive_refused(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < MOST_BYTES * len(hostile)
