"""Hostile files of the legal size with a target of 8 KiB: compile, first decision, later decisions,
memory.

    python benchmarks/hostile.py [--protego]

Each case runs in a process of its own, so that its memory is its own. Goals: a decision within 5 ms
after the first, compile within 400 ms, 32 MiB of growth at most; exits 1 where one is missed.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import compile_rules

CAP = 500_000
GOALS = {"compile": 400.0, "decide": 5.0, "memory": 32.0}

Case = tuple[bytes, str]


def _file(lines: Iterator[str], agents: str = "User-agent: *\n") -> bytes:
    out, size = [agents], len(agents)
    for line in lines:
        size += len(line)
        if size > CAP:
            break
        out.append(line)
    return "".join(out).encode()


def _rules(pattern: Callable[[int], str], agents: str = "User-agent: *\n") -> bytes:
    return _file((f"Disallow: {pattern(number)}\n" for number in range(CAP)), agents)


def _pairs() -> str:
    """Return an 8 KiB target with as many different pairs of printable characters as possible."""
    letters = [chr(code) for code in range(0x30, 0x7A) if chr(code) not in "*$%;#\\?/<>^`|"]
    return "/" + "".join(a + b for a in letters for b in letters)[:8_100]


A = "/" + "a" * 8_100
PLAIN = "/" + "some-page/" * 810

CASES: dict[str, Callable[[], Case]] = {
    "1 x many stars": lambda: (b"User-agent: *\nDisallow: /" + b"*a" * 4_000 + b"*b\n", A),
    "many x /*xNNNN": lambda: (_rules(lambda n: f"/*x{n:06d}"), PLAIN),
    "many x /*a..abN": lambda: (_rules(lambda n: f"/*{'a' * (20 + n % 100)}b{n}"), A),
    "many x /*hex": lambda: (_rules(lambda n: f"/*{n * 2_654_435_761 % 2**32:08x}"), PLAIN),
    "many x *a*a*aN$": lambda: (_rules(lambda n: f"/*a*a*a{n}$"), A),
    "many x a{50}N a{50}": lambda: (_rules(lambda n: f"/*{'a' * 50}{n:04d}{'a' * 50}"), A),
    "many two-letter stars": lambda: (
        _rules(lambda n: f"/*{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}*zq{n}"),
        PLAIN,
    ),
    "pairs in file and target": lambda: (
        _rules(
            lambda n: (
                f"/*{_pairs()[1 + n % 5_000 : 3 + n % 5_000]}*{_pairs()[1 + n * 7 % 5_000 :][:2]}*~{n % 10}"
            )
        ),
        _pairs(),
    ),
    "heads with stars each": lambda: (
        _rules(lambda n: f"/{n:x}*y" if n % 2 else f"/*{n:x}q"),
        PLAIN,
    ),
    "deep prefix chain": lambda: (_rules(lambda n: "/" + "a" * n), A),
    "deep chain, 60 stars each": lambda: (_rules(lambda n: f"/{'a' * (n // 60)}*b{n % 60}"), A),
    "prefixes only": lambda: (_rules(lambda n: f"/{n:x}"), PLAIN),
    "one rule a group": lambda: (
        _file(f"User-agent: bot{'x' * (n % 40)}\nDisallow: /{n}\n" for n in range(CAP)),
        PLAIN,
    ),
    "groups of our name": lambda: (
        _file(f"User-agent: examplebot\nDisallow: /{n}\n" for n in range(CAP)),
        PLAIN,
    ),
    "agents times rules": lambda: (
        _rules(
            lambda n: f"/{n}", "".join(f"User-agent: b{'o' * (n % 60)}t\n" for n in range(7_000))
        ),
        PLAIN,
    ),
    "one endless line": lambda: (b"User-agent: *\nDisallow: /" + b"a" * CAP, A),
    "only line ends": lambda: (b"\r" * CAP, PLAIN),
    "only NUL": lambda: (b"\0" * CAP, PLAIN),
    "escapes": lambda: (_rules(lambda n: f"/%7e%c3%a9%{n % 90 + 10}{n}"), "/" + "%7e" * 2_700),
    "dots and slashes in the target": lambda: (
        _rules(lambda n: f"/x{n}/y"),
        "/" + "/.././;a=b//%2e%2e" * 450,
    ),
    "unknown lines": lambda: (b"x:y\n" * (CAP // 4), PLAIN),
    "blank user agents": lambda: (b"User-agent:\n" * (CAP // 12), PLAIN),
    "exact rules": lambda: (_rules(lambda n: f"/{n}$"), PLAIN),
}


def main() -> int:
    if "--case" in sys.argv:
        name, peer = sys.argv[sys.argv.index("--case") + 1 :][:2]
        print(json.dumps(run(name, peer)))
        return 0
    missed = 0
    print(f"{'case':34}{'KiB':>6}{'compile ms':>12}{'first ms':>10}{'decide ms':>11}{'MiB':>7}")
    for name in CASES:
        for peer in ("ours", "protego") if "--protego" in sys.argv else ("ours",):
            row = _in_process(name, peer)
            late = peer == "ours" and any(row[goal] > limit for goal, limit in GOALS.items())
            missed += late
            shown = f"{row['compile']:12.1f}{row['first']:10.2f}{row['decide']:11.3f}{row['memory']:7.1f}"
            print(
                f"{name if peer == 'ours' else '    protego':34}{row['size']:6.0f}{shown}{'  MISSED' if late else ''}"
            )
    return 1 if missed else 0


def _in_process(name: str, peer: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", name, peer]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(("size", "compile", "first", "decide", "memory"), float("inf"))
    row: dict[str, float] = json.loads(done.stdout)
    return row


def run(name: str, peer: str) -> dict[str, float]:
    body, target = CASES[name]()
    before = _resident()
    start = time.perf_counter()
    ask = _ours(body) if peer == "ours" else _protego(body)
    compiled = time.perf_counter()
    ask(target)
    first = time.perf_counter()
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        ask(target)
        best = min(best, time.perf_counter() - begun)
    return {
        "size": len(body) / 1024,
        "compile": (compiled - start) * 1000,
        "first": (first - compiled) * 1000,
        "decide": best * 1000,
        "memory": (_resident() - before) / 1024,
    }


def _ours(body: bytes) -> Callable[[str], object]:
    return compile_rules(body, dialect("rfc9309"), "examplebot", "standard").judge


def _protego(body: bytes) -> Callable[[str], object]:
    from protego import Protego  # imported here, so that its memory is not counted for robots_guard

    parsed = Protego.parse(body.decode("utf-8", "ignore"))
    return lambda target: parsed.can_fetch("https://www.example.com" + target, "examplebot")


def _resident() -> int:
    """Return the peak memory so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
