"""The judgement: every request that a reader finds at an origin must be in the audit log as a PASS.

Invariant: for each reader, the multiset of (method, URL) in the bytes at all origins is contained in the multiset of
the decisions to PASS and the proxy's own robots.txt fetches. Besides that, each request names the site it went to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from integrations.mitmproxy.differential.origin import Recording
from integrations.mitmproxy.differential.readers import Found, readings_of
from integrations.mitmproxy.differential.servers import read_by_servers

from robots_guard.audit.privacy import cut, shown_url
from robots_guard.audit.read.reader import Filter, entries
from robots_guard.audit.record import Fetch, Record

Request = tuple[str, str]  # method and URL
#: Readers whose reading of the names a request gives its site is compared with the site.
NAMING = ("h11", "llhttp", "nginx", "frames", "nghttp2")


class Violation(NamedTuple):
    """A request at an origin that was not let pass, or not for this origin."""

    kind: str  # forbidden, unjudged, misnamed
    reader: str
    request: Request
    case: int | None

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.request)} by {self.reader}"


@dataclass
class Judgement:
    """What was found, and what of it should not have been there."""

    connections: int
    found: dict[str, int] = field(default_factory=dict)  # by reader
    violations: list[Violation] = field(default_factory=list)


def judge(
    recordings: Sequence[Recording], passed: Counter[Request], *, by_servers: bool = True
) -> Judgement:
    """Let each reader read each recording, and compare with what was let pass. `by_servers` starts Node and nginx."""
    judgement = Judgement(connections=len(recordings))
    for reader, found in _by_reader(recordings, by_servers=by_servers).items():
        requests = Counter(request for _, request, _ in found)
        judgement.found[reader] = requests.total()
        judgement.violations += _unjudged(reader, requests - passed, found)
        judgement.violations += _misnamed(reader, found)
    return judgement


def passes(audit_log: Path) -> Counter[Request]:
    """Count what the audit log says may have reached an origin."""
    counted: Counter[Request] = Counter()
    for entry in entries(audit_log, Filter(kind=None)):
        if isinstance(entry, Record) and entry.action == "pass":
            counted[entry.method, entry.url] += 1
        elif isinstance(entry, Fetch):
            counted["GET", entry.url] += 1
    return counted


_Places = list[tuple[Recording, Request, Found]]


def _by_reader(recordings: Sequence[Recording], *, by_servers: bool) -> dict[str, _Places]:
    by_reader: dict[str, _Places] = defaultdict(list)

    def note(reader: str, recording: Recording, found: Iterable[Found]) -> None:
        places = by_reader[reader]  # also of a reader that finds nothing: it counts 0
        places += [
            (recording, _request(recording, each), each)
            for each in found
            if not _is_tunnel(recording, each)
        ]

    for recording in recordings:
        for reader, found in readings_of(recording.protocol, bytes(recording.data)):
            note(reader, recording, found)
    data = (
        [(recording.protocol, bytes(recording.data)) for recording in recordings]
        if by_servers
        else []
    )
    replayed = read_by_servers(data) if data else {}
    for reader, connections in replayed.items():
        for place, found in connections.items():
            note(reader, recordings[place], found)
    return by_reader


def _request(recording: Recording, found: Found) -> Request:
    """Return method and URL as the audit log writes them."""
    target = found.target
    is_absolute = target.lower().startswith(("http://", "https://"))
    url = target if is_absolute else f"{recording.scheme}://{recording.authority}{target}"
    return cut(found.method, 32), shown_url(url)


def _is_tunnel(recording: Recording, found: Found) -> bool:
    """Whether it only makes a parent proxy connect; what goes through the tunnel is recorded at the origin."""
    host = recording.authority.partition(":")[0]
    return (
        recording.at_parent and found.method == "CONNECT" and found.target.partition(":")[0] == host
    )


def _unjudged(reader: str, excess: Counter[Request], found: _Places) -> Iterator[Violation]:
    cases = {request: recording.case for recording, request, _ in found if request in excess}
    for request in excess:
        kind = "forbidden" if "/private/" in request[1] else "unjudged"
        yield Violation(kind, reader, request, cases[request])


def _misnamed(reader: str, found: _Places) -> Iterator[Violation]:
    if reader not in NAMING:
        return
    for recording, request, each in found:
        if each.hosts is not None and set(each.hosts) != {recording.authority}:
            named = f"{request[1]} (for {each.hosts})"
            yield Violation("misnamed", reader, (request[0], named), recording.case)
