"""Leaf certificates: what they name, how long they are valid, and which clients accept them."""

from __future__ import annotations

import datetime as dt
import errno
import ipaddress
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from robots_guard.errors import SettingsError
from robots_guard.serve.certificates import (
    CA_CERTIFICATE,
    CA_FILE,
    LEAF_LIFETIME,
    LEAST_LEFT,
    Minter,
    NoLeaf,
    load_authority,
)

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


class Clock:
    def __init__(self, now: dt.datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now.timestamp()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ca")
    load_authority(folder, NOW)
    return folder


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def certificates(folder, clock):
    return Minter(folder, now=clock)


def read(leaf) -> x509.Certificate:
    return x509.load_pem_x509_certificates(leaf.chain)[0]


def alternative_names(certificate):
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


# -- what a leaf names -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("example.test", "example.test"),
        ("EXAMPLE.test", "example.test"),
        ("example.test.", "example.test"),
        ("xn--fa-hia.de", "xn--fa-hia.de"),
        ("my_host.example.test", "my_host.example.test"),
        ("localhost", "localhost"),
        (f"{'a' * 63}.test", f"{'a' * 63}.test"),
    ],
)
def test_a_name(certificates, name, host):
    certificate = read(certificates.leaf(name))
    assert alternative_names(certificate) == [x509.DNSName(host)]


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("0xc0000201", "192.0.2.1"),
    ],
)
def test_an_address(certificates, name, address):
    certificate = read(certificates.leaf(name))
    assert alternative_names(certificate) == [x509.IPAddress(ipaddress.ip_address(address))]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "*",
        "*.example.test",
        "a..test",
        ".example.test",
        "example.test:443",
        "user@example.test",
        "a b.test",
        "a/b",
        "../../etc/passwd",
        "a\0b.test",
        "a\r\nb.test",
        "a%2eb.test",
        "b\xfccher.example",
        "a,DNS:other.test",
        "[::1",
        "[2001:db8::1]",
        "fe80::1%eth0",
        "1.2.3.4.5",
        "999.1.1.1",
        f"{'a' * 64}.test",
        "a." * 126 + "ab",
        "x" * 100_000,
    ],
)
def test_a_name_that_no_origin_has(certificates, name):
    with pytest.raises(NoLeaf):
        certificates.leaf(name)
    assert len(certificates) == 0


def test_a_long_name_is_not_a_common_name(certificates):
    """RFC 5280: a common name has at most 64 characters, and without a subject the SAN is critical."""
    long, short = (read(certificates.leaf("a" * size + ".example.test")) for size in (60, 10))
    assert list(long.subject) == []
    assert long.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical
    (name,) = short.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "a" * 10 + ".example.test"


def test_a_leaf_signs_nothing_and_is_for_servers(certificates):
    certificate = read(certificates.leaf("example.test"))
    extensions = certificate.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)


def test_each_leaf_has_its_own_key_and_serial_number(certificates):
    first, second = (certificates.leaf(name) for name in ("a.test", "b.test"))
    assert first.key != second.key
    assert read(first).serial_number != read(second).serial_number
    assert first.version != second.version


# -- validity and the cache --------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [-1.9 * DAY, -DAY, DAY, 1.9 * DAY])
def test_a_client_whose_clock_is_wrong(certificates, clock, skew):
    """Whenever a leaf is handed out, it is valid for clients whose clocks are up to two days off."""
    for hours in range(0, 24 * 20, 7):
        clock.now = NOW + dt.timedelta(hours=hours)
        certificate = read(certificates.leaf("example.test"))
        assert (
            certificate.not_valid_before_utc <= clock.now + skew < certificate.not_valid_after_utc
        )


def test_a_leaf_is_signed_once(certificates, clock):
    first = certificates.leaf("example.test")
    assert certificates.leaf("EXAMPLE.test.") is first
    clock.now += LEAF_LIFETIME - LEAST_LEFT - dt.timedelta(seconds=1)
    assert certificates.leaf("example.test") is first
    clock.now += dt.timedelta(seconds=1)
    assert certificates.leaf("example.test") is not first


def test_a_clock_that_is_set_back(certificates, clock):
    """A leaf of a future that was a mistake may not be valid yet."""
    clock.now = NOW + 4 * DAY
    first = certificates.leaf("example.test")
    clock.now = NOW + DAY
    assert read(certificates.leaf("example.test")).not_valid_before_utc <= clock.now - DAY
    assert certificates.leaf("example.test") is not first


def test_the_cache_is_bounded(folder, clock):
    certificates = Minter(folder, now=clock, max_cached=3)
    kept = certificates.leaf("kept.test")
    for number in range(10):
        certificates.leaf(f"n{number}.test")
        assert certificates.leaf("kept.test") is kept
    assert len(certificates) == 3


def test_no_leaf_outlives_its_ca(folder, clock, certificates):
    authority = load_authority(folder, NOW).certificate
    clock.now = authority.not_valid_after_utc - DAY
    leaf = certificates.leaf("example.test")
    assert read(leaf).not_valid_after_utc == authority.not_valid_after_utc
    clock.now = authority.not_valid_after_utc
    with pytest.raises(NoLeaf):
        certificates.leaf("other.test")
    with pytest.raises(NoLeaf):
        certificates.leaf("example.test")


# -- clients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["example.test", "192.0.2.1", "2001:db8::1", "a" * 63 + ".test"])
@pytest.mark.parametrize("by_mitmproxy", [False, True], ids=["own", "mitmproxy"])
def test_openssl_accepts_a_leaf(name, by_mitmproxy, tmp_path):
    """With the checks of RFC 5280 that Python 3.13 makes by default."""
    if by_mitmproxy:
        certs = pytest.importorskip("mitmproxy.certs")
        certs.CertStore.from_store(tmp_path, "mitmproxy", 2048)
    certificates = Minter(tmp_path)
    leaf = certificates.leaf(name)
    pem = tmp_path / "leaf.pem"
    pem.write_bytes(leaf.key + leaf.chain)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cafile=str(tmp_path / CA_CERTIFICATE))
    if not by_mitmproxy:
        client.verify_flags |= ssl.VERIFY_X509_STRICT
    left, right = socket.socketpair()
    serving = threading.Thread(target=lambda: server.wrap_socket(left, server_side=True).close())
    serving.start()
    with client.wrap_socket(right, server_hostname=name) as connection:
        assert connection.version() == "TLSv1.3"
    serving.join()


# -- the CA ------------------------------------------------------------------------------------------


def test_the_key_is_readable_by_its_owner_only(folder):
    assert (folder / CA_FILE).stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in (folder / CA_CERTIFICATE).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == [CA_CERTIFICATE, CA_FILE]


def test_mitmproxy_takes_a_ca_that_was_created_here(tmp_path):
    """`robots-guard proxy` and `robots-guard serve` share one CA, whichever started first."""
    certs = pytest.importorskip("mitmproxy.certs")
    own = load_authority(tmp_path, dt.datetime.now(dt.UTC)).certificate
    store = certs.CertStore.from_store(tmp_path, "mitmproxy", 2048)
    assert store.default_ca._cert == own
    entry = store.get_cert("example.test", [x509.DNSName("example.test")])
    entry.cert._cert.verify_directly_issued_by(own)


LOAD = """
import datetime, sys
from pathlib import Path
from cryptography.hazmat.primitives import hashes
from robots_guard.serve.certificates import load_authority
now = datetime.datetime.fromisoformat(sys.argv[2])
print(load_authority(Path(sys.argv[1]), now).certificate.fingerprint(hashes.SHA256()).hex())
"""


def test_processes_that_start_together_have_one_ca(tmp_path):
    command = [sys.executable, "-c", LOAD, str(tmp_path), NOW.isoformat()]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate()[0].strip() for process in processes}
    public = x509.load_pem_x509_certificate((tmp_path / CA_CERTIFICATE).read_bytes())
    assert printed == {public.fingerprint(hashes.SHA256()).hex()}


def test_a_missing_certificate_file_is_written_again(tmp_path):
    own = load_authority(tmp_path, NOW).certificate
    (tmp_path / CA_CERTIFICATE).unlink()
    load_authority(tmp_path, NOW)
    assert x509.load_pem_x509_certificate((tmp_path / CA_CERTIFICATE).read_bytes()) == own


def own_ca(folder, key, *, ca=True, days=10, signer=None, issuer=None, more=b""):
    """Write a CA as an operator may bring it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 20 * DAY)
        .not_valid_after(NOW + days * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    signer = signer or key
    digest = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    certificate = builder.sign(signer, digest)
    folder.mkdir(exist_ok=True)
    (folder / CA_FILE).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
        + more
    )
    return certificate


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()]
)
def test_a_ca_with_another_kind_of_key(tmp_path, key):
    authority = own_ca(tmp_path, key)
    leaf = Minter(tmp_path, now=Clock()).leaf("example.test")
    read(leaf).verify_directly_issued_by(authority)


def test_an_intermediate_ca_is_sent_with_each_leaf(tmp_path):
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = own_ca(tmp_path / "root", root_key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "between")])
    between = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    (tmp_path / CA_FILE).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + between.public_bytes(serialization.Encoding.PEM)
        + root.public_bytes(serialization.Encoding.PEM)
    )
    leaf = Minter(tmp_path, now=Clock()).leaf("example.test")
    first, *others = x509.load_pem_x509_certificates(leaf.chain)
    first.verify_directly_issued_by(between)
    assert others == [between]  # the root is the client's


def test_a_ca_of_another_user_is_not_to_be_moved_away(tmp_path, monkeypatch):
    def deny(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / CA_FILE).touch()
    monkeypatch.setattr(Path, "read_bytes", deny)

    with pytest.raises(SettingsError, match=f"may not use .*{CA_FILE}.*: .* its owner") as caught:
        load_authority(tmp_path, NOW)
    assert "move it away" not in str(caught.value)


def test_what_is_not_a_usable_ca(tmp_path):
    key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own_ca(tmp_path / "leaf", key, ca=False)
    own_ca(tmp_path / "expired", key, days=-1)
    own_ca(tmp_path / "other", key)
    path = tmp_path / "other" / CA_FILE
    certificate = path.read_bytes().partition(b"-----BEGIN CERT")
    own_ca(tmp_path / "other", other)
    path.write_bytes(path.read_bytes().partition(b"-----BEGIN CERT")[0] + b"".join(certificate[1:]))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / CA_FILE).write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / CA_FILE).mkdir()
    for name in ("leaf", "expired", "other", "empty", "folder"):
        with pytest.raises(SettingsError, match="has no usable CA"):
            load_authority(tmp_path / name, NOW)
