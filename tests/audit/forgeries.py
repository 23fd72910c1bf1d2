"""Forgeries of bundles, and whether they verify."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
from audit.evidence_log import line_of

from robots_guard.audit.bundle.archive import MANIFEST, NoBundle, manifest_of, write_archive
from robots_guard.audit.bundle.trust import BundleTrust
from robots_guard.audit.bundle.verification import ClaimState, Verification, verify_bundle
from robots_guard.audit.schema import database
from robots_guard.audit.segments import INDEX

NO_TRUST = BundleTrust()


def archive_of(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    write_archive(target, files)
    return target.getvalue()


def is_refused(files: dict[str, bytes], trust: BundleTrust = NO_TRUST) -> bool:
    """Whether a bundle of these files does not verify."""
    return is_archive_refused(archive_of(files), trust)


def is_archive_refused(data: bytes, trust: BundleTrust = NO_TRUST) -> bool:
    """Whether a bundle does not verify."""
    try:
        return verify_bundle(data, trust).is_contradicted
    except NoBundle:
        return True


def contradictions(result: Verification) -> list[str]:
    """What contradicts a bundle."""
    return [each.sentence for each in result.claims if each.state is ClaimState.CONTRADICTED]


def forge_copies(directory: Path, rows: str) -> None:
    """Replace the copies in the index of a log by what this SELECT finds in them ({})."""
    for copy in (directory / INDEX).iterdir():
        forged = copy.with_suffix(".forged")
        with database() as connection:
            sql = rows.format(f"read_parquet('{copy}')")
            connection.execute(f"COPY ({sql}) TO '{forged}' (FORMAT parquet)")
        forged.chmod(0o600)
        forged.replace(copy)


def with_manifest(files: dict[str, bytes]) -> dict[str, bytes]:
    return files | {MANIFEST: manifest_of(files)}


def other_value(value: Any, name: str = "") -> Any:
    """Another value of the same type, as JSON has it. `name` is that of the field."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", value):
            return value[:18] + str((int(value[18]) + 1) % 10) + value[19:]
        case str() if re.fullmatch("[0-9a-f]{64}", value):
            return ("1" if value[0] == "0" else "0") + value[1:]
        case str():
            return value + "x"
        case list() if value:
            return value[:-1]
        case list():
            return ["x"]
        case dict():
            return value | {"x": "y"}
    return {"line": 7, "age": 1.5, "status": 404, "size": 9}.get(name, "x")


def forged_line(raw: bytes, name: str) -> bytes | None:
    """The line with another value in one field; None if no other value makes it a record."""
    entry = line_of(raw).entry
    return line_if_other(raw, with_other_value(entry, name))


def with_other_value(part: Any, name: str) -> Any:
    """A struct with another value in one field; None if no value of the field's type is known."""
    item = {"signal": "x-robots-tag", "where": "header"}
    values = msgspec.to_builtins(part)
    for candidate in (
        other_value(msgspec.to_builtins(getattr(part, name)), name),
        *("x", 7, 1.5, True, ["x"], {"x": "y"}, [item]),
    ):
        try:
            other = msgspec.convert(values | {name: candidate}, type(part))
        except msgspec.ValidationError:
            continue
        if getattr(other, name) != getattr(part, name):
            return other
    return None


def line_if_other(raw: bytes, other: Any) -> bytes | None:
    """The line of a record; None if it is the line `raw`, or cannot be read."""
    line: bytes = other.line_of_json() if other is not None else raw
    if line == raw:
        return None
    try:
        line_of(line)
    except AssertionError:
        return None
    return line
