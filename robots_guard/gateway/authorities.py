"""Authorities: the CA certificates that a program trusts for TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

from robots_guard.errors import SettingsError


def validate_pem(path: Path) -> None:
    """Check a file of CA certificates. Raises SettingsError: an error of the first connection would
    blame its site."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(
            f"--upstream-ca {str(path)!r} cannot be used ({_why(error)}): name a PEM file of the"
            " authorities to trust"
        ) from None


def _why(error: OSError) -> str | None:
    if isinstance(error, ssl.SSLError):
        return "no certificates in PEM form"
    return error.strerror
