"""What sites state with their responses, in whole crawls: refused, recorded, or handed on."""

from __future__ import annotations

import gzip

import pytest
from integrations.scrapy.crawl import MODES, crawl

from robots_guard.testing import Reply

HTML = ("Content-Type", "text/html; charset=utf-8")
OPEN = "User-agent: *\nAllow: /\n"


def page(*metas: str, body: str = "", headers=(), status: int = 200) -> Reply:
    """A page with METAs, each as `name=content`."""
    tags = "".join(
        f'<meta name="{name}" content="{content}">'
        for name, _, content in (meta.partition("=") for meta in metas)
    )
    text = f"<!doctype html><html><head><title>t</title>{tags}</head><body>{body}</body></html>"
    return Reply(status=status, headers=(HTML, *headers), body=text)


def tagged(*lines: str, **more) -> Reply:
    """A page with X-Robots-Tag fields."""
    return page(headers=tuple(("X-Robots-Tag", line) for line in lines), **more)


def declared(purposes: str, **settings) -> dict:
    return {"ROBOTS_GUARD_PURPOSES": purposes} | {
        f"ROBOTS_GUARD_{name.upper()}": value for name, value in settings.items()
    }


# -- purposes and pages ----------------------------------------------------------------------------

PAGES = {
    "/plain": page(),
    "/header-noindex": tagged("noindex"),
    "/header-noai": tagged("noai"),
    "/header-other-agent": tagged("googlebot: noindex"),
    "/header-own-agent": tagged("googlebot: all", "mybot: noindex"),
    "/meta-noindex": page("robots=noindex"),
    "/meta-noarchive": page("robots=noarchive"),
    "/meta-own": page("mybot=nosnippet"),
    "/usage": page(headers=(("Content-Usage", "train-ai=n"),)),
    "/tdm": page(headers=(("tdm-reservation", "1"),)),
    "/lapsed": tagged("unavailable_after: 25 Jun 2010 15:00:00 GMT"),
    "/later": tagged("unavailable_after: 25 Jun 2090 15:00:00 GMT"),
    "/absent": tagged("noindex", status=404),
    "/data": Reply(
        headers=(("Content-Type", "application/json"),),
        body='{"a": "<meta name=robots content=noindex>"}',
    ),
}
REFUSED = {
    "search": {
        "/header-noindex",
        "/header-own-agent",
        "/meta-noindex",
        "/lapsed",
    },
    "snippet": {
        "/header-noindex",
        "/header-own-agent",
        "/meta-noindex",
        "/meta-own",
        "/lapsed",
    },
    "archive": {"/meta-noarchive", "/lapsed"},
    "ai-train": {"/header-noai", "/meta-noarchive", "/usage", "/tdm"},
    "tdm": {"/tdm"},
    "search,ai-train": {
        "/header-noindex",
        "/header-own-agent",
        "/meta-noindex",
        "/lapsed",
        "/header-noai",
        "/meta-noarchive",
        "/usage",
        "/tdm",
    },
}


def outcomes(site, settings, pages=PAGES, **plan):
    """The results of a crawl of pages, by path."""
    spider = {"handle_httpstatus_list": [402, 404]}
    done = crawl([f"{site.url}{path}" for path in pages], settings, spider=spider, **plan)
    return done, {path: done[f"{site.url}{path}"] for path in pages}


@pytest.mark.parametrize("purposes", REFUSED)
def test_pages_are_refused_by_purpose(net, purposes):
    site = net.origin(OPEN, PAGES)

    done, results = outcomes(site, declared(purposes))

    assert {path for path, result in results.items() if result["action"] == "drop"} == REFUSED[
        purposes
    ]
    for path in REFUSED[purposes]:
        assert (results[path]["error"], results[path]["reason"]) == (
            "RobotsSignalled",
            "usage-reserved",
        )
    assert done.stats["robots_guard/drop/usage-reserved"] == len(REFUSED[purposes])
    assert "robotstxt/forbidden" not in done.stats


@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode_of_scrapy(net, mode):
    site = net.origin(OPEN, PAGES)
    options = MODES[mode]

    _, results = outcomes(
        site, options["settings"] | declared("search"), deferred_api="deferred_api" in options
    )

    dropped = {path for path, result in results.items() if result["action"] == "drop"}
    assert dropped == REFUSED["search"]


def test_a_list_of_purposes(net):
    site = net.origin(OPEN, PAGES)
    _, results = outcomes(site, {"ROBOTS_GUARD_PURPOSES": ["search", "ai-train"]})
    dropped = {path for path, result in results.items() if result["action"] == "drop"}
    assert dropped == REFUSED["search,ai-train"]


# -- what an errback and a spider are told ---------------------------------------------------------


def test_an_errback_receives_the_decision_with_its_evidence(net):
    site = net.origin(OPEN, PAGES)
    url = f"{site.url}/header-own-agent"

    done = crawl([url], declared("search"))

    result = done[url]
    assert (result["error"], result["action"], result["reason"]) == (
        "RobotsSignalled",
        "drop",
        "usage-reserved",
    )
    assert "mybot: noindex" in result["message"]
    annotation = result["signals"]
    assert annotation["uses"]["search"] == "deny"
    assert annotation["purposes"] == ["search"]
    (evidence,) = [each for each in annotation["evidence"] if "denies" in each]
    assert (evidence["signal"], evidence["where"], evidence["agent"]) == (
        "x-robots-tag",
        "header",
        "mybot",
    )
    (record,) = done.signals
    assert (record["url"], record["action"], record["status"]) == (url, "drop", 200)
    assert record["id"] == annotation["id"]
    assert record["request"]
    assert f"WARNING: drop (usage-reserved): GET {url}" in done.log
    assert "had already reached" not in done.log


def test_a_permitted_page_is_annotated_and_recorded(net):
    fields = (("X-Robots-Tag", "noarchive"), ("Content-Usage", "search=y"))
    site = net.origin(OPEN, {"/a": page("robots=max-snippet:20", headers=fields)})

    done = crawl([f"{site.url}/a"], declared("search"))

    annotation = done[f"{site.url}/a"]["signals"]
    assert annotation["limits"] == {"max-snippet": 20}
    assert annotation["uses"]["archive"] == "deny"
    assert annotation["uses"]["search"] == "allow"
    assert {each["where"] for each in annotation["evidence"]} == {"header", "page"}
    assert (annotation["action"], annotation["agent"]) == ("pass", "mybot")
    (record,) = done.signals
    assert record["limits"] == {"max-snippet": 20}
    assert done.stats["robots_guard/signals/archive/x-robots-tag"] == 1


ROBOTS = OPEN + "Content-Signal: search=yes, ai-train=no\n"


@pytest.mark.parametrize("settings", [{}, declared("search")], ids=["no purposes", "search"])
def test_what_robots_txt_states_is_annotated(net, settings):
    site = net.origin(ROBOTS, PAGES)

    done = crawl([f"{site.url}/plain"], settings)

    annotation = done[f"{site.url}/plain"]["signals"]
    uses = {use: annotation["uses"][use] for use in ("search", "ai-train", "tdm")}
    assert uses == {"search": "allow", "ai-train": "deny", "tdm": "unknown"}
    assert {each["line"] for each in annotation["evidence"]} == {3}
    assert done.signals == []  # the response itself states nothing


def test_what_robots_txt_states_refuses_the_request(net):
    site = net.origin(ROBOTS, PAGES)

    done = crawl([f"{site.url}/plain"], declared("ai-train"))

    assert done[f"{site.url}/plain"]["error"] == "RobotsDisallowed"
    assert done.verdict(f"{site.url}/plain") == ("drop", "usage-reserved")
    assert "/plain" not in site.targets
    assert done.signals == []


def test_nothing_is_annotated_if_nothing_is_stated(net):
    site = net.origin(OPEN, PAGES)
    done = crawl([f"{site.url}/plain"], declared("search"))
    assert done[f"{site.url}/plain"]["signals"] is None
    assert done.signals == []


def test_an_annotation_that_a_spider_copies_does_not_describe_the_next_page(net):
    site = net.origin(OPEN, PAGES)
    stale = {"robots_guard_signals": {"uses": {"search": "deny"}}}
    done = crawl([{"url": f"{site.url}/plain", "meta": stale}], declared("search"))
    assert done[f"{site.url}/plain"]["signals"] is None


# -- modes -----------------------------------------------------------------------------------------


def test_without_purposes_fields_are_annotated_and_pages_not_read(net):
    site = net.origin(OPEN, PAGES)

    done, results = outcomes(site, {})

    assert {result["action"] for result in results.values()} == {"pass"}
    assert results["/header-noindex"]["signals"]["uses"]["search"] == "deny"
    assert results["/meta-noindex"]["signals"] is None
    assert {record["action"] for record in done.signals} == {"pass"}


def test_signals_are_recorded_from_pages_too_on_request(net):
    site = net.origin(OPEN, PAGES)

    _, results = outcomes(site, declared("search", signals="record"))

    assert {result["action"] for result in results.values()} == {"pass"}
    assert results["/meta-noindex"]["signals"]["uses"]["search"] == "deny"


def test_signals_switched_off(net):
    site = net.origin(OPEN, PAGES)
    done, results = outcomes(site, declared("search", signals="off"))
    assert {result["signals"] for result in results.values()} == {None}
    assert done.signals == []


def test_report_only_refuses_nothing(net):
    site = net.origin(OPEN, PAGES)

    done, results = outcomes(site, declared("search", report_only=True))

    assert {result["action"] for result in results.values()} == {"pass"}
    would = {path for path, each in results.items() if (each["signals"] or {}).get("would")}
    assert would == REFUSED["search"]
    assert results["/header-noindex"]["length"] > 0  # its download was not stopped
    assert {record.get("would") for record in done.signals} == {None, "drop"}


def override(folder, site, change: str) -> dict:
    """Settings with an override for one site."""
    file = folder / "overrides.toml"
    file.write_text(
        f'[[override]]\nid = "own"\norigin = "{site.url}"\nowner = "me"\n'
        f'reason = "our own site"\nexpires = 2099-01-01\n{change}\n'
    )
    return {"ROBOTS_GUARD_OVERRIDES": str(file)}


@pytest.mark.parametrize("change", ['signals = "off"', 'signals = "record"', 'action = "pass"'])
def test_an_override_exempts_one_site(net, tmp_path, change):
    site, other = net.origin(OPEN, PAGES), net.origin(OPEN, PAGES)
    pages = ["/header-noindex", "/meta-noindex"]

    done = crawl(
        [f"{each.url}{path}" for each in (site, other) for path in pages],
        declared("search") | override(tmp_path, site, change),
    )

    for path in pages:
        assert done.verdict(f"{site.url}{path}") == ("pass", None)
        assert done[f"{site.url}{path}"]["length"] > 0
        assert done.verdict(f"{other.url}{path}") == ("drop", "usage-reserved")
    own = [record for record in done.signals if record["origin"] == site.url]
    assert bool(own) == ("off" not in change)
    assert {record["override"] for record in own} <= {"own"}


def test_an_override_declares_a_purpose_for_one_site(net, tmp_path):
    site, other = net.origin(OPEN, PAGES), net.origin(OPEN, PAGES)
    settings = override(tmp_path, site, 'purposes = "ai-train"')

    done = crawl([f"{each.url}/header-noai" for each in (site, other)], settings)

    assert done.verdict(f"{site.url}/header-noai") == ("drop", "usage-reserved")
    assert done.verdict(f"{other.url}/header-noai") == ("pass", None)


@pytest.mark.parametrize(("bypass", "action"), [("audit", "pass"), ("deny", "drop")])
def test_an_exempt_request_is_recorded_and_not_refused(net, bypass, action):
    site = net.origin(OPEN, PAGES)
    url = f"{site.url}/header-noindex"

    done = crawl(
        [{"url": url, "meta": {"dont_obey_robotstxt": True}}],
        declared("search", meta_bypass=bypass),
    )

    assert done[url]["action"] == action
    (record,) = done.signals
    assert record["uses"]["search"] == "deny"
    if action == "pass":
        assert (record["reason"], record["relaxed"]) == ("bypassed", "dont_obey_robotstxt")
        assert done[url]["length"] > 0


def test_a_robots_txt_is_read_whatever_its_fields_say(net):
    body = "User-agent: *\nDisallow: /private/\n"
    robots = Reply(headers=(("X-Robots-Tag", "noindex"),), body=body)
    site = net.origin(robots)

    done = crawl([f"{site.url}/robots.txt", f"{site.url}/private/a"], declared("search"))

    assert done.verdict(f"{site.url}/robots.txt") == ("pass", None)
    assert done.verdict(f"{site.url}/private/a") == ("drop", "disallowed")


def test_silence_is_a_refusal_if_the_operator_says_so(net):
    site = net.origin(OPEN, {"/a": page(), "/b": page(headers=(("Content-Usage", "search=y"),))})

    done = crawl([f"{site.url}/a", f"{site.url}/b"], declared("search", on_unknown="deny"))

    assert done.verdict(f"{site.url}/a") == ("drop", "usage-reserved")
    assert done.verdict(f"{site.url}/b") == ("pass", None)


# -- downloads that are stopped --------------------------------------------------------------------


@pytest.mark.parametrize("reactor", [mode for mode in MODES if mode != "no reactor"])
def test_a_refused_download_ends_with_its_header_fields(net, reactor):
    """Its body has no end."""
    fields = (HTML, ("X-Robots-Tag", "noindex"))
    site = net.origin(OPEN, {"/a": Reply(headers=fields, endless=b"x" * 4096, drip=0.01)})
    options = MODES[reactor]

    done = crawl(
        [f"{site.url}/a"],
        options["settings"] | declared("search"),
        deferred_api="deferred_api" in options,
        timeout=60,
    )

    assert done.verdict(f"{site.url}/a") == ("drop", "usage-reserved")
    assert len(done.signals) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_what_a_stopped_download_hands_to_an_errback_is_judged(net, mode, pack):
    """StopDownload carries the response to the errback, past the middlewares."""
    fields = (HTML, ("Content-Encoding", "gzip")) if pack is gzip.compress else (HTML,)
    meta = b'<meta name="robots" content="noindex">'
    pages = {
        "/a": Reply(headers=fields, body=pack(meta + bytes(range(256)) * 900)),
        "/b": Reply(headers=fields, body=pack(b"<p>" + bytes(range(256)) * 900)),
    }
    options = MODES[mode]
    extension = {"EXTENSIONS": {"integrations.scrapy.components.FailsAtBytes": 0}}

    _, results = outcomes(
        net.origin(OPEN, pages),
        options["settings"] | declared("search") | extension,
        pages,
        deferred_api="deferred_api" in options,
    )

    assert results["/a"]["error"] == "RobotsSignalled"
    if mode != "no reactor":  # there, Scrapy's handler sends no bytes_received
        assert results["/b"]["error"] == "StopDownload"


@pytest.mark.parametrize("status", [404, 500])
def test_the_body_of_an_error_is_read(net, status):
    """What an error states is not about the content, so that it is recorded only."""
    site = net.origin(OPEN, {"/a": tagged("noindex", status=status)})

    done = crawl([f"{site.url}/a"], declared("search"), spider={"handle_httpstatus_list": [status]})

    result = done[f"{site.url}/a"]
    assert (result["action"], result["status"]) == ("pass", status)
    assert result["length"] > 50
    assert result["signals"]["uses"]["search"] == "deny"


def test_a_redirect_speaks_of_itself(net):
    hop = Reply(status=302, headers=(("Location", "/b"), ("X-Robots-Tag", "noindex, nofollow")))
    site = net.origin(OPEN, {"/a": hop, "/b": page()})

    done = crawl([f"{site.url}/a"], declared("search"))

    assert done[f"{site.url}/a"]["url"] == f"{site.url}/b"
    assert done[f"{site.url}/a"]["signals"] is None
    (record,) = done.signals
    assert (record["url"], record["status"], record["action"]) == (f"{site.url}/a", 302, "pass")


def test_a_redirect_that_a_spider_handles_is_recorded_once(net):
    hop = Reply(status=302, headers=(("Location", "/b"), ("X-Robots-Tag", "noindex")))
    site = net.origin(OPEN, {"/a": hop})

    done = crawl(
        [{"url": f"{site.url}/a", "meta": {"dont_redirect": True}}],
        declared("search"),
        spider={"handle_httpstatus_list": [302]},
    )

    (record,) = done.signals
    assert done[f"{site.url}/a"]["signals"]["id"] == record["id"]


def test_a_page_that_replaces_a_redirect_is_judged_by_itself(net):
    hop = Reply(status=302, headers=(("Location", "/b"), ("X-Robots-Tag", "noai")))
    site = net.origin(OPEN, {"/a": hop})
    component = "integrations.scrapy.components.AnswersRedirects"

    done = crawl(
        [f"{site.url}/a"], declared("search") | {"DOWNLOADER_MIDDLEWARES": {component: 650}}
    )

    assert done.verdict(f"{site.url}/a") == ("drop", "usage-reserved")


# -- payment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [402, 503])
def test_a_demand_for_payment_is_dropped_and_never_retried(net, status):
    fields = {
        402: ("crawler-price", "USD 0.01"),
        503: ("WWW-Authenticate", 'License error="none"'),
    }
    site = net.origin(OPEN, {"/a": page(headers=(fields[status],), status=status)})

    done = crawl(
        [f"{site.url}/a"],
        {**declared("search"), "RETRY_ENABLED": True, "RETRY_HTTP_CODES": [402, 503]},
    )

    assert done.verdict(f"{site.url}/a") == ("drop", "payment-required")
    assert site.targets == ["/a"]
    (record,) = done.signals
    assert record.get("price") == ("USD 0.01" if status == 402 else None)
    assert (record["status"], record["reason"]) == (status, "payment-required")


def test_a_site_that_asks_for_payment_is_left_alone_for_as_long_as_it_says(net):
    fields = (("crawler-price", "USD 0.01"), ("Retry-After", "60"))
    site = net.origin(OPEN, {"/a": page(headers=fields, status=402)})
    pages = [{"url": f"{site.url}{path}", "inline": True} for path in ("/a", "/b")]

    done = crawl(pages, {**declared("search"), "ROBOTS_GUARD_HOLD_MAX": 0})

    assert done.verdict(f"{site.url}/a") == ("drop", "payment-required")
    assert done.verdict(f"{site.url}/b") == ("defer", "retry-after")
    assert site.targets == ["/a"]


def test_a_402_without_a_price_is_an_ordinary_error(net):
    site = net.origin(OPEN, {"/a": page(status=402)})
    _, results = outcomes(site, declared("search"), ["/a"])
    assert (results["/a"]["action"], results["/a"]["status"]) == ("pass", 402)


# -- links and items -------------------------------------------------------------------------------

LINKS = """
<a href="/marked" rel="noopener nofollow">a</a> <a href="/plain">b</a>
<a href="/both" rel="nofollow">c</a> <a href="/both#part">d</a>
<a href="/sponsored" rel="sponsored">e</a>
"""


def followed(site, settings, path="/hub", targets=(), **plan):
    hub = f"{site.url}{path}"
    links = {hub: [f"{site.url}{target}" for target in targets]}
    done = crawl([hub], settings, follow=links, **plan)
    return done, [target for target in site.targets if target != path]


TARGETS = ["/marked", "/plain", "/both", "/sponsored", "/unlinked"]


def test_links_marked_nofollow_are_not_followed(net):
    site = net.origin(OPEN, {"/hub": page(body=LINKS)})

    done, requested = followed(site, declared("search"), targets=[*TARGETS, "/marked#again"])

    assert sorted(requested) == sorted(set(TARGETS) - {"/marked"})
    assert done.stats["robots_guard/drop/link-nofollow"] == 2
    record = done.record(f"{site.url}/marked")
    assert (record["action"], record["reason"], record["led_by"]) == (
        "drop",
        "link-nofollow",
        f"{site.url}/hub",
    )
    assert "rel=nofollow" in record["detail"]


@pytest.mark.parametrize(
    "hub", [page("robots=nofollow", body=LINKS), tagged("none", body=LINKS)], ids=["meta", "header"]
)
def test_no_link_of_a_page_with_nofollow_is_followed(net, hub):
    site = net.origin(OPEN, {"/hub": hub})

    done, requested = followed(site, declared("archive"), targets=TARGETS)

    assert requested == []
    assert done.stats["robots_guard/drop/link-nofollow"] == len(TARGETS)
    assert "of the page says" in done.record(f"{site.url}/plain")["detail"]


@pytest.mark.parametrize(
    "settings",
    [{}, declared("search", signals="record"), declared("search", report_only=True)],
    ids=["no purposes", "record", "report-only"],
)
def test_links_are_followed_unless_signals_are_enforced(net, settings):
    site = net.origin(OPEN, {"/hub": page("robots=nofollow", body=LINKS)})

    done, requested = followed(site, settings, targets=TARGETS)

    assert sorted(requested) == sorted(TARGETS)
    assert "robots_guard/drop/link-nofollow" not in done.stats
    if "ROBOTS_GUARD_REPORT_ONLY" in settings:
        reported = [each for each in done.records if each["reason"] == "link-nofollow"]
        assert {each["would"] for each in reported} == {"drop"}


@pytest.mark.parametrize("change", ['signals = "off"', 'action = "pass"'])
def test_links_of_a_site_with_an_override_are_followed(net, tmp_path, change):
    site = net.origin(OPEN, {"/hub": page("robots=nofollow", body=LINKS)})

    _, requested = followed(
        site, declared("search") | override(tmp_path, site, change), targets=TARGETS
    )

    assert sorted(requested) == sorted(TARGETS)


def test_the_page_itself_and_exempt_requests_are_no_links(net):
    site = net.origin(OPEN, {"/hub": page("robots=nofollow", body=LINKS)})
    hub = f"{site.url}/hub"

    done = crawl(
        [hub, f"{site.url}/start"],
        declared("archive"),
        follow={hub: [f"{site.url}/plain"]},
        spider={"meta": {"dont_obey_robotstxt": True}},
    )

    assert sorted(site.targets) == ["/hub", "/plain", "/start"]
    assert done[f"{site.url}/plain"]["action"] == "pass"


SITEMAP = '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>'


@pytest.mark.parametrize(("body", "is_followed"), [(SITEMAP, True), ("<rss/>", False)])
def test_a_sitemap_lists_urls_and_does_not_link_to_them(net, body, is_followed):
    fields = (("Content-Type", "application/xml"), ("X-Robots-Tag", "nofollow"))
    site = net.origin(OPEN, {"/map.xml": Reply(headers=fields, body=body)})

    _, requested = followed(site, declared("search"), "/map.xml", ["/a"])

    assert (requested == ["/a"]) is is_followed


def test_a_follow_only_page_gives_requests_and_no_items(net):
    site = net.origin(OPEN, {"/hub": page("robots=noindex", body=LINKS)})
    hub = f"{site.url}/hub"

    done = crawl(
        [hub],
        declared("search", noindex_action="follow-only"),
        follow={hub: [f"{site.url}/plain"]},
        items={hub: [{"name": "a"}], f"{site.url}/plain": [{"name": "b"}]},
    )

    assert done[hub]["action"] == "pass"
    assert done[hub]["signals"]["follow_only"] is True
    assert site.targets == ["/hub", "/plain"]
    assert done.items == [{"name": "b"}]
    assert done.stats["robots_guard/signals/items_dropped"] == 1
    assert done.signals[0]["follow_only"] is True


@pytest.mark.parametrize("hub", [page("robots=none"), page("robots=noindex,noarchive")])
def test_a_page_that_is_refused_for_more_than_its_noindex_is_not_used(net, hub):
    site = net.origin(OPEN, {"/hub": hub})
    done = crawl([f"{site.url}/hub"], declared("search,archive", noindex_action="follow-only"))
    assert done.verdict(f"{site.url}/hub") == ("drop", "usage-reserved")


def test_a_follow_only_page_is_refused_where_its_items_cannot_be_dropped(net):
    site = net.origin(OPEN, {"/hub": page("robots=noindex")})
    inline = {"url": f"{site.url}/hub", "key": "inline", "inline": True}

    done = crawl([inline], declared("search", noindex_action="follow-only"))
    assert done.verdict("inline") == ("drop", "usage-reserved")

    links = "robots_guard.scrapy.links.RobotsGuardLinks"
    done = crawl(
        [f"{site.url}/hub"],
        {
            **declared("search", noindex_action="follow-only"),
            "SPIDER_MIDDLEWARES": {links: None},
        },
    )
    assert done.verdict(f"{site.url}/hub") == ("drop", "usage-reserved")


# -- media -----------------------------------------------------------------------------------------


def test_files_of_a_pipeline_are_judged(net, tmp_path):
    refused = Reply(headers=(("Content-Type", "image/png"), ("X-Robots-Tag", "noai")), body="x")
    site = net.origin(OPEN, {"/a.png": refused, "/b.png": Reply(body="y")})

    done = crawl(
        [f"{site.url}/page"],
        {
            **declared("ai-train"),
            "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
            "FILES_STORE": str(tmp_path),
        },
        files=[f"{site.url}/a.png", f"{site.url}/b.png"],
    )

    assert done.stats["robots_guard/drop/usage-reserved"] == 1
    (item,) = done.items
    assert [each["url"] for each in item["files"]] == [f"{site.url}/b.png"]
