"""`robots-guard overrides`: checks and lists the operator's overrides, read as the guard reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from robots_guard.audit.record import moment
from robots_guard.cli.group import CommandGroup
from robots_guard.cli.options import chosen, overrides_option
from robots_guard.cli.table import TableColumn
from robots_guard.cli.terminal import Rows, safe, write_encoded
from robots_guard.core.overrides import Override, Overrides, State, expiry
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.overrides import read
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.settings import CLOCKS

HAS_FAULTS = 1  # exit status
COLUMNS = (
    TableColumn("state"),
    TableColumn("id"),
    TableColumn("site"),
    TableColumn("changes", fit="wrap", line=2),
    TableColumn("expires"),
    TableColumn("owner", fit="wrap", line=2),
    TableColumn("reason", fit="wrap", line=2),
)


@click.group(cls=CommandGroup, no_args_is_help=False)
def overrides() -> None:
    """Check and list the operator's overrides for single sites."""


@overrides.command()
@click.argument("file", required=False)
@overrides_option
def check(file: str | None, overrides: str | None) -> int:
    """Report the overrides in a file that have no effect.

    Exit status: 0 all overrides are in force, 1 at least one is invalid or has expired, 2 the file cannot be read.
    """
    found, now = _read(file, overrides), CLOCKS.now()
    for which, why in found.faults:
        click.echo(f"{safe(which)}: {safe(why)}")
    expired = [each for each in found.entries if each.state(now) is State.EXPIRED]
    for each in expired:
        click.echo(
            f"{safe(each.exemption.id)}: expired after {expiry(each.exemption.expires)}: extend or remove it"
        )
    in_force = len(found.entries) - len(expired)
    click.echo(
        f"{in_force} in force, {len(expired)} expired, {len(found.faults)} invalid", err=True
    )
    if expired or found.faults:
        return HAS_FAULTS
    return 0


@overrides.command(name="list")
@click.argument("file", required=False)
@overrides_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per override.")
def list_(file: str | None, overrides: str | None, as_json: bool) -> None:
    """List the overrides in a file: site, changes, owner, reason and expiry."""
    found, now = _read(file, overrides), CLOCKS.now()
    rows = Rows(*COLUMNS)
    for each in found.entries:
        data = _as_data(each, now)
        if as_json:
            write_encoded(msgspec.json.encode(data))
        else:
            changes = ", ".join(f"{name}={value}" for name, value in data["changes"].items())
            expires = expiry(each.exemption.expires)
            shown = data | {"changes": changes, "until": expires}
            rows.add([str(value) for value in shown.values()])
    for which, why in found.faults:
        if as_json:
            write_encoded(msgspec.json.encode({"state": "invalid", "id": which, "reason": why}))
        else:
            rows.add(["invalid", which, "", "", "", "", why])
    rows.end()


def _read(file: str | None, option: str | None) -> Overrides:
    path = file or chosen("overrides", option)
    if not path:
        raise SettingsError("no overrides file is given: name it as FILE, or with --overrides")
    return read(
        Path(path).expanduser(), Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
    )


def _as_data(each: Override, now: float) -> dict[str, Any]:
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
