"""Real clusters, and real primaries with Sentinels, of Redis and Valkey, which lose servers."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest
import redis
from support.stores import (
    SERVERS,
    A,
    B,
    Cluster,
    Watched,
    policy,
    put,
    start_cluster,
    start_redis,
)
from support.turns import wait_of
from support.waiting import eventually

from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.stores import look_at, open_store
from robots_guard.guard.stores.breaker import FIRST_PAUSE, Breaker
from robots_guard.guard.stores.redis import RedisRefused
from robots_guard.guard.stores.servers import open_redis
from robots_guard.origin import origin_of

# These tests use the `_client` and key names of the store: the nodes that keep an origin have no public
# face.

ORIGINS = [
    origin_of(prefix)
    for prefix in (
        *(f"https://{number}.test" for number in range(30)),
        "http://[2001:db8::1]:8080",
        "https://192.0.2.1",
        "http://xn--bcher-kva.example:65535",
        "https://under_score.test",
    )
]
STORES = Path(__file__).parents[2] / "docs" / "stores.md"


@pytest.fixture
def store(empty_cluster):
    made = open_store(empty_cluster.url)
    yield made
    made.close()


def slots(store, *keys: str) -> set[int]:
    return {store._client.keyslot(key) for key in keys}


# -- a cluster -------------------------------------------------------------------------------------


def test_all_keys_of_an_origin_are_on_one_node_and_origins_on_all_nodes(store):
    of_each = [
        slots(store, store._policy_key(origin), store._lease_key(origin), store._turn_key(origin))
        for origin in ORIGINS
    ]

    assert {len(found) for found in of_each} == {1}
    assert len({slot // 5462 for found in of_each for slot in found}) == 3


def test_every_operation_works_on_every_node(store):
    for origin in ORIGINS:
        body = f"User-agent: *\nDisallow: /{origin.host}\n".encode()
        put(store, policy(origin, body=body))
        assert store.get(origin) == policy(origin, body=body)
        assert store.document(policy(origin, body=body).document.sha256) == body
        assert store.take(origin, "one", 1.0, 35.0)
        assert not store.take(origin, "two", 1.0, 35.0)
        store.release(origin, "one")
        turn = store.reserve(origin, 60.0, lambda: 1.0)
        store.move_turn(origin, turn.stamp, 0.1)
        store.note_pause(origin, 600.0, 1.0)
        assert store.reserve(origin, 60.0, lambda: 1.0).by_retry_after
        assert store.last_turn(origin)[0] > turn.stamp
    assert sorted(store.origins()) == sorted(ORIGINS)
    assert all(store.forget(origin) for origin in ORIGINS)
    assert list(store.origins()) == []


def test_a_policy_with_a_short_document_is_one_call_on_its_own_node(store):
    body = b"User-agent: *\nDisallow: /x\n"
    for origin in ORIGINS:
        put(store, policy(origin, body=body))
    read = []
    getrange = store._client.getrange
    store._client.getrange = lambda key, *bounds: (read.append(key), getrange(key, *bounds))[1]

    assert [store.get(origin) for origin in ORIGINS] == [
        policy(origin, body=body) for origin in ORIGINS
    ]
    assert read == [store._policy_key(origin) for origin in ORIGINS]


def test_naming_one_node_is_enough(empty_cluster):
    store = open_store(Cluster(empty_cluster.nodes[:1]).url)
    for origin in ORIGINS:
        assert wait_of(store.reserve(origin, 60.0, lambda: 1.0)) == 0
    store.close()


def test_a_cluster_named_as_one_server_is_an_error_with_the_remedy(empty_cluster, clock):
    messages = []
    for node in empty_cluster.nodes:
        with pytest.raises((SettingsError, StoreError)) as caught:
            refused_by(node.url)
        messages.append(str(caught.value))

    assert all("a node of a Redis Cluster: use redis+cluster://" in each for each in messages)


def refused_by(url: str) -> None:
    store = open_store(url)
    try:
        for origin in ORIGINS:
            store.reserve(origin, 60.0, lambda: 1.0)
    finally:
        store.close()


def test_one_server_named_as_a_cluster_is_an_error_with_the_remedy(redis_server):
    with pytest.raises(SettingsError, match="not a node of a Redis Cluster: use redis://"):
        open_store(f"redis+cluster://127.0.0.1:{redis_server.port}/")


@pytest.mark.parametrize("rights", ["writes", "looks"])
def test_the_documented_permissions_are_enough(empty_cluster, store, rights):
    page = STORES.read_text()
    line = next(line for line in page.splitlines() if line.startswith("ACL SETUSER"))
    more = re.search(
        r"In a cluster it also needs `(.*)`\. A process that only reads needs `(.*)`\.", page
    )
    given = more[2].split() if rights == "looks" else line.partition("~rg:* ")[2].split()
    for node in empty_cluster.nodes:
        with node.client() as client:
            words = ("on", ">secret", "~rg:*", *given, *more[1].split())
            client.execute_command("ACL", "SETUSER", rights, "reset", *words)
    url = f"redis+cluster://{rights}:secret@{empty_cluster.url.partition('://')[2]}"
    put(store, policy())
    made = open_store(url) if rights == "writes" else look_at(url)
    assert made.get(A) == policy()
    assert list(made.origins()) == [A]
    if rights == "writes":
        assert all(wait_of(made.reserve(origin, 60.0, lambda: 1.0)) == 0 for origin in ORIGINS)
        put(made, policy(B))
    made.close()


def test_a_password_refused_by_a_cluster_is_an_error_at_startup(empty_cluster):
    nodes = [node.client() for node in empty_cluster.nodes]
    for node in nodes:
        node.config_set("requirepass", "secret")
    try:
        addresses = empty_cluster.url.partition("://")[2]
        with pytest.raises(SettingsError, match="put them into the URL as user:password@"):
            open_store(f"redis+cluster://me:wrong@{addresses}")
        with pytest.raises(SettingsError, match="put them into the URL as user:password@"):
            open_store(f"redis+cluster://{addresses}")
        store = open_store(f"redis+cluster://:secret@{addresses}")
        assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) == 0
        store.close()
    finally:
        for node in nodes:
            node.config_set("requirepass", "")
            node.close()


def test_keys_that_move_to_another_node_are_followed(store, empty_cluster):
    """Resharding: the server answers ASK while a slot is migrating, and MOVED afterwards."""
    put(store, policy())
    store.reserve(A, 60.0, lambda: 1.0)
    key = store._policy_key(A)
    slot = store._client.keyslot(key)
    source, target = (node.client() for node in on_their_way(empty_cluster, slot))
    source_id, target_id = source.cluster("MYID").decode(), target.cluster("MYID").decode()
    target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
    source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
    port = target.connection_pool.connection_kwargs["port"]
    source.execute_command("MIGRATE", "127.0.0.1", port, key, 0, 5000)

    assert store.get(A) == policy()  # ASK
    assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) > 0  # not moved yet
    source.execute_command("MIGRATE", "127.0.0.1", port, store._turn_key(A), 0, 5000)
    assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) > 0
    for node in (target, source):
        node.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
    assert store.get(A) == policy()  # MOVED
    assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) > 0
    assert store.take(A, "one", 1.0, 35.0)
    for node in (source, target):
        node.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
        node.close()


def test_a_slot_that_moves_slowly_is_waited_for_as_long_as_an_answer(empty_cluster):
    """The server answers TRYAGAIN while it has some of a command's keys, and not the others."""
    store = open_store(f"{empty_cluster.url}?timeout=3")
    put(store, policy())
    slot = store._client.keyslot(store._policy_key(A))
    source, target = (node.client() for node in on_their_way(empty_cluster, slot))
    source_id, target_id = source.cluster("MYID").decode(), target.cluster("MYID").decode()
    target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
    source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)

    def stop_moving():
        for node in (source, target):
            node.execute_command("CLUSTER SETSLOT", slot, "STABLE")
            node.close()

    end = threading.Timer(1.0, stop_moving)
    end.start()
    try:
        assert store.take_and_get(A, "one", 1.0, 35.0).policy == policy()
    finally:
        end.join()
        store.close()


def on_their_way(cluster: Cluster, slot: int):
    """Return the node that has a slot, and another."""
    with cluster.client() as client:
        holder = (
            client.get_node_from_slot(slot).port if hasattr(client, "get_node_from_slot") else None
        )
        holder = holder or client.nodes_manager.get_node_from_slot(slot).port
    source = next(node for node in cluster.nodes if node.port == holder)
    return source, next(node for node in cluster.nodes if node.port != holder)


@pytest.mark.parametrize("server", SERVERS)
def test_a_node_that_is_down_does_not_affect_the_others_and_its_replica_takes_over(
    server, tmp_path, clock
):
    cluster = start_cluster(tmp_path, replicas=1, server=server)
    store = open_redis(cluster.url, breaker=lambda: Breaker(clock, lambda: 0.0))
    try:
        put(store, policy())
        store.reserve(A, 3600.0, lambda: 1.0)
        with cluster.nodes[0].client() as client:
            assert client.role()[0] == b"master"
        homes = {
            origin: store._client.get_node_from_key(store._turn_key(origin)).port
            for origin in ORIGINS
        }
        for node in cluster.nodes:  # writes have reached the replica
            with node.client() as client:
                if client.role()[0] == b"master":
                    client.wait(1, 10_000)
        lost = store._client.get_node_from_key(store._turn_key(A)).port
        victim = next(node for node in cluster.nodes if node.port == lost)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait(60)
        with pytest.raises(StoreError, match="cannot be reached"):
            store.reserve(A, 3600.0, lambda: 1.0)
        elsewhere = [origin for origin, home in homes.items() if home != lost]
        assert elsewhere
        for origin in elsewhere:
            assert wait_of(store.reserve(origin, 60.0, lambda: 1.0)) == 0

        def turn():
            clock.advance(FIRST_PAUSE)
            return store.reserve(A, 3600.0, lambda: 1.0)

        assert wait_of(eventually(turn, despite=StoreError)) > 0  # the replica has the turn
    finally:
        store.close()
        cluster.stop()


def test_a_cluster_that_is_down_at_startup_may_come_up_later(tmp_path, clock):
    cluster = start_cluster(tmp_path)
    try:
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGSTOP)
        store = open_redis(cluster.url, breaker=lambda: Breaker(clock, lambda: 0.0))
        with pytest.raises(StoreError, match="cannot be reached"):
            store.get(A)
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGCONT)

        def turn():
            clock.advance(30.0)
            return store.reserve(A, 60.0, lambda: 1.0)

        assert wait_of(eventually(turn, despite=StoreError)) == 0
        store.close()
    finally:
        cluster.stop()


# -- Sentinels -------------------------------------------------------------------------------------


@pytest.fixture(params=SERVERS)
def watched(tmp_path, request):
    made = Watched(tmp_path, server=request.param)
    yield made
    made.stop()


def test_the_store_recovers_when_the_primary_has_died(watched):
    """Replicated data is still valid; turns and leases work."""
    store = open_store(watched.url)
    put(store, policy())
    assert store.take(A, "one", 1.0, 3600.0)
    assert wait_of(store.reserve(A, 3600.0, lambda: 1.0)) == 0
    store.note_pause(B, 600.0, 1.0)
    with watched.primary.client() as client:
        assert client.execute_command("WAIT", 1, 10_000) >= 0
        with watched.replica.client() as copy:
            eventually(lambda: copy.dbsize() == client.dbsize())
    watched.primary.process.kill()
    watched.primary.process.wait(60)
    with pytest.raises(StoreError):
        store.reserve(A, 3600.0, lambda: 1.0)

    assert (
        wait_of(eventually(lambda: store.reserve(A, 3600.0, lambda: 1.0), despite=StoreError)) > 0
    )
    assert store.get(A) == policy()
    assert not store.take(A, "two", 1.0, 3600.0)
    assert store.reserve(B, 1.0, lambda: 1.0).by_retry_after
    store.release(A, "one")
    assert store.take(A, "two", 1.0, 3600.0)
    put(store, policy(B))
    assert store.get(B) == policy(B)
    store.close()


def test_a_primary_that_returns_as_a_replica_is_disconnected(watched):
    """A pooled connection leads to what is now a replica."""
    store = open_store(watched.url)
    assert wait_of(store.reserve(A, 3600.0, lambda: 1.0)) == 0
    with watched.primary.client() as client, watched.replica.client() as copy:
        eventually(copy.dbsize)
        with watched.sentinel.client() as sentinel:
            # Right after its start it may not know that the replica is usable.
            failover = ("SENTINEL", "FAILOVER", "policies")
            eventually(lambda: sentinel.execute_command(*failover), despite=redis.ResponseError)
        eventually(lambda: client.role()[0] == b"slave")

    assert (
        wait_of(eventually(lambda: store.reserve(A, 3600.0, lambda: 1.0), despite=StoreError)) > 0
    )
    assert (
        wait_of(eventually(lambda: store.reserve(B, 3600.0, lambda: 1.0), despite=StoreError)) == 0
    )
    store.close()


def test_sentinels_get_their_password(tmp_path, monkeypatch):
    watched = Watched(tmp_path, "requirepass sentinels")
    try:
        monkeypatch.setenv("SENTINELS", "wrong password")
        with pytest.raises(
            SettingsError, match="requires a password, or a different one: name the environment"
        ):
            open_store(f"{watched.url}?sentinel_password_env=SENTINELS")
        monkeypatch.setenv("SENTINELS", "sentinels")
        store = open_store(f"{watched.url}?sentinel_password_env=SENTINELS")
        assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) == 0
        store.close()
    finally:
        watched.stop()


def test_a_service_unknown_to_the_sentinels_is_a_settings_error(watched):
    """Like a wrong password it is refused at startup, even if another Sentinel is down."""
    known = f"the Sentinel at 127.0.0.1:{watched.sentinel.port} knows no service 'others'"
    with pytest.raises(SettingsError) as raised:
        open_store(watched.url.replace("policies", "others"))
    assert str(raised.value) == f"store: {known}: end the URL with a service they know ('policies')"

    watched.sentinel.process.kill()
    watched.sentinel.process.wait(60)
    store = open_store(watched.url)  # it is down, and may come up later
    with pytest.raises(StoreError, match=r"no Sentinel answers \(Error 111 .* Connection refused"):
        store.get(A)
    store.close()


def test_a_service_whose_primary_is_down_is_no_settings_error(watched):
    """The service is down, not misspelt: a failover ends by itself."""
    watched.replica.process.kill()
    watched.primary.process.kill()
    with watched.sentinel.client() as sentinel:
        eventually(lambda: sentinel.sentinel_master("policies")["is_odown"])
    store = open_store(watched.url)
    with pytest.raises(
        StoreError, match="the Sentinels know of no primary of 'policies' that is up"
    ) as raised:
        store.get(A)
    assert not isinstance(raised.value, RedisRefused)
    store.close()


def test_a_server_that_is_no_sentinel_and_a_missing_password_have_different_messages(tmp_path):
    for options, cause in (
        ((), "is not a Sentinel: name the Sentinels, or use redis://"),
        (
            ("--requirepass", "x"),
            "requires a password, or a different one: name the environment variable that contains it",
        ),
    ):
        server = start_redis(tmp_path, 0, *options)
        try:
            with pytest.raises(
                SettingsError,
                match=f"^store: the (server|Sentinel) at 127.0.0.1:{server.port} {cause}",
            ):
                open_store(f"redis+sentinel://127.0.0.1:{server.port}/policies/0")
        finally:
            server.process.kill()
            server.process.wait(60)


def test_a_cluster_can_be_opened_read_only(empty_cluster, store):
    put(store, policy())
    looks = look_at(empty_cluster.url)

    assert looks.get(A) == policy()
    assert list(looks.origins()) == [A]
    looks.close()
