"""The proxies and sites of these tests. Proxies are started once a session: each takes more than a second."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import trustme
from integrations.mitmproxy.h2_site import H2Site, h2_site
from integrations.mitmproxy.origin import Site, Sites
from integrations.mitmproxy.process import Integration, running, upstream_ca
from integrations.mitmproxy.wire import inside, plain

from robots_guard.testing import Loopback

with warnings.catch_warnings():
    # mitmproxy's own, of pyparsing and ldap3; only on import.
    warnings.simplefilter("ignore", DeprecationWarning)
    import mitmproxy.tools.dump  # noqa: F401

KINDS = ("mitmdump", "proxy")


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """The CA that certifies the origins."""
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("origins") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def http2_site(authority, tmp_path_factory) -> Iterator[H2Site]:
    """A site that speaks HTTP/2."""
    with h2_site(tmp_path_factory.mktemp("h2"), authority, "127.3.251.1") as site:
        yield site


@pytest.fixture(scope="module")
def sites(authority) -> Iterator[Sites]:
    with Loopback() as net:
        started = Sites(net, authority)
        yield started
        started.close()


@pytest.fixture(scope="session")
def start(tmp_path_factory, ca_file) -> Callable[..., AbstractContextManager[Integration]]:
    """Start a proxy that trusts the origins' CA."""

    def begin(kind: str, *options: str, **settings: str) -> AbstractContextManager[Integration]:
        folder = tmp_path_factory.mktemp(kind)
        return running(kind, folder, [*upstream_ca(kind, ca_file), *options], **settings)

    return begin


@pytest.fixture(scope="session")
def integrations(start) -> Iterator[dict[str, Integration]]:
    with contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(start(kind, audit="all")) for kind in KINDS}


@pytest.fixture(params=KINDS)
def integration(request, integrations) -> Integration:
    """Each of the two proxies, shared by all tests of the session."""
    return integrations[request.param]


@pytest.fixture(params=["http", "https"])
def site(request, sites) -> Site:
    return sites.start(request.param)


@pytest.fixture
def http_site(sites) -> Site:
    return sites.start("http")


@pytest.fixture
def https_site(sites) -> Site:
    return sites.start("https")


def get(integration: Integration, site: Site, target: str, **options):
    """A plain GET of a well-behaved client."""
    return (
        inside(integration, site.authority, target, **options)
        if site.scheme == "https"
        else plain(integration, site.url + target, **options)
    )


@contextlib.contextmanager
def untouched(integration: Integration, *touched: Site) -> Iterator[None]:
    """Nothing done in here reaches the sites, and the proxy is alive before and after.

    The request at the end also is the barrier: what the proxy would have sent before it has arrived by then.
    """
    before = []
    for site in touched:
        assert get(integration, site, "/alive-before").status == 200
        before.append(site.seen())
    yield
    for site, (accepts, hellos, _, received) in zip(touched, before, strict=True):
        assert get(integration, site, "/alive-after").status == 200
        assert [request.target for request in site.origin.received[received:]] == ["/alive-after"]
        assert site.tap.accepts == accepts + 1
        assert site.tap.hellos == hellos + (site.scheme == "https")
