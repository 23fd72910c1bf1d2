"""The response gate: a response from a URL that was not judged is judged before a spider receives
it."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import MODES, crawl, shortest_gap
from integrations.scrapy.test_gates import CLOSED, OPEN, RULES, moved, with_middleware

from robots_guard.testing import Reply

ALL = {"ROBOTS_GUARD_AUDIT": "all"}
#: Modes with a reactor, which Scrapy's HTTP/1.1 handler needs.
HANDLED = {name: mode for name, mode in MODES.items() if name != "no reactor"}


def by(handler: str, *schemes: str) -> dict:
    """Settings with one of the project's own download handlers."""
    path = f"integrations.scrapy.components.{handler}"
    return {"DOWNLOAD_HANDLERS": dict.fromkeys(schemes or ("http", "https"), path)}


def redirecting(net, to: str, rules: str = RULES, **pages):
    """A site whose /open redirects to another page."""
    return net.origin(rules, {"/open": moved(to), **pages})


# -- a download handler that follows redirects -----------------------------------------------------


@pytest.mark.parametrize("mode", HANDLED)
@pytest.mark.parametrize("inline", [False, True])
def test_a_forbidden_page_behind_a_redirect_reaches_no_spider(net, mode, inline):
    site = redirecting(net, "/private/x")
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
    assert (record["url"], record["escaped"], record["led_by"]) == (
        f"{site.url}/private/x",
        True,
        f"{site.url}/open",
    )
    assert record["line"] == 2
    assert done.stats["robots_guard/escaped"] == 1
    assert done.stats["robots_guard/drop/disallowed"] == 1
    assert f"WARNING: drop (disallowed): GET {site.url}/private/x" in done.log
    assert f"had already reached the site, by way of {site.url}/open" in done.log


@pytest.mark.parametrize(("rules", "action"), [(CLOSED, "drop"), (RULES, "pass")])
def test_a_page_of_another_origin_is_judged_by_that_origins_rules(net, rules, action):
    other = net.origin(rules)
    site = redirecting(net, f"{other.url}/landed?token=secret")

    done = crawl([f"{site.url}/open"], {**by("FollowingHandler"), **ALL})

    assert done[f"{site.url}/open"]["action"] == action
    assert len(other.robots_fetches) == 1
    landed = done.record(f"{other.url}/landed?token=REDACTED")
    assert (landed["action"], landed["led_by"]) == (action, f"{site.url}/open")
    assert landed["escaped"] == (action == "drop")
    assert [record["led_by"] for record in done.records] == [None, f"{site.url}/open"]


def test_intermediate_pages_that_the_handler_reports_are_judged(net):
    other = net.origin(RULES, {"/private/hop": moved("/open"), "/open": Reply(body="landed")})
    site = redirecting(net, f"{other.url}/private/hop")

    done = crawl([f"{site.url}/open"], {**by("ReportingHandler"), **ALL})

    assert done.verdict(f"{site.url}/open") == ("drop", "disallowed")
    assert [(record["url"], record["action"], record["escaped"]) for record in done.records] == [
        (f"{site.url}/open", "pass", False),
        (f"{other.url}/private/hop", "drop", True),
        (f"{other.url}/open", "pass", False),
    ]


def test_each_of_scrapys_own_redirects_is_judged_once(net):
    site = net.origin(RULES, {"/1": moved("/2"), "/2": moved("/3"), "/3": moved("/private/x")})

    done = crawl([f"{site.url}/1"], ALL)

    assert [
        (record["url"].removeprefix(site.url), record["led_by"]) for record in done.records
    ] == [
        ("/1", None),
        ("/2", None),
        ("/3", None),
        ("/private/x", None),
    ]
    assert "robots_guard/escaped" not in done.stats


def test_a_page_that_cannot_be_judged_reaches_no_spider(net):
    other = net.origin(503)
    site = redirecting(net, f"{other.url}/landed")

    done = crawl([f"{site.url}/open"], by("FollowingHandler"))

    assert done[f"{site.url}/open"]["error"] == "RobotsDeferred"
    assert done.record(f"{other.url}/landed")["escaped"]
    assert other.targets == ["/landed"]


def test_a_page_with_a_malformed_url_reaches_no_spider(net):
    site = net.origin(RULES)
    urls = {
        "web://a?http://user@@x/": "malformed-target",
        f"web://a?{site.url}/private/x": "disallowed",
    }

    done = crawl([*urls, f"web://a?{site.url}/open"], by("ElsewhereHandler", "web"))

    assert {url: done[url].get("reason") for url in urls} == urls
    assert done[f"web://a?{site.url}/open"]["action"] == "pass"


def test_each_retry_is_judged(net):
    answers = iter([Reply(status=500), Reply(status=500), Reply(body="at last")])
    site = redirecting(net, "/landed", **{"/landed": lambda _: next(answers)})

    done = crawl([f"{site.url}/open"], {**by("FollowingHandler"), "RETRY_ENABLED": True, **ALL})

    assert done[f"{site.url}/open"]["status"] == 200
    assert [record["url"].removeprefix(site.url) for record in done.records] == [
        "/open",
        "/landed",
    ] * 3


def test_retry_after_pauses_the_origin_that_responded(net):
    """The pages are requested one after another, and bypass the scheduler."""
    other = net.origin(OPEN, {"/busy": Reply(status=429, headers=(("Retry-After", "60"),))})
    site = redirecting(net, f"{other.url}/busy")
    pages = [f"{site.url}/open", f"{site.url}/a", f"{other.url}/b"]

    done = crawl(
        [{"url": page, "inline": True} for page in pages],
        {**by("FollowingHandler"), "ROBOTS_GUARD_HOLD_MAX": 0},
    )

    assert done[f"{site.url}/a"]["action"] == "pass"
    assert done.verdict(f"{other.url}/b") == ("defer", "retry-after")
    assert other.targets == ["/busy"]


# -- responses that are no escape ------------------------------------------------------------------


def test_another_spelling_of_a_url_is_the_same_url(net):
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/open?q=1", f"{site.url}/open#part"], {**by("RespellingHandler"), **ALL}
    )

    assert {result["action"] for result in done.results.values()} == {"pass"}
    assert {record["led_by"] for record in done.records} == {None}
    assert len(done.records) == 2


def test_a_cached_response_has_not_reached_the_site(net, tmp_path):
    site = redirecting(net, "/private/x")
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
    assert (record["url"], record["escaped"], record["led_by"]) == (
        f"{site.url}/private/x",
        False,
        pages[0],
    )
    assert "robots_guard/escaped" not in done.stats
    assert "had already reached" not in done.log


def test_a_refusal_by_the_proxy_has_not_reached_the_site(net):
    site = net.origin(RULES)

    pages = [f"{site.url}/open", f"{site.url}/scripted"]
    done = crawl(pages, by("GuardedBrowserHandler"))

    assert site.targets == []
    assert [done.verdict(page) for page in pages] == [("drop", "disallowed")] * 2
    assert {record["url"]: record["escaped"] for record in done.records} == {
        f"{site.url}/private/x": False,
        f"{site.url}/private/y": False,
    }


def test_ungoverned_schemes_are_not_judged(net, tmp_path):
    (tmp_path / "file").write_text("file")
    urls = [f"file://{tmp_path}/file", "data:,x", "s3://bucket/key?http://127.0.0.1:9/private/x"]

    done = crawl(urls, by("ElsewhereHandler", "s3"))

    assert {result["action"] for result in done.results.values()} == {"pass"}
    assert done.records == []


def test_a_middlewares_response_to_a_refusal_is_no_escape(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/private/x"], with_middleware("AnswersRefusals", 50))

    assert site.targets == []
    assert done[f"{site.url}/private/x"]["action"] == "pass"
    assert [record["escaped"] for record in done.records] == [False]


def test_an_exemption_covers_redirects_within_the_origin(net):
    other = net.origin(RULES)
    site = net.origin(
        RULES, {"/private/1": moved("/private/2"), "/private/3": moved(f"{other.url}/private/4")}
    )
    exempt = {"dont_obey_robotstxt": True}

    done = crawl(
        [{"url": f"{site.url}/private/{n}", "meta": exempt} for n in (1, 3)],
        by("FollowingHandler"),
    )

    assert done[f"{site.url}/private/1"]["action"] == "pass"
    assert done.record(f"{site.url}/private/2")["reason"] == "bypassed"
    assert done.verdict(f"{site.url}/private/3") == ("drop", "disallowed")
    assert done.record(f"{other.url}/private/4")["escaped"]


def test_in_report_only_mode_an_escape_is_recorded(net):
    site = redirecting(net, "/private/x")

    done = crawl([f"{site.url}/open"], {**by("FollowingHandler"), "ROBOTS_GUARD_REPORT_ONLY": True})

    assert done[f"{site.url}/open"]["action"] == "pass"
    (record,) = done.records
    assert (record["action"], record["would"], record["escaped"]) == ("pass", "drop", True)


# -- middlewares that make requests by themselves --------------------------------------------------


@pytest.mark.parametrize("place", [50, 800])
def test_a_middleware_that_makes_its_own_requests(net, place):
    """Before the guard's middleware, none of its requests is judged; after it, only the original
    one."""
    site = net.origin(RULES, {"/driven": moved("/private/x"), "/driven-on": moved("/landed")})

    done = crawl(
        [f"{site.url}/driven", f"{site.url}/driven-on", f"{site.url}/private/driven"],
        with_middleware("DrivesBrowser", place),
    )

    assert done.verdict(f"{site.url}/driven") == ("drop", "disallowed")
    assert done[f"{site.url}/driven-on"]["action"] == "pass"
    assert done.verdict(f"{site.url}/private/driven") == ("drop", "disallowed")
    assert done.record(f"{site.url}/private/driven")["escaped"] == (place == 50)
    assert done.record(f"{site.url}/private/x")["escaped"]


def test_a_response_with_a_new_url_is_judged_by_that_url(net):
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/renamed", f"{site.url}/open-renamed"], with_middleware("RenamesResponse", 700)
    )

    assert done.verdict(f"{site.url}/renamed") == ("drop", "disallowed")
    assert done[f"{site.url}/open-renamed"]["action"] == "pass"


# -- the guard's own fetch -------------------------------------------------------------------------


def test_a_handlers_redirect_of_robots_txt_is_followed_by_the_core(net, tmp_path):
    """The fetcher reports the handler's redirect to the guard, which then requests the target and
    records both."""
    other = net.origin("User-agent: *\nDisallow: /open\n")
    site = net.origin(moved(f"{other.url}/robots.txt"))

    done = crawl(
        [f"{site.url}/open", f"{site.url}/private/x"], by("FollowingHandler"), folder=tmp_path
    )

    assert done.verdict(f"{site.url}/open") == ("drop", "disallowed")
    assert done[f"{site.url}/private/x"]["action"] == "pass"
    assert done.record(f"{site.url}/open")["redirects"] == [f"{site.url}/robots.txt"]
    assert len(other.robots_fetches) == 2, "one by the handler, one by the guard"


# -- in the handler hook ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_request_changed_after_the_last_middleware_is_judged_in_the_handler_hook(net, mode):
    site = net.origin(RULES)
    forbidden = f"{site.url}/open?turn"
    inside = f"{site.url}/open?inside"
    hosted = f"{site.url}/hosted"
    late = {"EXTENSIONS": {"integrations.scrapy.components.ChangesLate": 1}}

    done = crawl(
        [forbidden, inside, hosted, {"url": forbidden, "key": "inline", "inline": True}],
        **MODES[mode] | {"settings": MODES[mode]["settings"] | late},
    )

    assert done.verdict(forbidden) == done.verdict("inline") == ("drop", "disallowed")
    assert done.verdict(hosted) == ("drop", "ambiguous-authority")
    assert done[inside]["action"] == "pass"
    assert site.targets == ["/open/inside"]
    assert not done.record(f"{site.url}/private/turned")["escaped"]


@pytest.mark.timing
def test_a_changed_request_takes_a_turn_of_its_new_origin(net):
    paced = net.origin("User-agent: *\nCrawl-delay: 0.4\n")
    free = [net.origin(OPEN) for _ in range(3)]
    late = {"EXTENSIONS": {"integrations.scrapy.components.ChangesLate": 1}}
    pages = [
        f"{paced.url}/0",
        *(f"{site.url}/?to={paced.url}/{n}" for n, site in enumerate(free, start=1)),
    ]

    crawl(pages, late, see_through=True)

    assert sorted(paced.targets) == ["/0", "/1", "/2", "/3"]
    assert shortest_gap(paced) >= 0.4 * 0.99
