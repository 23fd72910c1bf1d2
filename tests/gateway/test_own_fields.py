"""The field that tells a proxy's client what the signals of a response come to."""

from __future__ import annotations

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.decisions.uses import read_uses
from robots_guard.gateway.own_fields import signals_field
from robots_guard.protocol.signals.headers import header_statements
from robots_guard.protocol.signals.statement import Place, Signal, Statement

NOW = 1_795_000_000.0
LATER = "1 Jan 2027 00:00:00 GMT"  # 1798761600


def field(*lines, more=(), is_incomplete=False):
    headers = [tuple(line.split(": ", 1)) for line in lines]
    stated = (*header_statements(headers, 200), *more)
    uses = read_uses(stated, "mybot", SignalSettings(), NOW, is_incomplete=is_incomplete)
    return signals_field(uses)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("X-Robots-Tag: all", ""),
        ("X-Robots-Tag: otherbot: noindex", ""),
        ("X-Robots-Tag: nofollow", 'follow=n;s="x-robots-tag"'),
        ("X-Robots-Tag: noai", 'ai-input=n;s="x-robots-tag", ai-train=n;s="x-robots-tag"'),
        ("Content-Usage: train-ai=n, search=y", 'search=y;s="content-usage", ai-train=n;s="content-usage"'),
        ("X-Robots-Tag: noimageai", 'images.ai-input=n;s="x-robots-tag", images.ai-train=n;s="x-robots-tag"'),
        (
            "X-Robots-Tag: max-snippet: 20, max-image-preview: large, max-video-preview: -1",
            "max-snippet=20, max-video-preview=-1, max-image-preview=large",
        ),
        ("X-Robots-Tag: notranslate", "notranslate"),
        (f"X-Robots-Tag: unavailable_after: {LATER}", "unavailable-after=@1798761600"),
    ],
)  # fmt: skip
def test_what_a_header_comes_to(line, expected):
    assert field(line) == expected


def test_a_permission_ends_with_the_page():
    said = field("Content-Usage: search=y", f"X-Robots-Tag: unavailable_after: {LATER}")
    assert said == ('search=y;s="content-usage";until=@1798761600, unavailable-after=@1798761600')


def test_a_place_other_than_the_header_is_named():
    meta = Statement(signal=Signal.META_ROBOTS, place=Place.PAGE, rule="noai")
    assert field(more=[meta]) == (
        'ai-input=n;s="meta-robots";p="page", ai-train=n;s="meta-robots";p="page"'
    )


def test_an_incomplete_page():
    assert field(is_incomplete=True) == "incomplete"
    assert field("X-Robots-Tag: nofollow", is_incomplete=True).endswith(", incomplete")


@given(st.lists(st.text(alphabet=st.characters(codec="latin-1"), max_size=80), max_size=4))
def test_every_value_is_a_dictionary(lines):
    value = field(*(f"X-Robots-Tag: {line}" for line in lines))
    assert value.isascii()
    assert not value or isinstance(http_sf.parse(value.encode(), tltype="dictionary"), dict)


@pytest.mark.parametrize("number", ["9" * 30, "-" + "9" * 30, "1" * 16])
def test_a_number_beyond_an_integer_is_left_out(number):
    assert "max-snippet" not in field(f"X-Robots-Tag: max-snippet: {number}")


def test_a_date_beyond_the_calendar_is_left_out():
    far = Statement(
        signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="unavailable_after", value=1e15
    )
    assert field(more=[far]) == ""
