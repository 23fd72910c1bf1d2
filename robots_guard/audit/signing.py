"""Signatures of the audit log's checkpoints, and of bundles, by Ed25519 (RFC 8032).

A signature covers a statement in ASCII: the writer, the number of the last line that is covered, the
time, and the chain's head at that line; or the digest of a bundle's manifest. Keys and signatures
are written in base64 (RFC 4648); a public key is its 32 bytes. Nothing here reads a file: see audit/key_files.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any

from robots_guard.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32  # of a public key
_END = b"-----END PUBLIC KEY-----"


class InvalidKey(ValueError):
    """Raised for data that is not an Ed25519 key. The message never contains the data."""


class Signer:
    """Signs with one private key. Its `key` is the public key in base64.

    It can be used from any thread, and after a fork. Its representation does not show the private
    key.
    """

    __slots__ = ("_private", "key")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.key = _encoded(private.public_key().public_bytes_raw())

    def sign(self, statement: bytes) -> str:
        """The signature of a statement, in base64."""
        return _encoded(self._private.sign(statement))

    def to_pem(self) -> bytes:
        """The private key as PEM (PKCS #8), without a passphrase."""
        from cryptography.hazmat.primitives import serialization as forms

        return self._private.private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
        )


def statement_of(writer: str, last: int, at: str | None, head: str) -> bytes:
    """What the signature of a checkpoint covers. `last` is the number before the checkpoint's own,
    and `head` the chain's hash up to there, in hexadecimal digits."""
    return f"robots_guard checkpoint 1\n{writer}\n{last}\n{at or ''}\n{head}\n".encode("ascii")


def bundle_statement(manifest: bytes) -> bytes:
    """What the signature of a bundle covers: its manifest, and so all of its files."""
    return f"robots_guard bundle 1\n{hashlib.sha256(manifest).hexdigest()}\n".encode("ascii")


def verify_signature(key: str, signature: str, statement: bytes) -> bool:
    """Whether a signature of a statement is valid under a public key; False also if one of them is
    malformed. Raises MissingExtra."""
    invalid_signature: type[Exception] = _cryptography().exceptions.InvalidSignature
    try:
        public = _ed25519().Ed25519PublicKey.from_public_bytes(raw_key(key))
        public.verify(base64.b64decode(signature, validate=True), statement)
    except (invalid_signature, ValueError):  # binascii.Error and InvalidKey are ValueErrors
        return False
    return True


def new_signer() -> Signer:
    """A signer with a new key. Raises MissingExtra."""
    return Signer(_ed25519().Ed25519PrivateKey.generate())


def signer_of(pem: bytes) -> Signer:
    """The signer with the private key in a PEM file's content. Raises InvalidKey and MissingExtra."""
    from_pem = _serialization().load_pem_private_key
    try:
        private = from_pem(pem, password=None)
    except TypeError as error:
        raise InvalidKey("it is encrypted with a passphrase") from error
    except (ValueError, _unsupported()) as error:
        raise InvalidKey("it is not a private key in PEM") from error
    if not isinstance(private, _ed25519().Ed25519PrivateKey):
        raise InvalidKey("it is a private key, but not an Ed25519 one")
    return Signer(private)


def public_keys_in(content: bytes) -> list[str]:
    """The public keys in a file's content, in base64.

    The content is a PEM private key, PEM public keys, or lines that begin with a public key in
    base64; a mark at its beginning, blank lines and those that begin with `#` are skipped. Raises
    InvalidKey for any other content, also for a fingerprint that is not that of the key before it,
    and MissingExtra for PEM.
    """
    content = content.removeprefix(BOM_UTF8)
    if b"-----BEGIN PUBLIC KEY-----" in content:
        blocks = content.split(_END)[:-1]
        return [_public_key(block + _END + b"\n") for block in blocks]
    if b"-----BEGIN" in content:
        return [signer_of(content).key]
    lines = enumerate(content.decode("ascii", "replace").splitlines(), 1)
    found = [
        _key_in(number, line) for number, line in lines if line.strip(" \t")[:1] not in ("", "#")
    ]
    if not found:
        raise InvalidKey("it has no key")
    return found


def _key_in(number: int, line: str) -> str:
    """The public key in a line with this number. Raises InvalidKey."""
    word, *others = line.split()
    try:
        key = _encoded(raw_key(word))
    except InvalidKey as error:
        raise InvalidKey(f"line {number}: {error}") from error
    named = [each for each in others if each.lower().startswith("sha256:")]
    if any(each != fingerprint(key) for each in named):
        raise InvalidKey(f"line {number}: its fingerprint is not that of its key")
    return key


def raw_key(key: str) -> bytes:
    """The 32 bytes of a public key in base64. Raises InvalidKey."""
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidKey("it is not a public key in base64") from error
    if len(raw) != KEY_BYTES:
        raise InvalidKey(f"a public key has {KEY_BYTES} bytes, not {len(raw)}")
    return raw


def fingerprint(key: str) -> str:
    """The fingerprint of a public key: its SHA-256 in base64, in the notation of ssh-keygen. Raises
    InvalidKey."""
    return f"SHA256:{_encoded(hashlib.sha256(raw_key(key)).digest()).rstrip('=')}"


def _public_key(pem: bytes) -> str:
    try:
        public = _serialization().load_pem_public_key(pem.lstrip())
    except (ValueError, _unsupported()) as error:
        raise InvalidKey("it is not a public key in PEM") from error
    if not isinstance(public, _ed25519().Ed25519PublicKey):
        raise InvalidKey("it is a public key, but not an Ed25519 one")
    return _encoded(public.public_bytes_raw())


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _cryptography() -> Any:
    try:
        import cryptography.exceptions
    except ImportError as error:
        raise MissingExtra("audit", "signing and verifying checkpoints") from error
    return cryptography


def _unsupported() -> type[Exception]:
    found: type[Exception] = _cryptography().exceptions.UnsupportedAlgorithm
    return found


def _ed25519() -> Any:
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519


def _serialization() -> Any:
    _cryptography()
    from cryptography.hazmat.primitives import serialization

    return serialization
