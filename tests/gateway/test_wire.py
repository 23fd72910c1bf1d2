"""The origin of a request, read from the bytes that would be sent."""

from __future__ import annotations

import pytest
from support.wires import wire

from robots_guard.decisions.reasons import Reason


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hosts": ("site.test:443",)},
        {"hosts": ("SITE.test.",)},
        {"sni": "Site.Test"},
        {"sni": None},
        {"coding": "Chunked"},
        {"authority": "site.test"},
        {"version": "HTTP/2.0", "hosts": (), "authority": "site.test"},
        {"version": "HTTP/1.0", "hosts": ()},
        {"addressed": True, "host": "192.0.2.7"},
        {"addressed": True, "host": "2001:db8::7", "hosts": ("site.test",)},
    ],
)
def test_names_that_agree(changes):
    question, verdict = wire(**changes).question("mybot")
    assert (str(question.origin), verdict) == ("https://site.test", None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hosts": ("other.test",)}, Reason.AMBIGUOUS_AUTHORITY),
        ({"hosts": ("site.test:8443",)}, Reason.AMBIGUOUS_AUTHORITY),
        ({"sni": "other.test"}, Reason.AMBIGUOUS_AUTHORITY),
        ({"authority": "other.test"}, Reason.AMBIGUOUS_AUTHORITY),
        ({"host": "192.0.2.7", "hosts": ("site.test",), "sni": None}, Reason.AMBIGUOUS_AUTHORITY),
        ({"addressed": True, "host": "192.0.2.7", "sni": "other.test"}, Reason.AMBIGUOUS_AUTHORITY),
        (
            {"addressed": True, "host": "192.0.2.7", "hosts": ("site.test:8",)},
            Reason.AMBIGUOUS_AUTHORITY,
        ),
        ({"addressed": True, "host": "other.test"}, Reason.AMBIGUOUS_AUTHORITY),
        ({"hosts": ("site.test", "site.test")}, Reason.MALFORMED_TARGET),
        ({"coding": "gzip, chunked"}, Reason.MALFORMED_TARGET),
        ({"hosts": ()}, Reason.MALFORMED_TARGET),
        ({"hosts": (), "authority": "site.test"}, Reason.MALFORMED_TARGET),
        ({"hosts": (), "version": "HTTP/2.0"}, Reason.MALFORMED_TARGET),
        ({"version": "HTTP/9.9"}, Reason.MALFORMED_TARGET),
        ({"version": "HTTP/0.9"}, Reason.MALFORMED_TARGET),
        ({"hosts": ("",)}, Reason.MALFORMED_TARGET),
        ({"hosts": ("site.test\r\n x",)}, Reason.MALFORMED_TARGET),
        ({"hosts": ("me@site.test",)}, Reason.MALFORMED_TARGET),
        ({"scheme": "ftp"}, Reason.MALFORMED_TARGET),
        ({"method": "GET /y"}, Reason.MALFORMED_TARGET),
        ({"method": ""}, Reason.MALFORMED_TARGET),
        ({"target": "x"}, Reason.MALFORMED_TARGET),
        ({"target": "/x#y"}, Reason.MALFORMED_TARGET),
        ({"target": "/x y"}, Reason.MALFORMED_TARGET),
        ({"target": ""}, Reason.MALFORMED_TARGET),
        ({"clean": False}, Reason.MALFORMED_TARGET),
    ],
)
def test_ambiguous_requests(changes, reason):
    _, verdict = wire(**changes).question("mybot")
    assert verdict is not None
    assert verdict.reason is reason
    assert verdict.detail


def test_an_address_without_a_name():
    question, verdict = wire(host="192.0.2.7", hosts=("192.0.2.7",), sni=None).question("mybot")
    assert (str(question.origin), verdict) == ("https://192.0.2.7", None)
