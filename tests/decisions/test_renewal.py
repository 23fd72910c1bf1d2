"""Renewals, run hop by hop: RFC 9309 section 2.3.1, without I/O or a clock."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from decisions.walking import walk

from robots_guard.decisions.access import Access, Failed, Failure, Fetched, Scope
from robots_guard.decisions.freshness import RETRY_MIN, UNTRIED, Freshness
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import Fetching, Redirected, Settled, begin
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import DIALECTS, dialect

A = origin_of("https://a.test")
NOW = 1_800_000_000.0
RFC = dialect("rfc9309")
YES = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
NO = Verdict(action=Action.DROP, reason=Reason.DISALLOWED)


def moved(url: str, status: int = 301) -> Fetched:
    return Fetched(status=status, headers={"location": url}, tls_verified=True)


def ok(body: bytes = b"User-agent: *\nDisallow: /", **headers: str) -> Fetched:
    return Fetched(status=200, body=body, headers=headers, tls_verified=True)


def settle(*outcomes, known=None, origin=A, now=NOW):
    last = walk(begin(origin, known, "direct"), *((outcome, now) for outcome in outcomes))[-1]
    assert isinstance(last, Settled)
    return last.policy


def test_a_file_becomes_a_document():
    policy = settle(ok(etag='"1"'))

    assert policy.origin == A
    assert policy.trouble is None
    assert policy.document.body == b"User-agent: *\nDisallow: /"
    assert policy.document.etag == '"1"'
    assert policy.document.fetched_at == NOW
    assert policy.document.tls_verified


def test_the_body_of_a_404_is_not_kept():
    document = settle(Fetched(status=404, body=b"User-agent: *\nDisallow: /")).document

    assert document.body == b""
    assert document.status == 404


@pytest.mark.parametrize("body", [b"\x1f\x8b\x08\0", b"PK\x03\x04", b"%PDF-1.7", b"U\0s\0e\0"])
def test_a_body_that_is_no_text_is_trouble_and_not_a_file_without_rules(body):
    policy = settle(ok(body))

    assert policy.document is None
    assert policy.trouble.failure is Failure.PROTOCOL
    assert "not text" in policy.trouble.detail
    assert policy.access(NOW, dialect("google"))[0] is Access.UNREACHABLE


def test_a_body_that_is_no_text_keeps_the_last_good_document():
    known = settle(ok())

    assert settle(ok(b"%PDF-1.7"), known=known).access(NOW, RFC) == (Access.RULES, known.document)


def test_an_error_page_may_be_of_any_kind():
    assert settle(Fetched(status=404, body=b"%PDF-1.7")).document.status == 404


def test_a_body_beyond_the_cap_is_cut_and_says_so():
    document = settle(ok(b"#" * 600_000)).document

    assert len(document.body) == 512_000
    assert document.truncated


def test_a_truncated_line_is_dropped():
    """`Allow: /private/` would allow more than `Allow: /private/public/`."""
    head, last = b"User-agent: *\nDisallow: /private/\n", b"Allow: /private/public/\n"
    padding = b"#" * (512_000 - len(head) - len(b"Allow: /private/") - 1) + b"\n"
    whole = settle(ok(head + padding + last)).document
    by_fetcher = settle(
        Fetched(status=200, body=(head + padding + last)[:512_000], truncated=True)
    ).document

    assert whole.body == by_fetcher.body == head + padding
    assert whole.truncated
    assert by_fetcher.truncated


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_across_hosts_and_rules_belong_to_the_first_origin(status):
    trail = walk(
        begin(A, None, "direct"), (moved("http://b.test:8080/robots.txt", status), NOW), (ok(), NOW)
    )

    assert isinstance(trail[1], Fetching)
    assert trail[1].url == "http://b.test:8080/robots.txt"
    assert trail[2].policy.origin == A
    assert trail[2].policy.document.redirects == ("https://a.test/robots.txt",)


def test_relative_redirects_are_resolved_and_fragments_cut():
    state = begin(A, None, "direct").next(moved("/en/robots.txt#top"), NOW)

    assert state.url == "https://a.test/en/robots.txt"


def test_five_hops_are_followed_and_a_sixth_is_not():
    hops = [moved(f"https://a.test/{n}") for n in range(6)]

    assert settle(*hops[:5], ok()).document is not None
    assert settle(*hops).trouble.failure is Failure.REDIRECT_LIMIT


def test_a_loop_is_detected_in_its_first_round():
    assert settle(moved("https://a.test/robots.txt")).trouble.failure is Failure.REDIRECT_LOOP


@pytest.mark.parametrize(
    "location", ["/a\\b", "\\\\b.test\\", "/a\tb", "/a\x0bb", "/a\0", "/a\x7f", "/a\x0c", "\n/a"]
)
def test_a_location_that_clients_read_in_different_ways_is_refused(location):
    assert settle(moved(location)).trouble.failure is Failure.REDIRECT_REFUSED


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://a.test/robots.txt",
        "data:,x",
        "http://[::1",
        "http://a b/",
        "http:",
    ],
)
def test_a_redirect_to_a_non_http_url_is_refused(location):
    policy = settle(moved(location))

    assert policy.trouble.failure is Failure.REDIRECT_REFUSED
    assert policy.access(NOW, RFC)[0] is Access.UNREACHABLE


def test_a_redirect_without_location_is_unreachable():
    assert settle(Fetched(status=302)).access(NOW, RFC)[0] is Access.UNREACHABLE


def test_an_unverified_hop_leaves_the_document_unverified():
    first = Fetched(
        status=301, headers={"location": "https://b.test/robots.txt"}, tls_verified=False
    )

    assert not settle(first, ok()).document.tls_verified


@pytest.mark.parametrize(
    "status", [407, 408, 421, 425, 429, 500, 503, 599, 100, 300, 304, 399, 600, 999]
)
def test_an_inconclusive_response_is_trouble(status):
    policy = settle(Fetched(status=status))

    assert policy.document is None
    assert policy.trouble.status == status
    assert policy.access(NOW, RFC) == (Access.UNREACHABLE, None)
    assert 1 <= policy.trouble.retry_at - NOW <= 1.25


@pytest.mark.parametrize(
    ("wait", "lower", "upper"), [("120", 120, 120), ("0", 1, 1.25), ("86400", 3600, 3600)]
)
def test_retry_after_lengthens_the_backoff_up_to_an_hour(wait, lower, upper):
    trouble = settle(Fetched(status=503, headers={"retry-after": wait})).trouble

    assert lower <= trouble.retry_at - NOW <= upper


def test_a_retry_after_may_be_a_date():
    """2027-01-15 08:00:00 UTC is `NOW`."""
    trouble = settle(
        Fetched(status=503, headers={"retry-after": "Fri, 15 Jan 2027 08:10:00 GMT"})
    ).trouble

    assert trouble.retry_at == NOW + 600


def test_each_retry_has_another_spread():
    first = settle(Failed(failure=Failure.DNS))
    second = settle(Failed(failure=Failure.DNS), known=first, now=NOW + 40)
    spreads = {first.trouble.retry_at - NOW, (second.trouble.retry_at - NOW - 40) / 2}

    assert len(spreads) == 2


def test_the_detail_of_trouble_is_limited_to_200_characters():
    assert settle(Failed(failure=Failure.DNS, detail="x" * 201)).trouble.detail == "x" * 200


def test_trouble_counts_attempts_and_keeps_its_start():
    first = settle(Failed(failure=Failure.TIMEOUT))
    second = settle(Failed(failure=Failure.DNS), known=first, now=NOW + 40)

    assert (second.trouble.attempts, second.trouble.since) == (2, NOW)
    assert 2 <= second.trouble.retry_at - (NOW + 40) <= 2.5


def test_trouble_keeps_the_last_good_document_for_30_days():
    good = settle(ok())
    known = settle(Failed(failure=Failure.RESET), known=good, now=NOW + 90_000)

    assert known.access(NOW + 90_000, RFC) == (Access.RULES, good.document)
    assert known.access(NOW + 31 * 86400, RFC) == (Access.UNREACHABLE, None)


def test_success_ends_trouble():
    trouble = settle(Failed(failure=Failure.RESET))

    assert settle(ok(), known=trouble, now=NOW + 60).trouble is None


@pytest.mark.parametrize("validator", ["x\r\nCookie: a=b", "x\0", "\n"])
def test_no_validator_writes_another_header_field(validator):
    """A site can send it through a lenient client, or it can be written into the store."""
    good = settle(ok(etag=validator, **{"last-modified": validator}))

    assert begin(A, good, "direct").conditions == ()


def test_validators_are_sent_and_a_304_renews_the_stored_document():
    good = settle(ok(etag='"1"', **{"last-modified": "Fri, 01 Jan 2027 00:00:00 GMT"}))
    state = begin(A, good, "direct")
    renewed = settle(Fetched(status=304, tls_verified=True), known=good, now=NOW + 90_000)

    assert state.conditions == (
        ("If-None-Match", '"1"'),
        ("If-Modified-Since", "Fri, 01 Jan 2027 00:00:00 GMT"),
    )
    assert renewed.document.body == good.document.body
    assert renewed.document.fetched_at == NOW + 90_000


def test_a_document_that_is_renewed_comes_from_the_fetcher_that_renewed_it():
    good = settle(ok(etag='"1"'))
    hop = Fetched(status=304, tls_verified=False)
    renewed = begin(A, good, "scrapy").next(hop, NOW + 90_000).policy.document

    assert (good.document.via, good.document.tls_verified) == ("direct", True)
    assert (renewed.via, renewed.tls_verified) == ("scrapy", False)


def test_no_validator_is_sent_to_another_url_than_the_document_came_from():
    elsewhere = settle(moved("https://b.test/robots.txt"), ok(etag='"1"'))

    assert begin(A, elsewhere, "direct").conditions == ()


def test_an_unsolicited_304_is_trouble():
    assert settle(Fetched(status=304)).trouble is not None


@pytest.mark.parametrize("failure", list(Failure))
def test_no_failure_opens_anything_by_default(failure):
    assert settle(Failed(failure=failure)).access(NOW, RFC)[0] is Access.UNREACHABLE


@pytest.mark.parametrize("port", [22, 25, 6379, 11211])
def test_a_redirect_to_a_port_of_another_protocol_is_refused(port):
    trouble = settle(moved(f"http://b.test:{port}/robots.txt")).trouble

    assert (trouble.failure, trouble.detail) == (
        Failure.REDIRECT_REFUSED,
        f"port {port} is not a web port",
    )


@pytest.mark.parametrize(
    ("hops", "public_only"),
    [
        ((True,), True),
        ((None,), True),  # not known: it may have been
        ((False,), False),  # a private origin was requested in the first place
        ((False, False), False),
        ((False, True), True),
        ((True, False), True),
    ],
)
def test_redirects_from_public_sites_lead_to_public_addresses_only(hops, public_only):
    state = begin(A, None, "direct")
    assert not state.public_only
    for number, public in enumerate(hops):
        hop = Fetched(
            status=301, headers={"location": f"/hop{number}"}, tls_verified=True, public=public
        )
        state = state.next(hop, NOW)

    assert state.public_only is public_only


@pytest.mark.parametrize(
    ("said", "expected"), [({}, 600.0), ({"cache-control": "max-age=900"}, 900.0)]
)
def test_fields_omitted_by_a_304_are_kept(said, expected):
    """RFC 9111 section 3.2: the fields of a 304 replace those stored; the others stay."""
    good = settle(ok(etag='"1"', **{"cache-control": "max-age=600"}))
    renewed = settle(
        Fetched(status=304, headers=said, tls_verified=True), known=good, now=NOW + 700
    )

    assert renewed.document.stated_lifetime == expected


def test_trouble_since_the_future_is_trouble_since_now():
    """The clock was a month ahead at the start: requests must not be deferred instead of dropped for a month."""
    first = settle(Failed(failure=Failure.DNS), now=NOW + 30 * 86400)

    assert settle(Failed(failure=Failure.DNS), known=first, now=NOW).trouble.since == NOW


@pytest.mark.parametrize("jump", [-30 * 86400.0, -301.0, 10 * 365 * 86400.0])
def test_after_a_clock_jump_everything_is_fetched_again(jump):
    document, trouble = settle(ok()), settle(Failed(failure=Failure.DNS))

    assert document.freshness(NOW + jump, RFC) is Freshness.EXPIRED
    assert trouble.freshness(NOW + jump, RFC) is Freshness.EXPIRED


def test_a_small_step_of_the_clock_changes_nothing():
    assert settle(ok()).freshness(NOW - 300, RFC) is Freshness.FRESH
    assert settle(Failed(failure=Failure.DNS)).freshness(NOW - 300, RFC) is Freshness.FRESH


@pytest.mark.parametrize("status", [404, 410, 401, 403])
def test_a_missing_file_is_cached_as_long_as_an_existing_one(status):
    policy = settle(Fetched(status=status, tls_verified=True))

    assert policy.freshness(NOW + 86_399, RFC) is Freshness.FRESH
    assert policy.freshness(NOW + 86_400, RFC) is Freshness.EXPIRED


def test_a_long_outage_is_retried_at_most_hourly():
    """1 s, doubling to 1 h, plus a spread per origin."""
    policy, now, tries = settle(Failed(failure=Failure.CONNECT)), NOW, 1
    while now < NOW + 3 * 86400:
        now = policy.trouble.retry_at
        policy = settle(Failed(failure=Failure.CONNECT), known=policy, now=now)
        tries += 1

    assert 55 <= tries <= 80
    assert 3600 <= policy.trouble.retry_at - now <= 4500
    assert policy.trouble.since == NOW


def test_a_hostile_time_to_retry_is_bounded():
    """Stored values are untrusted: no policy shuts an origin for longer than the longest backoff."""
    trouble = settle(Fetched(status=503)).trouble
    for moment in (1e12, float("inf"), float("nan")):
        policy = Policy(origin=A, trouble=msgspec.structs.replace(trouble, retry_at=moment))

        assert policy.freshness(NOW + 4501, RFC) is Freshness.EXPIRED
        assert policy.trouble.next_try == NOW + 4500


def test_stored_trouble_with_an_invalid_status_relaxes_nothing():
    trouble = msgspec.structs.replace(settle(Fetched(status=503)).trouble, status=404)

    assert Policy(origin=A, trouble=trouble).access(NOW, RFC)[0] is Access.UNREACHABLE


def test_trouble_reported_over_unverified_tls_is_marked():
    assert not settle(Fetched(status=503, tls_verified=False)).trouble.tls_verified
    assert settle(Fetched(status=503, tls_verified=True)).trouble.tls_verified
    assert settle(Failed(failure=Failure.DNS)).trouble.tls_verified
    for to in ("https://a.test/robots.txt", "https://a.test/1"):  # a loop; and one hop too many
        hops = (
            [moved(f"https://a.test/{number}") for number in range(5)] if to.endswith("1") else []
        )
        last = "https://a.test/9" if hops else to
        hop = Fetched(status=301, headers={"location": last}, tls_verified=False)
        assert not settle(*hops, hop).trouble.tls_verified


# -- a redirect to a page ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://b.test/private/x",
        "https://b.test/",
        "https://b.test/robots.txt?x=1",
        "https://b.test/Robots.txt",
        "https://b.test/%72obots.txt",
        "https://b.test//robots.txt",
        "https://b.test/x/../robots.txt",
        "http://a.test/other",  # another scheme is another origin
        "https://a.test:8443/other",  # and so is another port
        "//www.a.test/robots.md",
    ],
)
def test_a_redirect_to_another_origins_page_needs_its_verdict(url):
    state = begin(A, None, "direct").next(moved(url), NOW)

    assert isinstance(state, Redirected)
    assert f"{state.origin}{state.target}" == state.following.url
    assert state.origin != A
    assert state.next(YES, NOW) is state.following


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test/robots.txt",
        "https://b.test/robots.txt",
        "https://B.test:443/robots.txt#top",
        "https://u:p@b.test/robots.txt",
        "/other",
        "https://a.test:443/other",
        "/robots.txt?x=1",
    ],
)
def test_a_redirect_to_a_robots_txt_or_within_the_origin_needs_no_verdict(url):
    assert isinstance(begin(A, None, "direct").next(moved(url), NOW), Fetching)


@pytest.mark.parametrize(
    ("verdict", "wait"),
    [
        (NO, 1),
        (Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, until=NOW + 500), 500),
        (Verdict(action=Action.DEFER, reason=Reason.VISIT_TIME, until=NOW + 86_400), 3600),
    ],
)
def test_a_refused_redirect_makes_the_origin_unreachable(verdict, wait):
    policy = begin(A, None, "direct").next(moved("https://b.test/x"), NOW).next(verdict, NOW).policy

    assert policy.origin == A
    assert policy.trouble.failure is Failure.REDIRECT_DISALLOWED
    assert policy.trouble.detail == f"{verdict.reason} at https://b.test/x"
    assert policy.access(NOW, RFC) == (Access.UNREACHABLE, None)
    assert wait <= policy.trouble.retry_at - NOW <= max(wait, 1.25)


def test_the_last_good_copy_is_used_meanwhile():
    good = settle(ok())
    policy = settle(moved("https://b.test/x"), NO, known=good, now=NOW + 90_000)

    assert policy.access(NOW + 90_000, RFC) == (Access.RULES, good.document)


def test_every_hop_from_page_to_page_is_judged():
    """An allowed open redirector must not lead to a disallowed page, not even of its own origin."""
    first = begin(A, None, "direct").next(moved("https://b.test/go?to=/private/x"), NOW)
    second = first.next(YES, NOW).next(moved("/private/x"), NOW)
    back = first.next(YES, NOW).next(moved("https://a.test/private/x"), NOW)

    assert isinstance(second, Redirected)
    assert (str(second.origin), second.target) == ("https://b.test", "/private/x")
    assert isinstance(back, Redirected)


def test_an_intermediate_robots_txt_may_be_elsewhere_in_its_origin():
    state = begin(A, None, "direct")
    for url in ("https://b.test/robots.txt", "/one", "/two"):
        state = state.next(moved(url), NOW)
        assert isinstance(state, Fetching)
        assert not state.judged

    assert isinstance(state.next(moved("https://a.test/one"), NOW), Redirected)


def test_a_judged_hop_counts_as_a_hop_and_keeps_the_state():
    hop = Fetched(
        status=301, headers={"location": "https://b.test/1"}, tls_verified=False, public=True
    )
    state = begin(A, None, "direct").next(hop, NOW).next(YES, NOW)
    assert (state.judged, state.public_only, state.tls_verified) == (True, True, False)
    for number in range(2, 6):
        state = state.next(moved(f"/{number}"), NOW).next(YES, NOW)

    assert state.next(moved("/6"), NOW).policy.trouble.failure is Failure.REDIRECT_LIMIT
    assert state.next(moved("/3"), NOW).policy.trouble.failure is Failure.REDIRECT_LOOP
    document = state.next(ok(), NOW).policy.document
    assert (document.url, len(document.redirects), document.tls_verified) == (
        "https://b.test/5",
        5,
        False,
    )


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://b.test/a b", "/a%20b"),
        ("https://b.test/gr\u00f6\u00dfe", "/gr%C3%B6%C3%9Fe"),
        ("https://b.test/%ff", "/%ff"),
        ("https://b.test?x", "/?x"),
    ],
)
def test_a_judged_target_is_encoded_for_the_request_line(location, target):
    state = begin(A, None, "direct").next(moved(location), NOW)

    assert state.target == target
    assert state.following.url == f"https://b.test{target}"


def test_trouble_retried_when_due_continues():
    policy, now = settle(Failed(failure=Failure.DNS)), NOW
    for attempt in range(2, 12):
        now = policy.trouble.next_try + UNTRIED - 1
        policy = settle(Failed(failure=Failure.DNS), known=policy, now=now)
        assert (policy.trouble.since, policy.trouble.attempts) == (NOW, attempt)


def test_trouble_after_a_long_gap_is_new():
    """Nothing was fetched in between, so the state of the site is unknown."""
    first = settle(Failed(failure=Failure.DNS))
    later = first.trouble.next_try + UNTRIED + 1

    second = settle(Failed(failure=Failure.DNS), known=first, now=later)

    assert (second.trouble.since, second.trouble.attempts) == (later, 1)
    assert second.trouble.next_try - later < 2 * RETRY_MIN


def test_a_304_may_say_until_when_the_document_is_fresh():
    """2027-01-15 08:00:00 UTC is `NOW`."""
    expires = {"expires": "Fri, 15 Jan 2027 09:00:00 GMT"}
    renewed = settle(
        Fetched(status=304, headers=expires, tls_verified=True), known=settle(ok(etag='"1"'))
    )

    assert renewed.document.stated_lifetime == 3600


def test_a_renewed_document_has_the_current_redirects():
    first = settle(moved("https://a.test/1"), moved("https://b.test/robots.txt"), ok(etag='"1"'))
    renewed = settle(
        moved("https://b.test/robots.txt"), Fetched(status=304, tls_verified=True), known=first
    )

    assert first.document.redirects == ("https://a.test/robots.txt", "https://a.test/1")
    assert renewed.document.redirects == ("https://a.test/robots.txt",)
    assert renewed.document.url == "https://b.test/robots.txt"


# -- what a failure is about ----------------------------------------------------------------------------------

BY_PROXY = "proxy:3128"


@pytest.mark.parametrize(
    ("outcome", "scope", "route"),
    [
        pytest.param(Failed(failure=Failure.CONNECT), Scope.SITE, "", id="a site that refuses"),
        pytest.param(Failed(failure=Failure.DNS), Scope.SITE, "", id="a name without an address"),
        pytest.param(
            Failed(failure=Failure.CONNECT, about=Scope.ROUTE), Scope.ROUTE, "", id="no network"
        ),
        *(
            pytest.param(
                Failed(failure=failure).on_route(BY_PROXY), Scope.ROUTE, BY_PROXY, id=f"{failure}"
            )
            for failure in Failure
            if failure not in (Failure.REFUSED, Failure.REDIRECT_DISALLOWED, Failure.INTERNAL)
        ),
        pytest.param(Failed(failure=Failure.TLS), Scope.FETCHER, "", id="a certificate"),
        pytest.param(
            Failed(failure=Failure.REFUSED).on_route(BY_PROXY), Scope.FETCHER, "", id="a hook"
        ),
        pytest.param(
            Failed(failure=Failure.PROTOCOL, about=Scope.FETCHER).on_route(BY_PROXY),
            Scope.FETCHER,
            "",
            id="a handler",
        ),
        pytest.param(Fetched(status=503), Scope.SITE, "", id="503"),
        pytest.param(
            Fetched(status=502, relay=BY_PROXY), Scope.ROUTE, BY_PROXY, id="a relay's 502"
        ),
        pytest.param(
            Fetched(status=407, relay=BY_PROXY), Scope.ROUTE, BY_PROXY, id="a relay's 407"
        ),
        pytest.param(Fetched(status=500, relay=BY_PROXY), Scope.SITE, "", id="500 by a relay"),
        pytest.param(
            Fetched(status=503, relay=BY_PROXY, headers={"retry-after": "9"}),
            Scope.SITE,
            "",
            id="a site that asks for a pause",
        ),
    ],
)
def test_a_failure_belongs_to_the_one_who_caused_it(outcome, scope, route):
    trouble = settle(outcome).trouble

    assert trouble.scope is scope
    if scope is Scope.ROUTE:
        assert trouble.route == route
        assert trouble.says.endswith(f"(through {route})" if route else "(on the direct route)")


@pytest.mark.parametrize("scope", [Scope.ROUTE, Scope.FETCHER])
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_no_dialect_opens_what_only_a_proxy_or_this_process_has_answered(dialect, scope):
    statuses = (None, 404, 407, 429, 502, 503)
    failures = (Failure.STATUS, Failure.REDIRECT_LOOP, Failure.REDIRECT_LIMIT, Failure.CONNECT)
    for status, failure in itertools.product(statuses, failures):
        trouble = msgspec.structs.replace(
            settle(Failed(failure=failure)).trouble, scope=scope, status=status
        )
        assert Policy(origin=A, trouble=trouble).access(NOW, dialect) == (Access.UNREACHABLE, None)


def test_each_scope_counts_its_own_failures():
    first = settle(Failed(failure=Failure.CONNECT))
    second = settle(Failed(failure=Failure.CONNECT).on_route(BY_PROXY), known=first, now=NOW + 2)

    assert (second.trouble.attempts, second.trouble.since) == (1, NOW + 2)


def test_a_scope_goes_on_counting_after_a_failure_of_another():
    """Else a site that fails in two ways in turn would be asked once a second for ever."""
    first = settle(Failed(failure=Failure.CONNECT))
    second = settle(Failed(failure=Failure.TLS), known=first, now=NOW + 2)
    known = msgspec.structs.replace(second, others=(first.trouble,))
    third = settle(Failed(failure=Failure.CONNECT), known=known, now=NOW + 4)

    assert (third.trouble.attempts, third.trouble.since) == (2, NOW)
    assert third.others == ()


def test_routes_that_are_chosen_at_random_are_tried_close_together():
    """With three of four proxies dead, about ten tries find the one that works."""
    failed = Failed(failure=Failure.CONNECT).on_route(BY_PROXY, is_chosen_anew=True)
    policy, now = settle(failed), NOW
    for _ in range(10):
        now = policy.trouble.retry_at
        policy = settle(failed, known=policy, now=now)
    soon = now - NOW
    tries = 11
    while now < NOW + 3600:
        now = policy.trouble.retry_at
        policy = settle(failed, known=policy, now=now)
        tries += 1

    assert soon <= 1
    assert tries <= 160
