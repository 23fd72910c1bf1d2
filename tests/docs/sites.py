"""The sites that the pages name, as local origins with the names, ports and schemes of the pages.

Each has a public address of its own, so that no command needs `--allow-private` which a reader
would not need. The addresses exist in the network namespace of `world.py` only.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import trustme

from robots_guard.testing import Loopback, RecordingOrigin, Reply

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
    """What answers at a name. `robots` is the text of its robots.txt, or a status."""

    address: str
    robots: str | int = RULES
    pages: Mapping[str, Reply] = MISSING


PAGES = {"/": Reply(headers=(HTML,), body=HOME), **MISSING}
SITES = {
    "example.com": Site("44.1.1.1", pages=PAGES),
    "example.net": Site("44.1.1.2", robots=503),
    "example.org": Site("44.1.1.3", robots=404),
    "shop.example": Site("44.1.1.4", robots=f"{RULES}Crawl-delay: 1\n"),
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

    def __init__(self, net: Loopback, authority: trustme.CA, sites: Mapping[str, Site]) -> None:
        self._net = net
        self._authority = authority
        self.origins = {name: self._start(name, site) for name, site in sites.items()}

    def _start(self, name: str, site: Site) -> tuple[RecordingOrigin, RecordingOrigin]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(name, site.address).configure_cert(tls)
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


def _script(robots: str | int) -> Reply:
    if isinstance(robots, int):
        return Reply(status=robots)
    return Reply(body=robots)


def hosts(sites: Mapping[str, Site]) -> str:
    """Return the text of an /etc/hosts."""
    lines = [f"{site.address} {name}" for name, site in sites.items()]
    return "\n".join(["127.0.0.1 localhost", *lines, ""])


def trust(bundle: Path, authority: trustme.CA, target: Path) -> None:
    """Write the certificates of a bundle, and the authority of the sites, to a file."""
    target.write_bytes(bundle.read_bytes() + b"\n" + authority.cert_pem.bytes())
