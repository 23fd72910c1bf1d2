"""Crawlers as people have them: curl and wget, with the proxy in their environment."""

from __future__ import annotations

import os
import subprocess

from hosts.mitmproxy.origin import Sites
from support.programs import program

from robots_guard.testing import Reply


def run(name, door, *arguments):
    environment = os.environ | dict.fromkeys(("http_proxy", "https_proxy"), door.url) | {"no_proxy": ""}
    return subprocess.run(
        [program(name), *arguments], env=environment, capture_output=True, text=True, timeout=30, check=False
    )


def test_curl(door, site):
    def curl(target, *more):
        form = "%{http_code} %header{robots-guard}"
        return run("curl", door, "-s", "-o", "/dev/null", "-w", form, "--cacert", door.ca, *more, site.url + target)

    assert curl("/open").stdout.split()[0] == "200"
    told = curl("/private/x").stdout
    assert told.startswith('403 drop; reason=disallowed; rule="Disallow: /private/"; line=2; id=')
    assert curl("/private/x", "-f").returncode == 22
    assert curl("/private/x", "--head").stdout.startswith("403 ")
    assert curl("/open/../private/x", "--path-as-is").stdout.startswith("403 ")
    assert site.origin.targets == ["/open"]


def test_curl_reads_why(door, site):
    told = run("curl", door, "-s", "--cacert", door.ca, site.url + "/private/x").stdout
    assert "robots.txt does not allow mybot" in told


def test_curl_over_http2(door, https_site):
    form = "%{http_version} %{http_code}"
    for target, status in (("/open", 200), ("/private/x", 403)):
        done = run(
            "curl", door, "-s", "-o", "/dev/null", "-w", form, "--http2", "--cacert", door.ca, https_site.url + target
        )
        assert done.stdout == f"2 {status}"
    assert https_site.origin.targets == ["/open"]


def test_wget(door, site, tmp_path):
    def wget(target):
        return run(
            "wget", door, "-q", "-t", "1", f"--ca-certificate={door.ca}", "-O", tmp_path / "page", site.url + target
        )

    assert wget("/open").returncode == 0
    assert "This is /open" in (tmp_path / "page").read_text()
    assert wget("/private/x").returncode == 8
    assert site.origin.targets == ["/open"]


def test_wget_crawls_a_site_and_gets_what_it_may(door, sites: Sites, tmp_path):
    links = '<a href="/a">a</a><a href="/private/b">b</a><a href="/c">c</a>'
    site = sites.start("https", pages={"/": Reply(body=links, headers=(("Content-Type", "text/html"),))})
    options = ["-q", "-r", "-l", "1", "-e", "robots=off", f"--ca-certificate={door.ca}", "-P", str(tmp_path)]
    assert run("wget", door, *options, site.url + "/").returncode == 8
    assert site.origin.targets == ["/", "/a", "/c"]


def test_a_client_that_does_not_trust_us_touches_nothing(door, https_site):
    done = run("curl", door, "-s", https_site.url + "/open")
    assert done.returncode == 60
    assert https_site.seen()[0] == 0


def test_a_deferral_says_how_long(door, sites):
    site = sites.start(robots=Reply(status=503))
    form = "%{http_code} %header{retry-after}"
    done = run("curl", door, "-s", "-o", "/dev/null", "-w", form, site.url + "/open")
    status, wait = done.stdout.split()
    assert status == "503"
    assert 1 <= int(wait) <= 60
    assert site.origin.targets == []
