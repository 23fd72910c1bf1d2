"""Three fetchers asked for many URLs at once, each as its integration runs it: direct in this process,
Scrapy's downloader, mitmproxy's outgoing stack. Scrapy and mitmproxy run where they are installed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from fetch.behaviours import PUBLIC

from robots_guard.configuration.settings import open_guard, settings_of
from robots_guard.decisions.verdict import Question
from robots_guard.guard.fetch import destinations
from robots_guard.guard.fetch.destinations import Destinations
from robots_guard.guard.fetch.http import HttpFetcher
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.origin import split_url

BRIEF = {
    "fetch_timeout": "20",
    "audit": "all",
}
FETCHERS = [
    "direct",
    *(["scrapy"] if find_spec("scrapy") else []),
    *(["mitmproxy"] if find_spec("mitmproxy") else []),
]
AT_ONCE = 16  # rows; a machine of two cores keeps the deadlines above for so many

Decided = dict[str, Any]


def _direct(urls: list[str], settings: dict[str, str], folder: Path) -> dict[str, Decided]:
    return asyncio.run(_asked_directly(urls, settings, folder))


async def _asked_directly(
    urls: list[str], values: dict[str, str], folder: Path
) -> dict[str, Decided]:
    settings = settings_of({"agent": "mybot", "audit_log": str(folder / "audit_log"), **values})
    tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    fetcher = HttpFetcher("mybot", tls=tls, destinations=Destinations(trusts_caller=True))
    guard = open_guard(settings, component="cli", runtime=AsyncioRuntime(), fetcher=fetcher)
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(url: str) -> tuple[str, Decided]:
        async with turn:
            origin, target = split_url(url)
            verdict = (
                await guard.check(Question(origin=origin, target=target, agent="mybot"))
            ).verdict
            return url, {
                "action": str(verdict.action),
                "reason": str(verdict.reason),
                "detail": verdict.detail,
            }

    really, ours = destinations.is_public, ip_network(PUBLIC)
    destinations.is_public = lambda address: address in ours or really(address)
    try:
        return dict(await asyncio.gather(*map(ask, urls)))
    finally:
        destinations.is_public = really
        guard.close()


def _scrapy(urls: list[str], settings: dict[str, str], folder: Path) -> dict[str, Decided]:
    from integrations.scrapy.crawl import crawl

    chosen = {f"ROBOTS_GUARD_{name.upper()}": value for name, value in settings.items()}
    chosen |= {"DOWNLOAD_TIMEOUT": 40, "REDIRECT_ENABLED": False, "CONCURRENT_REQUESTS": AT_ONCE}
    chosen |= {"DOWNLOAD_VERIFY_CERTIFICATES": True}
    requests = [{"url": url, "dont_filter": True} for url in urls]
    done = crawl(
        requests,
        chosen,
        folder=folder,
        public=PUBLIC,
        env={"SSL_CERT_FILE": str(folder / "ca.pem")},
        timeout=120,
    )
    assert done.code == 0, done.log
    return _first(done.records)


def _mitmproxy(urls: list[str], settings: dict[str, str], folder: Path) -> dict[str, Decided]:
    from integrations.mitmproxy.process import SCRIPT, mitmdump, upstream_ca
    from integrations.mitmproxy.wire import inside, plain

    script = folder / "public.py"
    script.write_text(_PUBLIC_IN_MITMPROXY.format(PUBLIC))
    options = [*upstream_ca("mitmdump", folder / "ca.pem"), "-s", str(script), "-s", str(SCRIPT)]
    with mitmdump(folder, options, **settings) as component:

        def ask(url: str) -> None:
            if url.startswith("http:"):
                plain(component, url)
            else:
                authority, slash, target = url.removeprefix("https://").partition("/")
                inside(component, authority, slash + target)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(ask, urls))
        return _first(component.records())


_PUBLIC_IN_MITMPROXY = """
from ipaddress import ip_network
from robots_guard.mitmproxy import fetcher
ours, really = ip_network({!r}), fetcher.is_public
fetcher.is_public = lambda address: address in ours or really(address)
"""

ASKING: dict[str, Callable[[list[str], dict[str, str], Path], dict[str, Decided]]] = {
    "direct": _direct,
    "scrapy": _scrapy,
    "mitmproxy": _mitmproxy,
}


def _first(records: list[dict[str, Any]]) -> dict[str, Decided]:
    """The first record on each URL."""
    return {record["url"]: record for record in reversed(records)}
