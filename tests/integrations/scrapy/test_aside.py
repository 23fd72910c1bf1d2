"""`on_disallowed = "defer"`: disallowed requests are deferred, others go on, and every deferral is
closed."""

from __future__ import annotations

import datetime as dt

import pytest
from integrations.scrapy.crawl import crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
DEFER = {"ROBOTS_GUARD_ON_DISALLOWED": "defer"}


def outcomes(records: list[dict]) -> dict[str, list[tuple[str, str]]]:
    """The later decisions of each deferral, by the id of its first one."""
    found = {
        each["id"]: [] for each in records if each["action"] == "defer" and each["defers"] is None
    }
    for record in records:
        if record["defers"] is not None:
            found[record["defers"]].append((record["action"], record["reason"]))
    return found


@pytest.mark.timing
def test_deferred_requests_delay_no_others_and_are_dropped_in_the_end(net):
    site = net.origin(RULES)
    bad = [f"{site.url}/private/{n}" for n in range(30)]
    good = [f"{site.url}/{n}" for n in range(30)]

    done = crawl(
        [page for pair in zip(bad, good, strict=True) for page in pair],
        {**DEFER, "ROBOTS_GUARD_MAX_DEFER": 1.5},
        see_through=True,
    )

    assert sorted(site.targets) == sorted(f"/{n}" for n in range(30))
    assert max(done[page]["at"] for page in good) < min(done[page]["at"] for page in bad)
    assert {done.verdict(page) for page in bad} == {("drop", "disallowed")}
    assert min(done[page]["at"] for page in bad) >= 1.5
    assert max(done[page]["at"] for page in bad) < 15
    assert {tuple(each) for each in outcomes(done.records).values()} == {(("drop", "disallowed"),)}
    assert len(outcomes(done.records)) == 30
    assert done.stats["scheduler/dequeued"] == 30 + 30 + 30 + 1, (
        "bad ones twice, and the first for its policy"
    )


def test_deferrals_survive_a_stop_and_pass_after_the_file_has_changed(net, tmp_path):
    """The audit log links the pass to the deferral, in another process and though passes are not
    recorded."""
    rules = [RULES]
    site = net.origin(lambda _: Reply(body=rules[0]))
    pages = [f"{site.url}/private/{n}" for n in range(5)]
    job = {**DEFER, "JOBDIR": str(tmp_path / "job")}

    crawl([*pages, f"{site.url}/open"], job, folder=tmp_path, stop_after_last=2)
    assert site.targets == ["/open"]
    rules[0] = ""
    done = crawl([], job, folder=tmp_path, see_through=True)

    assert sorted(site.targets[1:]) == [f"/private/{n}" for n in range(5)]
    assert [*outcomes(done.records).values()] == [[("pass", "allowed")]] * 5


def test_deferrals_of_an_unreachable_origin_are_closed(net):
    site = net.origin(
        lambda _: Reply(status=503) if len(site.robots_fetches) < 2 else Reply(body=RULES)
    )

    done = crawl([f"{site.url}/{n}" for n in range(5)], retry_min=0.4, see_through=True)

    assert len(site.targets) == 5
    assert [*outcomes(done.records).values()] == [[("pass", "allowed")]]


def test_outside_visit_time_no_request_is_sent_or_lost(net, tmp_path):
    hour = dt.datetime.now(dt.UTC).hour
    other_hours = f"{(hour + 6) % 24:02}00-{(hour + 8) % 24:02}00"
    site = net.origin(f"User-agent: *\nVisit-time: {other_hours}\n")
    job = {"JOBDIR": str(tmp_path / "job")}

    first = crawl([f"{site.url}/{n}" for n in range(5)], job, folder=tmp_path, stop_after_last=2)
    assert site.targets == []
    assert [record["reason"] for record in first.records] == ["visit-time"]
    done = crawl(
        [], {**job, "ROBOTS_GUARD_VISIT_TIME": "ignore"}, folder=tmp_path, see_through=True
    )

    assert len(site.targets) == 5
    assert [*outcomes(done.records).values()] == [[("pass", "allowed")]]
