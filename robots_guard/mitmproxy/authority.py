"""Authority: the CA by which clients let the proxy look into their TLS, and how they are brought to trust it.

Its key lies in a folder of ours that nobody else may read, for whoever has it can pose as any site to our crawlers.
It is not mitmproxy's own of the same user.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import platformdirs
from mitmproxy import certs

from robots_guard.errors import SettingsError

CA_CERTIFICATE = "mitmproxy-ca-cert.pem"
_KEY_SIZE = 2048  # bits, as mitmproxy makes it


def private_folder(confdir: Path | None) -> Path:
    """The folder, made if need be. Raises SettingsError."""
    confdir = confdir or platformdirs.user_config_path("robots_guard") / "mitmproxy"
    try:
        confdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        confdir.chmod(0o700)
    except OSError as error:
        raise SettingsError(
            f"confdir {str(confdir)!r} cannot be used ({error.strerror}): name a folder of your own with --confdir"
        ) from error
    return confdir


def authority(confdir: Path | None) -> Path:
    """The certificate, made with its key if need be. Raises SettingsError."""
    folder = private_folder(confdir)
    try:
        certs.CertStore.from_store(folder, "mitmproxy", _KEY_SIZE)
    except (OSError, ValueError) as error:
        raise SettingsError(f"confdir {str(folder)!r} holds no CA that can be used ({error}): move it away") from None
    return folder / CA_CERTIFICATE


def bundled(certificate: Path) -> bytes:
    """Our certificate behind the usual ones, for clients that know one file only."""
    return Path(certifi.where()).read_bytes() + b"\n# robots_guard\n" + certificate.read_bytes()


def insist_on_certificates(path: Path) -> None:
    """mitmproxy would find out at the first https site, and blame the site. Raises SettingsError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror if not isinstance(error, ssl.SSLError) else "no certificates in PEM form"
        raise SettingsError(
            f"--upstream-ca {str(path)!r} cannot be used ({why}): name a PEM file of the authorities to trust"
        ) from None


def instructions(certificate: Path, bundle: Path | None) -> str:
    """What to do, client by client. Most take one file in the place of all authorities they know."""
    every = bundle or certificate
    rows = {
        "curl": f"curl --cacert {every}    (or CURL_CA_BUNDLE={every})",
        "wget": f"wget --ca-certificate={every}",
        "Python": f"REQUESTS_CA_BUNDLE={every} SSL_CERT_FILE={every}    (requests; httpx, aiohttp, urllib, Scrapy)",
        "Node": f"NODE_EXTRA_CA_CERTS={certificate} NODE_USE_ENV_PROXY=1    (fetch minds proxies since Node 24)",
        "Go": f"SSL_CERT_FILE={every}",
        "Java": f"keytool -importcert -noprompt -alias robots_guard -file {certificate} -keystore trust.p12"
        " -storepass changeit\n          java -Djavax.net.ssl.trustStore=trust.p12",
        "Chromium": f"certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n robots_guard -i {certificate}",
        "system": f"cp {certificate} /usr/local/share/ca-certificates/robots_guard.crt && update-ca-certificates",
    }
    lines = "\n".join(f"{name:<9} {how}" for name, how in rows.items())
    hint = "" if bundle else "\n\n--bundle FILE writes our certificate and the usual ones into one file."
    return f"The certificate is {certificate}.\n\n{lines}{hint}"
