"""Counted PASSes: their number is right whatever threads, forks, clocks and disks do."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision, policy
from audit.test_disks_and_forks import Disk
from support.waiting import eventually

from robots_guard.audit.key_files import create_key
from robots_guard.audit.read.reader import Filter, Unreadable, entries, kind_of
from robots_guard.audit.read.verify import verify
from robots_guard.audit.write import runs
from robots_guard.configuration.settings import Settings
from robots_guard.decisions.events import FailedOpen
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, ResponseRef, Verdict
from robots_guard.errors import AuditLogError, MissingExtra
from robots_guard.ports import AuditLevel

TESTS = str(Path(__file__).parents[1])
UNRESTRICTED = Verdict(action=Action.PASS, reason=Reason.UNRESTRICTED)


def passed(url="https://a.test/x", at=AT, **values):
    return decision(url, verdict=PASS, at=at, **values)


def counted(directory, **wanted):
    """The `passes` records, in order of time."""
    return list(entries(directory, Filter(kind="passes", **wanted)))


def kinds(directory):
    return [kind_of(entry) for entry in entries(directory, Filter(kind=None))]


def test_a_default_log_says_which_sites_were_visited_how_often_and_under_which_file(tmp_path):
    audit_log = audit_log_in(tmp_path, audit="summary", component="scrapy")
    known = policy()
    for second in range(30):
        audit_log.write(passed(f"https://a.test/{second}", at=AT + second, policy=known))
    audit_log.write(decision("https://b.test/", verdict=UNRESTRICTED, at=AT + 30))
    audit_log.write(passed(agent="other", at=AT + 31, policy=known))
    audit_log.write(decision(at=AT + 32))
    audit_log.close()
    found = [msgspec.to_builtins(entry) for entry in counted(tmp_path)]
    names = ("component", "origin", "agent", "action", "reason", "sha256", "count")

    digest = known.document.sha256
    assert [tuple(each.get(name) for name in names) for each in found] == [
        ("scrapy", "https://a.test", "mybot", "pass", "allowed", digest, 30),
        ("scrapy", "https://b.test", "mybot", "pass", "unrestricted", None, 1),
        ("scrapy", "https://a.test", "other", "pass", "allowed", digest, 1),
    ]
    assert (found[0]["since"][17:19], found[0]["until"][17:19]) == ("00", "29")
    assert kinds(tmp_path) == ["start", "decision", *["passes"] * 3, "stop"]


@pytest.mark.parametrize("following", ["pass", "drop", "event"])
def test_a_count_is_written_with_what_follows_its_minute(tmp_path, following):
    audit_log = audit_log_in(tmp_path, audit="summary")
    for second in (0, 1, 59):
        audit_log.write(passed(at=AT + second))
    assert not counted(tmp_path)
    if following == "event":
        audit_log.note(FailedOpen(at=AT + 60, setting="audit_required", count=1))
    else:
        verdict = {"pass": PASS, "drop": DROP}[following]
        audit_log.write(decision("https://b.test/", verdict=verdict, at=AT + 60))

    assert [each.count for each in counted(tmp_path)] == [3]
    audit_log.close()


def test_what_is_recorded_anyway_is_not_counted(tmp_path):
    """Refusals, exemptions, and PASSes that close a deferral; a response is no request."""
    audit_log = audit_log_in(tmp_path, audit="summary")
    relaxed = msgspec.structs.replace(PASS, relaxed="on_restricted=allow")
    for verdict in (DROP, DEFER, relaxed, Verdict(action=Action.PASS, reason=Reason.BYPASSED)):
        audit_log.write(decision(verdict=verdict))
    audit_log.write(passed(response=ResponseRef(status=200)))
    audit_log.close()

    assert Counter(kinds(tmp_path)) == {"start": 1, "decision": 4, "stop": 1}


@pytest.mark.parametrize("step", [-7200, 86_400 * 3])
def test_a_clock_that_jumps_loses_no_count(tmp_path, step):
    """It is set back two hours, or three days pass: the file of another day gets the count."""
    audit_log = audit_log_in(tmp_path, audit="summary")
    audit_log.write(decision())
    for _ in range(3):
        audit_log.write(passed())
    for _ in range(2):
        audit_log.write(passed(at=AT + step))
    audit_log.close()

    assert [each.count for each in sorted(counted(tmp_path), key=lambda each: each.seq)] == [3, 2]
    assert len(list(tmp_path.glob("*.jsonl"))) == (1 if step < 0 else 2)
    (found,) = verify(tmp_path, Unreadable())
    assert found.problems == []


def test_many_origins_are_written_early(tmp_path, monkeypatch):
    """A crawl of more origins than are counted at once."""
    monkeypatch.setattr(runs, "MAX_RUNS", 50)
    audit_log = audit_log_in(tmp_path, audit="summary")
    for number in range(200):
        for _ in range(2):
            audit_log.write(passed(f"https://{number}.test/"))
    early = len(counted(tmp_path))
    audit_log.close()

    assert 100 < early < 200
    assert Counter(each.origin for each in counted(tmp_path)) == {
        f"https://{number}.test": 1 for number in range(200)
    }
    assert {each.count for each in counted(tmp_path)} == {2}


def test_the_count_of_many_threads_is_right(tmp_path):
    """They decide while minutes end."""
    audit_log, each, threads = audit_log_in(tmp_path, audit="summary", now=AT), 2000, 8
    ready = threading.Barrier(threads)

    def work():
        ready.wait()
        for number in range(each):
            audit_log.write(passed(f"https://{number % 3}.test/", at=AT + number))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    audit_log.close()

    assert sum(found.count for found in counted(tmp_path)) == each * threads


def test_no_pass_depends_on_a_count_that_cannot_be_written(tmp_path):
    """The disk is full for some minutes: the counts of an origin are added up, and none is lost."""
    disk, seconds = Disk(), [0.0]
    audit_log = audit_log_in(tmp_path, audit="summary", files=disk, monotonic=lambda: seconds[0])
    audit_log.write(decision())
    disk.is_full = True
    for minute in range(5):
        seconds[0] = 61.0 * minute
        for _ in range(10):
            audit_log.write(passed(at=AT + seconds[0]))
    assert disk.tries == 4
    with pytest.raises(AuditLogError):
        audit_log.write(decision("https://c.test/", at=AT + 300))
    disk.is_full = False
    seconds[0] += 2.0
    audit_log.write(passed("https://b.test/", at=AT + 310))
    assert [each.count for each in counted(tmp_path)] == [50]
    audit_log.close()

    assert sum(each.count for each in counted(tmp_path)) == 51
    assert next(entries(tmp_path, Filter(kind="stop"))).lost == 1  # the refusal


def test_a_count_that_cannot_be_written_in_the_end_counts_as_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MAX_RUNS", 5)
    disk = Disk()
    audit_log = audit_log_in(tmp_path, audit="summary", files=disk)
    audit_log.write(decision())
    disk.is_full = True
    for number in range(12):
        audit_log.write(passed(f"https://{number}.test/"))
    disk.takes = b'"stop"'
    audit_log.close()

    assert next(entries(tmp_path, Filter(kind="stop"))).lost == 12


def test_the_counts_of_an_idle_process_are_written(tmp_path, monkeypatch):
    """After its last request, a process records nothing more."""
    monkeypatch.setattr("robots_guard.audit.write.log.WINDOW", 0.02)
    monkeypatch.setattr("robots_guard.audit.write.log.LATEST", 0.01)
    audit_log = audit_log_in(tmp_path, audit="summary", writes_idle=True)
    for _ in range(3):
        audit_log.write(passed())
    audit_log.wall.show(AT + 1)
    eventually(lambda: [each.count for each in counted(tmp_path)] == [3])
    audit_log.close()

    assert [each.count for each in counted(tmp_path)] == [3]


FORK = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import PASS, decision, audit_log_in
audit_log = audit_log_in(Path(sys.argv[1]), audit="summary", retention=None)
audit_log.write(decision(verdict=PASS))
audit_log._passes._lock.acquire()  # a thread that the child has not
child = os.fork()
if child == 0:
    signal.alarm(30)
    for _ in range(2):
        audit_log.write(decision(verdict=PASS))
    audit_log.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
audit_log._passes._lock.release()
audit_log.write(decision(verdict=PASS))
audit_log.write(decision(verdict=PASS))
audit_log.close()
"""


def test_a_forked_child_counts_its_own(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path), TESTS]
    subprocess.run(command, check=True, timeout=120)

    assert sorted(each.count for each in counted(tmp_path)) == [2, 3]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from audit.decisions import AT, PASS, decision, audit_log_in
audit_log = audit_log_in(Path(sys.argv[1]), audit="summary", retention=None)
for second in range(90):
    audit_log.write(decision(verdict=PASS, at=AT + second))
audit_log.write(decision("https://b.test/", at=AT + 90))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_its_running_minute_and_no_refusal(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), TESTS], check=False, timeout=120)

    assert kinds(tmp_path) == ["start", "passes", "decision"]
    assert [each.count for each in counted(tmp_path)] == [60]


# -- settings ----------------------------------------------------------------------------------------


def effective(component="scrapy", **settings):
    """The level that the `start` record says and the log has, and whether there is a chain."""
    made = Settings(agent="mybot", **settings)
    log, writing = made.log_options(component), made.writing(component)
    assert log.audit == writing.settings["audit"]
    return log.audit, writing.chain


def test_one_setting_says_how_much_is_recorded():
    assert effective() == ("summary", False)
    assert [effective(audit=level) for level in get_args(AuditLevel)] == [
        ("refusals", False),
        ("summary", False),
        ("all", False),
        ("evidence", True),
    ]


@pytest.mark.parametrize("level", get_args(AuditLevel))
def test_a_key_has_a_chain_to_sign_at_every_level(tmp_path, level):
    pytest.importorskip("cryptography")
    key = tmp_path / "key.pem"
    create_key(key)
    assert effective(audit=level, audit_signing_key=str(key)) == (level, True)


@pytest.mark.parametrize("component", ["cli", "console"])
def test_passes_that_no_request_follows_are_not_counted(component):
    assert effective(component) == ("refusals", False)
    assert effective(component, audit="all") == ("all", False)


def test_a_level_that_needs_an_extra_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "warcio", None)
    with pytest.raises(
        MissingExtra, match=r"^audit = evidence needs an extra .*robots_guard\[audit\]"
    ):
        audit_log_in(tmp_path, audit="evidence")


@pytest.mark.parametrize(("level", "kind"), [("summary", "passes"), ("all", "decision")])
def test_the_manual_states_the_bytes_of_a_request(tmp_path, level, kind):
    """With one request a second, as in the table of docs/audit.md."""
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    stated = int(re.search(rf"^\| `{level}` \| (\d+) \| \d+\.\d", page, re.MULTILINE)[1])
    audit_log = audit_log_in(tmp_path, component="scrapy", audit=level)
    known = policy("https://www.example-1.com/")
    for second in range(60):
        url = f"https://www.example-1.com/open/page-{second}"
        audit_log.write(passed(url, at=AT + second, component="scrapy", policy=known))
    audit_log.close()
    lines = [entry.line_of_json() for entry in entries(tmp_path, Filter(kind=kind))]

    assert sum(map(len, lines)) / 60 == pytest.approx(stated, rel=0.1, abs=1)
