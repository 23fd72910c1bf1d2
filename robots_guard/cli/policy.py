"""`robots-guard policy`: what is held for each origin, in the store that all doors share.

All but `refresh` look at the store alone: no network, no journal, and no agent is needed. What long work has come
to is drawn on standard error, if that is a terminal.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from robots_guard.audit.query import Trouble, records
from robots_guard.audit.record import moment, shown_url
from robots_guard.cli import Group
from robots_guard.cli.carrying import read_policy, written
from robots_guard.cli.check import guard_of
from robots_guard.cli.explain import facts
from robots_guard.cli.options import (
    insist_on_known_variables,
    journal_option,
    settings_from,
    settings_options,
    store_option,
)
from robots_guard.cli.terminal import Rows, print_lines, safe, write_encoded, write_line
from robots_guard.core.access import Access
from robots_guard.core.policy import Policy
from robots_guard.errors import DamagedValue, MalformedURL, NotGoverned, SettingsError
from robots_guard.guard import Guard
from robots_guard.origin import Origin, split_url
from robots_guard.plain import span
from robots_guard.ports import PolicyStore, SharedStore
from robots_guard.rep.dialect import Dialect, dialect
from robots_guard.rep.lines import clean
from robots_guard.settings import CLOCKS, default_journal, default_store
from robots_guard.stores import look_at, open_store

AT_ONCE = 64  # origins asked at the same time
TOLD = 10  # lines that cannot be used, told one by one
MAX_LINE = 16 * 1024  # octets of a line in a list of origins
NOT_HELD, UNREADABLE, LATER = 1, 2, 3  # exit statuses
_SHA256 = re.compile(r"[0-9a-f]{64}")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@click.group(cls=Group, no_args_is_help=False)
def policy() -> None:
    """See, renew, drop and carry the policies held in the store."""


def dialect_option(command: F) -> F:
    """Give a command the option by which access and age are read."""
    return click.option("--dialect", default="rfc9309", show_default=True, help="How access and age are read.")(command)


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a policy.")


@contextmanager
def opened(store: str | None, how: Callable[[str], SharedStore | None] = open_store) -> Iterator[SharedStore]:
    """The store, closed in the end; by `look_at`, only to be looked at. Raises SettingsError."""
    insist_on_known_variables()
    held = how(store or default_store())
    if held is None:
        raise SettingsError("store = 'memory:' holds nothing beyond one process: name the doors' own with --store")
    try:
        yield held
    finally:
        held.close()


# -- looking --------------------------------------------------------------------------------------------------


@policy.command()
@store_option
@dialect_option
@json_option
def ls(store: str | None, dialect: str, as_json: bool) -> None:
    """List what is held."""
    view = View(dialect)
    rows = Rows("access", "state", "origin", "age", "fresh for", "status", "via", "octets")
    with opened(store, look_at) as held:
        for each in _held(held):
            if as_json:
                write_encoded(view.line(each))
            else:
                rows.add(view.row(each))
    rows.end()


@policy.command()
@click.argument("url")
@store_option
@dialect_option
@click.option("--raw", is_flag=True, help="The file as it was fetched, octet by octet, and nothing else.")
@json_option
def show(url: str, store: str | None, dialect: str, raw: bool, as_json: bool) -> int:
    """Show what is held for the origin of a URL, and the file."""
    origin, view = _origin(url), View(dialect)
    with opened(store, look_at) as held:
        found = held.get(origin)
    if found is None:
        click.echo(f"robots-guard: nothing is held for {origin}", err=True)
        return NOT_HELD
    if raw:
        sys.stdout.buffer.write(found.document.body if found.document else b"")
    elif as_json:
        write_encoded(view.line(found, body=True))
    else:
        print_lines((f"{name:10} {value}", "") for name, value in view.facts(found))
        if found.document and found.document.body:
            print_lines([("", ""), *((safe(line.decode("utf-8", "replace")), "") for line in _lines(found))])
    return 0


def _lines(found: Policy) -> list[bytes]:
    assert found.document is not None
    return clean(found.document.body).splitlines()


# -- renewing and dropping ------------------------------------------------------------------------------------


@policy.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--from", "listed", type=click.File("rb"), metavar="FILE|-", help="Also those of a list, one a line.")
@click.option("--missing", is_flag=True, help="Leave alone what is still fresh.")
@json_option
@settings_options
def refresh(urls: tuple[str, ...], listed: BinaryIO | None, missing: bool, as_json: bool, **values: Any) -> int:
    """Ask origins for their robots.txt, 64 at once, and keep what they say: warms the store for a crawl.

    Exit status: 0 all were asked, 3 at least one is unreachable, 2 at least one line names no origin, or the store
    has failed.
    """
    if not urls and listed is None:
        raise click.UsageError("no origin is given: name at least one, or a list of them with --from FILE")
    settings = settings_from(values)
    if settings.store == "memory:":
        raise SettingsError("store = 'memory:' keeps nothing beyond this command: name the doors' own with --store")
    faults = Faults()
    origins = list(dict.fromkeys(_origins(chain(_given(urls), _listed(listed)), faults)))
    report = Refreshed(View(settings.dialect), as_json=as_json)
    with guard_of(settings) as guard, progress("robots.txt", len(origins)) as advance:

        def told(found: Policy) -> None:
            report.add(found)
            advance()

        asyncio.run(ask_all(guard, origins, told, renew=not missing))
    report.end()
    lost = _store_failed(guard)
    return UNREADABLE if faults.tell() or lost else LATER if report.later else 0


def _store_failed(guard: Guard) -> bool:
    """Whether it has; then what was asked for may be kept nowhere, and this is said."""
    failures = guard.counts["store/error"]
    if failures:
        click.echo(f"robots-guard: {failures} calls of the store failed: what it did not take is not kept", err=True)
    return failures > 0


async def ask_all(guard: Guard, origins: Iterable[Origin], told: Callable[[Policy], None], *, renew: bool) -> None:
    """Ask them, a bounded number under way; each is told as it settles."""
    left = iter(origins)

    async def work() -> None:
        for origin in left:
            told(await guard.policy(origin, renew=renew))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


@policy.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--all", "everything", is_flag=True, help="All that is held.")
@store_option
def forget(urls: tuple[str, ...], everything: bool, store: str | None) -> int:
    """Drop what is held for origins. Doors that run keep what they have in memory until it is stale."""
    if bool(urls) == everything:
        raise click.UsageError("name the origins to forget, or give --all")
    with opened(store) as held:
        origins = sorted(set(held.origins())) if everything else [_origin(url) for url in urls]
        dropped = [held.forget(origin) for origin in tracked(origins, "forgetting")]
    for origin, was_held in zip(origins, dropped, strict=True):
        if not everything:
            write_line(f"{'forgotten' if was_held else 'not held'}\t{origin}")
    if everything:
        click.echo(f"robots-guard: {sum(dropped)} policies forgotten", err=True)
    return 0 if all(dropped) else NOT_HELD


@policy.command()
@journal_option
@store_option
def purge(journal: str | None, store: str | None) -> None:
    """Remove policies and documents that nobody used for 120 days. Every document that a record of the journal
    rests on counts as used now, so that its verdict can be shown again. Run it daily where many crawl."""
    with opened(store) as held:
        rested_on = _rested_on(journal)
        removed = held.purge(CLOCKS.now(), rested_on)
    click.echo(f"robots-guard: {removed} documents removed, {len(rested_on)} kept for the journal", err=True)


def _rested_on(journal: str | None) -> set[str]:
    """The documents that records of the journal rest on. Raises SettingsError unless all of it can be read."""
    directory, trouble = Path(journal or default_journal()).expanduser(), Trouble()
    if not directory.exists():
        if journal:  # named in vain, it protects nothing; the default is missing where nobody has recorded
            raise SettingsError(
                f"nothing is purged, because there is no journal {journal!r}:"
                " name the directory that the doors write to"
            )
        return set()
    named = (each.sha256 or "" for each in records(directory, trouble=trouble))
    rested_on = {digest for digest in named if _SHA256.fullmatch(digest)}  # a journal's lines may be anybody's
    if trouble.files:
        raise SettingsError(f"nothing is purged, because not all of the journal can be read: {trouble}")
    return rested_on


# -- carrying -------------------------------------------------------------------------------------------------


@policy.command()
@store_option
def export(store: str | None) -> None:
    """Write all that is held to standard output, as JSON Lines that import reads."""
    with opened(store, look_at) as held:
        for each in _held(held):
            sys.stdout.buffer.write(written(each))


@policy.command("import")
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@store_option
def import_(file: BinaryIO, store: str | None) -> int:
    """Take policies from an export. What is held and later stays.

    Exit status: 2 if a line could not be used; the others are taken.
    """
    faults, taken = Faults(), 0
    with opened(store) as held:
        for number, found in enumerate(read_policy(file, CLOCKS.now), 1):
            if isinstance(found, Policy):
                held.put(found, CLOCKS.now())
                taken += 1
            else:
                faults.add(f"line {number}", found)
    click.echo(f"robots-guard: {taken} policies read", err=True)
    return UNREADABLE if faults.tell() else 0


# -- what they share ------------------------------------------------------------------------------------------


class View:
    """Policies as somebody with a dialect sees them now."""

    def __init__(self, name: str) -> None:
        self._dialect: Dialect = dialect(name)
        self._now = CLOCKS.now()

    def row(self, policy: Policy) -> tuple[str, ...]:
        """For a table."""
        document, trouble = policy.document, policy.trouble
        left = policy.expires_at(self._dialect) - self._now
        status = str(trouble.status or trouble.failure) if trouble else str(document.status) if document else ""
        return (
            self.access(policy).value,
            policy.freshness(self._now, self._dialect).value,
            str(policy.origin),
            span(self._now - policy.settled_at),
            span(left) if left > 0 else "",
            status,
            document.via if document else "",
            str(len(document.body)) if document else "",
        )

    def access(self, policy: Policy) -> Access:
        """What it means."""
        return policy.access(self._now, self._dialect)[0]

    def facts(self, policy: Policy) -> Iterator[tuple[str, str]]:
        """For a page."""
        yield "origin", str(policy.origin)
        yield "access", f"{self.access(policy).value}, {policy.freshness(self._now, self._dialect).value}"
        yield from facts(policy, self._now, self._dialect)

    def line(self, policy: Policy, *, body: bool = False) -> bytes:
        """For machines: one JSON object. The body is text; what is no UTF-8 in it is replaced."""
        document, trouble = policy.document, policy.trouble
        data: dict[str, Any] = {
            "origin": str(policy.origin),
            "access": self.access(policy).value,
            "state": policy.freshness(self._now, self._dialect).value,
            "expires_at": moment(policy.expires_at(self._dialect)),
            "document": None,
            "trouble": None,
        }
        if document is not None:
            data["document"] = msgspec.to_builtins(document) | {
                "body": document.body.decode("utf-8", "replace") if body else None,
                "octets": len(document.body),
                "url": shown_url(document.url),
                "redirects": [shown_url(url) for url in document.redirects],
                "fetched_at": moment(document.fetched_at),
            }
        if trouble is not None:
            times = {"since": trouble.since, "at": trouble.at, "retry_at": trouble.retry_at}
            data["trouble"] = msgspec.to_builtins(trouble) | {name: moment(at) for name, at in times.items()}
        return msgspec.json.encode(data)


class Refreshed:
    """What became of a refresh, as it comes."""

    def __init__(self, view: View, *, as_json: bool) -> None:
        self.later = False
        self._view = view
        self._json = as_json
        self._rows = Rows("access", "origin", "status", "octets", "detail")
        self._counts: Counter[str] = Counter()

    def add(self, policy: Policy) -> None:
        """One origin has settled."""
        access = self._view.access(policy)
        self._counts[access.value] += 1
        self.later = self.later or access is Access.UNREACHABLE
        if self._json:
            write_encoded(self._view.line(policy))
            return
        document, trouble = policy.document, policy.trouble
        status = (trouble.status if trouble else document.status if document else None) or ""
        octets = str(len(document.body)) if document else ""
        detail = trouble.says if trouble else ""
        self._rows.add((access.value, str(policy.origin), str(status), octets, detail))

    def end(self) -> None:
        """Print what was held back, and the sums."""
        self._rows.end()
        sums = ", ".join(f"{count} {access}" for access, count in sorted(self._counts.items()))
        click.echo(f"robots-guard: {sums or 'nothing to ask'}", err=True)


class Faults:
    """Lines and arguments that could not be used: the first few are told, the others counted."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, which: str, why: str) -> None:
        """One more: which line, or argument."""
        self._count += 1
        if self._count <= TOLD:
            click.echo(f"robots-guard: {safe(which)}: {safe(why)}", err=True)

    def tell(self) -> bool:
        """Tell of those not told; whether there were any."""
        if self._count > TOLD:
            click.echo(f"robots-guard: {self._count - TOLD} more could not be used", err=True)
        return self._count > 0


def _held(store: PolicyStore) -> Iterator[Policy]:
    """All that can be read, by origin; what is damaged is told of and left out."""
    for origin in tracked(sorted(set(store.origins())), "reading"):  # a key may be spelt, or come, twice
        try:
            found = store.get(origin)
        except DamagedValue as error:
            click.echo(f"robots-guard: {error}", err=True)
            continue
        if found is not None:
            yield found


def _origin(url: str) -> Origin:
    try:
        return split_url(url)[0]
    except (NotGoverned, MalformedURL) as error:
        raise click.UsageError(f"{error}: give an origin such as https://example.com") from None


def _given(urls: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The arguments of a command line, and which they are."""
    return ((f"argument {number} ({url[:80]!r})", url) for number, url in enumerate(urls, 1))


def _listed(file: BinaryIO | None) -> Iterator[tuple[str, str]]:
    """The lines of a list, and which they are; blank ones and those that begin with # are left out."""
    number = 0
    while file is not None and (line := file.readline(MAX_LINE)):
        number += 1
        text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()
        if text and not text.startswith("#"):
            yield f"line {number}", text


def _origins(named: Iterable[tuple[str, str]], faults: Faults) -> Iterator[Origin]:
    for which, text in named:
        try:
            yield _origin(text)
        except click.UsageError as error:
            faults.add(which, error.message)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, if that is a terminal; call what is given for each step."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def tracked(items: list[T], what: str) -> Iterator[T]:
    """The items, with a bar."""
    with progress(what, len(items)) as advance:
        for item in items:
            yield item
            advance()
