"""Files with the keys that sign checkpoints (audit/signing.py).

A private key file is PEM, and only its owner and its group may read it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from robots_guard.audit.signing import InvalidKey, Signer, new_signer, public_keys_in, signer_of
from robots_guard.errors import SettingsError

LARGEST = 1024 * 1024  # bytes of a file with keys
_EXPOSED = stat.S_IRWXO | stat.S_IWGRP  # permissions that a private key's file must not have
KEYS = "give a PEM file, or lines as 'robots-guard audit keys FILE' prints them"
_REMEDY = "make one with 'robots-guard audit keys --create FILE'"


def read_signer(path: Path) -> Signer:
    """The signer with the key in a file. Raises SettingsError if it cannot be used, or if other users
    may read it; and MissingExtra."""
    content, mode = _read(path, "audit_signing_key")
    if mode & _EXPOSED:
        raise SettingsError(
            f"audit_signing_key: {str(path)!r} can be read or changed by other users:"
            f" run chmod 600 {str(path)!r}, or make a new key if they must not have had it"
        )
    try:
        return signer_of(content)
    except InvalidKey as error:
        raise SettingsError(
            f"audit_signing_key: {str(path)!r} cannot be used ({error}): {_REMEDY}"
        ) from error


def create_key(path: Path) -> Signer:
    """Create a file with a new private key, which only its owner may read. Raises SettingsError, also
    if the file exists; and MissingExtra."""
    signer = new_signer()
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
    except FileExistsError as error:
        raise SettingsError(
            f"{str(path)!r} exists already, and a key is never overwritten: name another file"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{str(path)!r} cannot be created ({why}): name another file"
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(signer.to_pem())
        file.flush()
        os.fsync(file.fileno())
    return signer


def read_public_keys(path: Path) -> list[str]:
    """The public keys in a file (see `public_keys_in`). Raises SettingsError and MissingExtra."""
    content, _ = _read(path, "keys")
    try:
        return public_keys_in(content)
    except InvalidKey as error:
        raise SettingsError(f"keys: {str(path)!r} cannot be used ({error}): {KEYS}") from error


def _read(path: Path, what: str) -> tuple[bytes, int]:
    """The content of a file, and its permissions. Raises SettingsError."""
    try:
        # A symbolic link is followed: secrets are often mounted so. A pipe is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise ValueError("not a regular file")
            content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise ValueError(f"larger than {LARGEST // 2**20} MiB")
            return content, stat.S_IMODE(state.st_mode)
    except FileNotFoundError as error:
        raise SettingsError(f"{what}: there is no file {str(path)!r}: {_REMEDY}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{what}: {str(path)!r} cannot be read ({why}): name a file with a key"
        ) from error
