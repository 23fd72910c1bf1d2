"""How robots.txt is fetched through the crawler's own downloader: bounded, bare, and failing
closed."""

from __future__ import annotations

import gzip
import ssl
from importlib.util import find_spec

import pytest
from integrations.mitmproxy.h2_site import h2_site
from integrations.scrapy.crawl import MODES, SCRAPY, crawl
from OpenSSL import SSL
from scrapy.exceptions import IgnoreRequest
from scrapy.settings import Settings
from twisted.internet import error as twisted_error
from twisted.python.failure import Failure as TwistedFailure
from twisted.web.client import ResponseFailed

from robots_guard.decisions.access import Failure
from robots_guard.guard.stores import open_store
from robots_guard.origin import origin_of
from robots_guard.scrapy.fetch.fetcher import failure_of
from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
SHORT = {"ROBOTS_GUARD_FETCH_TIMEOUT": 4}
VERIFYING = (
    {"DOWNLOAD_VERIFY_CERTIFICATES": True}
    if "DOWNLOAD_VERIFY_CERTIFICATES" in Settings()
    else {
        "DOWNLOADER_CLIENTCONTEXTFACTORY": "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
    }
)


def with_settings(mode: str, settings: dict) -> dict:
    return MODES[mode] | {"settings": MODES[mode]["settings"] | settings}


def compressed(body: bytes, *, coding: str = "gzip") -> Reply:
    return Reply(body=body, headers=(("Content-Encoding", coding),))


@pytest.mark.parametrize("mode", MODES)
def test_every_limit_holds_on_every_reactor(net, mode):
    """One crawl per reactor: slow, endless, truncated and compressed files, and decompression
    bombs."""
    filler = RULES + "Disallow: /filler/\n" * 100_000
    sites = {
        "dripping": net.origin(Reply(body=RULES, drip=0.5)),
        "compressed": net.origin(compressed(gzip.compress(RULES.encode()))),
        "compressed and long": net.origin(compressed(gzip.compress(filler.encode()))),
        "bomb": net.origin(compressed(gzip.compress(RULES.encode() + bytes(40_000_000)))),
        "endless": net.origin(Reply(body=filler * 5, cut=True)),
        "not what it says": net.origin(compressed(RULES.encode())),
        "unknown coding": net.origin(compressed(RULES.encode(), coding="x-none")),
        "empty": net.origin(""),
        "no content": net.origin(Reply(status=204)),
    }
    pages = [f"{site.url}/{page}" for site in sites.values() for page in ("open", "private/x")]

    done = crawl(pages, **with_settings(mode, SHORT | {"ROBOTS_GUARD_MAX_DEFER": 0}))

    read, free = ["compressed", "compressed and long", "bomb", "endless"], ["empty", "no content"]
    assert {name: " ".join(sorted(site.targets)) for name, site in sites.items()} == {
        **dict.fromkeys(sites, ""),
        **dict.fromkeys(read, "/open"),
        **dict.fromkeys(free, "/open /private/x"),
    }
    for name in sites.keys() - {*read, *free}:
        assert done.verdict(f"{sites[name].url}/open") == ("drop", "unreachable"), name
    assert all(len(site.robots_fetches) == 1 for site in sites.values())


@pytest.mark.parametrize("packs", [False, True])
def test_a_handler_that_returns_less_than_the_framing_delimits_is_not_trusted(net, packs):
    site = net.origin(compressed(gzip.compress(RULES.encode())) if packs else RULES)
    handler = {"DOWNLOAD_HANDLERS": {"http": "integrations.scrapy.components.ShorteningHandler"}}

    done = crawl([f"{site.url}/open"], handler | {"ROBOTS_GUARD_MAX_DEFER": 0})

    assert done.verdict(f"{site.url}/open") == ("drop", "unreachable")
    assert site.targets == []


@pytest.mark.parametrize("component", ["StopsAtHeaders", "StopsAtBytes"])
@pytest.mark.parametrize("mode", ["asyncio reactor", "epoll reactor"])
def test_a_component_that_stops_downloads_does_not_stop_the_guards_fetch(net, mode, component):
    """The rule that matters is the last in a file of several packets."""
    filler = "User-agent: *\n" + "Disallow: /filler/\n" * 15_000 + "Disallow: /private/\n"
    site = net.origin(filler)
    extension = {"EXTENSIONS": {f"integrations.scrapy.components.{component}": 0}}

    done = crawl([f"{site.url}/private/x"], **with_settings(mode, extension))

    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert site.targets == []


# -- download handlers whose connections cannot be watched -----------------------------------------

HTTPX = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"
AIOHTTP = "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"
OPAQUE = [path for path in (HTTPX, AIOHTTP) if find_spec(path.rpartition(".")[0])]
PART, REST = b"User-agent: *\nDisallow: /x/\n", b"Disallow: /private/\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
CHUNKS = b"1c\r\n" + PART + b"\r\n0\r\n\r\n"
DOUBTFUL = {
    "longer than its length": Reply(
        raw=b"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + PART + REST
    ),
    "bytes behind the last chunk": Reply(raw=CHUNKED + b"\r\n" + CHUNKS + REST),
    "chunks and a length": Reply(raw=CHUNKED + b"Content-Length: 28\r\n\r\n" + CHUNKS),
    "TLS without close_notify": Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + PART, unannounced=True),
}


def by(handler: str) -> dict:
    return {"DOWNLOAD_HANDLERS": dict.fromkeys(("http", "https"), handler)}


@pytest.mark.parametrize("handler", OPAQUE)
def test_an_ambiguous_response_is_refused_with_every_library(net, authority, handler):
    sites = {
        name: net.origin(reply, tls=authority("127.0.0.1") if name.startswith("TLS") else None)
        for name, reply in DOUBTFUL.items()
    }
    whole = net.origin(RULES)

    done = crawl([f"{site.url}/private/x" for site in (*sites.values(), whole)], by(handler))

    for name, site in sites.items():
        assert done.verdict(f"{site.url}/private/x") == ("defer", "unreachable"), name
        assert done.record(f"{site.url}/private/x")["failure"] == "protocol", name
        assert site.targets == []
    assert done.verdict(f"{whole.url}/private/x") == ("drop", "disallowed")
    assert len(whole.robots_fetches) == 1


@pytest.mark.parametrize("handler", OPAQUE)
def test_with_another_library_robots_txt_takes_the_pages_route(net, handler):
    """By the same proxy, with the same credentials and User-Agent."""
    nowhere = "http://127.1.250.250:9999"
    proxy = net.origin("", {f"{nowhere}/robots.txt": Reply(body=RULES)})
    through = {"proxy": proxy.url.replace("://", "://me:secret@")}
    as_bot = {"User-Agent": "MyBot/2.0"}

    done = crawl([{"url": f"{nowhere}/{page}", "meta": through, "headers": as_bot} for page in ("open", "private/x")],
                 by(handler))  # fmt: skip

    assert [request.target for request in proxy.received] == [
        f"{nowhere}/robots.txt",
        f"{nowhere}/open",
    ]
    robots, page = proxy.received
    for name in ("user-agent", "proxy-authorization"):
        assert robots.headers[name] == page.headers[name]
    assert done.verdict(f"{nowhere}/private/x") == ("drop", "disallowed")


@pytest.mark.parametrize("handler", OPAQUE)
def test_a_bind_address_of_another_library_is_not_bypassed(net, handler):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], by(handler) | {"DOWNLOAD_BIND_ADDRESS": "127.0.0.9"})

    assert done.record(f"{site.url}/open")["failure"] == "protocol"
    assert 'set ROBOTS_GUARD_FETCH = "direct"' in done.log
    assert site.received == []


@pytest.mark.skipif(
    SCRAPY < (2, 16), reason="its handlers for other libraries have no ciphers setting"
)
@pytest.mark.parametrize("handler", OPAQUE)
def test_with_another_library_robots_txt_uses_the_pages_tls_settings(net, authority, handler):
    """A site with old ciphers, which the crawl's settings permit."""
    old = "ECDHE-ECDSA-AES128-SHA"
    tls = authority("127.0.0.1")
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    tls.set_ciphers(old)
    site = net.origin(RULES, tls=tls)

    done = crawl(
        [f"{site.url}/open", f"{site.url}/private/x"],
        by(handler) | {"DOWNLOADER_CLIENT_TLS_CIPHERS": old},
    )

    assert done.verdict(f"{site.url}/open") == ("pass", None)
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert site.targets == ["/open"]


def test_a_response_of_an_opaque_handler_is_not_trusted(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], by("integrations.scrapy.components.OpaqueHandler"))

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert done.record(f"{site.url}/open")["failure"] == "protocol"
    assert (
        "integrations.scrapy.components.OpaqueHandler does not show where its response ends"
        in done.log
    )
    assert site.targets == []


@pytest.mark.skipif(HTTPX not in OPAQUE, reason="this Scrapy has no handler for httpx")
def test_a_content_length_that_does_not_delimit_the_body_lifts_no_limit(net):
    """Chunks delimit the body, whatever the length says (RFC 9112 section 6.3)."""
    chunk = b"10000\r\n" + b"Disallow: /aaaa\n" * 4096 + b"\r\n"
    head = CHUNKED + b"Content-Length: 28\r\n\r\n"
    site = net.origin(Reply(raw=head + chunk * 100 + b"0\r\n\r\n"))

    done = crawl([f"{site.url}/open"], by("integrations.scrapy.derived_handler.DerivedHandler"))

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert done.stats["downloader/response_bytes"] < 1_000_000
    assert site.targets == []


@pytest.mark.skipif(
    SCRAPY < (2, 15), reason="the HTTP/2 handler of Scrapy 2.14 fails with today's Twisted"
)
def test_a_response_over_http2_is_delimited_by_its_frames(ca, tmp_path):
    """Such a connection is not watched either."""
    with h2_site(tmp_path, ca, "127.0.0.1") as site:
        handler = {
            "DOWNLOAD_HANDLERS": {
                "https": "scrapy.core.downloader.handlers.http2.H2DownloadHandler"
            }
        }

        done = crawl([f"{site.url}/open", f"{site.url}/private/x"], handler)

    assert done.verdict(f"{site.url}/open") == ("pass", None)
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")


def test_a_direct_fetch_is_trusted_with_an_opaque_handler(net):
    site = net.origin(RULES)
    handler = by("integrations.scrapy.components.OpaqueHandler")

    done = crawl(
        [f"{site.url}/open", f"{site.url}/private/x"], handler | {"ROBOTS_GUARD_FETCH": "direct"}
    )

    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert site.targets == ["/open"]


@pytest.mark.parametrize("mode", ["asyncio reactor", "epoll reactor"])
def test_a_download_handler_that_never_responds_times_out(net, mode):
    """The guard has its own timeout: Scrapy's is applied by the handler, and this handler applies
    none."""
    site = net.origin(RULES)
    handler = {"DOWNLOAD_HANDLERS": {"http": "integrations.scrapy.components.HangingHandler"}}

    done = crawl([f"{site.url}/open"], **with_settings(mode, SHORT | handler), timeout=60)

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert done.record(f"{site.url}/open")["failure"] == "timeout"
    assert done[f"{site.url}/open"]["at"] >= 3
    assert site.received == []


FOLLOWS = {"DOWNLOAD_HANDLERS": {"http": "integrations.scrapy.components.FollowingHandler"}}


def test_a_redirect_that_a_download_handler_has_followed_is_judged(net, tmp_path):
    """A page that another site forbids is no robots.txt; if it were stored as one, a proxy would
    serve it."""
    other = net.origin(RULES, {"/private/x": Reply(body="a secret")})
    site = net.origin(Reply(status=301, headers=(("Location", f"{other.url}/private/x"),)))
    store = f"sqlite:///{tmp_path}/policies.sqlite"

    done = crawl([f"{site.url}/open"], FOLLOWS | {"ROBOTS_GUARD_STORE": store})

    assert done.verdict(f"{site.url}/open") == ("defer", "unreachable")
    assert done.record(f"{site.url}/open")["failure"] == "redirect-disallowed"
    led = done.record(f"{other.url}/private/x")
    assert (led["escaped"], led["led_by"]) == (True, f"{site.url}/robots.txt")
    assert done.stats["robots_guard/escaped"] == 1
    policies = open_store(store)
    assert policies.get(origin_of(site.url)) is None
    policies.close()


def test_a_download_handlers_redirect_to_another_robots_txt_is_accepted(net):
    other = net.origin(RULES)
    site = net.origin(Reply(status=301, headers=(("Location", f"{other.url}/robots.txt"),)))

    done = crawl([f"{site.url}/open", f"{site.url}/private/x"], FOLLOWS)

    assert done.verdict(f"{site.url}/open") == ("pass", None)
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")


@pytest.mark.parametrize("mode", MODES)
def test_a_redirect_to_another_sites_page_is_judged_on_every_reactor(net, mode):
    """Two sites redirect to another, which allows one of the targets; two more redirect to each
    other."""
    other = net.origin(RULES, {"/open.txt": Reply(body="User-agent: *\nDisallow: /page\n")})

    def led_to(url):
        return net.origin(lambda _: Reply(status=301, headers=(("Location", url()),)))

    may, may_not = led_to(lambda: f"{other.url}/open.txt"), led_to(lambda: f"{other.url}/private/x")
    left, right = led_to(lambda: f"{right.url}/x"), led_to(lambda: f"{left.url}/y")
    pages = [f"{site.url}/page" for site in (may, may_not, left, right)]

    done = crawl(pages, **with_settings(mode, {"ROBOTS_GUARD_AUDIT": "all"}))

    assert [done.verdict(page) for page in pages] == [
        ("drop", "disallowed"),
        *[("defer", "unreachable")] * 3,
    ]
    assert other.targets == ["/open.txt"]
    assert len(other.robots_fetches) == 1
    assert left.targets == right.targets == []
    judged = {
        each["url"]: (each["action"], each["robots_txt_of"])
        for each in done.records
        if "robots_txt_of" in each
    }
    assert judged[f"{other.url}/open.txt"] == ("pass", may.url)
    assert judged[f"{other.url}/private/x"] == ("drop", may_not.url)


def test_no_credentials_or_cookies_are_sent(net):
    """Fields that the project sends with its pages are left out."""
    site = net.origin(RULES)
    headers = {"Authorization": "Bearer secret", "Cookie": "sid=secret", "Accept": "text/html"}

    crawl(
        [
            {"url": f"{site.url}/{n}", "headers": {"Authorization": "Basic dTpw"} if n else {}}
            for n in range(2)
        ],
        {"DEFAULT_REQUEST_HEADERS": headers},
    )

    robots, *pages = site.received
    assert robots.target == "/robots.txt"
    assert "authorization" not in robots.headers
    assert "cookie" not in robots.headers
    assert all("authorization" in page.headers for page in pages)


def test_a_body_that_scrapy_leaves_compressed_is_decompressed(net):
    """COMPRESSION_ENABLED=False disables Scrapy's decompression; an origin may compress all the
    same."""
    site = net.origin(compressed(gzip.compress(RULES.encode())))

    crawl([f"{site.url}/private/x", f"{site.url}/open"], {"COMPRESSION_ENABLED": False})

    assert site.targets == ["/open"]


def test_pages_have_no_signal_receivers(net):
    """Those of the guard have a sender of their own."""
    site = net.origin(RULES)

    done = crawl(
        [f"{site.url}/a"], {"EXTENSIONS": {"integrations.scrapy.components.CountsReceivers": 0}}
    )

    assert done.stats["receivers/at the page"] == 0
    assert "receivers/at robots.txt" not in done.stats


def test_tls_is_verified_if_the_crawl_verifies_it(net, ca, authority, tmp_path):
    """A policy from a crawl without verification is a miss for one with it; a false certificate is
    a failure."""
    site = net.origin(RULES, tls=authority("127.2.30.1"), address="127.2.30.1")
    other = net.origin(RULES, tls=authority("example.test"))
    shared = {"ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path / 'policies.sqlite'}"}
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    env = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}

    careless = crawl([f"{site.url}/private/x", f"{other.url}/private/x"], shared)
    again = crawl([f"{site.url}/private/x"], shared)
    careful = crawl(
        [f"{site.url}/private/y", f"{site.url}/open", f"{other.url}/open"],
        {**shared, **VERIFYING},
        env=env,
    )

    assert careless.record(f"{site.url}/private/x")["tls_verified"] is False
    # without a fetch, see below
    assert again.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert careful.record(f"{site.url}/private/y")["tls_verified"] is True
    assert len(site.robots_fetches) == 2
    assert site.targets == ["/open"]
    assert careful.verdict(f"{other.url}/open") == ("defer", "unreachable")
    assert careful.record(f"{other.url}/open")["failure"] == "tls"
    assert other.targets == []


def with_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def scrapy_error(name: str, *bases: type) -> Exception:
    """An exception of Scrapy 2.15 and later, which 2.14 does not have."""
    return type(name, bases or (Exception,), {})()


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (IgnoreRequest("x"), Failure.REFUSED),
        (scrapy_error("DownloadTimeoutError"), Failure.TIMEOUT),
        (TimeoutError(), Failure.TIMEOUT),
        (twisted_error.TimeoutError(), Failure.TIMEOUT),
        (twisted_error.TCPTimedOutError(), Failure.CONNECT),
        (twisted_error.ConnectionRefusedError(), Failure.CONNECT),
        (scrapy_error("CannotResolveHostError"), Failure.DNS),
        (twisted_error.DNSLookupError(), Failure.DNS),
        (ResponseFailed([TwistedFailure(twisted_error.ConnectionLost())]), Failure.RESET),
        (
            ResponseFailed([TwistedFailure(SSL.Error([("x", "y", "certificate verify failed")]))]),
            Failure.TLS,
        ),
        (
            with_cause(scrapy_error("DownloadFailedError"), ssl.SSLCertVerificationError("x")),
            Failure.TLS,
        ),
        (
            with_cause(scrapy_error("DownloadConnectionRefusedError"), OSError(111, "refused")),
            Failure.CONNECT,
        ),
        (scrapy_error("ResponseDataLossError"), Failure.PROTOCOL),
        (ResponseFailed([TwistedFailure(scrapy_error("_DataLoss"))]), Failure.PROTOCOL),
        (ValueError("not a URL"), Failure.PROTOCOL),
        (scrapy_error("TunnelError"), Failure.CONNECT),
        (ZeroDivisionError(), Failure.INTERNAL),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_exceptions_are_classified(error, failure):
    assert failure_of(error) is failure


# -- in a download slot where requests wait --------------------------------------------------------

ONE_AT_A_TIME = {
    "ROBOTS_GUARD_FETCH_TIMEOUT": 5,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
}
ONE_SLOT = {"download_slot": "one for all"}


def moved(location: str) -> Reply:
    return Reply(status=301, headers=(("Location", location),))


@pytest.mark.parametrize("mode", MODES)
def test_the_wait_for_the_download_slot_does_not_count_towards_the_timeout(net, mode):
    """DOWNLOAD_DELAY exceeds the timeout of a fetch, which does not make the site unreachable."""
    first, second = net.origin(RULES), net.origin(RULES)
    pages = [f"{first.url}/a", f"{second.url}/b", f"{second.url}/private/c"]

    done = crawl(
        [{"url": page, "meta": ONE_SLOT} for page in pages],
        **with_settings(mode, ONE_AT_A_TIME | {"DOWNLOAD_DELAY": 4}),
    )

    assert [done[page].get("status") for page in pages[:2]] == [200, 200]
    assert done.verdict(pages[2]) == ("drop", "disallowed")
    assert len(first.robots_fetches) == len(second.robots_fetches) == 1


def test_the_wait_of_every_redirect_hop_does_not_count_towards_the_timeout(net):
    """All hops together may take 5 s, and wait 12 s in the slot. A page that is deferred meanwhile
    goes on when they have arrived."""
    last = net.origin(RULES)
    second = net.origin(moved(f"{last.url}/robots.txt"))
    first = net.origin(moved(f"{second.url}/robots.txt"))
    pages = [f"{last.url}/a", f"{first.url}/b"]

    done = crawl(
        [{"url": page, "meta": ONE_SLOT} for page in pages],
        ONE_AT_A_TIME | {"DOWNLOAD_DELAY": 4},
        see_through=True,
    )

    assert [done[page].get("status") for page in pages] == [200, 200]
    assert [len(site.robots_fetches) for site in (first, second)] == [1, 1]


def test_a_slow_page_in_the_slot_makes_no_robots_txt_unreachable(net):
    """Once a fetch is sent, its timeout applies as usual."""
    slow = net.origin(
        RULES, {"/": Reply(headers=(("Content-Type", "text/html"),)), "/slow": Reply(delay=6)}
    )
    site, hung = net.origin(RULES), net.origin(Reply(hang=True))
    pages = [f"{slow.url}/slow", f"{site.url}/b", f"{hung.url}/c"]

    done = crawl(
        [{"url": f"{slow.url}/", "meta": ONE_SLOT}],
        ONE_AT_A_TIME,
        follow={f"{slow.url}/": pages},
        spider={"meta": ONE_SLOT},
    )

    assert [done[page].get("status") for page in pages[:2]] == [200, 200]
    assert done.verdict(pages[2]) == ("defer", "unreachable")
    assert done.record(pages[2])["failure"] == "timeout"


def test_a_connection_that_has_carried_a_page_is_watched(net):
    """The page needs no robots.txt, so the crawl's first fetch of one reuses an open connection."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\n"
    site = net.origin(Reply(raw=f"{head}{RULES}".encode()))
    exempt = {"url": f"{site.url}/first", "meta": {"dont_obey_robotstxt": True}, "inline": True}

    done = crawl([exempt, f"{site.url}/private/x"])

    assert done.verdict(f"{site.url}/private/x") == ("defer", "unreachable")
    assert site.targets == ["/first"]
    assert site.connections == 1
