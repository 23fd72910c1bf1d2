"""The settings for signals: what the crawler is for, and how a site's statements are applied.

Lists are texts whose members are separated by commas, because every integration and the command
line can pass a text.
"""

# Annotations are evaluated at once here, because msgspec compiles postponed ones again for each struct.

import re
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from robots_guard.errors import SettingsError
from robots_guard.protocol.robots import NAME
from robots_guard.protocol.signals.usage import ContentUse
from robots_guard.text import did_you_mean


class Use(StrEnum):
    """A use of content. `crawl` is decided by Allow and Disallow. `follow` is about the links of a
    page. The others can be declared as purposes."""

    CRAWL = "crawl"
    FOLLOW = "follow"
    SEARCH = "search"
    SNIPPET = "snippet"
    ARCHIVE = "archive"
    AI_INPUT = "ai-input"
    AI_INDEX = "ai-index"
    AI_TRAIN = "ai-train"
    TDM = "tdm"


_TOKEN = re.compile(NAME)
#: The readings in `decisions/page_dialects.py`.
PageDialectName = Literal["union", "google", "bing", "yandex", "kollar1996"]
#: The uses that a reservation of text and data mining (TDMRep) denies: training is mining.
RESERVED = (Use.TDM.value, Use.AI_TRAIN.value)
PURPOSES = tuple(use.value for use in Use if use not in (Use.CRAWL, Use.FOLLOW))


class SignalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a site's signals are applied. Raises SettingsError for an invalid value."""

    purposes: Annotated[
        str,
        Meta(
            description="What the crawled content is used for, separated by commas: "
            + ", ".join(f"`{name}`" for name in PURPOSES)
            + ". Signals are only enforced against declared purposes."
            " See [signals.md](signals.md).",
        ),
    ] = ""
    signals: Annotated[
        Literal["auto", "off", "record", "enforce"],
        Meta(
            description="What to do with signals such as X-Robots-Tag and Content-Usage: `off`,"
            " `record`, `enforce`, or `auto`. `auto` is `enforce` if `purposes` are declared. If not,"
            " nothing but a demand for payment is refused, in Scrapy, and pages are not read. With"
            " `record`, signals are recorded and passed on, but refuse nothing."
        ),
    ] = "auto"
    page_dialect: Annotated[
        PageDialectName,
        Meta(
            description="How X-Robots-Tag and META robots are read: `union`, `google`, `bing`,"
            " `yandex` or `kollar1996`. `union` is the strictest of all documented readings. Each"
            " of the others is the reading of that operator or document."
        ),
    ] = "union"
    on_unknown: Annotated[
        Literal["allow", "deny"],
        Meta(
            description="What to do with a page if its site says nothing about a declared purpose:"
            " `allow` or `deny`."
        ),
    ] = "allow"
    content_use: Annotated[
        ContentUse,
        Meta(
            description="The crawler's level of use, for `use=` in Content-Signal:"
            " `immediate` (keeps nothing), `reference` (index, excerpt and link) or `full`."
            " If a site permits a lower level only, every declared purpose is refused."
        ),
    ] = "full"
    noindex_action: Annotated[
        Literal["drop", "follow-only"],
        Meta(
            description="What Scrapy does with a page that only `noindex` refuses: `drop` it, or"
            " use it for its links only (`follow-only`), which drops its items. The proxy refuses"
            " it in any case."
        ),
    ] = "drop"
    purpose_tokens: Annotated[
        str,
        Meta(
            description="Product tokens whose Disallow rules deny a purpose, as `use=token`"
            " separated by commas, such as `ai-train=GPTBot,ai-train=CCBot`. Such rules are"
            " addressed to other crawlers; it is your choice to apply them to your own.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        uses_in("purposes", self.purposes)
        tokens_in(self.purpose_tokens)

    @property
    def declared(self) -> tuple[str, ...]:
        """The declared purposes."""
        return uses_in("purposes", self.purposes)

    @property
    def tokens(self) -> tuple[tuple[str, str], ...]:
        """The purpose tokens, as pairs of a use and a product token."""
        return tokens_in(self.purpose_tokens)

    @property
    def reads_signals(self) -> bool:
        """Whether signals are read at all."""
        return self.signals != "off"

    @property
    def enforces_signals(self) -> bool:
        """Whether signals are enforced."""
        return self.signals in ("auto", "enforce") and self.purposes != ""

    @property
    def needs_reservations(self) -> bool:
        """Whether a declared purpose depends on the origin's /.well-known/tdmrep.json."""
        if not self.purposes or self.signals == "off":
            return False
        return not set(RESERVED).isdisjoint(self.declared)


@lru_cache(maxsize=256)
def uses_in(name: str, text: str) -> tuple[str, ...]:
    """The uses in the value of the setting `name`, each once. Raises SettingsError."""
    uses = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for use in uses:
        if use not in PURPOSES:
            raise SettingsError(
                f"{name} {text!r}: {use!r} is not a use: {did_you_mean(use, PURPOSES)}"
            )
    return uses


@lru_cache(maxsize=256)
def tokens_in(text: str) -> tuple[tuple[str, str], ...]:
    """The pairs of `purpose_tokens`. Raises SettingsError."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        use, equals, token = part.partition("=")
        token = token.strip()
        if not equals or not use.strip() or not _TOKEN.fullmatch(token):
            raise SettingsError(
                f"purpose_tokens {text!r}: {part!r} is not of the form use=token, such as"
                " ai-train=GPTBot"
            )
        pairs += [(named, token) for named in uses_in("purpose_tokens", use)]
    return tuple(dict.fromkeys(pairs))
