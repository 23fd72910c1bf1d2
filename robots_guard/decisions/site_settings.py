"""The settings that judging depends on, which an override can change for one site.

A setting is described once, by the type of its field: `Annotated[type, Meta(...)]` states the valid
values and what they mean. The first sentence of a description is the help text on the command line;
the whole description, in Markdown, is the entry in docs/settings.md.
"""

# Annotations are evaluated at once here, because msgspec compiles postponed ones again for each struct.

from functools import cache
from inspect import get_annotations
from typing import Annotated, Any, Literal, get_origin

import msgspec
from msgspec import Meta

from robots_guard.decisions.pacing import LONGEST_DELAY
from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.errors import SettingsError
from robots_guard.protocol.paths import MatchingName
from robots_guard.text import wrong_type


class PolicySettings(SignalSettings, frozen=True, kw_only=True):
    """How a site's robots.txt is applied. Raises SettingsError for an invalid value."""

    on_restricted: Annotated[
        Literal["drop", "allow"],
        Meta(description="What to do if robots.txt answers 401 or 403: `drop` or `allow`."),
    ] = "drop"
    on_unreachable: Annotated[
        Literal["defer", "drop", "allow"],
        Meta(
            description="What to do if robots.txt cannot be fetched: `defer`, `drop` or `allow`."
            " It applies when there is no copy younger than 30 days."
        ),
    ] = "defer"
    on_disallowed: Annotated[
        Literal["drop", "defer"],
        Meta(
            description="What to do with a request that a rule forbids: `drop`, or `defer` until"
            " the next robots.txt. A deferred request is judged again each time the site's"
            " robots.txt has been renewed, for `max_defer` seconds at most, and then dropped."
        ),
    ] = "drop"
    max_defer: Annotated[
        float,
        Meta(
            ge=0,
            le=31_536_000.0,
            description="Seconds after which a deferred request is dropped, if its origin is"
            " unreachable or forbids it.",
        ),
    ] = 900.0
    min_delay: Annotated[
        float,
        Meta(
            ge=0,
            le=LONGEST_DELAY,
            description="The least number of seconds between two requests to an origin, whatever its robots.txt says.",
        ),
    ] = 0.0
    # The default is 5 minutes: a longer delay is a mistake, or is better expressed by a Disallow.
    max_delay: Annotated[
        float,
        Meta(
            ge=0,
            le=LONGEST_DELAY,
            description="The most seconds that Crawl-delay and Request-rate can require; 0: both"
            " are ignored. A longer, infinite or `nan` delay is cut to this, and recorded."
            " See [pacing.md](pacing.md).",
        ),
    ] = 300.0
    visit_time: Annotated[
        Literal["keep", "ignore"],
        Meta(
            description="What to do with Visit-time, the hours at which a site wants to be visited: `keep` or `ignore`."
        ),
    ] = "keep"

    def __post_init__(self) -> None:
        try:
            msgspec.convert(self, _checked(type(self)), from_attributes=True)
        except msgspec.ValidationError:
            raise SettingsError(_first_fault(self)) from None
        super().__post_init__()


class SiteSettings(PolicySettings, frozen=True, kw_only=True):
    """All settings that an override can change for one site."""

    dialect: Annotated[
        str,
        Meta(
            description="How robots.txt is read: `rfc9309`, `google`, ..., or `strictest(a, b)`,"
            " which allows only what each allows. See [dialects.md](dialects.md)."
        ),
    ] = "rfc9309"
    matching: Annotated[
        MatchingName,
        Meta(
            description="Which spellings of a URL count as the same: `spec`, `standard` or"
            " `strict`. `spec` is as RFC 9309 says; `standard` adds `/./`, `//`, `;x` and the"
            " like, `strict` also `%2F` and letter case. A spelling can only add a refusal."
        ),
    ] = "standard"


@cache
def types_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the type of each setting in a struct: of those fields that have a description.

    A struct's own settings come first, then those of its base.
    """
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    names = [name for base in kind.__mro__ for name in get_annotations(base)]
    return {name: types[name] for name in names if get_origin(types.get(name)) is Annotated}


@cache
def _checked(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A struct of the settings of another, by which one call checks the types of all values."""
    return msgspec.defstruct(kind.__name__, list(types_of(kind).items()))


def _first_fault(settings: msgspec.Struct) -> str:
    """The first setting whose value does not fit its type, and what to write instead."""
    types = types_of(type(settings))
    values = {name: getattr(settings, name) for name in types}
    faults = ((name, wrong_type(values[name], kind)) for name, kind in types.items())
    return next(f"{name} {values[name]!r} {fault}" for name, fault in faults if fault)
