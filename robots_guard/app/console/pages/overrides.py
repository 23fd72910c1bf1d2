"""The operator's overrides, their state now, and what they changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from robots_guard.audit.read.search import DECISIONS, Search
from robots_guard.decisions.overrides import Override, Overrides, State
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import origin_of

LONGEST_FIELD = 1000  # characters
INVALID = "invalid"
STATES = (*State, INVALID)
_USES = f"""
    SELECT override, count(*) FILTER (action = 'pass'), count(*) FILTER (action <> 'pass'), max("at")
    FROM records WHERE override IS NOT NULL AND {DECISIONS} GROUP BY 1
"""


class Row(NamedTuple):
    """One override. If it is invalid, it has no effect, and `reason` says what is wrong with it."""

    state: str
    id: str
    place: str
    changes: list[tuple[str, str]]
    owner: str
    reason: str
    expires: float | None
    expiry: str  # as the operator wrote it


class OverrideUse(NamedTuple):
    """What the decisions under an override were: how many requests passed, how many did not, and
    the time of the last one."""

    passed: int
    others: int
    last: str


class PinForm(NamedTuple):
    """What was written in the form for pinning a robots.txt."""

    origin: str = ""
    file: str = ""
    owner: str = ""
    reason: str = ""
    until: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PinForm:
        """Read the fields. Raises SettingsError for an origin that is none."""
        form = cls(*(given.get(name, "").strip()[:LONGEST_FIELD] for name in cls._fields))
        if not form.origin:
            return form
        try:
            return form._replace(origin=str(origin_of(form.origin.removesuffix("/"))))
        except (MalformedURL, NotGoverned) as error:
            raise SettingsError(f"{error}: write an origin as https://host") from None

    @property
    def is_complete(self) -> bool:
        """Whether every field has a value."""
        return all(self)

    def words(self) -> list[str]:
        """The arguments of the command."""
        options = [f"--{name}={getattr(self, name)}" for name in ("owner", "reason", "until")]
        return ["overrides", "add", self.origin, f"robots_file={self.file}", *options]


def uses_of(search: Search) -> dict[str, OverrideUse]:
    """Return the use of each override that a record names, by id."""
    return {
        override: OverrideUse(int(passed), int(others), last)
        for override, passed, others, last in search.rows(_USES)
    }


def rows(found: Overrides, now: float) -> list[Row]:
    """Return the overrides of a file; those that need attention come first."""
    every = [_row(each, now) for each in found.entries]
    every += [Row(INVALID, fault.which, "", [], "", fault.why, None, "") for fault in found.faults]
    return sorted(every, key=lambda row: (-STATES.index(row.state), row.expires or 0.0, row.id))


def _row(each: Override, now: float) -> Row:
    exemption = each.exemption
    changes = [(name, str(value)) for name, value in each.changes.items()]
    return Row(
        state=each.state(now),
        id=exemption.id,
        place=each.where,
        changes=changes,
        owner=exemption.owner,
        reason=exemption.reason,
        expires=exemption.expires,
        expiry=each.expiry,
    )
