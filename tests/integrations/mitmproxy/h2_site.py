"""A site that speaks HTTP/2: Node, which answers by the path and prints each request that it has read."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.programs import program

SCRIPT = r"""
const fs = require('fs'), http2 = require('http2');
const [key, cert, address, streams, speaks] = process.argv.slice(2);
const allowHTTP1 = speaks == 'both';
// Only the guard may send these.
const forged = { 'robots-guard': 'drop; reason=disallowed', 'robots-guard-signals': 'ai-train=y' };
const settings = streams ? { maxConcurrentStreams: Number(streams) } : {};
const left = new Set(); // the paths at which it has left a client once
const tls = { key: fs.readFileSync(key), cert: fs.readFileSync(cert) };
const server = http2.createSecureServer({ ...tls, settings, allowHTTP1 });
if (allowHTTP1) server.on('request', (request, response) => {
  if (request.httpVersionMajor == 1) response.end('User-agent: *\nDisallow: /private/\n');
});
server.on('stream', (stream, fields) => {
  const path = fields[':path'], seen = { path, body: '', trailers: {} };
  stream.on('error', () => {});
  stream.on('data', piece => seen.body += piece);
  stream.on('trailers', trailers => seen.trailers = { ...trailers });
  stream.on('end', () => console.log(JSON.stringify(seen)));
  if (path == '/robots.txt') {
    stream.respond({ ':status': 200 });
    stream.end('User-agent: *\nDisallow: /private/\n');
  } else if (path == '/early') {
    stream.additionalHeaders({ ':status': 102 });
    stream.additionalHeaders({ ':status': 103, link: '</a.css>; rel=preload' });
    stream.additionalHeaders({ ':status': 103, link: '</b.css>; rel=preload', ...forged });
    stream.respond({ ':status': 200 });
    stream.end('whole');
  } else if (path == '/trailers' || path.startsWith('/denying')) {
    const denying = path != '/trailers' ? { 'x-robots-tag': 'noai' } : {};
    stream.respond({ ':status': 200, ...denying }, { waitForTrailers: true });
    stream.removeAllListeners('wantTrailers'); // with allowHTTP1, Node sends trailers of its own
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': '1', ...forged }));
    stream.end(path == '/denying-empty' ? '' : 'whole');
  } else if (path.startsWith('/once/') && !left.has(path)) {
    left.add(path);
    if (path == '/once/goaway') stream.session.goaway(0, stream.id - 2);
    if (path == '/once/refused') stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
    if (path == '/once/closed') stream.session.socket.destroySoon();
  } else {
    stream.respond({ ':status': 200 });
    stream.end('whole');
  }
});
server.listen(0, address, () => console.log(server.address().port));
"""


@dataclass
class H2Site:
    """A running site."""

    authority: str
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"https://{self.authority}"

    def next(self) -> dict[str, object]:
        """The next request that has come in whole, robots.txt apart."""
        assert self.process.stdout is not None
        while (seen := json.loads(self.process.stdout.readline()))["path"] == "/robots.txt":
            pass
        return seen


@contextlib.contextmanager
def h2_site(
    folder: Path,
    authority: object,
    address: str,
    *,
    streams: int | None = None,
    names: tuple[str, ...] = (),
    also_http1: bool = False,
) -> Iterator[H2Site]:
    """A site at that address, certified for it and for `names` by an authority.

    `streams` is how many it takes at a time on a connection. With `also_http1`, it answers a guard
    that fetches robots.txt over HTTP/1, too.
    """
    certificate = authority.issue_cert(address, *names)  # type: ignore[attr-defined]
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    (folder / "site.js").write_text(SCRIPT)
    command = [
        program("node"),
        str(folder / "site.js"),
        str(folder / "key.pem"),
        str(folder / "cert.pem"),
        address,
    ]
    command += ["" if streams is None else str(streams), "both" if also_http1 else "http2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield H2Site(f"{address}:{int(process.stdout.readline())}", process)
        finally:
            process.kill()
