"""The Redis store: what is particular to a server that others use too, and that may be slow, down or open to all."""

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
from support.stores import KEY, A, B, in_a_fork, policy, put, start_redis

from robots_guard.errors import DamagedValue, SettingsError, StoreError
from robots_guard.origin import origin_of
from robots_guard.stores import look_at, open_store
from robots_guard.stores.breaker import FIRST, Breaker, LeftAlone
from robots_guard.stores.redis import DOCUMENT_LIFE, POLICY_LIFE, RedisStore
from robots_guard.stores.sentinels import Sentinels
from robots_guard.stores.servers import open_redis

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


def opened(url, clock) -> RedisStore:
    """A store whose breakers go by a clock of the test's."""
    return open_redis(url, breaker=lambda: Breaker(clock, lambda: 0.0))


def test_all_keys_have_the_prefix_and_an_end(empty_redis, client):
    store = open_store(f"{empty_redis.url}?prefix=fleet*[1]:")
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
    with pytest.raises(SettingsError, match=r"no permissions.*give it the commands that docs/stores.md lists"):
        open_store(f"redis://crawler:secret@127.0.0.1:{empty_redis.port}/0?prefix=other:")


def test_a_lease_ends_by_itself(store):
    assert store.take(A, "dead", 1000.0, 0.15)
    assert not store.take(A, "next", 1000.0, 35.0)
    deadline = time.monotonic() + 60
    while not store.take(A, "next", 1000.0, 35.0):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_purge_prolongs_what_a_journal_refers_to(store, client):
    put(store, policy())
    key = f"rg:document:{policy().document.sha256}"
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
    crafted = client.get(f"rg:document:{policy(B, body=b'User-agent: *' + bytes([10]) + b'Allow: /').document.sha256}")
    client.set(f"rg:document:{policy().document.sha256}", crafted)

    with pytest.raises(DamagedValue, match="document held"):
        keyed.get(A)


@pytest.mark.parametrize("held", ["x" * 20_000_000, "", "\n", "9e999\n", "1000.0\n", "nan\nx", "no time"])
def test_whatever_stands_under_the_key_gives_way_and_is_not_read_whole(store, client, held):
    client.set("rg:{https://a.test}:policy", held)
    if held:
        with pytest.raises(DamagedValue):
            store.get(A)

    put(store, policy())
    assert store.get(A) == policy()


@pytest.mark.parametrize("key", ["rg:{https://a.test}:policy", f"rg:document:{policy().document.sha256}"])
def test_a_key_of_another_type_is_damage_and_gives_way(store, client, key):
    put(store, policy())
    client.delete(key)
    client.rpush(key, "x")

    with pytest.raises(DamagedValue, match="no string"):
        store.get(A)
    put(store, policy())
    assert store.get(A) == policy()


@pytest.mark.parametrize("field", ["turns", "lease"])
def test_a_turn_or_lease_of_another_type_gives_way(store, client, field):
    client.rpush(f"rg:{{https://a.test}}:{field}", "x")
    assert store.last_turn(A) == (0.0, 0.0)

    assert store.take(A, "one", 1.0, 35.0)
    assert not store.take(A, "two", 1.0, 35.0)
    turn = store.reserve(A, 60.0, lambda: 1.0)
    assert turn.wait == 0
    assert store.reserve(A, 60.0, lambda: 1.0).wait > 0


@pytest.mark.parametrize("what", ["count_from", "hold_off", "release"])
def test_no_call_fails_for_ever_for_a_key_of_another_type(store, client, what):
    for field in ("turns", "lease"):
        client.rpush(f"rg:{{https://a.test}}:{field}", "x")
    {
        "count_from": lambda: store.count_from(A, 1.0, 0.1),
        "hold_off": lambda: store.hold_off(A, 600.0, 1.0),
        "release": lambda: store.release(A, "one"),
    }[what]()

    assert store.reserve(A, 60.0, lambda: 1.0).by_retry_after == (what == "hold_off")


@pytest.mark.parametrize("milliseconds", [None, 10**9])
def test_a_lease_that_does_not_end_before_long_counts_as_ended(store, client, milliseconds):
    client.set("rg:{https://a.test}:lease", "somebody", px=milliseconds)

    assert store.take(A, "one", 1.0, 35.0)
    assert not store.take(A, "two", 1.0, 35.0)
    assert 0 < client.pttl("rg:{https://a.test}:lease") <= 35_000


def test_a_right_that_is_missing_is_not_taken_for_another_type(empty_redis, client):
    """Else every turn would be granted, for what may not be read cannot forbid it."""
    put(RedisStore(client), policy())
    client.execute_command("ACL", "SETUSER", "blind", "reset", "on", ">secret", "~rg:*", "+@all", "-getrange")
    blind = RedisStore(redis.Redis(port=empty_redis.port, username="blind", password="secret"))
    with pytest.raises(StoreError, match="refuses"):
        blind.reserve(A, 60.0, lambda: 1.0)
    assert not client.exists("rg:{https://a.test}:turns")
    blind.close()


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


def test_a_server_that_hangs_is_waited_for_twice_and_then_left_alone(clock):
    """Of many calls the first costs some hundred milliseconds; then every call fails at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = opened(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", clock)
        clock.advance(FIRST)
        began = time.monotonic()
        with pytest.raises(StoreError, match="cannot be asked"):
            store.get(A)
        first = time.monotonic() - began
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(LeftAlone, match=r"^the server cannot be asked"):
                store.take(A, "x", 1.0, 35.0)
        rest = time.monotonic() - began
        store.close()

    assert first > 0.3  # twice 200 ms
    assert rest < 30 * first


def test_a_pause_of_the_server_costs_a_second_and_not_thirty(tmp_path, clock):
    """The machine was busy, or the server wrote its file: it is asked again a second later."""
    server = start_redis(tmp_path)
    store = opened(server.url, clock)
    server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreError, match="cannot be asked"):
        store.reserve(A, 60.0, lambda: 1.0)
    server.process.send_signal(signal.SIGCONT)

    turn = None
    for length in (1, 2, 4, 8):  # a loaded machine may be late again; not 30 s in any case
        clock.advance(length)
        with contextlib.suppress(StoreError):
            turn = turn or store.reserve(A, 60.0, lambda: 1.0)
    assert turn is not None
    store.close()
    server.process.terminate()
    server.process.wait(60)


@contextlib.contextmanager
def lossy(port: int) -> Iterator[tuple[int, threading.Event]]:
    """A relay to a server that loses one answer: while the event is set, the next one, and its connection."""
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


def test_a_call_whose_answer_was_lost_is_made_once_more(empty_redis, clock):
    with lossy(empty_redis.port) as (port, lose):
        store = opened(f"redis://127.0.0.1:{port}/0?timeout=20", clock)

        lose.set()
        put(store, policy())
        lose.set()
        assert store.get(A) == policy()
        lose.set()
        assert store.take(A, "one", 1.0, 35.0)  # we have it, though the server took it at the first call
        assert not store.take(A, "two", 1.0, 35.0)
        lose.set()
        store.release(A, "one")
        assert store.take(A, "two", 1.0, 35.0)
        lose.set()
        assert store.reserve(A, 60.0, lambda: 1.0).wait == pytest.approx(60, abs=30)  # a turn is lost: a delay, no more
        lose.set()
        store.hold_off(A, 600.0, 1.0)
        assert store.reserve(A, 60.0, lambda: 1.0).by_retry_after
        assert not lose.is_set()
        store.close()


# -- a server that refuses ------------------------------------------------------------------------------------


@contextlib.contextmanager
def configured(client, **settings) -> Iterator[None]:
    """A server with other settings."""
    before = {name.replace("_", "-"): client.config_get(name.replace("_", "-")) for name in settings}
    for name, value in settings.items():
        client.config_set(name.replace("_", "-"), value)
    try:
        yield
    finally:
        for name, found in before.items():
            client.config_set(name, found[name])


@pytest.mark.parametrize(
    ("credentials", "says"),
    [("", "uthenticat"), ("me:wrong@", "invalid username-password pair")],
)
def test_a_password_that_is_refused_is_an_error_at_the_start(empty_redis, client, credentials, says):
    client.ping()
    with (
        configured(client, requirepass="secret"),
        pytest.raises(SettingsError, match=f"{says}.*: put them into the URL") as told,
    ):
        open_store(f"redis://{credentials}127.0.0.1:{empty_redis.port}/0")
    assert "wrong" not in str(told.value)


def test_a_server_that_is_full_is_an_error_at_the_start(empty_redis, client):
    with (
        configured(client, maxmemory=1),
        pytest.raises(SettingsError, match="it is full: set maxmemory-policy"),
    ):
        open_store(empty_redis.url)


def test_a_server_that_wants_more_replicas_is_an_error_at_the_start(empty_redis, client):
    with (
        configured(client, min_replicas_to_write=1),
        pytest.raises(SettingsError, match="it reaches too few replicas"),
    ):
        open_store(empty_redis.url)


@pytest.fixture
def replica(empty_redis, client):
    """A server that is a read-only replica, of none that is there."""
    client.replicaof("127.0.0.1", 1)
    yield empty_redis
    client.replicaof("NO", "ONE")


def test_a_read_only_replica_is_named_as_one(replica):
    with pytest.raises(SettingsError, match="read-only replica: name the primary, or let Sentinels name it"):
        open_store(replica.url)


def test_a_read_only_replica_can_be_looked_at(empty_redis, client, clock):
    store = opened(empty_redis.url, clock)
    put(store, policy())
    client.replicaof("127.0.0.1", 1)
    try:
        looks = look_at(empty_redis.url)
        assert looks.get(A) == policy()
        looks.close()
    finally:
        client.replicaof("NO", "ONE")
        store.close()


def test_a_server_that_becomes_a_replica_refuses_what_writes_and_is_tried_again(empty_redis, client, clock):
    store = opened(empty_redis.url, clock)
    put(store, policy())
    client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(StoreError, match=r"refuses.*read-only replica: name the primary"):
            store.reserve(A, 60.0, lambda: 1.0)
        with pytest.raises(LeftAlone, match=r"^the server refuses"):
            store.reserve(A, 60.0, lambda: 1.0)
        assert store.get(A) == policy()
        clock.advance(FIRST)
        with pytest.raises(StoreError, match="read-only replica"):
            store.take(A, "x", 1.0, 35.0)
    finally:
        client.replicaof("NO", "ONE")
    clock.advance(2 * FIRST)

    assert store.reserve(A, 60.0, lambda: 1.0).wait == 0
    store.close()


def test_a_password_that_is_changed_is_said_and_tried_again(empty_redis, client, clock):
    store = opened(empty_redis.url, clock)
    with configured(client, requirepass="secret"):
        store._client.connection_pool.disconnect()
        with pytest.raises(StoreError, match=r"refuses.*put them into the URL"):
            store.get(A)
        with pytest.raises(LeftAlone, match=r"^the server refuses"):
            store.reserve(A, 60.0, lambda: 1.0)
    clock.advance(FIRST)

    assert store.reserve(A, 60.0, lambda: 1.0).wait == 0
    store.close()


def test_nothing_is_sent_for_what_was_refused_until_it_is_tried_again(empty_redis, client, clock):
    store = opened(empty_redis.url, clock)
    with configured(client, maxmemory=1):
        with pytest.raises(StoreError, match="it is full"):
            put(store, policy())
        before = client.info("stats")["total_commands_processed"]
        for _ in range(5):
            with pytest.raises(LeftAlone):
                put(store, policy())
        assert client.info("stats")["total_commands_processed"] - before <= 2
    store.close()


def test_a_server_that_was_down_is_found_again(tmp_path, clock):
    server = start_redis(tmp_path)
    store = opened(server.url, clock)
    put(store, policy())
    server.process.kill()
    server.process.wait(60)
    for _ in range(2):
        with pytest.raises(StoreError):
            store.get(A)
    server = start_redis(tmp_path, server.port)
    with pytest.raises(LeftAlone):
        store.get(A)
    clock.advance(FIRST)

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
        clock.advance(FIRST)
        put(store, policy())

    assert store.get(A) == policy()
    store.close()
    server.process.terminate()
    server.process.wait(60)


def test_scripts_a_server_has_forgotten_are_sent_again(store, client):
    put(store, policy())
    client.script_flush()
    put(store, policy(at=1001.0))

    assert store.get(A).settled_at == 1001.0


def test_keys_that_are_no_origins_are_not_listed(store, client):
    put(store, policy())
    for key in (b"rg:{nonsense}:policy", b"rg:{ftp://a.test}:policy", b"rg:{\xff}:policy"):
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


def test_threads_that_ask_the_sentinels_at_once_do_not_take_them_from_each_other():
    """While one thread puts the Sentinel that has answered first, another must find all of them."""
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


def test_a_turn_says_by_how_much_the_servers_clock_may_be_misread(redis_server):
    """The server's clock was read at some moment of the call, which one is not known."""
    moments = iter((100.0, 101.8))
    turn = open_redis(redis_server.url).reserve(A, 0.0, lambda: next(moments))

    assert turn.doubt == pytest.approx(0.9)
