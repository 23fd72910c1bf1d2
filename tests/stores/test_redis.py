"""The Redis store: what is particular to a server that others use too, and that may be slow, down or open to all."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from support.stores import KEY, A, B, in_a_fork, policy, put, start_redis

from robots_guard.errors import DamagedValue, StoreError
from robots_guard.origin import origin_of
from robots_guard.stores import open_store
from robots_guard.stores.breaker import OPEN_FOR, Breaker
from robots_guard.stores.redis import DOCUMENT_LIFE, POLICY_LIFE, RedisStore

STORES = Path(__file__).parents[2] / "docs" / "stores.md"


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as made:
        yield made


@pytest.fixture
def store(empty_redis):
    made = open_store(f"{empty_redis.url}?prefix=rg:")
    yield made
    made.close()


def test_all_keys_have_the_prefix_and_an_end(empty_redis, client):
    store = open_store(f"{empty_redis.url}?prefix=fleet*[1]:")
    put(store, policy())
    store.take(A, "x", 1000.0, 35.0)
    client.set("fleetX1:p:https://b.test", "another's")

    lives = {key: client.pttl(key) for key in client.keys("fleet\\*\\[1]:*")}
    assert {key[:11]: key[11:12] for key in lives} == {b"fleet*[1]:p": b":", b"fleet*[1]:d": b":", b"fleet*[1]:l": b":"}
    assert 0 < lives.pop(b"fleet*[1]:p:https://a.test") <= POLICY_LIFE
    assert 0 < lives.pop(b"fleet*[1]:l:https://a.test") <= 35_000
    assert POLICY_LIFE < lives.popitem()[1] <= DOCUMENT_LIFE
    assert list(store.origins()) == [A]
    store.close()


def test_an_acl_for_the_prefix_is_enough(empty_redis, client):
    words = next(line for line in STORES.read_text().splitlines() if line.startswith("ACL SETUSER")).split()
    client.execute_command(*words[:3], "reset", *("secret".join(word.split("password")) for word in words[3:]))
    store = open_store(f"redis://crawler:secret@127.0.0.1:{empty_redis.port}/0")
    put(store, policy())

    assert store.get(A) == policy()
    assert store.take(A, "one", 1.0, 35.0)
    store.release(A, "one")
    assert list(store.origins()) == [A]
    assert store.purge(1.0, keep=[policy().document.sha256]) == 0
    assert store.forget(A)
    turn = store.reserve(A, 60.0, lambda: 1.0)
    store.count_from(A, turn.stamp, 0.1)
    store.hold_off(A, 600.0, 1.0)
    assert store.reserve(A, 60.0, lambda: 1.0).by_retry_after
    store.close()
    elsewhere = open_store(f"redis://crawler:secret@127.0.0.1:{empty_redis.port}/0?prefix=other:")
    with pytest.raises(StoreError, match="refuses"):
        put(elsewhere, policy())
    elsewhere.close()


def test_a_lease_ends_by_itself(store):
    assert store.take(A, "dead", 1000.0, 0.15)
    assert not store.take(A, "next", 1000.0, 35.0)
    deadline = time.monotonic() + 5
    while not store.take(A, "next", 1000.0, 35.0):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_purge_prolongs_what_a_journal_refers_to(store, client):
    put(store, policy())
    key = f"rg:d:{policy().document.sha256}"
    client.pexpire(key, 1000)
    store.purge(1000.0, keep=[policy().document.sha256, "0" * 64])

    assert client.pttl(key) > POLICY_LIFE


# -- values somebody else has put there ---------------------------------------------------------------------


@pytest.fixture
def keyed(client):
    return RedisStore(client, key=KEY)


def test_only_our_mac_is_believed(keyed, client):
    for writer in (RedisStore(client), RedisStore(client, key=b"another key of theirs")):
        put(writer, policy(body=b"User-agent: *\nAllow: /"))
        with pytest.raises(DamagedValue, match="does not carry our MAC"):
            keyed.get(A)
        put(keyed, policy())
        assert keyed.get(A) == policy()


def test_without_a_key_a_value_with_a_mac_is_no_value(keyed, client):
    put(keyed, policy())

    with pytest.raises(DamagedValue):
        RedisStore(client).get(A)


def test_a_body_put_in_place_of_another_is_noticed(keyed, client):
    put(keyed, policy())
    put(keyed, policy(B, body=b"User-agent: *\nAllow: /"))
    crafted = client.get(f"rg:d:{policy(B, body=b'User-agent: *' + bytes([10]) + b'Allow: /').document.sha256}")
    client.set(f"rg:d:{policy().document.sha256}", crafted)

    with pytest.raises(DamagedValue, match="document held"):
        keyed.get(A)


@pytest.mark.parametrize("held", ["x" * 20_000_000, "", "\n", "9e999\n", "1000.0\n", "nan\nx", "no time"])
def test_whatever_stands_under_the_key_gives_way_and_is_not_read_whole(store, client, held):
    client.set("rg:p:https://a.test", held)
    if held:
        with pytest.raises(DamagedValue):
            store.get(A)

    put(store, policy())
    assert store.get(A) == policy()


@pytest.mark.parametrize("key", ["rg:p:https://a.test", f"rg:d:{policy().document.sha256}"])
def test_a_key_of_another_type_is_damage_and_gives_way(store, client, key):
    put(store, policy())
    client.delete(key)
    client.rpush(key, "x")

    with pytest.raises(DamagedValue, match="no string"):
        store.get(A)
    put(store, policy())
    assert store.get(A) == policy()


# -- a server in trouble ------------------------------------------------------------------------------------


def test_a_server_that_is_full_is_a_store_error_and_reading_goes_on(store, client):
    put(store, policy())
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreError, match="refuses"):
            put(store, policy(B))
        assert store.get(A) == policy()
    finally:
        client.config_set("maxmemory", 0)


def test_a_server_that_hangs_is_waited_for_once():
    """200 ms, and then every call fails at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_store(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        began = time.monotonic()
        with pytest.raises(StoreError, match="cannot be asked"):
            store.get(A)
        first = time.monotonic() - began
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(StoreError, match="left alone for 30 s"):
                store.take(A, "x", 1.0, 35.0)
        rest = time.monotonic() - began
        store.close()

    assert 0.1 < first < 2
    assert rest < 0.1


def test_a_server_that_was_down_is_found_again(tmp_path, clock):
    server = start_redis(tmp_path)
    store = open_store(server.url)
    store._breaker = Breaker(clock)
    put(store, policy())
    server.process.kill()
    server.process.wait(10)
    for _ in range(2):
        with pytest.raises(StoreError):
            store.get(A)
    server = start_redis(tmp_path, server.port)
    with pytest.raises(StoreError, match="left alone"):
        store.get(A)
    clock.advance(OPEN_FOR)

    assert store.get(A) is None
    put(store, policy())
    assert store.get(A) == policy()
    store.close()
    server.process.terminate()
    server.process.wait(10)


def test_a_server_that_was_restarted_between_two_calls_costs_at_most_one_error(tmp_path, clock):
    server = start_redis(tmp_path)
    store = open_store(server.url)
    store._breaker = Breaker(clock)
    put(store, policy())
    server.process.kill()
    server.process.wait(10)
    server = start_redis(tmp_path, server.port)
    try:
        put(store, policy())
    except StoreError:
        clock.advance(OPEN_FOR)
        put(store, policy())

    assert store.get(A) == policy()
    store.close()
    server.process.terminate()
    server.process.wait(10)


def test_scripts_a_server_has_forgotten_are_sent_again(store, client):
    put(store, policy())
    client.script_flush()
    put(store, policy(at=1001.0))

    assert store.get(A).settled_at == 1001.0


def test_keys_that_are_no_origins_are_not_listed(store, client):
    put(store, policy())
    for key in (b"rg:p:nonsense", b"rg:p:ftp://a.test", b"rg:p:\xff"):
        client.set(key, "x")

    assert list(store.origins()) == [A]


def test_a_key_for_macs_comes_from_a_file_or_the_environment(empty_redis, tmp_path, monkeypatch):
    monkeypatch.setenv("STORE_KEY", KEY.decode())
    (tmp_path / "key").write_bytes(KEY + b"\n")
    one = open_store(f"{empty_redis.url}?hmac_env=STORE_KEY")
    two = open_store(f"{empty_redis.url}?hmac_file={tmp_path}/key")
    put(one, policy())

    assert two.get(A) == policy()
    assert two.get(origin_of("https://c.test")) is None
    one.close()
    two.close()


def test_a_fork_is_no_trouble(store):
    """The client gives a forked child connections of its own."""
    put(store, policy())

    assert in_a_fork(lambda: put(store, policy(B)) or store.get(A) == policy())
    assert store.get(B) == policy(B)
