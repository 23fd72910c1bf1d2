"""Clients of five kinds that do not try again, at once through one proxy: how many pages they lose.

    python benchmarks/clients.py [--pages 280] [--planes "proxy; Envoy; Squid"]

The site has a Crawl-delay of 1 s, one page answers 429 with `Retry-After: 2`, and another site has a
robots.txt that answers 503 at first. wget and requests get their pages one after the other; aiohttp,
pycurl and Go get theirs in groups of four. Exits with 1 if a page is lost.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from integrations.test_clients_at_once import BUSY, HOLD_MAX, PLANES, RULES
from support.crowd import at_once, go_client_in

from robots_guard.testing import Loopback, Reply

GROUP = 4
CLIENTS = ("wget", "requests", "aiohttp", "pycurl", "Go")


def run(plane: str, pages: int, go: Path) -> int:
    """Print what the clients have got through a data plane; return how many pages were lost."""
    answers = itertools.chain([503, 503], itertools.repeat(200))
    folder = Path(tempfile.mkdtemp(prefix="robots-guard-clients-"))
    with Loopback() as net, PLANES[plane](folder, hold_max=HOLD_MAX, agent="mybot") as integration:
        site = net.origin(RULES, {"/busy": BUSY})
        ill = net.origin(lambda _: Reply(status=next(answers)))
        begun, statuses = time.monotonic(), Counter[int]()
        rounds = -(-pages // (GROUP * len(CLIENTS)))
        for number in range(rounds):
            urls = {
                name: [f"{site.url}/{name}/{number}/{each}" for each in range(GROUP)]
                for name in CLIENTS
            }
            if not number:
                urls["wget"].append(f"{site.url}/busy")
                urls["requests"].append(f"{ill.url}/page")
            for each in at_once(integration.url, urls, go).values():
                statuses.update(each)
        seconds = time.monotonic() - begun
    lost = statuses.total() - statuses[200] - 1  # /busy
    print(f"{plane:8} {statuses.total()} pages in {seconds:.0f} s, lost {lost}: {dict(statuses)}")
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=280)
    parser.add_argument("--planes", default="; ".join(PLANES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        go = go_client_in(Path(place), Path(place) / "cache")
        lost = [run(each.strip(), options.pages, go) for each in options.planes.split(";")]
    return int(sum(lost) > 0)


if __name__ == "__main__":
    sys.exit(main())
