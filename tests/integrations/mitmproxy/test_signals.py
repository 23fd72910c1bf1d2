"""What a site states of the use of its content, through real proxies."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import subprocess
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from integrations.mitmproxy.origin import Reply
from integrations.mitmproxy.process import Integration
from integrations.mitmproxy.stating_site import StatingSite, stating_site
from integrations.mitmproxy.wire import plain, tunnel
from support.audit_log import signals
from support.programs import program
from support.waiting import eventually

HTML = ("Content-Type", "text/html; charset=utf-8")
NOAI = ("X-Robots-Tag", "noai")
META_NOAI = b'<!doctype html><meta name="robots" content="noai"><title>page</title>'
PAGE = b"<!doctype html><title>page</title><p>words"
VERSIONS = ("--http1.1", "--http2")
LIMIT = 65536


class Got(NamedTuple):
    """What curl has received."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name.lower()]

    @property
    def signals(self) -> str:
        return ", ".join(self.all("robots-guard-signals"))

    @property
    def guard(self) -> str:
        return ", ".join(self.all("robots-guard"))


def curl(proxy: Integration, url: str, *options: str, check: bool = True) -> Got:
    """A request of curl through a proxy. Further URLs in `options` are requested after it."""
    command = [program("curl"), "-sS", "-i", "--max-time", "60", "--suppress-connect-headers"]
    command += ["-x", proxy.url, "--cacert", str(proxy.ca), url, *options]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    rest = done.stdout
    while True:
        head, _, rest = rest.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        number = int(status.split()[1]) if status else 0
        if not 100 <= number < 200:
            break
    fields = [line.partition(":")[::2] for line in lines]
    return Got(number, [(name.lower(), value.strip()) for name, value in fields], rest)


@pytest.fixture(scope="module")
def stating(authority, tmp_path_factory) -> Iterator[StatingSite]:
    with stating_site(tmp_path_factory.mktemp("stating"), authority, "127.3.252.1") as site:
        yield site


@pytest.fixture(scope="module")
def trainers(start) -> Iterator[dict[str, Integration]]:
    """Proxies of a crawler that collects training data."""
    with contextlib.ExitStack() as stack:
        yield {
            kind: stack.enter_context(start(kind, purposes="ai-train"))
            for kind in ("mitmdump", "proxy")
        }


@pytest.fixture(params=["mitmdump", "proxy"])
def trainer(request, trainers) -> Integration:
    return trainers[request.param]


@pytest.fixture(scope="module")
def recorder(start) -> Iterator[Integration]:
    """A proxy without declared purposes."""
    with start("proxy") as integration:
        yield integration


def fetch(proxy: Integration, site: StatingSite, target: str, *options: str, **more) -> Got:
    return curl(proxy, f"https://{site.authority}{target}", *options, **more)


def signal_records(proxy: Integration, target: str) -> list[dict]:
    found = signals(proxy.folder / "audit_log")
    return [each for each in found if each["url"].endswith(target)]


# -- refused by the header fields -----------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_replaces_the_whole_response(trainer, stating, version):
    fields = [
        HTML,
        NOAI,
        ("ETag", '"abc"'),
        ("Set-Cookie", "a=b"),
        ("Link", "</a.css>; rel=preload"),
        ("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT"),
    ]
    target = stating.target(PAGE, headers=fields)
    got = fetch(trainer, stating, target, version)
    assert got.status == 403
    assert got.guard.startswith("drop; reason=usage-reserved")
    assert got.signals == 'ai-input=n;s="x-robots-tag", ai-train=n;s="x-robots-tag"'
    assert got.all("content-type") == ["application/problem+json"]
    for name in ("etag", "set-cookie", "link", "last-modified", "x-robots-tag"):
        assert got.all(name) == []
    problem = json.loads(got.body)
    assert (problem["reason"], problem["purposes"]) == ("usage-reserved", ["ai-train"])
    because = "ai-train: x-robots-tag (header) says x-robots-tag: noai"
    assert problem["because"].lower() == because
    assert got.all("content-length") == [str(len(got.body))]


def test_a_browser_gets_a_page(trainers, stating):
    target = stating.target(PAGE, headers=[HTML, NOAI])
    got = fetch(trainers["proxy"], stating, target, "-H", "Accept: text/html")
    assert (got.status, got.all("content-type")) == (403, ["text/html; charset=utf-8"])
    assert b"x-robots-tag (header)" in got.body
    assert b"did not leave" not in got.body
    assert b"has not passed its answer on" in got.body
    number = got.guard.partition('id="')[2].rstrip('"')
    assert (
        b"x-robots-tag (header)"
        in curl(trainers["proxy"], f"http://robots.guard/why/{number}").body
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [[], [("Content-Length", str(10**9))]])
def test_a_large_refused_body_is_stopped(trainers, stating, version, length):
    target = stating.target(headers=[NOAI, *length], more=10**9)
    # The client stays until the proxy has read on: if it left, it would end the download itself.
    urls = [f"https://{stating.authority}{each}" for each in (target, stating.target(PAGE))]
    began = time.monotonic()
    got = curl(trainers["proxy"], urls[0], version, urls[1])
    assert (got.status, time.monotonic() - began < 5) == (403, True)
    end = stating.end_of(target)
    assert end["sent"] < 20_000_000
    assert (end["finished"], end["version"]) == (False, "2.0" if version == "--http2" else "1.1")
    if version == "--http2":
        assert end["code"] == 8  # CANCEL


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slow_refused_body_is_stopped(trainer, stating, version):
    target = stating.target(*[(0.5, b"x")] * 60, headers=[NOAI])
    got = fetch(trainer, stating, target, version)
    assert got.status == 403
    assert stating.end_of(target)["sent"] < 10


def test_a_small_refused_body_costs_no_connection(trainers, stating):
    targets = [stating.target(b"x" * 5000, headers=[NOAI]) for _ in range(5)]
    urls = [f"https://{stating.authority}{target}" for target in targets]
    curl(trainers["proxy"], urls[0], "--http1.1", *urls[1:])
    ends = [stating.end_of(target) for target in targets]
    assert [end["finished"] for end in ends] == [True] * 5
    assert ends[-1]["connections"] == ends[0]["connections"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_goes_on_after_a_stopped_body(trainer, stating, version):
    long, short = stating.target(headers=[NOAI], more=10**9), stating.target(PAGE)
    urls = [f"https://{stating.authority}{target}" for target in (long, short, long, short)]
    got = curl(trainer, urls[0], version, *urls[1:])
    assert got.status == 403
    assert got.body.count(PAGE) == 2
    assert got.body.count(b"usage-reserved") >= 2


def test_head_and_304_are_judged_by_their_fields(trainer, stating):
    for options, page in ((["-I"], {}), ([], {"status": 304})):
        got = fetch(trainer, stating, stating.target(headers=[NOAI], **page), *options)
        assert (got.status, "reason=usage-reserved" in got.guard) == (403, True)
        assert (got.body == b"") is bool(options)
        passed = fetch(trainer, stating, stating.target(headers=[HTML], **page), *options)
        assert passed.status == page.get("status", 200)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_brings_no_content_is_recorded_only(trainers, stating, status):
    target = stating.target(PAGE, status=status, headers=[HTML, NOAI])
    got = fetch(trainers["proxy"], stating, target)
    assert (got.status, got.body, got.guard) == (status, PAGE, "")
    assert got.signals.startswith("ai-input=n")


def test_a_price_is_passed_on(trainers, stating):
    target = stating.target(b"pay", status=402, headers=[("crawler-price", "USD 0.01")])
    got = fetch(trainers["proxy"], stating, target)
    assert (got.status, got.body, got.all("crawler-price")) == (402, b"pay", ["USD 0.01"])
    (record,) = signal_records(trainers["proxy"], target)
    assert (record["action"], record["reason"]) == ("pass", "payment-required")


# -- refused by the page --------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [True, False])
def test_a_meta_refuses_a_page(trainer, stating, version, length):
    fields = [HTML, ("ETag", '"a"')] + [("Content-Length", str(len(META_NOAI)))] * length
    target = stating.target(META_NOAI, headers=fields)
    got = fetch(trainer, stating, target, version)
    assert (got.status, got.all("etag")) == (403, [])
    assert 'ai-train=n;s="meta-robots";p="page"' in got.signals
    assert json.loads(got.body)["because"].startswith("ai-train: meta-robots (page) says")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_that_passes_is_not_changed(trainer, stating, version):
    body = PAGE + bytes(range(256)) * 4000  # longer than the limit
    for each in (PAGE, body[:LIMIT], body):
        target = stating.target(each[:100], each[100:], headers=[HTML, ("ETag", '"a"')])
        got = fetch(trainer, stating, target, version)
        assert (got.status, got.body == each, got.all("etag")) == (200, True, ['"a"'])
        assert got.signals == ("" if len(each) <= LIMIT else "incomplete")


def library(*names: str) -> Any:
    """The first of these libraries that is installed."""
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise AssertionError(f"mitmproxy has brought none of {names}")


brotli = library("brotli")
zstd = library("compression.zstd", "backports.zstd", "zstandard")
CODINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
if hasattr(brotli.Decompressor, "can_accept_more_data"):  # 1.2; mitmproxy 11 demands an older one
    CODINGS["br"] = brotli.compress


@pytest.mark.parametrize("coding", CODINGS)
def test_an_encoded_page_is_decoded(trainer, stating, coding):
    fields = [HTML, ("Content-Encoding", coding)]
    refused = stating.target(CODINGS[coding](META_NOAI + b" " * 5000), headers=fields)
    assert fetch(trainer, stating, refused).status == 403
    packed = CODINGS[coding](PAGE)
    got = fetch(trainer, stating, stating.target(packed, headers=fields))
    assert (got.status, got.body, got.signals) == (200, packed, "")


@pytest.mark.parametrize(
    "kind", ["text/html charset=utf-8", "text / html", "text/html/", "text/html=", "text/"]
)
def test_a_type_that_is_not_readable_hides_no_page(trainers, stating, kind):
    target = stating.target(META_NOAI, headers=[("Content-Type", kind)])
    assert fetch(trainers["proxy"], stating, target).status == 403


@pytest.mark.parametrize("coding", ["rot13", "gzip, gzip", "br"])
def test_an_unknown_coding_is_passed_on_unread(trainer, stating, coding):
    body = brotli.compress(META_NOAI) if coding == "br" else META_NOAI
    target = stating.target(body, headers=[HTML, ("Content-Encoding", coding)])
    got = fetch(trainer, stating, target)
    if coding in CODINGS:
        assert got.status == 403
        return
    assert (got.status, got.body, got.signals) == (200, body, "incomplete")
    (record,) = signal_records(trainer, target)
    assert (record["action"], record["incomplete"]) == ("pass", True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bomb_is_read_up_to_the_limit(trainers, stating, version):
    zeros = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(zeros.compress(bytes(10**6)) for _ in range(10))
    fields = [HTML, ("Content-Encoding", "gzip")]
    target = stating.target(bomb[:5000], headers=fields)  # of any length; 5 MB unpacked
    got = fetch(trainers["proxy"], stating, target, version)
    assert (got.status, got.body, got.signals) == (200, bomb[:5000], "incomplete")


def test_signals_beyond_the_limit_are_not_seen(trainer, stating):
    target = stating.target(PAGE + b" " * LIMIT + META_NOAI, headers=[HTML])
    got = fetch(trainer, stating, target)
    assert (got.status, got.signals) == (200, "incomplete")
    before = stating.target(META_NOAI + b" " * LIMIT * 3, headers=[HTML])
    assert fetch(trainer, stating, before).status == 403


@pytest.mark.parametrize("version", VERSIONS)
def test_a_long_page_that_is_refused_is_stopped(trainers, stating, version):
    target = stating.target(META_NOAI, headers=[HTML], more=10**9)
    assert fetch(trainers["proxy"], stating, target, version).status == 403
    assert stating.end_of(target)["sent"] < 20_000_000


def test_part_of_a_page_is_judged_by_what_it_states(trainer, stating):
    refused = stating.target(META_NOAI, status=206, headers=[HTML])
    assert fetch(trainer, stating, refused).status == 403
    got = fetch(trainer, stating, stating.target(PAGE, status=206, headers=[HTML]))
    assert (got.status, got.body, got.signals) == (206, PAGE, "incomplete")


def test_pages_are_read_to_be_recorded(start, stating):
    with start("proxy", purposes="ai-train", signals="record") as proxy:
        target = stating.target(META_NOAI, headers=[HTML])
        got = fetch(proxy, stating, target)
        assert (got.status, got.body) == (200, META_NOAI)
        assert 'ai-train=n;s="meta-robots";p="page"' in got.signals
        (record,) = signal_records(proxy, target)
        assert (record["action"], record["uses"]["ai-train"]) == ("pass", "deny")


def test_an_empty_page(trainer, stating):
    for fields in ([HTML], [HTML, ("Content-Length", "0")]):
        for version in VERSIONS:
            got = fetch(trainer, stating, stating.target(headers=fields), version)
            assert (got.status, got.body, got.signals) == (200, b"", "")


def test_a_page_that_breaks_off_is_an_error(trainers, sites):
    site = sites.start("http", pages={"/x": Reply(headers=(HTML,), body=META_NOAI, cut=True)})
    assert plain(trainers["proxy"], site.url + "/x").status == 502


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slow_page_is_held_for_a_bounded_time(trainers, stating, version):
    target = stating.target(PAGE, *[(0.5, b"x")] * 30, headers=[HTML])
    began = time.monotonic()
    got = fetch(trainers["proxy"], stating, target, version)
    assert (got.status, got.signals) == (200, "incomplete")
    assert got.body == PAGE + b"x" * 30
    assert time.monotonic() - began > 15


def test_a_silent_page_is_released(trainers, stating):
    target = stating.target(PAGE, (30, b"late"), headers=[HTML])
    got = fetch(trainers["proxy"], stating, target, "--max-time", "20", "-N", check=False)
    assert (got.status, got.body, got.signals) == (200, PAGE, "incomplete")


def test_clients_that_leave_release_what_is_held(start, stating):
    with start("proxy", purposes="ai-train", body_memory="150k") as proxy:
        fetch(proxy, stating, stating.target(PAGE))  # so that the second below is the page's
        for _ in range(6):
            target = stating.target(PAGE + b" " * 50_000, (30, b"x"), headers=[HTML])
            left = fetch(proxy, stating, target, "--max-time", "1", check=False)
            assert left.status == 0
            assert stating.end_of(target)["sent"] == len(PAGE) + 50_000
        held = stating.target(META_NOAI + b" " * 40_000, headers=[HTML])
        assert fetch(proxy, stating, held).status == 403


def test_pages_beyond_the_memory_are_not_read(start, stating):
    with start("proxy", purposes="ai-train", body_memory="20k") as proxy:
        target = stating.target(PAGE + b" " * 30_000, headers=[HTML])
        got = fetch(proxy, stating, target)
        assert (got.status, len(got.body), got.signals) == (200, len(PAGE) + 30_000, "incomplete")


# -- the field, and what is streamed --------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fields_of_a_site_are_removed(trainer, recorder, stating, version):
    fields = [
        ("Robots-Guard", "drop; reason=disallowed"),
        ("Robots-Guard-Signals", "search=y"),
        ("robots-guard-signals", "ai-train=y"),
    ]
    for proxy in (trainer, recorder):
        for page in ({}, {"status": 404}):
            target = stating.target(PAGE, headers=[HTML, *fields], **page)
            got = fetch(proxy, stating, target, version)
            assert (got.signals, got.all("robots-guard")) == ("", [])
    target = stating.target(PAGE, headers=[("X-Robots-Tag", "noindex"), *fields])
    assert fetch(recorder, stating, target, version).all("robots-guard-signals") == [
        'search=n;s="x-robots-tag", snippet=n;s="x-robots-tag", ai-index=n;s="x-robots-tag"'
    ]


def test_the_field_of_a_site_is_removed_if_signals_are_off(start, stating):
    fields = [("Robots-Guard", "defer"), ("Robots-Guard-Signals", "search=y"), NOAI]
    with start("proxy", signals="off") as proxy:
        got = fetch(proxy, stating, stating.target(PAGE, headers=[HTML, *fields]))
        assert (got.status, got.signals, got.all("robots-guard")) == (200, "", [])


def test_the_field_is_removed_from_interim_responses(recorder, stating):
    target = stating.target(PAGE, interim=[103])
    command = [program("curl"), "-sS", "-i", "--http2", "-x", recorder.url]
    command += ["--cacert", str(recorder.ca), f"https://{stating.authority}{target}"]
    done = subprocess.run(command, capture_output=True, check=True).stdout.lower()
    assert b" 103 " in done
    assert b"robots-guard" not in done


def test_the_field_is_removed_from_trailers(recorder, stating):
    sent = {"robots-guard": "drop", "robots-guard-signals": "search=y", "x-sum": "1"}
    target = stating.target(PAGE, trailers=sent)
    command = [program("curl"), "-sS", "-v", "--http2", "-x", recorder.url]
    command += ["--cacert", str(recorder.ca), f"https://{stating.authority}{target}"]
    done = subprocess.run(command, capture_output=True, check=True).stderr.lower()
    assert b"x-sum" in done
    assert b"robots-guard" not in done


def test_without_purposes_all_is_recorded_and_nothing_refused(recorder, stating):
    target = stating.target(META_NOAI, headers=[HTML, NOAI])
    got = fetch(recorder, stating, target)
    assert (got.status, got.body) == (200, META_NOAI)
    assert got.signals == 'ai-input=n;s="x-robots-tag", ai-train=n;s="x-robots-tag"'
    (record,) = signal_records(recorder, target)
    assert record["action"] == "pass"
    assert record["request"]


@pytest.mark.parametrize(
    ("kind", "content"),
    [("recorder", "text/html"), ("recorder", "text/plain"), ("trainer", "text/plain")],
)
def test_pages_that_are_not_needed_are_streamed(recorder, trainers, stating, kind, content):
    proxy = recorder if kind == "recorder" else trainers["proxy"]
    target = stating.target(
        b"first", (3, b"last"), headers=[("Content-Type", content), ("Content-Length", "9")]
    )
    with tunnel(proxy, stating.authority) as connection:
        head = f"GET {target} HTTP/1.1\r\nHost: {stating.authority}\r\n\r\n"
        connection.sendall(head.encode())
        got = b""
        while b"first" not in got:
            got += connection.recv(65536)
        assert not [each for each in stating.ended if each["path"] == target]
        while b"last" not in got:
            got += connection.recv(65536)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_body_limit_is_not_for_what_is_streamed(recorder, stating, version):
    size = 70 * 2**20  # the limit is 64 MiB
    target = stating.target(headers=[("Content-Length", str(size))], more=size)
    got = fetch(recorder, stating, target, version)
    assert (got.status, len(got.body)) == (200, size)


def test_one_record_for_a_refused_response(trainer, stating):
    for target in (
        stating.target(PAGE, headers=[HTML, NOAI]),
        stating.target(META_NOAI, headers=[HTML]),
    ):
        fetch(trainer, stating, target)
        (record,) = eventually(lambda target=target: signal_records(trainer, target))
        assert (record["action"], record["reason"]) == ("drop", "usage-reserved")
        assert record["request"] != record["id"]


def test_a_robots_txt_is_no_content(trainer, sites):
    fields = (("Content-Type", "text/plain"), ("X-Robots-Tag", "none, noai"))
    site = sites.start("http", Reply(headers=fields, body="User-agent: *\nDisallow: /p/\n"))
    got = curl(trainer, site.url + "/robots.txt")
    assert (got.status, got.body) == (200, b"User-agent: *\nDisallow: /p/\n")


# -- refused before the request -------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_a_robots_txt_refuses_the_request(trainers, sites, accept):
    robots = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n"
    site = sites.start("http", robots)
    got = curl(trainers["proxy"], site.url + "/page", "-H", f"Accept: {accept}")
    assert (got.status, "/page" in site.origin.targets) == (403, False)
    assert "reason=usage-reserved" in got.guard
    assert "line=2" in got.guard
    assert 'ai-train=n;s="content-signal";p="robots.txt"' in got.signals
    because = "ai-train: content-signal (line 2 of robots.txt) says"
    assert because.encode() in got.body
    assert b"Content-Signal: search=yes, ai-train=no" in got.body
    if accept == "application/json":
        assert json.loads(got.body)["line"] == 2


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_a_tdmrep_file_refuses_the_request(trainers, sites, accept):
    file = '[{"location": "/page", "tdm-reservation": 1}]'
    fields = (("Content-Type", "application/json"),)
    site = sites.start("http", pages={"/.well-known/tdmrep.json": Reply(headers=fields, body=file)})
    got = curl(trainers["proxy"], site.url + "/page", "-H", f"Accept: {accept}")
    assert (got.status, "/page" in site.origin.targets) == (403, False)
    assert 'ai-train=n;s="tdm-reservation";p="tdmrep.json"' in got.signals
    assert b"ai-train: tdm-reservation (tdmrep.json) says" in got.body
    assert curl(trainers["proxy"], site.url + "/other").status == 200


def test_what_a_robots_txt_permits_is_passed_on(recorder, sites):
    robots = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n"
    site = sites.start("http", robots)
    got = curl(recorder, site.url + "/page")
    assert got.status == 200
    assert 'search=y;s="content-signal";p="robots.txt"' in got.signals
    assert 'ai-train=n;s="content-signal";p="robots.txt"' in got.signals
