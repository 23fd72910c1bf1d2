"""Common clients with the proxy in their environment."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from integrations.mitmproxy.origin import Sites
from integrations.mitmproxy.process import PROGRAMS, environment
from support.crowd import go_client_in
from support.preloaded import Preloaded
from support.programs import program
from support.waiting import eventually

from robots_guard.testing import Reply


def run(name, integration, *arguments):
    environment = (
        os.environ
        | dict.fromkeys(("http_proxy", "https_proxy"), integration.url)
        | {"no_proxy": ""}
    )
    return subprocess.run(
        [program(name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_curl(integration, site):
    def curl(target, *more):
        form = "%{http_code} %header{robots-guard}"
        return run(
            "curl",
            integration,
            "-s",
            "-o",
            "/dev/null",
            "-w",
            form,
            "--cacert",
            integration.ca,
            *more,
            site.url + target,
        )

    assert curl("/open").stdout.split()[0] == "200"
    output = curl("/private/x").stdout
    assert output.startswith('403 drop; reason=disallowed; rule="Disallow: /private/"; line=2; id=')
    assert curl("/private/x", "-f").returncode == 22
    assert curl("/private/x", "--head").stdout.startswith("403 ")
    assert curl("/open/../private/x", "--path-as-is").stdout.startswith("403 ")
    assert site.origin.targets == ["/open"]


def test_curl_with_an_iri(integration, site):
    """In absolute form, curl does not encode it."""
    answers = [
        run("curl", integration, "-s", "--cacert", integration.ca, site.url + target).stdout
        for target in ("/ö?ö", "/private/ö")
    ]

    assert "This is /" in answers[0]
    assert "robots.txt forbids the request" in answers[1]
    (target,) = site.origin.targets
    assert unquote_to_bytes(target.encode("latin-1")) == "/ö?ö".encode()


def test_curl_shows_the_reason(integration, site):
    output = run(
        "curl", integration, "-s", "--cacert", integration.ca, site.url + "/private/x"
    ).stdout
    assert "robots.txt forbids the request" in output


@pytest.mark.parametrize(("target", "status"), [("/open", 200), ("/private/x", 403)])
def test_curl_over_http2(integration, https_site, target, status):
    """On the first connection; later ones are offered the origin's protocol, HTTP/1.1."""
    command = [
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_version} %{http_code}",
        "--http2",
        "--cacert",
        integration.ca,
    ]
    assert run("curl", integration, *command, https_site.url + target).stdout == f"2 {status}"
    assert run("curl", integration, *command, https_site.url + target).stdout == f"1.1 {status}"
    assert https_site.origin.targets == ["/open"] * 2 * (status == 200)


def test_wget(integration, site, tmp_path):
    def wget(target):
        return run(
            "wget",
            integration,
            "-q",
            "-t",
            "1",
            f"--ca-certificate={integration.ca}",
            "-O",
            tmp_path / "page",
            site.url + target,
        )

    assert wget("/open").returncode == 0
    assert "This is /open" in (tmp_path / "page").read_text()
    assert wget("/private/x").returncode == 8
    assert site.origin.targets == ["/open"]


def test_wget_crawls_only_the_allowed_pages(integration, sites: Sites, tmp_path):
    links = '<a href="/a">a</a><a href="/private/b">b</a><a href="/c">c</a>'
    site = sites.start(
        "https", pages={"/": Reply(body=links, headers=(("Content-Type", "text/html"),))}
    )
    options = [
        "-q",
        "-r",
        "-l",
        "1",
        "-e",
        "robots=off",
        f"--ca-certificate={integration.ca}",
        "-P",
        str(tmp_path),
    ]
    assert run("wget", integration, *options, site.url + "/").returncode == 8
    assert site.origin.targets == ["/", "/a", "/c"]


def test_a_client_that_does_not_trust_the_ca_reaches_nothing(integration, https_site):
    for _ in range(3):
        done = run("curl", integration, "-s", https_site.url + "/open")
        assert done.returncode == 60
    assert https_site.seen()[0] == 0
    start = f"drop (not-intercepted): CONNECT {https_site.url}/: the client does not trust"
    printed = eventually(lambda: [line for line in integration.output if start in line])
    assert len(printed) == 1
    assert "robots-guard proxy ca" in printed[0]


def _close_after_the_certificate(proxy, host, port):
    """Do as Node does with a certificate that it does not trust: close the connection, without an
    alert. TLS 1.2, so that the server waits for an answer."""
    context = ssl.create_default_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(received, sent, server_hostname=host)
    with socket.create_connection((proxy.hostname, proxy.port), 10) as client:
        client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in client.recv(65_536)
        with pytest.raises(ssl.SSLWantReadError):
            handshake.do_handshake()
        client.sendall(sent.read())
        assert client.recv(65_536)


def test_a_client_that_closes_its_handshake_is_told_of_the_ca(integration, https_site):
    """It does not say why."""
    site = urlsplit(https_site.url)
    _close_after_the_certificate(urlsplit(integration.url), site.hostname, site.port)

    start = f"drop (not-intercepted): CONNECT {https_site.url}/: "
    (printed,) = eventually(lambda: [line for line in integration.output if start in line])
    assert "the client closed the connection during the TLS handshake" in printed
    assert "robots-guard proxy ca" in printed
    assert "If this happens" not in printed


def test_a_deferral_says_how_long(integration, sites):
    site = sites.start(robots=Reply(status=503))
    form = "%{http_code} %header{retry-after}"
    done = run("curl", integration, "-s", "-o", "/dev/null", "-w", form, site.url + "/open")
    status, wait = done.stdout.split()
    assert status == "503"
    assert 1 <= int(wait) <= 60
    assert site.origin.targets == []


# -- Python's clients, configured as `robots-guard proxy ca` says ----------------------------------------------

PYTHON = {
    "urllib": """
import urllib.error, urllib.request
for url in urls:
    try: answer = urllib.request.urlopen(url)
    except urllib.error.HTTPError as error: answer = error
    print(answer.status, answer.headers.get("Robots-Guard", ""))
""",
    "requests": """
import requests
for url in urls:
    answer = requests.get(url)
    print(answer.status_code, answer.headers.get("Robots-Guard", ""))
""",
    "httpx": """
import httpx
for url in urls:
    answer = httpx.get(url)
    print(answer.status_code, answer.headers.get("Robots-Guard", ""))
""",
    "httpx-h2": """
import httpx
for url in urls:
    with httpx.Client(http2=True) as client: answer = client.get(url)
    print(answer.status_code, answer.headers.get("Robots-Guard", ""))
""",
    "aiohttp": """
import asyncio, aiohttp
async def main(url):
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as answer:
        print(answer.status, answer.headers.get("Robots-Guard", ""))
for url in urls: asyncio.run(main(url))
""",
    "scrapy": """
import scrapy, sys
from scrapy.crawler import CrawlerProcess
class Spider(scrapy.Spider):
    name = "x"
    start_urls = [urls.pop(0)]
    custom_settings = {"LOG_ENABLED": False, "TELNETCONSOLE_ENABLED": False, "RETRY_ENABLED": False,
        "HTTPERROR_ALLOW_ALL": True}
    def parse(self, answer):
        print(answer.status, answer.headers.get("Robots-Guard", b"").decode())
        if urls: yield scrapy.Request(urls.pop(0))
process = CrawlerProcess()
process.crawl(Spider)
process.start()
""",
}


#: A process that has imported the clients, except Twisted's reactor, which Scrapy chooses, and aiohttp, which reads
#: the certificates that it trusts when it is imported.
_FORKS = Preloaded(
    [],
    [
        "h2.connection",
        "httpx",
        "requests",
        "scrapy.core.downloader.handlers.http11",
        "scrapy.crawler",
        "urllib.request",
    ],
)


@pytest.fixture(scope="module")
def bundle(integrations, tmp_path_factory):
    """Each integration's CA with the usual ones, as the command writes them."""
    files = {}
    for kind, integration in integrations.items():
        files[kind] = tmp_path_factory.mktemp("bundle") / "bundle.pem"
        command = [
            PROGRAMS / "robots-guard",
            "proxy",
            "ca",
            "--confdir",
            integration.folder / "ca",
            "--bundle",
            files[kind],
        ]
        subprocess.run(
            command, env=environment(), check=True, timeout=60, stdout=subprocess.DEVNULL
        )
    return files


def trusting(integration, bundle):
    """The environment that `robots-guard proxy ca` recommends."""
    trusted = str(bundle[integration.kind])
    return {
        **os.environ,
        **dict.fromkeys(("http_proxy", "https_proxy"), integration.url),
        **dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), trusted),
        "no_proxy": "",
    }


OPEN, PRIVATE = TARGETS = ["/open", "/private/x"]


def explains_refusals(ask, site):
    """Check that a client can report the status and `Robots-Guard` field of a target."""
    assert ask(OPEN).strip() == "200"
    assert ask(PRIVATE).startswith("403 drop; reason=disallowed; rule=")
    assert site.origin.targets == ["/open"]


def printed(command, environment):
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("name", PYTHON)
def test_python(name, integration, site, bundle, tmp_path):
    """One process requests all targets, because starting a client takes most of the time."""
    urls = [site.url + target for target in TARGETS]
    script = tmp_path / "client.py"
    script.write_text(f"urls = {urls!r}{PYTHON[name]}")
    done = _FORKS.run([str(script)], trusting(integration, bundle), 60)
    output = done.stdout.strip() or done.stderr
    lines = output.splitlines()

    assert len(lines) == len(TARGETS), output
    explains_refusals(dict(zip(TARGETS, lines, strict=True)).__getitem__, site)


# -- Node and Go ----------------------------------------------------------------------------------------------

# Node's own fetch, with the proxy as its dispatcher: the environment it heeds since Node 24 only.
NODE = """
const { ProxyAgent, setGlobalDispatcher } = require("undici");
setGlobalDispatcher(new ProxyAgent(process.env.http_proxy));
fetch(process.argv[1]).then((answer) => console.log(answer.status, answer.headers.get("Robots-Guard") ?? ""));
"""
UNDICI = "/usr/share/nodejs"  # where Debian's node-undici lies


def test_node(integration, site, bundle):
    environment = trusting(integration, bundle) | {"NODE_PATH": UNDICI}
    explains_refusals(
        lambda target: printed([program("node"), "-e", NODE, site.url + target], environment), site
    )


@pytest.fixture(scope="module")
def go_client(tmp_path_factory):
    return go_client_in(
        tmp_path_factory.mktemp("go"), tmp_path_factory.getbasetemp().parent / "go-cache"
    )


def test_go(integration, site, bundle, go_client):
    explains_refusals(
        lambda target: printed([go_client, site.url + target], trusting(integration, bundle)), site
    )
