"""The configurations of Envoy and Squid for a plan, as `robots-guard serve --print-config` prints
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from robots_guard.errors import SettingsError
from robots_guard.serve.plan import Plan


def _envoy(plan: Plan) -> str:
    from robots_guard.serve.envoy_configuration import envoy_configuration

    return envoy_configuration(
        plan.settings,
        listen=str(plan.data_plane),
        service=_address(plan, "envoy", "envoy"),
        workers=plan.workers,
        sds=str(plan.listen["sds"]) if "sds" in plan.listen else None,
        trusted=plan.trusted,
    )


#: How the configuration of each program is made.
CONFIGURATIONS: Mapping[str, Callable[[Plan], str]] = {"envoy": _envoy}


def configuration_of(program: str, plan: Plan) -> str:
    """Return the configuration of Envoy or Squid for a decision service. Raises SettingsError."""
    return CONFIGURATIONS[program](plan)


def _address(plan: Plan, program: str, protocol: str) -> str:
    """The address at which the program asks. Raises SettingsError if there is none."""
    if protocol not in plan.listen:
        raise SettingsError(
            f"--{protocol} is not set: {program} must know where to ask, such as"
            f" --{protocol} unix:/run/robots_guard/{protocol}.sock"
        )
    return str(plan.listen[protocol])
