"""The plan of a decision service: what `robots-guard serve` is to do, checked before it starts."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from robots_guard.configuration.settings import ProxySettings
from robots_guard.errors import SettingsError
from robots_guard.gateway.authorities import validate_pem
from robots_guard.gateway.listeners import Address, address_of
from robots_guard.invocation import BARE, Invocation

_DEBIAN_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
DECISIONS = ("envoy", "icap")  # the protocols by which a data plane asks for decisions
PROTOCOLS = (*DECISIONS, "sds")
#: The protocols at which each worker has an address of its own, because the data plane knows which
#: worker has permitted a request, and spreads its questions itself.
SPREAD = ("envoy",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The configuration of a decision service.

    `listen` has the address of each protocol that is served. `data_plane` is where Envoy or Squid
    listens for crawlers. `metrics` is a port of 127.0.0.1, of the first worker. `drain` is the time
    in seconds for responses at the shutdown. `invocation` says what printed commands must name.
    """

    settings: ProxySettings
    listen: Mapping[str, Address]
    data_plane: Address
    confdir: Path | None = None
    upstream_ca: Path | None = None
    workers: int = 1
    metrics: int | None = None
    drain: float = 10.0
    invocation: Invocation = BARE

    @property
    def authority_folder(self) -> Path:
        """The folder of the CA, by default the proxy's, as an absolute path: Envoy and Squid
        run in other directories. Raises SettingsError."""
        try:
            folder = self.confdir or platformdirs.user_config_path("robots_guard") / "mitmproxy"
        except RuntimeError:  # of platformdirs since 4.3
            raise SettingsError(
                "there is no home directory for the CA: name a folder with --confdir, or set HOME"
            ) from None
        return folder.absolute()

    @property
    def trusted(self) -> str:
        """The file of the authorities by which Envoy or Squid verifies sites."""
        if self.upstream_ca is not None:
            return str(self.upstream_ca.absolute())
        return ssl.get_default_verify_paths().cafile or _DEBIAN_AUTHORITIES

    def addresses_of(self, protocol: str) -> tuple[Address, ...]:
        """The addresses at which a protocol is served: one for each worker, or one for all."""
        address = self.listen[protocol]
        if protocol not in SPREAD:
            return (address,)
        return tuple(map(address.of_worker, range(self.workers)))

    @property
    def own_addresses(self) -> list[tuple[str, int]]:
        """The hosts and ports to which no request may lead."""
        served = itertools.chain.from_iterable(map(self.addresses_of, self.listen))
        places = (self.data_plane, *served)
        return [(each.host, each.port) for each in places if each.port]


def addresses(given: Mapping[str, str], *, allow_remote: bool) -> dict[str, Address]:
    """Return the address of each protocol for which one is set. Raises SettingsError."""
    return {
        name: address_of(given[name], f"--{name}", allow_remote=allow_remote)
        for name in PROTOCOLS
        if given.get(name)
    }


def check(plan: Plan) -> None:
    """Check a plan before anything is opened. Raises SettingsError."""
    if not any(name in plan.listen for name in DECISIONS):
        raise SettingsError(
            "there is nothing to serve: set --envoy for Envoy, or --icap for Squid, such as"
            " --envoy unix:/run/robots_guard/envoy.sock or --icap 127.0.0.1:1344"
        )
    if plan.workers > 1 and plan.settings.store.startswith("memory:"):
        raise SettingsError(
            "--workers need a store that processes share: use sqlite:///PATH or redis://HOST"
        )
    if plan.upstream_ca is not None:
        validate_pem(plan.upstream_ca)
