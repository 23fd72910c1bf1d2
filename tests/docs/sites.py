"""The sites that the pages name, as local origins with the names, ports and schemes of the pages.

Public sites have public addresses, so that no command needs `--allow-private` which a reader
would not need. The addresses exist in the network namespace of `world.py` only.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import trustme

from robots_guard.testing import Loopback, Received, RecordingOrigin, Reply

Robots = str | int | Callable[[Received], Reply]

RULES = "User-agent: *\nDisallow: /private/\n"
HTML = ("Content-Type", "text/html; charset=utf-8")
HOME = """<!doctype html><title>Example</title><h1>Example</h1>
<a href="/a">a</a> <a href="/b">b</a> <a href="/private/diary">diary</a>
"""
#: A page that states what its content may be used for.
STATING = '<!doctype html><meta name="robots" content="noarchive"><title>a</title>'
#: What a site that reserves nothing answers.
MISSING = {"/.well-known/tdmrep.json": Reply(status=404)}


class Site(NamedTuple):
    """What answers at a name. `robots` is the text of its robots.txt, a status, or a script."""

    address: str
    robots: Robots = RULES
    pages: Mapping[str, Reply] = MISSING


def _seen(request: Received) -> Reply:
    """Return a robots.txt that says which secrets came with the request for it."""
    secrets = [name for name in ("cookie", "authorization") if name in request.headers]
    return Reply(body=f"# secrets in this request: {', '.join(secrets) or 'none'}\n{MEMBERS}")


MEMBERS = "User-agent: alicebot\nDisallow: /staff/\n\nUser-agent: bobbot\nDisallow: /account/\n"
NO_AI = Reply(headers=(HTML, ("X-Robots-Tag", "noai")), body="<!doctype html><p>An essay")
PAGES = {"/": Reply(headers=(HTML,), body=HOME), **MISSING}
SITES = {
    "example.com": Site("44.1.1.1", pages=PAGES),
    "example.net": Site("44.1.1.2", robots=503),
    "example.org": Site("44.1.1.3", robots=404),
    "shop.example": Site("44.1.1.4", robots=f"{RULES}Crawl-delay: 1\n"),
    "news.example": Site(
        "44.1.1.5", "User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /\n"
    ),
    "essays.example": Site("44.1.1.6", robots=404, pages={"/essay": NO_AI, **MISSING}),
    "members.example": Site("44.1.1.7", robots=_seen),
    "wiki.corp.example": Site("10.20.0.5", robots="User-agent: *\nDisallow: /\n"),
}
STATES = Reply(headers=(HTML, ("x-robots-tag", "noai")), body=STATING)
#: What sites answer on single pages of the documentation, by the page and the site's name.
ON_PAGE: dict[str, dict[str, Site]] = {
    "docs/cli.md": {
        "example.com": Site(
            "44.1.1.1", f"{RULES}Content-Signal: search=yes\n", {"/a": STATES, **MISSING}
        )
    }
}


class Sites:
    """The running origins, by name: one for http and one for https each."""

    def __init__(
        self,
        net: Loopback,
        authority: trustme.CA,
        private: trustme.CA,
        sites: Mapping[str, Site],
    ) -> None:
        """`authority` signs the certificates of public sites, `private` those of private ones."""
        self._net = net
        self._authorities = {False: authority, True: private}
        self.origins = {name: self._start(name, site) for name, site in sites.items()}

    def _start(self, name: str, site: Site) -> tuple[RecordingOrigin, RecordingOrigin]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority = self._authorities[ip_address(site.address).is_private]
        authority.issue_cert(name, site.address).configure_cert(tls)
        return (
            self._net.origin(site.robots, site.pages, address=site.address, port=80),
            self._net.origin(site.robots, site.pages, tls=tls, address=site.address, port=443),
        )

    def show(self, page: str) -> None:
        """Let the sites answer as the given page needs it."""
        for name, pair in self.origins.items():
            site = ON_PAGE.get(page, {}).get(name, SITES[name])
            for origin in pair:
                origin.robots = _script(site.robots)
                origin.pages = site.pages


def _script(robots: Robots) -> Reply | Callable[[Received], Reply]:
    if isinstance(robots, int):
        return Reply(status=robots)
    return Reply(body=robots) if isinstance(robots, str) else robots


def hosts(sites: Mapping[str, Site]) -> str:
    """Return the text of an /etc/hosts."""
    lines = [f"{site.address} {name}" for name, site in sites.items()]
    return "\n".join(["127.0.0.1 localhost", *lines, ""])


def trust(bundle: Path, authority: trustme.CA, target: Path) -> None:
    """Write the certificates of a bundle, and the authority of the sites, to a file."""
    target.write_bytes(bundle.read_bytes() + b"\n" + authority.cert_pem.bytes())
