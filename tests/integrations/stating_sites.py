"""Many sites on loopback addresses in one process of Node, over TLS: HTTP/2, or HTTP/1.1.

They answer as `Loopback` does, and print each request: its address, path and HTTP version.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.programs import program

from robots_guard.testing import Reply

SCRIPT = r"""
const fs = require('fs'), http2 = require('http2');
const [key, cert, description] = process.argv.slice(2);
const options = { key: fs.readFileSync(key), cert: fs.readFileSync(cert), allowHTTP1: true };
const sites = JSON.parse(fs.readFileSync(description));
const ports = {};
for (const [address, replies] of Object.entries(sites)) {
  const server = http2.createSecureServer(options, (request, response) => {
    request.on('error', () => {});
    response.on('error', () => {});
    const version = request.httpVersion;
    console.log(JSON.stringify({ address, path: request.url, version }));
    const reply = replies[request.url] || { status: 404, headers: [], body: '' };
    for (const [name, values] of reply.headers) response.setHeader(name, values);
    response.writeHead(reply.status);
    response.end(Buffer.from(reply.body, 'base64'));
  });
  server.on('sessionError', () => {});
  server.on('clientError', (error, socket) => socket.destroy());
  server.listen(0, address, () => {
    ports[address] = server.address().port;
    if (Object.keys(ports).length == Object.keys(sites).length)
      console.log(JSON.stringify(ports));
  });
}
"""

Replies = Mapping[str, Reply]  # by path


@dataclass
class StatingSites:
    """Running sites."""

    ports: dict[str, int]
    received: list[dict[str, Any]] = field(default_factory=list)

    def url(self, address: str) -> str:
        """``https://address:port``."""
        return f"https://{address}:{self.ports[address]}"


@contextlib.contextmanager
def stating_sites(
    folder: Path, authority: Any, sites: Mapping[str, Replies]
) -> Iterator[StatingSites]:
    """Sites by their addresses, certified by an authority.

    All requests are in `received` after the end.
    """
    certificate = authority.issue_cert(*sites)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    (folder / "sites.js").write_text(SCRIPT)
    described = {
        address: {path: _plain(reply) for path, reply in replies.items()}
        for address, replies in sites.items()
    }
    (folder / "sites.json").write_text(json.dumps(described))
    files = [str(folder / name) for name in ("sites.js", "key.pem", "cert.pem", "sites.json")]
    with subprocess.Popen([program("node"), *files], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            running = StatingSites(json.loads(process.stdout.readline()))
            reader = threading.Thread(target=_read, args=(process.stdout, running), daemon=True)
            reader.start()
            yield running
        finally:
            process.kill()
        reader.join()


def _plain(reply: Reply) -> dict[str, Any]:
    """A reply as values of JSON, with the Content-Type that `Loopback` adds."""
    fields: dict[str, list[str]] = {}
    for name, value in reply.headers:
        fields.setdefault(name.lower(), []).append(value)
    fields.setdefault("content-type", ["text/plain; charset=utf-8"])
    body = reply.body.encode() if isinstance(reply.body, str) else reply.body
    return {
        "status": reply.status,
        "headers": list(fields.items()),
        "body": base64.b64encode(body).decode(),
    }


def _read(lines: Any, sites: StatingSites) -> None:
    for line in lines:
        sites.received.append(json.loads(line))
