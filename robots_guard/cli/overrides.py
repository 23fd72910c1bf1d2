"""`robots-guard overrides`: checks and lists the operator's overrides, read as the guard reads them, and
pins robots.txt files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import click
import msgspec

from robots_guard.audit.record import moment
from robots_guard.cli.group import CommandGroup
from robots_guard.cli.options import chosen, overrides_option
from robots_guard.cli.terminal import Rows, TableColumn, safe, write_encoded
from robots_guard.core.override_text import Pin, text_with_pin, text_without_pin
from robots_guard.core.overrides import Override, Overrides, State, expiry, parse
from robots_guard.core.verdict import Terms
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.guard.overrides import look_at_overrides, read_without_pinned
from robots_guard.guard.pinned_files import pinned_path, read_pinned
from robots_guard.lint.finding import Severity
from robots_guard.lint.linter import lint
from robots_guard.origin import Origin, origin_of
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.settings import CLOCKS

HAS_FAULTS = 1  # exit status
_BASE = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
COLUMNS = (
    "state",
    "id",
    "site",
    TableColumn("changes", folds=True),
    "expires",
    TableColumn("owner", folds=True),
    TableColumn("reason", folds=True),
)


@click.group(cls=CommandGroup, no_args_is_help=False)
def overrides() -> None:
    """Check and list the operator's overrides for single sites, and pin robots.txt files."""


@overrides.command()
@click.argument("file", required=False)
@overrides_option
def check(file: str | None, overrides: str | None) -> int:
    """Report the overrides in a file that have no effect, and the problems of pinned robots.txt files.

    Exit status: 0 all overrides are in force, 1 at least one is invalid or has expired, or a pinned file cannot be
    used or has errors, 2 the file cannot be read.
    """
    found, now = _read(file, overrides), CLOCKS.now()
    has_errors = False
    for each in found.entries:
        problems = _problems_of(each)
        for severity, text in problems:
            click.echo(f"{safe(each.exemption.id)}: {safe(text)}")
            has_errors = has_errors or severity is Severity.ERROR
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
    if expired or found.faults or has_errors:
        return HAS_FAULTS
    return 0


def _problems_of(override: Override) -> list[tuple[Severity, str]]:
    """The errors and warnings of a pinned robots.txt, as its dialect reads it."""
    document = override.terms.pinned
    if document is None:
        return []
    found = lint(document.body, (override.terms.dialect,))
    return [
        (
            each.severity,
            f"{document.url}:{each.line or 1}: {each.severity} {each.code}: {each.message}",
        )
        for each in found
        if each.severity is not Severity.NOTE
    ]


@overrides.command()
@click.argument("origin")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--owner", required=True, help="Who is responsible for the pin.")
@click.option("--reason", required=True, help="Why it is needed.")
@click.option(
    "--until", required=True, metavar="DAY", help="The last day on which it applies: 2027-03-31."
)
@click.option("--id", "identity", default="", help="The override's name in records.")
@overrides_option
def pin(
    origin: str,
    file: Path,
    *,
    owner: str,
    reason: str,
    until: str,
    identity: str,
    overrides: str | None,
) -> None:
    """Judge the requests to an origin by a robots.txt of yours, instead of the site's own.

    It is added to the overrides file, which is created if necessary. Integrations that run apply it within a second.
    """
    path = _changed_path(overrides)
    wanted = Pin(_origin(origin), _name_within(path, file), owner, reason, until, identity)
    before = _text_of(path)
    text = text_with_pin(before, wanted, _BASE)
    added = parse(text, _BASE).by_place[wanted.origin]
    if added.state(CLOCKS.now()) is State.EXPIRED:
        raise SettingsError(f"--until {until!r} is in the past: name a later day")
    document = read_pinned(pinned_path(added, path), added.terms.dialect, CLOCKS.now()).document
    _write(path, text, before)
    for _, problem in _problems_of(added.with_pinned(document)):
        click.echo(f"robots-guard: {safe(problem)}", err=True)
    click.echo(
        f"{safe(str(wanted.origin))} is judged by {safe(document.url)} until"
        f" {expiry(added.exemption.expires)} (override {safe(added.exemption.id)} in {safe(str(path))})"
    )


@overrides.command()
@click.argument("origin")
@overrides_option
def unpin(origin: str, overrides: str | None) -> None:
    """Remove the pin of an origin from the overrides file, so that the site's own robots.txt applies again."""
    path, place = _changed_path(overrides), _origin(origin)
    before = _text_of(path)
    text, removed = text_without_pin(before, place, _BASE)
    _write(path, text, before)
    click.echo(
        f"{safe(str(place))} is judged by its own robots.txt (override {safe(removed.exemption.id)}"
        f" removed from {safe(str(path))})"
    )


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
            shown.pop("sha256", None)
            rows.add([str(value) for value in shown.values()])
    for which, why in found.faults:
        if as_json:
            write_encoded(msgspec.json.encode({"state": "invalid", "id": which, "reason": why}))
        else:
            rows.add(["invalid", which, "", "", "", "", why])
    rows.end()


def _read(file: str | None, option: str | None) -> Overrides:
    return look_at_overrides(_path_of(file, option), _BASE, CLOCKS.now())


def _path_of(file: str | None, option: str | None) -> Path:
    path = file or chosen("overrides", option)
    if not path:
        raise SettingsError("no overrides file is given: name it as FILE, or with --overrides")
    return Path(path).expanduser()


def _changed_path(option: str | None) -> Path:
    path = chosen("overrides", option)
    if not path:
        raise SettingsError("no overrides file is given: name it with --overrides")
    return Path(path).expanduser()


def _origin(text: str) -> Origin:
    try:
        return origin_of(text.removesuffix("/"))
    except (MalformedURL, NotGoverned) as error:
        raise SettingsError(f"{error}: write an origin as https://host") from None


def _name_within(overrides: Path, file: Path) -> str:
    """The path of a file as the overrides file names it: relative, if it is in the same directory or
    below it."""
    file, directory = file.absolute(), overrides.absolute().parent
    if file.is_relative_to(directory):
        return str(file.relative_to(directory))
    return str(file)


def _text_of(path: Path) -> str:
    """The text of the overrides file; empty if there is none yet."""
    if not path.exists():
        return ""
    return read_without_pinned(path, _BASE).text


def _write(path: Path, text: str, before: str) -> None:
    """Replace the overrides file atomically, so that no guard reads half of it. Raises SettingsError."""
    target = path.resolve()
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        new.write_text(text, encoding="utf-8", newline="")
        new.chmod(mode)
        if _text_of(target) != before:
            raise SettingsError(f"{str(path)!r} was changed meanwhile: try again")
        new.replace(target)
    except OSError as error:
        raise SettingsError(
            f"{str(path)!r} cannot be written ({error.strerror}): check its directory's permissions"
        ) from None
    finally:
        new.unlink(missing_ok=True)


def _pinned_data(each: Override) -> dict[str, Any]:
    """The digest of a pinned robots.txt, as in records."""
    if each.terms.pinned is None:
        return {}
    return {"sha256": each.terms.pinned.sha256}


def _as_data(each: Override, now: float) -> dict[str, Any]:
    exemption = each.exemption
    return {
        "state": each.state(now),
        "id": exemption.id,
        "place": each.where,
        "changes": dict(each.changes),
        **_pinned_data(each),
        "until": moment(exemption.expires),
        "owner": exemption.owner,
        "reason": exemption.reason,
    }
