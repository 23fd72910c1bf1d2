"""Envoy's questions: ext_authz over HTTP, and the hook for responses.

Before Envoy forwards a request, its filter ext_authz sends the head of the request to

    /check/SCHEME + the request's own target

with the client's method, Host, User-Agent and Accept, and two fields that only Envoy sets:
`robots-guard-client`, the address of the client, and `robots-guard-scheme`, the scheme that the
client has named. SCHEME is the scheme of the listener that has received the request. A 200 permits
the request. Its fields, which neither the client nor the site sees, name the decision, the address
to connect to, and whether the response must be reported. Anything else is the response to the
client.

When a response begins, Envoy's Lua filter sends `POST /respond` if the decision requires it, if the
site asks to wait, or if the response has fields in which sites state signals. A 204 lets the
response pass, and a 200 replaces it.

ext_authz takes every status from 500 for a failure of this service and drops its fields, and it
takes 200 for permission. So such statuses travel as others (`CARRIERS`), which the configuration of
Envoy translates back (`templates/envoy.yaml.j2`).

Invariant: deny first. A 200 to a check is sent for an `Admitted` only.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from robots_guard.core.addresses import Address, networks
from robots_guard.core.response import ResponseHead
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.refusal import ProxyReply, not_ready
from robots_guard.gateway.wire import Wire
from robots_guard.origin import Origin, parse_authority
from robots_guard.rep.signals.headers import FIELDS
from robots_guard.serve.address_book import AddressBook
from robots_guard.serve.http_listener import (
    Fields,
    HttpListener,
    HttpReply,
    HttpRequest,
    listen_http,
)
from robots_guard.serve.service import DecisionService
from robots_guard.settings import CLOCKS

if TYPE_CHECKING:
    from robots_guard.serve.protocols import Running

#: The statuses that ext_authz would misread, and those by which they travel. No server uses the
#: latter (they are not assigned by IANA).
CARRIERS: Final = {200: 460, 204: 464, 500: 470, 502: 472, 503: 473, 504: 474}

CHECKS: Final = {"/check/http": "http", "/check/https": "https"}
RESPOND: Final = "/respond"
_ID = "robots-guard-id"
_WORKER = "robots-guard-worker"
_ADDRESS = "robots-guard-address"
_RESPOND = "robots-guard-respond"
_CLIENT = b"robots-guard-client"
_SCHEME = b"robots-guard-scheme"
_CONNECT = b"robots-guard-connect"
_SNI = b"robots-guard-sni"
_UNSET = "-"  # what Envoy writes for a value that there is not
_STATUS = b"robots-guard-status"
_METHOD = "robots-guard-method"

_REPORTED = frozenset(name.encode() for name in (*FIELDS, "retry-after", "content-type"))
_FORBIDDEN = 403
_CLIENT_ERRORS = range(400, 500)
_PREFIXES = tuple((prefix.encode(), scheme) for prefix, scheme in CHECKS.items())

_UNKNOWN = HttpReply(404)
_PASSES = HttpReply(204)


class ExtAuthz:
    """Answers the questions of Envoy by a decision service.

    `worker` is the number of this process among those that share a store: Envoy reports a response
    to the process that has admitted the request.
    """

    def __init__(self, service: DecisionService, worker: int = 0) -> None:
        self._service = service
        self._worker = str(worker)
        self._addresses = AddressBook(networks(service.settings.allow_private), CLOCKS.monotonic)

    async def answer(self, request: HttpRequest) -> HttpReply:
        """Answer a request of Envoy."""
        if request.target == RESPOND.encode() and request.method == b"POST":
            return await self._respond(request.fields)
        for prefix, scheme in _PREFIXES:
            if request.target.startswith(prefix + b"/"):
                return await self._check(request, request.target[len(prefix) :], scheme)
        return _UNKNOWN

    # -- a request ----------------------------------------------------------------------------------------

    async def _check(self, request: HttpRequest, target: bytes, scheme: str) -> HttpReply:
        wire = wire_of(request, target, scheme)
        accept = _joined(request.fields, b"accept")
        address = await self._address_of(wire)
        is_in_tunnel = _one(request.fields, _CONNECT) is not None
        admitted = await self._service.admit(wire, accept=accept, in_tunnel=is_in_tunnel)
        if isinstance(admitted, ProxyReply):
            return carried(admitted)
        if address is None:
            self._service.release(admitted.id)
            return carried(not_ready(_NO_ADDRESS, method=wire.method))
        fields = [(_ID, admitted.id), (_WORKER, self._worker), (_ADDRESS, address)]
        fields.append((_METHOD, wire.method))
        if admitted.needs_response:
            fields.append((_RESPOND, "required"))
        return HttpReply(200, tuple(fields))

    async def _address_of(self, wire: Wire) -> str | None:
        """The address and port to connect to, or None."""
        if not wire.host:
            return None
        address = await self._addresses.address_of(wire.host)
        if address is None:
            return None
        return _socket_address(address, wire.port)

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
            status=status, headers=headers, method=values[_METHOD.encode()].decode("latin-1")
        )
        retry_after = values.get(b"retry-after", b"").decode("latin-1")
        decision_id = values[_ID.encode()].decode("latin-1")
        reply = await self._service.respond(decision_id, head, retry_after)
        if reply is None:
            return _PASSES
        status_field = (_STATUS.decode(), str(reply.status))
        return HttpReply(200, (*reply.headers, status_field), reply.body)


_NO_ADDRESS = "The host has no address that may be reached."


def wire_of(request: HttpRequest, target: bytes, scheme: str) -> Wire:
    """Describe the request that Envoy will send: Host names the origin, and the target is sent as
    it is.

    Envoy has replaced Host by the authority of an absolute-form target, and has joined several Host
    fields, so that they are no authority any longer. A client that names another scheme than that
    of the listener gets no verdict on either. Inside a tunnel, the authority of the CONNECT is
    where Envoy connects; Host and the name in the ClientHello must agree with it.
    """
    hosts = tuple(_values(request.fields, b"host"))
    named = _joined(request.fields, _SCHEME)
    tunnel = _one(request.fields, _CONNECT)
    origin = _origin(scheme, hosts if tunnel is None else (tunnel,))
    return Wire(
        method=request.method.decode("latin-1"),
        scheme=scheme if named in ("", scheme) else f"{named} at a listener for {scheme}",
        host=origin.host if origin else "",
        port=origin.port if origin else 0,
        target=target.decode("latin-1"),
        version="HTTP/1.1",
        hosts=hosts,
        authority="",
        sni=_one(request.fields, _SNI),
        addressed=False,
        user_agents=tuple(
            value.decode("utf-8", "surrogateescape")
            for name, value in request.fields
            if name == b"user-agent"
        ),
        coding="",
        clean=True,
        client=_joined(request.fields, _CLIENT),
    )


def _origin(scheme: str, hosts: tuple[str, ...]) -> Origin | None:
    if len(hosts) != 1:
        return None
    try:
        return parse_authority(scheme, hosts[0])
    except (MalformedURL, NotGoverned):
        return None


def _one(fields: Fields, wanted: bytes) -> str | None:
    """The value of a field that only Envoy sets, or None."""
    value = _joined(fields, wanted)
    if value in ("", _UNSET):
        return None
    return value


def _values(fields: Fields, wanted: bytes) -> Iterable[str]:
    """The values of a field. Bytes that are not ASCII are escaped, so that they fail as a name."""
    return (value.decode("ascii", "backslashreplace") for name, value in fields if name == wanted)


def _joined(fields: Fields, wanted: bytes) -> str:
    return ", ".join(_values(fields, wanted))


def _socket_address(address: Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def carried(reply: ProxyReply) -> HttpReply:
    """Return the response by which ext_authz hands a reply to the client."""
    status = CARRIERS.get(reply.status, reply.status)
    if status not in _CLIENT_ERRORS:
        status = _FORBIDDEN
    return HttpReply(status, reply.headers, reply.body)


async def serve_ext_authz(
    service: DecisionService, listen: str | socket.socket, *, worker: int = 0
) -> HttpListener:
    """Serve Envoy's questions at an address, `unix:PATH` or `HOST:PORT`, or on a socket. Raises
    OSError."""
    return await listen_http(listen, ExtAuthz(service, worker).answer)


async def start(running: Running) -> HttpListener:
    """Serve Envoy's questions as one of the protocols of the decision service."""
    return await serve_ext_authz(running.service, running.listener, worker=running.number)
