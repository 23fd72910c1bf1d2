"""Leaf certificates for inspected TLS, signed by the proxy's own CA.

The CA is the one of `robots-guard proxy`: mitmproxy's files in the same folder, so that clients
trust one certificate, whichever program terminates their TLS. If there is none yet, it is created
here in the same form.

Invariant: a leaf names exactly one host or address, which is spelt as in an origin. A name that no
origin can have, such as a wildcard, gets no leaf.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cachetools import LRUCache
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from robots_guard.configuration.settings import CLOCKS
from robots_guard.errors import MalformedURL, SettingsError
from robots_guard.origin import parse_authority

#: mitmproxy's names: the key with its certificate, and the certificate alone.
CA_FILE = "mitmproxy-ca.pem"
CA_CERTIFICATE = "mitmproxy-ca-cert.pem"

LEAF_LIFETIME = dt.timedelta(days=7)
#: A client whose clock is slow must not find a leaf or a CA that is not valid yet.
BACKDATED = dt.timedelta(days=2)
#: A cached leaf is replaced when less than this is left, so that a fast clock accepts it, too.
LEAST_LEFT = dt.timedelta(days=2)
MAX_CACHED = 4096  # leaves; each takes about 1.5 KB

_CA_LIFETIME = dt.timedelta(days=3650)
_RSA_BITS = 2048  # as in mitmproxy
_MAX_LABEL = 63  # characters (RFC 1035 section 2.3.4)
_MAX_COMMON_NAME = 64  # characters (RFC 5280 appendix A, ub-common-name)

CAKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class NoLeaf(Exception):
    """There is no certificate for a name; the message says why."""


class Leaf(NamedTuple):
    """A certificate with its key, both in PEM. `version` differs for each certificate."""

    chain: bytes
    key: bytes
    not_after: dt.datetime
    version: str


class CertificateAuthority:
    """A CA in memory, which signs leaves."""

    def __init__(self, key: CAKey, certificates: list[x509.Certificate]) -> None:
        """`certificates` are the CA's own, and those above it if it is not a root."""
        self._key = key
        self.certificate = certificates[0]
        self._above = b"".join(
            each.public_bytes(serialization.Encoding.PEM)
            for each in certificates
            if len(certificates) > 1 and each.issuer != each.subject
        )
        self._key_identifier = _authority_key_identifier(self.certificate)

    def sign(self, host: str, now: dt.datetime) -> Leaf:
        """Return a new leaf for a canonical host. Raises NoLeaf if the CA is not valid now."""
        not_after = min(now + LEAF_LIFETIME, self.certificate.not_valid_after_utc)
        not_before = max(now - BACKDATED, self.certificate.not_valid_before_utc)
        if not not_before <= now < not_after:
            raise NoLeaf("the CA's certificate is not valid now")
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject(host)
        serial = x509.random_serial_number()
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(_alternative_name(host), critical=not list(name))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_LEAF_USAGE, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(self._key_identifier, critical=False)
        )
        certificate = builder.sign(self._key, _digest(self._key))
        return Leaf(
            chain=certificate.public_bytes(serialization.Encoding.PEM) + self._above,
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            not_after=not_after,
            version=f"{serial:x}",
        )


class Minter:
    """The leaves of the CA in a folder, each signed when it is first asked for, and cached.

    `now` is the wall clock. Raises SettingsError if the folder has no usable CA.
    """

    def __init__(
        self,
        folder: Path,
        *,
        now: Callable[[], float] = CLOCKS.now,
        max_cached: int = MAX_CACHED,
    ) -> None:
        self._authority = load_authority(folder, _utc(now()))
        self._now = now
        self._leaves: LRUCache[str, Leaf] = LRUCache(max_cached)

    def leaf(self, name: str) -> Leaf:
        """Return the certificate for a name in a ClientHello. Raises NoLeaf."""
        host = certified_host(name)
        now = _utc(self._now())
        leaf = self._leaves.get(host)
        if leaf is not None and _is_usable(leaf, now):
            return leaf
        leaf = self._leaves[host] = self._authority.sign(host, now)
        return leaf

    def __len__(self) -> int:
        """The number of cached leaves."""
        return len(self._leaves)


def certified_host(name: str) -> str:
    """Return the canonical host for which the certificate of a name is valid. Raises NoLeaf.

    A ClientHello contains the A-label of a host, without a port (RFC 6066 section 3). Some clients
    send an address; it is accepted, because the certificate then names it as an address.
    """
    if not name.isascii():
        raise NoLeaf("not an A-label")
    literal = f"[{name}]" if ":" in name else name
    try:
        host = parse_authority("https", literal).host
    except MalformedURL as error:
        raise NoLeaf(str(error)) from None
    if _address(host) is None and any(len(label) > _MAX_LABEL for label in host.split(".")):
        raise NoLeaf("a label of more than 63 characters")
    return host


def load_authority(folder: Path, now: dt.datetime) -> CertificateAuthority:
    """Return the CA of a folder, created if there is none. Raises SettingsError."""
    path = folder / CA_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _create(path, now)
        authority = _read(path.read_bytes(), now)
        _write_certificate(folder / CA_CERTIFICATE, authority.certificate)
        return authority
    except PermissionError as error:
        raise SettingsError(
            f"this user may not use {str(error.filename)!r}, the CA of confdir {str(folder)!r}: start"
            " the service as its owner, or name another folder with --confdir"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        # TypeError: the key is encrypted.
        raise SettingsError(
            f"confdir {str(folder)!r} has no usable CA ({error}): move it away"
        ) from None


def _read(data: bytes, now: dt.datetime) -> CertificateAuthority:
    """Parse the key of a CA and its certificates, its own first. Raises ValueError."""
    key = serialization.load_pem_private_key(data, password=None)
    certificates = x509.load_pem_x509_certificates(data)
    certificate = certificates[0]
    if not isinstance(key, CAKey):
        raise ValueError(f"a key of the type {type(key).__name__}")
    if certificate.public_key() != key.public_key():
        raise ValueError("its certificate is for another key")
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        raise ValueError("its certificate is not valid now")
    try:
        is_ca = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_ca = False
    if not is_ca:
        raise ValueError("its certificate is not that of a CA")
    return CertificateAuthority(key, certificates)


def _create(path: Path, now: dt.datetime) -> None:
    """Write a new CA, unless another process has just done so."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    certificate = _self_signed(key, now).public_bytes(serialization.Encoding.PEM)
    written_key = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # only this user may read it
        file.write(written_key + certificate)
        file.flush()
        os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    """Write the file that clients trust, if it is missing. Anyone may read it."""
    if path.exists():
        return
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:
        file.write(certificate.public_bytes(serialization.Encoding.PEM))
        file.flush()
        Path(file.name).chmod(0o644)
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)


def _self_signed(key: rsa.RSAPrivateKey, now: dt.datetime) -> x509.Certificate:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "robots_guard"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "robots_guard"),
        ]
    )
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + _CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(identifier, critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


_CA_USAGE = _usage(signs_certificates=True)
_LEAF_USAGE = _usage(signs_certificates=False)


def _authority_key_identifier(certificate: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """The identifier of a CA's key, as its own certificate spells it (RFC 5280 section 4.2.1.1)."""
    try:
        own = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        own = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _digest(key: CertificateIssuerPrivateKeyTypes) -> hashes.SHA256 | None:
    """The digest of a CA's signatures; EdDSA has its own."""
    if isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey):
        return None
    return hashes.SHA256()


def _subject(host: str) -> x509.Name:
    """The host as the common name, which only old clients read; empty if it is too long."""
    if len(host) > _MAX_COMMON_NAME:
        return x509.Name([])
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])


def _alternative_name(host: str) -> x509.SubjectAlternativeName:
    address = _address(host)
    if address is not None:
        return x509.SubjectAlternativeName([x509.IPAddress(address)])
    return x509.SubjectAlternativeName([x509.DNSName(host)])


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _utc(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def _is_usable(leaf: Leaf, now: dt.datetime) -> bool:
    """Whether a cached leaf is valid long enough, and was not issued by a clock that has been set back
    since."""
    left = leaf.not_after - now
    return LEAST_LEFT < left <= LEAF_LIFETIME
