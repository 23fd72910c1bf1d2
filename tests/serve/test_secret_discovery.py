"""The secret discovery service, asked as Envoy asks; and the encoding of its messages."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc
import grpc.aio
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.errors import SettingsError
from robots_guard.serve.certificates import Minter
from robots_guard.serve.secret_discovery import (
    SECRET_TYPE,
    SecretResource,
    SecretServer,
    decode_request,
    encode_response,
    serve,
)

AGGREGATED = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
SECRETS = "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets"


# -- a second reader and writer of the encoding ----------------------------------------------------


def varint(number):
    rest, low = divmod(number, 128)
    return bytes([low + 128]) + varint(rest) if rest else bytes([low])


def field(number, value):
    value = value if isinstance(value, bytes) else value.encode()
    return varint(number * 8 + 2) + varint(len(value)) + value


def request(*names, gone=(), kept=(), nonce="", error=None, type_url=SECRET_TYPE):
    node = field(1, field(1, "envoy") + b"\x58\x05" + b"\x5d\0\0\0\0" + b"\x61" + bytes(8))
    written = node + field(2, type_url) + b"".join(field(3, name) for name in names)
    written += b"".join(field(4, name) for name in gone)
    written += b"".join(field(5, field(1, name) + field(2, version)) for name, version in kept)
    written += field(6, nonce) if nonce else b""
    return written + (field(7, b"\x08\x0d" + field(2, error)) if error else b"")


def parsed(data):
    """The fields of a message by number, numbers as int."""
    found, at = {}, 0

    def number():
        nonlocal at
        value, place = 0, 1
        while True:
            byte = data[at]
            at += 1
            value += byte % 128 * place
            place *= 128
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag % 8 == 0:
            found.setdefault(tag // 8, []).append(number())
        else:
            assert tag % 8 == 2
            size = number()
            found.setdefault(tag // 8, []).append(data[at : at + size])
            at += size
    return found


def secrets_in(response):
    """The secrets of a response by name: certificate, key and time to live."""
    found = {}
    for resource in map(parsed, parsed(response).get(2, ())):
        (any_of_it,) = map(parsed, resource[2])
        assert any_of_it[1] == [SECRET_TYPE.encode()]
        (secret,) = map(parsed, any_of_it[2])
        (name,) = secret[1]
        assert [name] == resource[3]
        (certificate,) = map(parsed, secret[2])
        chain, key = (parsed(certificate[place][0])[2][0] for place in (1, 2))
        found[name.decode()] = chain, key, parsed(resource[6][0])[1][0]
    return found


def removed_in(response):
    return [name.decode() for name in parsed(response).get(6, ())]


# -- the encoding ----------------------------------------------------------------------------------


def test_a_request_is_read():
    read = decode_request(
        request("a.test", "b.test", gone=["c.test"], kept=[("d.test", "7")], nonce="3", error="no")
    )
    assert read.type_url == SECRET_TYPE
    assert (read.subscribed, read.unsubscribed) == (("a.test", "b.test"), ("c.test",))
    assert (read.versions, read.nonce, read.error) == ((("d.test", "7"),), "3", "no")
    assert decode_request(b"").error is None


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16383, 16384, 900, 2**31])
def test_a_response_is_written(number):
    secret = SecretResource("a.test", "v", b"c" * (number % 70_000), b"key", number)
    response = encode_response([secret], ["b.test"], "5")
    assert secrets_in(response) == {"a.test": (secret.chain, b"key", number)}
    assert (removed_in(response), parsed(response)[5]) == (["b.test"], [b"5"])
    assert parsed(response)[4] == [SECRET_TYPE.encode()]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(ValueError):
        decode_request(data)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_damaged_request_is_read_or_refused(at, change):
    data = bytearray(request("a.test", kept=[("b.test", "1")], error="x"))
    data[at % len(data)] ^= change
    with contextlib.suppress(ValueError):
        decode_request(bytes(data))


# -- the server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minter(tmp_path_factory):
    return Minter(tmp_path_factory.mktemp("ca"))


@contextlib.asynccontextmanager
async def served(minter, address="127.0.0.1:0", **options):
    server = SecretServer(minter, **options)
    address = await server.start(address)
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel
    await server.close()


@contextlib.asynccontextmanager
async def stream(channel, method=AGGREGATED):
    call = channel.stream_stream(method)()
    yield call
    call.cancel()


async def ask(call, *args, **options):
    await call.write(request(*args, **options))
    return await asyncio.wait_for(call.read(), 20)


@pytest.mark.parametrize("method", [AGGREGATED, SECRETS])
async def test_a_certificate_for_a_name(minter, method):
    async with served(minter, ttl=77) as channel, stream(channel, method) as call:
        found = secrets_in(await ask(call, "example.test"))
    chain, key, ttl = found.pop("example.test")
    (certificate,) = x509.load_pem_x509_certificates(chain)
    name = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(name) == [x509.DNSName("example.test")]
    assert b"PRIVATE KEY" in key
    assert (found, ttl) == ({}, 77)


async def test_the_secret_has_the_name_that_was_asked_for(minter):
    """Envoy knows it under the bytes in the ClientHello."""
    async with served(minter) as channel, stream(channel) as call:
        first = secrets_in(await ask(call, "Example.TEST"))
        second = secrets_in(await ask(call, "example.test"))
    assert first["Example.TEST"] == second["example.test"]


async def test_names_without_a_certificate_are_removed(minter):
    async with served(minter) as channel, stream(channel) as call:
        response = await ask(call, "*", "a b", "good.test", "x" * 300)
        assert list(secrets_in(response)) == ["good.test"]
        assert removed_in(response) == ["*", "a b", "x" * 300]
        assert list(secrets_in(await ask(call, "again.test"))) == ["again.test"]


async def test_a_failure_of_the_ca_fails_the_handshake_only(minter, monkeypatch):
    async with served(minter) as channel, stream(channel) as call:
        with monkeypatch.context() as patched:
            patched.setattr(minter, "leaf", lambda name: 1 / 0)
            assert removed_in(await ask(call, "broken.test")) == ["broken.test"]
        assert list(secrets_in(await ask(call, "broken.test"))) == ["broken.test"]


async def test_what_envoy_has_kept_is_not_sent_again(minter):
    async with served(minter) as channel, stream(channel) as call:
        response = await ask(call, "a.test", "b.test", kept=[("a.test", "1")])
        assert list(secrets_in(response)) == ["b.test"]


async def test_acknowledgements_and_other_types_are_not_answered(minter, caplog):
    async with served(minter) as channel, stream(channel) as call:
        await call.write(request(nonce="1"))
        await call.write(request(nonce="1", error="bad key"))
        await call.write(request("x.test", gone=["y.test"], type_url="type.googleapis.com/Cluster"))
        assert list(secrets_in(await ask(call, "z.test"))) == ["z.test"]
    assert "Envoy rejects a certificate: bad key" in caplog.text


async def test_many_names_at_once(minter):
    """After a restart of this service Envoy asks for the names of all paused handshakes."""
    names = [f"n{number}.test" for number in range(100)]
    found = []
    async with served(minter) as channel, stream(channel) as call:
        await call.write(request(*names))
        while len(found) < len(names):
            found += secrets_in(await asyncio.wait_for(call.read(), 20))
    assert found == names


async def test_a_message_that_cannot_be_read_ends_its_stream_only(minter):
    async with served(minter) as channel:
        async with stream(channel) as call:
            await call.write(b"\xff\xff\xff")
            with pytest.raises(grpc.aio.AioRpcError):
                await asyncio.wait_for(call.read(), 20)
        async with stream(channel) as call:
            assert list(secrets_in(await ask(call, "a.test"))) == ["a.test"]


async def test_another_method_is_not_there(minter):
    async with (
        served(minter) as channel,
        stream(channel, AGGREGATED.replace("Delta", "Stream")) as call,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await ask(call, "a.test")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_unix_socket(minter, tmp_path):
    address = f"unix:{tmp_path / 'sds.sock'}"
    async with served(minter, address) as channel, stream(channel) as call:
        assert (tmp_path / "sds.sock").is_socket()
        assert list(secrets_in(await ask(call, "a.test"))) == ["a.test"]


async def test_an_address_in_use(minter):
    first, second = SecretServer(minter), SecretServer(minter)
    address = await first.start("127.0.0.1:0")
    with pytest.raises(SettingsError, match="cannot listen"):
        await second.start(address)
    await second.close()
    await first.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
async def test_a_socket_that_listens_already(minter, family, tmp_path):
    path = str(tmp_path / "sds.sock")
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else path)
        listener.listen()
        address = f"unix:{path}"
        if family == socket.AF_INET:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        server = await serve(minter, listener)
        async with grpc.aio.insecure_channel(address) as channel:
            for name in ("a.test", "b.test"):
                async with stream(channel) as call:
                    assert list(secrets_in(await ask(call, name))) == [name]
            async with stream(channel) as call:
                await ask(call, "c.test")
                server.close()
                with pytest.raises(grpc.aio.AioRpcError):
                    await asyncio.wait_for(call.read(), 20)
        await server.wait_closed()
