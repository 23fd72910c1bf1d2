"""`robots-guard overrides`: checks the operator's overrides, read as the guard reads them, adds and
removes them."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import click
import msgspec

from robots_guard.app.cli.group import CommandGroup
from robots_guard.app.cli.options import chosen, overrides_option
from robots_guard.app.cli.terminal import Rows, TableColumn, safe, write_encoded
from robots_guard.audit.record import moment
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.override_text import NewOverride, text_with, text_without
from robots_guard.decisions.overrides import (
    ROBOTS_FILE,
    Override,
    Overrides,
    State,
    expiry,
    parse,
    suffix_place,
)
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.guard.overrides import (
    MAX_BYTES,
    look_at_overrides,
    pinned_path,
    read_pinned,
    read_without_pinned,
)
from robots_guard.origin import Origin, origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.lint.finding import Severity
from robots_guard.protocol.lint.linter import lint
from robots_guard.protocol.paths import matching

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
    """Check, add and remove the operator's overrides for single sites."""


@overrides.command()
@click.argument("file", required=False)
@overrides_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per override.")
def check(file: str | None, overrides: str | None, *, as_json: bool) -> int:
    """List the overrides in a file: site, changes, owner, reason and expiry. Report those that have no effect, and
    the problems of pinned robots.txt files.

    Exit status: 0 all overrides are in force, 1 at least one is invalid or has expired, or a pinned file cannot be
    used or has errors, 2 the file cannot be read.
    """
    found, now = look_at_overrides(_path_of(file, overrides), _BASE, CLOCKS.now()), CLOCKS.now()
    _print(found, now, as_json=as_json)
    expired = [each for each in found.entries if each.state(now) is State.EXPIRED]
    has_errors = False
    for each in found.entries:
        for severity, text in _problems_of(each):
            click.echo(f"{safe(each.exemption.id)}: {safe(text)}", err=True)
            has_errors = has_errors or severity is Severity.ERROR
    for which, why in found.faults:
        click.echo(f"{safe(which)}: {safe(why)}", err=True)
    for each in expired:
        ended = expiry(each.exemption.expires)
        click.echo(
            f"{safe(each.exemption.id)}: expired after {ended}: extend or remove it", err=True
        )
    in_force = len(found.entries) - len(expired)
    click.echo(
        f"{in_force} in force, {len(expired)} expired, {len(found.faults)} invalid", err=True
    )
    if expired or found.faults or has_errors:
        return HAS_FAULTS
    return 0


def _print(found: Overrides, now: float, *, as_json: bool) -> None:
    """Print the overrides of a file as a table or as JSON lines."""
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
@click.argument("site")
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--owner", required=True, help="Who is responsible for it.")
@click.option("--reason", required=True, help="Why it is needed.")
@click.option(
    "--until", required=True, metavar="DAY", help="The last day on which it applies: 2027-03-31."
)
@click.option("--id", "identity", default="", help="Its name in records.")
@overrides_option
def add(
    site: str,
    changes: tuple[str, ...],
    *,
    owner: str,
    reason: str,
    until: str,
    identity: str,
    overrides: str | None,
) -> None:
    """Make an exception for a site: an origin such as https://host, or *.host for a domain and all below it.

    KEY=VALUE is action=pass or action=drop, a setting such as max_delay=1, or robots_file=FILE: the site's requests
    are then judged by that robots.txt instead of the site's own.

    It is added to the overrides file, which is created if necessary. Integrations that run apply it within a second.
    """
    path = _changed_path(overrides)
    wanted = NewOverride(_place(site), _changes(changes, path), owner, reason, until, identity)
    with _locked(path):
        before = _text_of(path)
        text = text_with(before, wanted, _BASE)
        added = parse(text, _BASE).by_place[wanted.place]
        if added.state(CLOCKS.now()) is State.EXPIRED:
            raise SettingsError(f"--until {until!r} is in the past: name a later day")
        if added.robots_file is not None:
            pinned = read_pinned(pinned_path(added, path), added.terms.dialect, CLOCKS.now())
            for _, problem in _problems_of(added.with_pinned(pinned.document)):
                click.echo(f"robots-guard: {safe(problem)}", err=True)
        _write(path, text, before)
    shown = ", ".join(f"{name}={value}" for name, value in wanted.changes.items())
    click.echo(
        f"{safe(added.where)}: {safe(shown)} until {expiry(added.exemption.expires)}"
        f" (override {safe(added.exemption.id)} in {safe(str(path))})"
    )


@overrides.command()
@click.argument("site")
@overrides_option
def remove(site: str, overrides: str | None) -> None:
    """Remove the override of a site from the overrides file."""
    path, place = _changed_path(overrides), _place(site)
    with _locked(path):
        before = _text_of(path)
        text, removed = text_without(before, place, _BASE)
        _write(path, text, before)
    click.echo(
        f"{safe(removed.where)} has no override any more (override {safe(removed.exemption.id)}"
        f" removed from {safe(str(path))})"
    )


def _path_of(file: str | None, option: str | None) -> Path:
    path = file or chosen("overrides", option)
    if not path:
        raise SettingsError("no overrides file is given: name it as FILE, or with --overrides")
    return Path(path).expanduser()


def _changed_path(option: str | None) -> Path:
    path = chosen("overrides", option)
    if not path:
        raise SettingsError("no overrides file is given: name it with --overrides")
    found = Path(path).expanduser()
    if found.is_symlink() and not found.exists():
        raise SettingsError(f"{path!r} leads to no file (symbolic links): name the file itself")
    return found


def _place(site: str) -> Origin | str:
    if site.startswith("*."):
        return suffix_place(site.removeprefix("*."))
    try:
        return origin_of(site.removesuffix("/"))
    except (MalformedURL, NotGoverned) as error:
        raise SettingsError(f"{error}: write a site as https://host, or as *.host") from None


def _changes(given: tuple[str, ...], overrides: Path) -> dict[str, str]:
    """The keys of an override. The path of a file becomes one that the overrides file can name."""
    changes = {}
    for each in given:
        name, divider, value = each.partition("=")
        if not divider:
            raise SettingsError(f"{each!r} sets nothing: write KEY=VALUE, such as max_delay=1")
        name = name.replace("-", "_")
        if name in changes:
            raise SettingsError(f"{name} is given twice: decide for one value")
        changes[name] = _name_within(overrides, Path(value)) if name == ROBOTS_FILE else value
    return changes


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


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the directory of the overrides file, so that of two commands at once, one works on what the
    other has written."""
    try:
        descriptor = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError:  # `_write` says what is wrong with it
        yield
        return
    try:
        with suppress(OSError):  # where there are no locks, `_write` notices most changes
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, text: str, before: str) -> None:
    """Replace the overrides file atomically, so that no guard reads half of it. Raises SettingsError."""
    content, target = text.encode(), path.resolve()
    if len(content) > MAX_BYTES:
        raise SettingsError(
            f"{str(path)!r} would have more than {MAX_BYTES:,} bytes, which no guard reads:"
            " remove overrides that have expired"
        )
    try:
        descriptor, name = mkstemp(dir=target.parent, prefix=f".{target.name}.")
        new, mode = Path(name), 0o644
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            if target.exists():
                state = target.stat()
                os.chown(new, state.st_uid, state.st_gid)
                mode = stat.S_IMODE(state.st_mode)
            new.chmod(mode)
            if _text_of(target) != before:
                raise SettingsError(f"{str(path)!r} was changed meanwhile: try again")
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(
            f"{str(path)!r} cannot be written ({error.strerror}): check its directory's permissions,"
            " or run the command as the owner of the file"
        ) from None


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
