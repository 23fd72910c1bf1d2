"""Other schedulers, wrapped: delays are kept, other origins are not stalled, and no request is
lost."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import crawl, shortest_gap
from integrations.scrapy.test_pacing import chains

pytestmark = pytest.mark.timing

SLOW = "User-agent: *\nCrawl-delay: 0.5\n"


@pytest.fixture
def scrapy_redis(redis_server):
    """Settings of scrapy-redis on an empty server."""
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": redis_server.url,
    }


def test_scrapy_redis_keeps_the_delay_stalls_no_host_and_gets_parked_requests_back(
    net, redis_server, scrapy_redis
):
    slow = net.origin(SLOW)
    first, follow, last = chains(net, 3, 15)
    pages = [f"{slow.url}/{n}" for n in range(200)]

    done = crawl([*pages, *first], scrapy_redis, follow=follow, stop_when=[*last, f"{slow.url}/2"])

    assert {done[page].get("status") for page in last} == {200}
    assert shortest_gap(slow) >= 0.5 * 0.99
    left = redis_server.client().zcard("plan:requests")
    assert left == len(pages) - len(slow.targets)
    assert "robots_guard: requests that" not in done.log

    rest = [page for page in pages if page.removeprefix(slow.url) not in slow.targets]
    crawl([], {**scrapy_redis, "ROBOTS_GUARD_MAX_DELAY": 0}, stop_when=rest)

    assert sorted(slow.targets) == sorted(f"/{n}" for n in range(200))
    assert redis_server.client().zcard("plan:requests") == 0


def test_beyond_max_parked_other_requests_are_still_found(net):
    """Requests that come out too early go back behind the others, and keep their own priority."""
    slow = net.origin(SLOW)
    first, follow, last = chains(net, 2, 10)
    pages = [{"url": f"{slow.url}/{n}", "priority": 3} for n in range(100)]

    done = crawl(
        [*pages, *first],
        {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"},
        follow=follow,
        parked=20,
        stop_when=last,
    )

    assert {done[page].get("status") for page in last} == {200}
    assert {done[f"{slow.url}{target}"]["priority"] for target in slow.targets} == {3}
    assert max(done[page]["at"] for page in last) < 15, "behind 80 others that cannot leave"


def test_a_job_of_a_wrapped_queue_resumes_with_every_request(net, tmp_path):
    site = net.origin("User-agent: *\nCrawl-delay: 0.1\n")
    job = {
        "JOBDIR": str(tmp_path),
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
    }

    crawl([f"{site.url}/{n}" for n in range(20)], job, stop_when=[f"{site.url}/16"])
    assert len(site.targets) < 20
    crawl([], job, see_through=True)

    assert sorted(site.targets) == sorted(f"/{n}" for n in range(20))


def test_a_scheduler_that_wraps_itself_ends_the_process_with_one_sentence(net):
    ours = "robots_guard.scrapy.GuardScheduler"

    done = crawl([], {"SCHEDULER": ours, "ROBOTS_GUARD_FALLBACK_SCHEDULER": ours})

    assert done.code == 1
    assert "ROBOTS_GUARD_FALLBACK_SCHEDULER names GuardScheduler itself" in done.log
    assert "Traceback" not in done.log


def test_a_scheduler_of_a_project_keeps_its_face_behind_the_wrapper(net):
    """Scrapy asks a scheduler only whether it has `open` and `close`; an extension uses what else it
    has by `engine._slot.scheduler`."""
    site = net.origin("User-agent: *\nDisallow: /private/\n")

    done = crawl(
        [f"{site.url}/a", f"{site.url}/private/b"],
        {
            "SCHEDULER": "integrations.scrapy.components.Minimal",
            "EXTENSIONS": {"integrations.scrapy.components.UsesScheduler": 500},
        },
    )

    assert site.targets == ["/a"]
    assert done.stats["minimal/pauses"] == 1
    assert done.stats["minimal/limit"] == 7
    assert "log_count/ERROR" not in done.stats


def test_a_class_that_is_no_scheduler_is_refused_by_scrapy(net):
    site = net.origin()

    done = crawl([f"{site.url}/a"], {"SCHEDULER": "integrations.scrapy.components.EndsEarly"})

    assert "EndsEarly) does not fully implement the scheduler interface" in done.log
    assert site.received == []
