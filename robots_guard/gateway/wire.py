"""What a request will put on the wire, and the one origin it is addressed to.

Invariant: every name in a request (the address the proxy connects to, each Host field, :authority,
the SNI) is the same origin after canonicalisation, or the request is refused, because two readers
could disagree on it (RFC 9112 section 3.2, RFC 9113 section 8.3.1). The target is judged as the
bytes that will be sent.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from functools import lru_cache
from typing import NamedTuple

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question, Subresource, Verdict
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.placeholders import subresource_of
from robots_guard.origin import DEFAULT_PORTS, UNREADABLE, Origin, parse_authority
from robots_guard.protocol.paths import malformed

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
_MULTIPLEXED = ("HTTP/2.0", "HTTP/3")  # in these, :authority stands for Host
_VERSIONS = ("HTTP/1.0", "HTTP/1.1", *_MULTIPLEXED)
_BREAKS = re.compile(rb"[\r\n\0]")
_TOKEN_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+\n)*")

Fields = tuple[tuple[bytes, bytes], ...]


class Wire(NamedTuple):
    """Everything of a request that the verdict rests on. Two equal wires have the same verdict."""

    method: str
    scheme: str
    host: str  # where the proxy will connect
    port: int
    target: str  # bytes as Latin-1 characters
    version: str
    hosts: tuple[str, ...]  # every Host field
    authority: str  # of an absolute-form target, or :authority
    sni: str | None  # the name in the TLS handshake, if it must be the origin's
    addressed: bool  # whether `host` may be an address that stands for a name
    user_agents: tuple[str, ...]  # every User-Agent field
    coding: str  # Transfer-Encoding
    clean: bool  # each name is a token, and no field has a line break or NUL: some writers pass them on
    client: str
    fetch_destination: str = ""  # the Sec-Fetch-Dest field, if there is one
    fetch_origin: str = ""  # the Origin field, if there is one

    @classmethod
    def read(
        cls,
        fields: Fields,
        *,
        method: bytes,
        scheme: bytes,
        host: str,
        port: int,
        target: bytes,
        version: bytes,
        authority: bytes,
        sni: str | None,
        addressed: bool,
        client: str,
    ) -> Wire:
        """Read a request's parts as they will be sent. `version` is one of HTTP/1.0, HTTP/1.1, HTTP/2.0, HTTP/3."""
        hosts, user_agents, coding, destination, origin = _read_fields(fields)
        return cls(
            method=method.decode("latin-1"),
            scheme=scheme.decode("latin-1"),
            host=host,
            port=port,
            target=target.decode("latin-1"),
            version=version.decode("latin-1"),
            hosts=hosts,
            authority=_text(authority),
            sni=sni,
            addressed=addressed,
            user_agents=user_agents,
            coding=coding,
            clean=_is_clean(fields),
            client=client,
            fetch_destination=destination,
            fetch_origin=origin,
        )

    def with_target(self, target: str) -> Wire:
        """Return the same request for another target."""
        at = _TARGET
        return Wire._make((*self[:at], target, *self[at + 1 :]))  # `_replace` takes twice as long

    @property
    def subresource(self) -> Subresource | None:
        """What a browser loads by this request, if its refusal can be a placeholder."""
        return subresource_of(self.method, self.fetch_destination, self.fetch_origin)

    def question(self, agent: str) -> tuple[Question, Verdict | None]:
        """The question for the guard, and the verdict if the request is malformed or ambiguous."""
        try:
            origin, verdict = self.origin(), self._fault()
        except Ambiguous as error:
            origin, verdict = self._destination(), _drop(Reason.AMBIGUOUS_AUTHORITY, str(error))
        except (MalformedURL, NotGoverned) as error:
            origin, verdict = UNREADABLE, _drop(Reason.MALFORMED_TARGET, str(error))
        question = Question(
            origin=origin,
            target=self.target,
            agent=agent,
            method=self.method,
            user_agent=", ".join(self.user_agents),
            client=self.client,
        )
        return question, verdict

    def origin(self) -> Origin:
        """The one origin all names agree on. Raises MalformedURL for what cannot be read, Ambiguous otherwise."""
        if self.scheme not in DEFAULT_PORTS:
            raise NotGoverned(f"the scheme {self.scheme!r} is not http or https")
        if len(self.hosts) > 1:
            raise MalformedURL("more than one Host field")
        if self.version not in _VERSIONS:
            raise MalformedURL(f"not a version of HTTP: {self.version[:20]!r}")
        if not (
            self.hosts
            or self.version == "HTTP/1.0"
            or (self.authority and self.version in _MULTIPLEXED)
        ):
            raise MalformedURL(f"an {self.version} request that names no host")
        return _agreed(
            self.scheme, self.host, self.port, self.hosts, self.authority, self.sni, self.addressed
        )

    def _destination(self) -> Origin:
        return _origin(self.scheme, self.host, self.port)

    def _fault(self) -> Verdict | None:
        """The refusal of a method, target or field that another reader could parse differently."""
        if not TOKEN.fullmatch(self.method):
            return _drop(Reason.MALFORMED_TARGET, "the method is not a token")
        if not self.clean:
            return _drop(Reason.MALFORMED_TARGET, "a line break or a malformed name in a field")
        # Some servers see no body, and read requests in its bytes.
        if self.coding.lower() not in (
            "",
            "chunked",
        ):
            return _drop(Reason.MALFORMED_TARGET, "a transfer coding other than chunked")
        fault = malformed(self.target)
        if fault is None and "#" in self.target:
            fault = "a fragment"
        if fault:
            return _drop(Reason.MALFORMED_TARGET, fault)
        return None


_TARGET = Wire._fields.index("target")


@lru_cache(maxsize=8192)
def _agreed(
    scheme: str,
    host: str,
    port: int,
    hosts: tuple[str, ...],
    authority: str,
    sni: str | None,
    addressed: bool,
) -> Origin:
    """The origin that all names agree on. Raises Ambiguous. Cached, because a crawler visits the same few sites."""
    claims = [("Host", parse_authority(scheme, name)) for name in hosts]
    if authority:
        claims.append(("the request's authority", parse_authority(scheme, authority)))
    if sni:
        claims.append(("SNI", parse_authority(scheme, sni)._replace(port=port)))
    destination = _origin(scheme, host, port)
    if addressed and claims and _is_address(destination.host):
        destination = Origin(scheme, claims[0][1].host, port)
    for place, claim in claims:
        if claim != destination:
            raise Ambiguous(
                f"{place} names {claim.authority}, the connection goes to {destination.authority}"
            )
    return destination


def _origin(scheme: str, host: str, port: int) -> Origin:
    return parse_authority(scheme, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


class Ambiguous(Exception):
    """The names in a request disagree."""


def _drop(reason: Reason, detail: str) -> Verdict:
    return Verdict(action=Action.DROP, reason=reason, detail=detail)


def _is_clean(fields: Fields) -> bool:
    """Whether each field is one line with a token as its name (RFC 9112 section 5)."""
    if _BREAKS.search(b" ".join(itertools.chain.from_iterable(fields))):
        return False
    return _TOKEN_LINES.fullmatch(b"".join(name + b"\n" for name, _ in fields)) is not None


#: Every Host field, every User-Agent, the Transfer-Encoding, Sec-Fetch-Dest and Origin.
_FieldsRead = tuple[tuple[str, ...], tuple[str, ...], str, str, str]


def _read_fields(fields: Fields) -> _FieldsRead:
    hosts: tuple[str, ...] = ()
    agents = []
    codings = []
    destination = origin = ""
    for name, value in fields:
        if len(name) == 4 and name.lower() == b"host":
            hosts += (_text(value),)
        elif len(name) == 10 and name.lower() == b"user-agent":
            agents.append(value.decode("utf-8", "surrogateescape"))
        elif len(name) == 17 and name.lower() == b"transfer-encoding":
            codings.append(value.decode("latin-1").strip(" \t"))
        elif len(name) == 14 and name.lower() == b"sec-fetch-dest":
            destination = _combined(destination, value)
        elif len(name) == 6 and name.lower() == b"origin":
            origin = _combined(origin, value)
    return hosts, tuple(agents), ", ".join(codings), destination, origin


def _combined(before: str, value: bytes) -> str:
    """A field's value, behind that of the same field before it (RFC 9110 section 5.3)."""
    text = value.decode("latin-1").strip(" \t")
    return f"{before}, {text}" if before else text


def _text(value: bytes) -> str:
    """Decode the bytes of a name. Bytes that are not ASCII are escaped, so that they fail as a host name."""
    return value.decode("ascii", "backslashreplace")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
