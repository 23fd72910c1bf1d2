"""The certificate authority of TLS interception, and how to make clients trust it.

Its key is in a folder that only this user may read, because its owner can impersonate any site to
these crawlers. It is not the CA of the user's own mitmproxy.
"""

from __future__ import annotations

from pathlib import Path

import certifi
import platformdirs
from mitmproxy import certs

from robots_guard.errors import SettingsError

#: Chromium has no database before its first start, and certutil needs one.
_NSS_DATABASE = (
    "mkdir -p $HOME/.pki/nssdb && (test -e $HOME/.pki/nssdb/cert9.db"
    " || certutil -d sql:$HOME/.pki/nssdb -N --empty-password)"
)
CA_CERTIFICATE = "mitmproxy-ca-cert.pem"
_KEY_SIZE = 2048  # bits, as in mitmproxy


def private_folder(confdir: Path | None) -> Path:
    """The folder of the CA, created if necessary. Raises SettingsError."""
    try:
        confdir = confdir or platformdirs.user_config_path("robots_guard") / "mitmproxy"
    except RuntimeError:  # of platformdirs since 4.3
        raise SettingsError(
            "there is no home directory for the proxy's CA: name a folder with --confdir, or set HOME"
        ) from None
    try:
        confdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        confdir.chmod(0o700)
    except OSError as error:
        raise SettingsError(
            f"confdir {str(confdir)!r} cannot be used ({error.strerror}): name a folder of your own with --confdir"
        ) from error
    return confdir


def authority(confdir: Path | None) -> Path:
    """The path of the CA's certificate, which is created with its key if necessary. Raises SettingsError."""
    folder = private_folder(confdir)
    try:
        certs.CertStore.from_store(folder, "mitmproxy", _KEY_SIZE)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"confdir {str(folder)!r} has no usable CA ({error}): move it away"
        ) from None
    return folder / CA_CERTIFICATE


def bundled(certificate: Path) -> bytes:
    """The usual certificates followed by the CA's, for clients that can read only one file."""
    return Path(certifi.where()).read_bytes() + b"\n# robots_guard\n" + certificate.read_bytes()


def instructions(certificate: Path, bundle: Path | None) -> str:
    """How to make each client trust the CA. For most, the file replaces all authorities they know."""
    every = bundle or certificate
    rows = {
        "curl": f"curl --cacert {every}    (or CURL_CA_BUNDLE={every})",
        "wget": f"wget --ca-certificate={every}",
        "Python": f"REQUESTS_CA_BUNDLE={every} SSL_CERT_FILE={every}    (requests; httpx, aiohttp, urllib, Scrapy)",
        "Node": f"NODE_EXTRA_CA_CERTS={certificate} NODE_USE_ENV_PROXY=1    (fetch uses proxies since Node 24)",
        "Go": f"SSL_CERT_FILE={every}",
        "Java": f"keytool -importcert -noprompt -alias robots_guard -file {certificate} -keystore trust.p12"
        " -storepass changeit\n          java -Djavax.net.ssl.trustStore=trust.p12",
        "Chromium": f"{_NSS_DATABASE} && certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n robots_guard"
        f" -i {certificate}\n          (certutil is in libnss3-tools on Debian, nss-tools on Fedora)",
        "system": f"cp {certificate} /usr/local/share/ca-certificates/robots_guard.crt && update-ca-certificates",
    }
    lines = "\n".join(f"{name:<9} {how}" for name, how in rows.items())
    hint = (
        ""
        if bundle
        else "\n\n--bundle FILE writes this certificate and the usual ones into one file."
    )
    return f"The certificate is {certificate}.\n\n{lines}{hint}"
