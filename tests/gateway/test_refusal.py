"""The responses to refused clients."""

from __future__ import annotations

import html
import json
from html.parser import HTMLParser

import msgspec
import pytest

from robots_guard.decisions.policy import PINNED, Document, Policy
from robots_guard.decisions.reasons import Reason, meaning_of
from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.decisions.uses import read_uses
from robots_guard.decisions.verdict import (
    Action,
    Decision,
    Question,
    ResponseRef,
    RuleRef,
    Verdict,
)
from robots_guard.gateway.refusal import not_ready, prefers_html, quoted, reply_to
from robots_guard.invocation import Invocation
from robots_guard.origin import Origin
from robots_guard.protocol.signals.headers import header_statements

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


def decision(
    action=Action.DROP,
    reason=Reason.DISALLOWED,
    *,
    target="/private/x",
    rule="Disallow: /private/",
    **more,
):
    verdict = Verdict(
        action=action, reason=reason, rule=rule and RuleRef(12, rule, "*"), group="*", **more
    )
    question = Question(origin=Origin("https", "site.test", 443), target=target, agent="mybot")
    return Decision(id="ab-1", at=1000.0, component="proxy", question=question, verdict=verdict)


def test_a_refusal():
    reply = reply_to(decision())
    headers = dict(reply.headers)
    assert reply.status == 403
    assert (
        headers["Robots-Guard"]
        == 'drop; reason=disallowed; rule="Disallow: /private/"; line=12; id="ab-1"'
    )
    assert headers["Proxy-Status"].startswith("robots-guard; error=http_request_denied")
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Type"] == "application/problem+json"
    problem = json.loads(reply.body)
    assert (problem["status"], problem["rule"], problem["line"]) == (403, "Disallow: /private/", 12)
    assert problem["robots_url"] == "https://site.test/robots.txt"


@pytest.mark.parametrize("accept", ["", BROWSER])
def test_a_refusal_by_a_pinned_robots_txt_does_not_name_the_sites_own(accept):
    document = Document(status=200, url="", sha256="0" * 64, fetched_at=900.0, via=PINNED)
    given = decision()
    policy = Policy(origin=given.question.origin, document=document)
    given = msgspec.structs.replace(given, policy=policy)

    text = reply_to(given, accept=accept).body.decode()

    assert "is not the site&#39;s" in text or "is not the site's" in text
    assert "https://site.test/robots.txt" not in text
    assert "fetched_at" not in text


@pytest.mark.parametrize(
    ("action", "reason", "status"),
    [
        (Action.DROP, Reason.DISALLOWED, 403),
        (Action.DROP, Reason.RESTRICTED, 403),
        (Action.DROP, Reason.UNREACHABLE, 403),
        (Action.DROP, Reason.AMBIGUOUS_AUTHORITY, 403),
        (Action.DROP, Reason.MALFORMED_TARGET, 400),
        (Action.DROP, Reason.INTERNAL_ERROR, 503),
        (Action.DROP, Reason.UNRECORDED, 503),
        (Action.DEFER, Reason.UNREACHABLE, 503),
        (Action.DEFER, Reason.DISALLOWED, 503),
        (Action.DEFER, Reason.VISIT_TIME, 503),
        (Action.DEFER, Reason.CRAWL_DELAY, 429),
        (Action.DEFER, Reason.REQUEST_RATE, 429),
        (Action.DEFER, Reason.MIN_DELAY, 429),
        (Action.DEFER, Reason.RETRY_AFTER, 429),
    ],
)
def test_statuses(action, reason, status):
    assert reply_to(decision(action, reason, rule=None)).status == status


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("action", [Action.DROP, Action.DEFER])
def test_every_reason_is_explained(action, reason):
    reply = reply_to(decision(action, reason, rule=None))
    problem = json.loads(reply.body)
    assert problem["detail"].startswith(meaning_of(reason).sentence)
    assert (problem["status"], problem["reason"]) == (reply.status, reason)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (Reason.DISALLOWED, "http_request_denied"),
        (Reason.MALFORMED_TARGET, "http_request_error"),
        (Reason.DESTINATION_REFUSED, "destination_ip_prohibited"),
        (Reason.UNRECORDED, "proxy_internal_error"),
    ],
)
def test_the_error_type_of_a_refusal(reason, error):
    assert f"error={error};" in dict(reply_to(decision(reason=reason)).headers)["Proxy-Status"]


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (Reason.DISALLOWED, "destination_unavailable"),
        (Reason.VISIT_TIME, "destination_unavailable"),
        (Reason.CRAWL_DELAY, "http_request_denied"),
    ],
)
def test_the_error_type_of_a_deferral(reason, error):
    reply = reply_to(decision(Action.DEFER, reason))
    assert f"error={error};" in dict(reply.headers)["Proxy-Status"]


@pytest.mark.parametrize(
    ("reason", "linked"),
    [
        (Reason.DISALLOWED, True),
        (Reason.UNREACHABLE, True),
        (Reason.BLOCKED, False),
        (Reason.INTERNAL_ERROR, False),
    ],
)
def test_a_page_links_to_the_robots_txt_if_the_site_is_the_cause(reason, linked):
    page = reply_to(decision(reason=reason, rule=None), accept=BROWSER).body.decode()
    assert ('href="https://site.test/robots.txt"' in page) is linked


@pytest.mark.parametrize(
    ("until", "wait"), [(1030.2, "31"), (1000.0, "1"), (900.0, "1"), (None, "60")]
)
def test_a_deferral_has_a_retry_after(until, wait):
    reply = reply_to(decision(Action.DEFER, Reason.UNREACHABLE, rule=None, until=until))
    assert dict(reply.headers)["Retry-After"] == wait


def test_a_deferral_has_an_until():
    reply = reply_to(decision(Action.DEFER, rule=None, until=1030.2))
    assert dict(reply.headers)["Robots-Guard"] == 'defer; reason=disallowed; until=1031; id="ab-1"'
    problem = json.loads(reply.body)
    assert problem["until"] == "1970-01-01T00:17:11Z"
    assert "Try again in 31 s" in problem["detail"]


@pytest.mark.parametrize("accept", ["", BROWSER])
def test_head_has_no_body(accept):
    assert reply_to(decision(), method="HEAD", accept=accept).body == b""
    assert not_ready("x", method="HEAD").body == b""


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("", False),
        ("*/*", False),
        ("image/avif,image/webp,*/*;q=0.8", False),
        ("application/json", False),
        ("text/html;q=0.5,application/json", False),
        ("text/html;q=0", False),
        ("TEXT/HTML; Q=0.9", True),
    ],
)
def test_clients_that_get_a_page(accept, html):
    assert prefers_html(accept) is html


HOSTILE = 'Disallow: /"><script>alert(1)</script>\\ caf\xe9 \r\nSet-Cookie: a=b\x00'


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)


@pytest.mark.parametrize("accept", ["", BROWSER])
def test_untrusted_text_is_escaped(accept):
    reply = reply_to(decision(rule=HOSTILE, target="/<img src=x>", detail=HOSTILE), accept=accept)
    for name, value in reply.headers:
        assert value.isascii(), name
        assert value.isprintable(), name
    if accept:
        tags = _Tags()
        tags.feed(reply.body.decode())
        assert not tags.tags & {"script", "img"}
        assert "&lt;script&gt;" in reply.body.decode()
    else:
        assert json.loads(reply.body)["rule"] == HOSTILE


def test_a_string_of_a_structured_field():
    assert quoted('a"b\\c\xe9') == '"a\\"b\\\\c?"'
    assert len(quoted("x" * 10_000)) == 258


def test_the_page_has_url_reason_rule_and_contact():
    page = reply_to(decision(), accept=BROWSER).body.decode()
    for text in (
        "https://site.test/private/x",
        "robots.txt forbids the request.",
        "mybot",
        "Disallow: /private/",
        "line 12",
        "operator",
        "ab-1",
    ):
        assert text in page


@pytest.mark.parametrize(
    ("contact", "shown"),
    [
        ("", "the operator of this crawler, who runs this proxy."),
        ("https://crawler.example/about", 'href="https://crawler.example/about"'),
        ("jane@crawler.example", 'href="mailto:jane@crawler.example"'),
    ],
)
def test_a_refusal_names_whom_to_ask(contact, shown):
    problem = json.loads(reply_to(decision(), contact=contact).body)
    assert problem["contact"] == contact or "operator" in problem["contact"]
    assert shown in reply_to(decision(), accept=BROWSER, contact=contact).body.decode()


def test_a_refusal_names_the_command_that_says_more():
    invocation = Invocation({"audit_log": "/var/log/a & b"})
    command = "robots-guard why ab-1 --audit-log '/var/log/a & b'"

    assert json.loads(reply_to(decision()).body)["command"] == "robots-guard why ab-1"
    assert json.loads(reply_to(decision(), invocation=invocation).body)["command"] == command
    page = reply_to(decision(), accept=BROWSER, invocation=invocation).body.decode()
    assert f"<code>{command}</code>" in html.unescape(page)


@pytest.mark.parametrize("accept", ["", BROWSER])
def test_a_refused_response(accept):
    stated = header_statements([("X-Robots-Tag", "noai, <b>")], 200)
    uses = read_uses(stated, "mybot", SignalSettings(), 0.0)
    said = "ai-train: x-robots-tag (header) says X-Robots-Tag: noai, <b>"
    refused = decision(reason=Reason.USAGE_RESERVED, rule=None, uses=uses, detail=said)
    response = ResponseRef(status=200, request="ab-0")
    refused = msgspec.structs.replace(refused, response=response, purposes=("ai-train",))
    reply = reply_to(refused, accept=accept)
    assert reply.status == 403
    assert dict(reply.headers)["Robots-Guard-Signals"].startswith("ai-input=n")
    body = reply.body.decode()
    assert "did not leave" not in body
    if accept:
        assert "says X-Robots-Tag: noai, &lt;b&gt;" in body
        assert "robots.txt" not in body
    else:
        problem = json.loads(body)
        assert (problem["because"], problem["purposes"]) == (said, ["ai-train"])
        assert problem["denied"] == ["ai-input", "ai-train"]
