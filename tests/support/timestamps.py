"""A time-stamping authority (RFC 3161) on this machine: `openssl ts` behind a small HTTP server."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

_CONFIGURATION = """\
[ca]
subjectKeyIdentifier = hash
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign

[tsa_certificate]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping

[tsa]
default_tsa = tsa_config

[tsa_config]
dir = {directory}
serial = $dir/serial
signer_cert = $dir/tsa.pem
signer_key = $dir/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
"""


class Authority(NamedTuple):
    """A running authority: its URL, and the file with its root certificate."""

    url: str
    roots: Path


@contextmanager
def authority(directory: Path) -> Iterator[Authority]:
    """A new authority with certificates of its own, kept in the directory. `URL/refuses`, `URL/another`
    and `URL/error` answer with a refusal, the response to another request, and status 500;
    `URL/slowly` answers in two parts, and `URL/moved` redirects to `URL`."""
    directory.mkdir(exist_ok=True)
    configuration = directory / "openssl.cnf"
    configuration.write_text(_CONFIGURATION.format(directory=directory))
    _make_certificates(directory, configuration)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            query = self.rfile.read(int(self.headers["Content-Length"]))
            status, body = 200, b""
            match self.path:
                case "/refuses":
                    body = _reply(directory, query[:-12])
                case "/another":
                    body = (directory / "first.tsr").read_bytes()
                case "/error":
                    status = 500
                case "/moved":
                    status = 307
                case _:
                    body = _reply(directory, query)
                    (directory / "first.tsr").write_bytes(body)
            self.send_response(status)
            if status == 307:
                self.send_header("Location", "/")
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            if self.path == "/slowly":
                time.sleep(0.3)
            self.wfile.write(body[half:])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Authority(f"http://127.0.0.1:{server.server_port}", directory / "root.pem")
    finally:
        server.shutdown()
        server.server_close()


def _reply(directory: Path, query: bytes) -> bytes:
    (directory / "query.tsq").write_bytes(query)
    _openssl(
        *("ts", "-reply", "-config", directory / "openssl.cnf", "-section", "tsa_config"),
        *("-queryfile", directory / "query.tsq", "-out", directory / "reply.tsr"),
    )
    return (directory / "reply.tsr").read_bytes()


def _make_certificates(directory: Path, configuration: Path) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
    _openssl(
        *("req", "-x509", *key, "-config", configuration, "-extensions", "ca"),
        *("-subj", "/CN=Test root", "-days", "30"),
        *("-keyout", directory / "root.key", "-out", directory / "root.pem"),
    )
    _openssl(
        *("req", "-x509", *key, "-config", configuration, "-extensions", "tsa_certificate"),
        *("-subj", "/CN=Test authority", "-days", "30"),
        *("-CA", directory / "root.pem", "-CAkey", directory / "root.key"),
        *("-keyout", directory / "tsa.key", "-out", directory / "tsa.pem"),
    )


def _openssl(*arguments: object) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
