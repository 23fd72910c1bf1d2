"""Pages that were not requested: a response from a URL that was not judged is judged before a spider gets it."""

from __future__ import annotations

import pytest
from hosts.scrapy.crawl import MODES, crawl, shortest_gap
from hosts.scrapy.test_gates import CLOSED, OPEN, RULES, behind_us, moved

from robots_guard.testing import Reply

ALL = {"ROBOTS_GUARD_AUDIT_PASSES": "all"}
HANDLED = {name: mode for name, mode in MODES.items() if name != "no reactor"}  # HTTP/1.1 by Twisted needs one


def by(handler: str, *schemes: str) -> dict:
    """Settings of a project with a download handler of its own."""
    path = f"hosts.scrapy.components.{handler}"
    return {"DOWNLOAD_HANDLERS": dict.fromkeys(schemes or ("http", "https"), path)}


def leading(net, to: str, rules: str = RULES, **pages):
    """A site whose /open leads to another page."""
    return net.origin(rules, {"/open": moved(to), **pages})


# -- a download handler that follows redirects ------------------------------------------------------------------


@pytest.mark.parametrize("mode", HANDLED)
@pytest.mark.parametrize("inline", [False, True])
def test_a_forbidden_page_that_a_redirect_led_to_reaches_no_spider(net, mode, inline):
    site = leading(net, "/private/x")
    mode = HANDLED[mode]

    done = crawl(
        [{"url": f"{site.url}/open", "inline": inline}, f"{site.url}/other"],
        **mode | {"settings": mode["settings"] | by("FollowingHandler")},
    )

    assert sorted(site.targets) == ["/open", "/other", "/private/x"]
    assert done[f"{site.url}/open"]["error"] == "RobotsDisallowed"
    assert done.verdict(f"{site.url}/open") == ("drop", "disallowed")
    assert done.verdict(f"{site.url}/other") == ("pass", None)
    (record,) = done.records
    assert (record["url"], record["escaped"], record["led_by"]) == (f"{site.url}/private/x", True, f"{site.url}/open")
    assert record["line"] == 2
    assert done.stats["robots_guard/escaped"] == 1
    assert done.stats["robots_guard/drop/disallowed"] == 1
    assert f"WARNING: drop (disallowed): GET {site.url}/private/x" in done.log
    assert f"it had reached the site, led there by {site.url}/open" in done.log


@pytest.mark.parametrize(("rules", "action"), [(CLOSED, "drop"), (RULES, "pass")])
def test_another_origins_page_is_judged_by_its_own_rules(net, rules, action):
    other = net.origin(rules)
    site = leading(net, f"{other.url}/landed?token=secret")

    done = crawl([f"{site.url}/open"], {**by("FollowingHandler"), **ALL})

    assert done[f"{site.url}/open"]["action"] == action
    assert len(other.robots_fetches) == 1
    landed = done.record(f"{other.url}/landed?token=REDACTED")
    assert (landed["action"], landed["led_by"]) == (action, f"{site.url}/open")
    assert landed["escaped"] == (action == "drop")
    assert [record["led_by"] for record in done.records] == [None, f"{site.url}/open"]


def test_the_pages_on_the_way_are_judged_too_where_the_handler_tells_of_them(net):
    other = net.origin(RULES, {"/private/hop": moved("/open"), "/open": Reply(body="landed")})
    site = leading(net, f"{other.url}/private/hop")

    done = crawl([f"{site.url}/open"], {**by("TellingHandler"), **ALL})

    assert done.verdict(f"{site.url}/open") == ("drop", "disallowed")
    assert [(record["url"], record["action"], record["escaped"]) for record in done.records] == [
        (f"{site.url}/open", "pass", False),
        (f"{other.url}/private/hop", "drop", True),
        (f"{other.url}/open", "pass", False),
    ]


def test_scrapys_own_redirects_are_judged_once_each(net):
    site = net.origin(RULES, {"/1": moved("/2"), "/2": moved("/3"), "/3": moved("/private/x")})

    done = crawl([f"{site.url}/1"], ALL)

    assert [(record["url"].removeprefix(site.url), record["led_by"]) for record in done.records] == [
        ("/1", None),
        ("/2", None),
        ("/3", None),
        ("/private/x", None),
    ]
    assert "robots_guard/escaped" not in done.stats


def test_what_cannot_be_judged_reaches_no_spider_either(net):
    other = net.origin(503)
    site = leading(net, f"{other.url}/landed")

    done = crawl([f"{site.url}/open"], by("FollowingHandler"))

    assert done[f"{site.url}/open"]["error"] == "RobotsDeferred"
    assert done.record(f"{other.url}/landed")["escaped"]
    assert other.targets == ["/landed"]


def test_a_page_under_a_url_that_cannot_be_read_reaches_no_spider(net):
    site = net.origin(RULES)
    urls = {"web://a?http://user@@x/": "malformed-target", f"web://a?{site.url}/private/x": "disallowed"}

    done = crawl([*urls, f"web://a?{site.url}/open"], by("ElsewhereHandler", "web"))

    assert {url: done[url].get("reason") for url in urls} == urls
    assert done[f"web://a?{site.url}/open"]["action"] == "pass"


def test_retries_are_judged_each(net):
    answers = iter([Reply(status=500), Reply(status=500), Reply(body="at last")])
    site = leading(net, "/landed", **{"/landed": lambda _: next(answers)})

    done = crawl([f"{site.url}/open"], {**by("FollowingHandler"), "RETRY_ENABLED": True, **ALL})

    assert done[f"{site.url}/open"]["status"] == 200
    assert [record["url"].removeprefix(site.url) for record in done.records] == ["/open", "/landed"] * 3


def test_the_origin_that_asks_for_time_is_the_one_that_answered(net):
    """The pages that a busy origin answers to are asked for one after another, past the scheduler."""
    other = net.origin(OPEN, {"/busy": Reply(status=429, headers=(("Retry-After", "60"),))})
    site = leading(net, f"{other.url}/busy")
    pages = [f"{site.url}/open", f"{site.url}/a", f"{other.url}/b"]

    done = crawl(
        [{"url": page, "inline": True} for page in pages],
        {**by("FollowingHandler"), "ROBOTS_GUARD_HOLD_MAX": 0},
    )

    assert done[f"{site.url}/a"]["action"] == "pass"
    assert done.verdict(f"{other.url}/b") == ("defer", "retry-after")
    assert other.targets == ["/busy"]


# -- what is no escape ------------------------------------------------------------------------------------------


def test_a_url_that_is_only_spelt_otherwise_is_the_same(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open?q=1", f"{site.url}/open#part"], {**by("RespellingHandler"), **ALL})

    assert {result["action"] for result in done.results.values()} == {"pass"}
    assert {record["led_by"] for record in done.records} == {None}
    assert len(done.records) == 2


def test_what_comes_from_the_cache_has_not_reached_the_site(net, tmp_path):
    site = leading(net, "/private/x")
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    unguarded = {"ROBOTS_GUARD_ENABLED": False, "ROBOTSTXT_OBEY": False}
    pages = [f"{site.url}/open", f"{site.url}/other"]
    crawl(pages, {**cache, **unguarded, **by("FollowingHandler")})
    seen = list(site.targets)

    done = crawl(pages, {**cache, **by("FollowingHandler")})

    assert site.targets == seen
    assert done.verdict(pages[0]) == ("drop", "disallowed")
    assert done[pages[1]]["status"] == 200
    (record,) = done.records
    assert (record["url"], record["escaped"], record["led_by"]) == (f"{site.url}/private/x", False, pages[0])
    assert "robots_guard/escaped" not in done.stats
    assert "had reached" not in done.log


def test_what_a_guarded_proxy_has_refused_has_not_reached_the_site(net):
    site = net.origin(RULES)

    pages = [f"{site.url}/open", f"{site.url}/scripted"]
    done = crawl(pages, by("GuardedBrowserHandler"))

    assert site.targets == []
    assert [done.verdict(page) for page in pages] == [("drop", "disallowed")] * 2
    assert {record["url"]: record["escaped"] for record in done.records} == {
        f"{site.url}/private/x": False,
        f"{site.url}/private/y": False,
    }


def test_what_is_not_governed_stays_so(net, tmp_path):
    (tmp_path / "file").write_text("file")
    urls = [f"file://{tmp_path}/file", "data:,x", "s3://bucket/key?http://127.0.0.1:9/private/x"]

    done = crawl(urls, by("ElsewhereHandler", "s3"))

    assert {result["action"] for result in done.results.values()} == {"pass"}
    assert done.records == []


def test_an_answer_in_the_place_of_a_refusal_is_no_escape(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/private/x"], behind_us("StandsIn", 50))

    assert site.targets == []
    assert done[f"{site.url}/private/x"]["action"] == "pass"
    assert [record["escaped"] for record in done.records] == [False]


def test_an_exemption_goes_as_far_as_the_origin(net):
    other = net.origin(RULES)
    site = net.origin(RULES, {"/private/1": moved("/private/2"), "/private/3": moved(f"{other.url}/private/4")})
    exempt = {"dont_obey_robotstxt": True}

    done = crawl(
        [{"url": f"{site.url}/private/{n}", "meta": exempt} for n in (1, 3)],
        by("FollowingHandler"),
    )

    assert done[f"{site.url}/private/1"]["action"] == "pass"
    assert done.record(f"{site.url}/private/2")["reason"] == "bypassed"
    assert done.verdict(f"{site.url}/private/3") == ("drop", "disallowed")
    assert done.record(f"{other.url}/private/4")["escaped"]


def test_where_nothing_is_refused_it_is_recorded(net):
    site = leading(net, "/private/x")

    done = crawl([f"{site.url}/open"], {**by("FollowingHandler"), "ROBOTS_GUARD_MODE": "report"})

    assert done[f"{site.url}/open"]["action"] == "pass"
    (record,) = done.records
    assert (record["action"], record["would"], record["escaped"]) == ("pass", "drop", True)


# -- middlewares that make requests by themselves ---------------------------------------------------------------


@pytest.mark.parametrize("place", [50, 800])
def test_a_middleware_that_makes_requests_by_itself(net, place):
    """Before ours, nothing of it was judged; behind ours, only what it was asked for."""
    site = net.origin(RULES, {"/driven": moved("/private/x"), "/driven-on": moved("/landed")})

    done = crawl(
        [f"{site.url}/driven", f"{site.url}/driven-on", f"{site.url}/private/driven"], behind_us("Drives", place)
    )

    assert done.verdict(f"{site.url}/driven") == ("drop", "disallowed")
    assert done[f"{site.url}/driven-on"]["action"] == "pass"
    assert done.verdict(f"{site.url}/private/driven") == ("drop", "disallowed")
    assert done.record(f"{site.url}/private/driven")["escaped"] == (place == 50)
    assert done.record(f"{site.url}/private/x")["escaped"]


def test_an_answer_that_a_middleware_renames_is_judged_by_its_name(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/renamed", f"{site.url}/open-renamed"], behind_us("Renames", 700))

    assert done.verdict(f"{site.url}/renamed") == ("drop", "disallowed")
    assert done[f"{site.url}/open-renamed"]["action"] == "pass"


# -- our own fetch ----------------------------------------------------------------------------------------------


def test_a_robots_txt_that_a_handler_was_led_to_is_followed_by_our_own_rules(net, tmp_path):
    """The fetcher reports the handler's redirect to the core, which then requests the target and records both."""
    other = net.origin("User-agent: *\nDisallow: /open\n")
    site = net.origin(moved(f"{other.url}/robots.txt"))

    done = crawl([f"{site.url}/open", f"{site.url}/private/x"], by("FollowingHandler"), folder=tmp_path)

    assert done.verdict(f"{site.url}/open") == ("drop", "disallowed")
    assert done[f"{site.url}/private/x"]["action"] == "pass"
    assert done.record(f"{site.url}/open")["redirects"] == [f"{site.url}/robots.txt"]
    assert len(other.robots_fetches) == 2, "once by the handler, once by us"


# -- at the write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_request_that_is_changed_behind_the_last_middleware_is_judged_at_the_write(net, mode):
    site = net.origin(RULES)
    turned, inside, hosted = f"{site.url}/open?turn", f"{site.url}/open?inside", f"{site.url}/hosted"
    late = {"EXTENSIONS": {"hosts.scrapy.components.ChangesLate": 1}}

    done = crawl(
        [turned, inside, hosted, {"url": turned, "key": "inline", "inline": True}],
        **MODES[mode] | {"settings": MODES[mode]["settings"] | late},
    )

    assert done.verdict(turned) == done.verdict("inline") == ("drop", "disallowed")
    assert done.verdict(hosted) == ("drop", "ambiguous-authority")
    assert done[inside]["action"] == "pass"
    assert site.targets == ["/open/inside"]
    assert not done.record(f"{site.url}/private/turned")["escaped"]


@pytest.mark.timing
def test_a_request_that_is_changed_there_takes_the_turn_of_its_new_origin(net):
    paced = net.origin("User-agent: *\nCrawl-delay: 0.4\n")
    free = [net.origin(OPEN) for _ in range(3)]
    late = {"EXTENSIONS": {"hosts.scrapy.components.ChangesLate": 1}}
    pages = [f"{paced.url}/0", *(f"{site.url}/?to={paced.url}/{n}" for n, site in enumerate(free, start=1))]

    crawl(pages, late, see_through=True)

    assert sorted(paced.targets) == ["/0", "/1", "/2", "/3"]
    assert shortest_gap(paced) >= 0.4 * 0.99
