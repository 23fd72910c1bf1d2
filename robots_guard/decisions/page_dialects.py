"""Page dialects: the documented readings of X-Robots-Tag and META robots, as data.

`union` denies whatever one of the documents denies. Each other dialect is the reading of one
operator or document. Sources: Google's robots meta tag page of 24 March 2026; Bing's webmaster blog
of September 2023 (nocache, noarchive); Yandex's page on meta robots (2026); A. Alikberov, 1996, as
published by Kollar; Amazon's page on Amazonbot of April 2026; DeviantArt (November 2022) for noai;
Mojeek (October 2023) for noml; draft-canel-robots-ai-control-00.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from robots_guard.decisions.signal_settings import Use

SEARCH, SNIPPET, ARCHIVE = Use.SEARCH.value, Use.SNIPPET.value, Use.ARCHIVE.value
FOLLOW, TRAIN, TDM = Use.FOLLOW.value, Use.AI_TRAIN.value, Use.TDM.value
INPUT, INDEX = Use.AI_INPUT.value, Use.AI_INDEX.value

Denials = Mapping[str, tuple[str, ...]]


class PageDialect(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the robots rules of a page.

    `denies` has the uses that each rule denies, and `images` the same for the images of the page.
    `lifts` has the other rules that a rule cancels, whether they are in a header field or the page.
    """

    denies: Denials
    images: Denials
    lifts: Mapping[str, tuple[str, ...]] = {}
    noindex_drops_links: bool = False  # noindex denies `follow`, unless FOLLOW or ALL is stated
    nocache_replaces_noarchive: bool = False


_COMMON: dict[str, tuple[str, ...]] = {
    "noindex": (SEARCH, SNIPPET, INDEX),
    "nofollow": (FOLLOW,),
    "none": (SEARCH, SNIPPET, INDEX, FOLLOW),
    "nosnippet": (SNIPPET, INPUT),
    "noarchive": (ARCHIVE,),
    "nocache": (ARCHIVE,),
    "unavailable_after": (SEARCH, SNIPPET, ARCHIVE, INDEX),
}
_AI: dict[str, tuple[str, ...]] = {
    "noai": (INPUT, TRAIN),
    "noml": (INPUT, TRAIN),
    "disallowaitraining": (TRAIN,),
}
_IMAGES: dict[str, tuple[str, ...]] = {"noimageindex": (SEARCH,)}
_AI_IMAGES: dict[str, tuple[str, ...]] = {"noimageai": (TRAIN, INPUT)}

#: Bing and Amazon document that noarchive also denies AI uses; by its wording, `archive` only.
_NOARCHIVE = {"noarchive": (ARCHIVE, INPUT, TRAIN)}

UNION = PageDialect(denies=_COMMON | _AI | _NOARCHIVE, images=_IMAGES | _AI_IMAGES)

PAGE_DIALECTS: dict[str, PageDialect] = {
    "union": UNION,
    # noarchive and nocache are "no longer used" by Google; noai is not among its rules.
    "google": PageDialect(denies=_COMMON | {"noarchive": (), "nocache": ()}, images=_IMAGES),
    "bing": PageDialect(
        denies=_COMMON | _NOARCHIVE,
        images=_IMAGES,
        nocache_replaces_noarchive=True,
    ),
    # "If there is a contradiction, the permission is taken."
    "yandex": PageDialect(
        denies=_COMMON | {"nosnippet": (SNIPPET,)},
        images=_IMAGES,
        lifts={
            "all": ("noindex", "nofollow", "none", "noarchive"),
            "index": ("noindex",),
            "follow": ("nofollow",),
            "archive": ("noarchive",),
        },
    ),
    # ALL cancels every other term. The robot resolves other contradictions: FOLLOW is chosen here,
    # and NOINDEX, about which the document says nothing.
    "kollar1996": PageDialect(
        denies=_COMMON | _AI | _NOARCHIVE,
        images=_IMAGES | _AI_IMAGES,
        lifts={"all": ("*",), "follow": ("nofollow",)},
        noindex_drops_links=True,
    ),
}
