"""Responses through Envoy: what a site states in its fields is judged before the client gets it."""

from __future__ import annotations

import json
import socket

import pytest
from integrations.mitmproxy.wire import closed, connected, exchange, plain
from support.audit_log import signals
from support.waiting import eventually

from robots_guard.testing import Reply

SECRET = "SECRET " * 3000
NO_AI = (("X-Robots-Tag", "otherbot: noindex"), ("X-Robots-Tag", "noai"))
#: Fields that only the service and Envoy's scripts set.
FORGED = (
    ("Robots-Guard", "drop; reason=disallowed"),
    ("Robots-Guard-Replaced", "1"),
    ("Robots-Guard-Signals", "ai-train=y"),
    ("Robots-Guard-Status", "200"),
    ("Robots-Guard-Respond", "required"),
)
PAGES = {
    "/forged": Reply(headers=FORGED, body="page"),
    "/forged-error": Reply(status=503, headers=FORGED, body="page"),
    "/forged-no": Reply(headers=(*FORGED, *NO_AI), body=SECRET),
    "/no": Reply(headers=NO_AI, body=SECRET),
    "/empty": Reply(headers=NO_AI),
    "/large": Reply(headers=NO_AI, body=SECRET * 500),
    "/endless": Reply(headers=NO_AI, body=SECRET, endless=b"SECRET", drip=0.02),
    "/others": Reply(headers=(("X-Robots-Tag", "otherbot: noai"),), body="for us"),
    "/link": Reply(headers=(("Link", "</s.css>; rel=preload"),), body="linked"),
    "/usage": Reply(headers=(("Content-Usage", "train-ai=n"),), body=SECRET),
    "/many": Reply(headers=(*(("X-Robots-Tag", "archive"),) * 30, *NO_AI), body=SECRET),
    "/silent": Reply(headers=(("Content-Type", "image/png"),), body="image"),
    "/bytes": Reply(
        headers=(("X-Robots-Tag", "caf\xe9: noindex"), ("X-Robots-Tag", "noai")), body="page"
    ),
    "/failing": Reply(status=404, headers=NO_AI, body="none"),
}


@pytest.fixture(scope="module")
def trainer(start):
    """An Envoy whose operator trains models."""
    with start(purposes="ai-train") as started:
        yield started


@pytest.fixture(scope="module")
def site(net):
    return net.origin("", PAGES)


def _actions(integration, url: str) -> list[str]:
    """What was decided on the responses of a URL."""
    return [
        each["action"] for each in signals(integration.folder / "audit_log") if each["url"] == url
    ]


@pytest.mark.parametrize("target", ["/no", "/empty", "/large", "/usage", "/many"])
def test_a_response_that_denies_a_purpose_is_refused(trainer, site, target):
    answer = plain(trainer, site.url + target)

    assert answer.status == 403
    assert answer.guard.startswith("drop; reason=")
    assert b"SECRET" not in answer.body
    assert "x-robots-tag" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert "ai-train" in json.loads(answer.body)["denied"]
    assert "drop" in _actions(trainer, site.url + target)


def test_a_response_to_head_is_refused(trainer, site):
    with connected(trainer) as connection:
        connection.sendall(f"HEAD {site.url}/no HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = closed(connection)

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert answer.endswith(b"\r\n\r\n")


def test_a_refused_response_that_never_ends_does_not_hold_the_client(trainer, site):
    head = f"GET {site.url}/endless HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(trainer) as connection:
        answer = exchange(connection, head.encode())
        connection.settimeout(0.5)
        try:
            rest = connection.recv(1000)
        except TimeoutError:
            rest = b""

    assert answer.status == 403
    assert "ai-train" in json.loads(answer.body)["denied"]
    assert rest == b""


@pytest.mark.parametrize("target", ["/others", "/link", "/silent", "/failing"])
def test_a_response_that_denies_nothing_passes(trainer, site, target):
    answer = plain(trainer, site.url + target)

    assert answer.status == PAGES[target].status
    assert answer.body.decode() == PAGES[target].body


@pytest.mark.parametrize("target", ["/forged", "/forged-error"])
def test_a_site_cannot_imitate_the_service(trainer, site, target):
    answer = plain(trainer, site.url + target)

    assert (answer.status, answer.body) == (PAGES[target].status, b"page")
    assert not {"robots-guard", "robots-guard-replaced", "robots-guard-signals"} & set(
        answer.headers
    )


def test_a_site_that_imitates_the_service_is_judged(trainer, site):
    answer = plain(trainer, site.url + "/forged-no")

    assert answer.status == 403
    assert b"SECRET" not in answer.body
    assert "robots-guard-replaced" not in answer.headers


def test_without_purposes_signals_are_recorded(integration, site):
    answer = plain(integration, site.url + "/no")

    assert (answer.status, answer.body.decode()) == (200, SECRET)
    assert _actions(integration, site.url + "/no") == ["pass"]


def test_a_field_that_is_not_utf8_is_reported(integration, site):
    """A regular expression of Envoy's matchers may not match such bytes."""
    assert plain(integration, site.url + "/bytes").body == b"page"

    assert _actions(integration, site.url + "/bytes") == ["pass"]


def test_no_response_passes_unjudged_if_the_service_is_gone(start, net):
    """The service ends while the site is asked."""

    def end(_) -> Reply:
        trainer.end_service()
        return PAGES["/no"]

    site = net.origin("", {"/no": end})
    with start(purposes="ai-train") as trainer:
        answer = plain(trainer, site.url + "/no")

    assert answer.status == 503
    assert b"SECRET" not in answer.body


def test_a_site_that_cannot_be_reached_is_released(integration, net):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        site = net.origin("User-agent: *\nCrawl-delay: 1\n")
        plain(integration, site.url + "/a")

    answer = plain(integration, site.url + "/b")

    eventually(lambda: site.targets == ["/a", "/b"])
    assert answer.status == 200
