"""A shared store that loses its content without an error, as a server that restarts without
persistence: the next renewal stores the policy and its document again."""

from __future__ import annotations

import time

import pytest
from support.guards import make_guard
from support.stores import LONG, SHARED, A, make

from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.verdict import Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.stores.regions import RegionalStore
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.ports import Clocks

HEADERS = {"etag": '"1"', "cache-control": "max-age=3600"}
QUESTION = Question(origin=A, target="/x", agent="mybot")
# A test empties the server through the private `_client`: no public method does.
ANSWERS = {
    "not modified": Fetched(status=304, headers=HEADERS, tls_verified=True),
    "the same file": Fetched(status=200, body=LONG, headers=HEADERS, tls_verified=True),
    "a failure": Failed(failure=Failure.TIMEOUT),
}


@pytest.fixture(params=SHARED)
def store(request, tmp_path):
    made = make(request.param, request, tmp_path)
    yield made
    made.close()


def empty(store) -> None:
    """Remove everything, without telling the guard."""
    if isinstance(store, SqliteStore):
        store.path.unlink()
    else:
        (
            store._stores[store.home(A)] if isinstance(store, RegionalStore) else store
        )._client.flushall()


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_renewal_restores_the_document_of_a_policy_in_memory(store, answer):
    ahead = [0.0]
    clocks = Clocks(now=lambda: time.time() + ahead[0], monotonic=time.monotonic)
    fetcher = ScriptedFetcher({A.robots_url: ANSWERS["the same file"]})
    guard = make_guard(fetcher, store=store, clocks=clocks)
    first = await guard.check(QUESTION)
    sha256 = first.policy.document.sha256
    assert store.document(sha256) == LONG

    empty(store)
    assert store.document(sha256) is None
    ahead[0] = 2 * 86400.0
    fetcher.script[A.robots_url] = ANSWERS[answer]
    await guard.check(QUESTION)
    await guard.drain()
    assert store.document(sha256) == LONG
    assert store.get(A).document.sha256 == sha256
    guard.close()
