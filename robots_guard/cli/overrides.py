"""`robots-guard overrides`: the exceptions made for single sites, as a guard would read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from robots_guard.audit.record import moment
from robots_guard.cli import Group
from robots_guard.cli.options import insist_on_known_variables, overrides_option
from robots_guard.cli.terminal import Rows, safe, write_encoded
from robots_guard.core.overrides import Override, Overrides, State
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.overriding import read
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.settings import CLOCKS

FAULTY = 1  # exit status


@click.group(cls=Group, no_args_is_help=False)
def overrides() -> None:
    """Check and list the exceptions made for single sites."""


@overrides.command()
@click.argument("file", required=False)
@overrides_option
def check(file: str | None, overrides: str | None) -> int:
    """Say what in a file of overrides has no effect.

    Exit status 0: all of it is in force; 1: something is invalid or has expired; 2: the file cannot be read.
    """
    found, now = _read(file, overrides), CLOCKS.now()
    for which, why in found.faults:
        click.echo(f"{safe(which)}: {safe(why)}")
    expired = [each for each in found.entries if each.state(now) is State.EXPIRED]
    for each in expired:
        click.echo(
            f"{safe(each.exemption.id)}: has expired ({moment(each.exemption.expires)}): renew it or take it out"
        )
    in_force = len(found.entries) - len(expired)
    click.echo(f"{in_force} in force, {len(expired)} expired, {len(found.faults)} invalid", err=True)
    return FAULTY if expired or found.faults else 0


@overrides.command(name="list")
@click.argument("file", required=False)
@overrides_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object an override.")
def list_(file: str | None, overrides: str | None, as_json: bool) -> None:
    """List the overrides of a file: where, what, who, why and until when."""
    found, now = _read(file, overrides), CLOCKS.now()
    rows = Rows("state", "id", "place", "changes", "until", "owner", "reason")
    for each in found.entries:
        shown = _shown(each, now)
        if as_json:
            write_encoded(msgspec.json.encode(shown))
        else:
            changes = ", ".join(f"{name}={value}" for name, value in shown.pop("changes").items())
            rows.add([*(str(shown[name]) for name in ("state", "id", "place")), changes, *_rest(shown)])
    for which, why in found.faults:
        if as_json:
            write_encoded(msgspec.json.encode({"state": "invalid", "id": which, "reason": why}))
        else:
            rows.add(["invalid", which, "", "", "", "", why])
    rows.end()


def _rest(shown: dict[str, Any]) -> list[str]:
    return [str(shown[name]) for name in ("until", "owner", "reason")]


def _read(file: str | None, option: str | None) -> Overrides:
    insist_on_known_variables()
    named = file or option
    if not named:
        raise SettingsError("overrides is not set: name the file")
    return read(Path(named).expanduser(), Terms(dialect=dialect("rfc9309"), matching=matching("standard")))


def _shown(each: Override, now: float) -> dict[str, Any]:
    exemption = each.exemption
    return {
        "state": each.state(now),
        "id": exemption.id,
        "place": each.where,
        "changes": dict(each.changes),
        "until": moment(exemption.expires),
        "owner": exemption.owner,
        "reason": exemption.reason,
    }
