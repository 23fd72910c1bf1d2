"""The patches that are made to save work have no other effect."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.connection import Client
from mitmproxy.http import Response
from mitmproxy.proxy import commands

from robots_guard.gateway.refusal import ProxyReply
from robots_guard.mitmproxy.patches.shortcuts import JOINED_BYTES, join_writes
from robots_guard.mitmproxy.replies import Refusal

CLIENTS = [
    Client(peername=("c", number), sockname=("s", 1), timestamp_start=number) for number in range(3)
]
SENT = st.builds(
    commands.SendData,
    st.sampled_from(CLIENTS),
    st.binary(max_size=5) | st.sampled_from([b"x" * (JOINED_BYTES // 2), b"y" * JOINED_BYTES]),
)
OTHERS = st.one_of(
    st.builds(commands.CloseConnection, st.sampled_from(CLIENTS)),
    st.builds(commands.RequestWakeup, st.just(1.0)),
    st.builds(commands.Log, st.just("said")),
)


def effects(given):
    """The commands other than `Log`, with what each connection gets between two of them."""
    relevant = [each for each in given if not isinstance(each, commands.Log)]
    for is_sent, run in groupby(relevant, lambda each: isinstance(each, commands.SendData)):
        if not is_sent:
            yield from run
            continue
        data = dict.fromkeys(CLIENTS, b"")
        for each in run:
            data[each.connection] += each.data
        yield data


@given(st.lists(SENT | OTHERS, max_size=12))
def test_joined_writes_send_the_same_bytes_in_the_same_order(given):
    joined = list(join_writes(None, None, plain=lambda self, event: iter(given)))
    assert list(effects(joined)) == list(effects(given))
    assert [each for each in joined if isinstance(each, commands.Log)] == [
        each for each in given if isinstance(each, commands.Log)
    ]


def test_small_writes_are_joined_and_large_ones_are_not_copied():
    one, other, _ = CLIENTS
    large = commands.SendData(one, b"z" * JOINED_BYTES)
    given = [
        commands.SendData(one, b"a"),
        commands.SendData(other, b"b"),
        commands.SendData(one, b"c"),
        large,
        commands.SendData(one, b"d"),
    ]
    written = list(join_writes(None, None, plain=lambda self, event: iter(given)))
    assert [(each.connection, each.data[:2]) for each in written] == [
        (one, b"ac"),
        (other, b"b"),
        (one, b"zz"),
        (one, b"d"),
    ]
    assert written[2] is large


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    [
        (("Robots-Guard", "drop"), ("X-\xe9", "\udcff")),
        (("content-length", "9"), ("Allow", "a"), ("Allow", "b")),  # as of the console
    ],
)
def test_a_refusal_is_the_response_that_mitmproxy_makes(method, headers):
    content = b"" if method == "HEAD" else b"why"
    expected = Response.make(403, content, dict(headers))
    if method == "HEAD":
        del expected.headers["content-length"]
    made = Refusal.of(ProxyReply(403, headers, content), method)
    assert sorted(made.headers.fields) == sorted(expected.headers.fields)
    assert (made.status_code, made.reason, made.content) == (403, "Forbidden", expected.content)
    assert made.http_version == expected.http_version
