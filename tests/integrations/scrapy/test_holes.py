"""Holes in Scrapy's RobotsTxtMiddleware (2.19), each tested by a real crawl.

Each docstring names the hole and describes the built-in's behaviour. The origins record the
requests that reach them: a test fails if a forbidden request arrives, whatever the crawler reports.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import time

import pytest
from integrations.scrapy.crawl import crawl, run_python
from support.programs import lacking

from robots_guard.decisions.policy import Document, Policy
from robots_guard.guard.stores import open_store
from robots_guard.origin import split_url
from robots_guard.testing import Received, Reply

RULES = "User-agent: *\nDisallow: /private/\n"
REDIRECT = 302


def moved(location: str, status: int = 301) -> Reply:
    return Reply(status=status, headers=(("Location", location),))


def test_h1_a_hanging_robots_txt_costs_one_probe_and_delays_no_other_origin(net):
    """H1.

    Built-in: the crawl stalls until DOWNLOAD_TIMEOUT (first good page after 15 s), then all are
    allowed.
    """
    hanging = net.origin(Reply(hang=True))
    good = [net.origin(RULES), net.origin(RULES)]
    pages = [f"{site.url}/{number}" for site in good for number in range(20)]

    done = crawl(
        [f"{hanging.url}/{number}" for number in range(100)] + pages,
        {"ROBOTS_GUARD_FETCH_TIMEOUT": 4},
        stop_after=3.5,
    )

    # 0.05 s on a machine that does nothing else
    assert min(done[page]["at"] for page in pages) < 1.5
    assert max(done[page]["at"] for page in pages) < 3.5, (
        "a good page waited for the hanging robots.txt"
    )
    assert hanging.targets == []
    assert len(hanging.robots_fetches) == 1
    # Each of the three hosts sent one probe, and got it back.
    assert done.stats["scheduler/dequeued"] == len(pages) + 3, (
        "more than one request was sent to wait"
    )


def test_h1_a_hanging_robots_txt_costs_one_slot(net):
    """H1.

    Of two slots one stays free for other origins; the built-in uses both, one for the waiting page.
    """
    hanging, good = net.origin(Reply(hang=True)), net.origin(RULES)
    pages = [f"{good.url}/{number}" for number in range(5)]

    done = crawl(
        [f"{hanging.url}/{number}" for number in range(5)] + pages,
        {"CONCURRENT_REQUESTS": 2, "ROBOTS_GUARD_FETCH_TIMEOUT": 10},
        stop_after=4,
    )

    assert max(done[page]["at"] for page in pages) < 4, (
        "a good page waited for the hanging robots.txt"
    )


def test_h2_h3_h4_an_unreachable_robots_txt_defers(net):
    """H2 500, 503; H3 reset, refused, timeout, no such host; H4 429.

    Built-in: three tries at once, then allow all.
    """
    sites = {
        "500": net.origin(500),
        "503": net.origin(503),
        "reset": net.origin(Reply(reset=True)),
        "not http": net.origin(Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n")),
        "cut": net.origin(Reply(body=RULES, cut=True)),
        "slow": net.origin(Reply(delay=20)),
        "429": net.origin(Reply(status=429, headers=(("Retry-After", "120"),))),
    }
    urls = {name: f"{site.url}/private/x" for name, site in sites.items()}
    urls["refused"] = "http://127.1.250.250:9/private/x"
    urls["no such host"] = "http://no.such.host.test/private/x"

    done = crawl(
        list(urls.values()),
        {"ROBOTS_GUARD_FETCH_TIMEOUT": 6},
        no_dns=True,
    )

    assert {name: done.verdict(url) for name, url in urls.items()} == dict.fromkeys(
        urls, ("defer", "unreachable")
    )
    assert all(site.targets == [] for site in sites.values())
    assert all(len(site.robots_fetches) == 1 for site in sites.values()), (
        "asked again before its time"
    )
    failures = {name: done.record(url)["failure"] for name, url in urls.items()}
    assert failures == {
        **dict.fromkeys(("500", "503", "429"), "status"),
        "reset": "reset",
        "not http": failures["not http"],  # depends on the handler
        "cut": "protocol",
        "slow": "timeout",
        "refused": "connect",
        "no such host": "dns",
    }
    assert done[urls["429"]]["deferrals"] == 1
    at, until = done.record(urls["429"])["at"], done.record(urls["429"])["until"]
    assert _seconds_between(at, until) >= 119, "Retry-After was ignored"


def _seconds_between(earlier: str, later: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_h5_an_error_page_has_no_rules(net):
    """H5.

    Built-in: the body of a 404 is parsed, whatever it is. Guard: 404 and 410 allow, 401 and 403
    refuse.
    """
    everything = "User-agent: *\nDisallow: /\n"
    nothing = "User-agent: *\nAllow: /\n"
    gone = {status: net.origin(Reply(status=status, body=everything)) for status in (404, 410, 400)}
    closed = {status: net.origin(Reply(status=status, body=nothing)) for status in (401, 403)}

    done = crawl([f"{site.url}/a" for site in (*gone.values(), *closed.values())])

    assert [site.targets for site in gone.values()] == [["/a"]] * len(gone)
    assert [site.targets for site in closed.values()] == [[]] * len(closed)
    assert {done.verdict(f"{site.url}/a") for site in closed.values()} == {("drop", "restricted")}


def test_h6_http_and_https_are_two_origins(net, authority):
    """H6. Built-in: keyed by netloc, so the rules of the scheme that came first apply to both."""
    address = "127.2.6.1"
    try:
        ports = 80, 443
        plain = net.origin("User-agent: *\nDisallow: /plain\n", address=address, port=ports[0])
    except PermissionError:  # not root: test at least two ports
        plain = net.origin("User-agent: *\nDisallow: /plain\n", address=address)
        ports = plain.port, 0
    secure = net.origin(
        "User-agent: *\nDisallow: /secure\n", address=address, port=ports[1], tls=authority(address)
    )

    done = crawl(
        [f"{plain.url}/secure", f"{plain.url}/plain", f"{secure.url}/secure", f"{secure.url}/plain"]
    )

    assert plain.targets == ["/secure"]
    assert secure.targets == ["/plain"]
    assert (
        done.record(f"https://{address}/secure" if ports[1] else f"{secure.url}/secure")["reason"]
        == "disallowed"
    )


def test_h7_an_offsite_host_is_checked_like_any_other(net):
    """H7.

    Built-in: OffsiteMiddleware ignores the fetch of robots.txt, and the page is allowed unchecked.
    """
    home = net.origin(
        RULES, {"/leaves": lambda request: moved(f"{away.url}/private/redirected", REDIRECT)}
    )
    away = net.origin(RULES)

    done = crawl(
        [
            {"url": f"{home.url}/leaves", "meta": {"allow_offsite": True}},
            {"url": f"{away.url}/private/start", "dont_filter": True},
            {"url": f"{away.url}/private/meta", "meta": {"allow_offsite": True}},
            {"url": f"{away.url}/open", "meta": {"allow_offsite": True}},
        ],
        spider={"allowed_domains": [home.address]},
    )

    assert away.targets == ["/open"]
    assert done.verdict(f"{away.url}/private/start") == ("drop", "disallowed")
    assert done.verdict(f"{away.url}/private/meta") == ("drop", "disallowed")
    assert done.verdict(f"{home.url}/leaves") == ("drop", "disallowed")


def test_h7_a_fetch_ignored_by_another_component_is_no_permission(net):
    """H7. Built-in: IgnoreRequest for the robots.txt means allowed. Guard: it is unreachable."""
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/open"],
        {"DOWNLOADER_MIDDLEWARES": {"integrations.scrapy.components.RefusesRobots": 200}},
    )

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert done.record(f"{site.url}/open")["failure"] == "refused"
    assert site.received == []


def test_h7_a_diverted_fetch_reaches_nothing(net):
    """H7. If a component replaces the guard's fetch by another request, that one is not sent."""
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/open"],
        {"DOWNLOADER_MIDDLEWARES": {"integrations.scrapy.components.DivertsRobots": 200}},
    )

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert site.received == []


def test_h9_a_huge_robots_txt_is_cut_while_it_arrives(net):
    """H9.

    Built-in: 10 MB are downloaded and parsed in the event loop, which blocks it for seconds.
    """
    line = "Disallow: /filler/{:07d}/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"
    body = (
        RULES + "".join(line.format(number) for number in range(160_000)) + "Disallow: /beyond/\n"
    )
    assert len(body) > 9_000_000
    site = net.origin(Reply(body=body))

    done = crawl([f"{site.url}/private/x", f"{site.url}/beyond/y"])

    assert site.targets == ["/beyond/y"], "rules past 500 KiB are not read (RFC 9309 section 2.5)"
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert done.stats["downloader/response_bytes"] < 1_500_000


def test_h10_h11_the_guard_follows_redirects_of_robots_txt(net):
    """H10: the built-in follows a loop for 20 hops, then allows all. H11: with
    REDIRECT_ENABLED=False it parses the empty body of the 301 and allows all."""

    def hops(count: int, end: Reply):
        script = {f"/{n}": moved(f"/{n + 1}") for n in range(1, count)} | {f"/{count}": end}
        return net.origin(moved("/1"), script)

    five, six = hops(5, Reply(body=RULES)), hops(6, Reply(body=RULES))
    loop = net.origin(moved("/back"), {"/back": moved("/robots.txt")})
    elsewhere = net.origin(RULES)
    across = net.origin(moved(f"{elsewhere.url}/robots.txt"))
    scheme = net.origin(moved("ftp://127.0.0.1/robots.txt"))

    done = crawl(
        [f"{site.url}/private/x" for site in (five, six, loop, across, scheme)]
        + [f"{across.url}/open"],
        {"REDIRECT_ENABLED": False},
    )

    assert done.verdict(f"{five.url}/private/x") == ("drop", "disallowed")
    assert done.verdict(f"{across.url}/private/x") == ("drop", "disallowed")
    assert done[f"{across.url}/open"]["status"] == 200
    failures = {name: done.record(f"{site.url}/private/x")["failure"] for name, site in
                (("six", six), ("loop", loop), ("scheme", scheme))}  # fmt: skip
    assert failures == {
        "six": "redirect-limit",
        "loop": "redirect-loop",
        "scheme": "redirect-refused",
    }
    assert not any(site.pages_matching("/private/") for site in (five, six, loop, across, scheme))
    assert len(loop.received) == 2


def test_h12_h13_robots_txt_takes_the_pages_route(net):
    """H12: the built-in fetches robots.txt directly though the page goes by a proxy, and shows the
    real address. H13: it fetches as Scrapy/2.19 though the page goes as MyBot."""
    nowhere = "http://127.1.250.250:9"
    proxy = net.origin("", {f"{nowhere}/robots.txt": Reply(body=RULES)})
    site = net.origin(RULES)
    through = {"proxy": proxy.url.replace("://", "://me:secret@")}

    done = crawl(
        [
            {"url": f"{nowhere}/open", "meta": through, "headers": {"User-Agent": "MyBot/2.0"}},
            {"url": f"{nowhere}/private/x", "meta": through},
            {"url": f"{site.url}/open", "headers": {"User-Agent": "MyBot/3.0"}},
        ],
        {"HTTPAUTH_USER": "u", "HTTPAUTH_PASS": "p", "HTTPAUTH_DOMAIN": None},
    )

    robots, page = proxy.received
    assert (robots.target, page.target) == (f"{nowhere}/robots.txt", f"{nowhere}/open")
    assert robots.headers["user-agent"] == page.headers["user-agent"] == "MyBot/2.0"
    assert robots.headers["proxy-authorization"] == page.headers["proxy-authorization"]
    assert done.verdict(f"{nowhere}/private/x") == ("drop", "disallowed")
    assert [request.headers["user-agent"] for request in site.received] == [
        "MyBot/3.0",
        "MyBot/3.0",
    ]
    assert "authorization" not in robots.headers
    assert "authorization" not in site.robots_fetches[0].headers, (
        "a credential of the origin was sent for robots.txt"
    )


def test_h12_a_refresh_in_the_background_uses_the_proxy(net, tmp_path):
    """H12.

    The policy becomes stale during the first page's download; the second page triggers its refresh.
    """
    real = net.origin(RULES)
    # The second page takes longer than acquiring the lease: a refresh that has not begun to fetch
    # at the end is cancelled.
    slow, fast = Reply(delay=1.5), Reply(delay=0.3)
    robots = Reply(delay=0.5, body="User-agent: *\nDisallow: /private/\n# new\n")
    proxy = net.origin("", {f"{real.url}/{name}": reply for name, reply in
                            {"robots.txt": robots, "1": slow, "2": fast}.items()})  # fmt: skip
    path = f"sqlite:///{tmp_path / 'policies.sqlite'}"
    _store_policy(path, real.url, fresh_for=1.0)

    done = crawl(
        [{"url": f"{real.url}/1", "meta": {"proxy": proxy.url}}],
        {"ROBOTS_GUARD_STORE": path},
        follow={f"{real.url}/1": [f"{real.url}/2"]},
        spider={"meta": {"proxy": proxy.url}},
    )

    assert sorted(proxy.targets) == [f"{real.url}/1", f"{real.url}/2", f"{real.url}/robots.txt"], (
        done.log
    )
    assert real.received == []
    assert "Traceback" not in done.log
    policies = open_store(path)
    body = policies.get(split_url(real.url)[0]).document.body
    assert b"# new" in body, "the crawl ended before the new file was stored"
    policies.close()


def _store_policy(store: str, url: str, *, fresh_for: float) -> None:
    origin, _ = split_url(url)
    document = Document(
        status=200,
        url=origin.robots_url,
        sha256=hashlib.sha256(RULES.encode()).hexdigest(),
        body=RULES.encode(),
        stated_lifetime=600.0,
        fetched_at=time.time() - 600 + fresh_for,
        via="scrapy",
    )
    policies = open_store(store)
    policies.put(Policy(origin=origin, document=document), time.time())
    policies.close()


def test_h13_the_user_agent_of_fetches_can_be_set(net):
    """H13. ROBOTS_GUARD_USER_AGENT is the User-Agent of fetches for requests that have none."""
    site = net.origin(RULES)

    crawl(
        [f"{site.url}/open"],
        {"ROBOTS_GUARD_USER_AGENT": "mybot-robots/1.0", "USER_AGENT": "mybot/1.0"},
    )

    assert [request.headers["user-agent"] for request in site.received] == [
        "mybot-robots/1.0",
        "mybot/1.0",
    ]


def test_h14_robots_txt_never_comes_from_scrapys_cache(net, tmp_path):
    """H14.

    Built-in: robots.txt is served from HTTPCACHE for ever, a cached 500 too, which allows all for
    ever.
    """
    answers = [Reply(status=500), Reply(body=RULES)]
    site = net.origin(lambda request: answers[min(len(site.robots_fetches), 2) - 1])
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}

    first = crawl([f"{site.url}/private/x"], cache)
    second = crawl([f"{site.url}/private/x", f"{site.url}/open"], cache)

    assert first.verdict(f"{site.url}/private/x") == ("defer", "unreachable")
    assert second.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert site.targets == ["/open"]
    assert len(site.robots_fetches) == 2


def test_h16_a_second_process_fetches_nothing(net, tmp_path):
    """H16. Built-in: every process and every resumed job fetches everything again."""
    site = net.origin(RULES)
    shared = {"ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path / 'policies.sqlite'}"}

    crawl([f"{site.url}/a"], shared)
    again = crawl([f"{site.url}/b", f"{site.url}/private/x"], shared)

    assert len(site.robots_fetches) == 1
    assert site.targets == ["/a", "/b"]
    assert again.stats.get("robots_guard/fetch/count", 0) == 0
    assert again.verdict(f"{site.url}/private/x") == ("drop", "disallowed")


def test_h17_a_default_port_makes_no_other_origin(net):
    """H17. Built-in: it fetches twice, for http://h/ and for http://h:80/."""
    try:
        site = net.origin(RULES, address="127.2.17.1", port=80)
    except OSError as error:  # not root, or a server that listens on port 80 of every address
        lacking(f"port 80 of 127.2.17.1 cannot be listened on: {error.strerror}")

    done = crawl(
        [
            f"http://{site.address}/a",
            f"http://{site.address}:80/b",
            f"http://{site.address}:80/private/c",
        ]
    )

    assert len(site.robots_fetches) == 1
    assert sorted(site.targets) == ["/a", "/b"]
    assert done.verdict(f"http://{site.address}:80/private/c") == ("drop", "disallowed")


def test_h18_userinfo_is_ignored(net):
    """H18. Built-in: ValueError in its fetch of http://u:p@h/robots.txt, then allowed."""
    site = net.origin(RULES)
    url = f"http://u:p@{site.address}:{site.port}"

    done = crawl([f"{url}/private/x", f"{url}/open"], {"ROBOTS_GUARD_AUDIT": "all"})

    assert done.verdict(f"{url}/private/x") == ("drop", "disallowed")
    assert done.record(f"{site.url}/open")["reason"] == "allowed", (
        "Scrapy's own downloader may then refuse such a URL"
    )
    assert len(site.robots_fetches) == 1
    assert "authorization" not in site.robots_fetches[0].headers
    assert site.pages_matching("/private/") == []


def test_h19_other_schemes_are_not_governed(net, tmp_path):
    """H19. Built-in: it tries to fetch ftp://h/robots.txt and s3://bucket/robots.txt."""
    page = tmp_path / "page.txt"
    page.write_text("x")

    done = crawl(["data:,hello", page.as_uri(), "ftp://127.1.250.250:9/x"])

    assert done["data:,hello"]["status"] == 200
    assert done[page.as_uri()]["status"] == 200
    assert done["ftp://127.1.250.250:9/x"]["error"] not in ("RobotsDisallowed", "RobotsDeferred")
    assert done.stats["robots_guard/pass/not-governed"] == 3
    assert "robotstxt/request_count" not in done.stats


def test_h20_a_failed_fetch_is_logged_under_its_own_url(net):
    """H20. Built-in: "Error downloading <GET .../private/x>", which names the page."""
    done = crawl(["http://127.1.250.250:9/private/x"])

    warnings = [line for line in done.log.splitlines() if "WARNING" in line]
    assert len(warnings) >= 1
    assert "http://127.1.250.250:9/robots.txt could not be fetched: connect" in warnings[0]
    assert "Traceback" not in done.log


@pytest.mark.parametrize("bypass", ["audit", "deny"])
def test_h22_dont_obey_robotstxt_leaves_a_trace_or_has_no_effect(net, bypass):
    """H22. Built-in: a request with the key passes without a trace."""
    site = net.origin(RULES)
    url = f"{site.url}/private/x"

    done = crawl(
        [
            {"url": url, "key": key, "meta": {"dont_obey_robotstxt": True}, "dont_filter": True}
            for key in ("first", "second")
        ],
        {"ROBOTS_GUARD_META_BYPASS": bypass},
    )

    record = done.record(url)
    (warning,) = [line for line in done.log.splitlines() if "dont_obey_robotstxt in a" in line]
    assert "WARNING" in warning
    assert url in warning
    if bypass == "audit":
        assert "set ROBOTS_GUARD_META_BYPASS = 'deny'" in warning
        assert site.targets == ["/private/x"] * 2
        assert (record["action"], record["reason"], record["relaxed"]) == (
            "pass",
            "bypassed",
            "dont_obey_robotstxt",
        )
        assert done.stats["robots_guard/pass/bypassed"] == 2
    else:
        assert "has no effect" in warning
        assert site.targets == []
        assert (record["action"], record["reason"]) == ("drop", "disallowed")


def test_h23_a_refusal_names_its_rule_and_line(net):
    """H23. Built-in: IgnoreRequest("Forbidden by robots.txt"), and one DEBUG line."""
    site = net.origin("# rules\nUser-agent: mybot\nDisallow: /private/\nAllow: /\n")
    url = f"{site.url}/private/x"

    done = crawl(
        [{"url": url, "headers": {"User-Agent": "MyBot/2.0"}}], {"ROBOTS_GUARD_AUDIT": "all"}
    )

    assert (done[url]["error"], done[url]["rule"], done[url]["line"]) == (
        "RobotsDisallowed",
        "Disallow: /private/",
        3,
    )
    assert "line 3 of its robots.txt says 'Disallow: /private/'" in done[url]["message"]
    record = done.record(url)
    expected = {
        "component": "scrapy",
        "agent": "mybot",
        "user_agent": "MyBot/2.0",
        "client": "plan",
        "group": "mybot",
        "line": 3,
        "via": "scrapy",
        "source": "memory",  # fetched while the request waited in the queue
    }
    assert {name: record[name] for name in expected} == expected
    assert done.stats["robots_guard/drop/disallowed"] == done.stats["robotstxt/forbidden"] == 1
    assert done.stats["robotstxt/request_count"] == done.stats["robotstxt/response_count"] == 1
    assert done.stats["robotstxt/response_status_count/200"] == 1


def test_h24_scrapy_fetch_logs_why_its_output_is_empty(net, tmp_path):
    """H24. Built-in: empty output, no message at the default level of most logs, exit status 0."""
    site = net.origin(RULES)
    settings = {
        "ADDONS": '{"robots_guard.scrapy.Addon": 500}',
        "ROBOTS_GUARD_AGENT": "mybot",
        "ROBOTS_GUARD_STORE": "memory:",
        "ROBOTS_GUARD_AUDIT_LOG": str(tmp_path),
    }
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]

    child = run_python(
        "-m", "scrapy", "fetch", "-L", "WARNING", *options, f"{site.url}/private/x", cwd=tmp_path
    )

    assert child.returncode == 0
    assert child.stdout == ""
    assert "WARNING: drop (disallowed)" in child.stderr
    assert "line 2 of its robots.txt says 'Disallow: /private/'" in child.stderr
    assert site.targets == []


def test_h25_h26_odd_files_are_read_as_documented(net):
    """H25: the built-in finds no rule in UTF-16 and allows all; the guard decodes by the byte order
    mark.

    H26: both parse an HTML page with status 200; the guard finds no rule in it, and the audit log
    shows what it was.
    """
    wide = net.origin(Reply(body=codecs.BOM_UTF16_LE + RULES.encode("utf-16-le")))
    html = net.origin(
        Reply(
            body="<html><body>Not found\n</body></html>", headers=(("Content-Type", "text/html"),)
        ),
    )

    done = crawl([f"{wide.url}/private/x", f"{wide.url}/open", f"{html.url}/private/x"])

    assert wide.targets == ["/open"]
    assert html.targets == ["/private/x"]
    assert done.verdict(f"{wide.url}/private/x") == ("drop", "disallowed")


def test_h28_other_requests_survive_the_cancellation_of_the_first(net):
    """H28.

    Built-in: a task cancelled while it owns the fetch leaves a Deferred that never fires: the host
    hangs.
    """
    site = net.origin(Reply(body=RULES, delay=0.8))

    done = crawl(
        [
            {"url": f"{site.url}/first", "inline": True, "cancelled": 0.2},
            f"{site.url}/second",
            f"{site.url}/private/third",
        ],
        timeout=60,
    )

    assert done[f"{site.url}/first"]["error"] == "TimeoutError"
    assert site.targets == ["/second"]
    assert done.verdict(f"{site.url}/private/third") == ("drop", "disallowed")
    assert len(site.robots_fetches) == 1


def test_h28_a_cancelled_fetch_is_a_failure_and_not_a_hang(net):
    """H28, from inside: the task that fetches is itself cancelled by a component."""
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/open"],
        {"DOWNLOADER_MIDDLEWARES": {"integrations.scrapy.components.CancelsRobots": 200}},
        timeout=60,
    )

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert site.received == []


def test_a_wrong_or_double_host_field_is_refused(net):
    """A different origin from the judged one would answer."""
    site = net.origin(RULES)
    same = f"{site.address}:{site.port}"

    done = crawl(
        [
            {"url": f"{site.url}/1", "headers": {"Host": "elsewhere.test"}},
            {"url": f"{site.url}/2", "headers": {"Host": [same, same]}},
            {"url": f"{site.url}/3", "headers": {"Host": same}},
            {
                "url": f"{site.url}/4",
                "headers": {"Host": "bad host"},
                "meta": {"dont_obey_robotstxt": True},
            },
            "http://1.2.3.4.5/x",
            "http:///x",
        ]
    )

    reasons = {url.rpartition("/")[2]: done.verdict(url) for url in done.results if site.url in url}
    refused = ("drop", "ambiguous-authority")
    assert reasons == {"1": refused, "2": refused, "3": ("pass", None), "4": refused}
    assert (
        done.verdict("http://1.2.3.4.5/x")
        == done.verdict("http:///x")
        == ("drop", "malformed-target")
    )
    assert site.targets == ["/3"]


def _log_level(line: str) -> int:
    return logging.getLevelName(line.split("] ")[1].partition(":")[0])


def test_the_first_refusal_is_a_warning_and_the_rest_are_not(net):
    site = net.origin(lambda request: Reply(body=RULES))

    done = crawl([f"{site.url}/private/{number}" for number in range(5)])

    levels = [_log_level(line) for line in done.log.splitlines() if "drop (disallowed)" in line]
    assert sorted(levels) == [logging.DEBUG] * 4 + [logging.WARNING]
    assert isinstance(site.received[0], Received)
