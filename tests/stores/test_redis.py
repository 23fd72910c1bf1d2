"""The Redis store: behaviour specific to a shared server that may be slow, down or unprotected."""

from __future__ import annotations

import contextlib
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stores import KEY, LONG, A, B, in_a_fork, policy, put, start_redis
from support.turns import wait_of
from support.waiting import eventually

from robots_guard.decisions import codec
from robots_guard.decisions.pacing import as_wait
from robots_guard.errors import DamagedValue, SettingsError, StoreError
from robots_guard.guard.stores import look_at, open_store
from robots_guard.guard.stores.breaker import FIRST_PAUSE, Breaker, CircuitOpen
from robots_guard.guard.stores.redis import DOCUMENT_LIFE, POLICY_LIFE, RedisStore
from robots_guard.guard.stores.servers import Sentinels, open_redis
from robots_guard.origin import origin_of

# A test ends the connections of the private `_client`: no public method does.

STORES = Path(__file__).parents[2] / "docs" / "stores.md"


@pytest.fixture
def client(redis_server):
    with redis_server.client() as made:
        yield made


@pytest.fixture
def store(redis_server):
    made = open_store(f"{redis_server.url}?prefix=rg:")
    yield made
    made.close()


def opened(url, clock) -> RedisStore:
    """A store whose breakers use the clock of the test."""
    return open_redis(url, breaker=lambda: Breaker(clock, lambda: 0.0))


def test_all_keys_have_the_prefix_and_expire(redis_server, client):
    store = open_store(f"{redis_server.url}?prefix=fleet*[1]:")
    put(store, policy())
    store.take(A, "x", 1000.0, 35.0)
    client.set("fleetX1:{https://b.test}:policy", "another's")

    lives = {key: client.pttl(key) for key in client.keys("fleet\\*\\[1]:*")}
    assert 0 < lives.pop(b"fleet*[1]:start") <= 1000
    assert 0 < lives.pop(b"fleet*[1]:{https://a.test}:policy") <= POLICY_LIFE
    assert 0 < lives.pop(b"fleet*[1]:{https://a.test}:lease") <= 35_000
    document = f"fleet*[1]:document:{policy().document.sha256}".encode()
    assert POLICY_LIFE < lives.pop(document) <= DOCUMENT_LIFE
    assert not lives
    assert list(store.origins()) == [A]
    store.close()


def test_an_acl_for_the_prefix_is_enough(redis_server, client):
    words = next(
        line for line in STORES.read_text().splitlines() if line.startswith("ACL SETUSER")
    ).split()
    client.execute_command(
        *words[:3], "reset", *("secret".join(word.split("password")) for word in words[3:])
    )
    store = open_store(f"redis://crawler:secret@127.0.0.1:{redis_server.port}/0")
    put(store, policy())

    assert store.get(A) == policy()
    assert store.take(A, "one", 1.0, 35.0)
    store.release(A, "one")
    assert list(store.origins()) == [A]
    assert store.forget(A)
    turn = store.reserve(A, 60.0, lambda: 1.0)
    store.move_turn(A, turn.stamp, 0.1)
    store.note_pause(A, 600.0, 1.0)
    assert store.reserve(A, 60.0, lambda: 1.0).by_retry_after
    store.close()
    with pytest.raises(
        SettingsError,
        match=r"(?i)no permissions.*grant it .*that https://.*/stores.html#redis-and-valkey lists",
    ):
        open_store(f"redis://crawler:secret@127.0.0.1:{redis_server.port}/0?prefix=other:")


def test_a_lease_expires(store):
    assert store.take(A, "dead", 1000.0, 0.15)
    assert not store.take(A, "next", 1000.0, 35.0)
    assert eventually(lambda: store.take(A, "next", 1000.0, 35.0))


# -- values written by another program -------------------------------------------------------------


@pytest.fixture
def keyed(client):
    return RedisStore(client, key=KEY)


def test_a_value_without_a_valid_mac_is_rejected(keyed, client):
    for writer in (RedisStore(client), RedisStore(client, key=b"another key of another writer")):
        put(writer, policy(body=b"User-agent: *\nAllow: /"))
        with pytest.raises(DamagedValue, match="has no valid MAC"):
            keyed.get(A)
        put(keyed, policy())
        assert keyed.get(A) == policy()


def test_without_a_key_a_value_with_a_mac_is_rejected(keyed, client):
    put(keyed, policy())

    with pytest.raises(DamagedValue):
        RedisStore(client).get(A)


def test_a_body_that_replaces_another_is_noticed(keyed, client):
    put(keyed, policy(body=LONG))
    put(keyed, policy(B))
    crafted = client.get(f"rg:document:{policy(B).document.sha256}")
    client.set(f"rg:document:{policy(body=LONG).document.sha256}", crafted)

    with pytest.raises(DamagedValue, match="document stored"):
        keyed.get(A)


# -- the copy of a short document in its policy ----------------------------------------------------

POLICY = "rg:{https://a.test}:policy"


def commands(client, store) -> int:
    """Return how many commands a look-up takes."""
    before = client.info("stats")["total_commands_processed"]
    assert store.get(A)
    return client.info("stats")["total_commands_processed"] - before - 1  # the first INFO


def test_a_policy_with_a_short_document_is_one_call(store, client):
    store.get(A)  # connects
    put(store, policy())
    assert commands(client, store) == 1
    put(store, policy(at=2000.0, body=LONG))
    assert store.get(A) == policy(at=2000.0, body=LONG)
    assert commands(client, store) == 2


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=400), st.booleans())
def test_the_copy_changes_no_policy(keyed, client, body, has_lost_its_copy):
    """Whether a document is read from the policy or from its own key."""
    stored = policy(body=body)
    client.flushall()
    put(keyed, stored)
    if has_lost_its_copy:
        time_, _, value = client.get(POLICY).partition(b"\n")
        client.set(POLICY, time_.partition(b" ")[0] + b"\n" + value)
    else:
        client.delete(f"rg:document:{stored.document.sha256}")
    assert keyed.get(A) == stored


@pytest.mark.parametrize("forged", [b"", b"?", b"eJw", b"eJwDAAAAAAE=", b"A" * 1000])
def test_a_damaged_or_forged_copy_is_not_used(keyed, client, forged):
    put(keyed, policy())
    time_, _, value = client.get(POLICY).partition(b"\n")
    client.set(POLICY, time_.partition(b" ")[0] + b" " + forged + b"\n" + value)
    assert keyed.get(A) == policy()

    client.delete(f"rg:document:{policy().document.sha256}")
    with pytest.raises(DamagedValue, match="document stored"):
        keyed.get(A)


def test_the_copy_of_another_document_is_not_used(keyed, client):
    put(keyed, policy())
    put(keyed, policy(B, body=b"User-agent: *\nAllow: /"))
    allows = client.get("rg:{https://b.test}:policy").partition(b"\n")[0]
    client.set(POLICY, allows + b"\n" + client.get(POLICY).partition(b"\n")[2])

    assert keyed.get(A) == policy()


def test_an_earlier_policy_never_replaces_one_with_a_copy(store):
    put(store, policy(at=2000.0))
    put(store, policy(at=1000.0, body=LONG), now=2000.0)
    assert store.get(A) == policy(at=2000.0)


def test_version_0_1_reads_what_follows_the_copy(store, client):
    """It took all after the first line end for the value."""
    put(store, policy())
    head, _, value = client.get(POLICY).partition(b"\n")
    assert b" " in head
    assert codec.decode(value, A).document.sha256 == policy().document.sha256


@pytest.mark.parametrize(
    "value",
    ["x" * 20_000_000, "", "\n", "9e999\n", "1000.0\n", "nan\nx", "no time"],
    ids=lambda value: value[:10],
)
def test_a_foreign_value_is_replaced_and_not_read_whole(store, client, value):
    client.set("rg:{https://a.test}:policy", value)
    if value:
        with pytest.raises(DamagedValue):
            store.get(A)

    put(store, policy())
    assert store.get(A) == policy()


@pytest.mark.parametrize("key", [POLICY, f"rg:document:{policy(body=LONG).document.sha256}"])
def test_a_key_of_another_type_counts_as_damage_and_is_replaced(store, client, key):
    put(store, policy(body=LONG))
    client.delete(key)
    client.rpush(key, "x")

    with pytest.raises(DamagedValue, match="not a string"):
        store.get(A)
    put(store, policy(body=LONG))
    assert store.get(A) == policy(body=LONG)


@pytest.mark.parametrize("field", ["turns", "lease"])
def test_a_turn_or_lease_of_another_type_is_replaced(store, client, field):
    client.rpush(f"rg:{{https://a.test}}:{field}", "x")
    assert store.last_turn(A) == (0.0, 0.0)

    assert store.take(A, "one", 1.0, 35.0)
    assert not store.take(A, "two", 1.0, 35.0)
    turn = store.reserve(A, 60.0, lambda: 1.0)
    assert wait_of(turn) == 0
    assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) > 0


@pytest.mark.parametrize("what", ["move_turn", "note_pause", "release"])
def test_no_call_fails_forever_because_of_a_key_of_another_type(store, client, what):
    for field in ("turns", "lease"):
        client.rpush(f"rg:{{https://a.test}}:{field}", "x")
    {
        "move_turn": lambda: store.move_turn(A, 1.0, 0.1),
        "note_pause": lambda: store.note_pause(A, 600.0, 1.0),
        "release": lambda: store.release(A, "one"),
    }[what]()

    assert as_wait(store.reserve(A, 60.0, lambda: 1.0)).by_retry_after == (what == "note_pause")


@pytest.mark.parametrize("milliseconds", [None, 10**9])
def test_a_lease_that_lasts_too_long_counts_as_expired(store, client, milliseconds):
    client.set("rg:{https://a.test}:lease", "somebody", px=milliseconds)

    assert store.take(A, "one", 1.0, 35.0)
    assert not store.take(A, "two", 1.0, 35.0)
    assert 0 < client.pttl("rg:{https://a.test}:lease") <= 35_000


def test_a_missing_permission_is_not_mistaken_for_another_type(redis_server, client):
    """Otherwise every turn would be granted, since an unreadable value cannot forbid it."""
    put(RedisStore(client), policy())
    client.execute_command(
        "ACL", "SETUSER", "blind", "reset", "on", ">secret", "~rg:*", "+@all", "-getrange"
    )
    blind = RedisStore(redis.Redis(port=redis_server.port, username="blind", password="secret"))
    with pytest.raises(StoreError, match="refuses"):
        blind.reserve(A, 60.0, lambda: 1.0)
    assert not client.exists("rg:{https://a.test}:turns")
    blind.close()


# -- a server in trouble ---------------------------------------------------------------------------


def test_a_full_server_is_a_store_error_and_reads_still_work(store, client):
    put(store, policy())
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreError, match="refuses"):
            put(store, policy(B))
        assert store.get(A) == policy()
    finally:
        client.config_set("maxmemory", 0)


def test_a_server_that_hangs_is_tried_twice_and_then_not_called(clock):
    """The first of many calls takes some hundred milliseconds; then every call fails at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = opened(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", clock)
        clock.advance(FIRST_PAUSE)
        began = time.monotonic()
        with pytest.raises(StoreError, match="cannot be reached"):
            store.get(A)
        first = time.monotonic() - began
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(CircuitOpen, match=r"^the server cannot be reached"):
                store.take(A, "x", 1.0, 35.0)
        rest = time.monotonic() - began
        store.close()

    assert first > 0.3  # twice 200 ms
    assert rest < 30 * first


def test_a_pause_of_the_server_costs_a_second_and_not_thirty(tmp_path, clock):
    """If the machine was busy, or the server was saving, it is tried again a second later."""
    server = start_redis(tmp_path)
    store = opened(server.url, clock)
    server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreError, match="cannot be reached"):
        store.reserve(A, 60.0, lambda: 1.0)
    server.process.send_signal(signal.SIGCONT)

    turn = None
    for length in (1, 2, 4, 8):  # a loaded machine may be late again, but never 30 s
        clock.advance(length)
        with contextlib.suppress(StoreError):
            turn = turn or store.reserve(A, 60.0, lambda: 1.0)
    assert turn is not None
    store.close()
    server.process.terminate()
    server.process.wait(60)


@contextlib.contextmanager
def lossy(port: int) -> Iterator[tuple[int, threading.Event]]:
    """A relay to a server. While the event is set, it loses the next answer and its connection."""
    lose = threading.Event()

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as server:
                while sent := self.request.recv(65536):
                    server.sendall(sent)
                    answer = server.recv(65536)
                    if lose.is_set():
                        lose.clear()
                        return
                    self.request.sendall(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Relay) as relay:
        thread = threading.Thread(target=relay.serve_forever)
        thread.start()
        yield relay.server_address[1], lose
        relay.shutdown()
        thread.join()


def test_a_call_whose_answer_was_lost_is_retried_once(redis_server, clock):
    with lossy(redis_server.port) as (port, lose):
        store = opened(f"redis://127.0.0.1:{port}/0?timeout=20", clock)
        _load_scripts(store)

        lose.set()
        put(store, policy())
        lose.set()
        assert store.get(A) == policy()
        lose.set()
        # granted, although the server granted it at the first call
        assert store.take(A, "one", 1.0, 35.0)
        assert not store.take(A, "two", 1.0, 35.0)
        lose.set()
        store.release(A, "one")
        assert store.take(A, "two", 1.0, 35.0)
        lose.set()
        # a turn is lost, which costs only a delay
        assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) == pytest.approx(60, abs=30)
        lose.set()
        store.note_pause(A, 600.0, 1.0)
        assert store.reserve(A, 60.0, lambda: 1.0).by_retry_after
        assert not lose.is_set()
        store.close()


def _load_scripts(store) -> None:
    """Let the server load the scripts: an answer that it lacks one says nothing about the call."""
    put(store, policy(B))
    assert store.take(B, "one", 1.0, 35.0)
    store.release(B, "one")
    store.reserve(B, 60.0, lambda: 1.0)
    store.note_pause(B, 600.0, 1.0)


# -- a server that refuses -------------------------------------------------------------------------


@contextlib.contextmanager
def configured(client, **settings) -> Iterator[None]:
    """A server with other settings."""
    before = {
        name.replace("_", "-"): client.config_get(name.replace("_", "-")) for name in settings
    }
    for name, value in settings.items():
        client.config_set(name.replace("_", "-"), value)
    try:
        yield
    finally:
        for name, found in before.items():
            client.config_set(name, found[name])


@pytest.mark.parametrize(
    ("credentials", "message"),
    [("", "uthenticat"), ("me:wrong@", "invalid username-password pair")],
)
def test_a_refused_password_is_an_error_at_startup(redis_server, client, credentials, message):
    client.ping()
    with (
        configured(client, requirepass="secret"),
        pytest.raises(SettingsError, match=f"{message}.*: put them into the URL") as raised,
    ):
        open_store(f"redis://{credentials}127.0.0.1:{redis_server.port}/0")
    assert "wrong" not in str(raised.value)


def test_a_full_server_is_an_error_at_startup(redis_server, client):
    with (
        configured(client, maxmemory=1),
        pytest.raises(SettingsError, match="it is full: set maxmemory-policy"),
    ):
        open_store(redis_server.url)


def test_too_few_replicas_are_an_error_at_startup(redis_server, client):
    with (
        configured(client, min_replicas_to_write=1),
        pytest.raises(SettingsError, match="it reaches too few replicas"),
    ):
        open_store(redis_server.url)


@pytest.fixture
def replica(redis_server, client):
    """A read-only replica of a server that does not exist."""
    client.replicaof("127.0.0.1", 1)
    yield redis_server
    client.replicaof("NO", "ONE")


def test_a_read_only_replica_is_reported_as_one(replica):
    with pytest.raises(
        SettingsError, match="read-only replica: name the primary, or let Sentinels name it"
    ):
        open_store(replica.url)


def test_a_read_only_replica_can_be_opened_read_only(redis_server, client, clock):
    store = opened(redis_server.url, clock)
    put(store, policy())
    client.replicaof("127.0.0.1", 1)
    try:
        looks = look_at(redis_server.url)
        assert looks.get(A) == policy()
        looks.close()
    finally:
        client.replicaof("NO", "ONE")
        store.close()


def test_a_server_that_becomes_a_replica_refuses_writes_and_is_retried(redis_server, client, clock):
    store = opened(redis_server.url, clock)
    put(store, policy())
    client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(StoreError, match=r"refuses.*read-only replica: name the primary"):
            store.reserve(A, 60.0, lambda: 1.0)
        with pytest.raises(CircuitOpen, match=r"^the server refuses"):
            store.reserve(A, 60.0, lambda: 1.0)
        assert store.get(A) == policy()
        clock.advance(FIRST_PAUSE)
        with pytest.raises(StoreError, match="read-only replica"):
            store.take(A, "x", 1.0, 35.0)
    finally:
        client.replicaof("NO", "ONE")
    clock.advance(2 * FIRST_PAUSE)

    assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) == 0
    store.close()


def test_a_changed_password_is_reported_and_retried(redis_server, client, clock):
    store = opened(redis_server.url, clock)
    with configured(client, requirepass="secret"):
        store._client.connection_pool.disconnect()
        with pytest.raises(StoreError, match=r"refuses.*put them into the URL"):
            store.get(A)
        with pytest.raises(CircuitOpen, match=r"^the server refuses"):
            store.reserve(A, 60.0, lambda: 1.0)
    clock.advance(FIRST_PAUSE)

    assert wait_of(store.reserve(A, 60.0, lambda: 1.0)) == 0
    store.close()


def test_a_refused_command_is_not_sent_until_the_retry(redis_server, client, clock):
    store = opened(redis_server.url, clock)
    with configured(client, maxmemory=1):
        with pytest.raises(StoreError, match="it is full"):
            put(store, policy())
        before = client.info("stats")["total_commands_processed"]
        for _ in range(5):
            with pytest.raises(CircuitOpen):
                put(store, policy())
        assert client.info("stats")["total_commands_processed"] - before <= 2
    store.close()


def test_a_server_that_was_down_is_used_again(tmp_path, clock):
    server = start_redis(tmp_path)
    store = opened(server.url, clock)
    put(store, policy())
    server.process.kill()
    server.process.wait(60)
    for _ in range(2):
        with pytest.raises(StoreError):
            store.get(A)
    server = start_redis(tmp_path, server.port)
    with pytest.raises(CircuitOpen):
        store.get(A)
    clock.advance(FIRST_PAUSE)

    assert store.get(A) is None
    put(store, policy())
    assert store.get(A) == policy()
    store.close()
    server.process.terminate()
    server.process.wait(60)


def test_a_server_that_was_restarted_between_two_calls_costs_at_most_one_error(tmp_path, clock):
    server = start_redis(tmp_path)
    store = opened(server.url, clock)
    put(store, policy())
    server.process.kill()
    server.process.wait(60)
    server = start_redis(tmp_path, server.port)
    try:
        put(store, policy())
    except StoreError:
        clock.advance(FIRST_PAUSE)
        put(store, policy())

    assert store.get(A) == policy()
    store.close()
    server.process.terminate()
    server.process.wait(60)


def test_scripts_missing_on_a_server_are_sent_again(store, client):
    put(store, policy())
    client.script_flush()
    put(store, policy(at=1001.0))

    assert store.get(A).settled_at == 1001.0


def test_keys_that_are_not_origins_are_not_listed(store, client):
    put(store, policy())
    for key in (b"rg:{nonsense}:policy", b"rg:{ftp://a.test}:policy", b"rg:{\xff}:policy"):
        client.set(key, "x")

    assert list(store.origins()) == [A]


def test_the_mac_key_comes_from_a_file_or_the_environment(redis_server, tmp_path, monkeypatch):
    monkeypatch.setenv("STORE_KEY", KEY.decode())
    (tmp_path / "key").write_bytes(KEY + b"\n")
    one = open_store(f"{redis_server.url}?hmac_env=STORE_KEY")
    two = open_store(f"{redis_server.url}?hmac_file={tmp_path}/key")
    put(one, policy())

    assert two.get(A) == policy()
    assert two.get(origin_of("https://c.test")) is None
    one.close()
    two.close()


def test_the_store_works_in_a_forked_child(store):
    """The client gives a forked child its own connections."""
    put(store, policy())

    assert in_a_fork(lambda: put(store, policy(B)) or store.get(A) == policy())
    assert store.get(B) == policy(B)


def test_concurrent_queries_of_the_sentinels_see_all_of_them():
    """While one thread moves the Sentinel that answered to the front, another must see all of them."""
    sentinels = Sentinels([("127.0.0.1", port) for port in (1, 2, 3)], {})
    up = {"is_master": True, "is_sdown": False, "is_odown": False, "ip": "10.0.0.1", "port": 6379}
    before, third = sentinels.sentinels, sentinels.sentinels[2]
    for each in before[:2]:
        each.sentinel_masters = dict
    third.sentinel_masters = lambda: {"service": up}
    seen = list(before)

    assert sentinels.discover_master("service") == ("10.0.0.1", 6379)
    assert before == seen
    assert sentinels.sentinels == [third, *seen[:2]]


def test_a_turn_bounds_the_error_of_the_servers_clock(redis_server):
    """The server's clock was read at an unknown moment during the call."""
    moments = iter((100.0, 101.8))
    turn = open_redis(redis_server.url).reserve(A, 0.0, lambda: next(moments))

    assert turn.doubt == pytest.approx(0.9)
