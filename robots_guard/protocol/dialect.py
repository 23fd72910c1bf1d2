"""The dialects of robots.txt: ten profiles, each a frozen object of named switches.

Invariant: no code tests the name of a dialect. Every difference between dialects is a switch, which
the other layers read. `docs/dialects.md` gives the source of each switch, and the choice made where
a source is silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

from robots_guard.errors import SettingsError

DAY = 86_400.0

Precedence = Literal["longest", "first"]
Percent = Literal["rfc9309", "decode", "as_written", "google"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a document is parsed, matched and cached. The defaults are those of RFC 9309."""

    name: str
    parts: tuple[Dialect, ...] = ()  # the members of strictest(...), otherwise empty

    # Reading lines.
    blank_line_ends: bool = False  # a blank line ends a record (1994, 1996; not in RFC 9309)
    #: Fields that end a run of User-agent lines.
    closing: frozenset[bytes] = frozenset({b"allow", b"disallow"})
    lenient_fields: bool = False  # accept misspelt and longer field names, and a missing colon
    #: Characters that are not seen do not count, names may have digits, and a file that can be
    #: mended has a second reading.
    plain_meaning: bool = True
    #: The second reading: several names on a line, slips in fields and lines in a line are mended.
    mends: bool = False
    c_strings: bool = False  # NUL ends a line, other controls are data, long lines are truncated

    # Which group applies.
    product_tokens: bool = True  # names and values end at the first non-token character
    names: Literal["token", "value_in_name", "name_in_value"] = "token"
    names_per_line: Literal["one", "many"] = "one"
    several: Literal["merge", "first", "longest"] = "merge"
    aliases: tuple[str, ...] = ()  # names of one crawler, tried in this order

    # What a rule is.
    allow: bool = True
    paths_per_line: Literal["one", "many"] = "one"
    root_slash: bool = False  # a path without a leading slash is relative to the root
    index_page: bool = False  # Allow: /d/index.html also allows /d/
    wildcards: bool = True
    dollar: Literal["end", "cuts", "literal"] = "end"
    percent: Percent = "rfc9309"
    escapes_urls: bool = True  # the text of a URL is escaped before it is compared
    precedence: Precedence = "longest"
    exempts_robots_txt: bool = True  # RFC 9309 section 2.2.2; koster1996 section 3.2.2
    host_directive: bool = False
    delay_from_star: bool = False  # Crawl-delay in the * group applies as well
    advised_rules: int | None = None  # more are reported by lint, but never dropped
    advised_bytes: int | None = None  # bytes of a rule; longer ones are reported by lint
    requirements: tuple[str, ...] = ()  # what the source requires of a file; see lint/groups.py

    # Access and freshness, read by `decisions` (docs/dialects.md and RFC 9309 sections 2.3.1 and 2.4).
    on_forbidden: Literal["restricted", "unrestricted"] = "restricted"  # 401 and 403
    on_too_many: Literal["unreachable", "unrestricted"] = "unreachable"  # 429
    on_redirect_limit: Literal["unreachable", "unrestricted"] = "unreachable"
    lifetime: float = DAY
    lifetime_floor: float = 300.0
    lifetime_cap: float | None = field(default=DAY)

    def __reduce__(self) -> tuple[Callable[[], Dialect], tuple[()]]:
        """Copies and pickles are made by the constructor. In the compiled core, Python would make
        an empty object and assign to its fields, which are frozen."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return partial(Dialect, **values), ()


# Misspelt fields are accepted as Google accepts them: "Disalow" is meant, and ignoring it would
# fail open.
_RFC9309 = Dialect(name="rfc9309", lenient_fields=True)

_KOSTER1994 = Dialect(
    name="koster1994",
    blank_line_ends=True,
    closing=frozenset({b"disallow"}),
    product_tokens=False,
    names="value_in_name",
    allow=False,
    wildcards=False,
    dollar="literal",
    percent="as_written",
    precedence="first",
    requirements=("one_default_record", "rules_in_every_record"),
)

_RAMBLER2003 = replace(
    _KOSTER1994,
    name="rambler2003",
    blank_line_ends=False,
    root_slash=True,
    requirements=("one_name_a_line", "one_line_a_name", "rules_in_every_group"),
)

_PROFILES = (
    _KOSTER1994,
    replace(
        _KOSTER1994,
        name="kollar1996",
        names_per_line="many",
        paths_per_line="many",
        requirements=("rules_in_every_record", "one_agent_line_a_record"),
    ),
    Dialect(
        name="koster1996",
        blank_line_ends=True,
        product_tokens=False,
        names="name_in_value",
        several="first",
        wildcards=False,
        dollar="literal",
        percent="decode",
        precedence="first",
        requirements=("robots_txt_not_in_rules", "allow_starts_at_root"),
        lifetime=7 * DAY,
        lifetime_cap=None,
    ),
    _RAMBLER2003,
    replace(
        _RAMBLER2003,
        name="yandex2003",
        host_directive=True,
        closing=frozenset({b"disallow", b"host"}),
        requirements=("one_name_a_line", "one_line_a_name"),
    ),
    Dialect(
        name="slurp2006",
        product_tokens=False,
        names="value_in_name",
        dollar="cuts",
        percent="as_written",
    ),
    _RFC9309,
    Dialect(
        name="google",
        lenient_fields=True,
        plain_meaning=False,
        c_strings=True,
        index_page=True,
        percent="google",
        escapes_urls=False,
        exempts_robots_txt=False,
        on_forbidden="unrestricted",
        on_redirect_limit="unrestricted",
    ),
    replace(_RFC9309, name="bing", aliases=("bingbot", "msnbot"), delay_from_star=True),
    replace(
        _RFC9309,
        name="yandex",
        names="value_in_name",
        several="longest",
        advised_rules=2048,
        advised_bytes=1024,
    ),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({each.name: each for each in _PROFILES})

_STRICTEST = re.compile(r"\s*strictest\s*\(([^()]*)\)\s*")


def dialect(name: str) -> Dialect:
    """The dialect of a name, or of several, such as "strictest(rfc9309, koster1996)".

    Raises SettingsError.
    """
    composite = _STRICTEST.fullmatch(name)
    if composite:
        return _strictest(tuple(_known(part.strip() or name) for part in composite[1].split(",")))
    return _known(name)


def _known(name: str) -> Dialect:
    found = DIALECTS.get(name)
    if found is None:
        raise SettingsError(
            f"dialect {name!r} is not known; use one of {', '.join(DIALECTS)}, or strictest(a, b)"
        )
    return found


def _strictest(parts: tuple[Dialect, ...]) -> Dialect:
    """The dialect that allows what all parts allow, and caches no longer than any of them."""
    caps = [part.lifetime_cap for part in parts if part.lifetime_cap is not None]
    is_restricted = any(part.on_forbidden == "restricted" for part in parts)
    too_many = any(part.on_too_many == "unreachable" for part in parts)
    redirect_limit = any(part.on_redirect_limit == "unreachable" for part in parts)
    return replace(
        parts[0],
        name=f"strictest({', '.join(part.name for part in parts)})",
        parts=parts,
        exempts_robots_txt=any(part.exempts_robots_txt for part in parts),
        escapes_urls=all(part.escapes_urls for part in parts),
        on_forbidden="restricted" if is_restricted else "unrestricted",
        on_too_many="unreachable" if too_many else "unrestricted",
        on_redirect_limit="unreachable" if redirect_limit else "unrestricted",
        lifetime=min(part.lifetime for part in parts),
        lifetime_floor=min(part.lifetime_floor for part in parts),
        lifetime_cap=min(caps, default=None),
    )
