"""A store for each region, where each origin has its home in one of them.

Processes in all regions ask the same store about an origin, its home's. So the fleet fetches each
robots.txt once and keeps one rate for each origin, although no data is copied between regions.
While a home cannot be reached, only its origins are without a store.

A home is found by rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998): each region gets a score for
the origin, and the highest wins. All processes that know the same names therefore agree, in
whatever order they list them. A further region becomes the home of its share of the origins, and no
origin moves between the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

from robots_guard.decisions.lease import Taken
from robots_guard.decisions.pacing import Turn, Wait
from robots_guard.decisions.policy import Policy
from robots_guard.errors import SettingsError, StoreError
from robots_guard.origin import Origin
from robots_guard.ports import SharedStore

FORM = "NAME=redis://host:port/db,NAME=redis://host:port/db for regions"
_NAME = r"[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?"
_BEGINNING = re.compile(r"\s*[\w-]*=")
_FURTHER = re.compile(r",[^=/?@]*=")
_REGION = re.compile(rf"(?:^|,)\s*({_NAME})=(?=(?:rediss?(?:\+(?:cluster|sentinel))?|unix)://)")
_SCORE = 8  # bytes


def has_regions(text: str) -> bool:
    """Whether a setting names regions, rightly or wrongly. No URL begins like this."""
    return bool(_BEGINNING.match(text))


def split_regions(text: str) -> dict[str, str]:
    """Return the URL of each region's store.

    A URL may contain commas, between the hosts of a cluster. Raises SettingsError for a text that
    is no list of NAME=URL.
    """
    found = list(_REGION.finditer(text))
    if not found or found[0].start():
        raise SettingsError(
            f"store: the first region is not NAME=URL: use {FORM}; a name has lower-case letters,"
            " digits and hyphens, and each region needs a server"
        )
    ends = [*(each.start() for each in found[1:]), len(text)]
    regions: dict[str, str] = {}
    for region, end in zip(found, ends, strict=True):
        url = text[region.end() : end].strip()
        if _FURTHER.search(url):
            raise SettingsError(
                f"store: what follows the region {region[1]!r} is not NAME=URL: use {FORM}"
            )
        if region[1] in regions:
            raise SettingsError(f"store: two regions are named {region[1]!r}: rename one")
        regions[region[1]] = url
    return regions


def open_regions(text: str, open_one: Callable[[str], SharedStore]) -> RegionalStore:
    """Open the store of each region with `open_one`.

    Raises SettingsError, with the region's name, if one cannot be opened.
    """
    with contextlib.ExitStack() as opened:  # closes them if one cannot be opened
        stores: dict[str, SharedStore] = {}
        for name, url in split_regions(text).items():
            try:
                stores[name] = open_one(url)
            except SettingsError as error:
                why = str(error).removeprefix("store: ")
                raise SettingsError(f"store: region {name!r}: {why}") from error
            opened.callback(stores[name].close)
        opened.pop_all()
        return RegionalStore(stores)


class RegionalStore:
    """A SharedStore that passes each call on to the home of its origin.

    `stores` are the regions' stores by name. The message of a StoreError names its region.
    """

    is_local = False

    def __init__(self, stores: Mapping[str, SharedStore]) -> None:
        self._stores = dict(stores)

    def home(self, origin: Origin) -> str:
        """Return the name of the origin's home."""
        return home_of(origin, self._stores)

    @contextlib.contextmanager
    def _at_home(self, origin: Origin) -> Iterator[SharedStore]:
        """Return the store of the origin's home."""
        region = self.home(origin)
        try:
            yield self._stores[region]
        except StoreError as error:
            _raise_from(region, error)

    # -- policies ----------------------------------------------------------------------------------

    def get(self, origin: Origin) -> Policy | None:
        """Return the stored policy, fresh or not, or None."""
        with self._at_home(origin) as store:
            return store.get(origin)

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy and its document, unless the stored policy is newer."""
        with self._at_home(policy.origin) as store:
            store.put(policy, now)

    def forget(self, origin: Origin) -> bool:
        """Remove the stored policy. Returns whether there was one."""
        with self._at_home(origin) as store:
            return store.forget(origin)

    def origins(self) -> Iterator[Origin]:
        """Yield every origin that has a stored policy in its home, in no order.

        A policy that was stored before its origin moved is not used, and is left out.
        """
        for region, store in self._stores.items():
            try:
                yield from (origin for origin in store.origins() if self.home(origin) == region)
            except StoreError as error:
                _raise_from(region, error)

    # -- leases ------------------------------------------------------------------------------------

    def take(self, origin: Origin, token: str, now: float, seconds: float) -> bool:
        """Take the origin's lease."""
        with self._at_home(origin) as store:
            return store.take(origin, token, now, seconds)

    def take_and_get(self, origin: Origin, token: str, now: float, seconds: float) -> Taken:
        """Take the origin's lease, and return also the policy that is stored then."""
        with self._at_home(origin) as store:
            return store.take_and_get(origin, token, now, seconds)

    def release(self, origin: Origin, token: str) -> None:
        """Release the lease, if the token still owns it."""
        with self._at_home(origin) as store:
            store.release(origin, token)

    # -- turns -------------------------------------------------------------------------------------

    def reserve(
        self, origin: Origin, delay: float, now: Callable[[], float], name: str = ""
    ) -> Turn | Wait:
        """Take the origin's turn, or return how long to wait for it, by the clock of its home."""
        with self._at_home(origin) as store:
            return store.reserve(origin, delay, now, name)

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        """Re-stamp the turn, if it is still the last."""
        with self._at_home(origin) as store:
            return store.move_turn(origin, stamp, since)

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:
        """Grant no turn for `seconds` from now. Never shortens an earlier pause."""
        with self._at_home(origin) as store:
            store.note_pause(origin, seconds, now)

    def last_turn(self, origin: Origin) -> tuple[float, float]:
        """Return the last turn and the end of the pause, as `reserve` would use them."""
        with self._at_home(origin) as store:
            return store.last_turn(origin)

    # -- documents ---------------------------------------------------------------------------------

    def document(self, sha256: str) -> bytes | None:
        """Return the body with that digest, from whichever region has it, or None.

        A StoreError of one region is raised only if no other has the document.
        """
        failed: tuple[str, StoreError] | None = None
        for region, store in self._stores.items():
            try:
                body = store.document(sha256)
            except StoreError as error:
                failed = (region, error)
                continue
            if body is not None:
                return body
        if failed is not None:
            _raise_from(*failed)
        return None

    def close(self) -> None:
        """Close the connections to all regions."""
        with contextlib.ExitStack() as closing:
            for store in self._stores.values():
                closing.callback(store.close)


def _raise_from(region: str, error: StoreError) -> NoReturn:
    """Raise the error of a region's store, naming the region in its message."""
    error.args = (f"{error} (the store of the region {region})", *error.args[1:])
    raise error


def home_of(origin: Origin, regions: Iterable[str]) -> str:
    """Return the name of the origin's home among at least one region."""
    suffix = f"\n{origin}".encode()
    return max(regions, key=lambda region: (_score(region.encode() + suffix), region))


def _score(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_SCORE).digest()
