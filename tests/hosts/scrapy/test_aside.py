"""`on_disallowed = "defer"`: what a rule forbids is set aside, the rest goes on, and every deferral has its end."""

from __future__ import annotations

import datetime as dt

from hosts.scrapy.crawl import crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
DEFER = {"ROBOTS_GUARD_ON_DISALLOWED": "defer"}


def ends(records: list[dict]) -> dict[str, list[tuple[str, str]]]:
    """How each deferral went on, by the id of its first decision."""
    first = {one["id"]: [] for one in records if one["action"] == "defer" and one["defers"] is None}
    for one in records:
        if one["defers"] is not None:
            first[one["defers"]].append((one["action"], one["reason"]))
    return first


def test_what_is_set_aside_does_not_hold_up_the_rest_and_is_dropped_in_the_end(net):
    site = net.origin(RULES)
    bad = [f"{site.url}/private/{n}" for n in range(30)]
    good = [f"{site.url}/{n}" for n in range(30)]

    done = crawl(
        [page for pair in zip(bad, good, strict=True) for page in pair],
        {**DEFER, "ROBOTS_GUARD_MAX_DEFER": 1.5},
        see_through=True,
    )

    assert sorted(site.targets) == sorted(f"/{n}" for n in range(30))
    assert max(done[page]["at"] for page in good) < 1.5
    assert {done.verdict(page) for page in bad} == {("drop", "disallowed")}
    assert min(done[page]["at"] for page in bad) >= 1.5
    assert max(done[page]["at"] for page in bad) < 3
    assert {tuple(end) for end in ends(done.records).values()} == {(("drop", "disallowed"),)}
    assert len(ends(done.records)) == 30
    assert done.stats["scheduler/dequeued"] == 30 + 30 + 30 + 1, "asked twice each, and the first goes to learn"


def test_it_survives_a_stop_and_passes_when_the_file_has_changed(net, tmp_path):
    """The journal links the pass to the deferral, in another process and though passes are not recorded."""
    rules = [RULES]
    site = net.origin(lambda _: Reply(body=rules[0]))
    pages = [f"{site.url}/private/{n}" for n in range(5)]
    job = {**DEFER, "JOBDIR": str(tmp_path / "job")}

    crawl([*pages, f"{site.url}/open"], job, folder=tmp_path, stop_after=0.8)
    assert site.targets == ["/open"]
    rules[0] = ""
    done = crawl([], job, folder=tmp_path, see_through=True)

    assert sorted(site.targets[1:]) == [f"/private/{n}" for n in range(5)]
    assert [*ends(done.records).values()] == [[("pass", "allowed")]] * 5


def test_an_unreachable_origins_deferrals_have_ends_too(net):
    site = net.origin(lambda _: Reply(status=503) if len(site.robots_fetches) < 2 else Reply(body=RULES))

    done = crawl([f"{site.url}/{n}" for n in range(5)], retry_min=0.4, see_through=True)

    assert len(site.targets) == 5
    assert [*ends(done.records).values()] == [[("pass", "allowed")]]


def test_out_of_visiting_hours_nothing_is_sent_and_nothing_lost(net, tmp_path):
    hour = dt.datetime.now(dt.UTC).hour
    elsewhen = f"{(hour + 6) % 24:02}00-{(hour + 8) % 24:02}00"
    site = net.origin(f"User-agent: *\nVisit-time: {elsewhen}\n")
    job = {"JOBDIR": str(tmp_path / "job")}

    first = crawl([f"{site.url}/{n}" for n in range(5)], job, folder=tmp_path, stop_after=0.8)
    assert site.targets == []
    assert [record["reason"] for record in first.records] == ["visit-time"]
    done = crawl([], {**job, "ROBOTS_GUARD_VISIT_TIME": "ignore"}, folder=tmp_path, see_through=True)

    assert len(site.targets) == 5
    assert [*ends(done.records).values()] == [[("pass", "allowed")]]
