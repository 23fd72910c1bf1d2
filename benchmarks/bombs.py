"""The cost of a hostile robots.txt: memory, the longest stall of the event loop, and the time to
the verdict.

    python benchmarks/bombs.py [--cases gzip,br,...] [--by direct,scrapy,proxy,builtin]

Each bomb is served on a loopback address and fetched by a separate process, which has fetched a
harmless file before, so that only the bomb is measured. Goals: 16 MiB of growth, stalls of at most
100 ms, a verdict within 31 s. Exits with 1 if a goal is missed, except for limits that the
framework does not allow to enforce (docs/scrapy.md). `builtin` is Scrapy's own RobotsTxtMiddleware,
for comparison, with a limit of one minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from robots_guard.testing import Loopback, Reply

TEXT = b"User-agent: *\nDisallow: /private/\n"
UNPACKED = 200_000_000
GOALS = {"MiB": 16.0, "stall ms": 100.0, "seconds": 31.0}
BEYOND_US = {("scrapy", "endless fields"): "MiB", ("scrapy", "endless interim answers"): "stall ms"}
PATIENCE = 60.0
BEAT = 0.002


# -- the bombs -------------------------------------------------------------------------------------


def _packed(coding: str, body: bytes) -> Reply:
    return Reply(body=body, headers=(("Content-Encoding", coding),))


def _gzip() -> Reply:
    members = (
        gzip.compress(TEXT + b"\n" * (UNPACKED // 10)) + gzip.compress(b"\n" * (UNPACKED // 10)) * 9
    )
    return _packed("gzip", members)


def _gzip_of_one_member() -> Reply:
    return _packed("gzip", gzip.compress(TEXT + b"\n" * UNPACKED))


def _deflate() -> Reply:
    return _packed("deflate", zlib.compress(TEXT + b"\n" * UNPACKED))


def _brotli() -> Reply | None:
    with contextlib.suppress(ImportError):
        return _packed("br", import_module("brotli").compress(TEXT + b"\n" * UNPACKED, quality=5))
    return None


def _zstd() -> Reply:
    """Build a zstd frame by hand (RFC 8878 section 3.1.1): a raw block, then RLE blocks of 128 KiB
    each.
    """
    count = UNPACKED // (128 * 1024)
    head = b"\x28\xb5\x2f\xfd\x00\x38" + (len(TEXT) << 3).to_bytes(3, "little") + TEXT
    block = (1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"\n"
    last = (1 | 1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"\n"
    return _packed("zstd", head + block * (count - 1) + last)


def _raw(head: bytes, endless: bytes, drip: float = 0.0) -> Reply:
    return Reply(raw=head, endless=endless, drip=drip)


CASES: dict[str, Callable[[], Reply | None]] = {
    "gzip": _gzip,
    "gzip, one member": _gzip_of_one_member,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
    "endless body": lambda: Reply(body=TEXT, endless=b"#" * 65_535 + b"\n"),
    "endless line": lambda: Reply(body=TEXT, endless=b"a" * 65_536),
    "endless chunks": lambda: _raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1000\r\n" + b"#" * 4096 + b"\r\n",
    ),
    "endless chunk extension": lambda: _raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x" * 65_536
    ),
    "endless fields": lambda: _raw(
        b"HTTP/1.1 200 OK\r\n", b"".join(b"X-%d: %s\r\n" % (n, b"y" * 990) for n in range(64))
    ),
    "one endless field": lambda: _raw(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65_536),
    "endless interim answers": lambda: _raw(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 2000),
    "dripping fields": lambda: _raw(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.05),
    "dripping body": lambda: Reply(body=TEXT, endless=b"#\n", drip=0.05),
}


# -- what a process costs --------------------------------------------------------------------------


def _status(pid: int | str, name: str) -> float:
    """Return the MiB in a line of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


class Meter:
    """Measures from `begin` on: the peak growth of memory, and the longest stall of the event loop."""

    def __init__(self) -> None:
        self._stall = 0.0

    def begin(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._before = _status("self", "VmRSS:")
        self._stall, self._began = 0.0, time.monotonic()
        self._beat = asyncio.ensure_future(self._beating())

    async def _beating(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(BEAT)
            self._stall = max(self._stall, time.monotonic() - before - BEAT)

    def end(self, verdict: str) -> None:
        """Print the result."""
        self._beat.cancel()
        grown = max(0.0, _status("self", "VmHWM:") - self._before)
        found = {
            "MiB": grown,
            "stall ms": self._stall * 1000,
            "seconds": time.monotonic() - self._began,
        }
        print(json.dumps(found | {"verdict": verdict}), flush=True)


# -- the processes ---------------------------------------------------------------------------------


def direct(harmless: str, bomb: str) -> None:
    """Fetch with the direct fetcher, as configured by the command line."""
    from robots_guard.configuration.settings import direct_fetcher, open_guard, settings_of
    from robots_guard.decisions.verdict import Question
    from robots_guard.guard.runtime import AsyncioRuntime
    from robots_guard.origin import split_url

    async def ask() -> None:
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_of({"agent": "mybot", "store": "memory:", "audit_log": folder})
            fetcher = direct_fetcher(settings, trusts_caller=True)
            guard = open_guard(settings, component="cli", runtime=AsyncioRuntime(), fetcher=fetcher)
            meter = Meter()
            for url in (harmless, bomb):
                if url == bomb:
                    meter.begin()
                origin, target = split_url(f"{url}/private/x")
                decision = await guard.check(Question(origin=origin, target=target, agent="mybot"))
            meter.end(f"{decision.verdict.action} {decision.verdict.reason}")
            guard.close()

    asyncio.run(ask())


def crawl(harmless: str, bomb: str, settings: dict[str, Any]) -> None:
    import scrapy
    from scrapy.crawler import AsyncCrawlerProcess
    from scrapy.exceptions import IgnoreRequest
    from scrapy.http.request import NO_CALLBACK

    class Asker(scrapy.Spider):
        name = "asker"

        async def start(self) -> Any:
            meter = Meter()
            for url in (harmless, bomb):
                if url == bomb:
                    meter.begin()
                try:
                    await self.crawler.engine.download_async(
                        scrapy.Request(f"{url}/private/x", callback=NO_CALLBACK)
                    )
                    verdict = "pass"
                except IgnoreRequest as error:
                    decision = getattr(error, "decision", None)
                    verdict = (
                        f"{decision.verdict.action} {decision.verdict.reason}"
                        if decision
                        else "drop"
                    )
            meter.end(verdict)
            return
            yield

    quiet = {
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "RETRY_ENABLED": False,
        "LOG_LEVEL": "CRITICAL",
    }
    process = AsyncCrawlerProcess(quiet | settings)
    process.crawl(Asker)
    process.start()


def by_scrapy(harmless: str, bomb: str) -> None:
    """Fetch with the Scrapy add-on, through Scrapy's downloader."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"AGENT": "mybot", "STORE": "memory:", "AUDIT_LOG": folder}
        settings = {f"ROBOTS_GUARD_{name}": value for name, value in options.items()}
        crawl(harmless, bomb, settings | {"ADDONS": {"robots_guard.scrapy.Addon": 500}})


def builtin(harmless: str, bomb: str) -> None:
    """Fetch with Scrapy's RobotsTxtMiddleware."""
    crawl(harmless, bomb, {"ROBOTSTXT_OBEY": True, "USER_AGENT": "mybot"})


def proxy(harmless: str, bomb: str) -> None:
    """Fetch through `robots-guard proxy`, with a client in a thread."""
    from robots_guard.configuration.settings import settings_of
    from robots_guard.mitmproxy.launcher import Proxy, Ready, serve

    def ask(address: tuple[str, int], url: str) -> str:
        with socket.create_connection(address) as connection:
            connection.sendall(
                f"GET {url}/private/x HTTP/1.1\r\nHost: {url[7:]}\r\nConnection: close\r\n\r\n".encode()
            )
            head = b""
            while data := connection.recv(65536):
                head += data
        guard = [
            line
            for line in head.decode("latin-1").splitlines()
            if line.lower().startswith("robots-guard:")
        ]
        return (
            guard[0].split(": ", 1)[1].split("; rule")[0] if guard else head[:20].decode("latin-1")
        )

    async def measure(ready: Ready) -> None:
        host, _, port = ready.url.removeprefix("http://").partition(":")
        meter = Meter()
        await asyncio.to_thread(ask, (host, int(port)), harmless)
        meter.begin()
        meter.end(await asyncio.to_thread(ask, (host, int(port)), bomb))
        os.kill(os.getpid(), signal.SIGTERM)

    under_way = []
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(
            {"agent": "mybot", "store": "memory:", "audit_log": f"{folder}/audit_log"}
        )
        plan = Proxy(settings=settings, port=0, confdir=Path(folder))
        serve(plan, lambda ready: under_way.append(asyncio.ensure_future(measure(ready))))


BY: dict[str, Callable[[str, str], None]] = {
    "direct": direct,
    "scrapy": by_scrapy,
    "proxy": proxy,
    "builtin": builtin,
}


# -- the table -------------------------------------------------------------------------------------


def measured(by: str, harmless: str, bomb: str) -> dict[str, Any]:
    """Run a measurement in a separate process.

    Returns its result, or what is known if it was killed.
    """
    command = [sys.executable, __file__, "--child", by, harmless, bomb]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    grown, began, before = 0.0, time.monotonic(), None
    while child.poll() is None:
        with contextlib.suppress(OSError, LookupError):
            grown = _status(child.pid, "VmRSS:")
            before = before if before is not None else grown
        if time.monotonic() - began > PATIENCE:
            child.kill()
            child.communicate()
            return {
                "MiB": grown - 80,
                "stall ms": float("nan"),
                "seconds": PATIENCE,
                "verdict": "ended by us",
            }
        time.sleep(0.05)
    out, err = child.communicate()
    if not out.strip():
        return {
            "MiB": float("nan"),
            "stall ms": float("nan"),
            "seconds": float("nan"),
            "verdict": err.strip()[-80:],
        }
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def main() -> int:
    """Print the table. Returns 1 if an integration of robots_guard misses a goal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="")
    parser.add_argument("--by", default=",".join(BY))
    parser.add_argument("--child", nargs=3)
    chosen = parser.parse_args()
    if chosen.child:
        BY[chosen.child[0]](*chosen.child[1:])
        return 0
    print(f"{'bomb':26}{'by':10}{'MiB':>9}{'stall ms':>10}{'seconds':>9}  verdict")
    missed = 0
    with Loopback() as net:
        harmless = net.origin(Reply(body=TEXT)).url
        for case in filter(None, chosen.cases.split(",")) if chosen.cases else CASES:
            reply = CASES[case]()
            if reply is None:
                print(f"{case:26}no library to compress it")
                continue
            for by in chosen.by.split(","):
                found = measured(by, harmless, net.origin(reply).url)
                over = [goal for goal, most in GOALS.items() if not found[goal] <= most]
                missed += by != "builtin" and over not in ([], [BEYOND_US.get((by, case))])
                mark = f"  over: {', '.join(over)}" if over and by != "builtin" else ""
                figures = f"{found['MiB']:9.1f}{found['stall ms']:10.1f}{found['seconds']:9.1f}"
                print(f"{case:26}{by:10}{figures}  {found['verdict']}{mark}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
