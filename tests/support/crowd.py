"""Clients of five kinds that use one proxy at once. None of them tries a page again.

    statuses = at_once(proxy_url, {"wget": urls, "requests": urls, ...}, go)

wget and requests get their pages one after the other; aiohttp, pycurl and Go all at once.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Imported here: an import while the clients run would keep the sites, threads of the same process,
# from reading what has arrived.
import aiohttp
import pycurl
import requests

from support.programs import program

PATIENCE = 120.0  # seconds for a client to end

# Go uses the environment, but never for a loopback address, where the sites are.
_GO = """
package main
import ("fmt"; "net/http"; "net/url"; "os"; "sync")
func main() {
	proxy, _ := url.Parse(os.Getenv("http_proxy"))
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	var all sync.WaitGroup
	for _, page := range os.Args[1:] {
		all.Add(1)
		go func(page string) {
			defer all.Done()
			answer, err := client.Get(page)
			if err != nil { fmt.Println(err); return }
			fmt.Println(answer.StatusCode, answer.Header.Get("Robots-Guard"))
		}(page)
	}
	all.Wait()
}
"""

Statuses = list[int]


def go_client_in(place: Path, cache: Path) -> Path:
    """A client in Go, which prints the status and Robots-Guard of each URL it is given. `cache` keeps
    what Go has compiled for others."""
    (place / "client.go").write_text(_GO)
    environment = os.environ | {"GOCACHE": str(cache), "GO111MODULE": "off"}
    command = [program("go"), "build", "-o", place / "client", place / "client.go"]
    subprocess.run(command, env=environment, check=True, timeout=240)
    return place / "client"


def _wget(proxy: str, urls: Sequence[str]) -> Statuses:
    command = [program("wget"), "-S", "-O", os.devnull, "--tries=1", *urls]
    environment = os.environ | {"http_proxy": proxy, "no_proxy": "", "LC_ALL": "C"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return [int(each) for each in re.findall(r"^ +HTTP/1\.1 ([0-9]{3})", done.stderr, re.MULTILINE)]


def _requests(proxy: str, urls: Sequence[str]) -> Statuses:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": proxy}
        return [session.get(url).status_code for url in urls]


def _aiohttp(proxy: str, urls: Sequence[str]) -> Statuses:
    async def get(session: aiohttp.ClientSession, url: str) -> int:
        async with session.get(url, proxy=proxy) as response:
            return response.status

    async def get_all() -> Statuses:
        async with aiohttp.ClientSession() as session:
            return await asyncio.gather(*(get(session, url) for url in urls))

    return asyncio.run(get_all())


def _pycurl(proxy: str, urls: Sequence[str]) -> Statuses:
    multi, handles = pycurl.CurlMulti(), []
    for url in urls:
        handle = pycurl.Curl()
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.PROXY, proxy)
        handle.setopt(pycurl.NOPROXY, "")
        handle.setopt(pycurl.WRITEFUNCTION, len)
        multi.add_handle(handle)
        handles.append(handle)
    running = len(handles)
    while running:
        _, running = multi.perform()
        multi.select(1.0)
    return [handle.getinfo(pycurl.RESPONSE_CODE) for handle in handles]


def _go(client: Path) -> Callable[[str, Sequence[str]], Statuses]:
    def get(proxy: str, urls: Sequence[str]) -> Statuses:
        environment = os.environ | {"http_proxy": proxy}
        done = subprocess.run(
            [client, *urls],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return [int(line.split()[0]) for line in done.stdout.splitlines()]

    return get


def at_once(
    proxy: str, pages: Mapping[str, Sequence[str]], go: Path | None = None
) -> dict[str, Statuses]:
    """Let each client get its pages, all clients at once; return the statuses that each has got."""
    clients = {"wget": _wget, "requests": _requests, "aiohttp": _aiohttp, "pycurl": _pycurl}
    if go is not None:
        clients["Go"] = _go(go)
    with ThreadPoolExecutor(len(clients)) as threads:
        answers = {name: threads.submit(clients[name], proxy, urls) for name, urls in pages.items()}
        return {name: answer.result() for name, answer in answers.items()}
