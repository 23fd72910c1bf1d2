"""Reads the vectors, and judges one target in the form they use."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from robots_guard.origin import wire_text
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.ruleset import Ruling, compile_rules

DATA = Path(__file__).parent.parent / "data"


def rows(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    packed = path.read_bytes()
    text = (lzma.decompress(packed) if path.suffix == ".xz" else packed).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def split(url: str) -> tuple[str, int, str]:
    """Host, port (0 if none) and target of an http(s) URL; enough for the vectors."""
    rest = url.partition("://")[2]
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    host, _, port = rest[:end].partition(":")
    target = wire_text(rest[end:])
    return host, int(port or 0), target if target.startswith("/") else "/" + target


def ask(
    body: str | bytes,
    url: str,
    agent: str = "examplebot",
    name: str = "rfc9309",
    matching: str = "spec",
) -> Ruling:
    text = body.encode() if isinstance(body, str) else body
    host, port, target = split(url) if "://" in url else ("", 0, wire_text(url))
    return compile_rules(text, dialect(name), agent, matching).judge(target, host, port)
