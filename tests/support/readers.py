"""URL parsers of other programs: which path they read from a request target, and which origin from
a URL.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlparse, urlsplit

from yarl import URL

from support.programs import program

BASE = "http://localhost/"


class Read(NamedTuple):
    """What one parser reads from a target: the path, and the query with its "?"."""

    reader: str
    path: str
    query: str


class Node:
    """A Node process that runs tests/support/readers.js."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [program("node"), str(Path(__file__).with_suffix(".js"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def targets(self, targets: list[str]) -> list[list[Read]]:
        """Return what each reader reads from each target. Readers that throw are omitted."""
        return [
            [Read(name, path, query) for name, (path, query) in found.items()]
            for found in self._query({"targets": targets})
        ]

    def origins(self, urls: list[str]) -> list[dict[str, str] | None]:
        """Return protocol, hostname, port and host of each URL by `new URL`; None where it throws."""
        return self._query({"urls": urls})

    def _query(self, question: dict[str, list[str]]) -> list:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@contextlib.contextmanager
def started() -> Iterator[Node]:
    """A Node process for a block."""
    node = Node()
    try:
        yield node
    finally:
        node.close()


# -- Python's readers ------------------------------------------------------------------------------


def _split(text: str) -> tuple[str, str]:
    return _parts(urlsplit(text))


def _parts(parsed: SplitResult) -> tuple[str, str]:
    return parsed.path, f"?{parsed.query}" if parsed.query else ""


def _yarl(url: URL) -> tuple[str, str]:
    return url.raw_path, f"?{url.raw_query_string}" if url.raw_query_string else ""


_RESERVED = re.compile("%(2[1346-9A-CF]|3[ABDF]|40|5[BD])", re.IGNORECASE)


def _quoted_by_yarl(target: str) -> tuple[str, str]:
    """Return the path as quoted by yarl. Raises ValueError where quoting may change the target (RFC
    3986 section 2.2).

    yarl decodes some reserved characters, most of them in queries, and encodes brackets.
    """
    if "?" in target or _RESERVED.search(target):
        raise ValueError("a query, or an escape of a reserved character")
    return URL(target).raw_path.replace("%5B", "[").replace("%5D", "]"), ""


_READERS: dict[str, Callable[[str], tuple[str, str]]] = {
    "urlsplit": _split,
    "urlparse": lambda target: (
        urlparse(target).path,
        f"?{query}" if (query := urlparse(target).query) else "",
    ),
    "urljoin": lambda target: _split(urljoin(BASE, target)),
    "yarl": lambda target: _yarl(URL(target, encoded=True)),
    "yarl, quoted": _quoted_by_yarl,
    "yarl, joined": lambda target: _yarl(URL(BASE).join(URL(target, encoded=True))),
}


def read_by_python(target: str) -> list[Read]:
    """Return what each reader reads from a target.

    Readers that raise are omitted; yarl may raise IndexError.
    """
    found = []
    for name, read in _READERS.items():
        with contextlib.suppress(ValueError, IndexError):
            found.append(Read(name, *read(target)))
    return found
