"""Envoy's questions: ext_authz over HTTP, and the reports of its Lua filter on responses.

Before Envoy forwards a request, its filter ext_authz sends the head of the request to

    /check/SCHEME + the request's own target

with the client's method, Host, User-Agent and Accept (for placeholders, also Sec-Fetch-Dest and
Origin), and two fields that only Envoy sets: `robots-guard-client`, the address of the client, and
`robots-guard-scheme`, the scheme that the client has named. SCHEME is the scheme of the listener
that has received the request. A 200 permits the request. Its fields, which neither the client nor
the site sees, name the decision, the address to connect to, and whether the response must be
reported. Anything else is the response to the client.

When a response begins, Envoy's Lua filter sends `POST /respond` if the decision requires it, if the
site asks to wait, or if the response has fields in which sites state signals. A 204 lets the
response pass, and a 200 replaces it.

ext_authz takes every status from 500 for a failure of this service and drops its fields. It takes 200
for permission, and a placeholder may be a 200. So such statuses are sent as others (`CARRIERS`),
which the configuration of Envoy translates back (`templates/envoy_http.yaml.j2`).

Invariant: deny first. A 200 to a check is sent for an `Admitted` only.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from robots_guard.decisions.addresses import Address
from robots_guard.decisions.response import ResponseHead
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.listeners import ConnectionServer
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.gateway.wire import Wire
from robots_guard.origin import Origin, parse_authority
from robots_guard.protocol.signals.headers import FIELDS
from robots_guard.serve.http_listener import (
    DataPlaneRequest,
    Fields,
    HttpReply,
    PendingReply,
    Reply,
    listen_http,
)
from robots_guard.serve.service import ANSWERS, Admitted, Answer, DecisionService, PendingAnswer

if TYPE_CHECKING:
    from robots_guard.serve.service import Running

#: The statuses that ext_authz would misread, and those that are sent instead. IANA has assigned
#: none of the latter, so that no site answers with them.
CARRIERS: Final = {200: 460, 204: 464, 500: 470, 502: 472, 503: 473, 504: 474}

CHECKS: Final = {"/check/http": "http", "/check/https": "https"}
RESPOND: Final = "/respond"
_ID = b"robots-guard-id"
_CLIENT = b"robots-guard-client"
_SCHEME = b"robots-guard-scheme"
_CONNECT = b"robots-guard-connect"
_SNI = b"robots-guard-sni"
_UNSET = "-"  # what Envoy writes for a missing value
_STATUS = b"robots-guard-status"
_METHOD = b"robots-guard-method"

_REPORTED = frozenset(name.encode() for name in (*FIELDS, "retry-after", "content-type"))
_FORBIDDEN = 403
_CLIENT_ERRORS = range(400, 500)
_PREFIXES = tuple((f"{prefix}/".encode(), scheme) for prefix, scheme in CHECKS.items())
_RESPOND = RESPOND.encode()

#: A permission: the id, the number of the process, the address to connect to, and the method.
_PERMISSION = (
    b"HTTP/1.1 200 OK\r\nrobots-guard-id: %b\r\nrobots-guard-worker: %b\r\n"
    b"robots-guard-address: %b\r\nrobots-guard-method: %b\r\ncontent-length: 0\r\n\r\n"
)
_REPORTED_PERMISSION = _PERMISSION.replace(
    b"content-length", b"robots-guard-respond: required\r\ncontent-length"
)
_UNKNOWN = HttpReply(404)
_PASSES = HttpReply(204)


class ExtAuthz:
    """Answers the questions of Envoy by a decision service.

    `worker` is the number of this process among those that share a store: Envoy reports a response
    to the process that has admitted the request.
    """

    def __init__(self, service: DecisionService, worker: int = 0) -> None:
        self._service = service
        self._worker = str(worker).encode()

    def answer(self, request: DataPlaneRequest) -> Reply | PendingReply:
        """Answer a request of Envoy; or return a function that waits for the answer."""
        for prefix, scheme in _PREFIXES:
            if request.target.startswith(prefix):
                return self._check(request, request.target[len(prefix) - 1 :], scheme)
        if request.target == _RESPOND and request.method == b"POST":
            return partial(self._respond, request.fields)
        return _UNKNOWN

    # -- a request ----------------------------------------------------------------------------------------

    def _check(self, request: DataPlaneRequest, target: bytes, scheme: str) -> Reply | PendingReply:
        asked = asked_by(request, scheme)
        wire = asked.wire.with_target(target.decode("latin-1"))
        answer = self._service.begin(
            wire, accept=asked.accept, in_tunnel=asked.in_tunnel, needs_address=True
        )
        if isinstance(answer, ANSWERS):
            return self._reply_to(wire, answer)
        return partial(self._check_later, wire, answer)

    async def _check_later(self, wire: Wire, wait: PendingAnswer) -> Reply:
        return self._reply_to(wire, await wait())

    def _reply_to(self, wire: Wire, answer: Answer) -> Reply:
        """The reply that tells Envoy the answer of the service."""
        if isinstance(answer, ProxyReply):
            return carried(answer)
        return self._permission(answer, wire)

    def _permission(self, admitted: Admitted, wire: Wire) -> bytes:
        """The 200. Its values are this process's own, or a method that has been judged."""
        assert admitted.address is not None  # it was asked for
        form = _REPORTED_PERMISSION if admitted.needs_response else _PERMISSION
        address = _socket_address(admitted.address, wire.port)
        return form % (admitted.id.encode(), self._worker, address, wire.method.encode())

    # -- its response -------------------------------------------------------------------------------------

    async def _respond(self, fields: Fields) -> HttpReply:
        values = dict(fields)
        status = int(values[_STATUS])
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in fields
            if name in _REPORTED
        ]
        head = ResponseHead(
            status=status, headers=headers, method=values[_METHOD].decode("latin-1")
        )
        retry_after = values.get(b"retry-after", b"").decode("latin-1")
        decision_id = values[_ID].decode("latin-1")
        reply = await self._service.respond(decision_id, head, retry_after)
        if reply is None:
            return _PASSES
        status_field = (_STATUS.decode(), str(reply.status))
        return HttpReply(200, (*reply.headers, status_field), reply.body)


class Asked(NamedTuple):
    """A question of Envoy without its target: `wire` has none."""

    wire: Wire
    accept: str
    in_tunnel: bool


def asked_by(request: DataPlaneRequest, scheme: str) -> Asked:
    """Describe the request that Envoy will send: Host names the origin, and the target is sent as
    it is."""
    read = _asked if request.is_cached else _asked.__wrapped__
    return read(request.method, request.fields, scheme)


@lru_cache(maxsize=4096)
def _asked(method: bytes, fields: Fields, scheme: str) -> Asked:
    """Describe what a method and the fields say. Cached, because a crawler sends a site the same
    ones.

    Envoy has replaced Host by the authority of an absolute-form target, and has joined several Host
    fields, so that they are no authority any longer. A client that names another scheme than that
    of the listener gets no verdict on either. Inside a tunnel, the authority of the CONNECT is
    where Envoy connects; Host and the name in the ClientHello must agree with it.
    """
    values = dict(fields)
    hosts = _texts(fields, b"host")
    tunnel = _one(values, _CONNECT)
    origin = _origin(scheme, hosts if tunnel is None else (tunnel,))
    wire = Wire(
        method=method.decode("latin-1"),
        scheme=_scheme_of(values, scheme),
        host=origin.host if origin else "",
        port=origin.port if origin else 0,
        target="",
        version="HTTP/1.1",
        hosts=hosts,
        authority="",
        sni=_one(values, _SNI),
        addressed=False,
        user_agents=_user_agents(fields),
        coding="",
        clean=True,
        client=_text(values.get(_CLIENT, b"")),
        fetch_destination=_text(values.get(b"sec-fetch-dest", b"")),
        fetch_origin=_text(values.get(b"origin", b"")),
    )
    accept = _text(values.get(b"accept", b""))
    return Asked(wire, accept, in_tunnel=tunnel is not None)


def _scheme_of(fields: Mapping[bytes, bytes], scheme: str) -> str:
    """The scheme of a listener, or a text that is no scheme if the client names another one."""
    named = _text(fields.get(_SCHEME, b""))
    if named in ("", scheme):
        return scheme
    return f"{named} at a listener for {scheme}"


def _origin(scheme: str, hosts: tuple[str, ...]) -> Origin | None:
    """The origin that a Host field names; None if it cannot be read."""
    if len(hosts) != 1:
        return None
    try:
        return parse_authority(scheme, hosts[0])
    except (MalformedURL, NotGoverned):
        return None


def _one(fields: Mapping[bytes, bytes], wanted: bytes) -> str | None:
    """The value of a field that only Envoy sets, or None."""
    value = _text(fields.get(wanted, b""))
    if value in ("", _UNSET):
        return None
    return value


def _texts(fields: Fields, wanted: bytes) -> tuple[str, ...]:
    return tuple([_text(value) for name, value in fields if name == wanted])


def _user_agents(fields: Fields) -> tuple[str, ...]:
    named = [value for name, value in fields if name == b"user-agent"]
    return tuple([value.decode("utf-8", "surrogateescape") for value in named])


def _text(value: bytes) -> str:
    """Decode the bytes of a name. Bytes that are not ASCII are escaped: such a text is no valid name."""
    return value.decode("ascii", "backslashreplace")


@lru_cache(maxsize=8192)
def _socket_address(address: Address, port: int) -> bytes:
    """An address in the notation of Envoy's dynamic metadata."""
    if address.version == 6:
        return f"[{address}]:{port}".encode()
    return f"{address}:{port}".encode()


def carried(reply: ProxyReply) -> HttpReply:
    """Return the response by which ext_authz hands a reply to the client."""
    status = CARRIERS.get(reply.status, reply.status)
    if status not in _CLIENT_ERRORS:
        status = _FORBIDDEN
    return HttpReply(status, reply.headers, reply.body)


async def serve_ext_authz(
    service: DecisionService, listener: socket.socket, *, worker: int = 0
) -> ConnectionServer:
    """Serve Envoy's questions on a listening socket."""
    return await listen_http(listener, ExtAuthz(service, worker).answer)


async def start(running: Running) -> ConnectionServer:
    """Serve Envoy's questions as one of the protocols of the decision service."""
    return await serve_ext_authz(running.service, running.listener, worker=running.number)
