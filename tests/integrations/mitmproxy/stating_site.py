"""A site whose responses are as a test describes them, over HTTP/1.1 and HTTP/2, with TLS.

It prints how much of each response it has sent when the response has ended or was stopped.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from support.programs import program
from support.waiting import eventually

SCRIPT = r"""
const fs = require('fs'), http2 = require('http2');
const [key, cert, pages, address] = process.argv.slice(2);
const options = { key: fs.readFileSync(key), cert: fs.readFileSync(cert), allowHTTP1: true };
const sleep = ms => new Promise(done => setTimeout(done, ms));
const STUCK = 20000;  // milliseconds without progress, after which a response counts as stopped
let connections = 0;
async function answer(request, response) {
  const url = new URL(request.url, 'https://site');
  if (url.pathname == '/robots.txt') {
    response.writeHead(200, { 'content-type': 'text/plain' });
    return response.end('User-agent: *\nDisallow: /private/\n');
  }
  if (!fs.existsSync(pages + url.pathname)) {
    response.writeHead(404);
    return response.end();
  }
  const page = JSON.parse(fs.readFileSync(pages + url.pathname));
  const is2 = request.httpVersionMajor == 2;
  let sent = 0, open = true;
  response.setMaxListeners(0);
  const end = () => {
    if (!open) return;
    open = false;
    const code = is2 ? response.stream && response.stream.rstCode : null;
    console.log(JSON.stringify({ path: url.pathname, sent, version: request.httpVersion, code,
                                 method: request.method, finished: response.writableFinished,
                                 connections }));
  };
  response.on('close', end);
  const write = async data => {
    if (!open) return;
    sent += data.length;
    // Node 20 sometimes does not notice that a connection has ended while it waits to write.
    if (!response.write(data)) await new Promise(done => {
      const stuck = setTimeout(() => { end(); done(); }, STUCK);
      const go = () => { clearTimeout(stuck); done(); };
      response.once('drain', go); response.once('close', go);
    });
  };
  for (const [name, value] of page.headers || []) response.setHeader(name, value);
  for (const status of page.interim || [])
    if (is2) response.stream.additionalHeaders({
      ':status': status, 'robots-guard': 'drop', 'robots-guard-signals': 'search=y',
    });
  response.writeHead(page.status || 200);
  response.flushHeaders();
  for (const [wait, data] of page.pieces || []) {
    if (wait) await sleep(wait);
    await write(Buffer.from(data, 'base64'));
  }
  const filler = Buffer.alloc(65536, 'x');
  for (let left = page.more || 0; open && left > 0; left -= filler.length) await write(filler);
  if (open && page.trailers) response.addTrailers(page.trailers);
  if (open) response.end();
}
const server = http2.createSecureServer(options, (request, response) => {
  request.on('error', () => {});
  response.on('error', () => {});
  answer(request, response).catch(() => {});
});
server.on('secureConnection', () => connections++);
server.on('sessionError', () => {});
server.on('clientError', (error, socket) => socket.destroy());
server.listen(0, address, () => console.log(server.address().port));
"""

Piece = tuple[float, bytes]  # a pause in seconds, and what follows it


@dataclass
class StatingSite:
    """A running site."""

    authority: str
    pages: Path
    ended: list[dict[str, Any]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def target(
        self,
        *pieces: Piece | bytes,
        headers: Sequence[tuple[str, str]] = (),
        more: int = 0,
        **page: Any,
    ) -> str:
        """The target of a response with these fields, of these pieces and `more` further bytes."""
        timed = [each if isinstance(each, tuple) else (0.0, each) for each in pieces]
        page["pieces"] = [
            [int(pause * 1000), base64.b64encode(data).decode()] for pause, data in timed
        ]
        page["headers"] = _grouped(headers)
        page["more"] = more
        name = f"page{next(self.numbers)}"
        (self.pages / name).write_text(json.dumps(page))
        return f"/{name}"

    def end_of(self, target: str) -> dict[str, Any]:
        """How the response to a target ended, once it has."""
        found = eventually(lambda: [each for each in self.ended if each["path"] == target])
        return found[0]


def _grouped(headers: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(name for name, _ in headers)
    return [(name, [value for each, value in headers if each == name]) for name in names]


@contextlib.contextmanager
def stating_site(folder: Path, authority: trustme.CA, address: str) -> Iterator[StatingSite]:
    """A site at that address, certified by an authority."""
    certificate = authority.issue_cert(address)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    (folder / "site.js").write_text(SCRIPT)
    pages = folder / "pages"
    pages.mkdir()
    files = [str(folder / name) for name in ("site.js", "key.pem", "cert.pem", "pages")]
    command = [program("node"), *files, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            site = StatingSite(f"{address}:{int(process.stdout.readline())}", pages)
            threading.Thread(target=_read, args=(process.stdout, site), daemon=True).start()
            yield site
        finally:
            process.kill()


def _read(lines: Any, site: StatingSite) -> None:
    with contextlib.suppress(ValueError):
        for line in lines:
            site.ended.append(json.loads(line))
